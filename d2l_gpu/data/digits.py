"""scikit-learn's handwritten digits, the same in every framework's lessons."""

from typing import TYPE_CHECKING

from d2l_gpu.common.requirements import install

if TYPE_CHECKING:
    import numpy as np

TRAIN, TEST = slice(None, -360), slice(-360, None)  # of 1,797


def mixed_digits() -> tuple["np.ndarray", "np.ndarray"]:
    """Return images and labels, which ship with scikit-learn: no download is needed.

    They are shuffled, always in the same order, because in the original each writer's
    digits follow one another.

    Returns:
        Images, float64 (1797, 8, 8), whole numbers from 0 to 16; and labels, int64
        (1797,).
    Raises:
        ImportError: scikit-learn is not installed.
    Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, 1998,
        https://doi.org/10.24432/C50P49, from scikit-learn's ``load_digits``.
    """
    import numpy as np

    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "The digits come with scikit-learn, which is not installed: "
            f"{install('lessons')}.",
            name=error.name,
        ) from error
    digits = load_digits()
    # NumPy guarantees the same RandomState numbers in all versions (NEP 19).
    mixed = np.random.RandomState(0).permutation(len(digits.target))
    return digits.images[mixed], digits.target[mixed].astype(np.int64)
