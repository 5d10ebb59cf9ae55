"""Which of a lesson's cells a slide shows, and what its speaker says.

An author may say so, by the type that Jupyter gives cells on slides:

* ``slide``, ``subslide``: begin a new slide with this cell; all of its text is shown.
* ``fragment``: show all of this cell on a click, on the slide that we're on.
* ``notes``: all of its text is for the speaker.
* ``skip``: neither shown nor said. (Code runs all the same in a live talk.)

``"show_code": false`` beside the type shows a code cell's output without the code.

Without a type, a heading begins a slide. Code, outputs, figures, tables and lists are
shown. Of the text, the first sentence above code is shown and, when the speaker goes
on, a question that comes before an output, the output, and the first sentence about it.
Everything that a paragraph says is in the notes. Cells that only import something and
set it up are left out, as is code that is folded in the notebook or only draws a
picture.
"""

import re
from dataclasses import dataclass, field

from nbformat import NotebookNode

from d2l_gpu.course.slides.cells import (
    FRAGMENT,
    NEW,
    NOTES,
    code_of,
    is_left_out,
    is_shown,
    is_stub,
    outputs_of,
    slide_type,
)
from d2l_gpu.course.slides.excerpts import (
    FEW_WORDS,
    SHORT,
    excerpt,
    first_of,
    question_of,
    whole,
)
from d2l_gpu.course.slides.packing import packed
from d2l_gpu.course.slides.parts import ROOM, Part, Slide
from d2l_gpu.course.slides.prose import (
    Block,
    blocks,
    is_question,
    joined,
    sentences,
    width,
    without_links,
)

EXERCISES = "exercises"
"""The id of the cell that comes before the exercises."""

_SHORT_LEAD = 200  # letters of a paragraph above code that's shown whole
# Beginnings of paragraphs that are about the code to come, not about an output.
_FORWARD = re.compile(
    r"(?:Now\b|Next\b|Let's|Let’s|Before you|Maintenant|Passons|Avant|Agora|Vamos|Antes"
    r"|现在|接下来|下面|运行|先)"
)
_SHOWN = ("list", "table", "figure", "formula", "code", "quote")


def slides_of(notebook: NotebookNode) -> list[Slide]:
    """Return the slides of a lesson."""
    cells = [cell for cell in notebook.cells if not is_left_out(cell)]
    ids = [cell.get("id", "") for cell in cells]
    end = ids.index(EXERCISES) if EXERCISES in ids else len(cells)
    lesson = _Lesson()
    for cell in cells[:end]:
        lesson.add(cell)
    lesson.finish()
    found = [*lesson.slides, *_exercises(cells[end + 1 :])]
    seen = set()
    for slide in found:
        slide.again = slide.title in seen
        seen.add(slide.title)
    return found


