"""Where things are."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SANITIZE = REPOSITORY / "tests" / "nbval_sanitize.cfg"
PROGRAMS = REPOSITORY / "tests" / "programs"
