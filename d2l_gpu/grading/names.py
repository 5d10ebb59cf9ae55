"""Whose a file is, by the names that learning management systems give to downloads.

* Moodle: a folder ``Chloé Dubois_12345_assignsubmission_file`` (before Moodle 4.1 with
  another ``_`` at the end), or a file that begins so. The number is the participant's
  in this assignment, and finds the student again when feedback is uploaded.
* Canvas: a file ``duboischloe_12345_678_03_copying.ipynb`` with the numbers of the user
  and of the attachment, which find the student again; ``_LATE`` may follow the name.
  For anonymous grading, the name is ``anon`` and the user's number a word.
"""

import re
from dataclasses import dataclass

_MOODLE = re.compile(
    r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_.*)?"
)
# Longer numbers than a lesson's, or anna_2026_11_precision would be one.
_CANVAS = re.compile(
    r"(?P<name>[^\W_]+)_(?:LATE_)?(?P<id>[^\W_]+)_[1-9]\d{2,}_.+",
)


@dataclass(frozen=True)
class Owner:
    """Whose a file is, for all that its name tells.

    Attributes:
        name: of the student.
        id: that the system gave to the student; empty if it gave none.
        system: ``moodle``, ``canvas``, or empty for names that people gave.
    """

    name: str
    id: str = ""
    system: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Equal for files of the same student, unless a list of the class says so."""
        return (self.system, self.id) if self.id else ("", self.name)


def owner_of(name: str) -> Owner:
    """Return whose a folder or a file is.

    Args:
        name: of a folder, or of a file without what says its format.
    """
    for system, pattern in ("moodle", _MOODLE), ("canvas", _CANVAS):
        found = pattern.fullmatch(name)
        if found and (found["id"].isdecimal() or found["name"] == "anon"):
            return Owner(found["name"].strip() or name, found["id"], system)
    return Owner(name)
