"""Classes that grow, and constructors that keep their arguments."""

import pytest

from d2l_gpu import torch as d2l


def test_a_method_added_later_is_there_on_earlier_objects():
    class A:
        b = 3

    a = A()

    @d2l.add_to_class(A)
    def double(self):
        return 2 * self.b

    assert a.double() == 6
    assert double(a) == 6


def test_adding_to_an_object_is_refused():
    with pytest.raises(TypeError, match="expects a class"):
        d2l.add_to_class("A")


def test_arguments_are_saved_and_the_ignored_are_not():
    class B(d2l.HyperParameters):
        def __init__(self, a, b, c=3, *rest, d, _hidden=0, **more):
            local = a + b
            assert local
            self.save_hyperparameters(ignore=["c"])

    b = B(1, 2, 3, 4, d=5, e=6)
    expected = {"a": 1, "b": 2, "rest": (4,), "d": 5, "more": {"e": 6}}
    assert b.hparams == expected
    assert {name: getattr(b, name) for name in expected} == expected
    assert not hasattr(b, "c")
    assert not hasattr(b, "local")
    assert not hasattr(b, "_hidden")


def test_ignoring_one_name_takes_a_list():
    class C(d2l.HyperParameters):
        def __init__(self, lr):
            self.save_hyperparameters(ignore="lr")

    with pytest.raises(TypeError, match=r"ignore=\['lr'\]"):
        C(0.1)
