"""The notebooks to build, and their cells.

Each is a lesson, or the solutions to its exercises, in one language for one framework.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePath

from nbformat.reader import NotJSONError

from d2l_gpu.common.frameworks import FRAMEWORKS, Framework
from d2l_gpu.common.frameworks import framework as framework_with
from d2l_gpu.common.messages import is_telling
from d2l_gpu.course import lesson_names, select_lessons
from d2l_gpu.quizzes.quiz import quiz_file
from tools import course_map, drawings, glossary_page
from tools import messages as messages_of_code
from tools.equivalents import with_table
from tools.form import Form
from tools.glossary_page import Terms
from tools.header import (
    INTRODUCTION,
    MARK,
    QUIZ,
    REPORT,
    SOURCE,
    TITLE,
    Header,
    on_github,
    solutions_of,
)
from tools.languages import ENGLISH, LOCALE, Language, read_languages
from tools.lesson import (
    LESSONS,
    SETUP,
    SOLUTION,
    STUB,
    Cell,
    Lesson,
    LessonError,
    aims_and_minutes,
    read_lesson,
    split_exercises,
    template,
)
from tools.notebook import read_notebook
from tools.quizzes import Source as Quiz
from tools.translation import (
    Message,
    Translation,
    messages,
    place_of,
    texts_of,
    translations_in,
)

ROOT = Path(__file__).resolve().parents[1]

README = "readme.md"


@dataclass(frozen=True)
class Project:
    """A folder that contains ``lessons`` and ``notebooks``.

    Attributes:
        root: the folder.
    """

    root: Path

    @property
    def lessons(self) -> Path:
        """The folder of the sources."""
        return self.root / LESSONS

    @property
    def frameworks(self) -> tuple[Framework, ...]:
        """The frameworks that it may have lessons for."""
        return FRAMEWORKS

    @cached_property
    def header(self) -> Lesson | None:
        """The template of the cells that all notebooks share, in English.

        Raises:
            LessonError: the file can't be parsed.
        """
        return self._template(SOURCE)

    def header_in(self, language: str) -> Lesson | None:
        """The header in a language, without notices; English where untranslated.

        Raises:
            LessonError: a source can't be parsed.
        """
        if self.header is None or language not in self.translations:
            return self.header
        return self.translations[language].translated(self.header, None)

    @cached_property
    def readme(self) -> Lesson | None:
        """The template of the READMEs in other languages, in English.

        Raises:
            LessonError: the file can't be parsed.
        """
        return self._template(README)

    @cached_property
    def glossary(self) -> Terms | None:
        """The terms that lessons introduce, with their definitions in English.

        Raises:
            LessonError: the file can't be parsed.
        """
        path = self.lessons / glossary_page.SOURCE
        return Terms.read(path) if path.is_file() else None

    @cached_property
    def form(self) -> Form:
        """The form that lessons must have.

        Raises:
            LessonError: the file can't be parsed.
        """
        return Form.of(self.lessons)

    def _template(self, name: str) -> Lesson | None:
        path = self.lessons / name
        return template(path) if path.is_file() else None

    @cached_property
    def languages(self) -> dict[str, Language]:
        """The languages by code, English first.

        Raises:
            ValueError: the list of languages can't be parsed.
        """
        return read_languages(self.lessons)

    @cached_property
    def _read(self) -> dict[Path, Lesson]:
        """A cache of parsed lessons: the READMEs read all of them again."""
        return {}

    @cached_property
    def _quizzes(self) -> dict[Path, Quiz | None]:
        """A cache of parsed quizzes by the lesson's path."""
        return {}

    @cached_property
    def translations(self) -> dict[str, Translation]:
        """The translations by language code; English has none.

        Raises:
            LessonError: all problems of the sources.
            ValueError: the list of languages can't be parsed.
        """
        if len(self.languages) == 1:
            return {}
        folder = self.lessons / LOCALE
        return translations_in(folder, list(self.languages.values()), self.messages())

    @cached_property
    def catalogues(self) -> dict[str, Translation]:
        """The translations of what code says, by language code; English has none.

        Raises:
            LessonError: all problems of the sources.
            ValueError: a list of languages or of sources can't be parsed.
        """
        if len(self.languages) == 1:
            return {}
        folder = self.lessons / LOCALE / messages_of_code.FOLDER
        wanted = self.messages_of_code()
        return translations_in(folder, list(self.languages.values()), wanted)

    def translations_into(self, names: Sequence[str] = ()) -> list[Translation]:
        """Return the translations into some languages, given by code; by default all.

        Raises:
            LessonError: there is no translation into one of them.
        """
        for name in names:
            if name not in self.translations:
                raise LessonError(
                    f"there is no translation into {name!r}; the languages are: "
                    + ", ".join(self.languages)
                )
        return [self.translations[name] for name in names or self.translations]

    @cached_property
    def sources(self) -> dict[str, dict[Framework, Path]]:
        """The sources by lesson name and framework.

        Raises:
            LessonError: a folder of lessons belongs to no known framework.
        """
        by_tag = {each.tag: each for each in self.frameworks}
        found: dict[str, dict[Framework, Path]] = {}
        for folder in sorted(each for each in self.lessons.glob("*") if each.is_dir()):
            names = lesson_names(folder, ".md")
            if names and folder.name not in by_tag:
                raise LessonError(
                    f"{folder.name}/{names[0]}.md: there is no framework "
                    f"{folder.name!r}; the frameworks are: {', '.join(by_tag)}"
                )
            for name in names:
                path = folder / f"{name}.md"
                found.setdefault(name, {})[by_tag[folder.name]] = path
        order = {each: place for place, each in enumerate(self.frameworks)}
        return {
            name: {
                each: found[name][each] for each in sorted(found[name], key=order.get)
            }
            for name in sorted(found)
        }

    def read(self, names: Sequence[str] = ()) -> list[Lesson]:
        """Return English lessons, in order; each one for all frameworks in turn.

        Args:
            names: as for `d2l_gpu.course.select_lessons`, optionally restricted to one
                framework by its tag, as in ``jax/03``; empty for all lessons.

        Raises:
            LessonError: all problems of their sources.
            ValueError: there is no such lesson.
        """
        paths = dict.fromkeys(self._paths(names))
        ordered = [
            path
            for of_lesson in self.sources.values()
            for path in of_lesson.values()
            if path in paths
        ]
        found, problems = [], []
        for path in ordered:
            try:
                if path not in self._read:
                    self._read[path] = read_lesson(path)
                found.append(self._read[path])
            except LessonError as error:
                problems.append(str(error))
        if problems:
            raise LessonError("\n".join(problems))
        return found

    def _paths(self, names: Sequence[str]) -> Iterator[Path]:
        tags = {each.tag for each in self.frameworks}
        for name in names or self.sources:
            tag = PurePath(name).parent.name
            known = [
                lesson
                for lesson, of_lesson in self.sources.items()
                if tag not in tags or any(each.tag == tag for each in of_lesson)
            ]
            for lesson in select_lessons([name], known):
                for its, path in self.sources[lesson].items():
                    if tag not in tags or its.tag == tag:
                        yield path

    def beside(self, lesson: Lesson) -> dict[Framework, Lesson]:
        """Return all frameworks' versions of a lesson, in order."""
        read = self.read([lesson.name])
        return dict(zip(self.sources[lesson.name], read, strict=True))

    def messages(self) -> list[Message]:
        """Return all messages to translate.

        Raises:
            LessonError: all problems of the sources.
        """
        glossary = self.glossary and self.glossary.as_lesson()
        common = [self.header, self.readme, glossary]
        lessons = []
        for lesson in self.read():
            quiz = self.quiz(lesson)
            lessons += [lesson] if quiz is None else [lesson, quiz.as_lesson()]
        return messages([*filter(None, common), *lessons])

    @cached_property
    def sources_of_texts(self) -> messages_of_code.Sources:
        """Where texts in code arise that readers see.

        Raises:
            ValueError: the list can't be parsed.
        """
        path = self.lessons / LOCALE / messages_of_code.SOURCES
        return messages_of_code.Sources.read(path)

    def messages_of_code(self) -> list[Message]:
        """Return the texts in code and drawings that readers see, to be translated.

        Raises:
            LessonError: all problems of the sources.
            ValueError: the list of sources can't be parsed.
        """
        found = list(self.sources_of_texts.messages(self.root))
        for lesson in self.read():
            tag = lesson.path.parent.name
            path = self.root / "notebooks" / ENGLISH / tag / f"{lesson.name}.ipynb"
            there = filter(None, map(read_notebook, (path, solutions_of(path))))
            found += messages_of_code.of_lesson(lesson, there)
        return messages_of_code.merged([*found, *drawings.messages_in(self.lessons)])

    def quiz(self, lesson: Lesson) -> Quiz | None:
        """Return the quiz of a lesson; None if it has none.

        Raises:
            LessonError: the quiz can't be parsed.
        """
        if lesson.path not in self._quizzes:
            self._quizzes[lesson.path] = Quiz.of(lesson)
        return self._quizzes[lesson.path]


