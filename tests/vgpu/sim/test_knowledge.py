"""What a host knows without knowing times is true on the clock."""

from hypothesis import given, settings
from hypothesis import strategies as st

from d2l_gpu.vgpu.sim import commands
from d2l_gpu.vgpu.sim.clock import HOST, Moment
from d2l_gpu.vgpu.sim.knowledge import Knowledge
from tests.helpers import properties  # noqa: F401  (hypothesis runs as it says)
from tests.helpers.clocks import LINK, START, a_clock, kernel

DEVICE, STREAM, PLACE = st.integers(0, 1), st.integers(0, 2), st.integers(0, 20)
STEP = st.one_of(
    st.tuples(st.just("kernel"), DEVICE, STREAM, st.integers(2, 300)),
    st.tuples(st.just("record"), DEVICE, STREAM, PLACE),
    st.tuples(st.just("stream waits"), DEVICE, STREAM, PLACE),
    st.tuples(st.just("host waits"), DEVICE, STREAM, PLACE),
    st.tuples(st.just("synchronize"), DEVICE, STREAM | st.none(), PLACE),
    st.tuples(st.just("copy"), DEVICE, STREAM, st.integers(1, 10**6)),
    st.tuples(st.just("all-reduce"), DEVICE, STREAM, st.integers(1, 10**6)),
)


@settings(max_examples=150)
@given(program=st.lists(STEP, max_size=25))
def test_whatever_is_known_to_be_over_is_past_on_the_clock(program):
    clock, knowledge, moments = a_clock(0, 1), Knowledge(), []
    for what, device, stream, n in program:
        if what == "kernel":
            key = kernel(n)
        elif what == "record":
            moments.append(Moment())
            key = commands.Record(moments[-1])
        elif what == "copy":
            key = commands.CopyCommand(n, device, HOST, True, n % 2 == 0, (stream, 0))
        elif what == "all-reduce":
            key = commands.ring("all_reduce", [0, 1], n, 2, LINK, beside=True)
            moments.append(key.done)
        elif what == "synchronize":
            key = commands.HostWaits([device], stream)
        elif not moments:
            continue
        else:
            moment = moments[n % len(moments)]
            waits = what == "stream waits"
            key = (
                commands.StreamWaits(moment)
                if waits
                else commands.HostWaits(moment=moment)
            )
        clock.note(key, device, stream or 0)
        knowledge.learn([(key, device, stream or 0, 0)])
        now = clock.host()
        for moment in moments:
            if knowledge.is_over(moment):
                # On an idle device the clock lets nobody wait for a record's launch.
                assert moment.time <= now + START
    if moments:  # and in the end everything is known
        last = commands.HostWaits([0, 1])
        knowledge.learn([(last, 0, 0, 0)])
        assert all(map(knowledge.is_over, moments))


def test_a_stream_hands_on_what_it_has_waited_for():
    knowledge, there, here = Knowledge(), Moment(), Moment()
    knowledge.learn(
        [
            (commands.Record(there), 0, 1, 0),
            (commands.StreamWaits(there), 0, 0, 0),
            (commands.Record(here), 0, 0, 0),
        ]
    )
    assert not knowledge.is_over(there)
    knowledge.learn([(commands.HostWaits(moment=here), 0, 0, 0)])
    assert knowledge.is_over(there)
