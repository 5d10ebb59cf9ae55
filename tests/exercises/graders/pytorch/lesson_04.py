import copy

import torch
from torch import nn

from d2l_gpu import torch as d2l
from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


# ------------------------------------------------------------------ 04.1


@right("04.1")
def in_place(layer, i, j):
    element = layer.weight.detach()[i, j]
    value = float(element)
    element.zero_()
    return value


@wrong("04.1", "Tell it not to record this one")
def writes_while_autograd_records(layer, i, j):
    value = layer.weight[i, j].item()
    layer.weight[i, j] = 0
    return value


@wrong("04.1", "When did you read the number")
def reads_too_late(layer, i, j):
    element = layer.weight.detach()[i, j]
    element.zero_()
    return element.item()


@wrong("04.1", "You returned the number at `[j, i]`")
def takes_the_wrong_one(layer, i, j):
    return in_place(layer, j, i)


@wrong("04.1", "the old one won't know about it")
def makes_a_new_parameter(layer, i, j):
    weight = layer.weight.detach().clone()
    value = weight[i, j].item()
    weight[i, j] = 0
    layer.weight = nn.Parameter(weight)
    return value


@wrong("04.1", "a copy")
def writes_into_a_copy(layer, i, j):
    weight = layer.weight.detach().clone()
    value = weight[i, j].item()
    weight[i, j] = 0
    return value


@wrong("04.1", "32 changed elements")
def clears_the_column(layer, i, j):
    with torch.no_grad():
        value = layer.weight[i, j].item()
        layer.weight[:, j] = 0
    return value


@wrong("04.1", "The bias has changed too")
def clears_the_bias(layer, i, j):
    with torch.no_grad():
        value = layer.weight[i, j].item()
        layer.weight[i, j] = layer.bias[i] = 0
    return value


@wrong("04.1", "The parameter doesn't require gradients any more")
def switches_gradients_off(layer, i, j):
    layer.weight.requires_grad_(False)
    value = layer.weight[i, j].item()
    layer.weight[i, j] = 0
    return value


@wrong("04.1", "for every parameter")
def switches_autograd_off(layer, i, j):
    torch.set_grad_enabled(False)
    value = layer.weight[i, j].item()
    layer.weight[i, j] = 0
    return value


@wrong("04.1", "you fetched the whole weight to read one number")
def fetches_the_weight(layer, i, j):
    value = layer.weight.detach().cpu()[i, j].item()
    with torch.no_grad():
        layer.weight[i, j] = 0
    return value


@wrong("04.1", "and sent it back")
def writes_on_the_host(layer, i, j):
    weight = layer.weight.detach().cpu()
    value = weight[i, j].item()
    weight[i, j] = 0
    layer.weight.data.copy_(weight)
    return value


@wrong("04.1", "Did you send the zero from there")
def sends_a_zero(layer, i, j):
    value = layer.weight[i, j].item()
    with torch.no_grad():
        layer.weight[i, j] = torch.tensor(0.0)
    return value


@wrong("04.1", "returned a Tensor")
def returns_a_tensor(layer, i, j):
    with torch.no_grad():
        value = layer.weight[i, j].clone()
        layer.weight[i, j] = 0
    return value


# ------------------------------------------------------------------ 04.2


def in_evaluation_mode(net, batches, device):
    right = 0
    for X, y in batches:
        right += (net(X.to(device)).argmax(1) == y.to(device)).sum()
    return right


@right("04.2")
def on_a_copy(net, batches, device):
    with torch.inference_mode():
        twin = copy.deepcopy(net).eval()
        return in_evaluation_mode(twin, batches, device).item()


@right("04.2")
@torch.no_grad()
def module_by_module_again(net, batches, device):
    frozen = [module for module in net.modules() if not module.training]
    net.eval()
    answers = [net(X.to(device)).argmax(1) for X, _ in batches]
    net.train()
    for module in frozen:
        module.training = False
    labels = torch.cat([y for _, y in batches])
    return int((torch.cat(answers).cpu() == labels).sum())


@wrong("04.2", "In one batch of 20 you count")
def stays_in_training_mode(net, batches, device):
    right = 0
    for X, y in batches:
        right += (net(X.to(device)).argmax(1) == y.to(device)).sum().item()
    return right


