"""Files are written whole or not at all."""

import os
import stat
import threading
from pathlib import Path

import pytest

from counterprobe import files
from counterprobe.files import GrowingFile, LockedFile, read_bytes, read_text, whole_file


def test_the_old_content_stays_until_the_new_one_is_complete(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with whole_file(file) as stream:
        stream.write(b"half ")
        stream.flush()
        assert file.read_text() == "old"
        stream.write(b"new")
    assert file.read_text() == "half new"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("problem", [ValueError("no"), KeyboardInterrupt()])
def test_after_an_error_the_old_content_stays_and_nothing_is_left(tmp_path, problem):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(type(problem)), whole_file(file) as stream:
        stream.write(b"half")
        raise problem
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_content_reaches_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), fsync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("replace"), replace(*names))[1])
    with whole_file(tmp_path / "a.txt") as stream:
        stream.write(b"new")
    assert done == ["fsync", "replace"]


def test_two_writers_do_not_disturb_each_other(tmp_path):
    file = tmp_path / "a.txt"
    with whole_file(file) as one, whole_file(file) as other:
        assert one.fileno() != other.fileno()
        one.write(b"one")
        other.write(b"other")
    assert file.read_text() == "one"  # the last to finish
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link(tmp_path):
    file, link = tmp_path / "a.txt", tmp_path / "link.txt"
    file.write_text("old")
    link.symlink_to(file)
    with whole_file(link) as stream:
        stream.write(b"new")
    assert link.is_symlink()
    assert file.read_text() == "new"


def test_a_new_file_has_the_usual_mode(tmp_path):
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "a.txt") as stream:
            stream.write(b"new")
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


# ----- One writer at a time ---------------------------------------------------------------------


def test_a_file_that_is_open_for_writing_is_refused_until_it_is_closed(tmp_path):
    file, link = tmp_path / "a.txt", tmp_path / "link.txt"
    link.symlink_to(file)
    for first, second in ((file, file), (file, link), (link, file)):
        with LockedFile(first) as opened:
            with pytest.raises(BlockingIOError, match=r"a\.txt is in use by another run; wait"):
                LockedFile(second)
            opened.append(b"one")
        assert file.read_bytes() == b"one", "whoever was refused left it alone"
        with LockedFile(second) as opened:
            opened.append(b" two")
            assert opened.read() == b"one two" and opened.size == 7
        file.unlink()
    assert link.is_symlink()


def test_a_file_that_is_open_for_writing_is_not_replaced(tmp_path):
    file, link = tmp_path / "a.txt", tmp_path / "link.txt"
    link.symlink_to(file)
    with LockedFile(file) as first:
        first.append(b"one")
        for name in (file, link):
            with pytest.raises(BlockingIOError, match=r"a\.txt is in use by another run"):
                with whole_file(name) as stream:
                    stream.write(b"other")
        first.append(b"two")
    assert file.read_bytes() == b"onetwo"
    assert {one.name for one in tmp_path.iterdir()} == {"a.txt", "link.txt"}
    with whole_file(link) as stream:
        stream.write(b"other")
    assert file.read_bytes() == b"other"


def test_a_new_file_that_stays_empty_goes_and_an_old_one_stays(tmp_path):
    old = tmp_path / "old.txt"
    old.touch()
    for file in (old, tmp_path / "new.txt"):
        with LockedFile(file) as opened:
            assert file.exists()
        opened.close()
    assert os.listdir(tmp_path) == ["old.txt"]


def test_nothing_is_written_once_the_lock_is_gone(tmp_path):
    with LockedFile(tmp_path / "a.txt") as opened:
        opened.append(b"one")
    with pytest.raises(OSError, match="Bad file descriptor"):
        opened.append(b"two")
    assert (tmp_path / "a.txt").read_bytes() == b"one"


def test_whoever_waited_at_a_file_that_was_replaced_begins_again(tmp_path, monkeypatch):
    """Between opening a file and locking it another process may remove or rename it."""
    file, moved = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_bytes(b"finished")
    lock, times = files._lock, []

    def late(handle, path):
        if not times:
            os.replace(file, moved)
        times.append(path)
        lock(handle, path)

    monkeypatch.setattr(files, "_lock", late)
    with LockedFile(file) as opened:
        opened.append(b"mine")
    assert (file.read_bytes(), moved.read_bytes(), len(times)) == (b"mine", b"finished", 2)


def test_what_cannot_be_written_whole_is_taken_back(tmp_path, monkeypatch):
    write = os.write
    with LockedFile(tmp_path / "a.txt") as opened:
        opened.append(b"whole\n")

        def full(handle, data):
            if len(data) > 3:
                return write(handle, data[:3])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            opened.append(b"torn\n")
        monkeypatch.setattr(os, "write", write)
        opened.append(b"again\n")
    assert (tmp_path / "a.txt").read_bytes() == b"whole\nagain\n"


def test_a_pipe_is_written_to_without_a_lock(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    with LockedFile(pipe) as one, LockedFile(pipe):
        one.append(b"through")
    reader.join(20)
    assert read == [b"through"]


@pytest.mark.parametrize("kind", ["link", "hard link", "dangling link", "pipe", "old file"])
def test_nothing_is_written_through_what_stands_under_a_partial_name(tmp_path, kind):
    file, precious = tmp_path / "run.json", tmp_path / "precious.txt"
    partial = tmp_path / "run.json.partial"
    precious.write_text("precious")
    if kind == "link":
        partial.symlink_to(precious)
    elif kind == "dangling link":
        partial.symlink_to(tmp_path / "elsewhere")
    elif kind == "hard link":
        partial.hardlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(partial)
    else:
        partial.write_text("of a run that died, and longer than the new one")
    with GrowingFile(file) as growing:
        growing.write("mine\n")
        assert growing.read() == partial.read_text() == "mine\n"
        growing.finish()
    assert (precious.read_text(), file.read_text()) == ("precious", "mine\n")
    assert {*os.listdir(tmp_path)} == {"run.json", "precious.txt"}


def test_a_random_name_that_somebody_guessed_is_not_followed(tmp_path, monkeypatch):
    file, precious = tmp_path / "a.txt", tmp_path / "precious.txt"
    precious.write_text("precious")
    guessed = tmp_path / ".a.txt.0.partial"
    monkeypatch.setattr(files, "_beside", lambda target: guessed)
    guessed.symlink_to(precious)
    with pytest.raises(FileExistsError), whole_file(file):
        pass
    assert precious.read_text() == "precious" and guessed.is_symlink() and not file.exists()


def test_a_second_trace_of_one_name_is_refused_and_the_first_goes_on(tmp_path):
    with GrowingFile(tmp_path / "run.json") as first:
        first.write("one\n")
        with pytest.raises(BlockingIOError, match=r"run\.json\.partial is in use"):
            GrowingFile(tmp_path / "run.json")
        first.write("two\n")
        first.finish()
    assert Path(tmp_path / "run.json").read_text() == "one\ntwo\n"
    assert os.listdir(tmp_path) == ["run.json"]


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