@dataclass(frozen=True)
class Edition:
    """One notebook to build: a lesson in one language, or its solutions.

    Attributes:
        project: the project.
        lesson: the lesson in English.
        language: the language's code, such as ``en``.
        framework: the lesson's framework.
        solutions: whether this is the notebook with the solutions.
    """

    project: Project
    lesson: Lesson
    language: str
    framework: Framework
    solutions: bool = False

    @property
    def path(self) -> Path:
        return self.path_in(self.language)

    def path_in(self, language: str) -> Path:
        """Return the path of this notebook in another language."""
        folder = self.project.root / "notebooks" / language / self.framework.tag
        path = folder / f"{self.lesson.name}.ipynb"
        return solutions_of(path) if self.solutions else path

    @property
    def label(self) -> str:
        return self.path.relative_to(self.project.root).as_posix()

    @property
    def title(self) -> str:
        """The lesson's title, in this edition's language."""
        first = self._translated.cells[0]
        return first.source.partition("\n")[0].lstrip("# ")

    def quiz(self) -> dict[Path, str]:
        """Return the content of the lesson's quiz, by path.

        Empty if there is none, or none in this language, and for solutions.

        Raises:
            LessonError: the quiz can't be parsed.
        """
        source = None if self.solutions else self.project.quiz(self.lesson)
        text = source and source.built(self.title, self._translation)
        return {quiz_file(self.path.parent, self.lesson.name): text} if text else {}

    @cached_property
    def _translation(self) -> Translation | None:
        return self.project.translations.get(self.language)

    @cached_property
    def _translated(self) -> Lesson:
        """The lesson in this edition's language; English where it isn't translated."""
        if self._translation is None:
            return self.lesson
        return self._translation.translated(self.lesson, self.project.header)

    def drawing(self, content: str) -> str:
        """Return a drawing in this edition's language, given as the content of an SVG.

        Texts that aren't translated are English.
        """
        catalogue = self.project.catalogues.get(self.language)
        if catalogue is None:
            return content
        return drawings.translated(content, catalogue.of_text)

    @cached_property
    def speaks(self) -> bool:
        """Whether its outputs are in its own language, and not in English.

        They are once all texts are translated that the English notebook puts out.
        """
        catalogue = self.project.catalogues.get(self.language)
        try:
            english = read_notebook(self.path_in(ENGLISH))
        except NotJSONError:  # such as after a merge conflict
            return False
        if catalogue is None or english is None:
            return False
        place = place_of(self.lesson)
        wanted = [x.text for x in catalogue.wanted if place in x.places]
        if not wanted or any(map(catalogue.problem, wanted)):
            return False
        outputs = list(messages_of_code.outputs_of(english))
        missing = (x.text for x in catalogue.wanted if catalogue.problem(x.text))
        return not any(
            messages_of_code.is_put_out(text, outputs)
            for text in missing
            if text.count(" ") > 1 and is_telling(text)
        )

    @cached_property
    def _lessons(self) -> Mapping[Framework, Lesson]:
        return self.project.beside(self.lesson)

    def cells(self) -> list[Cell]:
        """Return the notebook's cells, including those that all notebooks share.

        Raises:
            LessonError: the lesson uses a key of the header, or a source is wrong.
            ValueError: the translation can't be parsed.
        """
        lesson, header = self._translated, self.project.header
        if self._translation is not None and header is not None:
            header = self._translation.translated(header, header)
        title, *body = self._filled_in(with_table(lesson.cells, self._lessons))
        body, exercises = split_exercises(body)
        if self.solutions:
            body = [cell for cell in body if SETUP in cell.tags]
        other = STUB if self.solutions else SOLUTION
        exercises = [cell for cell in exercises if other not in cell.tags]
        shown = [*body, *exercises] if self.solutions else [title, *body, *exercises]
        common = Header(
            header,
            self.path.relative_to(self.project.root),
            self.framework,
            [each for each in self._lessons if each != self.framework],
            self.title,
            {code: each.name for code, each in self.project.languages.items()},
            self._share(shown),
            self.speaks,
        )
        if self.solutions:
            marked = _marked(exercises, common.cell(MARK))
            cells = [*common.cell(TITLE), *common.cells(), *body, *marked]
        else:
            quiz = common.cell(QUIZ) if self.project.quiz(self.lesson) else []
            introduction = common.cell(INTRODUCTION) if exercises else []
            cells = [title, *common.cells(), *body, *quiz, *introduction, *exercises]
        cells += common.cell(REPORT)
        keys = [cell.id for cell in cells]
        if taken := {key for key in keys if keys.count(key) > 1}:
            raise LessonError(
                f"{self.lesson.label}: the header already uses the keys "
                f"{', '.join(sorted(taken))}; choose others"
            )
        return cells

    def _filled_in(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return a lesson's cells with what stands for other parts of the course."""
        makers = {course_map.PLACE: self._map, glossary_page.PLACE: self._glossary}
        found = []
        for cell in cells:
            for place, make in makers.items():
                if cell.kind == "markdown" and place in cell.source:
                    cell = replace(cell, source=cell.source.replace(place, make()))
            found.append(cell)
        return found

    def _map(self) -> str:
        """Return the table of all lessons of this edition."""
        rows = {}
        tag = self.framework.tag
        for each in editions(self.project, language=self.language, framework=tag):
            if not each.solutions:
                number = each.lesson.name.partition("_")[0]
                link = on_github(each.path.relative_to(self.project.root))
                says = aims_and_minutes(each.lesson.prose) or ("", "")
                rows[each.lesson.name] = (number, f"[{each.title}]({link})", says[1])
        return course_map.course_map(rows, self.project.header_in(self.language))

    def _glossary(self) -> str:
        """Return the address of the glossary in this edition's language."""
        page = glossary_page.page_of(self.project.root, self.language)
        return on_github(page.relative_to(self.project.root))

    def _share(self, cells: Sequence[Cell]) -> int:
        """Return the percentage of these cells' paragraphs that are translated."""
        if self._translation is None:
            return 100
        ids = {cell.id for cell in cells}
        shown = [cell for cell in self.lesson.cells if cell.id in ids]
        place = place_of(self.lesson)
        texts = dict.fromkeys(text for _, text in texts_of(shown))
        return self._translation.share(list(texts), place)


def _marked(exercises: Sequence[Cell], marks: Sequence[Cell]) -> list[Cell]:
    """Return the cells of the exercises, with a mark where each solution begins.

    Args:
        exercises: the exercises and their solutions.
        marks: the cell with the mark; empty for none.
    """
    marked, in_solution = [], False
    for cell in exercises:
        begins = SOLUTION in cell.tags and not in_solution
        in_solution = SOLUTION in cell.tags
        if begins and cell.kind == "markdown":
            for mark in marks:
                cell = replace(cell, source=f"{mark.source}\n\n{cell.source}")
        marked.append(cell)
    return marked


def editions(
    project: Project,
    lessons: Sequence[str] = (),
    language: str | None = None,
    framework: str | None = None,
) -> list[Edition]:
    """Return the notebooks to build for a project.

    Args:
        project: the project.
        lessons: names as for `Project.read`; empty for all.
        language: such as ``fr``; None for all, English first.
        framework: a framework's tag; None for all.

    Raises:
        LessonError: all problems of the sources, or there is nothing to build.
        ValueError: there is no such lesson or framework.
    """
    if language not in (None, ENGLISH):
        project.translations_into([language])  # raises if unknown
    if framework is not None:
        framework_with(framework, project.frameworks)  # raises if unknown
    read = project.read(lessons)
    by_tag = {each.tag: each for each in project.frameworks}
    found = []
    for each in project.languages if language is None else [language]:
        for lesson in read:
            if framework not in (None, lesson.framework):
                continue
            its = by_tag[lesson.framework]
            found.append(Edition(project, lesson, each, its))
            if lesson.has_solutions:
                found.append(Edition(project, lesson, each, its, True))
    if not found:
        wanted = f"{framework} lessons" if framework else "lessons"
        raise LessonError(f"there are no {wanted} in {project.lessons}")
    return found