@wrong("04.2", "but there are 14")
@torch.no_grad()
def forgets_the_last_batch(net, batches, device):
    total = sum(len(y) for _, y in batches)
    return total - on_a_copy(net, batches, device)


@wrong("04.2", "has learned something from the test images")
@torch.no_grad()
def warms_up(net, batches, device):
    right = on_a_copy(net, batches, device)
    net(batches[0][0].to(device))
    return right


@wrong("04.2", "What will the next epoch of training do")
@torch.no_grad()
def stays_in_evaluation_mode(net, batches, device):
    return int(in_evaluation_mode(net.eval(), batches, device))


@wrong("04.2", "because somebody has frozen it")
@torch.no_grad()
def thaws(net, batches, device):
    right = int(in_evaluation_mode(net.eval(), batches, device))
    net.train()
    return right


@wrong("04.2", "are in another mode than before")
@torch.no_grad()
def sets_the_flag_of_the_network(net, batches, device):
    right = int(in_evaluation_mode(net.eval(), batches, device))
    net.training = True
    net[0].training = True
    return right


@wrong("04.2", "for a backward pass that never comes")
def records(net, batches, device):
    return int(in_evaluation_mode(copy.deepcopy(net).eval(), batches, device))


@wrong("04.2", "for everything that comes afterwards")
def never_records_again(net, batches, device):
    torch.set_grad_enabled(False)
    return int(in_evaluation_mode(copy.deepcopy(net).eval(), batches, device))


@wrong("04.2", "The parameters no longer require gradients")
def freezes(net, batches, device):
    net.requires_grad_(False)
    return int(in_evaluation_mode(copy.deepcopy(net).eval(), batches, device))


@wrong("04.2", "5 copies reached the host")
@torch.no_grad()
def fetches_each_count(net, batches, device):
    twin, right = copy.deepcopy(net).eval(), 0
    for X, y in batches:
        right += (twin(X.to(device)).argmax(1) == y.to(device)).sum().item()
    return right


@wrong("04.2", "14 copies reached the host")
@torch.no_grad()
def computes_on_the_host(net, batches, device):
    return int(in_evaluation_mode(copy.deepcopy(net).cpu().eval(), batches, "cpu"))


# ------------------------------------------------------------------ 04.3


@right("04.3")
def with_a_loader(X, y, batch_size, epochs, device):
    dataset = torch.utils.data.TensorDataset(X.to(device), y.to(device))
    loader = torch.utils.data.DataLoader(dataset, batch_size, shuffle=True)
    return [batch for _ in range(epochs) for batch in loader]


def orders(n, batch_size, epochs, device):
    for _ in range(epochs):
        yield from torch.randperm(n, device=device).split(batch_size)


@wrong("04.3", "The loss needs them")
def forgets_the_labels(X, y, batch_size, epochs, device):
    X = X.to(device)
    for part in orders(len(X), batch_size, epochs, "cpu"):
        yield X[part.to(device)], y[part]


@wrong("04.3", "Some of them are on the host.")
def forgets_the_images(X, y, batch_size, epochs, device):
    y = y.to(device)
    for part in orders(len(X), batch_size, epochs, "cpu"):
        yield X[part], y[part.to(device)]


@wrong("04.3", "you sent each batch separately")
def sends_each_batch(X, y, batch_size, epochs, device):
    for part in orders(len(X), batch_size, epochs, "cpu"):
        yield X[part].to(device), y[part].to(device)


@wrong("04.3", "you sent the data set again in each epoch")
def sends_in_each_epoch(X, y, batch_size, epochs, device):
    for _ in range(epochs):
        there = X.to(device), y.to(device)
        for part in orders(len(X), batch_size, 1, device):
            yield tuple(x[part] for x in there)


