"""Paths that name no regular file: nobody waits for ever, and the reason is said in one line."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import counterprobe as cp
import hostile_inputs
from counterprobe.cli.main import app
from counterprobe.files import read_text, special_kind

LAW = cp.families.path(8, target_seed=1)
PATIENCE_SECONDS = 20


@pytest.fixture(autouse=True)
def impatience():
    """Whatever waits for a writer that never comes fails instead of hanging."""

    def give_up(number, frame):
        raise AssertionError(f"still waiting after {PATIENCE_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def special(kind: str, folder: Path) -> Path:
    """A path of a kind; the name of a socket must be short, so this is done from within."""
    path = folder / "odd"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("odd")
    else:
        path.symlink_to("/dev/null")
    return path


KINDS = ["a folder", "a pipe", "a socket", "a device"]
# What reads a log of replies puts its checksums right first, and so writes it anew.
READERS = sorted(set(hostile_inputs.READERS) - {"replies resealed"})


@pytest.mark.parametrize("reader", READERS)
def test_no_reader_waits_for_a_pipe(reader, tmp_path):
    suffix, read = hostile_inputs.READERS[reader]
    pipe = tmp_path / f"input{suffix}"
    os.mkfifo(pipe)
    with pytest.raises(hostile_inputs.DOCUMENTED, match="is a pipe") as refused:
        read(pipe)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_is_a_regular_file(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = special(kind, tmp_path)
    assert special_kind(path) == kind
    with pytest.raises(cp.CacheError, match=f"odd is {kind}; a cache must be a regular"):
        LAW.oracle().cached(path)
    words = ["discover", "--n", "8", "--cache", str(path)]
    outcome = CliRunner().invoke(app, words)
    assert outcome.exit_code == 2
    assert f"it is {kind}" in outcome.output


@pytest.mark.parametrize("kind", KINDS)
def test_structures_and_stores_are_regular_files(kind, tmp_path, monkeypatch):
    from counterprobe.study.store import Store, StoreError

    monkeypatch.chdir(tmp_path)
    path = special(kind, tmp_path)
    with pytest.raises(cp.StructureError, match=f"odd is {kind}; a structure is a regular file"):
        cp.Structure.load(path)
    with pytest.raises(StoreError, match=f"odd is {kind}; a store is a regular file"):
        Store(path, create=True)


def test_regular_files_links_to_them_and_nothing_are_not_special(tmp_path):
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("text")
    link.symlink_to(file)
    assert [special_kind(path) for path in (file, link, tmp_path / "none", "a\0b")] == [None] * 4


def test_a_pipe_that_is_open_already_is_read(tmp_path):
    read_end, write_end = os.pipe()
    os.write(write_end, b"through a pipe")
    os.close(write_end)
    assert read_text(f"/dev/fd/{read_end}") == "through a pipe"
    os.close(read_end)
    program = "from counterprobe.files import read_text; print(read_text('/dev/stdin'))"
    done = subprocess.run([sys.executable, "-c", program], input=b"standard", capture_output=True)
    assert done.stdout.strip() == b"standard"
