"""How figures look: sizes, and the colour, line and marker of each curve.

Colours are defined in ``d2l_gpu/vgpu/sim/drawing.py``, because the timelines of the
virtual GPUs, which don't depend on the course, use the same ones. Curves differ in line
style or marker as well as in colour, so readers can tell them apart in black and white,
or if they can't see all colours.
"""

import contextlib
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import NamedTuple

from d2l_gpu.common.requirements import install
from d2l_gpu.vgpu.sim.drawing import COLOURS, EDGES, OTHERS, WORDS
from d2l_gpu.vgpu.sim.words import in_english

WIDTH = 7.5  # of all figures, in inches
PAD = 0.2  # around everything, in inches

# Sizes of text in points, of which 9 are 12 pixels on the screen.
TITLE, PANEL_TITLE, LABEL, TEXT = 12.5, 10.5, 9.5, 9.0

MARKERS = "os^DvXP"
LINE_STYLES = ("-", "--", "-.", ":")


class Look(NamedTuple):
    """How a curve or bar is drawn.

    Attributes:
        colour, edge: of a bar and of its edge; a curve has the colour of an edge.
        words: colour of its name.
        line, marker: of a curve, as Matplotlib names them.
    """

    colour: str
    edge: str
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
    chosen: dict[str, Look] = {}
    plain, used, forms = 0, dict.fromkeys(COLOURS, 0), set()
    for i, name in enumerate(names):
        kind = kinds.get(name, "")
        if kind:
            colour, words, turn = COLOURS[kind], WORDS[kind], used[kind]
            edge = EDGES.get(kind, colour)
            used[kind] += 1
        else:
            turn, colour = divmod(plain, len(OTHERS))
            colour = edge = words = OTHERS[colour]
            plain += 1
        form = next(x for x in _forms(i, turn, kind) if x not in forms)
        forms.add(form)
        chosen[name] = Look(colour, edge, words, *form)
    return chosen


def _forms(i: int, turn: int, kind: str) -> Iterator[tuple[str, str]]:
    """Yield lines and markers for a curve, the best first.

    Args:
        i: how many curves there are before it.
        turn: how many of its colour there are before it.
        kind: what it shows; a reference is a broken line without markers.
    """
    if kind == "reference":
        yield from ((line, "") for line in LINE_STYLES[1:])
    for k in itertools.count():
        line = LINE_STYLES[(turn + k // len(MARKERS)) % len(LINE_STYLES)]
        yield line, MARKERS[(i + k) % len(MARKERS)]


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
    from d2l_gpu.show.fonts import USUAL, families

    fonts = families()
    default["font.family"] = fonts or [USUAL]
    # Without a font for the reader's language, labels are in English.
    with matplotlib.rc_context(default), nullcontext() if fonts else in_english():
        logger.setLevel(logging.ERROR)  # a font may have no bold letters
        try:
            yield
        finally:
            logger.setLevel(level)
