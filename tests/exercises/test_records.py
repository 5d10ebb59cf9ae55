"""Plain data cross from an answer's process as they are, and nothing else does."""

import os

import pytest

from d2l_gpu.exercises.records import RecordError, from_json, to_json

PLAIN = [
    None,
    True,
    -3,
    2.5,
    "ä\n",
    b"\0\xff",
    [1, [2, (3, "4")], {5, 6}],
    {"a": 1, 2: (3,), (4, 5): None},
    float("inf"),
]


@pytest.mark.parametrize("value", PLAIN, ids=str)
def test_plain_data_cross(value):
    assert from_json(to_json(value)) == value
    assert type(from_json(to_json(value))) is type(value)


@pytest.mark.parametrize(
    "dtype", ["float32", "int64", "uint8", "bool", "complex64", ">f4", "<i2", ">i8"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_arrays_cross(dtype, shape):
    import numpy as np

    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = from_json(to_json({"x": array.T}))["x"]
    assert found.dtype == array.dtype and np.array_equal(found, array.T)
    assert from_json(to_json(np.float32(0.5))) == 0.5


@pytest.mark.parametrize(
    "value",
    [object(), print, os, {"a": object()}],
    ids=["object", "function", "module", "dictionary"],
)
def test_anything_else_does_not(value):
    with pytest.raises(RecordError):
        to_json(value)


def test_data_within_themselves_do_not():
    endless: list = []
    endless.append(endless)
    with pytest.raises(RecordError):
        to_json(endless)


NO_RECORDS = [
    "",
    "{",
    "{}",
    '{"d2l_gpu": "eval", "of": []}',
    '{"d2l_gpu": "array", "of": ""}',
    '{"d2l_gpu": "array", "dtype": "O", "shape": [1], "of": "AAAAAAAAAAA="}',
]


@pytest.mark.parametrize("text", NO_RECORDS)
def test_what_is_no_record_is_an_error(text):
    with pytest.raises(RecordError):
        from_json(text)
