"""Answers to what a page asks, as HTML: the same in the browser and in the build."""

import json
from collections.abc import Callable, Mapping

from d2l_gpu.common.messages import Catalogue
from d2l_gpu.vgpu.sim import play, puzzle
from d2l_gpu.vgpu.sim.plans import Plan
from d2l_gpu.vgpu.sim.words import shown, translate_with

from . import curve, show

MOST = 16
"""GPUs that a curve reaches in any case."""


def counts(gpus: int) -> list[int]:
    """Return with how many GPUs a curve is drawn, for a setting that has some."""
    most = max(MOST, gpus)
    return sorted({2**n for n in range(most.bit_length())} | {gpus})[-7:]


def speak(messages: Mapping[str, str]) -> None:
    """Have the simulator speak a language from now on.

    Args:
        messages: translations of what it says, by the English texts.
    """
    translate_with(Catalogue(messages).shown)


class Live:
    """Answers to the questions of the pages.

    Args:
        words: the texts of the pages in one language.
    """

    def __init__(self, words: Mapping[str, str]):
        self._show = show.Show(words)
        self._asked: dict[str, Callable[..., dict]] = {
            "play": self.play,
            "scaling": self.scaling,
            "score": self.score,
        }

    def answer(self, question: str) -> str:
        """Answer a question; both are JSON.

        A question is an object whose ``ask`` says which method answers; everything
        else in it is an argument. If the arguments make no sense, the answer has only
        a ``problem``, a sentence.
        """
        arguments = json.loads(question)
        try:
            found = self._asked[arguments.pop("ask")](**arguments)
        except (TypeError, ValueError) as error:
            found = {"problem": shown(str(error))}
        return json.dumps(found)

    def play(self, setting: dict) -> dict:
        """Return the result of a step: HTML by the name of the part of the page.

        Raises:
            TypeError, ValueError: the setting makes no sense.
        """
        result = play.play(setting)
        return {
            "parts": self._show.result(result),
            "say": self._show.sentence(result),
            "setting": result["setting"],
            "picoseconds": result["picoseconds"],
        }

    def scaling(self, setting: dict, first: int | None = None) -> dict:
        """Return how a complete setting scales, likewise.

        Args:
            first: simulate only so many points of the curve, which are remembered, so
                that a page can ask something else in between. While points are
                missing, the answer has no ``parts``.

        Raises:
            TypeError, ValueError: the setting makes no sense.
        """
        every = counts(setting["nodes"] * setting["gpus"])
        rows = play.scaling(setting, every[:first])
        if first is not None and first < len(every):
            return {"rows": rows}
        unit = shown(self._show.unit(setting["model"]))
        # With more replicas, shards needn't shrink; images have no shards at all.
        sharded = setting.get("replicas") == 1
        return {
            "parts": {"scaling": curve.figure(rows, unit, self._show.words, sharded)},
            "rows": rows,
        }

    def score(self, level: str, plan: dict) -> dict:
        """Return the score of a plan in a level of the puzzle, likewise.

        Raises:
            TypeError, ValueError: there's no such level or plan, or it breaks the
                rules.
        """
        score = puzzle.level(level).score(Plan(**plan))
        return {
            "parts": self._show.score(score),
            "say": f"{self._show.verdict(score)} {self._show.scored(score)}",
            "share": score.share,
            "percent": score.percent(),
        }
