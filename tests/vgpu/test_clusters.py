"""Programs on simulated clusters: ranks that differ run, and wait for each other."""

import itertools
import json
import os
import random
import subprocess
import sys
import warnings

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

from d2l_gpu import vgpu
from d2l_gpu.vgpu import sim
from tests.helpers.properties import sizes

pytestmark = pytest.mark.filterwarnings("ignore:In a simulated cluster")
WIDTH = 2048


def layers(n: int, device="vgpu") -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(n))).to(device)


def train(net: nn.Module, device="vgpu", steps: int = 3) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    X = torch.zeros(256, WIDTH, device=device)
    for _ in range(steps):
        net(X).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def data_parallel() -> None:
    train(DistributedDataParallel(layers(3)))


def pipeline(stages: int, batches: int, kind=Schedule1F1B, batch: int = 256):
    """Return a program: a pipeline of equal stages, one on each rank."""

    def program() -> None:
        rank = dist.get_rank()
        net = layers(4)
        stage = PipelineStage(net, rank, stages, torch.device("vgpu", rank))
        schedule = kind(stage, batches, loss_fn=lambda y, target: y.sum())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        X = torch.zeros(batch * batches, WIDTH, device="vgpu")
        for _ in range(2):
            inputs = [X] if rank == 0 else []
            schedule.step(*inputs, target=X if rank == stages - 1 else None)
            optimizer.step()
            optimizer.zero_grad()

    return program


# ------------------------------------------------------------------ times


@pytest.mark.parametrize("nodes", [1, 2])
def test_ranks_that_do_the_same_take_as_long_as_if_all_had_run(nodes):
    cluster = vgpu.cluster(nodes, 2, "A100")
    one = cluster.run(data_parallel)
    everybody = cluster.run(data_parallel, ranks=range(2 * nodes))
    assert list(one.ranks) == [0]
    assert list(everybody.ranks) == list(range(2 * nodes))
    assert everybody.seconds == one.seconds  # to the picosecond
    assert {each.clock.elapsed() for each in everybody.ranks.values()} == {
        one.ranks[0].clock.elapsed()
    }


def test_gradients_are_summed_while_others_are_computed():
    def seconds(gpus: int) -> float:
        return vgpu.cluster(1, gpus, "V100").run(data_parallel).seconds

    alone, together = seconds(1), seconds(8)
    gradients = 3 * (WIDTH + 1) * WIDTH * 4
    ranks = range(8)
    fabric = vgpu.cluster(1, 8, "V100").fabric
    summing = sim.nccl.estimate(
        "all_reduce", gradients, tuple(ranks), fabric, vgpu.MODELS["V100"]
    ).seconds
    assert alone < together < alone + summing


