"""What every notebook begins with: links, and a cell that installs the course.

The cell is executed in bare virtual environments that look like the platforms, with
IPython's ``%pip`` played by the command that IPython runs for it. pip is kept off the
network: it finds a wheel of this project, built here, and hollow wheels in place of
PyTorch and the other packages.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, urlsplit

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager

import d2l_gpu
from d2l_gpu.common.frameworks import framework
from tests.helpers.paths import REPOSITORY
from tests.helpers.toy_lessons import FRONT_MATTER, GOOD_LESSON, write_lesson
from tools.build import main as build
from tools.edition import Project, editions
from tools.header import PLATFORMS, Header, platform_links
from tools.lesson import LessonError

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*/*/*.ipynb"))
SOLVED = sorted((REPOSITORY / "notebooks").glob("*/*/solutions/*.ipynb"))
RELEASE = f"d2l-gpu/d2l-gpu/blob/v{d2l_gpu.__version__}"
PYTORCH = framework("pytorch")


def cell_of(notebook, key: str):
    (found,) = [cell for cell in notebook.cells if cell.id == key]
    return found


EVERY = editions(Project(REPOSITORY))
SPOKEN = {each.path: each.language for each in EVERY if each.speaks}


def spoken(path: Path) -> str:
    """Return what the cell that sets a notebook up says of its language."""
    if path not in SPOKEN:
        return ""
    return (
        "\n\n# What the course says is in this language.\nimport os\n"
        f"os.environ['D2L_GPU_LANGUAGE'] = '{SPOKEN[path]}'"
    )


def label(path: Path) -> str:
    return path.relative_to(REPOSITORY / "notebooks").with_suffix("").as_posix()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=label)
def test_every_notebook_opens_itself_elsewhere_and_sets_up_first(path):
    notebook = nbformat.read(path, as_version=4)
    its = framework(path.parent.name)
    assert [cell.id for cell in notebook.cells].count("header-open") == its.hosted
    relative = path.relative_to(REPOSITORY).as_posix()
    for prefix in (
        "https://colab.research.google.com/github/",
        "https://kaggle.com/kernels/welcome?src=https://github.com/",
        "https://studiolab.sagemaker.aws/import/github/",
    ):
        if its.hosted:
            badges = cell_of(notebook, "header-open").source
            assert f"]({prefix}{RELEASE}/{relative})" in badges
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.id == "header-install"
    assert first.source == first_cell(its.tag) + spoken(path)
    assert len(first.source.splitlines()) <= 8
    assert first.outputs == []  # nothing to install


@pytest.mark.parametrize("path", SOLVED, ids=label)
def test_solutions_and_lessons_lead_to_each_other(path):
    solutions = nbformat.read(path, as_version=4)
    lesson_path = path.parents[1] / path.name
    lesson = nbformat.read(lesson_path, as_version=4)
    title = lesson.cells[0].source.partition("\n")[0].removeprefix("# ")
    assert re.match(rf"# .+{re.escape(title)}\n", solutions.cells[0].source)
    for one, other in (
        (solutions.cells[0], lesson_path),
        (
            cell_of(lesson, "exercises"),
            path,
        ),
    ):
        relative = other.relative_to(REPOSITORY).as_posix()
        assert f"](https://github.com/{RELEASE}/{relative})" in one.source
    tag = path.parents[1].name
    assert cell_of(solutions, "header-install").source == first_cell(tag) + spoken(path)


@pytest.mark.parametrize("path", [*NOTEBOOKS, *SOLVED], ids=label)
def test_every_notebook_ends_with_a_link_that_reports_a_mistake_in_it(path):
    last = nbformat.read(path, as_version=4).cells[-1]
    assert last.id == "report"
    (address,) = re.findall(r"\]\((\S+)\)", last.source)
    url = urlsplit(address)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    issues = project["project"]["urls"]["Issues"]
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{issues}/new"
    language, tag, *_ = path.relative_to(REPOSITORY / "notebooks").parts
    what = "Lesson" if path in NOTEBOOKS else "Solutions"
    number, title = path.name.partition("_")[0], framework(tag).title
    assert dict(parse_qsl(url.query)) == {
        "title": f"{what} {number} ({title}, {language}): ",
        "body": f"d2l-gpu {d2l_gpu.__version__}\n\n",
    }


@pytest.mark.parametrize("path", NOTEBOOKS, ids=label)
def test_every_notebook_leads_to_the_same_lesson_of_other_frameworks(path):
    notebook = nbformat.read(path, as_version=4)
    others = [
        other
        for other in NOTEBOOKS
        if other.stem == path.stem
        and other.parent.parent == path.parent.parent
        and other != path
    ]
    keys = {cell.id for cell in notebook.cells}
    shown = "header-frameworks" if others else "header-alone"
    assert {"header-frameworks", "header-alone"} & keys == {shown}
    line = cell_of(notebook, shown).source
    assert line.count("](https://") == len(others)
    for other in others:
        relative = other.relative_to(REPOSITORY).as_posix()
        title = framework(other.parent.name).title
        assert f"[{title}](https://github.com/{RELEASE}/{relative})" in line


@pytest.mark.parametrize("path", NOTEBOOKS, ids=label)
def test_kernel_is_the_one_that_every_platform_has(path):
    notebook = nbformat.read(path, as_version=4)
    # Colab and Kaggle have only this kernel, SageMaker picks its default by it, and
    # the name of a language is what GitHub and Kaggle colour code by.
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert notebook.metadata.kernelspec == kernel
    assert notebook.metadata.language_info.name == "python"
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)


def test_a_page_links_every_notebook_on_every_platform():
    page = (REPOSITORY / "docs" / "hosted.md").read_text("utf-8")
    for path in (each for each in NOTEBOOKS if each.parts[-3] == "en"):
        relative = PurePosixPath(path.relative_to(REPOSITORY).as_posix())
        assert f"](../{relative})" in page
        if not framework(path.parent.name).hosted:
            continue
        links = platform_links(relative)
        assert len(links) == len(PLATFORMS) == 3
        for link in links.values():
            assert f"]({link})" in page


# ---- The source of the header


def write_header(project: Path, text: str) -> None:
    path = project / "lessons" / "header.md"
    path.write_text(FRONT_MATTER + text, encoding="utf-8")


def test_header_stands_below_the_title_with_its_names_filled_in(project):
    write_header(project, '+++ {"key": "open"}\n\n[here](${kaggle}), ${version}\n')
    assert build(["--root", str(project)]) == 0
    path = project / "notebooks/en/pytorch/01_toy.ipynb"
    cells = nbformat.read(path, as_version=4).cells
    assert [cell.id for cell in cells][1:3] == ["open", "add"]
    link = platform_links(PurePosixPath("notebooks/en/pytorch/01_toy.ipynb"))["kaggle"]
    assert cells[1].source == f"[here]({link}), {d2l_gpu.__version__}"


def test_unknown_name_in_the_header_is_one_sentence(project):
    write_header(project, '+++ {"key": "open"}\n\n${colab} ${nothing}\n')
    with pytest.raises(LessonError, match=r"header\.md: .* but not 'nothing'"):
        Header(Project(project).header, PurePosixPath("en/a/a.ipynb"), PYTORCH).cells()


def test_key_of_the_header_is_not_for_lessons(project, capsys):
    write_header(project, '+++ {"key": "add"}\n\nMore.\n')
    write_lesson(project, GOOD_LESSON)
    assert build(["--root", str(project)]) == 1
    assert (
        "pytorch/01_toy.md: the header already uses the keys add"
        in capsys.readouterr().err
    )


def test_readme_without_its_marks_is_one_sentence(project, capsys):
    (project / "README.md").write_text("# A toy\n")
    assert build(["--root", str(project)]) == 1
    assert "README.md has no lines <!-- from tools/readme.py -->" in (
        capsys.readouterr().err
    )


# ---- The cell on each platform

PLATFORM_SIGNS = {
    "colab": {"COLAB_RELEASE_TAG": "release-colab_20261101"},
    "kaggle": {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"},
    "sagemaker-studio": {"SAGEMAKER_APP_TYPE": "JupyterLab"},
    "sagemaker-studio-lab": {"HOME": "/home/studio-lab-user"},
}
# What the notebooks need beside PyTorch, in place of which hollow packages will do.
NEEDED = (
    *("numpy", "cloudpickle", "matplotlib", "platformdirs", "pooch", "scikit-learn"),
    "tqdm",
)


def hollow_wheel(folder: Path, name: str, version: str) -> None:
    """Write a wheel of a package that holds its version and nothing else."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{module}.py", f"__version__ = {version!r}\n")
        file.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        )
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\n"
            "Root-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> Path:
    """A folder with the wheel of this project and all that it needs, mostly hollow."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "-w", folder, REPOSITORY], check=True)
    for name in NEEDED:
        hollow_wheel(folder, name, "99.0")
    for version in ("2.4.0", "2.10.0", "2.13.0"):
        hollow_wheel(folder, "torch", version)
    for name in ("tensorflow", "jax"):
        hollow_wheel(folder, name, "99.0")
    return folder


# What IPython does for %pip: a shell runs the kernel's own pip.
MAGICS = """
import subprocess, sys

