"""Having a program speak the reader's language, which its environment names.

A helper calls `speak` when it's imported. Pictures, tables and reports are then in that
language, and so is what the cells of a notebook print, as far as it's the course's own.
"""

import builtins
import functools
import sys

from d2l_gpu.common.messages import has_catalogue, say, shown_text
from d2l_gpu.vgpu.sim.words import translate_with


def speak() -> None:
    """Translate what is shown from now on, if there is a catalogue of the language."""
    if not has_catalogue():
        return
    translate_with(shown_text)
    shell = "IPython" in sys.modules and sys.modules["IPython"].get_ipython()
    if shell:
        # Not in the notebook's namespace: what pickles `print` finds it by its name.
        builtins.print = functools.wraps(builtins.print)(say)
