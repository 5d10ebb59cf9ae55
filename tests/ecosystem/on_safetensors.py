"""safetensors: files of tensors that are read straight onto a device."""

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model
from torch import nn

from tests.ecosystem.support import close, folder, main, mlp, same_parameters

NEEDS = ("safetensors",)
SHORT = ("tensors_go_to_a_file_and_back",)


def check_tensors_go_to_a_file_and_back():
    """Tensors of GPUs are saved, and loaded onto the device that is asked for."""
    tensors = {
        "float": torch.arange(6.0, device="cuda:0").reshape(2, 3),
        "half": torch.ones(3, dtype=torch.bfloat16, device="cuda:1"),
        "whole": torch.arange(4, device="cuda:0"),
        "empty": torch.empty(0, 2, device="cuda:0"),
    }
    with folder() as path:
        save_file(tensors, path / "tensors.safetensors", metadata={"format": "pt"})
        for device, name in (
            ("cuda:1", "cuda:1"),
            (1, "cuda:1"),
            ("cuda", "cuda:0"),
            ("cpu", "cpu"),
        ):
            loaded = load_file(path / "tensors.safetensors", device=device)
            assert set(loaded) == set(tensors)
            for key, value in tensors.items():
                close(loaded[key], value, name)
        with safe_open(path / "tensors.safetensors", "pt", device=0) as file:
            assert file.metadata() == {"format": "pt"}
            close(file.get_tensor("whole"), torch.arange(4), "cuda:0")
            part = file.get_slice("float")[:, 1:]
            close(part, torch.tensor([[1.0, 2.0], [4.0, 5.0]]), "cuda:0")
    for key, value in load(save(tensors)).items():
        close(value, tensors[key], "cpu")


def check_models_with_shared_tensors():
    """A model on a GPU with tied weights is saved once, and loaded on another GPU."""
    model = mlp()
    model.append(nn.Linear(4, 4))
    model.append(nn.Linear(4, 4))
    model[-1].weight = model[-2].weight
    model = model.to("cuda:0")
    assert model[-1].weight is model[-2].weight
    with folder() as path:
        save_model(model, str(path / "model.safetensors"))
        assert len(load_file(path / "model.safetensors")) == 7
        again = mlp()
        again.append(nn.Linear(4, 4))
        again.append(nn.Linear(4, 4))
        again[-1].weight = again[-2].weight
        again = again.to("cuda:1")
        missing, unexpected = load_model(again, str(path / "model.safetensors"))
    assert not unexpected, (missing, unexpected)
    same_parameters(again, model, "cuda:1")


if __name__ == "__main__":
    main(globals())