class get_ipython:
    def run_line_magic(self, name, line):
        assert name == "pip"
        subprocess.run(f"{sys.executable} -m pip {line}", shell=True)

"""


@dataclass
class Machine:
    """A bare virtual environment, and the environment variables that it sees."""

    folder: Path
    variables: dict[str, str]

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts" if os.name == "nt" else "bin") / "python"

    def run(self, *arguments: str) -> str:
        """Run its Python; return what that printed, on stdout alone."""
        result = subprocess.run(
            [self.python, *arguments],
            env=self.variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stderr == ""
        return result.stdout

    def first_cell(self, tag: str = "pytorch") -> str:
        """Run the first cell as a notebook's kernel would; return what it printed."""
        plain = TransformerManager().transform_cell(first_cell(tag))
        return self.run("-c", MAGICS + plain)

    def versions(self) -> dict[str, str]:
        """Return the installed packages and their versions."""
        listed = self.run("-m", "pip", "list", "--format=freeze")
        return dict(line.split("==") for line in listed.splitlines())


def first_cell(tag: str = "pytorch") -> str:
    """Return the code that every notebook for a framework begins with."""
    path = PurePosixPath(f"notebooks/en/{tag}/01_devices.ipynb")
    cells = Header(Project(REPOSITORY).header, path, framework(tag)).cells()
    (source,) = [cell.source for cell in cells if cell.kind == "code"]
    return source


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """A virtual environment with nothing but pip."""
    folder = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture
