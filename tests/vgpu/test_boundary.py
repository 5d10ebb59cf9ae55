"""Virtual GPUs are a library of their own: what they need, and what others use."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from d2l_gpu import vgpu
from tests.helpers.fresh_process import run_without_torch
from tests.helpers.paths import REPOSITORY

PACKAGE = REPOSITORY / "d2l_gpu"
OURS = sorted((PACKAGE / "vgpu").rglob("*.py"))
OTHERS = sorted(set(PACKAGE.rglob("*.py")) - set(OURS))
# What virtual GPUs need beside Python; the plugin is pytest's.
NEEDED = {"torch", "pytest"}
# Modules of theirs that are public beside what the package exports.
PUBLIC = {
    *("sim.catalogue", "sim.drawing", "sim.plans", "sim.play"),
    *("sim.puzzle", "sim.replicas"),
}
SHARED = {*PUBLIC, "programs", "sim.words"}  # the project's other parts may use these
SIMULATION = sorted((PACKAGE / "vgpu" / "sim").glob("*.py"))
# What could tell one computer, or one moment, from another.
SURROUNDINGS = {
    *("ctypes", "datetime", "os", "pathlib", "platform", "random", "resource"),
    *("shutil", "socket", "subprocess", "sys", "sysconfig", "tempfile", "time"),
}


def label(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what a file imports: the module, in full, and the name of it or nothing."""
    package = ["d2l_gpu", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", OURS, ids=label)
def test_virtual_gpus_import_nothing_of_the_course(path):
    for module, name in imported(path):
        if module == "d2l_gpu":
            assert name == "vgpu"
        elif not module.startswith("d2l_gpu.vgpu"):
            top = module.partition(".")[0]
            assert top in NEEDED or top in sys.stdlib_module_names, module


@pytest.mark.parametrize("path", OTHERS, ids=label)
def test_the_course_uses_only_what_virtual_gpus_export(path):
    for module, name in imported(path):
        if module == "d2l_gpu.vgpu":
            assert name in {*vgpu.__all__, *SHARED}
        else:
            inside = module.removeprefix("d2l_gpu.vgpu.")
            assert inside == module or inside in SHARED
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.value.id != "vgpu" or node.attr in vgpu.__all__
            assert not node.attr.startswith("_vgpu")


@pytest.mark.parametrize("path", SIMULATION, ids=label)
def test_the_simulation_needs_the_standard_library_and_reads_nothing(path):
    for module, name in imported(path):
        if not module.startswith("d2l_gpu.vgpu.sim"):
            top = module.partition(".")[0]
            assert top in sys.stdlib_module_names - SURROUNDINGS, (module, name)
    calls = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert not {"open", "__import__", "exec"} & {call.func.id for call in calls}


@pytest.mark.parametrize("path", OURS, ids=label)
def test_no_real_clock_is_read_unasked(path):
    if path.name == "host_time.py":  # imported by measure_host only
        return
    assert not {"time", "datetime"} & {module for module, _ in imported(path)}
    assert not re.search(r"perf_counter|monotonic", path.read_text("utf-8"))


def test_no_sentence_of_virtual_gpus_is_about_the_course():
    files = [*OURS, *(PACKAGE / "vgpu").rglob("*.md")]
    for path in files:
        text = path.read_text("utf-8")
        assert not re.findall(r"(?i)\b(?:course|lessons?|readers?|notebooks/)\b", text)


def test_what_is_exported_is_there():
    assert all(hasattr(vgpu, name) for name in vgpu.__all__)
    assert (PACKAGE / "vgpu" / "py.typed").is_file()


def test_importing_virtual_gpus_does_not_import_pytorch():
    run_without_torch("import sys, d2l_gpu.vgpu; assert 'torch' not in sys.modules")


@pytest.mark.parametrize("path", SIMULATION, ids=label)
def test_importing_the_simulation_does_not_import_pytorch(path):
    module = f"d2l_gpu.vgpu.sim.{path.stem}".removesuffix(".__init__")
    run_without_torch(f"import sys, {module}; assert 'torch' not in sys.modules")
