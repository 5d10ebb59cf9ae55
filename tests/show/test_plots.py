"""Figures grow in one display in Jupyter and stay quiet elsewhere."""

import base64
import copy
import gc
import io
import os
import struct
import sys

import nbformat
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

from d2l_gpu import torch as d2l
from d2l_gpu.common.requirements import install
from tests.helpers.fresh_process import PATH, run_fresh, run_program
from tests.helpers.pictures import figure_problems
from tests.helpers.properties import sizes
from tests.helpers.waiting import PATIENCE

SIZE = struct.Struct(">II")


def png_of(figure) -> bytes:
    data, _ = figure._repr_mimebundle_()
    return base64.b64decode(data["image/png"])


def board_with_points(**options) -> d2l.ProgressBoard:
    board = d2l.ProgressBoard("epoch", **options)
    for x in range(10):
        board.draw(x, 1 / (1 + x), "train_loss")
        board.draw(x, x / 10, "val_acc")
    return board


# ---------------------------------------------------------------- points


def test_every_n_values_make_a_point_their_mean():
    board = d2l.ProgressBoard()
    for x in range(7):
        board.draw(x, torch.tensor(x**2), "squares", every_n=3)
    assert board.data == {"squares": [(1, 5 / 3), (4, 50 / 3)]}


VALUES = st.lists(st.tuples(sizes(), st.sampled_from("ab"), sizes(1, 4)), max_size=12)


@given(before=VALUES, after=VALUES)
def test_a_cleared_board_is_as_a_new_one(before, after):
    used, new = d2l.ProgressBoard(), d2l.ProgressBoard()
    for y, label, every_n in before:
        used.draw(0, y, label, every_n)
    used.clear()
    for board in used, new:
        for x, (y, label, every_n) in enumerate(after):
            board.draw(x, y, label, every_n)
    assert used.data == new.data


def test_values_may_be_tensors_of_any_kind_with_gradients():
    board = d2l.ProgressBoard()
    for y in (
        torch.tensor([2.0], requires_grad=True),
        torch.tensor(2, dtype=torch.int64),
        torch.tensor(2.0, dtype=torch.float16),
        2,
    ):
        board.draw(torch.tensor(0.5), y, "y", every_n=2)
    assert board.data == {"y": [(0.5, 2.0), (0.5, 2.0)]}


def test_a_point_costs_one_copy_from_the_device_whatever_the_number_of_values():
    out = run_program("plots/copies_of_a_point.py")
    expected = "[[Point(x=0.0, y=1.0)], [Point(x=0.0, y=2.0)], [Point(x=0.0, y=3.0)]]"
    assert out.splitlines()[1:] == ["2", f"3 {expected}"]


@pytest.mark.parametrize("every_n", [0, -1, 1.5, True])
def test_a_point_is_made_of_a_positive_number_of_values(every_n):
    with pytest.raises(ValueError, match="at least 1"):
        d2l.ProgressBoard().draw(0, 0, "y", every_n)


def test_a_point_is_single():
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        d2l.ProgressBoard().draw(0, torch.ones(2), "y")
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        d2l.Animator().add(0, [torch.ones(2)])


def test_an_animator_adds_a_point_to_each_curve_but_none_for_none():
    animator = d2l.Animator(legend=["a", "b"])
    animator.add(1, (0.5, None))
    animator.add([2, 3], torch.tensor([0.25, 0.75]))
    animator.add(4, 0.125)
    assert animator.data == [[(1, 0.5), (2, 0.25), (4, 0.125)], [(3, 0.75)]]
    with pytest.raises(ValueError, match="3 of x and 2 of y"):
        animator.add([1, 2, 3], [1, 2])


# ---------------------------------------------------------------- the picture


def texts_of(figure) -> list[str]:
    return [text.get_text() for text in figure.fig.texts]


