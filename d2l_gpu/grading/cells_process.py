"""The process that runs the cells of a notebook, and sends off its answers.

It tells its supervisor, one JSON object a line, which cell begins, how each ended, and
what the answers are. The notebook can tamper with everything here, so a line is only
ever a claim about that notebook: an answer is a pickle that nobody but the answer's
process unpickles, or a value as JSON, and no line says whether an answer is right.
"""

import base64
import contextlib
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

from d2l_gpu.common.children import end_with_parent
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.exercises.judge import Prepared, prepare
from d2l_gpu.exercises.limits import limit_this_process, restrict_files
from d2l_gpu.exercises.own import chosen_file, hidden_folders
from d2l_gpu.exercises.registry import Exercise, find

TASK, WORK = "task.json", "work"

# An answer of more bytes isn't sent.
LARGEST = 2**26


def main() -> None:
    folder = Path(sys.argv[1])
    # First of all: it holds for threads that begin later, not for those there are.
    task = json.loads((folder / TASK).read_text("utf-8"))
    restrict_files(folder / WORK, hidden_folders(), [*filter(None, [chosen_file()])])
    end_with_parent()
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    exercises = [find(task["framework"], each, chosen_file()) for each in task["find"]]
    answers = Answers(exercises, replies)
    helper = importlib.import_module(
        f"d2l_gpu.{framework_with(task['framework']).module}"
    )
    helper.check = answers.check
    os.chdir(folder / WORK)
    shell = _shell()
    with Path(os.devnull).open("w") as nowhere:
        # Whatever it prints, nobody reads. So an endless output costs time only.
        for fd in (1, 2):
            os.dup2(nowhere.fileno(), fd)
    limit_this_process()
    for index, source in task["cells"]:
        answers.tell(begins=index)
        error, line = shell.run(index, source)
        answers.tell(ends=index, error=error, line=line)
    answers.send_rest(shell.user_ns)
    answers.tell(done=True)
    os._exit(0)  # libraries may have left threads behind


class Answers:
    """The answers of a notebook, sent as soon as they're there.

    Args:
        exercises: those that are graded.
        replies: where to send them.
    """

    def __init__(self, exercises: list[Exercise], replies: Any):
        self._exercises = {each.number: each for each in exercises}
        self._replies, self._given = replies, set()

    def tell(self, **what: Any) -> None:
        """Send one line, whole."""
        wanted, _Interrupts.wanted = _Interrupts.wanted, False
        self._replies.write(json.dumps(what) + "\n")
        self._replies.flush()
        _Interrupts.wanted = wanted

    def check(self, number: Any, answer: Any = ..., exercises: Any = None) -> None:
        """Take the place of ``d2l.check``: keep the answer, and print nothing."""
        if isinstance(number, str) and number in self._exercises:
            prepared = self._prepared(number, answer)
            if not prepared.problem.startswith("not answered"):
                self._given.add(number)
            self._send(number, prepared)

    def send_rest(self, names: dict[str, Any]) -> None:
        """Send what has the name of an exercise, if ``d2l.check`` got no answer."""
        for number, exercise in self._exercises.items():
            if number not in self._given and exercise.name in names:
                self._send(number, self._prepared(number, names[exercise.name]))

    def _prepared(self, number: str, answer: Any) -> Prepared:
        with _modules_by_value(Path.cwd()):
            prepared = prepare(self._exercises[number], answer)
        size = len(prepared.value or "") + len(prepared.pickled)
        if size > LARGEST:
            return Prepared(
                f"your answer can't be sent to another process: with the variables "
                f"that it uses, it has {size / 2**20:,.0f} MB, and may have "
                f"{LARGEST // 2**20}."
            )
        return prepared

    def _send(self, number: str, prepared: Prepared) -> None:
        self.tell(
            answer=number,
            problem=prepared.problem,
            value=prepared.value,
            pickled=base64.b64encode(prepared.pickled).decode("ascii"),
        )


@contextlib.contextmanager
def _modules_by_value(folder: Path):
    """Let answers take along what they import from files beside the notebook."""
    import cloudpickle

    modules = [
        module
        for module in list(sys.modules.values())
        if str(getattr(module, "__file__", None) or "").startswith(str(folder))
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _shell() -> Any:
    """Return what runs cells as Jupyter does, without a screen and without history."""
    from IPython.core.compilerop import CachingCompiler
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.text import LSString, SList
    from traitlets import Type
    from traitlets.config import Config

    class Compiler(CachingCompiler):
        """Calls the code of a cell after the cell, which errors then name."""

        cell = 0

        def get_code_name(self, *source: Any) -> str:
            return f"<cell {self.cell + 1}>"

    class Shell(InteractiveShell):
        compiler_class = Type(Compiler)

        def run(self, index: int, source: str) -> tuple[str, int]:
            """Run a cell, and return what it raised, and in which of its lines.

            That's an empty text if it raised nothing, and 0 if no line did.
            """
            self.compile.cell = index
            _Interrupts.wanted = True
            try:
                result = self.run_cell(source)
                error = result.error_before_exec or result.error_in_exec
            except BaseException as raised:  # of IPython itself
                error = raised
            finally:
                _Interrupts.wanted = False
            return _what(error), _line(error, self.compile.get_code_name())

        # The other way needs a terminal of its own, which can't be had here.
        system = InteractiveShell.system_raw

        def getoutput(self, cmd: str, split: bool = True, depth: int = 0) -> Any:
            text = subprocess.getoutput(self.var_expand(cmd, depth=depth + 1))
            return SList(text.splitlines()) if split else LSString(text)

        def _tee(self, channel: str) -> Any:
            """Don't keep what cells print, as IPython 9 does: it may be endless."""
            return contextlib.nullcontext()

        def ask_exit(self) -> None:
            """Take `exit` and `quit` for what they are here: no reason to stop."""

        def _showtraceback(self, *what: Any) -> None:
            pass

        def showsyntaxerror(self, *what: Any, **more: Any) -> None:
            pass

        def enable_gui(self, gui: Any = None) -> None:
            pass

    signal.signal(signal.SIGINT, _Interrupts.come)
    config = Config()
    config.HistoryManager.enabled = False
    shell = Shell.instance(config=config)
    sys.path.insert(0, "")  # as in Jupyter: files beside the notebook
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    return shell


class _Interrupts:
    """What to do about Ctrl-C, by which the supervisor ends a cell that is too late."""

    wanted = False

    @classmethod
    def come(cls, *signal: Any) -> None:
        if cls.wanted:
            raise KeyboardInterrupt


def _what(error: BaseException | None) -> str:
    """Return an error in one line, whatever its own methods do."""
    if error is None:
        return ""
    try:
        # A syntax error's text ends with its place, which is told anyhow.
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        text = " ".join(text.split())[:300]
    except BaseException:
        text = ""
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _line(error: BaseException | None, cell: str) -> int:
    """Return the line of a cell in which an error was raised; 0 if none was.

    Args:
        error: the error.
        cell: what its code is called.
    """
    if isinstance(error, SyntaxError) and error.filename == cell:
        return error.lineno or 0
    frames = traceback.extract_tb(error.__traceback__) if error else ()
    return next((each.lineno for each in frames if each.filename == cell), 0)
