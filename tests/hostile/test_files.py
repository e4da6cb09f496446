"""Spoilt files of every kind end in a valid object or a documented error of one line."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hostile_inputs
from counterprobe.oracles.cache import _opened, _sealed
from counterprobe.oracles.codec import pack, unpack
from counterprobe.study.config import config_from_dict

# Times as many files as the quick tests spoil.
FACTOR = int(os.environ.get("COUNTERPROBE_FUZZ_FACTOR", "1"))
# One file takes about a millisecond to read, a store or a Parquet file twenty.
EXAMPLES = {
    "store": 25, "rows parquet": 25, "study": 60, "replies": 25,
}  # fmt: skip
QUICK = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# What breaks readers more often than random bytes do.
TOKENS = (
    b"", b"\0", b"\n", b"\r", b"\xff\xfe", b"-1", b"1e999", b"nan", b"-inf", b"9" * 25,
    b"9" * 5000, b'"',
    b"[" * 2000, b"{" * 2000, b"]", b"}", b"null", b"[]", b"{}", b"true", b"\\ud800",
    b"#", b"=", b",", b">", b"0 2000000000\n", b"\x1f\x8b", b"PK\x05\x06" + bytes(18),
)  # fmt: skip
Edit = tuple[int, int, bytes]


@pytest.fixture(scope="module")
def valid(tmp_path_factory) -> dict[str, bytes]:
    return hostile_inputs.valid_files(tmp_path_factory.mktemp("valid"))


def spoil(content: bytes, edits: list[Edit]) -> bytes:
    """Replace stretches of a file: where in thousandths, how many bytes, and by what."""
    for place, length, put in edits:
        start = place * len(content) // 1000
        content = content[:start] + put + content[start + length :]
    return content


edits = st.lists(
    st.tuples(
        st.integers(0, 1000),
        st.sampled_from((0, 1, 2, 3, 8, 64, 10**6)),
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("kind", hostile_inputs.READERS)
def test_a_valid_file_is_read(kind, valid, tmp_path):
    assert hostile_inputs.read(kind, valid[kind], tmp_path)


@pytest.mark.parametrize("kind", hostile_inputs.READERS)
def test_a_spoilt_file_is_read_or_refused_in_one_line(kind, valid, tmp_path):
    @settings(QUICK, max_examples=EXAMPLES.get(kind, 60) * FACTOR)
    @given(edits)
    def spoilt(edits: list[Edit]) -> None:
        hostile_inputs.read(kind, spoil(valid[kind], edits), tmp_path)

    spoilt()


@pytest.mark.parametrize("kind", hostile_inputs.READERS)
def test_no_file_of_one_kind_passes_for_another_without_an_error(kind, valid, tmp_path):
    for other, content in valid.items():
        same = ({"trace", "trace gzip"}, {"pdb", "mmcif"})
        if other != kind and not any({kind, other} <= pair for pair in same):
            assert not hostile_inputs.read(kind, content, tmp_path), other


# ----- Values that JSON and TOML carry ------------------------------------------------------

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from((2**31, 2**63, -(2**70), 10**400, 1e308, 0.5, "", "a\nb", "\ud800", "nan")),
    st.sampled_from(([], {}, [[]], [None], [1, "a"], {"a": 1}, [0.5], ["path"], [[0, 1]])),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the ways to every part of a value."""
    parts: Any = ()
    if isinstance(value, (dict, list)):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(way for key, part in parts for way in places(part, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a value with one part replaced."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


def replacing(value: Any, check: Callable[[Any], object], examples: int) -> None:
    """Check a value with one or two of its parts replaced by anything."""

    @settings(QUICK, max_examples=examples * FACTOR)
    @given(st.sampled_from(places(value)), VALUES, st.integers(0, 10**6), VALUES)
    def replaced(first: tuple[Any, ...], new: Any, second: int, other: Any) -> None:
        once = put(value, first, new)
        check(once)
        ways = places(once)
        check(put(once, ways[second % len(ways)], other))

    replaced()


@pytest.mark.parametrize("kind", ["record", "trace"])
def test_json_with_parts_of_another_kind_is_read_or_refused(kind, valid, tmp_path):
    def check(document: Any) -> None:
        hostile_inputs.read(kind, json.dumps(document).encode(), tmp_path)

    replacing(json.loads(valid[kind]), check, 150)


def test_a_study_with_parts_of_another_kind_is_built_or_refused():
    whole = {
        "name": "mine", "families": ["path"], "sizes": [48], "candidates": 2, "sampler": "packed",
        "differ_in": ["num_colors"], "screening": "all", "description": "",
        "seeds": {"development_draws": [171], "evaluation_draws": [196]},
        "draws": {"screening": 2}, "accuracy": {"development": 0.5, "evaluation": 1.0},
        "reference": {"length": 64, "draws": [1], "values": {"path": 1.0}},
        "random": {"sampler": "random-balanced", "budget": "batches", "first": [0.5],
                   "width": 0.1, "variants": [{}]},
        "grid": {"packed": [{"num_colors": [4, 5], "degree_cutoff": 8, "families": ["path"],
                             "votes": {"degree": 2, "miss": 0.1}}]},
    }  # fmt: skip

    def check(content: Any) -> None:
        if not isinstance(content, dict):
            return
        try:
            config = config_from_dict(content, "mine")
        except ValueError as refused:
            assert str(refused) and "\n" not in str(refused)
        else:
            assert config_from_dict(config.as_dict(), "again") == config

    replacing(whole, check, 150)


def test_spoiling_changes_what_it_says():
    assert spoil(b"0123456789", [(500, 2, b"x")]) == b"01234x789"
    assert spoil(b"0123456789", [(0, 10**6, b"")]) == b""
    assert put({"a": [1, 2]}, ("a", 1), "x") == {"a": [1, "x"]}
    assert places({"a": [1]}) == [(), ("a",), ("a", 0)]


def test_an_undocumented_error_and_a_message_of_two_lines_are_defects(monkeypatch, tmp_path):
    def fails(file: Path) -> None:
        raise KeyError("lost")

    def chatters(file: Path) -> None:
        raise ValueError("one\ntwo")

    for reader, error in ((fails, KeyError), (chatters, AssertionError)):
        monkeypatch.setitem(hostile_inputs.READERS, "edges", (".txt", reader))
        with pytest.raises(error):
            hostile_inputs.read("edges", b"", tmp_path)


# ----- What stored replies carry ------------------------------------------------------------

ARRAYS = (
    lambda a: a.astype(a.dtype.newbyteorder(">")), lambda a: a.astype(np.float16),
    lambda a: a.astype(np.longdouble), lambda a: np.eye(*np.atleast_2d(a).shape, dtype=np.int8),
    lambda a: a * np.nan, lambda a: -a - 1, lambda a: a[:0], lambda a: a[None],
    lambda a: a.ravel()[:1].reshape(()), lambda a: np.full(a.shape, 2**40),
    lambda a: np.full(a.shape, 2**64 - 1, dtype=np.uint64), lambda a: a.ravel(),
)  # fmt: skip
HEADS = (
    {"rows": "ClassedRows", "classes": 9}, {"rows": "DenseRows"}, {"rows": "a\nb"}, {"rows": [1]},
    {"rows": "DenseRows", "device": "cpu", "dtype": "torch.float64"},
    {"rows": "DenseRows", "device": "meta", "dtype": "torch.float64"},
    {"rows": "DenseRows", "device": "cuda:63", "dtype": "torch.float64"},
    {"rows": "DenseRows", "device": "a\nb", "dtype": "x"}, {"rows": "DenseRows", "device": 3},
)  # fmt: skip


def test_stored_replies_of_another_kind_are_read_or_dropped_or_refused(valid, tmp_path):
    file = tmp_path / "replies.sqlite"
    file.write_bytes(valid["replies"])
    with sqlite3.connect(file) as database:
        stored = dict(database.execute("SELECT key, content FROM replies"))
    database.close()
    kinds = {bytes(content[16:]).split(b"arrays")[0] for content in stored.values()}
    assert len(kinds) > 1
    for key, sealed in stored.items():
        meta, arrays = unpack(_opened(key, sealed))
        changed = [
            *((meta, {**arrays, name: put(arrays[name])}) for name in arrays for put in ARRAYS),
            *((meta, {n: a for n, a in arrays.items() if n != name}) for name in arrays),
            *((meta, {**arrays, "positions": put(np.arange(3))}) for put in ARRAYS),
            (meta, {**arrays, "attention": np.full((3, 3), 0.25)}),
            (meta, {**arrays, "positions": np.array([0, 1, 99])}),
            *((head, arrays) for head in HEADS),
        ]  # fmt: skip
        for head, parts in changed:
            spoilt = tmp_path / "spoilt.sqlite"
            spoilt.write_bytes(valid["replies"])
            with sqlite3.connect(spoilt) as database:
                database.execute(
                    "UPDATE replies SET content = ? WHERE key = ?",
                    (_sealed(key, pack(head, parts)), key),
                )
            database.close()
            hostile_inputs.read("replies", spoilt.read_bytes(), tmp_path)
