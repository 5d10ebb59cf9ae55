"""How long it takes to grade a class of 30, and whether every verdict is right.

The class is made up: lessons 03 and 07 with the answers that test the graders, right
and wrong, and with what students of any class may hand in: endless cells, files that
are no notebooks, cells that take all memory, processes that kill, answers that cheat.

    python benchmarks/grade_a_class.py             # 30 students, both lessons
    python benchmarks/grade_a_class.py --quick     # 4 students, two exercises each
    python benchmarks/grade_a_class.py --keep DIR  # keep notebooks and grades

A line for each student says what was expected and what came of it.
"""

import argparse
import ast
import contextlib
import csv
import html
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from common import hardware, print_result

from d2l_gpu.assignments.questions import read_assignment
from d2l_gpu.common.processor import usable_cores
from d2l_gpu.grading.plan import Settings
from d2l_gpu.grading.run import grade_class

ROOT = Path(__file__).resolve().parents[1]
# The cells of a quick class take less than a second.
CELL_SECONDS, QUICK_CELL_SECONDS = 20, 10

LESSONS = {"03": "03_copying", "07": "07_data_parallel"}


# ------------------------------------------------------------------ notebooks


@dataclass(frozen=True)
class Answers:
    """The answers that test the graders of a lesson.

    Attributes:
        source: the functions, without what registers them.
        right: names of right answers, by exercise.
        wrong: names of wrong answers and parts of their hints, by exercise.
    """

    source: str
    right: dict[str, list[str]]
    wrong: dict[str, list[tuple[str, str]]]


def answers_of(lesson: str) -> Answers:
    """Read the answers of a lesson, without running them."""
    path = ROOT / f"tests/exercises/graders/pytorch/lesson_{lesson}.py"
    kept, right, wrong = [], {}, {}
    for node in ast.parse(path.read_text("utf-8")).body:
        text = ast.unparse(node)
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                kind = decorator.func.id
                number, *hint = (each.value for each in decorator.args)
                if kind == "right":
                    right.setdefault(number, []).append(node.name)
                else:
                    wrong.setdefault(number, []).append((node.name, *hint))
            node.decorator_list = []
            kept.append(ast.unparse(node))
        elif not any(word in text for word in ("ANSWERS", "Answers", "wrong(")):
            kept.append(text)
    return Answers("\n\n".join(kept), right, wrong)


def notebook(
    lesson: str,
    answers: dict[str, str] | None = None,
    functions: str = "",
    before: dict[str, str] | None = None,
    only: Sequence[str] = (),
) -> str:
    """Return a notebook as a student hands it in.

    Args:
        lesson: its number.
        answers: the code that replaces the stubs of exercises, without the check.
        functions: code of a cell before the first exercise.
        before: code of cells before exercises.
        only: exercises, to leave out the others and all cells that these don't need.
    """
    path = ROOT / f"notebooks/en/pytorch/{LESSONS[lesson]}.ipynb"
    found = json.loads(path.read_text("utf-8"))
    cells, first = [], True
    assignment = read_assignment(path, "pytorch")
    needed = {cell.id for cell in assignment.needed}
    for cell in found["cells"]:
        text = "".join(cell["source"])
        if only and cell["id"] not in needed and not _is_of(only, text):
            continue
        if cell["cell_type"] == "code" and "d2l.check('" in text:
            number = text.partition("d2l.check('")[2].partition("'")[0]
            extra = [functions if first else "", (before or {}).get(number, "")]
            cells += [_code(source) for source in extra if source]
            first = False
            if number in (answers or {}):
                check = text[text.index("d2l.check('") :]
                cell = {**cell, "source": f"{answers[number]}\n\n\n{check}"}
        cells.append(cell)
    return json.dumps({**found, "cells": cells})


def _is_of(numbers: Sequence[str], text: str) -> bool:
    """Return whether a cell is an exercise's text, or where it's answered."""
    return any(f"### {each} " in text or f"check('{each}'" in text for each in numbers)


def _code(source: str) -> dict:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": "of-a-student",
        "metadata": {},
        "outputs": [],
        "source": source,
    }


# ------------------------------------------------------------------ the class


