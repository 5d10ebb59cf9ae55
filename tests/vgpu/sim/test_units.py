"""Quantities as people read and write them."""

import pytest

from d2l_gpu.vgpu.sim.units import count_text, parse_size, size_text, time_text


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"),
        (1.2345e-3, "1.23 ms"),
        (0.99999, "1.00 s"),
        (12.345e-6, "12.3 µs"),
        (123.45, "123 s"),
        (5e-10, "0.50 ns"),
    ],
)
def test_times_have_three_digits(seconds, text):
    assert time_text(seconds) == text


@pytest.mark.parametrize(
    "count, text",
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00 k"),
        (123_456, "123 k"),
        (2 * 10**15, "2.00 P"),
    ],
)
def test_counts_have_three_digits(count, text):
    assert count_text(count) == text


@pytest.mark.parametrize(
    ("size", "nbytes"),
    [(512, 512), ("512MiB", 2**29), ("1.5 GiB", 3 * 2**29), ("2GB", 2 * 10**9)],
)
def test_sizes_are_understood(size, nbytes):
    assert parse_size(size) == nbytes


@pytest.mark.parametrize("size", ["lots", "12", "-1MiB", 0, -5, "0GiB"])
def test_sizes_without_sense_are_refused(size):
    with pytest.raises(ValueError, match=r"[Mm]emory"):
        parse_size(size)


@pytest.mark.parametrize("size", [True, 1.5, None])
def test_sizes_of_another_type_are_refused(size):
    with pytest.raises(TypeError, match="Memory must be a number of bytes or a string"):
        parse_size(size)


@pytest.mark.parametrize("nbytes", [1, 512, 1025, 3 * 2**19, 5 * 2**30, 2**50])
def test_a_size_that_was_written_is_understood(nbytes):
    text = size_text(nbytes)
    if not text.endswith("bytes"):
        assert parse_size(text) == pytest.approx(nbytes, rel=0.005)
