"""Files are written whole or not at all."""

import os
import stat

import pytest

from counterprobe.files import GrowingFile, read_bytes, read_text, whole_file


def test_the_old_content_stays_until_the_new_one_is_complete(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with whole_file(file) as partial:
        assert partial.parent == tmp_path
        partial.write_text("half")
        assert file.read_text() == "old"
        partial.write_text("new")
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("problem", [ValueError("no"), KeyboardInterrupt()])
def test_after_an_error_the_old_content_stays_and_nothing_is_left(tmp_path, problem):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(type(problem)), whole_file(file) as partial:
        partial.write_text("half")
        raise problem
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_content_reaches_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("replace"), replace(*names))[1])
    with whole_file(tmp_path / "a.txt") as partial:
        partial.write_text("new")
    assert done == ["fsync", "replace"]


def test_two_writers_do_not_disturb_each_other(tmp_path):
    file = tmp_path / "a.txt"
    with whole_file(file) as one, whole_file(file) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert file.read_text() == "one"  # the last to finish
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link(tmp_path):
    file, link = tmp_path / "a.txt", tmp_path / "link.txt"
    file.write_text("old")
    link.symlink_to(file)
    with whole_file(link) as partial:
        partial.write_text("new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_a_new_file_has_the_usual_mode(tmp_path):
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "a.txt") as partial:
            partial.write_text("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


def test_a_missing_folder_is_named(tmp_path):
    file = tmp_path / "nowhere" / "a.txt"
    with pytest.raises(FileNotFoundError, match=r"cannot write .*a.txt: there is no folder"):
        with whole_file(file):
            pass


def test_a_growing_file_takes_its_name_when_it_is_finished(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with GrowingFile(file) as growing:
        growing.write("one\n")
        assert growing.partial.read_text() == growing.read() == "one\n"
        assert file.read_text() == "old"
        growing.write("two\n")
        assert growing.size == 8
        growing.finish()
    assert file.read_text() == "one\ntwo\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_growing_file_that_was_not_finished_stays_beside_its_name(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt), GrowingFile(file) as growing:
        growing.write("one\n")
        raise KeyboardInterrupt
    assert file.read_text() == "old"
    assert (tmp_path / "a.txt.partial").read_text() == "one\n"


def test_a_discarded_file_leaves_nothing(tmp_path):
    with GrowingFile(tmp_path / "a.txt") as growing:
        growing.write("one\n")
        growing.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_end_is_refused_after_what_may_be_read():
    with pytest.raises(ValueError, match="/dev/zero must have at most 1,000 bytes, it has more"):
        read_bytes("/dev/zero", 1000)


def test_text_is_read_up_to_its_limit_and_must_be_utf_8(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes("é\n".encode())
    assert read_text(file, 3) == "é\n"
    with pytest.raises(ValueError, match="must have at most 2 bytes"):
        read_text(file, 2)
    file.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"a.txt must be a text file in UTF-8"):
        read_text(file)
