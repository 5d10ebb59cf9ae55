"""``d2l-gpu progress``: which exercises a reader has solved."""

import argparse
import sys

from d2l_gpu.commands.arguments import page_name
from d2l_gpu.common.frameworks import FRAMEWORKS
from d2l_gpu.common.messages import localized, say
from d2l_gpu.course import notebooks_dir


def _run(options: argparse.Namespace) -> int:
    from d2l_gpu.progress import certificate, table
    from d2l_gpu.progress.record import solved_exercises

    if options.name_shown and not options.output:
        raise ValueError("--name is for the page, so name its file too: --output FILE")
    try:
        solved = solved_exercises()
    except ImportError as error:
        print(f"d2l-gpu progress: {localized(str(error))}", file=sys.stderr)
        return 1
    editions = table.editions(solved, options.framework, options.language)
    if options.output:
        from d2l_gpu.common.files import write_atomically

        language = notebooks_dir(options.language, editions[0].framework).parent.name
        page = certificate.page(editions, options.name_shown, language)
        write_atomically(options.output, page)
    if options.json:
        table.show(table.as_json(editions))
    elif options.output:
        table.show(f"wrote {options.output}: {table.ABOUT}")
    else:
        table.show("\n\n".join(map(table.as_text, editions)))
        say(f"\nThis is {table.ABOUT}.")
    return 0


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    progress = commands.add_parser(
        "progress",
        help="show which exercises you have solved",
        description="Show which exercises you have solved, lesson by lesson. "
        "`d2l.check` keeps the record on this computer, in your data folder or the "
        "folder that D2L_GPU_PROGRESS names; D2L_GPU_PROGRESS=0 turns it off.",
    )
    progress.set_defaults(command=_run)
    progress.add_argument(
        "--language",
        help="language of the titles and the page, such as en (default: yours, if "
        "there is an edition)",
    )
    progress.add_argument(
        "--framework",
        metavar="{" + ",".join(each.tag for each in FRAMEWORKS) + "}",
        help="show this framework only (default: all of which you have solved some)",
    )
    progress.add_argument(
        "--output",
        type=page_name,
        metavar="FILE",
        help="write a page to print or to send, such as certificate.html",
    )
    progress.add_argument(
        "--name",
        dest="name_shown",
        metavar="NAME",
        default="",
        help="your name, for the page (it is stored nowhere else)",
    )
    progress.add_argument("--json", action="store_true", help="print JSON")
