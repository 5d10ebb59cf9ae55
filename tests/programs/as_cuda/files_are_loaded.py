import torch

from tests.programs.as_cuda.start import raises, start

start()

import io


def saved(x, zipped=True):
    file = io.BytesIO()
    torch.save({"w": x, "n": [x * 2]}, file, _use_new_zipfile_serialization=zipped)
    return file


def loaded(file, rule=None, **more):
    file.seek(0)
    values = torch.load(file, rule, **more)
    assert values["w"].device == values["n"][0].device
    assert values["w"].tolist() == [1, 1] and values["n"][0].tolist() == [2, 2]
    return str(values["w"].device)


own = saved(torch.ones(2, device="cuda:1"))
# What a program wrote on a real GPU: storages tagged with its name.
torch.serialization.register_package(1, lambda storage: "cuda:1", lambda *_: None)
real, old = saved(torch.ones(2)), saved(torch.ones(2), zipped=False)
for file in (own, real, old):
    assert loaded(file) == "cuda:1"
    assert loaded(file, "cuda:0") == "cuda:0"
    assert loaded(file, torch.device("cuda")) == "cuda:0"
    assert loaded(file, "cpu") == "cpu"
    assert loaded(file, {"cuda:1": "cuda:0"}) == "cuda:0"
    assert loaded(file, {"cuda:1": "cpu"}) == "cpu"
    assert loaded(file, lambda storage, location: storage) == "cpu"
    assert loaded(file, lambda storage, location: storage.cuda(0)) == "cuda:0"
    assert loaded(file, lambda storage, location: None) == "cuda:1"
    assert loaded(file, "cuda:0", weights_only=False) == "cuda:0"
raises(RuntimeError, "CUDA device 7 but", lambda: loaded(own, "cuda:7"))
moved = torch.tensor([1.0, 2.0]).untyped_storage().cuda(1)
assert moved.device == torch.device("cuda:1")
assert torch.empty(0, device="cuda:1").set_(moved).tolist() == [1, 2]