@pytest.mark.parametrize("cards", [1, 4])
def test_replicas_of_shards_share_the_network_cards_of_their_node(cards):
    """A node's bytes are the same, whether one group sends them or eight do."""
    numbers = 2**26

    def program(groups: int) -> None:
        mesh = dist.init_device_mesh("vgpu", (16 // groups, groups))
        share = torch.zeros(numbers // groups, device="vgpu")
        dist.all_reduce(share, group=mesh.get_group(0))
        share.sum().item()

    cluster = vgpu.cluster(2, 8, "H100", "Ethernet 100", cards=cards)
    many = cluster.run(lambda: program(8)).seconds
    card_seconds = numbers * 4 / (cards * cluster.fabric.network.bandwidth)
    assert card_seconds < many < 1.2 * card_seconds


@pytest.mark.parametrize("kind", [ScheduleGPipe, Schedule1F1B])
@pytest.mark.parametrize("stages", [2, 4])
def test_a_pipeline_runs_as_all_its_stages_and_has_bubbles(kind, stages):
    batches = 6
    run = vgpu.cluster(1, stages, "H100").run(pipeline(stages, batches, kind, 4096))
    assert list(run.ranks) == list(range(stages))
    for each in run.ranks.values():
        busy = each.clock.compute[each.index].busy / vgpu.PICO
        # Each stage computes for the part of the time that the bubbles leave
        # (Y. Huang and others, GPipe, 2019), but for sending and updating.
        assert busy / run.seconds == pytest.approx(
            batches / (batches + stages - 1), rel=0.15
        )


def test_all_ranks_wait_for_a_straggler():
    def program() -> None:
        net = layers(2)
        if dist.get_rank() == 2:
            train(net, steps=1)
            for _ in range(30):
                net(torch.zeros(2**14, WIDTH, device="vgpu"))
        dist.all_reduce(torch.zeros(2**20, device="vgpu"))
        torch.zeros(1, device="vgpu").item()  # the host waits, too

    cluster = vgpu.cluster(2, 2, "A100")
    fast, slow = cluster.run(program), cluster.run(program, ranks=[2])
    late = slow.ranks[2].clock.elapsed()
    assert fast.seconds < late / 2
    assert slow.ranks[0].clock.elapsed() == pytest.approx(late, rel=0.01)
    # What the others wait for is the straggler's work.
    rows = str(slow.critical_path()).splitlines()
    assert rows[1].startswith("computing")


@settings(max_examples=15)
@given(n=sizes(2, 5), order=st.randoms(use_true_random=False), count=sizes(1, 4))
def test_the_order_in_which_sends_are_asked_for_makes_no_deadlock(n, order, count):
    """Receives may be asked for long before somebody sends."""
    orders = [[random.Random(order.random()) for _ in range(2)] for _ in range(n)]

    def program() -> None:
        rank = dist.get_rank()
        if rank >= n:
            return
        X = torch.zeros(2**18, device="vgpu")
        others = [r for r in range(n) if r != rank] * count
        works = []
        for ask, shuffled in zip((dist.irecv, dist.isend), orders[rank], strict=True):
            ranks = others[:]
            random.Random(shuffled.getstate()[1][0]).shuffle(ranks)
            works += [ask(X.clone(), other) for other in ranks]
        for work in works:
            work.wait()
        X + X

    run = vgpu.cluster(1, 8, "A100").run(program, ranks=range(n))
    assert set(run.ranks) == set(range(n))
    for rank, each in run.ranks.items():
        assert len(list(each.clock.meetings())) == 2 * (n - 1) * count, rank
        for side in ("in", "out"):  # a link does one thing at a time
            busy = sorted(x[2:4] for x in each.clock.spans if x[1] == side)
            assert len(busy) == (n - 1) * count
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(busy))


def test_a_ring_runs_as_its_first_ranks_only():
    def program() -> None:
        rank, n = dist.get_rank(), dist.get_world_size()
        X = torch.zeros(2**20, device="vgpu")
        for _ in range(3):
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, X, (rank + 1) % n),
                    dist.P2POp(dist.irecv, torch.empty_like(X), (rank - 1) % n),
                ]
            )
            for work in works:
                work.wait()

    cluster = vgpu.cluster(4, 8, "H100")
    run = cluster.run(program)
    assert len(run.ranks) == 3
    slowest = cluster.run(program, ranks=range(16))
    assert slowest.seconds >= run.seconds


def test_a_chain_of_sends_is_followed_to_its_end():
    def program() -> None:
        rank, X = dist.get_rank(), torch.zeros(2**20, device="vgpu")
        if rank % 2:  # a chain for even ranks
            return
        if rank:
            dist.recv(X, rank - 2)
        layers(2)
        if rank < 8:
            dist.send(X, rank + 2)

    run = vgpu.cluster(1, 10, "A100", wiring="NVSwitch").run(program)
    assert list(run.ranks) == [0, 2, 4, 6, 8]
    ends = [each.clock.elapsed() for each in run.ranks.values()]
    assert ends == sorted(ends)


