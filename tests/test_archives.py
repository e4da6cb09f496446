"""Archives of arrays: what was written comes back, and all is measured before it is unpacked."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from counterprobe.archives import read_arrays

KNOWN = ("a", "b")


def test_arrays_come_back_as_they_were(tmp_path):
    a, b = np.arange(6.0).reshape(2, 3), np.array("text")
    np.savez_compressed(tmp_path / "x.npz", a=a, b=b)
    found = read_arrays(tmp_path / "x.npz", KNOWN, 1000)
    assert np.array_equal(found["a"], a) and found["b"] == b
    assert found.keys() == set(KNOWN)


def test_more_than_allowed_is_refused_before_it_is_unpacked(tmp_path):
    file = tmp_path / "bomb.npz"
    np.savez_compressed(file, a=np.zeros(2**24))
    assert file.stat().st_size < 2**18
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"its arrays take 134,217,\d+ bytes, at most 1,048,576"):
        read_arrays(file, KNOWN, 2**20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**21


def test_a_size_that_the_header_does_not_have_is_refused(tmp_path):
    file = tmp_path / "lies.npz"
    np.savez(file, a=np.zeros(3))
    with zipfile.ZipFile(file) as archive:
        honest = archive.read("a.npy")
    for content in (honest + b"\0", honest[:-1], honest.replace(b"(3,)", b"(4,)")):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.npy", content)
        with pytest.raises(ValueError):
            read_arrays(file, KNOWN, 10**6)


def test_objects_strangers_and_doubles_are_refused(tmp_path):
    file = tmp_path / "x.npz"
    np.savez(file, a=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"a.npy has \d+ bytes, its header says"):
        read_arrays(file, KNOWN, 10**6)
    np.savez(file, c=np.zeros(1))
    with pytest.raises(ValueError, match="it has a member of another kind, 'c'"):
        read_arrays(file, KNOWN, 10**6)
    np.savez(file, a=np.zeros(1))
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.npy", archive.read("a.npy"))
    with pytest.raises(ValueError, match="it has two members of one name"):
        read_arrays(file, KNOWN, 10**6)


def test_a_larger_file_is_not_read(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(1000))
    with pytest.raises(ValueError, match="must have at most 500 bytes"):
        read_arrays(tmp_path / "x.npz", KNOWN, 500)
