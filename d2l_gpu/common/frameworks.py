"""The frameworks that the course has an edition for: a table of four rows.

A new framework is one more row, a helper ``d2l_gpu/<module>.py`` and a folder of
lessons.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from d2l_gpu.common.requirements import install, install_in_clone


@dataclass(frozen=True)
class Framework:
    """A framework with an edition of its own.

    Attributes:
        tag: the name of the folders with its lessons and its notebooks.
        title: its name.
        module: what programs import.
        hosted: whether it can be installed in the Python of hosted platforms (Colab,
            Kaggle, SageMaker). If not, it has an environment of its own.
        extras: the extras of this package that install it and what the course needs;
            by default ``jupyter`` and the one named after the module.
    """

    tag: str
    title: str
    module: str
    hosted: bool = True
    extras: str = ""

    @property
    def all_extras(self) -> str:
        """The extras of this package that its readers install."""
        return self.extras or f"jupyter,{self.module}"

    @property
    def install(self) -> str:
        """The command that installs it, and what its notebooks need."""
        if self.hosted:
            return install(self.all_extras)
        return install_in_clone(f"environments/{self.tag}.txt")

    @property
    def is_installed(self) -> bool:
        """Whether this Python can import it."""
        return find_spec(self.module) is not None


# Sorted as they are listed.
FRAMEWORKS = (
    Framework("pytorch", "PyTorch", "torch", extras="course"),
    Framework("tensorflow", "TensorFlow", "tensorflow"),
    Framework("jax", "JAX", "jax"),
    Framework("mxnet", "MXNet", "mxnet", hosted=False),
)


def framework(tag: str, among: Sequence[Framework] = FRAMEWORKS) -> Framework:
    """Return the framework with a tag.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    for each in among:
        if each.tag == tag:
            return each
    known = ", ".join(each.tag for each in among)
    raise ValueError(f"there is no framework {tag!r}; the frameworks are: {known}")


def not_installed(tag: str, error: ImportError) -> ImportError:
    """Return what a helper raises where its framework cannot be imported.

    Args:
        tag: of the framework.
        error: what importing it raised.
    """
    it = framework(tag)
    if it.is_installed:
        return ImportError(f"{it.title} cannot be imported: {error}", name=error.name)
    return ImportError(f"{it.title} is not installed: {it.install}", name=it.module)
