"""The program that the browser runs, and the texts that it says.

It needs nothing but Python's own library: Pyodide brings no more.
"""

import tomllib
import zipfile
from pathlib import Path

from d2l_gpu.common.messages import read_mo
from d2l_gpu.common.quantities import is_sample
from tools.edition import ROOT
from tools.languages import ENGLISH
from tools.messages import CATALOGUES
from tools.shown_texts import texts_in

HERE = Path(__file__).parent

PACKAGE = "playground"
"""The package with what answers, as worker.mjs imports it."""

# What importing the simulator's package imports, beside the simulator.
_PACKAGES = ("__init__.py", "vgpu/__init__.py", "vgpu/host_memory.py")
_IN_BROWSER = ("__init__.py", "live.py", "show.py", "curve.py")
# A message of the lessons', and a part of titles that the simulator puts together.
_PARTS = ("a step",)


def words(language: str) -> dict[str, str]:
    """Return the texts of the pages in a language; English where there are none."""
    tables = tomllib.loads((HERE / "words.toml").read_text("utf-8"))
    return {**tables[ENGLISH], **tables.get(language, {})}


def messages_of_simulator(language: str) -> dict[str, str]:
    """Return what the simulator says in a language, by the English texts."""
    path = CATALOGUES / f"{language}.mo"
    if not path.is_file():
        return {}
    known, code = read_mo(path.read_bytes()), set()
    for each in (ROOT / "d2l_gpu" / "vgpu" / "sim").glob("*.py"):
        source = each.read_text("utf-8")
        code |= {x.message for x in texts_in(source, keys=False, words=known)}
    said = code | set(_PARTS) | set(filter(is_sample, known))
    said |= {text for text in known if not any(map(str.isalnum, text))}  # as in ", "
    return {text: its for text, its in known.items() if text in said}


def write_simulator(path: Path) -> None:
    """Pack the simulator, and what answers in the browser; always the same bytes."""
    files = [ROOT / "d2l_gpu" / name for name in _PACKAGES]
    files += [
        each
        for folder in ("common", "vgpu/sim")
        for each in sorted((ROOT / "d2l_gpu" / folder).rglob("*"))
        if each.suffix in (".py", ".json")
    ]
    named = {each.relative_to(ROOT).as_posix(): each for each in files}
    named |= {f"{PACKAGE}/{name}": HERE / name for name in _IN_BROWSER}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in named.items():
            # Without a time, which would differ from clone to clone.
            archive.writestr(
                zipfile.ZipInfo(name), each.read_bytes(), zipfile.ZIP_DEFLATED
            )
