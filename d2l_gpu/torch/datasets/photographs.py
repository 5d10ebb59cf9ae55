"""A data set that keeps a processor busy: JPEG files to decode and augment."""

import io
from importlib import resources

import numpy as np
import torch
from torch.utils.data import Dataset

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.common.requirements import install

FILES = ("china.jpg", "flower.jpg")  # in sklearn.datasets.images
HEIGHT, WIDTH = 427, 640
MEAN, STD = 0.45, 0.23  # about those of ImageNet's three channels


class Photographs(Dataset):
    """Photographs that are decoded and augmented at each access.

    Two photographs that come with scikit-learn, of 640 × 427 pixels, stand in for a
    folder of n JPEG files. Each access decodes one, cuts out a square at a random
    place, flips it half of the time, and normalizes it. Training on ImageNet means the
    same work for every picture, and resizing in addition.

    Workers of a ``DataLoader`` that aren't forked, as on Windows and macOS, import this
    class. That's why it's here and not in a notebook.

    Args:
        n: number of photographs, at least 1.
        size: height and width of the squares, at most 427.
    Raises:
        TypeError, ValueError: an argument is invalid.
        ImportError: scikit-learn or Pillow, which comes with Matplotlib, is missing.
    """

    def __init__(self, n: int, size: int = 64):
        check_integer("The number of photographs", n, least=1, example=256)
        check_integer("The size", size, least=1, example=64)
        if size > HEIGHT:
            raise ValueError(
                f"The size must be at most {HEIGHT}, the height of a photograph, but "
                f"got {size}."
            )
        self.n, self.size = n, size
        try:
            import PIL.Image  # noqa: F401
            import sklearn.datasets.images as folder
        except ImportError as error:
            raise ImportError(
                "The photographs need scikit-learn and Pillow, which are not both "
                f"installed: {install('lessons')}."
            ) from error
        self._files = [(resources.files(folder) / name).read_bytes() for name in FILES]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        """Return photograph i, float32 of shape (3, size, size), and its label.

        Raises:
            IndexError: there is no such photograph.
        """
        import PIL.Image

        if not 0 <= i < self.n:
            raise IndexError(
                f"There are {self.n} photographs, from 0 to {self.n - 1}, but got {i}."
            )
        label = i % len(self._files)
        with PIL.Image.open(io.BytesIO(self._files[label])) as picture:
            pixels = np.array(picture.convert("RGB"))
        top = int(torch.randint(HEIGHT - self.size + 1, ()))
        left = int(torch.randint(WIDTH - self.size + 1, ()))
        square = pixels[top : top + self.size, left : left + self.size]
        if torch.rand(()) < 0.5:
            square = square[:, ::-1]
        # NumPy computes in one thread, as workers do. PyTorch's threads would make the
        # same work take longer or shorter in the main process.
        square = np.ascontiguousarray(square.transpose(2, 0, 1), np.float32)
        return torch.from_numpy((square / 255 - MEAN) / STD), label
