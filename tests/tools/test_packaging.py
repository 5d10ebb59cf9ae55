"""What pip and conda install is what the course needs, and no more."""

import email
import importlib.metadata
import itertools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name
from readme_renderer import markdown

import d2l_gpu
from d2l_gpu.commands import bundle, lab, needs
from d2l_gpu.common.frameworks import FRAMEWORKS
from d2l_gpu.common.requirements import module_of, modules, requirements
from d2l_gpu.course import lesson_names
from tests.helpers.paths import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
EXTRA_REQUIREMENTS = list(itertools.chain.from_iterable(EXTRAS.values()))


def package_name(requirement: str) -> str:
    return re.match(r"[\w.-]+", requirement).group()


def test_base_needs_nothing_and_a_framework_needs_no_other():
    assert PROJECT["dependencies"] == []
    hosted = {each.module for each in FRAMEWORKS if each.hosted}
    assert hosted == {"torch", "tensorflow", "jax"}
    for module in hosted:
        names = {package_name(requirement) for requirement in EXTRAS[module]}
        assert names == {module, "numpy"}


def test_requirements_have_lower_bounds_only():
    requirements = [*PROJECT["dependencies"], *EXTRA_REQUIREMENTS]
    for requirement in requirements:
        if ours := re.fullmatch(r"d2l-gpu\[([\w,]+)\]", requirement):
            assert set(ours[1].split(",")) <= set(EXTRAS)
        else:
            assert re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\d.]+", requirement)


def test_installed_requirements_are_those_of_the_project():
    def written_out(extra: str) -> dict[str, str]:
        found = {}
        for requirement in EXTRAS[extra]:
            if ours := re.fullmatch(r"d2l-gpu\[([\w,]+)\]", requirement):
                for other in ours[1].split(","):
                    found |= written_out(other)
            else:
                found[package_name(requirement)] = requirement.partition(">=")[2]
        return found

    for extra in ("lessons", "jupyter", "course"):
        assert requirements(extra) == written_out(extra)


def test_commands_ask_for_what_the_extra_has_and_for_nothing_else():
    commands = (needs.NOTEBOOKS, lab.MODULES, bundle.MODULES)
    asked = {*modules("lessons"), *itertools.chain.from_iterable(commands)}
    assert asked == set(modules("jupyter"))


def test_modules_are_those_that_their_packages_install():
    packages = importlib.metadata.packages_distributions()
    for package in requirements("course"):
        assert package in {canonicalize_name(x) for x in packages[module_of(package)]}


def test_each_extra_takes_in_the_one_before():
    assert "d2l-gpu[lessons]" in EXTRAS["jupyter"]
    assert EXTRAS["course"] == ["d2l-gpu[jupyter,torch]"]
    assert "d2l-gpu[course,jax,tensorflow]" in EXTRAS["test"]


def test_conda_environment_agrees_with_the_project():
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text("utf-8"))
    assert environment["name"] == PROJECT["name"]
    assert environment["channels"] == ["conda-forge"]
    *conda, last = environment["dependencies"]
    assert last == {"pip": ["-e .[test]"]}
    assert conda[:2] == ["python", "pip"]
    extras = {package_name(entry) for entry in EXTRA_REQUIREMENTS}
    for name in conda:
        assert re.fullmatch(r"[a-z]+", name), f"{name} has a version"
    assert set(conda[2:]) == {"jupyterlab", "matplotlib", "nbval"}
    assert set(conda[2:]) <= extras


def test_pytest_is_told_of_the_plugin():
    ((name, target),) = PROJECT["entry-points"]["pytest11"].items()
    assert name == "d2l_gpu_vgpu"
    assert importlib.import_module(target).virtual_gpus


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    written = REPOSITORY / "notebooks" / "en" / "pytorch" / "by_a_running_lesson.py"
    written.touch()
    try:
        pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), ".")
    finally:
        written.unlink()
    (built,) = folder.glob("*.whl")
    return built


def pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *arguments],
        cwd=REPOSITORY,
        check=True,
    )


