"""How figures look: all colours, line styles, markers and sizes are chosen here.

Curves differ in line style and marker as well as in colour, so that readers can tell
them apart in black and white, or if they can't see all colours. Only the timeline of
the virtual GPUs, which don't depend on the course, has its own style
(``d2l_gpu/vgpu/sim/timeline.py``).
"""

import contextlib
import logging
from collections.abc import Iterator

from d2l_gpu.common.requirements import install

# For finished results: black, then a blue, a purple, a grey and a green of about the
# same lightness.
PALETTE = ("#000000", "#4477aa", "#aa3377", "#888888", "#228833")
LINE_STYLES = ("-", "--", "-.", ":")
MARKERS = "os^Dvx"

# For curves that grow: the book's defaults.
BOARD_COLORS = ("C0", "C1", "C2", "C3")
ANIMATOR_FORMATS = ("-", "m--", "g-.", "r:")
MARKERS_PER_CURVE = 12

# Width and height in inches.
LIVE_SIZE = (4.5, 3.0)
PLOT_SIZE = (6.0, 3.8)
ROOFLINE_SIZE = (7.0, 4.4)


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
