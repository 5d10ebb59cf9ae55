"""The words of the certificate in each language of the course."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Words:
    """What the page says.

    Attributes:
        tag: the language, as HTML names it.
        title: of the page.
        by: who solved the exercises; ``{name}`` is their name.
        exercises: how many are solved; ``{some}`` of ``{most}``.
        lessons: how many lessons are complete; ``{some}`` of ``{most}``.
        between: when; ``{first}`` and ``{last}`` are dates.
        lesson, solved, last: the heads of the columns.
        yes, no: what a square means, to those who don't see it.
        about: what the page is, and what it isn't.
        made: when the page was made and by which version.
        day: a date; ``{d}``, ``{month}``, ``{m}`` and ``{y}`` are its parts.
        months: their names, where `day` uses them.
    """

    tag: str
    title: str
    by: str
    exercises: str
    lessons: str
    between: str
    lesson: str
    solved: str
    last: str
    yes: str
    no: str
    about: str
    made: str
    day: str
    months: Sequence[str] = ()

    def date(self, iso: str) -> str:
        """Return a date such as ``2026-03-09`` as the language writes it."""
        day = date.fromisoformat(iso)
        month = self.months[day.month - 1] if self.months else ""
        d = "1er" if self.tag == "fr" and day.day == 1 else day.day
        return self.day.format(d=d, m=day.month, y=day.year, month=month)


_EN = Words(
    tag="en",
    title="GPUs for deep learning",
    by="Exercises solved by {name}",
    exercises="{some} of {most} exercises",
    lessons="{some} of {most} lessons complete",
    between="From {first} to {last}",
    lesson="Lesson",
    solved="Exercises",
    last="Last solved",
    yes="solved",
    no="not solved",
    about=(
        "Each of these answers passed the course’s checks on the reader’s own "
        "computer. This is a record that readers keep for themselves. Nobody "
        "supervised it, and it proves nothing."
    ),
    made="Made on {today} with d2l_gpu {version}.",
    day="{d} {month} {y}",
    months=(
        *("January", "February", "March", "April", "May", "June", "July", "August"),
        *("September", "October", "November", "December"),
    ),
)

_FR = Words(
    tag="fr",
    title="Les GPU pour l’apprentissage profond",
    by="Exercices résolus par {name}",
    exercises="{some} exercices sur {most}",
    lessons="{some} leçons complètes sur {most}",
    between="Du {first} au {last}",
    lesson="Leçon",
    solved="Exercices",
    last="Dernière réussite",
    yes="résolu",
    no="non résolu",
    about=(
        "Chacune de ces réponses a passé les vérifications du cours sur l’ordinateur "
        "de son auteur. C’est un relevé que l’on tient pour soi-même. Personne ne "
        "l’a contrôlé, et il n’a pas valeur de preuve."
    ),
    made="Établi le {today} avec d2l_gpu {version}.",
    day="{d} {month} {y}",
    months=(
        *("janvier", "février", "mars", "avril", "mai", "juin", "juillet", "août"),
        *("septembre", "octobre", "novembre", "décembre"),
    ),
)

_PT = Words(
    tag="pt-BR",
    title="GPUs para deep learning",
    by="Exercícios resolvidos por {name}",
    exercises="{some} de {most} exercícios",
    lessons="{some} de {most} lições completas",
    between="De {first} a {last}",
    lesson="Lição",
    solved="Exercícios",
    last="Último acerto",
    yes="resolvido",
    no="não resolvido",
    about=(
        "Cada uma destas respostas passou nas verificações do curso no computador de "
        "quem as escreveu. Este é um registro que cada pessoa mantém para si. Ninguém "
        "o supervisionou, e ele não prova nada."
    ),
    made="Feito em {today} com d2l_gpu {version}.",
    day="{d} de {month} de {y}",
    months=(
        *("janeiro", "fevereiro", "março", "abril", "maio", "junho", "julho"),
        *("agosto", "setembro", "outubro", "novembro", "dezembro"),
    ),
)

_ZH = Words(
    tag="zh-CN",
    title="深度学习中的 GPU",
    by="{name} 完成的练习",
    exercises="完成 {some} 道练习，共 {most} 道",
    lessons="完成 {some} 课，共 {most} 课",
    between="{first}至{last}",
    lesson="课程",
    solved="练习",
    last="最近完成",
    yes="已完成",
    no="未完成",
    about=(
        "以上答案都在读者自己的电脑上通过了本课程的检查。"
        "这是读者为自己保留的记录，没有人监督，不能作为证明。"
    ),
    made="由 d2l_gpu {version} 于 {today}生成。",
    day="{y}年{m}月{d}日",
)

WORDS = {"en": _EN, "fr": _FR, "pt": _PT, "zh": _ZH}
"""The words by language; what isn't here is shown in English."""
