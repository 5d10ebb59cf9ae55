from dataclasses import replace

from d2l_gpu.exercises.judge import judge
from d2l_gpu.exercises.registry import of_lesson

there = of_lesson("pytorch", "03")
there["03.1"] = replace(there["03.1"], seconds=5.0)


def f(a, b, c, device):
    print("begins")
    while True:
        pass


print(judge("pytorch", "03.1", f))
