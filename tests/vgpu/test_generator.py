"""``torch.Generator(device='vgpu')``."""

import copy
import pickle

import pytest
import torch

pytestmark = pytest.mark.virtual_gpus(2)


def test_a_generator_belongs_to_its_device():
    generator = torch.Generator(device="vgpu:1")
    assert generator.device == torch.device("vgpu", 1)
    assert isinstance(generator, torch.Generator)
    with torch.vgpu.device(1):
        assert torch.Generator("vgpu").device.index == 1
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.Generator("vgpu:2")


def test_other_generators_are_as_before():
    generator = torch.Generator()
    assert generator.device.type == "cpu"
    assert isinstance(generator, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    assert not isinstance(0, torch.Generator)


def test_it_draws_what_the_same_seed_draws_on_the_cpu():
    host = torch.Generator().manual_seed(3)
    generator = torch.Generator("vgpu:0").manual_seed(3)
    state = torch.get_rng_state()
    for draw in (
        lambda g, d: torch.randn(4, generator=g, device=d),
        lambda g, d: torch.randperm(9, generator=g, device=d),
        lambda g, d: torch.empty(3, device=d).uniform_(generator=g),
        lambda g, d: torch.bernoulli(torch.full((8,), 0.5, device=d), generator=g),
        lambda g, d: torch.multinomial(torch.ones(8, device=d), 3, generator=g),
    ):
        assert torch.equal(draw(generator, "vgpu:0").cpu(), draw(host, "cpu"))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "copied",
    [lambda g: g.clone_state(), lambda g: pickle.loads(pickle.dumps(g)), copy.copy],
)
def test_a_copy_goes_on_from_the_same_state(copied):
    generator = torch.Generator("vgpu:1").manual_seed(3)
    torch.rand(5, generator=generator, device="vgpu:1")
    other = copied(generator)
    assert other.device == generator.device
    expected = torch.rand(3, generator=generator, device="vgpu:1")
    assert torch.equal(torch.rand(3, generator=other, device="vgpu:1"), expected)


@pytest.mark.parametrize("index", [0, 1])
def test_the_default_generator_is_the_one_that_operators_draw_from(index):
    generators = torch.vgpu.default_generators
    device = torch.device("vgpu", index)
    assert len(generators) == 2 == len(list(generators))
    generator = generators[index]
    assert generator is generators[index - 2] and generator.device == device
    assert generator.manual_seed(7) is generator and generator.initial_seed() == 7
    expected = torch.rand(3, generator=torch.Generator().manual_seed(7)).tolist()
    state = generator.get_state()
    for draw in (
        lambda: torch.rand(3, device=device),
        lambda: torch.rand(3, device=device, generator=generator),
        lambda: torch.empty(3, device=device).uniform_(generator=generator),
    ):
        for _ in range(2):
            generator.set_state(state)
            assert draw().tolist() == expected
            assert not torch.equal(generator.get_state(), state)  # it has moved on
    assert generator.seed() == torch.initial_seed()


def test_there_are_as_many_default_generators_as_devices():
    with pytest.raises(IndexError):
        torch.vgpu.default_generators[2]
    devices = [g.device.index for g in torch.vgpu.default_generators[:]]
    assert devices == [0, 1]