def machine(wheels, bare, tmp_path) -> Callable[..., Machine]:
    """A function that makes a bare machine with some packages installed."""

    def make(signs: dict[str, str], *installed: str) -> Machine:
        kept = ("PATH", "SYSTEMROOT", "TEMP", "TMP", "LD_LIBRARY_PATH")
        variables = {name: os.environ[name] for name in kept if name in os.environ}
        variables |= {
            "HOME": str(tmp_path),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_NO_CACHE_DIR": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            **signs,
        }
        shutil.copytree(bare, tmp_path / "venv", symlinks=True)
        machine = Machine(tmp_path / "venv", variables)
        if installed:
            machine.run("-m", "pip", "install", "--quiet", *installed)
        return machine

    return make


@pytest.mark.parametrize(
    "signs",
    [
        pytest.param(signs, id=name, marks=[pytest.mark.all] * (name != "colab"))
        for name, signs in PLATFORM_SIGNS.items()
    ],
)
def test_hosted_platform_gets_the_course_and_keeps_its_pytorch(machine, signs):
    host = machine(signs, "torch==2.10.0")
    assert host.first_cell() == ""
    versions = host.versions()
    assert versions["torch"] == "2.10.0"
    assert versions["d2l-gpu"] == d2l_gpu.__version__
    assert set(NEEDED) <= set(versions)
    # A platform has a Jupyter of its own, with versions of its own.
    assert not {"jupyterlab", "ipykernel", "nbconvert"} & set(versions)


@pytest.mark.parametrize(
    "installed",
    [pytest.param((), marks=pytest.mark.all), ("torch==2.4.0",)],
    ids=["none", "old"],
)
def test_hosted_platform_gets_a_pytorch_if_it_has_none_or_one_too_old(
    machine, installed
):
    host = machine(PLATFORM_SIGNS["colab"], *installed)
    host.first_cell()
    assert host.versions()["torch"] == "2.13.0"


@pytest.mark.parametrize(
    "tag", ["tensorflow", pytest.param("jax", marks=pytest.mark.all)]
)
def test_hosted_platform_gets_the_framework_of_the_edition_and_no_other(machine, tag):
    host = machine(PLATFORM_SIGNS["colab"])
    host.first_cell(tag)
    assert set(host.versions()) & {"torch", "tensorflow", "jax"} == {tag}


@pytest.mark.all
def test_second_run_changes_nothing(machine):
    host = machine(PLATFORM_SIGNS["kaggle"], "torch==2.10.0")
    host.first_cell()
    before = host.versions()
    host.variables["PIP_FIND_LINKS"] = ""  # nothing is looked for
    assert host.first_cell() == ""
    assert host.versions() == before


def test_failing_installation_says_what_pip_says(machine, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    host = machine({**PLATFORM_SIGNS["colab"], "PIP_FIND_LINKS": str(empty)})
    with pytest.raises(AssertionError, match="No matching distribution found for d2l"):
        host.first_cell()


def test_mxnet_is_not_installed_but_it_is_said_how(machine):
    laptop = machine({})
    before = laptop.versions()
    page = "docs/editions.md"
    assert page in laptop.first_cell("mxnet")
    assert laptop.versions() == before
    assert "MXNet" in (REPOSITORY / page).read_text("utf-8")
