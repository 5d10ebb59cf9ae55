"""``d2l-gpu doctor``: find what is wrong with a machine."""

import argparse

from d2l_gpu.commands.arguments import number_of_seconds


def _run(options: argparse.Namespace) -> int:
    from d2l_gpu import doctor
    from d2l_gpu.doctor import output

    findings = doctor.examine(options.checks, options.timeout)
    if options.json:
        findings = list(findings)
        print(output.as_json(findings))
    else:
        findings = output.show(findings)
    return 1 if any(each.status == doctor.PROBLEM for each in findings) else 0


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    doctor = commands.add_parser(
        "doctor",
        help="find what is wrong with this machine, and say how to fix it",
        description="Check whether you can work through the course on this machine. "
        "Nothing is changed. You need neither a GPU nor a network. The exit code is 1 "
        "if there is a problem.",
    )
    doctor.set_defaults(command=_run)
    doctor.add_argument(
        "checks",
        nargs="*",
        metavar="check",
        help="name of a check, as in the report (default: all checks)",
    )
    doctor.add_argument("--language", help="language of the report (default: yours)")
    doctor.add_argument(
        "--json",
        action="store_true",
        help="write JSON: a list of objects with name, status, what and what_to_do",
    )
    doctor.add_argument(
        "--timeout",
        type=number_of_seconds,
        default=120,
        metavar="SECONDS",
        help="how long to wait for each program that is asked, in seconds (default: "
        "%(default)s)",
    )
