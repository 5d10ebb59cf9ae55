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
from contextlib import suppress
from typing import Any, NoReturn

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
from d2l_gpu.common.messages import localized, say, speak_as_the_system
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
    _choose_language(own)
    options = _parser().parse_args(own)
    options.passed_on = passed_on
    try:
        return options.command(options)
    except KeyboardInterrupt:
        say("\ninterrupted", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"d2l-gpu {options.name}: {localized(str(error))}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"d2l-gpu {options.name}: {localized(str(error))}", file=sys.stderr)
        return 2


def _choose_language(arguments: Sequence[str]) -> None:
    """Have this program speak the language that's asked for, or else the system's."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--language")
    with suppress(argparse.ArgumentError):  # the whole parser says what's wrong
        language = parser.parse_known_args(arguments)[0].language
        if language:
            # For the notebooks, too: `d2l.exercise` shows a text of the same edition.
            os.environ[LANGUAGE] = language
    speak_as_the_system()


# What argparse says by itself, here so that it gets into the catalogue.
_SECTIONS = ("options", "positional arguments")


class _Help(argparse.HelpFormatter):
    """Formats help in the reader's language."""

    def add_usage(
        self, usage: Any, actions: Any, groups: Any, prefix: str | None = None
    ) -> None:
        super().add_usage(usage, actions, groups, prefix or f"{localized('usage:')} ")

    def add_text(self, text: str | None) -> None:
        super().add_text(text and localized(text))

    def start_section(self, heading: str | None) -> None:
        super().start_section(heading and localized(heading))

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help and localized(action.help)


class _Parser(argparse.ArgumentParser):
    """Has help and errors in the reader's language, and so have its commands."""

    def __init__(self, **options: Any):
        super().__init__(formatter_class=_Help, add_help=False, **options)
        self.add_argument(
            "-h", "--help", action="help", help="say how to use this, and end"
        )

    def error(self, message: str) -> NoReturn:
        super().error(localized(message))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="d2l-gpu",
        description="GPUs for deep learning, a course that needs none.",
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"%(prog)s {__version__}",
        help="say which version this is, and end",
    )
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="command", dest="name"
    )
    for command in _COMMANDS:
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