@dataclass
class _Lesson:
    """A lesson that's turned into slides, cell by cell.

    Attributes:
        slides: those so far.
        title: of the slides to come.
        waiting: the text that comes after the last code that's shown.
        first: whether the next slide is the first under its heading.
        after_output: whether that text comes after an output.
        whole: the text that an author wants to be shown as it is.
    """

    slides: list[Slide] = field(default_factory=list)
    title: str = ""
    waiting: list[Block] = field(default_factory=list)
    first: bool = True
    after_output: bool = False
    open: bool = False  # the last slide was begun by an author, and code may join it

    def add(self, cell: NotebookNode) -> None:
        """Take the next cell."""
        if cell.cell_type == "code":
            if is_shown(cell):
                self._add_code(cell)
            elif len(self.slides) == 1 and self.slides[0].opening:
                self._end_section()  # what makes us curious, before the setup
        elif cell.cell_type == "markdown":
            kind = slide_type(cell)
            its = list(blocks(cell.source))
            if kind in (*NEW, FRAGMENT):
                self._add_whole(kind, its)
            elif kind == NOTES:
                self._add_notes(its)
            else:
                for block in its:
                    self._add_block(block)

    def finish(self) -> None:
        """Show what's still waiting."""
        self._end_section()

    def _add_block(self, block: Block) -> None:
        if block.kind != "heading":
            self.waiting.append(block)
        elif not self.slides and not self.title:
            self.title = block.text.lstrip("# ")
            self.slides.append(Slide(self.title, first=True, opening=True))
        else:
            self._end_section()
            self._begin(block)

    def _begin(self, heading: Block) -> None:
        self.title, self.first, self.open = heading.text.lstrip("# "), True, False
        self.after_output = False

    # ------------------------------------------------------- what an author chose

    def _add_whole(self, kind: str, its: list[Block]) -> None:
        """Show all of a cell's text, on a new slide or on this one."""
        headings = [block for block in its if block.kind == "heading"]
        its = [block for block in its if block.kind != "heading"]
        if headings and not self.slides:
            self._add_block(headings[0])
        elif headings:
            self._end_section()
            self._begin(headings[0])
        else:
            self._settle()
        click = kind == FRAGMENT
        parts = [whole(block) for block in its]
        for part in parts:
            part.click = click
        room = self.slides[-1].left if self.slides else 0
        if click and sum(part.height for part in parts) <= room:
            self.slides[-1].notes += [part.said for part in parts if part.said]
            self.slides[-1].parts += parts
        else:
            self._show(parts, [])
        self.open = True

    def _add_notes(self, its: list[Block]) -> None:
        for block in its:
            if block.kind == "heading":
                self._add_block(block)
        said = [block.text for block in its if block.kind not in ("heading", "figure")]
        self._settle()
        if self.slides:
            self.slides[-1].notes += said

    def _settle(self) -> None:
        """Show the text that's waiting, as what an output or a heading is about."""
        if self.waiting:
            self._comment(self.waiting) if self.after_output else self._tell(
                self.waiting
            )
            self.waiting, self.after_output = [], False

    # ------------------------------------------------------------------- rules

    def _end_section(self) -> None:
        """Show the text before a heading, or at the end."""
        if len(self.slides) == 1 and self.slides[0].opening:
            self._open_talk()
        self._settle()

    def _open_talk(self) -> None:
        """Put what the lesson is for below its title."""
        opening = self.slides[0]
        if self.waiting and self.waiting[0].text.startswith("*") and not opening.parts:
            aims = self.waiting.pop(0).text.strip("*")
            opening.parts.append(Part("text", without_links(aims)))

    def _tell(self, its: list[Block]) -> None:
        """Show text that no code follows: the beginning of each paragraph."""
        self._show([excerpt(block) for block in its], [])

    def _comment(self, its: list[Block]) -> None:
        """Say below an output what it shows."""
        paragraphs = [block for block in its if block.kind == "paragraph"]
        slide = self.slides[-1]
        if paragraphs and its[0] is paragraphs[0]:
            _conclude(slide, paragraphs[0].text)
        slide.notes += [block.text for block in paragraphs]
        more = [block for block in its if block.kind in _SHOWN]
        if more:
            self._tell(more)

    def _show(self, parts: list[Part], notes: list[str]) -> None:
        """Put parts on as many new slides as they need."""
        new = packed(self.title, parts, notes)
        if new:
            new[0].first = self.first
            self.first = False
        self.slides += new

    def _add_code(self, cell: NotebookNode) -> None:
        if len(self.slides) == 1 and self.slides[0].opening:
            self._open_talk()
        lead, notes = self._before_code()
        question = [part for part in lead if part.kind == "question"]
        lead = [part for part in lead if part.kind != "question"]
        parts = [*lead]
        if code := code_of(cell):
            parts.append(Part("code", code, cell))
        if lead and sum(part.height for part in parts) > ROOM:
            lead[0].text = first_of(lead[0].text)
        output = []
        if outputs := list(outputs_of(cell)):
            shown = NotebookNode(cell, outputs=outputs)
            click = bool(question) or slide_type(cell) == FRAGMENT
            output = [Part("output", cell=shown, click=click)]
        parts += [*question, *output]
        joins = self._is_open() and slide_type(cell) not in NEW and not lead
        room = self.slides[-1].left if self.slides else 0
        if joins and sum(part.height for part in parts) <= room:
            self.slides[-1].parts += parts
            self.slides[-1].notes += notes
        else:
            self._show(parts, notes)
        self.open, self.after_output = slide_type(cell) in NEW, bool(outputs)
        if outputs:
            self.open = False

    def _is_open(self) -> bool:
        """Return whether code without a text of its own may join the last slide."""
        last = self.slides[-1] if self.slides else None
        defines = bool(last and last.parts) and last.parts[-1].kind == "code"
        return self.open or (defines and not self.first)

    def _before_code(self) -> tuple[list[Part], list[str]]:
        """Return what to show of the text between this code and the last, and notes.

        What isn't about this code is shown on a slide before it.
        """
        its, self.waiting = self.waiting, []
        if not its:
            return [], []
        last = its.pop() if its[-1].kind == "paragraph" else None
        if self.after_output and last and not its and not _FORWARD.match(last.text):
            return self._between_outputs(last)
        if self.after_output and its:
            self._comment(its)
        elif its:
            self._tell(its)
        if last is None:
            return [], []
        said = sentences(without_links(last.text))
        asked = question_of(said)
        shown = asked[0].text if asked else ""
        many = 2 if width(said[0]) < FEW_WORDS or is_question(said[0]) else 1
        if width(last.text) <= _SHORT_LEAD:
            many = len(said)
        first = joined(each for each in said[:many] if each not in shown)
        lead = [Part("lead", first)] if first else []
        return [*lead, *asked], [last.text]

    def _between_outputs(self, block: Block) -> tuple[list[Part], list[str]]:
        """Divide a paragraph between an output and the next code."""
        said = sentences(without_links(block.text))
        told = [each for each in said if not is_question(each)]
        asked = question_of(said)
        slide = self.slides[-1]
        if len(told) < 2 and not asked:
            return [Part("lead", each) for each in told], [block.text]
        if not told:
            return asked, [block.text]
        _conclude(slide, block.text)
        slide.notes.append(block.text)
        shown = asked[0].text if asked else ""
        rest = told[2 if width(told[0]) < FEW_WORDS else 1 :]
        rest = [each for each in rest if each not in shown]
        last = joined(rest[-2:])
        if width(last) > SHORT:
            last = joined(rest[-1:])
        lead = [Part("lead", last)] if last else []
        return [*lead, *asked], [block.text]


