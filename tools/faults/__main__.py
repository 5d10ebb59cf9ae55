"""The command ``python -m tools.faults``."""

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from tools import faults as package
from tools.faults.catalogue import chosen, read_faults
from tools.faults.planting import plant_all, summary

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant faults and run the tests.

    Returns:
        0 if all is as expected; 1 if a fault survives that isn't listed as surviving,
        one is caught that is, or tests fail without a fault; 2 if a name or an entry
        is wrong, or the project can't be copied; 130 on Ctrl-C.
    """
    first, _, rest = package.__doc__.partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tools.faults",
        description=first,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a fault")
    parser.add_argument("--list", action="store_true", help="run nothing")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="how many to run at once"
    )
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, but got {options.jobs}")
    try:
        faults = chosen(read_faults(), options.names)
        if options.list:
            for fault in faults:
                print(f"{fault.name} ({fault.file}): {fault.what}")
            return 0
        say = functools.partial(print, flush=True)
        verdicts = plant_all(ROOT, faults, jobs=options.jobs, say=say)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    print(summary(verdicts))
    return 1 if any(verdict.wrong for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
