"""How figures look: sizes, and the colour, line and marker of each curve.

Colours are defined in ``d2l_gpu/vgpu/sim/drawing.py``, because the timelines of the
virtual GPUs, which don't depend on the course, use the same ones. Curves differ in line
style or marker as well as in colour, so readers can tell them apart in black and white,
or if they can't see all colours.
"""

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from d2l_gpu.common.requirements import install
from d2l_gpu.vgpu.sim.drawing import COLOURS, WORDS

WIDTH = 7.5  # of all figures, in inches
PAD = 0.2  # around everything, in inches

# Sizes of text in points, of which 9 are 12 pixels on the screen.
TITLE, PANEL_TITLE, LABEL, TEXT = 12.5, 10.5, 9.5, 9.0

# For curves and bars that are of no kind.
OTHERS = ("#222222", "#C8501A", "#5B4FB3", "#3A8FC4", "#7A6A00")
MARKERS = "os^DvXP"
LINE_STYLES = ("-", "--", "-.", ":")

# For curves that grow: the book's defaults.
BOARD_COLORS = ("C0", "C1", "C2", "C3")
ANIMATOR_FORMATS = ("-", "m--", "g-.", "r:")
MARKERS_PER_CURVE = 12
LIVE_SIZE = (4.5, 3.0)


class Look(NamedTuple):
    """How a curve or bar is drawn: its colour, that of its name, line and marker."""

    colour: str
    words: str
    line: str
    marker: str


def looks(names: Iterable[str], kinds: Mapping[str, str] | None) -> dict[str, Look]:
    """Return a look for each name; two names of one kind differ in line and marker.

    Args:
        names: of the curves or bars, in order.
        kinds: the kind of some of them: ``'compute'``, ``'copy'``, ``'wait'``,
            ``'communicate'``, ``'host'`` or ``'reference'``.
    Raises:
        ValueError: a kind isn't one of these, or is that of a name which isn't there.
    """
    names, kinds = list(names), dict(kinds or {})
    for name, kind in kinds.items():
        if kind not in COLOURS:
            raise ValueError(
                f"The kind of {name!r} must be one of {', '.join(COLOURS)}, but got "
                f"{kind!r}."
            )
        if name not in names:
            raise ValueError(
                f"kinds has {name!r}, which isn't one of {', '.join(map(repr, names))}."
            )
    chosen, plain, used = {}, 0, dict.fromkeys(COLOURS, 0)
    for i, name in enumerate(names):
        if name in kinds:
            kind = kinds[name]
            colour, words, turn = COLOURS[kind], WORDS[kind], used[kind]
            used[kind] += 1
        else:
            kind, turn = "", plain // len(OTHERS)
            colour = words = OTHERS[plain % len(OTHERS)]
            plain += 1
        marker = MARKERS[i % len(MARKERS)]
        if kind == "reference":
            marker, turn = "", turn + 1
        line = LINE_STYLES[(turn + i // len(MARKERS)) % len(LINE_STYLES)]
        chosen[name] = Look(colour, words, line, marker)
    return chosen


@contextlib.contextmanager
def default_style() -> Iterator[None]:
    """Import Matplotlib silently, and draw in its default style.

    Its first import on a machine reports on stderr that it is building a font cache.
    The default style makes a lesson's figures look the same everywhere, even if the
    reader's own style is white on black.

    Raises:
        ImportError: Matplotlib is not installed.
    """
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        import matplotlib
        import matplotlib.figure
        import matplotlib.font_manager
        from matplotlib.backends import backend_agg  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Drawing needs matplotlib, which is not installed: {install('lessons')}."
        ) from error
    finally:
        logger.setLevel(level)
    default = dict(matplotlib.rcParamsDefault)
    default.pop("backend")  # setting it imports pyplot
    with matplotlib.rc_context(default):
        yield
