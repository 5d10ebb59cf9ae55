from mxnet import gluon, np

from tests.exercises.graders.answers import Answers
from tests.exercises.graders.lesson_08 import add_shared

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


def to(x, device):
    return x.as_in_ctx(device)


def add_up(parts, device):
    return sum(to(part, device) for part in parts)


add_shared(ANSWERS, to, add_up, lambda x: x.asnumpy())


def move(parameter, device, gradient, rate):
    array = parameter.data(device)
    array -= rate * to(gradient, device)


@right("08.5")
def with_set_data(params, devices, batch_size, lr):
    for parameter in params:
        total = add_up(parameter.list_grad(), devices[0])
        new = parameter.data(devices[0]) - lr / batch_size * total
        parameter.set_data(new)


@right("08.5")
def with_a_trainer(params, devices, batch_size, lr):
    gluon.Trainer(
        {parameter.name: parameter for parameter in params},
        "sgd",
        {"learning_rate": lr},
        update_on_kvstore=True,
    ).step(batch_size, ignore_stale_grad=True)


@wrong("08.5", "followed the gradient of its own shard")
def nobody_adds(params, devices, batch_size, lr):
    for parameter in params:
        for device in devices:
            move(parameter, device, parameter.grad(device), lr / batch_size)


@wrong("08.5", "You moved by the mean of the gradients")
def averages(params, devices, batch_size, lr):
    for parameter in params:
        total = add_up(parameter.list_grad(), devices[0])
        for device in devices:
            move(parameter, device, total, lr / batch_size / len(devices))


@wrong("08.5", "once for each device")
def applies_it_thrice(params, devices, batch_size, lr):
    for _ in devices:
        with_set_data(params, devices, batch_size, lr)


@wrong("08.5", "where the loss grows")
def climbs(params, devices, batch_size, lr):
    with_set_data(params, devices, batch_size, -lr)


@wrong("08.5", "gradients are sums over `batch_size` images")
def forgets_the_batch(params, devices, batch_size, lr):
    with_set_data(params, devices, 1, lr)


@wrong("08.5", "only the gradient of the first shard")
def first_shard_only(params, devices, batch_size, lr):
    for parameter in params:
        for device in devices:
            move(parameter, device, parameter.grad(devices[0]), lr / batch_size)


@wrong("08.5", "The copy on GPU 1 hasn't changed")
def first_copy_only(params, devices, batch_size, lr):
    for parameter in params:
        total = add_up(parameter.list_grad(), devices[0])
        move(parameter, devices[0], total, lr / batch_size)


@wrong("08.5", "No copy has changed")
def binds_a_name(params, devices, batch_size, lr):
    for parameter in params:
        total = add_up(parameter.list_grad(), devices[0])
        for device in devices:
            array = parameter.data(device)
            array = array - lr / batch_size * to(total, device)


@wrong("08.5", "while it was still being added to")
def sums_as_it_goes(params, devices, batch_size, lr):
    for parameter in params:
        total = np.zeros(parameter.shape, ctx=devices[0])
        for device in devices:
            total += to(parameter.grad(device), devices[0])
            move(parameter, device, total, lr / batch_size)


@wrong("08.5", "by adding up the sum in it")
def sums_into_a_gradient(params, devices, batch_size, lr):
    for parameter in params:
        total = parameter.grad(devices[0])
        for device in devices[1:]:
            total += to(parameter.grad(device), devices[0])
        for device in devices:
            move(parameter, device, total, lr / batch_size)
