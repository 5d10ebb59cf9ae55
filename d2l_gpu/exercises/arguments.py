"""Whether a call has changed the arguments that it was given."""

import importlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

# Containers within containers, as deep as arguments of exercises are.
_DEPTH = 6


class Arguments:
    """A look at the arguments of a call before it, to compare with afterwards.

    It sees lists, dictionaries and tuples, numbers and texts, and what the framework's
    `Arrays.peek` can see without leaving a trace in the record of copies.

    Args:
        tag: the framework's tag.
        given: the arguments by name.
    """

    def __init__(self, tag: str, given: Mapping[str, Any]):
        arrays = importlib.import_module(f"{__package__}.{tag}.arrays").ARRAYS
        self._peek, self._given = arrays.peek, given
        self._before = self._seen()

    def changed(self) -> list[str]:
        """Return the innermost parts of the arguments that aren't what they were."""
        now = self._seen()
        names = [name for name in self._before if now.get(name) != self._before[name]]
        names += [name for name in now if name not in self._before]
        # `a` has another length if `a[2]` is new: one name is enough.
        return [
            name
            for name in names
            if not any(name.startswith((f"{other}[", f"{other}.")) for other in names)
        ]

    def _seen(self) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for name, value in self._given.items():
            seen.update(self._parts(name, value, _DEPTH))
        return seen

    def _parts(self, name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
        if value is None or isinstance(value, bool | int | float | str | bytes):
            yield name, repr(value)
        elif depth and isinstance(value, list | tuple):
            yield name, len(value)
            for i, each in enumerate(value):
                yield from self._parts(f"{name}[{i}]", each, depth - 1)
        elif depth and isinstance(value, dict):
            yield name, list(map(repr, value))
            for key, each in value.items():
                yield from self._parts(f"{name}[{key!r}]", each, depth - 1)
        else:
            for part, data in self._peek(value).items():
                yield f"{name}{part}", zlib.crc32(data)
