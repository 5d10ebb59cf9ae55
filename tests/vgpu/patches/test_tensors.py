"""Methods of tensors that C++ implements without asking the backend."""

import pytest
import torch
from torch import nn

PLACES = ["cpu", "vgpu:0", "vgpu:1"]


@pytest.mark.virtual_gpus(2)
@pytest.mark.parametrize("after", PLACES)
@pytest.mark.parametrize("before", PLACES)
@pytest.mark.parametrize("trainable", [True, False])
def test_a_parameter_whose_data_move_stays_the_same_object(before, after, trainable):
    parameter = nn.Parameter(torch.arange(3.0, device=before), trainable)
    parameter.note = "kept"
    if trainable:
        parameter.grad = torch.ones(3, device=before)
    for place in (after, before, after):
        parameter.data = parameter.data.to(place)
        assert isinstance(parameter, nn.Parameter)
        assert parameter.device == torch.device(place)
        assert parameter.requires_grad is trainable
        assert parameter.tolist() == [0, 1, 2]
        assert parameter.note == "kept"
        assert (parameter.grad is not None) is trainable


@pytest.mark.virtual_gpus(2)
def test_a_module_keeps_what_a_program_has_noted_on_its_parameters():
    net = nn.Linear(2, 2)
    net.weight.note = "kept"
    for place in PLACES[1:] + PLACES:
        net.to(place)
        assert net.weight.note == "kept"


@pytest.mark.virtual_gpus(2)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_tensor_is_moved_to_where_another_one_is(mode):
    with mode():
        for here in PLACES:
            for there in PLACES:
                X = torch.arange(3, device=here)
                other = torch.ones(1, device=there, dtype=torch.float64)
                for moved in (X.to(other), X.type_as(other), X.to(there).double()):
                    assert (moved.device, moved.dtype) == (other.device, other.dtype)
                    assert (moved + other).tolist() == [1, 2, 3]


@pytest.mark.virtual_gpus(2)
@pytest.mark.parametrize("place", PLACES)
def test_a_parameter_is_made_by_the_type_of_another(place):
    for old in nn.Linear(2, 2).to("vgpu:1").parameters():
        data = torch.arange(3.0, device=place)
        for needed in (True, False):
            new = type(old)(data, requires_grad=needed, **old.__dict__)
            assert isinstance(new, nn.Parameter)
            assert (new.device, new.requires_grad) == (data.device, needed)
            assert new.data_ptr() == data.data_ptr()
        assert not isinstance(type(old)(data), nn.Parameter)
