"""What a program did on a cluster: times, memory, and what they were spent on."""

from typing import TYPE_CHECKING

from .sim.clock import PICO
from .sim.units import time_text

if TYPE_CHECKING:
    from .cluster import Cluster, Recorded


class Run:
    def __init__(self, cluster: "Cluster", recorded: "dict[int, Recorded]", tokens):
        self.cluster, self.recorded, self.tokens = cluster, recorded, tokens

    @property
    def seconds(self) -> float:
        """Simulated seconds of the last step, or of everything if there was none."""
        steps = [each.steps for each in self.recorded.values()]
        if min(map(len, steps)) < 2:
            return max(each.clock.elapsed() for each in self.recorded.values())
        ends = [max(step[i].time for step in steps) for i in (-2, -1)]
        return (ends[1] - ends[0]) / PICO

    def __repr__(self) -> str:
        return f"{time_text(self.seconds)}"