@pytest.mark.parametrize(("nodes", "peer"), [(1, "other GPUs"), (2, "other nodes")])
def test_reports_say_where_gradients_went(nodes, peer):
    run = vgpu.cluster(nodes, 4 // nodes, "A100").run(data_parallel)
    ends = {end for x in run.ranks[0].report().links for end in (x.source, x.target)}
    assert ends - {"host"} == {"GPU 0", peer}


def test_a_step_of_several_optimizers_is_one_step():
    def program(n: int) -> None:
        net = layers(4)
        parts = [list(net[i::n].parameters()) for i in range(n)]
        optimizers = [torch.optim.SGD(part, lr=0.1) for part in parts]
        for _ in range(3):
            net(torch.zeros(256, WIDTH, device="vgpu")).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    cluster = vgpu.cluster(1, 1, "A100")
    one, two = (cluster.run(lambda n=n: program(n)) for n in (1, 2))
    assert two.seconds == pytest.approx(one.seconds, rel=0.2)


# ------------------------------------------------------------------ memory


def test_a_rank_has_the_memory_of_the_same_program_on_one_gpu():
    run = vgpu.cluster(1, 1, "A100", allocator=None).run(lambda: train(layers(3)))
    simulator = vgpu.simulator(1, "A100", backing="meta")
    train(layers(3, simulator.gpu()), simulator.gpu())
    assert run.ranks[0].allocated == torch.vgpu.max_memory_allocated(simulator.gpu())
    simulator.close()


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_sharding_divides_parameters_gradients_and_state(gpus):
    from torch.distributed.fsdp import fully_shard

    def program() -> None:
        net = layers(4)
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(2):
            net(torch.zeros(8, WIDTH, device="vgpu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    run = vgpu.cluster(1, gpus, "A100").run(program)
    peak = run.ranks[0].memory.peak
    nbytes = 4 * (WIDTH + 1) * WIDTH * 4
    assert peak["optimizer state"] == pytest.approx(2 * nbytes / gpus, rel=0.01)
    assert run.ranks[0].reserved >= run.ranks[0].allocated


@pytest.mark.parametrize("synchronizes", [False, True])
def test_memory_that_another_stream_used_is_used_again(synchronizes):
    """FSDP1 records streams, and waits for the host so that it can use memory again."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    def program(steps: int) -> None:
        policy = ModuleWrapPolicy({nn.Linear})
        net = FullyShardedDataParallel(layers(6), auto_wrap_policy=policy, device_id=0)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(steps):
            net(torch.zeros(8, WIDTH, device="vgpu")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            if synchronizes:
                torch.vgpu.synchronize()

    cluster = vgpu.cluster(1, 4, "A100")
    two, six = (cluster.run(lambda n=n: program(n)).ranks[0] for n in (3, 6))
    assert six.allocated == two.allocated
    assert six.reserved <= 1.1 * two.reserved


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("depth", [1, 4])
def test_data_parallelism_stores_what_its_documentation_says(depth, view):
    """Parameters and buckets of gradients, and with gradients of their own 1 more."""

    def program() -> None:
        net = layers(depth)
        net = DistributedDataParallel(net, gradient_as_bucket_view=view)
        left = []
        for _ in range(3):
            net(torch.zeros(8, WIDTH, device="vgpu")).sum().backward()
            left.append(torch.vgpu.memory_allocated())
        nbytes = depth * (WIDTH + 1) * WIDTH * 4
        assert left[1] == left[2]
        found.append(left[-1] / nbytes)

    found: list[float] = []
    vgpu.cluster(1, 4, "A100", allocator=None).run(program)
    assert found[0] == pytest.approx(2 if view else 3, rel=0.01)


def test_shards_are_initialized_where_they_are():
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import _random

    before = _random.OffsetBasedRNGTracker.__dict__.copy()

    def program() -> None:
        with torch.device("meta"):
            net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
        for part in (*net, net):
            fully_shard(part)
        net.to_empty(device="vgpu")
        for layer in net:
            layer.reset_parameters()
            nn.init.trunc_normal_(layer.weight)
        train_on = torch.ones(8, 64, device="vgpu")
        net(train_on).sum().backward()

    vgpu.cluster(1, 4).run(program)
    after = _random.OffsetBasedRNGTracker.__dict__
    assert after["__init__"] is before["__init__"]


def test_a_plan_that_does_not_fit_says_where_and_how_much_is_missing():
    with pytest.raises(torch.OutOfMemoryError) as caught:
        vgpu.cluster(1, 2, "T4", memory="1GiB").run(lambda: train(layers(40)))
    message = str(caught.value)
    assert message.startswith("The program doesn't fit on rank 0 of 2 × T4, simulated")
    assert "for the next tensor" in message
    assert "MiB are missing" in message
    assert any(x.name == "train" for x in caught.traceback)  # the program's own line
    assert "Largest: parameters" in message


# ------------------------------------------------------------------ bad programs


def test_ranks_that_wait_for_ever_are_named():
    def each_receives_first() -> None:
        rank = dist.get_rank()
        if rank < 2:
            dist.recv(torch.zeros(4, device="vgpu"), 1 - rank)

    with pytest.raises(RuntimeError, match=r"rank 0 waits for rank 1.*receive of 16"):
        vgpu.cluster(1, 4).run(each_receives_first)

    def one_only() -> None:
        if dist.get_rank() == 3:
            dist.all_reduce(torch.zeros(4, device="vgpu"))

    with pytest.raises(RuntimeError, match="rank 3 waits for rank 0, which has ended"):
        vgpu.cluster(1, 4).run(one_only, ranks=[3])

    def objects() -> None:
        if dist.get_rank() < 2:
            dist.recv_object_list([None], 1 - dist.get_rank())

    with pytest.raises(RuntimeError, match="waits for ever: it receives an object"):
        vgpu.cluster(1, 4).run(objects)


@pytest.mark.parametrize("what", ["size", "kind"])
def test_ranks_that_meet_in_different_collectives_are_named(what):
    def program() -> None:
        odd = dist.get_rank() % 2
        X = torch.zeros(4 + odd * (what == "size"), device="vgpu")
        if what == "kind" and odd:
            dist.broadcast(X, 0)
        else:
            dist.all_reduce(X)

    with pytest.raises(RuntimeError, match="Ranks 0 and 1 meet in different"):
        vgpu.cluster(1, 2).run(program, ranks=[1])


def test_bad_arguments_get_a_sentence():
    for arguments, sentence in (
        ((0, 8), "The number of nodes must be at least 1, not 0"),
        ((1, 2.0), "The number of GPUs in a node must be an integer, not 2.0"),
        ((2, 8, "H1000"), "did you mean 'H100'"),
        ((2, 8, "H100", "NDX"), "did you mean 'NDR'"),
    ):
        with pytest.raises((TypeError, ValueError), match=sentence):
            vgpu.cluster(*arguments)
    cluster = vgpu.cluster(1, 2)
    with pytest.raises(ValueError, match="There is no rank 2: this cluster has ranks"):
        cluster.run(data_parallel, ranks=[2])
    with pytest.raises(TypeError, match="The ranks must be several"):
        cluster.run(data_parallel, ranks=1)
    for wrong in (0, -3, "1k", True):
        with pytest.raises(ValueError, match="The number of tokens must be over 0"):
            cluster.run(data_parallel, tokens=wrong)
    with pytest.raises(ValueError, match=r"There is no file 'missing\.py'"):
        cluster.run("missing.py")


# ------------------------------------------------------------------ what is left behind


def test_nothing_is_left_behind_whether_the_program_fails_or_not():
    vgpu.enable(3)
    machine = vgpu.machine_in_use()
    X = torch.ones(2, device="vgpu:2")
    before = dict(os.environ), torch.get_rng_state(), random.getstate(), sys.excepthook

    def failing() -> None:
        torch.rand(3)
        random.random()
        train(layers(1))
        raise KeyError("mine")

    for program in (data_parallel, failing):
        try:
            vgpu.cluster(2, 4).run(program)
        except KeyError as error:
            assert "rank 0 of 8 × H100" in error.__notes__[0]
        assert dict(os.environ) == before[0]
        assert torch.equal(torch.get_rng_state(), before[1])
        assert (random.getstate(), sys.excepthook) == before[2:]
        assert not dist.is_initialized()
        assert vgpu.machine_in_use() is machine
        assert torch.vgpu.device_count() == 3
        assert (X + X).tolist() == [2, 2]


def test_values_are_zeros_and_a_warning_says_so():
    seen = []

    def program() -> None:
        X = torch.rand(4, device="vgpu")
        seen.extend([X.sum().item(), bool((X > 0.5).any()), X.cpu().tolist()])
        kept = torch.tensor([3, 1, 2]).to("vgpu")
        seen.append(kept.cpu().tolist())

    with pytest.warns(UserWarning, match="tensors have no values") as caught:
        vgpu.cluster(1, 2).run(program)
    assert seen == [0.0, False, [0.0] * 4, [3, 1, 2]]
    assert {warning.filename for warning in caught} == {__file__}
    simulator = vgpu.simulator(1, backing="meta")
    with pytest.raises(RuntimeError, match="needs the values"):
        torch.rand(4, device=simulator.gpu()).sum().item()
    simulator.close()


def test_the_warning_can_be_filtered_by_the_caller():
    def program() -> None:
        torch.rand(4, device="vgpu").sum().item()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "In a simulated cluster")
        vgpu.cluster(1, 2).run(program)
    assert caught == []


def test_a_large_model_made_on_the_cpu_takes_no_memory_there():
    small, large = torch.zeros(16), torch.zeros(2**20)

    def program() -> None:
        for x in (small, large):
            nn.init.constant_(x, 3)

    vgpu.cluster(1, 2).run(program)
    assert (small.max(), large.max()) == (3, 0)  # no page of it was written
    program()
    assert large.min() == 3


def test_what_needs_no_values_runs_although_there_are_none():
    seen = []

    def program() -> None:
        net, X = layers(2), torch.ones(8, WIDTH, device="vgpu")
        start, end = (torch.vgpu.Event(enable_timing=True) for _ in "ab")
        start.record()
        torch.compile(net, backend="eager")(X).sum().backward()
        end.record()
        torch.vgpu.synchronize()
        seen.append(start.elapsed_time(end))
        assert end.query()
        seen.append(torch.ops.aten.is_nonzero(X.sum()))
        edge = torch.autograd.graph.get_gradient_edge(net(X).sum())
        torch.autograd.backward(edge, grad_tensors=torch.ones((), device="vgpu"))

    vgpu.cluster(1, 2).run(program)
    assert seen == [0.0, False]


@pytest.mark.parametrize("code", [None, 0])
def test_a_program_may_end_by_exit(code):
    def program() -> None:
        train(layers(1))
        sys.exit(code)

    assert vgpu.cluster(1, 2).run(program).has_steps
    with pytest.raises(SystemExit):
        vgpu.cluster(1, 2).run(lambda: sys.exit(3))


def test_a_program_that_does_nothing_takes_no_time():
    run = vgpu.cluster(1, 2).run(lambda: None)
    assert run.seconds == 0
    assert "0 s for the whole program" in repr(run)


def test_work_that_nobody_waits_for_lets_backward_go_on():
    def program(wait: bool) -> None:
        net, X = layers(4), torch.ones(4096, WIDTH, device="vgpu")
        work = dist.all_reduce(torch.zeros(2**31, device="vgpu"), async_op=True)
        net(X).sum().backward()
        if wait:
            work.wait()
        net(X)

    cluster = vgpu.cluster(1, 8, "A100")
    free, waiting = (
        cluster.run(lambda wait=wait: program(wait)).ranks[0].clock.end_of(0, 0)
        for wait in (False, True)
    )
    assert free < waiting


def test_a_program_sees_the_cluster_that_torchrun_would_tell_it_of():
    seen = []
    names = "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"

    def program() -> None:
        seen.append([int(os.environ[name]) for name in names])
        seen.append([dist.get_rank(), torch.vgpu.current_device()])
        dist.init_process_group("nccl")  # again, as scripts do
        assert dist.new_group([0, 1], backend="gloo") is not None

    vgpu.cluster(3, 4).run(program, ranks=[6])
    assert seen == [[0, 0, 0, 12, 4], [0, 0], [6, 2, 1, 12, 4], [6, 2]]


# ------------------------------------------------------------------ results


def test_rates_follow_from_what_was_done():
    cluster = vgpu.cluster(1, 2, "A100")
    parameters = 3 * (WIDTH + 1) * WIDTH
    run = cluster.run(data_parallel, tokens=512, parameters=parameters)
    assert run.tokens_per_second == pytest.approx(512 / run.seconds)
    needed = 6 * parameters * 512 / run.seconds
    assert run.mfu == pytest.approx(needed / (2 * 312e12))
    assert 0 < run.utilization < 1
    text = repr(run)
    assert text.startswith(f"{cluster!r}\n")
    assert "simulated" in text
    assert run._repr_html_().count("<table") == 2


def test_the_critical_path_is_as_long_as_the_step():
    for program, gpus in ((data_parallel, 2), (pipeline(2, 3), 2)):
        run = vgpu.cluster(1, gpus, "A100").run(program)
        clocks = {rank: each.clock for rank, each in run.ranks.items()}
        path = sim.critical_path.critical_path(clocks, run._begin, run._end)
        assert sum(seconds for *_, seconds in path) == pytest.approx(run.seconds)
        assert all(seconds > 0 for *_, seconds in path)


def test_a_timeline_of_the_ranks_is_drawn_and_saved(tmp_path):
    run = vgpu.cluster(1, 2, "A100").run(pipeline(2, 3))
    drawing = run.timeline()
    assert {"rank 0 compute", "rank 1 compute", "rank 1 in"} <= set(drawing.rows)
    assert "host" not in drawing.rows
    drawing.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    ends = [
        event["ts"] + event["dur"] for event in trace["traceEvents"] if "dur" in event
    ]
    assert max(ends) == pytest.approx(run.seconds * 1e6, rel=0.01)


SCRIPT = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
net = DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    loss = net(torch.rand(8, 64).cuda()).mean()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.1f} on {net.device} of {torch.cuda.device_count()}")
"""


def test_a_script_for_torchrun_runs_on_a_cluster_by_a_command(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "d2l_gpu.vgpu", "--cluster", "2x4:A100"]
    done = subprocess.run(
        [*command, "--timeline", "trace.json", "--tokens", "64", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    first, second, about, *_ = done.stdout.splitlines()
    assert first == second == "0.0 on cuda:0 of 4"
    assert about.startswith("8 × A100, simulated, in 2 nodes of 4")
    assert "tokens/s" in done.stdout
    assert "critical path" in done.stdout
    assert json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    wrong = subprocess.run(
        [*command[:-1], "8:A100", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
    )
    assert wrong.returncode == 2
    assert "a cluster is written as nodes" in wrong.stderr


def test_warnings_are_not_turned_off_for_others():
    filters = warnings.filters[:]
    vgpu.cluster(1, 2).run(lambda: None)
    assert warnings.filters == filters