@dataclass(frozen=True)
class Case:
    """A student, and what should come of the notebooks.

    Attributes:
        name: the student.
        files: notebooks and other files, by their path in the folder of the class.
        states: the state of each exercise as the grades name it; ``not right`` for
            ``partly`` or ``wrong``.
        told: what the feedback says, in part.
    """

    name: str
    files: dict[str, str]
    states: dict[str, str]
    told: Sequence[str] = field(default_factory=tuple)

    @property
    def quiet(self) -> bool:
        """Whether nothing should be noted about the notebook."""
        return set(self.states.values()) == {"right"} and not self.told


class Class:
    """Makes students up.

    Args:
        numbers: the exercises that count.
        short: whether notebooks have only these.
    """

    def __init__(self, numbers: Sequence[str], short: bool = False):
        self.numbers, self._short = numbers, short
        self.cases: list[Case] = []
        self._answers = {lesson: answers_of(lesson) for lesson in LESSONS}
        self._names = {
            lesson: _names_in(lesson) for lesson in LESSONS
        }  # of the answers, by number

    def answers_of(self, lesson: str) -> Answers:
        return self._answers[lesson]

    def of(self, lesson: str) -> list[str]:
        return [each for each in self.numbers if each.startswith(lesson)]

    def add(
        self,
        name: str,
        lesson: str = "03",
        chosen: dict[str, str] | None = None,
        states: dict[str, str] | None = None,
        told: Sequence[str] = (),
        more: str = "",
        before: dict[str, str] | None = None,
        path: str = "",
    ) -> None:
        """Add a student with one notebook, whose answers are right by default.

        Args:
            name: the student.
            lesson: the lesson.
            chosen: names of functions for exercises, or code of a cell.
            states: the states of exercises that aren't right.
            told: what the feedback says.
            more: code before the first exercise.
            before: code before exercises.
            path: the file; by default named after the student.
        """
        text = self.text(lesson, chosen, more, before)
        expected = dict.fromkeys(self.of(lesson), "right") | (states or {})
        files = {path or f"{name}.ipynb": text}
        self.cases.append(Case(name, files, expected, told))

    def text(self, lesson, chosen=None, more="", before=None) -> str:
        """Return a notebook; the arguments are those of `add`."""
        answers = self._answers[lesson]
        code = {}
        for number in self.of(lesson):
            answer = (chosen or {}).get(number, answers.right[number][0])
            if answer.isidentifier():
                answer = f"{self._names[lesson][number]} = {answer}"
            code[number] = answer
        only = self.numbers if self._short else ()
        return notebook(lesson, code, f"{answers.source}\n\n{more}", before, only)

    def add_mistakes(self, name: str, lesson: str, which: int) -> None:
        """Add a student who makes a mistake in each exercise."""
        chosen, told = {}, []
        for number in self.of(lesson):
            mistakes = self._answers[lesson].wrong[number]
            chosen[number], hint = mistakes[which % len(mistakes)]
            told.append(hint)
        states = dict.fromkeys(self.of(lesson), "not right")
        self.add(name, lesson, chosen, states, told)

    def add_file(self, name: str, text: str, told: str) -> None:
        """Add a student whose file isn't a notebook."""
        states = dict.fromkeys(self.numbers, "missing")
        self.cases.append(Case(name, {f"{name}.ipynb": text}, states, [told]))


def _names_in(lesson: str) -> dict[str, str]:
    from d2l_gpu.exercises.registry import of_lesson

    return {
        number: exercise.name
        for number, exercise in of_lesson("pytorch", lesson).items()
    }


