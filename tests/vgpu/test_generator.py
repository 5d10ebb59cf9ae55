"""Random numbers: the generators of devices, and those that a program makes."""

import copy
import pickle

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from d2l_gpu import vgpu

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
    assert generator.seed() == generator.initial_seed()
    with torch.vgpu.device(device):
        assert torch.vgpu.initial_seed() == generator.initial_seed()
        assert torch.vgpu.seed() == torch.vgpu.initial_seed()


DRAWS = {
    "rand": lambda d: torch.rand(5, device=d),
    "randint": lambda d: torch.randint(99, (5,), device=d),
    "randperm": lambda d: torch.randperm(9, device=d),
    "rand_like": lambda d: torch.rand_like(torch.ones(5, device=d)),
    "normal_": lambda d: torch.empty(5, device=d).normal_(),
    "bernoulli": lambda d: torch.bernoulli(torch.full((9,), 0.5, device=d)),
    "multinomial": lambda d: torch.multinomial(torch.ones(9, device=d), 4),
    "complex": lambda d: torch.randn(3, dtype=torch.complex64, device=d),
    "dropout": lambda d: F.dropout(torch.ones(9, device=d)),
    "native_dropout": lambda d: torch.native_dropout(
        torch.ones(9, device=d), 0.5, True
    ),
    "of conjugates": lambda d: torch.native_dropout(
        torch.full((9,), 1 + 2j, device=d).conj(), 0.5, True
    ),
    "alpha_dropout": lambda d: F.alpha_dropout(torch.ones(9, device=d), 0.5, True),
    "dropout2d": lambda d: F.dropout2d(torch.ones(2, 9, 1, 1, device=d)),
    "rrelu": lambda d: F.rrelu(-torch.ones(9, device=d), training=True),
    "gumbel_softmax": lambda d: F.gumbel_softmax(torch.ones(9, device=d)),
    "attention": lambda d: F.scaled_dot_product_attention(
        *torch.ones(3, 1, 2, 4, 4, device=d), dropout_p=0.5
    ),
    "a distribution": lambda d: torch.distributions.Gamma(
        torch.ones(5, device=d), torch.ones(5, device=d)
    ).sample(),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("index", [0, 1])
def test_each_device_draws_what_the_cpu_would_and_disturbs_no_other(draw, index):
    def values():
        result = draw(f"vgpu:{index}")
        return [x.tolist() for x in (result if isinstance(result, tuple) else [result])]

    for seed in 3, 4:
        torch.manual_seed(seed)
        expected = [draw("cpu"), draw("cpu")]
        expected = [x if isinstance(x, tuple) else [x] for x in expected]
        torch.manual_seed(seed)
        torch.rand(7), torch.rand(7, device=f"vgpu:{1 - index}")
        others = torch.get_rng_state(), torch.vgpu.get_rng_state(1 - index)
        for each in expected:
            assert values() == [x.tolist() for x in each]
        assert torch.equal(torch.get_rng_state(), others[0])
        assert torch.equal(torch.vgpu.get_rng_state(1 - index), others[1])


def test_states_of_all_devices_are_kept_and_set_again():
    states = torch.vgpu.get_rng_state_all()
    first = [torch.rand(3, device=gpu).tolist() for gpu in ("vgpu:0", "vgpu:1")]
    torch.vgpu.set_rng_state_all(states)
    with torch.random.fork_rng([0, 1], device_type="vgpu"):
        torch.vgpu.manual_seed_all(5)
        torch.rand(9, device="vgpu:1")
    again = [torch.rand(3, device=gpu).tolist() for gpu in ("vgpu:0", "vgpu:1")]
    assert again == first


def test_a_seed_for_the_current_device_is_for_no_other():
    before = torch.vgpu.get_rng_state(0), torch.get_rng_state()
    with torch.vgpu.device(1):
        torch.vgpu.manual_seed(11)
    assert torch.vgpu.default_generators[1].initial_seed() == 11
    assert torch.equal(torch.vgpu.get_rng_state(0), before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


def test_devices_of_a_simulator_have_generators_too():
    sim = vgpu.simulator(3)
    torch.manual_seed(8)
    drawn = [torch.rand(4, device=sim.gpu(i)).tolist() for i in range(3)]
    assert drawn == [torch.rand(4).tolist()] * 3


def _dropped(Y: torch.Tensor) -> torch.Tensor:
    return F.dropout(Y).exp()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("place", ["vgpu:0", "vgpu:1", "simulator"])
def test_a_checkpoint_drops_the_same_elements_again(place, reentrant):
    sim = vgpu.simulator(1)
    device = sim.gpu() if place == "simulator" else torch.device(place)
    gradients = []
    for again in (False, True):
        torch.manual_seed(0)
        X = torch.ones(64, 64).to(device).requires_grad_()
        Y = F.dropout(X)
        Z = checkpoint(_dropped, Y, use_reentrant=reentrant) if again else _dropped(Y)
        torch.rand(3, device=device)  # draws after the forward pass
        Z.sum().backward()
        gradients.append(X.grad.cpu())
    assert torch.equal(*gradients)


def test_gradients_of_any_order_see_the_same_random_numbers():
    def second(device):
        torch.manual_seed(6)
        Q = torch.linspace(-1, 1, 16, device=device).reshape(1, 1, 4, 4)
        Q.requires_grad_()
        out = F.scaled_dot_product_attention(Q, Q, Q, dropout_p=0.5).sum()
        (first,) = torch.autograd.grad(out, Q, create_graph=True)
        return torch.autograd.grad(first.square().sum(), Q)[0].cpu()

    torch.testing.assert_close(second("vgpu:1"), second("cpu"))


def test_there_are_as_many_default_generators_as_devices():
    with pytest.raises(IndexError):
        torch.vgpu.default_generators[2]
    devices = [g.device.index for g in torch.vgpu.default_generators[:]]
    assert devices == [0, 1]
