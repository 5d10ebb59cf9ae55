"""The command ``d2l-gpu``; ``d2l_gpu.commands`` has what it can do."""

import os
import sys

# With `python -m`, modules of the working folder come first. What a reader has there,
# such as a random.py, is not for this program, unless this package itself is there.
if (
    __name__ == "__main__"
    and not sys.flags.safe_path
    and __file__ != f"{sys.path[0]}{os.sep}d2l_gpu{os.sep}cli.py"
):
    del sys.path[0]

import argparse
from collections.abc import Sequence

from d2l_gpu import __version__
from d2l_gpu.commands import (
    bundle,
    copy,
    doctor,
    export,
    grade,
    lab,
    progress,
    quiz,
    run,
    slides,
    variant,
)
from d2l_gpu.common.settings import LANGUAGE

_COMMANDS = (
    run,
    doctor,
    lab,
    copy,
    bundle,
    grade,
    export,
    quiz,
    slides,
    variant,
    progress,
)
"""In the order in which ``d2l-gpu --help`` lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the name of the program; those of the process if None.

    Returns:
        0 if all went well, 1 if something failed or is not installed, 2 for wrong
        arguments, 130 if interrupted by Ctrl-C, which however is the ordinary way to
        end JupyterLab, and 0 then.
    """
    own = list(sys.argv[1:] if arguments is None else arguments)
    passed_on: list[str] = []
    if own[:1] == ["lab"] and "--" in own:
        # By hand, for argparse takes what follows as positional arguments.
        end = own.index("--")
        own, passed_on = own[:end], own[end + 1 :]
    options = _parser().parse_args(own)
    options.passed_on = passed_on
    if getattr(options, "language", None):
        # For the notebooks, too: `d2l.exercise` shows a text of the same edition.
        os.environ[LANGUAGE] = options.language
    try:
        return options.command(options)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"d2l-gpu {options.name}: {error}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"d2l-gpu {options.name}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="d2l-gpu",
        description="GPUs for deep learning, a course that needs none.",
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {__version__}"
    )
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="command", dest="name"
    )
    for command in _COMMANDS:
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