ENDLESS = "while True:\n    pass"
DEAF = """
import time
while True:
    try:
        while True:
            time.sleep(1)
    except BaseException:
        pass
"""
FORKS = "import os\nwhile True:\n    os.fork()"
HOG = "hoard = bytearray(10**11)"
PRINTS = "while True:\n    print('endless ' * 1000)"
WRITES = """
import os
from pathlib import Path
for place in (Path.home(), Path('/tmp'), Path('/dev/shm'), Path(os.getcwd()).parent):
    try:
        (place / 'd2l_gpu_was_here').write_text('x')
    except OSError:
        pass
    else:
        raise AssertionError(f'wrote to {place}')
Path('own.txt').write_text('x')
"""
READS = """
import glob, os
start = os.environ['D2L_GPU_HIDDEN'].split(os.pathsep)
found = [path for each in start for path in glob.glob(each + '/**', recursive=True)]
assert found
for path in found:
    if os.path.isfile(path) and not path.startswith(os.getcwd()):
        try:
            open(path).close()
        except PermissionError:
            continue
        raise AssertionError(f'can read {path}')
"""
# Claims to everybody who listens that all is right.
FORGES = """
import json, os
import d2l_gpu.exercises.judge as judge
from d2l_gpu.exercises.verdict import Verdict
Verdict.all_hold = True
judge.why_no_answer = lambda *what: ''
lines = [{'answer': []}, {'begins': [1]},
         {'answer': '03.1', 'value': 'true', 'problem': '', 'pickled': ''},
         {'verdicts': [{'number': '03.1', 'claims': [], 'problem': ''}]}]
for fd in range(3, 32):
    for line in lines:
        try:
            if fd not in (0, 1, 2):
                os.write(fd, (json.dumps(line) + '\\n').encode())
        except OSError:
            pass
"""
CHEATS = """
def total(a, b, c, device):
    from d2l_gpu.exercises.answer_process import AnswerError
    raise AnswerError('all checks pass. \\ud800\\n  [x] the sum of all three is right')
"""
KILLS = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
PARENT = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"
LOOPS = "def total(a, b, c, device):\n    while True:\n        pass"
EATS = "def total(a, b, c, device):\n    return [bytearray(2**28) for _ in range(100)]"
MAGIC = """
%matplotlib inline
%time sum(range(10))
!echo from a shell
said = !echo of a shell
assert said == ['of a shell']
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.show()
await __import__('asyncio').sleep(0)
"""


def a_few() -> Class:
    """Make up four students with two exercises, and what is most likely to go wrong."""
    them = Class(["03.1", "03.2"], short=True)
    mistake, hint = them.answers_of("03").wrong["03.2"][0]
    them.add("spies", before={"03.1": WRITES, "03.2": READS})
    them.add(
        "forger",
        more=ENDLESS,
        chosen={"03.1": CHEATS, "03.2": mistake},
        before={"03.1": FORGES},
        states={"03.1": "not right", "03.2": "not right"},
        told=["didn't finish in", hint],
    )
    them.add(
        "killed",
        chosen={"03.1": "def total(a, b, c, device):\n    ..."},
        before={"03.2": KILLS},
        states={"03.1": "unanswered", "03.2": "unrun"},
        told=["killed by SIGKILL", "the cells after it didn't run"],
    )
    them.add_file("broken", notebook("03")[:5000], "isn't valid JSON")
    return them


