"""``show_images``: small pictures in rows, each with a few words below it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from d2l_gpu.common.arguments import check_integer
from d2l_gpu.show.sheet import Plot, Sheet, high, in_sentences, lines_of
from d2l_gpu.show.style import LABEL
from d2l_gpu.vgpu.sim.drawing import GRID
from d2l_gpu.vgpu.sim.words import shown

GAP = 0.15  # between images, in inches
BELOW = 0.04  # between an image and its words, in inches


class Images(Plot):
    """The figure that ``show_images`` returns."""

    def __init__(
        self,
        images: Sequence[np.ndarray],
        rows: int,
        columns: int,
        captions: Sequence[str],
        scale: float,
        title: str,
        subtitle: str,
    ):
        super().__init__(title, subtitle)
        self.images, self.captions = list(images), list(captions)
        self.rows, self.columns, self.scale = rows, columns, scale

    def body_height(self, width: float) -> float:
        side, words = self._sizes(width)
        return self.rows * (side + words) + (self.rows - 1) * GAP

    def draw_body(self, sheet: Sheet, left: float, top: float, width: float) -> None:
        side, words = self._sizes(width)
        for i, image in enumerate(self.images):
            row, column = divmod(i, self.columns)
            x = left + column * (side + GAP)
            y = top + row * (side + words + GAP)
            axes = sheet.axes(x, y, side, side)
            # A frame shows where a white margin ends.
            axes.set(xticks=[], yticks=[])
            axes.grid(False)
            for spine in axes.spines.values():
                spine.set(visible=True, color=GRID, linewidth=0.8)
            axes.imshow(image, cmap="gray_r")
            if self.captions:
                lines = self._lines(i, side)
                place = x + side / 2, y + side + BELOW
                sheet.write(*place, lines, LABEL, align="center")

    def _sizes(self, width: float) -> tuple[float, float]:
        """Return the side of an image and the height of the words below it."""
        fits = (width - (self.columns - 1) * GAP) / self.columns
        side = min(self.scale, fits)
        lines = [len(self._lines(i, side)) for i in range(len(self.captions))]
        words = BELOW + high(max(lines), LABEL) if lines else 0
        return side, words

    def _lines(self, i: int, side: float) -> list[str]:
        return lines_of(self.captions[i], side + 0.8 * GAP, LABEL)

    def _title(self) -> str:
        return self.title or "images"

    def _contents(self) -> str:
        count = len(self.images)
        words = f"{count} image{'s' * (count != 1)}"
        captions = "; ".join(map(shown, self.captions))
        return f"{shown(words)}: {captions}" if captions else shown(words)

    def __repr__(self) -> str:
        # Without the captions, which may be what a network said on this machine.
        said = shown(self.alt or "") or in_sentences(self.title, self.subtitle)
        return f"<Figure: {said or shown(self._title())}>"


def show_images(
    imgs: Sequence[Any],
    num_rows: int,
    num_cols: int,
    titles: Sequence[str] | None = None,
    scale: float = 1.5,
    *,
    title: str = "",
    subtitle: str = "",
) -> Images:
    """Return a figure of images in rows and columns.

    Args:
        imgs: the images, at most ``num_rows * num_cols``: arrays, or tensors on any
            device, of shape (h, w), where the largest number is black and the smallest
            white, or (h, w, 3) in colour.
        num_rows, num_cols: number of rows and columns.
        titles: a few words for each image, below it.
        scale: side of an image in inches; less if a row would be too wide.
        title: what the figure shows.
        subtitle: the conditions.
    Raises:
        TypeError, ValueError: a number of rows or columns isn't an integer of at least
            1.
        ValueError: there are more images than places, or an image has no title while
            others do, or its shape is neither of these.
    Source: d2l 1.0.3 ``show_images``, section 4.2, which returns Matplotlib's axes.
    """
    check_integer("num_rows", num_rows, least=1)
    check_integer("num_cols", num_cols, least=1)
    images = [_pixels(image) for image in imgs]
    if len(images) > num_rows * num_cols:
        raise ValueError(
            f"{num_rows} × {num_cols} places are too few for {len(images)} images."
        )
    if titles is not None and len(titles) != len(images):
        raise ValueError(
            f"There are {len(images)} images but {len(titles)} titles: pass one for "
            "each."
        )
    captions = [] if titles is None else list(map(str, titles))
    return Images(images, num_rows, num_cols, captions, scale, title, subtitle)


def _pixels(image: Any) -> np.ndarray:
    if hasattr(image, "detach"):  # a tensor of PyTorch, perhaps on a GPU
        image = image.detach().cpu()
    pixels = np.asarray(image)
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[-1] == 3):
        raise ValueError(
            f"An image has the shape (h, w) or (h, w, 3), but got {pixels.shape}."
        )
    return pixels
