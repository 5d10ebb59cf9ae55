"""Files appear whole or not at all, whoever writes them."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2l_gpu.common.files import replacing, write_atomically, write_whole


def test_file_is_whole_or_untouched(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "n" * 100_000 + "\ud800")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_new_file_is_for_all_to_read_and_an_old_one_keeps_its_permissions(tmp_path):
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    path.chmod(0o640)
    write_atomically(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_a_missing_folder_is_made(tmp_path):
    write_atomically(tmp_path / "a" / "b.txt", "é\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "é\n".encode()


@pytest.mark.parametrize("hidden", [True, False])
def test_until_it_is_complete_a_file_has_another_name(tmp_path, hidden):
    path = tmp_path / "a.txt"
    write_whole(path, "old")
    with replacing(path, hidden=hidden) as file:
        file.write(b"new")
        assert path.read_text() == "old"
        (part,) = (each.name for each in tmp_path.iterdir() if each != path)
        assert part == f"{'.' * hidden}a.txt.{os.getpid()}.part"
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


@given(
    old=st.none() | st.binary(max_size=9),
    pieces=st.lists(st.binary(max_size=9), max_size=3),
    error=st.sampled_from([None, OSError, KeyboardInterrupt, SystemExit]),
    hidden=st.booleans(),
)
def test_a_file_is_the_new_one_or_the_old_one_and_nothing_else_is_left(
    old, pieces, error, hidden
):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        if old is not None:
            path.write_bytes(old)
        for _ in range(2):
            try:
                with replacing(path, hidden=hidden) as file:
                    for piece in pieces:
                        file.write(piece)
                        file.flush()
                    if error is not None:
                        raise error
            except (OSError, KeyboardInterrupt, SystemExit) as raised:
                assert type(raised) is error
            expected = b"".join(pieces) if error is None else old
            found = {each.name: each.read_bytes() for each in path.parent.iterdir()}
            assert found == ({} if expected is None else {"a.txt": expected})


@pytest.mark.skipif(os.name != "posix", reason="Windows does not open folders")
def test_a_durable_file_waits_for_the_disk_before_and_after_its_name(
    tmp_path, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        os, "fsync", lambda number: seen.append((tmp_path / "a.txt").exists())
    )
    with replacing(tmp_path / "a.txt", durable=True) as file:
        file.write(b"new")
    assert seen == [False, True]
    write_whole(tmp_path / "b.txt", "new")
    assert len(seen) == 2