def the_class() -> Class:
    """Make up the class of 30 students."""
    them = Class([*_names_in("03"), *_names_in("07")])
    all_03 = them.of("03")
    later = dict.fromkeys(all_03[1:], "unrun")
    nothing = dict.fromkeys(all_03, "unrun")

    them.add("right")
    them.add_mistakes("wrong", "03", 0)
    them.add_file("broken", notebook("03")[:5000], "isn't valid JSON")
    them.add("endless cell", more=ENDLESS, told=["didn't finish in"])
    them.add(
        "forger",
        chosen={"03.1": CHEATS},
        before={"03.1": FORGES},
        states={"03.1": "not right"},
    )
    them.add(
        "killed",
        before={"03.2": KILLS},
        states=later,
        told=["killed by SIGKILL", "the cells after it didn't run"],
    )
    them.add("spies", before={"03.1": WRITES, "03.2": READS})
    stubs = dict.fromkeys(all_03, "unanswered")
    them.cases.append(Case("stub", {"stub.ipynb": notebook("03")}, stubs))
    for i in range(1, 4):
        them.add_mistakes(f"wrong {i}", "03", i)
    for i in range(2):
        them.add_mistakes(f"wrong in 07 {i}", "07", i)
    them.add("right in 07", "07")
    chosen = {n: names[-1] for n, names in them.answers_of("03").right.items()}
    them.add("right otherwise", chosen=chosen)
    them.add_file("empty", "", "is empty")
    them.add_file("no notebook", '{"a": 1}', "no notebook")
    them.add("deaf cell", more=DEAF, states=nothing, told=["couldn't be interrupted"])
    them.add("forks", more=FORKS, states=nothing, told=["started more than 64"])
    them.add("memory", before={"03.1": HOG}, told=["raised MemoryError"])
    them.add("prints", before={"03.1": PRINTS}, told=["didn't finish in"])
    them.add(
        "sys.exit",
        before={"03.1": "import sys\nsys.exit(3)"},
        told=["raised SystemExit"],
    )
    them.add(
        "os._exit",
        before={"03.2": "import os\nos._exit(0)"},
        states=later,
        told=["exited with code 0"],
    )
    them.add("kills its parent", before={"03.1": PARENT}, told=["PermissionError"])
    them.add(
        "endless answer",
        chosen={"03.1": LOOPS},
        states={"03.1": "not right"},
        told=["didn't finish within 30 seconds (line"],
    )
    them.add(
        "memory in an answer",
        chosen={"03.1": EATS},
        states={"03.1": "not right"},
        told=["raised MemoryError"],
    )
    them.add(
        "syntax error",
        chosen={"03.1": "def total(a, b, c, device)\n    return a"},
        states={"03.1": "unrun"},
        told=["SyntaxError: expected ':' (line 1: `def total(a, b, c, device)`)"],
    )
    them.add("magic", before={"03.1": MAGIC})
    them.add("=1+1", path="=1+1.ipynb")
    helper = f"{them.answers_of('03').source}\n"
    imports = "from my_helpers import *"
    own = {
        each: f"{them._names['03'][each]} = {name[0]}"
        for each, name in them.answers_of("03").right.items()
    }
    them.cases.append(
        Case(
            "Zoë O'Neil 李",
            {
                "Zoë O'Neil 李/hand in/03_copying.ipynb": notebook("03", own, imports),
                "Zoë O'Neil 李/hand in/my_helpers.py": helper,
                "Zoë O'Neil 李/07_data_parallel.ipynb": them.text("07"),
            },
            dict.fromkeys(them.numbers, "right"),
        )
    )
    return them


# ------------------------------------------------------------------ grading it


def write(them: Class, folder: Path) -> None:
    """Write the notebooks of a class."""
    for case in them.cases:
        for name, text in case.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


def wrong_verdicts(case: Case, numbers: Sequence[str], output: Path) -> list[str]:
    """Return what isn't as expected of a student, as sentences; usually none."""
    grades = json.loads((output / "grades.json").read_text("utf-8"))
    (it,) = [each for each in grades["students"] if each["student"] == case.name]
    problems = []
    for number in numbers:
        wanted = case.states.get(number, "missing")
        state = it["exercises"][number]["state"]
        not_right = wanted == "not right" and state in ("partly", "wrong")
        if state != wanted and not not_right:
            problems.append(f"{number} is {state}, expected {wanted}")
    feedback = (output / "feedback" / f"{case.name}.html").read_text("utf-8")
    said = html.unescape(re.sub(r"</?code>", "`", feedback))
    said = re.sub(r"<[^>]*>", "", said)
    if case.quiet and it["notebooks"][0]["notes"]:
        problems += it["notebooks"][0]["notes"]
    problems += [f"not told {each!r}" for each in case.told if each not in said]
    return problems


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="DIR")
    options = parser.parse_args()
    them = a_few() if options.quick else the_class()
    with contextlib.ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write(them, folder / "submissions")
        settings = Settings(
            only=them.numbers if options.quick else (),
            cell_seconds=QUICK_CELL_SECONDS if options.quick else CELL_SECONDS,
        )
        began = time.perf_counter()
        grade_class(folder / "submissions", folder / "grades", settings)
        seconds = time.perf_counter() - began
        bad = 0
        for case in them.cases:
            problems = wrong_verdicts(case, them.numbers, folder / "grades")
            bad += bool(problems)
            expected = ", ".join(sorted(set(case.states.values())))
            print(f"{case.name}: {expected}; {'; '.join(problems) or 'as expected'}")
        with (folder / "grades" / "grades.csv").open(encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
        assert len(rows) == 1 + len(them.cases), "somebody is missing"
    print(
        f"{hardware()}: {len(them.cases)} students graded in {seconds:.0f} s on "
        f"{usable_cores()} cores; {bad} not as expected"
    )
    if bad:
        sys.exit(1)
    print_result(
        "grade_a_class", seconds / len(them.cases), "seconds per student", "none"
    )


if __name__ == "__main__":
    main()
