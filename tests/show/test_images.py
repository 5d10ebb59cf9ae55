"""Images in rows: which fit, and what is said of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu import torch as d2l

WORDS = st.text("abc defg", min_size=1, max_size=30)


@given(
    captions=st.lists(WORDS, min_size=1, max_size=9),
    columns=st.integers(1, 9),
    shape=st.sampled_from([(8, 8), (3, 5), (5, 3, 3)]),
)
def test_images_and_their_words_stay_inside_and_apart(captions, columns, shape):
    rows = -(-len(captions) // columns)
    images = [np.random.default_rng(0).random(shape) for _ in captions]
    figure = d2l.show_images(images, rows, columns, captions).fig
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    boxes = [axes.get_window_extent() for axes in figure.axes]
    boxes += [text.get_window_extent() for text in figure.texts if text.get_text()]
    assert len(figure.axes) == len(captions)
    for box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1
        assert box.x1 <= width + 1 and box.y1 <= height + 1
    for i, box in enumerate(boxes):
        for other in boxes[:i]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            up = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across <= 2 or up <= 2


@pytest.mark.virtual_gpus(2)
def test_large_numbers_are_dark_and_tensors_come_from_any_device():
    image = torch.tensor([[0.0, 1.0]], device="vgpu:1")
    (axes,) = d2l.show_images([image], 1, 1).fig.axes
    (drawn,) = axes.images
    white, black = drawn.to_rgba(drawn.get_array())[0, :, :3]
    assert white.min() > 0.99
    assert black.max() < 0.01


def test_a_frame_shows_where_an_image_ends():
    (axes,) = d2l.show_images([np.zeros((8, 8))], 1, 1).fig.axes
    assert all(spine.get_visible() for spine in axes.spines.values())
    assert not [*axes.get_xticks(), *axes.get_yticks()]


def test_the_picture_is_described_and_its_text_is_the_same_whatever_it_shows():
    one, other = (
        d2l.show_images(n * [np.eye(2)], 1, 3, n * ["an eye"], title="Eyes")
        for n in (1, 3)
    )
    assert repr(one) == repr(other) == "<Figure: Eyes.>"
    _, metadata = other._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == "Eyes. 3 images: an eye; an eye; an eye."


def test_wrong_numbers_and_shapes_are_refused():
    image = np.eye(2)
    with pytest.raises(ValueError, match="too few for 3 images"):
        d2l.show_images([image] * 3, 1, 2)
    with pytest.raises(ValueError, match="2 images but 1 titles"):
        d2l.show_images([image] * 2, 1, 2, ["one"])
    with pytest.raises(ValueError, match=r"\(1, 2, 2\)"):
        d2l.show_images([image[None]], 1, 1)
    with pytest.raises(ValueError, match="num_rows"):
        d2l.show_images([image], 0, 1)
