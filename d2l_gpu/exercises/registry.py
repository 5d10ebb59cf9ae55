"""The building blocks of graders, and looking up the grader of an exercise.

Each lesson has a module with its graders, in order of their numbers. A grader comes
with an *experiment*, which runs the answer and returns what it found as plain data::

    EXERCISES = Registry()

    def _added(answer, gpus):
        a, b = torch.ones(2, device=gpus[0]), torch.ones(2, device=gpus[1])
        result = answer(a, b, gpus[1])
        return result.tolist(), gpus.where(result)

    @EXERCISES.add("03.1", "a, b, device", returns=torch.Tensor)
    def total(run):
        values, where = run(_added)
        yield Claim("the sum is right", values == [2, 2], "Add `b` as well.")
        yield Claim("it's on `device`", where == "GPU 1", f"It's on {where}.")

The experiment runs in the answer's process, which the answer can tamper with. The
grader runs in another one, works out there what's right, and yields claims, most basic
first. It returns early if the remaining claims would make no sense. It checks
*properties* of the result, such as values, devices, bytes copied or simulated time, so
that any correct answer passes. The grader of an exercise that asks for a value takes
the value itself.

An answer that passes runs once more, in the same process and with the GPUs in reverse
order, and what's promised of arguments is looked at on every call: they keep their
values, unless ``changes`` names them. Graders needn't care about either. What a variant
of an exercise may change is in ``vary``; see ``variants``.
"""

import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any, Protocol

from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.exercises.variants.draw import Vary, drawn

SECONDS = 30


@dataclass(frozen=True)
class Claim:
    """One thing that should be true of an answer.

    Attributes:
        text: what should be true, as a sentence without a full stop.
        holds: whether it is.
        hint: if it isn't, what the answer did instead, as far as the grader can tell,
            and where to look. Never the solution.
    """

    text: str
    holds: bool
    hint: str = ""


class Run(Protocol):
    """Runs experiments in the answer's process."""

    def __call__(self, experiment: Callable, *arguments: Any) -> Any:
        """Return what an experiment found.

        Args:
            experiment: a function of a grader's module that takes the answer, the
                process's `Gpus` and the arguments; before them what a shared grader is
                given.
            arguments: plain data, as `records` has it.
        """


@dataclass(frozen=True)
class Exercise:
    """An exercise and its grader.

    Attributes:
        number: lesson and exercise, such as ``03.1``.
        name: the answer's name in the lesson.
        grader: takes a `Run`, or the value that is the answer, and yields claims.
        parameters: parameter names of the function asked for; None if the answer is a
            value.
        returns: allowed types of the value, or of what the function returns; empty for
            any.
        gpus: the number of virtual GPUs.
        seconds: the time limit.
        as_cuda: whether the virtual GPUs also answer to the name ``cuda``.
        changes: the parameters whose arguments the answer may change.
        repeat: whether a right answer is run again, on GPUs in reverse order.
        vary: what a variant changes; the grader gets it as keyword arguments.
        key: returns a value that's right, given what varies; None for functions.
    """

    number: str
    name: str
    grader: Callable[..., Iterable[Claim]]
    parameters: tuple[str, ...] | None
    returns: tuple[type, ...] = ()
    gpus: int = 2
    seconds: float = SECONDS
    as_cuda: bool = False
    changes: tuple[str, ...] = ()
    repeat: bool = True
    vary: Mapping[str, Vary] = field(default_factory=dict)
    key: Callable[..., Any] | None = None

    def drawn(self, variant: str | None) -> dict[str, Any]:
        """Return what varies, by name: as in a variant, or as usual for None."""
        return drawn(self.number, self.vary, variant)

    @property
    def given(self) -> tuple:
        """What a shared grader, and its experiments, take first; see `given`."""
        return getattr(self.grader, "args", ())


