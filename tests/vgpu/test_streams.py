"""``torch.vgpu``: streams, events, and what else ``torch.cuda`` has."""

import threading

import pytest
import torch

pytestmark = pytest.mark.virtual_gpus(2)


def test_the_current_stream_belongs_to_device_and_thread():
    first, second = torch.vgpu.Stream(0), torch.vgpu.Stream("vgpu:1")
    assert torch.vgpu.current_stream() == torch.vgpu.default_stream()
    with torch.vgpu.stream(first):
        assert torch.vgpu.current_stream() == first
        with second:
            assert torch.vgpu.current_device() == 1
            assert torch.vgpu.current_stream() == second
            assert torch.vgpu.current_stream(0) == first
        assert torch.vgpu.current_device() == 0
        seen = []
        thread = threading.Thread(
            target=lambda: seen.append(torch.vgpu.current_stream(0))
        )
        thread.start()
        thread.join()
        assert seen == [torch.vgpu.default_stream(0)]
    assert torch.vgpu.current_stream() == torch.vgpu.default_stream()
    with torch.vgpu.stream(None):
        assert torch.vgpu.current_stream() == torch.vgpu.default_stream()


def test_streams_are_told_apart():
    streams = {torch.vgpu.Stream(0), torch.vgpu.Stream(0), torch.vgpu.Stream(1)}
    assert len(streams) == 3
    assert torch.vgpu.default_stream(0) == torch.vgpu.default_stream(0)
    assert torch.vgpu.default_stream(0) != torch.vgpu.default_stream(1)
    assert repr(torch.vgpu.default_stream(1)) == (
        "<torch.vgpu.Stream device=vgpu:1 stream_id=0>"
    )


def test_work_is_in_order_whichever_stream_it_is_on():
    X = torch.zeros(4, device="vgpu:0")
    side = torch.vgpu.Stream(0)
    side.wait_stream(torch.vgpu.current_stream())
    with torch.vgpu.stream(side):
        X += 1
        Y = X.to("vgpu:1", non_blocking=True)
    done = side.record_event()
    torch.vgpu.current_stream().wait_event(done)
    X.record_stream(side)
    side.synchronize()
    assert side.query() and done.query()
    assert Y.tolist() == X.tolist() == [1, 1, 1, 1]


def test_an_event_tells_the_time_if_it_was_asked_to():
    start, end = (torch.vgpu.Event(enable_timing=True) for _ in range(2))
    start.record()
    with pytest.raises(RuntimeError, match="must be recorded before"):
        start.elapsed_time(end)
    end.record(torch.vgpu.Stream(1))
    end.synchronize()
    assert start.elapsed_time(end) >= 0
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(torch.vgpu.Event())
    with pytest.raises(NotImplementedError, match="cannot be shared between proc"):
        torch.vgpu.Event(interprocess=True)


def test_the_stream_that_is_named_waits_for_an_event_and_no_other():
    source, waits, other = (torch.vgpu.Stream(0) for _ in range(3))
    done, first, second = (torch.vgpu.Event(enable_timing=True) for _ in range(3))
    X = torch.ones(1000, 1000, device="vgpu:0")
    with source:
        for _ in range(20):
            _ = X @ X
    done.record(source)
    with other:
        done.wait(waits)
    first.record(waits)
    second.record(other)
    assert done.elapsed_time(first) >= 0
    assert done.elapsed_time(second) < 0


def test_properties_say_that_it_is_virtual():
    properties = torch.vgpu.get_device_properties("vgpu:1")
    assert properties.name.startswith("virtual GPU: computed on the CPU")
    assert properties.total_memory == torch.vgpu.mem_get_info(1)[1]
    assert torch.vgpu.get_device_capability() == (0, 0)
    assert torch.vgpu.can_device_access_peer(0, 1)
    assert not torch.vgpu.can_device_access_peer(1, 1)


def test_the_device_of_a_tensor_can_be_the_current_one():
    X = torch.ones(1, device="vgpu:1")
    with torch.vgpu.device_of(X):
        assert torch.vgpu.current_device() == 1
    with torch.vgpu.device_of(torch.ones(1)):
        assert torch.vgpu.current_device() == 0


@pytest.mark.parametrize("index", [0, 1])
def test_the_classes_for_any_device_make_those_of_virtual_gpus(index):
    device = torch.device("vgpu", index)
    stream = torch.Stream(device=device, priority=-1)
    assert type(stream) is torch.vgpu.Stream and stream.device == device
    assert stream.priority == -1 and stream.device_index == index
    start, end = (torch.Event(device, enable_timing=True) for _ in range(2))
    assert start.device == end.device == device
    X = torch.ones(500, 500, device=device)
    with stream:
        assert torch.accelerator.current_device_index() == index
        assert torch.accelerator.current_stream() == stream
        start.record()
        _ = X @ X
        end.record()
    torch.accelerator.current_stream(device).wait_event(end)
    stream.synchronize()
    assert end.query() and start.elapsed_time(end) > 0
    again = torch.Stream(stream.stream_id, index, stream.device_type)
    assert again == stream and hash(again) == hash(stream)


def test_without_a_device_a_stream_and_an_event_are_on_the_current_one():
    with torch.vgpu.device(1):
        stream, event = torch.Stream(), torch.Event()
    assert stream.device == event.device == torch.device("vgpu:1")
    event.record(torch.vgpu.Stream(0))
    assert event.device == torch.device("vgpu:0")


def test_the_classes_are_related_as_those_of_cuda():
    for kind, of in (
        (torch.vgpu.Stream, torch.Stream),
        (torch.vgpu.Event, torch.Event),
    ):
        assert issubclass(kind, of) and isinstance(kind(), of) and kind is not of
        assert isinstance(of(), kind)
    assert not isinstance(torch.vgpu.Event(), torch.Stream)
    event = torch.Event("cpu")  # of PyTorch's own class, as it was
    assert isinstance(event, torch.Event)
    assert not isinstance(event, torch.vgpu.Event)

    class Own(torch.Event):
        """Of a library that adds to PyTorch's class."""

    assert issubclass(Own, torch.Event) and isinstance(Own("cpu"), Own)
    assert not isinstance(event, Own)


def test_streams_and_events_have_a_number_where_cuda_has_an_address():
    streams = [torch.vgpu.Stream(0), torch.vgpu.Stream(1)]
    assert torch.vgpu.default_stream(1).cuda_stream == 0
    assert 0 != streams[0].cuda_stream != streams[1].cuda_stream != 0
    events = [torch.vgpu.Event() for _ in range(2)]
    assert [event.cuda_event for event in events] == [0, 0]
    for event in events:
        event.record()
    numbers = [event.cuda_event for event in events]
    assert 0 not in numbers and numbers[0] != numbers[1]
    events[0].record(streams[1])
    assert events[0].cuda_event == numbers[0]


def test_an_event_takes_its_settings_by_position_as_in_cuda():
    start, end = torch.vgpu.Event(True), torch.vgpu.Event(True, False)
    start.record()
    end.record()
    assert start.elapsed_time(end) >= 0
