"""What may be wrong with a machine, and what mends it: ``d2l-gpu doctor``.

It needs nothing but the standard library, and changes nothing. What may crash or hang,
PyTorch and drivers among it, is asked in processes of its own (``child.py``), so that
there is an answer in any case. Each check is a function that is given the facts
(``facts.py``) and returns what it finds.
"""

from collections.abc import Callable, Iterator, Sequence

from . import (
    accelerators as devices,
)
from . import (
    build,
    jupyter,
    network,
    python,
    pytorch,
    room,
)
from . import (
    companion as book,
)
from . import (
    downloads as data,
)
from .facts import Facts
from .findings import ISSUES, NOTE, OK, PROBLEM, Finding, one_line

__all__ = ["CHECKS", "NOTE", "OK", "PROBLEM", "Finding", "examine"]

CHECKS: dict[str, Callable[[Facts], list[Finding]]] = {
    "python": python.check_python,
    "names": python.check_names,
    "pytorch": pytorch.check_torch,
    "build": build.check_build,
    "numpy": pytorch.check_numpy,
    "devices": devices.check_devices,
    "setting": devices.check_setting,
    "virtual-gpus": devices.check_virtual_gpus,
    "memory": room.check_memory,
    "disk": room.check_disk,
    "data": data.check_data,
    "course": jupyter.check_course,
    "jupyter": jupyter.check_jupyter,
    "kernelspec": jupyter.check_kernelspec,
    "kernel": jupyter.check_kernel,
    "network": network.check_network,
    "book": book.check_book,
}
"""The checks by their names, in the order in which they are reported."""


def examine(names: Sequence[str], timeout: float) -> Iterator[Finding]:
    """Run checks and yield what they find, as they find it.

    Args:
        names: of the checks; all if there are none.
        timeout: seconds that finding out a single fact may take; a first import of
            PyTorch from a slow disk takes a minute or more.
    Raises:
        ValueError: there is no check of a name; the message lists those there are.
    """
    for name in names:
        if name not in CHECKS:
            raise ValueError(
                f"there is no check {name!r}; the checks are: {', '.join(CHECKS)}"
            )
    return _examine([name for name in CHECKS if name in names or not names], timeout)


def _examine(names: Sequence[str], timeout: float) -> Iterator[Finding]:
    facts = Facts(timeout)
    for name in names:
        try:
            yield from CHECKS[name](facts)
        except Exception as error:  # the others are to be heard all the same
            yield Finding(
                name,
                NOTE,
                f"The check itself failed ({one_line(error)}).",
                f"Please report this: {ISSUES}",
            )
