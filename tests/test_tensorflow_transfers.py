"""The log of TensorFlow's copies: those that nobody asked for, and fetched values.

One process answers all questions, because an import of TensorFlow takes seconds.
"""

import json
from importlib.util import find_spec

import pytest

from tests.helpers.fresh_process import run_without_torch

needs_tensorflow = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)

PROGRAM = """
import json
from d2l_gpu import tensorflow as d2l
import tensorflow as tf

first, second = d2l.require_gpus(2) or (d2l.gpu(0), d2l.gpu(1))
answers = {}

def put(x, device):
    with tf.device(device):
        return tf.identity(x)

X, Y = put(tf.ones((2, 3)), first), put(tf.ones((2, 3)), second)
with tf.device(second):
    W = tf.Variable(Y)

def log(name, look, scope=second):
    with d2l.transfers() as copies, tf.device(scope):
        look()
    answers[name] = [list(copy) for copy in copies]
    answers[f"{name}, in words"] = copies.summary()

log("operand", lambda: X + Y)
log("twice", lambda: (X + Y, X + Y))
log("no scope", lambda: X + Y, None)
log("variable", lambda: W.assign_add(X))
log("identity", lambda: tf.identity(X))
log("nothing", lambda: tf.reduce_sum(Y + 1.0))
log("fetched", lambda: (float(tf.reduce_sum(Y)), Y.numpy()))
log("sizes", lambda: tf.reshape(Y, tf.constant([3, 2])))
log("after", lambda: None)
answers["names"] = [d2l.name(each) for each in (d2l.cpu(), first, second)]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> dict:
    return json.loads(run_without_torch(PROGRAM).splitlines()[-1])


@needs_tensorflow
def test_operands_on_other_devices_are_logged_once(answers):
    host, first, second = answers["names"]
    assert answers["operand"] == [[24, first, second]]
    assert answers["twice"] == [[24, first, second]]
    assert answers["twice, in words"] == f"1 copy {first} → {second}, 24 bytes"
    assert answers["no scope"] == [[24, first, host], [24, second, host]]
    assert answers["variable"] == [[24, first, second]]
    assert answers["identity"] == [[24, first, second]]


@needs_tensorflow
def test_fetched_values_are_logged(answers):
    host, _, second = answers["names"]
    assert answers["fetched"] == [[4, second, host], [24, second, host]]


@needs_tensorflow
def test_nothing_else_is_logged(answers):
    assert answers["nothing"] == answers["sizes"] == answers["after"] == []
    assert answers["nothing, in words"] == "no copies"