def _conclude(slide: Slide, paragraph: str) -> None:
    """Show the first sentence about an output below it, or beside a tall picture."""
    part = Part("takeaway", first_of(paragraph), click=True)
    slide.parts.append(part)
    if not slide.put_beside() and slide.left < 0:
        slide.parts.remove(part)


def _exercises(cells: list[NotebookNode]) -> list[Slide]:
    """Return the slides of the exercises: the tasks, without the empty functions."""
    found: list[Slide] = []
    for title, parts in _tasks(cells):
        new = packed(title, parts, [])
        for slide in new[:1]:
            slide.first = True
        found += new
    return found


def _tasks(cells: list[NotebookNode]) -> list[tuple[str, list[Part]]]:
    """Return the title of each exercise with what belongs to its task."""
    tasks: list[tuple[str, list[Part]]] = []
    for cell in cells:
        if cell.cell_type == "markdown":
            for block in blocks(cell.source):
                if block.kind == "heading":
                    tasks.append((block.text.lstrip("# "), []))
                elif tasks:
                    task = whole(block)
                    task.said = ""
                    tasks[-1][1].append(task)
        elif tasks and _is_given(cell):
            tasks[-1][1].append(Part("code", cell.source.strip("\n"), cell))
            if outputs := list(outputs_of(cell)):
                shown = NotebookNode(cell, outputs=outputs)
                tasks[-1][1].append(Part("output", cell=shown))
    return tasks


def _is_given(cell: NotebookNode) -> bool:
    """Return whether a cell has code that an exercise is about."""
    return cell.cell_type == "code" and is_shown(cell) and not is_stub(cell)