def test_wheel_carries_the_notebooks_and_nothing_of_the_workshop(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    carried = {name for name in names if name.endswith(".ipynb")}
    quizzes = {name for name in names if "/quizzes/" in name and "/course/" in name}
    folder = REPOSITORY / "notebooks"

    def inside_wheel(pattern: str) -> set[str]:
        paths = (path.relative_to(REPOSITORY) for path in folder.glob(pattern))
        return {f"d2l_gpu/course/{path.as_posix()}" for path in paths}

    lessons = inside_wheel("*/*/*.ipynb")
    solutions = inside_wheel("en/*/solutions/*.ipynb")
    assert solutions
    assert carried == lessons | solutions
    assert quizzes == inside_wheel("*/*/quizzes/*.json")
    assert quizzes
    assert "d2l_gpu/course/jupyter/labconfig/default_setting_overrides.json" in names
    assert lessons
    inside = {Path(name).suffix for name in names if "/course/notebooks/" in name}
    assert inside == {".ipynb", ".json"}
    assert {name.split("/")[0].split("-")[0] for name in names} == {"d2l_gpu"}
    tests = ("test_", "conftest", "fresh_process")
    assert not [name for name in names if Path(name).name.startswith(tests)]


def test_installed_wheel_runs_outside_of_the_clone(wheel, tmp_path):
    site = tmp_path / "site"
    pip("install", "--no-deps", "--target", str(site), str(wheel))
    module = [sys.executable, "-m", "d2l_gpu.cli", "run"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    options = {
        "cwd": tmp_path,
        "env": environment,
        "capture_output": True,
        "text": True,
    }
    result = subprocess.run([*module, "--help"], check=True, **options)
    assert "--timeout" in result.stdout
    # The installed command knows the lessons, so it has found its own notebooks.
    result = subprocess.run([*module, "nonsense"], check=False, **options)
    assert result.returncode == 2
    notebooks = lesson_names(site / "d2l_gpu/course/notebooks/en/pytorch")
    assert ", ".join(notebooks) in result.stderr
    assert notebooks
    # It has the solutions, too, which these commands need.
    command = module[:-1]
    export = ["export", "nbgrader", "03", "--output", "exported"]
    varied = ["variant", "kiwi", "03", "--language", "fr", "--output", "varied"]
    for arguments in export, varied:
        subprocess.run([*command, *arguments], check=True, **options)
    assert (tmp_path / "exported/source/03_copying/03_copying.ipynb").is_file()
    assert (tmp_path / "varied/key/03_copying.ipynb").is_file()


# ---- The source distribution


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    hatchling("-t", "sdist", "-d", str(folder), cwd=REPOSITORY)
    (built,) = folder.glob("*.tar.gz")
    return built


def hatchling(*arguments: str, cwd: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *arguments],
        cwd=cwd,
        check=True,
        capture_output=True,
    )


def test_wheel_from_the_source_distribution_is_that_from_the_clone(
    wheel, sdist, tmp_path
):
    with tarfile.open(sdist) as archive:
        # Python 3.11 has filters from 3.11.4 on.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safe)
    (source,) = tmp_path.iterdir()
    hatchling("-t", "wheel", "-d", str(tmp_path), cwd=source)
    (other,) = tmp_path.glob("*.whl")
    assert contents(other) == contents(wheel)


def contents(wheel: Path) -> dict[str, int]:
    """The files of a wheel and their checksums; this includes those that say so."""
    return {info.filename: info.CRC for info in zipfile.ZipFile(wheel).infolist()}


@pytest.mark.skipif(
    not shutil.which("git") or not (REPOSITORY / ".git").exists(),
    reason="git says what belongs to the project",
)
def test_source_distribution_holds_the_files_of_the_project(sdist):
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    known = ("ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(
        ["git", *known], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    # All of them: whoever has it can change the course, and test the change.
    kept = {name for name in listed.stdout.splitlines() if (REPOSITORY / name).exists()}
    assert names == kept | {"PKG-INFO"}


@pytest.mark.parametrize(
    # Each lesson, in four languages and with its pictures, is about half a MiB; what
    # the code says in the three others is half a MiB in all.
    ("built", "limit"),
    [("wheel", 14 * 2**20), ("sdist", 22 * 2**20)],
)
def test_distributions_are_small(built, limit, request):
    assert request.getfixturevalue(built).stat().st_size < limit


# ---- The page on a package index


@pytest.fixture(scope="module")
def metadata(wheel) -> email.message.Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    return email.message_from_bytes(archive.read(name))


def test_version_is_that_of_the_package(metadata):
    assert metadata["Version"] == d2l_gpu.__version__


def test_addresses_lead_into_one_repository(metadata):
    addresses = dict(value.split(", ") for value in metadata.get_all("Project-URL"))
    assert set(addresses) == {"Documentation", "Source", "Changelog", "Issues"}
    owner, name = addresses["Source"].removeprefix("https://github.com/").split("/")
    # GitHub Pages, where .github/workflows/pages.yml publishes the web book.
    assert addresses.pop("Documentation") == f"https://{owner}.github.io/{name}/"
    assert all(url.startswith(addresses["Source"]) for url in addresses.values())
    assert addresses["Changelog"].endswith("/CHANGELOG.md")
    assert (REPOSITORY / "CHANGELOG.md").is_file()


def test_description_is_the_readme_with_links_that_lead_somewhere(metadata):
    text = metadata.get_payload(decode=True).decode()
    page = markdown.render(text)
    assert page is not None, "there is no renderer"
    source = "https://github.com/d2l-gpu/d2l-gpu/blob/"
    pictures = "https://raw.githubusercontent.com/d2l-gpu/d2l-gpu/"
    tag = f"v{d2l_gpu.__version__}/"
    targets = re.findall(r'<(a|img)\b[^>]*?(?:href|src)="([^"]+)"', page)
    ours = 0
    for element, target in targets:
        assert re.match("https://|#", target), target
        base = pictures if element == "img" else source
        if target.startswith((pictures, source)):
            assert target.startswith(base + tag)
            path = target.removeprefix(base + tag).partition("#")[0]
            assert (REPOSITORY / path).is_file(), path
            ours += 1
    assert ours > 10
    # Nothing but links is changed, and code least of all.
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    for base in (pictures, source):
        text = text.replace(f"]({base}{tag}", "](")
    assert text.strip() == readme.strip()


def test_the_citation_is_one_and_of_this_project():
    path = REPOSITORY / "CITATION.cff"
    schema = ("--builtin-schema", "vendor.citation-file-format")
    check = [sys.executable, "-m", "check_jsonschema", *schema, path]
    subprocess.run(check, check=True, capture_output=True)
    cited = yaml.safe_load(path.read_text("utf-8"))
    assert cited["repository-code"] == PROJECT["urls"]["Source"]
    assert " AND ".join(cited["license"]) == PROJECT["license"]