@wrong("04.3", "examples followed from the host")
def sends_the_orders(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for part in orders(len(X), batch_size, epochs, "cpu"):
        part = part.to(device)
        yield X[part], y[part]


@wrong("04.3", "examples followed from the host")
def leaves_the_orders_on_the_host(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for part in orders(len(X), batch_size, epochs, "cpu"):
        yield X[part], y[part]


@wrong("04.3", "the last batch, which is smaller")
def drops_the_last(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for part in orders(len(X), batch_size, epochs, device):
        if len(part) == batch_size:
            yield X[part], y[part]


@wrong("04.3", "so that's one epoch")
def stops_after_one(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for part in orders(len(X), batch_size, 1, device):
        yield X[part], y[part]


@wrong("04.3", "in 3 batches of 50 to 50")
def gives_whole_epochs(X, y, batch_size, epochs, device):
    return with_a_loader(X, y, len(X), epochs, device)


@wrong("04.3", "each in a different order")
def mixes_apart(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for part, other in zip(
        orders(len(X), batch_size, epochs, device),
        orders(len(X), batch_size, epochs, device),
        strict=True,
    ):
        yield X[part], y[other]


@wrong("04.3", "same order again in another epoch")
def mixes_once(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    parts = list(orders(len(X), batch_size, 1, device))
    for part in parts * epochs:
        yield X[part], y[part]


@wrong("04.3", "in the order of the data set")
def never_mixes(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for _ in range(epochs):
        yield from zip(X.split(batch_size), y.split(batch_size), strict=True)


@wrong("04.3", "some examples come twice")
def draws_with_replacement(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for _ in range(epochs):
        drawn = torch.randint(len(X), (len(X),), device=device)
        for part in drawn.split(batch_size):
            yield X[part], y[part]


@wrong("04.3", "other values than in `X`")
def keeps_the_first_column(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for part in orders(len(X), batch_size, epochs, device):
        yield X[part] * (torch.arange(6, device=device) == 0), y[part]


@wrong("04.3", "and a label of `y` is one number")
def adds_a_dimension(X, y, batch_size, epochs, device):
    X, y = X.to(device), y.to(device)
    for part in orders(len(X), batch_size, epochs, device):
        yield X[part], y[part, None]


@wrong("04.3", "At least one batch isn't a pair of tensors")
def gives_images_only(X, y, batch_size, epochs, device):
    X = X.to(device)
    for part in orders(len(X), batch_size, epochs, device):
        yield X[part]


# ------------------------------------------------------------------ 04.4


@right("04.4")
class WithHooks(nn.Sequential):
    def __init__(self, net, devices):
        super().__init__(*net)
        self[0].to(devices[0])
        self[2].to(devices[1])
        self[2].register_forward_pre_hook(lambda _, inputs: inputs[0].to(devices[1]))


class TwoParts(nn.Module):
    """Two parts on two devices, and what brings one's output to the other."""

    def __init__(self, first, second, bring):
        super().__init__()
        self.first, self.second, self.bring = first, second, bring

    def forward(self, X):
        return self.second(self.bring(self.first(X)))


def in_two_parts(net, devices, bring):
    first = nn.Sequential(net[0], net[1]).to(devices[0])
    return TwoParts(first, net[2].to(devices[1]), bring)


@wrong("04.4", "its output was detached from autograd")
def detaches(net, devices):
    return in_two_parts(net, devices, lambda H: H.detach().to(devices[1]))


@wrong("04.4", "Something was copied by way of the host")
def goes_by_way_of_the_host(net, devices):
    return in_two_parts(net, devices, lambda H: H.cpu().to(devices[1]))


@wrong("04.4", "Its parameters aren't those of `net`")
def copies_the_layers(net, devices):
    return in_two_parts(copy.deepcopy(net), devices, lambda H: H.to(devices[1]))


@wrong("04.4", "The first layer is on GPU 1 and the last")
def puts_all_on_one(net, devices):
    return net.to(devices[1])


@wrong("04.4", "nothing moved the first layer's output there")
def forgets_the_hidden_layer(net, devices):
    return in_two_parts(net, devices, lambda H: H)


@wrong("04.4", "The output is on GPU 0, not on GPU 1")
def brings_the_output_back(net, devices):
    class There(TwoParts):
        def forward(self, X):
            return super().forward(X).to(devices[0])

    return There(
        net[0].to(devices[0]),
        nn.Sequential(net[1], net[2].to(devices[1])),
        lambda H: H.to(devices[1]),
    )


@wrong("04.4", "Its shape or its values differ")
def forgets_the_relu(net, devices):
    return TwoParts(
        net[0].to(devices[0]), net[2].to(devices[1]), lambda H: H.to(devices[1])
    )


@wrong("04.4", "the output of the ReLU has 1,920 bytes")
def sends_it_twice(net, devices):
    return in_two_parts(
        net, devices, lambda H: H.to(devices[1]).to(devices[0]).to(devices[1])
    )


@wrong("04.4", "What crosses has negative numbers")
def sends_it_before_the_relu(net, devices):
    def before(layer, inputs):
        return torch.relu(inputs[0].to(devices[1]))

    first, _, last = net[0].to(devices[0]), net[1], net[2].to(devices[1])
    last.register_forward_pre_hook(before)
    return nn.Sequential(first, last)


@wrong("04.4", "the ReLU's output, but other values")
def sends_the_opposite(net, devices):
    return in_two_parts(net, devices, lambda H: 1 - (1 - H).exp().to(devices[1]).log())


@right("04.4")
def sends_it_transposed(net, devices):
    return in_two_parts(
        net, devices, lambda H: torch.empty(30, 16, device=devices[1]).copy_(H.T).T
    )


@wrong("04.4", "The model has no parameters")
def keeps_layers_in_a_list(net, devices):
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [net[0].to(devices[0]), net[1], net[2].to(devices[1])]

        def forward(self, X):
            first, relu, last = self.layers
            return last(relu(first(X)).to(devices[1]))

    return Split()


@wrong("04.4", "returned a function")
def returns_a_function(net, devices):
    model = in_two_parts(net, devices, lambda H: H.to(devices[1]))
    return lambda X: model(X)


# ------------------------------------------------------------------ 04.5


@right("04.5")
def module_by_module(module):
    return places(
        [
            x
            for each in module.modules()
            for x in (*each._parameters.values(), *each._buffers.values())
            if x is not None
        ]
    )


@wrong("04.5", "but it's a buffer all the same. With the parameters on")
def asks_for_what_is_saved(module):
    return places(module.state_dict(keep_vars=True).values())


@wrong("04.5", "There's nothing else in this module, but None was returned")
def starts_with_what_is_saved(module):
    if not module.state_dict():
        return None
    return module_by_module(module)


@wrong("04.5", "A BatchNorm inside a `Sequential` inside the model")
def looks_one_level_down(module):
    below = [module, *module.children()]
    return places(
        [
            x
            for each in below
            for x in (*each.parameters(recurse=False), *each.buffers(recurse=False))
        ]
    )


@wrong("04.5", "The three layers are on GPU 0, GPU 1 and the CPU. Your message is")
def stops_at_the_second(module):
    first = None
    for tensor in (*module.parameters(), *module.buffers()):
        first = first or tensor.device
        if tensor.device != first:
            raise ValueError(f"on {first} and on {tensor.device}")
    return first


def places(tensors):
    devices = {x.device for x in tensors}
    if len(devices) > 1:
        raise ValueError(f"on several devices: {', '.join(map(str, devices))}")
    return next(iter(devices), None)


@wrong("04.5", "If you look at only one parameter")
def looks_at_the_first(module):
    return next((p.device for p in module.parameters()), None)


@wrong("04.5", "`next` raises StopIteration")
def expects_parameters(module):
    return next(module.parameters()).device


@wrong("04.5", "the module but isn't a parameter")
def forgets_buffers(module):
    return places(module.parameters())


@wrong("04.5", "with `affine=False` has a running mean")
def asks_parameters_for_a_start(module):
    if not list(module.parameters()):
        return None
    return module_by_module(module)


@wrong("04.5", "You return a string; return a `torch.device`")
def returns_a_text(module):
    device = module_by_module(module)
    return device and str(device)


@wrong("04.5", "the model is on several devices")
def names_no_devices(module):
    try:
        return module_by_module(module)
    except ValueError:
        raise ValueError("the model is on several devices") from None


@wrong("04.5", "For `nn.ReLU()`, the host was returned")
def falls_back(module):
    return module_by_module(module) or d2l.cpu()


@wrong("04.5", "{device(type='vgpu', index=1)} was returned")
def returns_a_set(module):
    return {x.device for x in module.state_dict().values()}


@wrong("04.5", "they have a device")
def leaves_lazy_ones_out(module):
    return places(
        [x for x in module.state_dict().values() if not nn.parameter.is_lazy(x)]
    )


# ------------------------------------------------------------------ 04.6


@right("04.6")
def by_hand(net, optimizer, device):
    net.to(device)
    for p in net.parameters():
        state = optimizer.state[p]
        for name in state:
            if name != "step":
                state[name] = state[name].to(device)


@wrong("04.6", "With `amsgrad=True`, Adam has one more moment and needs")
def forgets_the_largest(net, optimizer, device):
    net.to(device)
    for state in optimizer.state.values():
        state.update(
            (name, x.to(device))
            for name, x in state.items()
            if name.startswith("exp_avg")
        )


@wrong("04.6", "needs `exp_avg_sq` in each step, but that's on GPU 0")
def moves_the_momentum_only(net, optimizer, device):
    net.to(device)
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].to(device)


@wrong("04.6", "several groups of parameters")
def moves_the_first_group(net, optimizer, device):
    net.to(device)
    for p in optimizer.param_groups[0]["params"]:
        state = optimizer.state[p]
        for name in state.keys() - {"step"}:
            state[name] = state[name].to(device)


@wrong("04.6", "if it was created with `amsgrad=True`")
def drops_the_largest(net, optimizer, device):
    net.to(device)
    optimizer.load_state_dict(optimizer.state_dict())
    for state in optimizer.state.values():
        state.pop("max_exp_avg_sq", None)


@wrong("04.6", "differ after it if Adam was created with `amsgrad=True`")
def replaces_the_largest(net, optimizer, device):
    net.to(device)
    optimizer.load_state_dict(optimizer.state_dict())
    for state in optimizer.state.values():
        if "max_exp_avg_sq" in state:
            state["max_exp_avg_sq"] = state["exp_avg_sq"].clone() * 4


@wrong("04.6", "The buffer `scale` is on GPU 0")
def moves_what_is_saved(net, optimizer, device):
    for x in net.state_dict(keep_vars=True).values():
        x.data = x.data.to(device)
    optimizer.load_state_dict(optimizer.state_dict())


@wrong("04.6", "about the optimizer that trains it")
def moves_the_model_only(net, optimizer, device):
    net.to(device)


@wrong("04.6", "Its moments or step counters are gone")
def begins_anew(net, optimizer, device):
    net.to(device)
    optimizer.state.clear()


@wrong("04.6", "holds the parameters of `net`")
def makes_new_parameters(net, optimizer, device):
    for layer in (net[0], net[3]):
        layer.weight = nn.Parameter(layer.weight.detach().to(device))
        layer.bias = nn.Parameter(layer.bias.detach().to(device))
    net[2].to(device)


@wrong("04.6", "They moved too. Python reads them in each step")
def moves_every_tensor(net, optimizer, device):
    net.to(device)
    for state in optimizer.state.values():
        for name in state:
            state[name] = state[name].to(device)


@wrong("04.6", "something of Adam's state has changed in the move")
def forgets_the_values(net, optimizer, device):
    net.to(device)
    for p in net.parameters():
        state = optimizer.state[p]
        for name in state.keys() - {"step"}:
            state[name] = torch.zeros_like(p)


@wrong("04.6", "by way of the host")
def by_way_of_the_host(net, optimizer, device):
    net.cpu()
    optimizer.load_state_dict(optimizer.state_dict())
    net.to(device)
    optimizer.load_state_dict(optimizer.state_dict())


@wrong("04.6", "They're on GPU 0, but `device` is GPU 1")
def forgets_the_model(net, optimizer, device):
    optimizer.load_state_dict(optimizer.state_dict())


@wrong("04.6", "A BatchNorm's running mean and variance aren't parameters")
def leaves_the_buffers(net, optimizer, device):
    for p in net.parameters():
        p.data = p.data.to(device)
    optimizer.load_state_dict(optimizer.state_dict())


@wrong("04.6", "They had other values before it already")
def resets_the_buffers(net, optimizer, device):
    by_hand(net, optimizer, device)
    net[2].reset_running_stats()


@wrong("04.6", "parameters, buffers and moments have")
def moves_there_and_back(net, optimizer, device):
    home = next(net.parameters()).device
    for place in (device, home, device):
        by_hand(net, optimizer, place)
