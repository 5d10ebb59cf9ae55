"""Programs as if on another machine: which GPUs they find, what is shown of them."""

import pytest

from d2l_gpu import torch as d2l

COUNT = """
    import torch
    print(torch.cuda.device_count(), torch.cuda.is_available())
"""


def test_a_program_finds_as_many_gpus_as_are_asked_for(tmp_path, capfd):
    for gpus, said in [(0, "0 False\n"), (3, "3 True\n")]:
        d2l.run_elsewhere(COUNT, gpus, folder=tmp_path)
        assert capfd.readouterr() == (said, "")


def test_its_gpus_do_not_depend_on_those_of_this_process(tmp_path, capfd, monkeypatch):
    # As under `python -m d2l_gpu.vgpu --gpus 2`.
    monkeypatch.setenv("D2L_GPU_AS_CUDA", '{"n": 2, "as_cuda": true}')
    d2l.run_elsewhere(COUNT, 0, folder=tmp_path)
    assert capfd.readouterr().out == "0 False\n"


def test_programs_share_a_folder_and_leave_nothing_of_their_own_in_it(tmp_path, capfd):
    d2l.run_elsewhere("open('a.txt', 'w').write('5')", 0, folder=tmp_path)
    d2l.run_elsewhere("print(open('a.txt').read(), end='')", 0, folder=tmp_path)
    assert capfd.readouterr().out == "5\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("gpus", [0, 1])
def test_of_an_exception_the_last_line_is_shown_and_what_came_before(
    gpus, tmp_path, capfd
):
    program = "print('on we go')\nraise ValueError('é' + 30 * ' long')"
    d2l.run_elsewhere(program, gpus, folder=tmp_path)
    first, *rest = capfd.readouterr().out.splitlines()
    assert first == "on we go"
    assert " ".join(rest) == "ValueError: é" + 30 * " long"
    assert max(map(len, rest)) <= 79


def test_a_program_that_leaves_without_a_word_is_not_taken_for_a_success(
    tmp_path, capfd
):
    d2l.run_elsewhere("import os; os._exit(3)", 0, folder=tmp_path)
    assert capfd.readouterr().out == "The program ended with 3.\n"


def test_bad_arguments_and_programs_without_end(tmp_path):
    with pytest.raises(ValueError, match="gpus"):
        d2l.run_elsewhere("", -1, folder=tmp_path)
    with pytest.raises(NotADirectoryError, match="missing"):
        d2l.run_elsewhere("", 0, folder=tmp_path / "missing")
    with pytest.raises(TimeoutError, match=r"within 0\.5 seconds"):
        d2l.run_elsewhere("while True: pass", 0, folder=tmp_path, timeout=0.5)
