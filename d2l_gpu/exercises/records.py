"""Plain data as JSON, which crosses from one process to another.

An answer's process sends what it found as records: numbers, texts, arrays, and lists,
tuples, sets and dictionaries of them. Reading JSON runs nobody's code, unlike reading a
pickle, so the process that gives the verdict stays out of an answer's reach.
"""

import base64
import json
import numbers
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# Marks what JSON has no notation for: {_MARK: "tuple", "of": […]}.
_MARK = "d2l_gpu"
_COLLECTIONS = {"tuple": tuple, "set": set}


class RecordError(ValueError):
    """A value isn't plain data, or a text isn't a record."""


def to_json(value: Any) -> str:
    """Return a value as one line of JSON.

    Args:
        value: None, a boolean, a number, a text, bytes, an array of NumPy, or a list,
            tuple, set or dictionary of these. Subclasses count as what they derive
            from.
    Raises:
        RecordError: the value is or contains something else.
    """
    try:
        return json.dumps(_plain(value))
    except (RecursionError, OverflowError, TypeError) as error:
        raise RecordError("the data are too large, or contain themselves") from error


def from_json(text: str) -> Any:
    """Return the value that `to_json` made a text from.

    Raises:
        RecordError: `to_json` didn't make this text.
    """
    try:
        return _value(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordError(f"this is no record: {text[:80]!r}") from error


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, of exactly its own types."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, bytes):
        return {_MARK: "bytes", "of": base64.b64encode(value).decode("ascii")}
    if isinstance(value, list):
        return [_plain(each) for each in list.__iter__(value)]
    for name, kind in _COLLECTIONS.items():
        if isinstance(value, kind):
            return {_MARK: name, "of": [_plain(each) for each in kind.__iter__(value)]}
    if isinstance(value, dict):
        pairs = [[_plain(key), _plain(each)] for key, each in dict.items(value)]
        return {_MARK: "dict", "of": pairs}
    if type(value).__module__ == "numpy":
        return _array(value)
    raise RecordError(f"a {type(value).__name__} is no plain data")


def _array(value: "np.ndarray | np.generic") -> Any:
    import numpy as np

    if isinstance(value, np.bool_):
        return bool(value)
    if not isinstance(value, np.ndarray) or value.dtype.hasobject:
        raise RecordError(f"a {type(value).__name__} is no plain data")
    if value.dtype.kind not in "biufc":  # such as bfloat16, which isn't NumPy's own
        value = value.astype(np.float32)
    return {
        _MARK: "array",
        "dtype": value.dtype.str,
        "shape": list(value.shape),
        "of": base64.b64encode(np.ascontiguousarray(value).tobytes()).decode("ascii"),
    }


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(each) for each in plain]
    if not isinstance(plain, dict):
        return plain
    kind, of = plain[_MARK], plain["of"]
    if kind == "bytes":
        return base64.b64decode(of, validate=True)
    if kind == "dict":
        return {_value(key): _value(each) for key, each in of}
    if kind == "array":
        import numpy as np

        data = base64.b64decode(of, validate=True)
        return np.frombuffer(data, np.dtype(plain["dtype"])).reshape(plain["shape"])
    return _COLLECTIONS[kind](_value(each) for each in of)
