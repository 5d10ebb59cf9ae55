import contextlib
import copy
import io
import math
import os

import torch
from torch import nn
from torch.nn import functional as F

from tests.exercises.graders.answers import Answers

ANSWERS = Answers()
right, wrong = ANSWERS.right, ANSWERS.wrong


# ------------------------------------------------------------------ 10.1


def step_of(net, optimizer, X, y):
    optimizer.zero_grad()
    F.cross_entropy(net(X), y).backward()
    optimizer.step()


def file_of(folder):
    return folder / "state.pt"


def load(folder):
    return torch.load(file_of(folder)) if file_of(folder).exists() else None


def own_file(
    keep,
    put_back,
    every=10,
    place=lambda step: divmod(step, 23),
    count=0,
    at_end=True,
):
    """Return an answer that keeps what `keep` returns in a file of its own."""

    def train_on(new, folder, last):
        net, optimizer, batches = new()
        step, found = 0, load(folder)
        if found:
            step, state = found
            put_back(net, optimizer, state)
        batches.set_epoch(*place(step))
        while step < last:
            for X, y in batches:
                if step == last:
                    break
                step_of(net, optimizer, X, y)
                step += 1
                if step % every == 0 or (at_end and step == last):
                    torch.save((step + count, keep(net, optimizer)), file_of(folder))
        return net

    return train_on


def keep_all(net, optimizer):
    return net.state_dict(), optimizer.state_dict(), torch.get_rng_state()


def put_all(net, optimizer, state):
    net.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])
    torch.set_rng_state(state[2])


def keep_rounded(net, optimizer):
    state = copy.deepcopy(optimizer.state_dict())
    for each in state["state"].values():
        each["momentum_buffer"] = each["momentum_buffer"].half()
    return net.state_dict(), state, torch.get_rng_state()


def put_without_random(net, optimizer, state):
    net.load_state_dict(state[0])
    optimizer.load_state_dict(state[1])


def put_without_momentum(net, optimizer, state):
    net.load_state_dict(state[0])
    torch.set_rng_state(state[2])


def put_without_weights(net, optimizer, state):
    optimizer.load_state_dict(state[1])
    torch.set_rng_state(state[2])


def named(name, answer):
    answer.__name__ = name
    return answer


right("10.1")(named("in_a_file", own_file(keep_all, put_all)))

