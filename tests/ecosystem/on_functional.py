"""torch.func, derivatives of higher order, hooks, and recomputing in backward."""

import copy

import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stack_module_state,
    vjp,
    vmap,
)
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import mse_loss, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from tests.ecosystem.support import batch, close, main, mlp, same_gradients

NEEDS = ("torch",)


def check_hessians():
    """Hessians of a function on a GPU are exact, by torch.func and by autograd."""

    def f(x):
        return (x**3).sum() + x[0] * x[1]

    x = torch.tensor([1.0, 2.0, 3.0], device="cuda:1")
    expected = torch.diag(torch.tensor([6.0, 12.0, 18.0]))
    expected[0, 1] = expected[1, 0] = 1.0
    close(hessian(f)(x), expected, "cuda:1")
    close(jacrev(jacrev(f))(x), expected, "cuda:1")
    close(torch.autograd.functional.hessian(f, x), expected, "cuda:1")


def check_jacobians():
    """Jacobians by forward and by reverse mode agree, for a network and its inputs."""
    net, (X, _) = mlp(), batch(3)
    there = copy.deepcopy(net).to("cuda")
    expected = torch.autograd.functional.jacobian(net, X[0])
    for transform in jacfwd, jacrev:
        close(transform(there)(X[0].cuda()), expected, "cuda:0")
    whole = vmap(jacrev(there))(X.cuda())
    close(whole, torch.stack([jacrev(net)(x) for x in X]), "cuda:0")
    parameters = dict(there.named_parameters())
    of_weights = jacrev(lambda p: functional_call(there, p, (X[0].cuda(),)))(parameters)
    here = dict(net.named_parameters())
    others = jacrev(lambda p: functional_call(net, p, (X[0],)))(here)
    for name, value in others.items():
        close(of_weights[name], value, "cuda:0")


def check_gradients_of_each_example():
    """vmap over grad gives the gradient of each example, as one backward each would."""
    net, (X, Y) = mlp(), batch(5)
    there = copy.deepcopy(net).to("cuda")
    parameters = {n: p.detach() for n, p in there.named_parameters()}

    def loss(parameters, x, y):
        return mse_loss(functional_call(there, parameters, (x[None],)), y[None])

    mine = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, X.cuda(), Y.cuda())
    for i in range(5):
        net.zero_grad()
        mse_loss(net(X[i : i + 1]), Y[i : i + 1]).backward()
        for name, parameter in net.named_parameters():
            close(mine[name][i], parameter.grad, "cuda:0")


def check_gradients_of_many_outputs_at_once():
    """autograd.grad with is_grads_batched gives a whole Jacobian in one call."""
    A = torch.arange(6.0).reshape(2, 3)
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = (A.cuda() @ x) ** 2
    (rows,) = torch.autograd.grad(
        y, x, torch.eye(2, device="cuda"), is_grads_batched=True
    )
    close(rows, 2 * (A @ torch.ones(3))[:, None] * A, "cuda:0")


def check_forward_mode():
    """Products of Jacobians with vectors agree in both modes, and with dual numbers."""
    net, (X, _) = mlp(), batch(3)
    there = copy.deepcopy(net).to("cuda")
    V = torch.ones_like(X)
    value, expected = jvp(net, (X,), (V,))
    mine, tangent = jvp(there, (X.cuda(),), (V.cuda(),))
    close(mine, value, "cuda:0")
    close(tangent, expected, "cuda:0")
    output, pull = vjp(there, X.cuda())
    close((pull(torch.ones_like(output))[0] * V.cuda()).sum(), expected.sum(), "cuda:0")
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(X.cuda(), V.cuda())
        output = torch.autograd.forward_ad.unpack_dual(there(dual))
        close(output.tangent, expected, "cuda:0")