def test_a_figure_has_labels_names_limits_and_scales():
    board = board_with_points(ylabel="value", xlim=[0, 20], ylim=[0.1, 1], yscale="log")
    loss, accuracy = board.fig.axes
    assert {"epoch", "train loss", "val acc"} <= set(texts_of(board))
    for axes in loss, accuracy:
        low, high = axes.get_xlim()
        assert -1 < low < 0 and 20 < high < 21
        assert axes.get_legend() is None
        assert axes.get_yscale() == "log"
    assert 0.09 < loss.get_ylim()[0] < 0.1 and 1 < loss.get_ylim()[1] < 1.2
    plain = d2l.ProgressBoard("step", "value")
    plain.draw(1, 2, "a")
    plain.draw(1, 3, "b")
    assert {"step", "value", "a", "b"} <= set(texts_of(plain))


def test_loss_and_accuracy_have_panels_of_their_own():
    board, animator = board_with_points(), d2l.Animator("epoch")
    board.draw(9, 0.5, "val_loss")
    animator.legend = ["train loss", "test accuracy"]
    for x in range(1, 4):
        animator.add(x, (2 / x, 1 - 1 / x))
    for figure, curves in ((board, 2), (animator, 1)):
        loss, accuracy = figure.fig.axes
        assert len(loss.lines) >= curves and len(accuracy.lines) == 1
        assert "%" in accuracy.get_yticklabels()[-1].get_text()
        assert "%" not in loss.get_yticklabels()[-1].get_text()
        assert figure_problems(figure) == []
    assert {"train loss", "test accuracy"} <= set(texts_of(animator))
    assert {"loss", "train_loss", "val_loss", "val acc"} <= set(texts_of(board))


def test_an_axis_of_epochs_counts_whole_ones():
    board = d2l.ProgressBoard("epoch")
    for x in range(5):
        board.draw(x / 4, x, "loss")
    [axes] = board.fig.axes
    assert [x.get_text() for x in axes.get_xticklabels()] == ["0", "1"]


@given(
    st.lists(
        st.tuples(
            sizes(), st.floats(0, 1e5), st.sampled_from(["loss", "acc", "W" * 50])
        ),
        max_size=9,
    )
)
@settings(max_examples=20)
def test_texts_of_a_growing_figure_are_inside_and_do_not_overlap(points):
    board = d2l.ProgressBoard("epoch", "a value")
    for x, y, label in points:
        board.draw(x, y, label)
    assert figure_problems(board) == []


def test_what_cannot_be_drawn_is_left_out_while_a_network_trains():
    board = d2l.ProgressBoard("epoch", yscale="log")
    for x, y in enumerate((1, 0, float("nan"), 0.1)):
        board.draw(x, y, "loss")
    [line] = board.fig.axes[0].lines
    assert list(line.get_xdata()) == [0, 3]


def test_own_lines_and_colours_are_used():
    board = d2l.ProgressBoard("x", ls=[":"], colors=["#112233"])
    animator = d2l.Animator("x", fmts=["m--"])
    board.draw(0, 1, "y")
    animator.add(0, 1)
    [line] = board.fig.axes[0].lines
    assert (line.get_linestyle(), line.get_color()) == (":", "#112233")
    [line] = animator.fig.axes[0].lines
    assert (line.get_linestyle(), line.get_color()) == ("--", "#bf00bf")


def test_curves_differ_without_colour_too():
    board = d2l.ProgressBoard()
    animator = d2l.Animator()
    for i in range(6):
        board.draw(0, i, f"curve {i}")
    animator.add(0, range(6))
    for figure in board.fig, animator.fig:
        lines = figure.axes[0].lines
        styles = {(line.get_linestyle(), line.get_marker()) for line in lines}
        assert len(styles) == len(lines) == 6


def test_a_picture_is_small_and_its_bytes_are_the_same_each_time():
    import matplotlib

    board = board_with_points()
    picture = png_of(board)
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 25_000
    assert b"tEXt" not in picture
    assert b"tIME" not in picture
    width, _ = SIZE.unpack(picture[16:24])
    assert width == 1440  # two for each pixel that is displayed
    with matplotlib.rc_context({"lines.linewidth": 9, "axes.facecolor": "black"}):
        assert png_of(board_with_points()) == picture
        assert matplotlib.rcParams["lines.linewidth"] == 9
    board.draw(11, 1, "val_acc")
    assert png_of(board) != picture


