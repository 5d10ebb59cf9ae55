"""What may be wrong with a machine, and how to fix it: ``d2l-gpu doctor``.

It needs only the standard library and changes nothing. Whatever may crash or hang, such
as PyTorch and drivers, is asked in processes of its own (``probe_process.py``), so that
there is an answer in any case. Each check is a function that is given the facts
(``facts.py``) and returns what it finds; ``CHECKS`` says which module has which.
"""

from collections.abc import Callable, Iterator, Sequence

from . import (
    accelerators,
    build,
    companion,
    downloads,
    jupyter,
    network,
    python,
    pytorch,
    room,
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
    "devices": accelerators.check_devices,
    "setting": accelerators.check_setting,
    "virtual-gpus": accelerators.check_virtual_gpus,
    "memory": room.check_memory,
    "disk": room.check_disk,
    "data": downloads.check_data,
    "course": jupyter.check_course,
    "jupyter": jupyter.check_jupyter,
    "kernelspec": jupyter.check_kernelspec,
    "kernel": jupyter.check_kernel,
    "network": network.check_network,
    "book": companion.check_book,
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
