"""Arguments that several functions take are checked in the same way."""

import math

import numpy as np
import pytest

from d2l_gpu.common.arguments import check_learning_rate


@pytest.mark.parametrize("lr", [0.1, 1, 1e-300, np.float32(0.5)])
def test_a_learning_rate_is_a_positive_number(lr):
    check_learning_rate(lr)


@pytest.mark.parametrize(
    ("lr", "error"),
    [
        *((lr, ValueError) for lr in (0, -0.1, math.nan, math.inf, np.float32("nan"))),
        *((lr, TypeError) for lr in ("0.1", True, None, [0.1])),
    ],
)
def test_another_learning_rate_is_refused_in_one_sentence(lr, error):
    with pytest.raises(error, match=r"^A learning rate is a .* not ") as caught:
        check_learning_rate(lr)
    assert "\n" not in str(caught.value)