def check_an_ensemble_at_once():
    """vmap runs several networks with stacked weights as if one after the other."""
    nets = [mlp() for _ in range(3)]
    for i, net in enumerate(nets):
        with torch.no_grad():
            net[0].weight.mul_(i + 1)
    X, _ = batch(4)
    there = [copy.deepcopy(net).to("cuda") for net in nets]
    parameters, buffers = stack_module_state(there)
    base = copy.deepcopy(there[0]).to("meta")

    def run(parameters, buffers, x):
        return functional_call(base, (parameters, buffers), (x,))

    outputs = vmap(run, in_dims=(0, 0, None))(parameters, buffers, X.cuda())
    close(outputs, torch.stack([net(X) for net in nets]), "cuda:0")
    masks = vmap(lambda x: torch.dropout(x, 0.5, True), randomness="different")(
        torch.ones(2, 500, device="cuda")
    )
    assert not torch.equal(masks[0], masks[1])


def check_a_penalty_on_gradients():
    """The gradient penalty of a GAN, a derivative of second order, trains on a GPU."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Softplus(), nn.Flatten(), nn.Linear(4 * 16, 1)
    )
    there = copy.deepcopy(net).to("cuda:1")
    images = torch.randn(3, 1, 6, 6)
    for model, x in (net, images.clone()), (there, images.to("cuda:1")):
        x.requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean().backward()
    same_gradients(there, net, "cuda:1", rtol=1e-2, atol=1e-4)


def check_attention_with_a_score_of_ones_own():
    """flex_attention applies a score and a mask of one's own on a GPU."""
    torch.manual_seed(0)
    Q, K, V = torch.randn(3, 2, 4, 128, 16)
    q, k, v = (x.to("cuda").requires_grad_() for x in (Q, K, V))
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    there = slopes.cuda()

    def alibi(score, b, h, i, j):
        return score + there[h] * (j - i)

    def causal(b, h, i, j):
        return i >= j

    mask = create_block_mask(causal, None, None, 128, 128, device="cuda")
    output = flex_attention(q, k, v, score_mod=alibi, block_mask=mask)
    places = torch.arange(128)
    bias = slopes[:, None, None] * (places[None, :] - places[:, None])
    bias = bias.masked_fill(places[:, None] < places[None, :], -torch.inf)
    leaves = [x.clone().requires_grad_() for x in (Q, K, V)]
    expected = scaled_dot_product_attention(*leaves, attn_mask=bias)
    close(output, expected, "cuda:0", rtol=1e-3, atol=1e-4)
    output.square().sum().backward()
    expected.square().sum().backward()
    for mine, other in zip((q, k, v), leaves, strict=True):
        close(mine.grad, other.grad, "cuda:0", rtol=1e-2, atol=1e-3)


def check_activations_are_recomputed():
    """Checkpointed layers have the same gradients, also with dropout, in both modes."""
    X, _ = batch()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.GELU(), nn.Linear(64, 4))
    net = net.to("cuda:1")
    x = X.to("cuda:1").requires_grad_()
    results = []
    for reentrant in None, True, False:
        net.zero_grad()
        x.grad = None
        torch.manual_seed(7)
        if reentrant is None:
            output = net(x)
        else:
            output = checkpoint(net, x, use_reentrant=reentrant)
        output.square().sum().backward()
        results.append([x.grad.clone(), *(p.grad.clone() for p in net.parameters())])
    for others in results[1:]:
        for a, b in zip(others, results[0], strict=True):
            close(a, b, "cuda:1")


def check_hooks():
    """Hooks see the outputs and gradients of GPUs, and may change them."""
    X, Y = batch()
    net, there = mlp(), mlp().to("cuda")
    seen = []

    def clamp(parameter):
        parameter.grad.clamp_(-0.1, 0.1)

    for model, x, y in (net, X, Y), (there, X.cuda(), Y.cuda()):
        model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model[1].register_forward_hook(lambda module, args, output: output + 1)
        model[2].register_full_backward_hook(
            lambda module, inputs, outputs: seen.append(outputs[0])
        )
        model[0].weight.register_hook(lambda gradient: gradient * 3)
        model[2].bias.register_post_accumulate_grad_hook(clamp)
        output = model(x)
        output.register_hook(lambda gradient: gradient * 5)
        mse_loss(output, y).backward()
    assert seen[1].device == torch.device("cuda:0")
    close(seen[1], seen[0])
    same_gradients(there, net, "cuda:0")
    assert there[2].bias.grad.abs().max() <= 0.1


if __name__ == "__main__":
    main(globals())