def test_a_picture_is_opaque_and_white():
    from PIL import Image

    picture = Image.open(io.BytesIO(png_of(board_with_points()))).convert("RGBA")
    assert picture.getpixel((1, 1)) == (255, 255, 255, 255)


def test_a_picture_has_words_for_those_who_do_not_see_it():
    board = board_with_points()
    data, metadata = board._repr_mimebundle_()
    assert data["text/plain"] == repr(board) == "<Figure: progress against epoch>"
    said = "progress against epoch: train_loss from 1 to 0.1, val_acc from 0 to 0.9."
    assert metadata["image/png"]["alt"] == said
    board.alt = "The loss falls."
    _, metadata = board._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == "The loss falls."
    animator = d2l.Animator("epoch", legend=["loss", "accuracy"])
    assert repr(animator) == "<Figure: loss, accuracy against epoch>"


def test_drawing_on_axes_of_ones_own():
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    board = board_with_points(axes=right)
    assert board.fig is figure
    assert len(right.lines) == 2
    assert not left.lines


def test_redrawing_does_not_add_up():
    board = board_with_points()
    animator = d2l.Animator(legend=["a"])
    animator.add(0, 1)

    def redraw():
        for _ in range(5):
            board.savefig(io.BytesIO())
            animator.savefig(io.BytesIO())
        gc.collect()
        return len(gc.get_objects())

    redraw()
    # A figure is thousands of objects; matplotlib itself keeps a few per drawing.
    assert abs(redraw() - redraw()) < 1000
    assert len(animator.fig.axes) == 1


def test_a_board_can_be_copied_with_its_points():
    board = board_with_points()
    assert board.fig
    other = copy.deepcopy(board)
    assert other.data == board.data
    assert png_of(other) == png_of(board)


# ---------------------------------------------------------------- outside Jupyter


