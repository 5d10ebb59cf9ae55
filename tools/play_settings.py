"""Print what the playground says of some settings, a line of JSON for each.

    python -m tools.play_settings
    node tools/pyodide/run_program.mjs . tools/play_settings.py

Both print the same, to the last digit: a browser simulates what Python does. Pictures
are left out, since places in them are sums of floats, which Python rounds otherwise
from 3.12 on. With ``--seconds``, lines say instead how long this Python took, the first
time and after a change of the setting.
"""

import argparse
import json
from collections.abc import Iterator
from time import perf_counter

from d2l_gpu.vgpu.sim.play import choices, play, scaling

# Beside the default of each model.
SETTINGS = (
    {"model": "LeNet", "gpu": "H100", "gpus": 8, "precision": "bf16"},
    {"model": "ResNet-18", "gpus": 1},
    {"model": "ResNet-18", "nodes": 2, "gpus": 8, "algorithm": "Tree"},
    {"model": "ResNet-18", "gpus": 16, "link": "PCIe3", "batch": 64},
    {"model": "ResNet-50", "gpu": "A100", "precision": "tf32", "batch": 512},
    {"model": "ResNet-50", "nodes": 8, "gpus": 8, "network": "RoCE 100"},
    {"model": "ResNet-50", "precision": "fp16", "batch": 256},
    {"model": "GPT-2 124M", "gpu": "L4", "gpus": 4, "checkpoint": "full"},
    {"model": "Llama 3.1 8B", "pipeline": 2, "tensor": 2, "batch": 8}
    | {"microbatches": 4, "zero": 1},
    {"model": "Llama 3.1 70B", "nodes": 32, "pipeline": 8, "tensor": 4, "batch": 16}
    | {"microbatches": 16, "schedule": "interleaved", "stages": 2, "zero": 1},
)


def settings() -> list[dict]:
    return [about["default"] for about in choices()["models"]] + list(SETTINGS)


def results() -> Iterator[dict]:
    for setting in settings():
        found, rates = play(setting), scaling(setting)
        del found["timeline"], found["memory_picture"]
        yield found | {"scaling": rates}


def durations() -> Iterator[dict]:
    for setting in settings():
        changed = setting | {"gpu": "A100 80GB"}
        changed |= {"link": "NVLink3"} if setting.get("link") is None else {}
        for name, each in (("first", setting), ("change", changed)):
            begin = perf_counter()
            play(each)
            middle = perf_counter()
            scaling(each)
            end = perf_counter()
            yield {
                "model": each["model"],
                "what": name,
                "play": round(middle - begin, 3),
                "scaling": round(end - middle, 3),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", action="store_true", help="how long it takes")
    options = parser.parse_args()
    for line in durations() if options.seconds else results():
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
