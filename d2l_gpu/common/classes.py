"""Classes that grow cell by cell, and constructors that save their arguments."""

import inspect
import sys
from collections.abc import Callable, Sequence


def add_to_class(Class: type) -> Callable:
    """Return a decorator that adds a function to an existing class as a method.

    Existing instances get the method too. Unlike in the book, the function also remains
    available under its own name.

    Args:
        Class: the class to extend.
    Returns:
        A decorator that returns the function unchanged.
    Raises:
        TypeError: Class is not a class.
    Source: d2l 1.0.3 ``add_to_class``, section 3.2.1.
    """
    if not isinstance(Class, type):
        raise TypeError(
            f"add_to_class expects a class, but got {Class!r}: write "
            "@d2l.add_to_class(TheClass) above the function."
        )

    def decorator(function: Callable) -> Callable:
        setattr(Class, function.__name__, function)
        return function

    return decorator


class HyperParameters:
    """Base class for saving a constructor's arguments as attributes.

    Source: d2l 1.0.3 ``HyperParameters``, sections 3.2.1 and 23.7.
    """

    def save_hyperparameters(self, ignore: Sequence[str] = ()) -> None:
        """Save the calling method's arguments as attributes of the object.

        The dictionary ``hparams`` also holds them, by name. Names that begin with an
        underscore are skipped.

        Args:
            ignore: names of arguments not to save.
        Raises:
            TypeError: ignore is a single string rather than a list of names.
        Source: d2l 1.0.3 ``HyperParameters.save_hyperparameters``.
        """
        if isinstance(ignore, str):
            raise TypeError(
                f"ignore must be a list of names, but got {ignore!r}: write "
                f"ignore=[{ignore!r}]."
            )
        # The caller's arguments are one frame up the stack.
        arguments = inspect.getargvalues(sys._getframe(1))
        names = [*arguments.args, arguments.varargs, arguments.keywords]
        self.hparams = {
            name: arguments.locals[name]
            for name in names
            if name is not None
            and name not in ignore
            and not name.startswith("_")
            and arguments.locals[name] is not self
        }
        for name, value in self.hparams.items():
            setattr(self, name, value)
