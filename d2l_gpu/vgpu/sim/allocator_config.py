"""The settings of PyTorch's caching allocator, in its own format."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

MB = 2**20

# The names that PyTorch knows and that make no difference here: they concern pinned
# memory, locks, CUDA graphs and what happens before CUDA's own error.
IGNORED = (
    "graph_capture_record_stream_reuse",
    "pinned_free_catch_all",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc",
    "throw_on_cudamalloc_oom",
)

# Intervals between powers of two, from 1 MiB to 64 GiB (c10/core/AllocatorConfig.cpp).
INTERVALS = 16


@dataclass(frozen=True)
class Config:
    """Settings as in ``PYTORCH_CUDA_ALLOC_CONF``, and two of our own. Bytes throughout.

    Attributes:
        large_segment: what requests of 1 to 10 MiB share (``large_segment_size_mb``).
        max_split: blocks of this size aren't split (``max_split_size_mb``).
        max_rounding: by how much such a block may be larger than what it's needed for
            (``max_non_split_rounding_mb``); ``large_segment`` unless it's set.
        divisions: into how many parts each interval between powers of two is divided,
            to whose borders sizes are rounded; 0 for none
            (``roundup_power2_divisions``).
        collect_above: the share of the allowed memory above which old blocks are given
            back, 0 for never (``garbage_collection_threshold``).
        expandable: whether segments grow (``expandable_segments``).
        memory_fraction: the share of the GPU's memory that may be reserved
            (``per_process_memory_fraction``).
        context: what CUDA itself occupies on each GPU (``context_mb``, ours).
        workspace: of each cuBLAS handle and stream (``cublas_workspace_kb``, ours);
            None for the size that PyTorch chooses by the GPU.
        text: the settings as they were given.
    """

    UNLIMITED: ClassVar[int] = 2**63

    large_segment: int = 20 * MB
    max_split: int = UNLIMITED
    max_rounding: int = 20 * MB
    divisions: tuple[int, ...] = (0,) * INTERVALS
    collect_above: float = 0.0
    expandable: bool = False
    memory_fraction: float = 1.0
    context: int = 0
    workspace: int | None = None
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> "Config":
        """Return the settings that a text gives: names and values, ``name:value,…``.

        As in PyTorch, ``large_segment_size_mb`` is read first, wherever it's written:
        others can't be smaller (``parseArgs`` of c10/core/AllocatorConfig.cpp).

        Raises:
            ValueError: it has another form, an unknown name, or an impossible value.
        """
        config = cls(text=text)
        items = _items("".join(text.split()))
        for item in sorted(items, key=lambda item: not item.startswith(_FIRST)):
            name, colon, value = item.partition(":")
            if not colon or not value:
                raise ValueError(
                    f"A setting of the allocator is written name:value, but got "
                    f"{item!r}."
                )
            if name in IGNORED:
                continue
            if name not in _SETTINGS:
                names = ", ".join(_SETTINGS)
                raise ValueError(
                    f"The allocator has no setting {name!r}: choose from {names}."
                )
            try:
                config = replace(config, **_SETTINGS[name](value, config))
            except ValueError as error:
                raise ValueError(
                    f"The allocator's setting {name} {error}, but got {value!r}."
                ) from None
        return config

    def rounded(self, nbytes: int) -> int:
        """Return the size of the block that a request gets (``round_size``)."""
        if nbytes < 512:
            return 512
        interval = min(max(nbytes.bit_length() - 21, 0), INTERVALS - 1)
        divisions = self.divisions[interval]
        if not divisions or nbytes <= 512 * divisions:
            return nbytes + 511 & -512
        # roundup_power2_next_division: with one division, sizes stay as they are, even
        # if they aren't multiples of 512.
        if divisions == 1 or nbytes & nbytes - 1 == 0:
            return nbytes
        part = (1 << nbytes.bit_length() - 1) // divisions
        return -(-nbytes // part) * part


_FIRST = "large_segment_size_mb:"


def _items(text: str) -> list[str]:
    """Split a text at its commas, except those within brackets."""
    return [item for item in re.split(r",(?![^\[]*\])", text) if item]


# ------------------------------------------------------------------ values

# Each function gets a value and the settings read so far, and returns what changes.
# What it says when it raises completes a sentence that begins with the name.


def _number(value: str, least: int, unit: str = "MiB", more: bool = False) -> int:
    what = f"must be a number of {unit}, {'more than' if more else 'at least'} {least}"
    if not value.isdecimal() or int(value) < least + more:
        raise ValueError(what)
    return int(value)


def _fraction(value: str, inside: bool) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not (0 < number < 1 if inside else 0 <= number <= 1):
        raise ValueError(f"must be a number {'between' if inside else 'from'} 0 and 1")
    return number


def _large_segment(value: str, config: Config) -> dict:
    nbytes = _number(value, 10, more=True) * MB
    return {"large_segment": nbytes, "max_rounding": nbytes}


def _max_split(value: str, config: Config) -> dict:
    return {"max_split": _number(value, config.large_segment // MB) * MB}


def _max_rounding(value: str, config: Config) -> dict:
    return {"max_rounding": _number(value, config.large_segment // MB) * MB}


def _collect_above(value: str, config: Config) -> dict:
    return {"collect_above": _fraction(value, inside=True)}


def _memory_fraction(value: str, config: Config) -> dict:
    return {"memory_fraction": _fraction(value, inside=False)}


def _expandable(value: str, config: Config) -> dict:
    if value not in ("True", "False"):
        raise ValueError("must be True or False")
    return {"expandable": value == "True"}


def _divisions(value: str, config: Config) -> dict:
    """Read one number for all sizes, or as ``[64:8,256:4,>:1]``: MiB and number."""
    if not value.startswith("["):
        return {"divisions": (_power_of_two(value),) * INTERVALS}
    found = [0] * INTERVALS
    last, first = 0, True
    for item in _items(value[1:-1] if value.endswith("]") else value):
        size, _, number = item.partition(":")
        number = 0 if number == "0" else _power_of_two(number)
        if size == ">":  # even on its own it's about the intervals from 2 MiB on
            found[last + 1 :] = [number] * (INTERVALS - last - 1)
            continue
        place = min(_power_of_two(size).bit_length() - 1, INTERVALS - 1)
        if first:  # the first one holds for everything smaller, too
            found[:place] = [number] * place
        found[place], last, first = number, place, False
    return {"divisions": tuple(found)}


def _power_of_two(value: str) -> int:
    number = int(value) if value.isdecimal() else 0
    if number < 1 or number & number - 1:
        raise ValueError(
            "must be a power of two, or powers of two as in [64:8,256:4,>:1]"
        )
    return number


def _backend(value: str, config: Config) -> dict:
    if value != "native":
        raise ValueError("must be native, the only allocator that is simulated")
    return {}


def _context(value: str, config: Config) -> dict:
    return {"context": _number(value, 0) * MB}


def _workspace(value: str, config: Config) -> dict:
    return {"workspace": _number(value, 0, "KiB") * 1024}


_SETTINGS: dict[str, Callable[[str, Config], dict]] = {
    "expandable_segments": _expandable,
    "max_split_size_mb": _max_split,
    "max_non_split_rounding_mb": _max_rounding,
    "large_segment_size_mb": _large_segment,
    "roundup_power2_divisions": _divisions,
    "garbage_collection_threshold": _collect_above,
    "per_process_memory_fraction": _memory_fraction,
    "backend": _backend,
    "context_mb": _context,
    "cublas_workspace_kb": _workspace,
}