def test_outside_jupyter_nothing_is_shown_nor_imported(tmp_path):
    # Where matplotlib may not write its settings, it says so on stderr, but not here.
    (tmp_path / "file").touch()
    out = run_fresh(
        f"""
        import sys
        from d2l_gpu import torch as d2l
        board = d2l.ProgressBoard('epoch')
        animator = d2l.Animator('epoch')
        for x in range(3):
            board.draw(x, x, 'loss')
            animator.add(x + 0.5, x)
        board.flush()
        print([name for name in ('matplotlib', 'IPython') if name in sys.modules])
        board.savefig({str(tmp_path / "board.svg")!r})
        animator.savefig({str(tmp_path / "animator.png")!r})
        print('matplotlib.pyplot' in sys.modules)
        """,
        MPLCONFIGDIR=str(tmp_path / "file"),
    )
    assert out.splitlines() == ["[]", "False"]
    assert "<svg" in (tmp_path / "board.svg").read_text("utf-8")
    assert (tmp_path / "animator.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_points_are_kept_and_drawing_says_what_to_install():
    out = run_program("plots/without_matplotlib.py")
    points, error = out.splitlines()
    assert points == "{'loss': [Point(x=1.0, y=2.0)]}"
    assert install("lessons") in error


def test_outside_jupyter_an_animator_prints_a_line_per_epoch(capsys):
    animator = d2l.Animator("epoch", legend=["loss", "accuracy"])
    for epoch in range(2):
        for part in (0.25, 0.5, 0.75, 1):
            animator.add(epoch + part, (1 / (epoch + part), None))
        assert f"epoch {epoch + 1}" not in capsys.readouterr().out
        animator.add(epoch + 1, (None, torch.tensor(0.8)))
        loss = "1" if epoch == 0 else "0.5"
        line = f"epoch {epoch + 1}: loss {loss}, accuracy 0.8\n"
        assert capsys.readouterr().out == line
    animator.display = False
    animator.add(3, (1, 1))
    assert capsys.readouterr() == ("", "")


def test_an_epoch_that_a_curve_leaves_out_is_printed_all_the_same():
    out = run_program("plots/an_epoch_left_out.py")
    # The last one when the program ends: something might have come.
    assert out.splitlines() == [
        "epoch 1: loss 0.1, value 2 1",
        "epoch 2: loss 0.2, value 2 1",
        "epoch 3: loss 0.3, value 2 1",
        "the end",
        "epoch 4: loss 0.4, value 2 1",
    ]


def test_long_runs_print_ever_fewer_lines_but_the_last(capsys):
    animator = d2l.Animator(xlabel="step", ylabel="loss")
    for step in range(1, 1235):
        animator.add(step, 0)
    del animator
    steps = [int(line.split()[1][:-1]) for line in capsys.readouterr().out.splitlines()]
    fewer = [*range(1, 20), *range(20, 200, 10), *range(200, 1300, 100), 1234]
    assert steps == fewer


# ---------------------------------------------------------------- in Jupyter


def outputs_of(*cells: str) -> tuple[list[list], list[dict]]:
    """Execute cells in a kernel of this interpreter; return the outputs of each, and
    all messages about displays in the order in which they came."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    messages = []

    class Client(NotebookClient):
        def process_message(self, message, cell, cell_index):
            if "display_data" in message["msg_type"]:
                messages.append(message)
            return super().process_message(message, cell, cell_index)

    client = Client(notebook, timeout=PATIENCE, allow_errors=True)
    client.execute(env=os.environ | PATH)
    nbformat.validate(notebook)
    return [cell.outputs for cell in notebook.cells], messages


IMPORT = f"""
import sys, time
assert sys.executable == {sys.executable!r}
from d2l_gpu import torch as d2l
"""
BOARD = """
from d2l_gpu.show import live
live.SHARE_OF_TIME = 10  # where drawing is slow, redraws are not fewer here
board = d2l.ProgressBoard('x')
for x in range(300):
    board.draw(x, x, 'rising')
    board.draw(x, 300 - x, 'falling', every_n=7)
    time.sleep(0.005)
"""
ANIMATOR = """
animator = d2l.Animator('epoch', 'value', legend=['loss', 'accuracy'])
for epoch in range(20):
    animator.add(epoch, (1 / (1 + epoch), epoch / 20))
"""


@pytest.fixture(scope="module")
def in_jupyter():
    return outputs_of(
        IMPORT,
        BOARD,
        "board.draw(300, 300, 'rising')",
        ANIMATOR,
        # A reader's own figure, and the board on it, after pyplot came in.
        "import matplotlib.pyplot as plt\n"
        "figure, axes = plt.subplots()\n"
        "own = d2l.ProgressBoard('x', axes=axes)\n"
        "for x in range(5):\n    own.draw(x, x, 'y')",
        "plt.plot([1, 2])\nNone",
        "d2l.ProgressBoard('x', display=False).draw(0, 0, 'y')",
        # Training twice in one cell.
        "from tests.helpers.toy_training import trained, Line\nfrom torch import nn\n"
        "model, trainer = trained(lambda: nn.LazyLinear(1))\n"
        "trainer.fit(model, Line())",
        "board.draw(301, 0, 'rising')\nboard.draw(302, 0, 'rising')",
        "board.fig\nboard",
        "failing = d2l.ProgressBoard('x')\n"
        "for x in range(30):\n    failing.draw(x, x, 'y')\n"
        "raise KeyboardInterrupt",
        # A copy, made while the original is on display.
        "import copy\nfirst = d2l.ProgressBoard('x')\nfirst.draw(0, 0, 'y')\n"
        "second = copy.deepcopy(first)\nsecond.draw(1, 1, 'y')\nfirst.draw(1, 2, 'y')",
    )


@pytest.mark.all
def test_a_growing_figure_is_one_display_with_the_last_state(in_jupyter):
    outputs, _ = in_jupyter
    for cell, text, figure in [
        (1, "<Figure: progress against x>", grown_board()),
        (3, "<Figure: loss, accuracy against epoch>", grown_animator()),
    ]:
        [output] = outputs[cell]
        assert output.output_type == "display_data"
        assert output.data["text/plain"] == text
        assert set(output.data) == {"text/plain", "image/png"}
        assert base64.b64decode(output.data["image/png"]) == png_of(figure)
        assert output.metadata["image/png"]["width"] == 720


def grown_board():
    board = d2l.ProgressBoard("x")
    for x in range(300):
        board.draw(x, x, "rising")
        board.draw(x, 300 - x, "falling", every_n=7)
    return board


def grown_animator():
    animator = d2l.Animator("epoch", "value", legend=["loss", "accuracy"])
    for epoch in range(20):
        animator.add(epoch, (1 / (1 + epoch), epoch / 20))
    return animator


def test_redraws_are_few_and_say_the_same_text(in_jupyter):
    _, messages = in_jupyter
    first, *_ = messages
    identifier = first["content"]["transient"]["display_id"]
    same = [
        message
        for message in messages
        if message["content"]["transient"].get("display_id") == identifier
    ]
    assert [message["msg_type"] for message in same[1:]] == (
        ["update_display_data"] * (len(same) - 1)
    )
    texts = {message["content"]["data"]["text/plain"] for message in same}
    assert texts == {"<Figure: progress against x>"}
    # 300 points in 1.5 seconds or more: some redraws between, by far not all.
    assert 3 <= len(same) <= 100


def test_drawing_in_a_later_cell_is_shown_there(in_jupyter):
    outputs, _ = in_jupyter
    [output] = outputs[2]
    grown = grown_board()
    grown.draw(300, 300, "rising")
    assert base64.b64decode(output.data["image/png"]) == png_of(grown)


def test_a_figure_of_pyplot_is_not_shown_twice_and_pyplot_goes_on(in_jupyter):
    outputs, _ = in_jupyter
    [output] = outputs[4]
    assert output.data["text/plain"] == "<Figure: progress against x>"
    [output] = outputs[5]
    assert "image/png" in output.data


def test_a_board_told_not_to_is_not_shown(in_jupyter):
    outputs, _ = in_jupyter
    assert outputs[6] == []


def test_two_trainings_in_a_cell_are_two_pictures_and_no_lines(in_jupyter):
    outputs, _ = in_jupyter
    assert [output.output_type for output in outputs[7]] == ["display_data"] * 2


def test_a_board_can_be_looked_at_again(in_jupyter):
    outputs, _ = in_jupyter
    [drawn] = outputs[8]
    [output] = outputs[9]
    assert output.output_type == "execute_result"
    assert output.data == drawn.data


def test_a_copied_board_has_a_display_of_its_own(in_jupyter):
    outputs, _ = in_jupyter
    for output, last in zip(outputs[11], (2, 1), strict=True):
        figure = d2l.ProgressBoard("x")
        figure.draw(0, 0, "y")
        figure.draw(1, last, "y")
        assert base64.b64decode(output.data["image/png"]) == png_of(figure)


def test_a_cell_that_fails_leaves_the_last_state(in_jupyter):
    outputs, _ = in_jupyter
    drawn, error = outputs[10]
    assert error.ename == "KeyboardInterrupt"
    figure = d2l.ProgressBoard("x")
    for x in range(30):
        figure.draw(x, x, "y")
    assert base64.b64decode(drawn.data["image/png"]) == png_of(figure)


def test_nothing_else_is_printed_in_a_notebook(in_jupyter):
    outputs, _ = in_jupyter
    assert outputs[0] == []
    kinds = {output.output_type for cell in outputs for output in cell}
    assert kinds == {"display_data", "execute_result", "error"}
    assert (
        sum(output.output_type == "error" for cell in outputs for output in cell) == 1
    )