@dataclass
class Registry:
    """The exercises of one lesson.

    Attributes:
        as_cuda: whether its virtual GPUs also answer to ``cuda`` (PyTorch only).
        exercises: the exercises by number.
    """

    as_cuda: bool = False
    exercises: dict[str, Exercise] = field(default_factory=dict)

    def add(
        self,
        number: str,
        parameters: str | None = None,
        returns: type | tuple[type, ...] = (),
        gpus: int = 2,
        seconds: float = SECONDS,
        changes: str = "",
        repeat: bool = True,
        vary: Mapping[str, Vary] | None = None,
        key: Callable[..., Any] | None = None,
    ) -> Callable[[Callable], Callable]:
        """Register the decorated function as the grader of an exercise.

        The grader must have the same name as the answer in the lesson.

        Args:
            number: such as ``"03.1"``.
            parameters: such as ``"a, b, device"``; empty for a function without
                parameters, None if the answer is a value.
            returns: the type, or types, of the value or of what the function returns.
            gpus: the number of virtual GPUs that the answer runs on.
            seconds: the time limit.
            changes: the parameters whose arguments the answer may change, such as
                ``"gradients"``; a look at all others tells whether they were changed.
            repeat: whether a right answer is run again, on GPUs in reverse order.
            vary: what a variant changes; see ``variants``.
            key: for an exercise that varies and asks for a value: a function that takes
                what varies and returns a right one.
        Raises:
            ValueError: the exercise has a grader already.
        """
        names = None if parameters is None else tuple(re.findall(r"\w+", parameters))
        types = returns if isinstance(returns, tuple) else (returns,)

        def register(grader: Callable) -> Callable:
            if number in self.exercises:
                raise ValueError(f"Exercise {number} has two graders.")
            self.exercises[number] = Exercise(
                number,
                grader.__name__,
                grader,
                names,
                types,
                gpus,
                seconds,
                self.as_cuda,
                tuple(re.findall(r"\w+", changes)),
                repeat,
                dict(vary or {}),
                key,
            )
            return grader

        return register


def given(grader: Callable, *what: Any) -> Callable[[Any], Iterable[Claim]]:
    """Return a shared grader, bound to one framework.

    Args:
        grader: takes the framework's interface, then what any grader takes.
        what: that interface, such as a `Port` or `Arrays`.
    """
    partial = functools.partial(grader, *what)
    return functools.update_wrapper(partial, grader, updated=())


def find(framework: str, number: str, own: Path | None = None) -> Exercise:
    """Return an exercise of a framework's edition, or of a teacher's own.

    Args:
        framework: the framework's tag.
        number: the exercise.
        own: a file with a teacher's exercises, which come first.
    Raises:
        TypeError: `number` is not a string.
        ValueError: there is no such exercise, or `own` can't be loaded.
    """
    if not isinstance(number, str):
        raise TypeError(
            "The first argument must be the exercise's number as a string, as in "
            f"check('03.1', answer), but it was {number!r}."
        )
    mine = load(own).exercises if own else {}
    if number in mine:
        return mine[number]
    lesson = number.partition(".")[0]
    there = of_lesson(framework, lesson) if re.fullmatch(r"\w\d", lesson) else {}
    if number in there:
        return there[number]
    if re.fullmatch(r"\d\.\d+", number) and of_lesson(framework, f"0{lesson}"):
        has = f"lesson numbers have two digits, as in '0{number}'"
    elif there:
        has = f"lesson {lesson} has {_enumerated(there)}"
    else:
        lessons = lessons_of(framework)
        has = f"the lessons with exercises are {_enumerated(lessons)}"
    if mine:
        has += f"; those in {own.name} are {_enumerated(mine)}"
    title = framework_with(framework).title
    raise ValueError(f"There is no exercise {number!r} for {title}: {has}.")


OWN_MODULE = f"{__package__}.of_a_teacher"
"""The name under which a teacher's file is loaded, in each process that needs it."""


def load(path: Path) -> Registry:
    """Run a file with a teacher's own exercises, and return its ``EXERCISES``.

    Raises:
        ValueError: it can't be loaded, or doesn't define any.
    """
    if not path.is_file():
        raise ValueError(f"there is no file {path}, which should hold exercises.")
    loader = SourceFileLoader(OWN_MODULE, str(path))
    module = module_from_spec(spec_from_loader(OWN_MODULE, loader))
    sys.modules[OWN_MODULE] = module  # experiments are looked up there by their names
    try:
        loader.exec_module(module)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise ValueError(f"{path} can't be loaded: {what}") from error
    registry = getattr(module, "EXERCISES", None)
    if not isinstance(registry, Registry) or not registry.exercises:
        raise ValueError(
            f"{path} holds no exercises: it should define EXERCISES = Registry(), and "
            "add to it."
        )
    return registry


def of_lesson(framework: str, lesson: str) -> dict[str, Exercise]:
    """Return a lesson's exercises by number; empty if it has none."""
    name = f"{__package__}.{framework}.lesson_{lesson.lower()}"
    if not find_spec(f"{__package__}.{framework}") or not find_spec(name):
        return {}
    return importlib.import_module(name).EXERCISES.exercises


def lessons_of(framework: str) -> list[str]:
    """Return the lessons of an edition that have exercises, such as ``03``, sorted."""
    package = find_spec(f"{__package__}.{framework}")
    return sorted(_lessons(package.submodule_search_locations)) if package else []


def _lessons(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for path in Path(folder).glob("lesson_*.py"):
            yield path.stem.removeprefix("lesson_").upper()


def _enumerated(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
