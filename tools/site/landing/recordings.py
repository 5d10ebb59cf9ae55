"""What was recorded for the landing page; ``record.py`` writes it."""

import json
from pathlib import Path

_FOLDER = Path(__file__).with_name("recorded")
MISMATCH, STEPS = _FOLDER / "mismatch.json", _FOLDER / "steps.json"


def recorded(path: Path) -> list[dict]:
    """Return a recording."""
    return json.loads(path.read_text("utf-8"))
