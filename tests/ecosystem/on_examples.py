"""PyTorch's examples of distributed training (pytorch/examples), unmodified."""

import os
import runpy
import sys

from tests.ecosystem.support import folder, main, program, source

SOURCE = "examples"
NEEDS = ("torch", "torchvision")
LIMIT = 300


def distributed(name: str, *arguments: str, gpus: int = 2, ranks: int = 2) -> str:
    """Run an example in a folder of its own, and return what it prints."""
    path = source(SOURCE) / "distributed" / name
    with folder() as out:
        os.chdir(out)
        return program(path, *arguments, gpus=gpus, ranks=ranks)


def check_ddp():
    """distributed/ddp trains a step on each of two ranks."""
    text = distributed("ddp/example.py")
    assert text.count("training completed in rank") == 2, text


def check_the_tutorial_on_ddp():
    """distributed/ddp-tutorial-series: one GPU, two by spawn, two by torchrun."""
    text = distributed("ddp-tutorial-series/single_gpu.py", "2", "1", ranks=0)
    assert text.count("checkpoint saved") == 2, text
    text = distributed("ddp-tutorial-series/multigpu.py", "2", "1", ranks=0)
    assert "[GPU1] Epoch 1" in text, text
    text = distributed("ddp-tutorial-series/multigpu_torchrun.py", "2", "1")
    assert text.count("snapshot saved") == 2, text


def check_fsdp2_saves_and_goes_on():
    """distributed/FSDP2 shards a model, saves it, and a second run goes on from it."""
    for options in ([], ["--dcp-api"]):
        with folder() as out:
            os.chdir(out)
            path = source(SOURCE) / "distributed" / "FSDP2" / "example.py"
            for _ in range(2):
                program(path, *options, ranks=2)
            assert any((out / "checkpoints").rglob("*.pt")), options


def check_fsdp2_with_mixed_precision():
    """distributed/FSDP2 computes in bfloat16, and fetches parameters in advance."""
    distributed("FSDP2/example.py", "--mixed-precision", "--explicit-prefetching")


def check_tensor_parallelism():
    """distributed/tensor_parallelism splits layers, and their sequences, over ranks."""
    for name in ("tensor", "sequence"):
        text = distributed(f"tensor_parallelism/{name}_parallel_example.py")
        assert "training completed!" in text, text


def check_tensor_parallelism_with_fsdp():
    """tensor_parallelism with FSDP: four GPUs, of which pairs share a layer."""
    text = distributed("tensor_parallelism/fsdp_tp_example.py", gpus=4, ranks=4)
    assert "training successfully completed" in text, text


def check_imagenet_on_pictures_of_noise():
    """imagenet --dummy trains ResNet-18 by DataParallel; 16 pictures, not a million."""
    from torchvision import datasets

    kind, sizes = datasets.FakeData, []

    def few(size, *arguments):
        sizes.append(size)
        return kind(16, *arguments)

    datasets.FakeData = few
    with folder() as out:
        os.chdir(out)
        sys.argv = [
            "main.py",
            "--dummy",
            "-a",
            "resnet18",
            "-b",
            "8",
            "-j",
            "0",
            "--epochs",
            "1",
            "-p",
            "1",
        ]
        runpy.run_path(
            str(source(SOURCE) / "imagenet" / "main.py"), run_name="__main__"
        )
        assert (out / "checkpoint.pth.tar").exists()
    assert sizes == [1281167, 50000], sizes


if __name__ == "__main__":
    main(globals())
