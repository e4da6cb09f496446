"""Whatever settings and results hold becomes what JSON has; what cannot be read has a digest."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.digests import array_digest, content_digest, digest_of
from counterprobe.plain import differences, plain


class Thing:
    """Its text holds an address."""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (True, True), (3, 3), (0.5, 0.5), ("x", "x"), (np.int64(3), 3),
        (np.bool_(True), True), (np.float64(0.5), 0.5), (math.inf, "inf"), (-math.inf, "-inf"),
        (math.nan, None), (np.float32("inf"), "inf"), ((1, (2,)), [1, [2]]),
        (np.array([1.0, np.nan]), [1.0, None]), (range(3), [0, 1, 2]), (Path("a/b"), "a/b"),
        ({1: {"a": (np.float32(0.5),)}}, {"1": {"a": [0.5]}}), (cp.Need.VERIFY, "Need.VERIFY"),
        pytest.param(Thing(), "Thing", id="thing"),
        (cp.Streams(1, 2), "Streams(decision_seed=1, commit_seed=2)"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_becomes_what_json_has(value, expected):
    found = plain(value)
    assert found == expected and type(found) is type(expected)
    json.dumps(found, allow_nan=False)


def test_long_lists_become_their_length_at_any_depth():
    assert plain({"a": [range(100), range(2)]}, most_items=64) == {"a": ["100 values", [0, 1]]}


def test_an_array_is_named_by_its_type_shape_and_digest():
    one = np.arange(6, dtype=np.int64)
    assert array_digest(one).startswith("array <i8 (6,) ")
    others = [one[::-1], one.astype(np.int32), one.reshape(2, 3), one + 1]
    assert len({array_digest(array) for array in [one, *others]}) == 5
    assert array_digest(np.arange(12)[::2]) == array_digest(2 * np.arange(6))


def test_digests_tell_types_and_shapes_apart():
    parts = [np.array([1, 2]), np.array([[1, 2]]), np.zeros(2, np.int32), np.zeros(1, np.int64)]
    made = [digest_of(part) for part in parts] + [digest_of(), digest_of(None), digest_of(b"a")]
    assert len(set(made)) == len(made)
    assert digest_of((parts[0], parts[1])) != digest_of(parts[0], parts[1])


def test_contents_are_compared_in_single_precision():
    one = np.array([0.1, 0.2])
    assert content_digest(one) == content_digest(one + 1e-12) != content_digest(one + 1e-3)


def test_differences_say_where_both_values_are():
    before = {"a": [1, {"b": 2.0}], "seconds": 3, "gone": 1, "same": "x"}
    now = {"a": [1, {"b": 2.5}], "seconds": 9, "same": "x", "new": 4}
    found = dict(differences(before, now, apart={"seconds"}))
    assert found == {"a[1].b": (2.0, 2.5), "gone": (1, None)}
    assert dict(differences([1, 2], [1, 2, 3])) == {"": ([1, 2], [1, 2, 3])}


def test_numbers_that_were_not_whole_may_differ_by_the_tolerance():
    assert not dict(differences({"x": 2.0}, {"x": 2.0 + 1e-10}, 1e-9))
    assert not dict(differences({"x": 2.0}, {"x": 2}, 1e-9))
    assert dict(differences({"x": 2.0}, {"x": 2.0 + 1e-8}, 1e-9))
    assert dict(differences({"x": 2}, {"x": 2.0000000001}, 1e-9)), "a count is exact"
