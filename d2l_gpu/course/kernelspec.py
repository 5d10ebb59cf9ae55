"""The one kernel of the course: this very interpreter."""

import sys

from ipykernel.kernelspec import RESOURCES
from jupyter_client.kernelspec import (
    NATIVE_KERNEL_NAME,
    KernelSpec,
    KernelSpecManager,
)


class ThisInterpreter(KernelSpecManager):
    """Every kernel name means the Python that is running now, and there is no other.

    A kernel called ``python3`` that the user installed from another environment
    would come first otherwise, and that one may know nothing of this package.
    """

    def find_kernel_specs(self) -> dict[str, str]:
        return {NATIVE_KERNEL_NAME: RESOURCES}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(
            argv=kernel_argv(sys.executable),
            display_name="Python 3",
            language="python",
            resource_dir=RESOURCES,
            metadata={"debugger": True},  # for JupyterLab's button
        )


def kernel_argv(python: str) -> list[str]:
    """Return the command that starts a kernel of an interpreter."""
    return [
        *(python, "-m", "ipykernel_launcher"),
        *("-f", "{connection_file}"),
        # ipykernel 7 warns each time that a local kernel is not encrypted
        "--log-level=ERROR",
    ]
