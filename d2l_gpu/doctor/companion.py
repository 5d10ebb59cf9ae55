"""The book's package d2l, and torchvision, which it imports: companions, not needed."""

from .facts import Facts
from .findings import NOTE, OK, PROBLEM, Finding, pip, release
from .probes import import_modules
from .pytorch import install_torchvision, installed_version, torch_is_usable

WANTED = "1.0.3"
FIRST_WITH_TRAINER = (1, 0)  # editions before the book's first printed one differ


def check_book(facts: Facts) -> list[Finding]:
    """Can the book's own code be used beside the course?"""
    version = installed_version("d2l")
    install = pip("install", "--no-deps", f"d2l=={WANTED}")
    if version and release(version) < FIRST_WITH_TRAINER:
        return [
            _problem(
                f"d2l {version} belongs to an older edition of the book; pip chooses "
                "it when it may not change NumPy.",
                f"Install the version for this edition: {install}",
            )
        ]
    findings = []
    numpy = installed_version("numpy")
    if version and numpy and release(numpy) < (2,):
        pins = "which comes from the versions that d2l pins"
        upgrade = pip("install", "--upgrade", "numpy>=2", "matplotlib", "scipy")
        findings.append(
            _problem(
                f"d2l {version} is installed together with NumPy {numpy}, {pins}.",
                f"d2l works with newer versions: {upgrade}",
            )
        )
    if torch_is_usable(facts):
        findings += _not_importing(facts, bool(version))
    if findings:
        return findings
    if not version:
        what = (
            "The book's package d2l is not installed, and the course does not need "
            f"it; you can add it without the old versions that it pins: {install}."
        )
        return [Finding("book", OK, what)]
    if version != WANTED:
        what = f"d2l {version} is installed, but the course is tested with {WANTED}."
        return [Finding("book", NOTE, what, f"To install that one: {install}")]
    return [Finding("book", OK, f"d2l {version} works beside the course.")]


def _problem(what: str, what_to_do: str) -> Finding:
    return Finding("book", PROBLEM, what, what_to_do)


def _not_importing(facts: Facts, has_book: bool) -> list[Finding]:
    wanted = ["torchvision"] if installed_version("torchvision") else []
    wanted += ["d2l.torch"] if has_book else []
    if not wanted:
        return []
    answer = facts.ask(import_modules, *wanted)
    troubles = {name: answer.said.get(name, "") for name in wanted}
    if answer.trouble and (doing := answer.said.get("doing")):
        troubles[doing] = answer.trouble
    if vision := troubles.get("torchvision"):
        here = f"PyTorch {facts.torch.version}"
        what = f"torchvision cannot be imported with {here} ({vision})."
        to_do = "Install the one that matches it: "
        to_do += install_torchvision(facts.torch.version)
        if has_book:
            return [_problem(what, to_do)]
        return [Finding("book", NOTE, f"{what} The course does not need it.", to_do)]
    if trouble := troubles.get("d2l.torch"):
        to_do = _mend(trouble, facts.torch.version)
        return [_problem(f"d2l cannot be imported ({trouble}).", to_do)]
    return []


def _mend(trouble: str, version: str) -> str:
    """Return what helps against an error of ``from d2l import torch``.

    Args:
        trouble: the error.
        version: of PyTorch.
    """
    _, named, module = trouble.rstrip("'").partition("No module named '")
    if module == "torchvision":
        return f"Install it: {install_torchvision(version)}"
    if named:
        package = {"PIL": "pillow"}.get(module.split(".")[0], module.split(".")[0])
        return f"Install what it needs: {pip('install', package)}"
    again = pip("install", "--force-reinstall", "--no-deps", f"d2l=={WANTED}")
    return f"Install it again: {again}"
