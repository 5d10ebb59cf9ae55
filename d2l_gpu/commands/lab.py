"""``d2l-gpu lab``: work through the course in JupyterLab."""

import argparse

from d2l_gpu.commands.arguments import add_edition, add_output
from d2l_gpu.commands.needs import lacks
from d2l_gpu.common.arguments import PORTS
from d2l_gpu.course import lesson_names, notebooks_dir, select_lessons

MODULES = ("ipykernel", "jupyterlab")


def _run(options: argparse.Namespace) -> int:
    notebooks = notebooks_dir(options.language, options.framework)
    lessons = lesson_names(notebooks)
    first = select_lessons([options.lesson or lessons[0]], lessons)[0]
    if lacks(options, MODULES):
        return 1
    from d2l_gpu.course.lab import open_lab

    return open_lab(
        notebooks,
        lessons,
        first,
        options.output,
        port=options.port,
        browser=options.browser,
        classic=options.classic,
        more=options.passed_on,
    )


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    lab = commands.add_parser(
        "lab",
        help="work through the course in JupyterLab",
        usage="%(prog)s [options] [lesson] [-- JUPYTERLAB-OPTION ...]",
        description="Copy the notebooks of the course and open them in JupyterLab. "
        "Notebooks that you have changed are kept. Press Ctrl-C to stop.",
        epilog="Everything after -- is passed on to JupyterLab, as in: d2l-gpu lab 03 "
        "-- --allow-root",
    )
    lab.set_defaults(command=_run)
    lab.add_argument(
        "lesson",
        nargs="?",
        help="lesson to open, by number or name, such as 03, copying or 03_copying "
        "(default: the first)",
    )
    add_edition(lab)
    add_output(lab)
    lab.add_argument(
        "--classic",
        action="store_true",
        help="show a single notebook, without the panels of JupyterLab",
    )
    lab.add_argument(
        "--no-browser",
        dest="browser",
        action="store_false",
        help="don't open a browser; JupyterLab prints the address, so you can open it "
        "yourself",
    )
    lab.add_argument(
        "--port",
        type=_port,
        help="port to listen on, 0 for any (default: 8888, or the next free one)",
    )


def _port(text: str) -> int:
    port = int(text)
    if port and port not in PORTS:
        raise ValueError
    return port


_port.__name__ = "port"
