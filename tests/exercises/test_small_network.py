"""The small network of the exercises learns, always the same, and refuses nonsense."""

import pytest

from d2l_gpu.exercises.small_network import train_small


def test_it_learns_the_digits_and_the_same_each_time():
    accuracy = train_small(32, 4, 0.1)
    assert 0.8 < accuracy < 1
    assert train_small(32, 4, 0.1) == accuracy
    assert train_small(32, 4, 0.1, seed=1) != accuracy


def test_with_too_high_a_learning_rate_it_knows_nothing_and_warns_of_nothing(recwarn):
    assert train_small(32, 4, 100.0) < 0.3
    assert not recwarn.list


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0, 4, 0.1), "The size of a batch"),
        ((1438, 4, 0.1), "There are only 1,437 images, so a batch can't have 1,438"),
        ((32, 1, 0.1), "The number of epochs"),
        ((32, 4, -0.1), "The learning rate must be a number above 0"),
        ((32, 4, "0.1"), "The learning rate must be a number above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        train_small(*arguments)