MISTAKES = {
    "had no momentum": own_file(keep_all, put_without_momentum),
    "start again from the seed": own_file(keep_all, put_without_random),
    "those of a new network": own_file(keep_all, put_without_weights),
    "The epoch starts again": own_file(
        keep_all, put_all, place=lambda step: (step // 23, 0)
    ),
    "data start from the beginning": own_file(
        keep_all, put_all, place=lambda step: (0, 0)
    ),
    "resumed from an older": own_file(keep_all, put_all, every=20),
    "too few": own_file(keep_all, put_all, count=1),
    "The largest difference": own_file(keep_rounded, put_all),
    "the folder is empty": own_file(keep_all, put_all, every=50),
    "All 25 steps had been made, but it made 5 more": own_file(
        keep_all, put_all, at_end=False
    ),
}
for said, mistake in MISTAKES.items():
    wrong("10.1", said)(named(said.replace(" ", "_"), mistake))


@wrong("10.1", "It started from the beginning")
def saves_and_never_looks(new, folder, last):
    net, optimizer, batches = new()
    step = 0
    while step < last:
        for X, y in batches:
            if step == last:
                break
            step_of(net, optimizer, X, y)
            step += 1
            torch.save(net.state_dict(), file_of(folder))
    return net


@wrong("10.1", "The weights aren't the ones this")
def adds_up_all_gradients(new, folder, last):
    net, optimizer, batches = new()
    step = 0
    while step < last:
        for X, y in batches:
            if step == last:
                break
            F.cross_entropy(net(X), y).backward()
            optimizer.step()
            step += 1
    return net


@wrong("10.1", "it made 1 more")
def looks_at_the_end_only(new, folder, last):
    net, optimizer, batches = new()
    step, found = 0, load(folder)
    if found:
        step = found[0]
        put_all(net, optimizer, found[1])
    batches.set_epoch(*divmod(step, 23))
    while True:
        for X, y in batches:
            step_of(net, optimizer, X, y)
            step += 1
            if step % 10 == 0:
                torch.save((step, keep_all(net, optimizer)), file_of(folder))
            if step >= last:
                return net


@wrong("10.1", "It made 30 steps, but `last` was 25")
def ten_at_a_time(new, folder, last):
    net, optimizer, batches = new()
    step, found = 0, load(folder)
    if found:
        step = found[0]
        put_all(net, optimizer, found[1])
    batches.set_epoch(*divmod(step, 23))
    while True:
        for X, y in batches:
            if step % 10 == 0 and step >= last:
                return net
            step_of(net, optimizer, X, y)
            step += 1
            if step % 10 == 0:
                torch.save((step, keep_all(net, optimizer)), file_of(folder))


def keeps_the_end_apart(keep_at_end):
    """Return an answer that saves every tenth step, and what's given at the end."""

    def train_on(new, folder, last):
        net, optimizer, batches = new()
        step, found = 0, load(folder)
        if found:
            step = found[0]
            put_all(net, optimizer, found[1])
        end = folder / f"end{last}.pt"
        if end.exists():
            net.load_state_dict(torch.load(end))
            return net
        batches.set_epoch(*divmod(step, 23))
        while step < last:
            for X, y in batches:
                if step == last:
                    break
                step_of(net, optimizer, X, y)
                step += 1
                if step % 10 == 0:
                    torch.save((step, keep_all(net, optimizer)), file_of(folder))
        torch.save(keep_at_end(net), end)
        return net

    return train_on


right("10.1")(
    named("keeps_the_trained_network_apart", keeps_the_end_apart(nn.Module.state_dict))
)
wrong("10.1", "After all 50 steps, it made no more, but")(
    named(
        "keeps_the_network_before_it_is_trained",
        keeps_the_end_apart(
            lambda net: {name: 0 * x for name, x in net.state_dict().items()}
        ),
    )
)


@wrong("10.1", "It was called with 25 and then with 50")
def keeps_no_momentum_at_the_end(new, folder, last):
    net, optimizer, batches = new()
    step, found = 0, load(folder)
    if found:
        step = found[0]
        put_all(net, optimizer, found[1])
    batches.set_epoch(*divmod(step, 23))
    while step < last:
        for X, y in batches:
            if step == last:
                break
            step_of(net, optimizer, X, y)
            step += 1
            if step == last:
                optimizer.state.clear()
            if step % 10 == 0 or step == last:
                torch.save((step, keep_all(net, optimizer)), file_of(folder))
    return net


@wrong("10.1", "It made 69 steps")
def whole_epochs(new, folder, last):
    net, optimizer, batches = new()
    step = 0
    while step < last:
        for X, y in batches:
            step_of(net, optimizer, X, y)
            step += 1
    return net


@wrong("10.1", "Which step did you count when you saved")
def counts_before_the_step(new, folder, last):
    net, optimizer, batches = new()
    step, found = 0, load(folder)
    if found:
        step = found[0]
        put_all(net, optimizer, found[1])
    batches.set_epoch(*divmod(step - bool(found), 23))
    while step < last:
        for X, y in batches:
            if step == last:
                break
            step_of(net, optimizer, X, y)
            step += 1
            if step % 10 == 0:
                torch.save((step, keep_all(net, optimizer)), file_of(folder))
    return net


# ------------------------------------------------------------------ 10.2


@right("10.2")
def from_memory(state, path):
    content = io.BytesIO()
    torch.save(state, content)
    part = path.parent / "part"
    try:
        with part.open("wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@wrong("10.2", "You wrote the new state over the old file")
def in_place(state, path):
    torch.save(state, path)


@wrong("10.2", "You removed the old file before the")
def removes_first(state, path):
    part = path.with_suffix(".part")
    torch.save(state, part)
    path.unlink(missing_ok=True)
    part.rename(path)


def written(state, part):
    with part.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


@wrong("10.2", "You never flushed the file to disk (`os.fsync`)")
def forgets_to_force(state, path):
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


@wrong("10.2", "the name can exist without its content")
def forces_too_late(state, path):
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@wrong("10.2", "bytes had been written. Where were the others")
def forgets_to_flush(state, path):
    part, content = path.with_suffix(".part"), io.BytesIO()
    try:
        torch.save(state, content)
        content.seek(0)
        with part.open("wb") as file:
            file.writelines(content)
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@wrong("10.2", "but not for the file that was then renamed")
def forces_a_copy(state, path):
    part, other = path.with_suffix(".part"), path.with_suffix(".copy")
    try:
        written(state, other)
        part.write_bytes(other.read_bytes())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
        other.unlink(missing_ok=True)


@right("10.2")
def forces_the_folder_too(state, path):
    part = path.with_name("unfinished.pt")
    try:
        torch.save(state, part)
        with part.open("rb+") as file:
            os.fsync(file)
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@wrong("10.2", "may be on another disk")
def in_the_folder_above(state, path):
    part = path.parent.parent / f"{path.parent.name}.part"
    try:
        written(state, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@wrong("10.2", "When the disk was full, you left state.part behind")
def leaves_the_part(state, path):
    part = path.with_suffix(".part")
    written(state, part)
    part.replace(path)


@wrong("10.2", "so the caller can't know that nothing was saved")
def says_nothing(state, path):
    part = path.with_suffix(".part")
    try:
        written(state, part)
        part.replace(path)
    except Exception:
        part.unlink(missing_ok=True)


@wrong("10.2", "under 'step', the file has 10, not 20")
def never_twice(state, path):
    if not path.exists():
        from_memory(state, path)


@wrong("10.2", "the earlier file was lost")
def cleans_up_too_much(state, path):
    part = path.with_suffix(".part")
    try:
        written(state, part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise


@wrong("10.2", "There's no file state.pt after the call")
def under_another_name(state, path):
    written(state, path.with_suffix(".part"))


@wrong("10.2", "contains a list instead of the dictionary")
def as_a_list(state, path):
    from_memory(list(state.items()), path)


@wrong("10.2", "has no 'weight', only 'step'")
def the_step_alone(state, path):
    from_memory({"step": state["step"]}, path)


@wrong("10.2", "under 'weight', the file has another value")
def in_half_precision(state, path):
    if "weight" in state:
        state = state | {"weight": state["weight"].half().double()}
    from_memory(state, path)


@wrong("10.2", "`torch.load` can't read state.pt: ")
def as_text(state, path):
    path.write_text(repr(state))


# ------------------------------------------------------------------ 10.3


def young(step_seconds, save_seconds, between_failures):
    return max(1, round(math.sqrt(2 * save_seconds * between_failures) / step_seconds))


@right("10.3")
def by_search(step_seconds, save_seconds, hours_of_one, gpus):
    between, best, least = hours_of_one * 3600 / gpus, 1, math.inf
    steps = 1.0
    while steps < 1e7:
        seconds = round(steps) * step_seconds
        lost = save_seconds / seconds + seconds / 2 / between
        if lost < least:
            best, least = round(steps), lost
        steps *= 1.002
    return best


@wrong("10.3", "interval for one GPU")
def of_one(step_seconds, save_seconds, hours_of_one, gpus):
    return young(step_seconds, save_seconds, hours_of_one * 3600)


@wrong("10.3", "Do more GPUs fail less often")
def multiplies(step_seconds, save_seconds, hours_of_one, gpus):
    return young(step_seconds, save_seconds, hours_of_one * 3600 * gpus)


@wrong("10.3", "in hours and the other in seconds")
def mixes_units(step_seconds, save_seconds, hours_of_one, gpus):
    return young(step_seconds, save_seconds, hours_of_one / gpus)


@wrong("10.3", "You return seconds, not steps")
def in_seconds(step_seconds, save_seconds, hours_of_one, gpus):
    return young(1, save_seconds, hours_of_one * 3600 / gpus)


@wrong("10.3", "half an interval")
def forgets_the_two(step_seconds, save_seconds, hours_of_one, gpus):
    return young(step_seconds, save_seconds / 2, hours_of_one * 3600 / gpus)


@wrong("10.3", "until something fails")
def between_failures(step_seconds, save_seconds, hours_of_one, gpus):
    return round(hours_of_one * 3600 / gpus / step_seconds)


@wrong("10.3", "your number loses")
def every_hundred(step_seconds, save_seconds, hours_of_one, gpus):
    return 100


@wrong("10.3", "You return 0 for 16,384 GPUs, each of")
def never(step_seconds, save_seconds, hours_of_one, gpus):
    return 0


@wrong("10.3", "with steps of 600 s and checkpoints of 1 s")
def rounds_down_to_none(step_seconds, save_seconds, hours_of_one, gpus):
    between = 3600 * hours_of_one / gpus
    return math.floor((2 * save_seconds * between) ** 0.5 / step_seconds)


@right("10.3")
def rounds_up(step_seconds, save_seconds, hours_of_one, gpus):
    between = 3600 * hours_of_one / gpus
    return math.ceil((2 * save_seconds * between) ** 0.5 / step_seconds)


@wrong("10.3", "with steps of 40 s and checkpoints of 1 s")
def at_least_one_if_clearly_fewer(step_seconds, save_seconds, hours_of_one, gpus):
    between = 3600 * hours_of_one / gpus
    steps = (2 * save_seconds * between) ** 0.5 / step_seconds
    return int(steps) if steps > 0.5 else 1


# ------------------------------------------------------------------ 10.4


def by_step(folder, pattern="step-*.pt"):
    """Return the paths of checkpoints, the newest first."""
    paths = folder.glob(pattern)
    return sorted(
        paths, key=lambda path: int(path.name.split(".")[0][5:]), reverse=True
    )


def put_state(state, net, optimizer):
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def readable(paths):
    """Yield the contents of those checkpoints that can be read."""
    for path in paths:
        try:
            state = torch.load(path)
        except Exception:
            continue
        yield state


def first_readable(paths, net, optimizer):
    for state in readable(paths):
        return put_state(state, net, optimizer)
    return 0


@right("10.4")
def by_content(folder, net, optimizer):
    states = [{"step": 0}]
    for path in folder.glob("*.pt"):
        with contextlib.suppress(Exception):
            states.append(torch.load(path))
    newest = max(states, key=lambda state: state["step"])
    return put_state(newest, net, optimizer) if newest["step"] else 0


@wrong("10.4", "80, 90, 100 and 110, but you return 90")
def sorted_as_text(folder, net, optimizer):
    paths = sorted(folder.glob("step-*.pt"), reverse=True)
    return first_readable(paths, net, optimizer)


@wrong("10.4", "The network has other weights")
def the_optimizer_alone(folder, net, optimizer):
    for state in readable(by_step(folder)):
        optimizer.load_state_dict(state["optimizer"])
        return state["step"]
    return 0


@wrong("10.4", "The optimizer has no momentum")
def the_network_alone(folder, net, optimizer):
    for state in readable(by_step(folder)):
        net.load_state_dict(state["net"])
        return state["step"]
    return 0


@wrong("10.4", "and step-110.pt.part, you return 110")
def takes_unfinished_files(folder, net, optimizer):
    return first_readable(by_step(folder, "step-*"), net, optimizer)


@wrong("10.4", "your function raised")
def reads_the_newest_only(folder, net, optimizer):
    paths = by_step(folder)
    return put_state(torch.load(paths[0]), net, optimizer) if paths else 0


@wrong("10.4", "and the weights are those of step")
def gives_up_at_the_first(folder, net, optimizer):
    return first_readable(by_step(folder)[:1], net, optimizer)


@wrong("10.4", "You return -1 for an empty folder")
def minus_one(folder, net, optimizer):
    return first_readable(by_step(folder), net, optimizer) or -1


@wrong("10.4", "You changed or removed files")
def tidies_up(folder, net, optimizer):
    for path in folder.glob("*.part"):
        path.unlink()
    return first_readable(by_step(folder), net, optimizer)
