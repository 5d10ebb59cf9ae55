"""``d2l-gpu variant``: notebooks whose exercises have other numbers."""

import argparse

from d2l_gpu.commands.arguments import add_edition, folder
from d2l_gpu.common.frameworks import framework


def _run(options: argparse.Namespace) -> int:
    framework(options.framework)
    if options.framework != "pytorch":
        raise ValueError("only the lessons with PyTorch have variants")
    from d2l_gpu.exercises.variants import notebooks

    for path in notebooks.write(
        options.seed, options.lessons, options.output, options.language
    ):
        print(path)
    return 0


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    variant = commands.add_parser(
        "variant",
        help="write notebooks whose exercises have other numbers, and their key",
        description="Write notebooks whose exercises have other numbers, sizes and "
        "data than the public ones, and a key for the teacher. The same seed makes the "
        "same variant on every machine.",
    )
    variant.set_defaults(command=_run)
    variant.add_argument(
        "seed",
        help="any text that your students can't guess, such as 'spring, group 2, kiwi'",
    )
    variant.add_argument(
        "lessons",
        nargs="*",
        metavar="lesson",
        help="number or name, such as 03, copying or 03_copying (default: all that "
        "have variants)",
    )
    add_edition(variant)
    variant.add_argument(
        "--output",
        type=folder,
        metavar="DIR",
        help="where to put the folders students and key (default: ./variant-NAME)",
    )
