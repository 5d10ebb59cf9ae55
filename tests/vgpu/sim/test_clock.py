"""The clock by itself, with times that can be worked out on paper."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread

import pytest

from d2l_gpu.vgpu.sim import catalogue, commands
from d2l_gpu.vgpu.sim.catalogue import LINKS, MODELS
from d2l_gpu.vgpu.sim.clock import (
    HOST,
    PICO,
    Clock,
    Lane,
    Moment,
    Part,
    Work,
    pico,
    seconds_of,
)
from tests.helpers.clocks import ISSUE, LINK, START, V100, WAIT, a_clock, kernel


def spans(clock: Clock, lane: str = "compute", index: int = 0) -> list[tuple[int, int]]:
    return [(s[2], s[3]) for s in clock.spans if s[0] == index and s[1] == lane]


# ------------------------------------------------------------------ kernels


def test_the_host_issues_and_goes_on_while_the_device_works():
    clock = a_clock()
    clock.note(kernel(1000), 0, 0)
    clock.note(kernel(1000), 0, 0)
    assert clock.now() == 2 * ISSUE / PICO
    assert clock.elapsed() == pytest.approx(2e-3 + (ISSUE + START) / PICO, rel=1e-6)


def test_many_small_kernels_take_as_long_as_the_host_takes_to_issue_them():
    clock = a_clock()
    for _ in range(100):
        clock.note(kernel(1.5), 0, 0)
    assert clock.elapsed() == pytest.approx((100 * ISSUE + START) / PICO, abs=2e-6)


def test_waiting_takes_the_host_to_the_end_and_a_moment_longer():
    clock = a_clock()
    clock.note(kernel(1000), 0, 0)
    end = clock.elapsed()
    clock.note(commands.HostWaits([0]), 0, 0)
    assert clock.now() == pytest.approx(end + WAIT / PICO, rel=1e-12)
    before = clock.now()
    clock.note(commands.HostWaits([0]), 0, 0)  # nothing more to wait for
    assert clock.now() == before


def test_two_devices_work_at_the_same_time():
    clock = a_clock(0, 1)
    for i in (0, 1):
        clock.note(kernel(1000), i, 0)
    assert clock.elapsed() < 1.1e-3


def test_a_cpu_is_the_host():
    clock = a_clock(model=replace(V100, asynchronous=False))
    clock.note(("k", round(1e-3 * V100.bandwidth * catalogue.MEMORY.value)), 0, 0)
    assert clock.now() == clock.elapsed() == pytest.approx(1e-3 + ISSUE / PICO)


def test_streams_of_a_device_take_turns_and_fill_each_others_gaps():
    clock, moment = a_clock(), Moment()
    clock.note(kernel(500), 0, 1)
    clock.note(commands.CopyCommand(10**8, HOST, 0, True, False, (0, 2)), 0, 0)
    clock.note(commands.Record(moment), 0, 2)
    clock.note(commands.StreamWaits(moment), 0, 3)
    clock.note(kernel(100, "waits"), 0, 3)
    clock.note(kernel(100, "does not"), 0, 1)
    clock.work_off()
    (first, waits, other) = spans(clock)
    assert waits[0] == moment.time > first[1]
    assert other == (first[1], first[1] + (other[1] - other[0]))


# ------------------------------------------------------------------ copies


def test_copies_in_both_directions_and_a_kernel_overlap():
    clock, nbytes = a_clock(), 10**8
    clock.note(commands.CopyCommand(nbytes, HOST, 0, True, False, (0, 1)), 0, 0)
    clock.note(commands.CopyCommand(nbytes, 0, HOST, True, False, (2, 0)), 0, 0)
    clock.note(kernel(5000), 0, 0)
    one = commands.copy_seconds(nbytes, LINKS["PCIe3"])
    assert clock.elapsed() < 1.1 * one


def test_copies_in_one_direction_take_turns_whatever_their_streams():
    clock, nbytes = a_clock(), 10**8
    for stream in (1, 2):
        clock.note(
            commands.CopyCommand(nbytes, HOST, 0, True, False, (0, stream)), 0, 0
        )
    one = commands.copy_seconds(nbytes, LINKS["PCIe3"])
    assert clock.elapsed() == pytest.approx(2 * one, rel=0.01)


def test_a_copy_between_devices_waits_for_both_and_both_wait_for_it():
    clock = a_clock(0, 1)
    clock.note(kernel(1000), 0, 0)
    clock.note(commands.CopyCommand(10**6, 0, 1, False, False, (0, 0)), 0, 0)
    clock.note(kernel(100), 1, 0)
    clock.work_off()
    ((_, computed),) = spans(clock)
    ((begin, end),) = spans(clock, "out", 0)
    assert spans(clock, "in", 1) == [(begin, end)]
    assert begin == computed
    assert spans(clock, index=1)[0][0] == end


# ------------------------------------------------------------------ collectives


def test_a_ring_sends_almost_twice_the_tensor_whatever_the_number():
    nbytes = 10**9
    two, many = (
        commands.ring_seconds("all_reduce", nbytes, n, LINK) for n in (2, 1024)
    )
    assert two == pytest.approx(
        nbytes / LINK.bandwidth / catalogue.LINK.value, rel=0.01
    )
    assert many == pytest.approx(2 * two + 2046 * LINK.step, rel=0.01)


def test_over_one_device_the_time_grows_with_the_number():
    times = [commands.naive_seconds(10**8, n, LINK) for n in (2, 3, 5)]
    assert times[1:] == pytest.approx([2 * times[0], 4 * times[0]])


def test_a_collective_beside_other_work_is_waited_for_on_demand():
    clock, done = a_clock(0, 1), Moment()
    for beside in (True, False):
        clock.reset()
        clock.note(kernel(10), 0, 0)
        command = commands.Collective("c", [0, 1], 1e-3, 8, beside, done)
        clock.note(command, 0, 0)
        clock.note(kernel(500), 0, 0)
        elapsed = clock.elapsed()
        assert (elapsed < 1.2e-3) is beside
    clock.note(commands.StreamWaits(done), 1, 0)
    clock.note(kernel(10), 1, 0)
    clock.work_off()
    assert spans(clock, index=1)[0][0] >= done.time


# ------------------------------------------------------------------ events, reset


def test_a_moment_comes_when_the_stream_gets_there():
    clock, first, second = a_clock(), Moment(), Moment()
    for moment in (first, second):
        clock.note(kernel(1000), 0, 0)
        clock.note(commands.Record(moment), 0, 0)
    clock.work_off()
    assert second.time - first.time == pytest.approx(PICO / 1000, rel=1e-6)
    clock.note(commands.HostWaits(moment=first), 0, 0)
    assert clock.now() < clock.elapsed()


def test_waiting_for_a_moment_that_is_past_changes_nothing():
    clock, early = a_clock(), Moment()
    clock.note(commands.Record(early), 0, 1)
    for _ in range(2):
        clock.note(kernel(1000), 0, 0)
        clock.note(commands.StreamWaits(early), 0, 0)
    late = Moment()
    clock.note(commands.Record(late), 0, 0)
    clock.work_off()
    assert late.time == spans(clock)[-1][1] > 2e-3 * PICO


def test_the_host_can_wait_for_several_devices():
    clock = a_clock(0, 1)
    for i, microseconds in enumerate((1000, 10)):
        clock.note(kernel(microseconds), i, 0)
    end = clock.elapsed()
    clock.note(commands.HostWaits([0, 1]), 0, 0)
    assert clock.now() == pytest.approx(end + WAIT / PICO, rel=1e-12)


def test_asking_whether_a_moment_has_passed_ends_with_yes():
    clock, moment = a_clock(), Moment()
    clock.note(kernel(100), 0, 0)
    clock.note(commands.Record(moment), 0, 0)
    asked = 1
    while not clock.has_passed(moment):
        asked += 1
    assert 5 < asked < 100


def test_reset_waits_for_everything_and_starts_anew():
    clock = a_clock()
    clock.note(kernel(1000), 0, 0)
    clock.reset()
    assert clock.elapsed() == clock.now() == 0
    assert not clock.spans
    clock.note(kernel(100), 0, 0)
    assert clock.elapsed() == pytest.approx(1e-4 + (ISSUE + START) / PICO, rel=1e-3)
    assert clock.host() > 1e-3 * PICO


def test_times_do_not_depend_on_when_somebody_asks():
    often, once = a_clock(0, 1), a_clock(0, 1)
    for clock in (often, once):
        for i in range(200):
            clock.note(kernel(1 + i % 7), i % 2, i % 3)
            if i % 5 == 0:
                copy = commands.CopyCommand(
                    i * 999 + 1, HOST, i % 2, True, False, (0, 0)
                )
                clock.note(copy, i % 2, 0)
            if clock is often:
                clock.elapsed()
    assert often.elapsed() == once.elapsed()
    assert often.spans == once.spans


@pytest.mark.skipif(sys.platform == "emscripten", reason="no threads in a browser")
def test_threads_issue_at_the_same_time_and_the_first_waits_for_all():
    clock = a_clock(0, 1)
    clock.note(kernel(10), 0, 0)

    def work(i):
        for _ in range(50):
            clock.note(kernel(10), i, 0)

    threads = [Thread(target=work, args=[i]) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == 51 * ISSUE / PICO
    clock.note(kernel(10), 0, 0)
    assert clock.now() == 52 * ISSUE / PICO


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("order", ["in turns", "one after the other", "backwards"])
def test_threads_that_issue_layers_share_python(threads, order):
    layer, number = pico(catalogue.LAYER.value), 20
    clock = Clock({0: V100}, LINK, lambda key: Work("k", [], key == ("layer",)))
    issued = [
        (("layer",), 0, 0, clock.main + 1 + thread)
        for _ in range(number)
        for thread in range(threads)
    ]
    if order == "one after the other":
        issued.sort(key=lambda note: note[3])
    elif order == "backwards":
        issued.reverse()
    clock.notes += [*issued, (("no layer",), 0, 0, clock.main)]
    alone = number * layer
    shared = number * (ISSUE + threads * (layer - ISSUE))
    assert clock.host() == shared + ISSUE
    assert shared == alone if threads == 1 else alone < shared < threads * alone
    # What isn't Python runs in all threads at the same time.
    clock.reset()
    clock.notes += [(("no layer",), *rest) for _, *rest in issued]
    clock.note(("no layer",), 0, 0)
    assert clock.now() == (number + 1) * ISSUE / PICO


@pytest.mark.skipif(sys.platform == "emscripten", reason="no threads in a browser")
def test_a_thread_that_paused_goes_on_no_earlier_than_the_first():
    clock = a_clock()

    def issue(kernels):
        for _ in range(kernels):
            clock.note(kernel(10), 0, 0)

    issue(1)
    with ThreadPoolExecutor(1) as thread:
        expected = 1
        for pause, kernels in ((20, 5), (3, 1), (0, 4), (50, 2)):
            thread.submit(issue, kernels).result()
            issue(pause)
            expected += kernels + pause
            assert clock.now() == expected * ISSUE / PICO


def test_a_lane_puts_work_into_gaps_that_are_long_enough():
    lane = Lane()
    assert lane.begin(100, 10) == 100
    assert lane.begin(200, 10) == 200
    assert lane.begin(0, 101) == 210  # the gaps are too short
    assert lane.begin(0, 60) == 0
    assert lane.begin(0, 60) == 110
    assert lane.begin(0, 40) == 60
    assert lane.begin(311, 5) == 311


# ------------------------------------------------------------------ the roofline


def test_a_kernel_takes_what_its_slower_side_takes():
    large = (1, 8192, 8192, 8192)
    compute = Part(2 * 8192**3, "fp32", 1, large)
    assert seconds_of(compute, V100) == pytest.approx(
        compute.operations
        / (V100.rates["fp32"] * catalogue.MATRIX.value)
        / catalogue.quantization(80, *large)
    )
    memory = Part(1, "fp32", 10**9)
    assert seconds_of(memory, V100) == 10**9 / (V100.bandwidth * catalogue.MEMORY.value)


def test_tensor_cores_run_products_in_the_types_that_they_have():
    shape = (1, 4096, 4096, 4096)
    seconds = {
        (name, kind): seconds_of(Part(2 * 4096**3, kind, 1, shape), MODELS[name])
        for name in ("V100", "A100")
        for kind in ("fp32", "tf32", "bf16", "fp16")
    }
    v100 = {
        kind: seconds["V100", kind] / seconds["V100", "fp32"] for _, kind in seconds
    }
    assert v100["tf32"] == v100["bf16"] == 1  # it has neither
    assert v100["fp16"] == pytest.approx(15.7 / 125)
    assert seconds["A100", "tf32"] / seconds["A100", "bf16"] == pytest.approx(2)
    assert seconds["A100", "fp32"] / seconds["A100", "tf32"] == pytest.approx(8)


@pytest.mark.parametrize(
    "units, product, share",
    [
        # One wave of 7 × 14 tiles of 256 × 128 on 108 multiprocessors: the example of
        # NVIDIA's guide. One column more is another wave.
        (108, (1, 1792, 1792, 4096), 98 / 108),
        (80, (1, 64, 64, 64), 1 / 80),
        (80, (1, 1, 64, 64), 1 / 80 / 64),
        (80, (80, 64, 64, 64), 1.0),
        # The inner dimension is divided where there are few tiles.
        (80, (1, 64, 64, 64 * 128), 64 / 80),
    ],
)
def test_quantization(units, product, share):
    assert catalogue.quantization(units, *product) == pytest.approx(share, rel=0.02)


def test_one_column_more_can_cost_another_wave():
    whole = catalogue.quantization(108, 1, 256 * 12, 128 * 9, 4096)
    more = catalogue.quantization(108, 1, 256 * 12, 128 * 9 + 1, 4096)
    assert whole == 1
    assert more < 0.9
