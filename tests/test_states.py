"""States: what is one, and which one it is."""

import itertools

import numpy as np
import pytest

from counterprobe.states import (
    MASK,
    as_states,
    check_batch,
    check_positions,
    fingerprint,
    fingerprint_change,
    fingerprint_weights,
    first_disagreement,
    mix64,
)

LENGTH, VOCAB_SIZE = 3, 4


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_states_of_any_integer_type_become_a_contiguous_batch(dtype):
    wide = np.array([[0, 9, -1, 9, 3, 9]], dtype=dtype)
    states = as_states(wide[:, ::2], LENGTH, VOCAB_SIZE)
    assert states.tolist() == [[0, -1, 3]]
    assert states.dtype == np.int32
    assert states.flags.c_contiguous


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([0, 1], r"context must have shape \(B, 3\) or \(3,\), got \(2,\)"),
        (np.zeros((1, 1, 3), dtype=int), r"got \(1, 1, 3\)"),
        (np.int64(0), r"got \(\)"),
        ([0.0, 1.0, 2.0], "context must hold integers, got dtype float64"),
        ([True, False, True], "must hold integers, got dtype bool"),
        ([[0, 1, 2], [0, 1, 4]], r"tokens 0\.\.3 or MASK \(-1\), got 4 in state 1 at position 2"),
        ([-2, 0, 0], "got -2 in state 0 at position 0"),
    ],
)
def test_what_is_not_a_state_is_refused(states, message):
    with pytest.raises(ValueError, match=message):
        as_states(states, LENGTH, VOCAB_SIZE, name="context")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([], "non-empty list of positions"),
        ([[0, 1]], "non-empty list of positions"),
        ([0.0], "non-empty list of positions"),
        ([True, False, False], "non-empty list of positions"),
        ([-1], r"must lie in 0\.\.2, got -1\.\.-1"),
        ([0, 3], r"must lie in 0\.\.2, got 0\.\.3"),
        ([2, 0, 2], "must not name a position twice"),
        ([0, 1], "position 1 is committed already"),
    ],
)
def test_a_batch_names_masked_positions_once(batch, message):
    with pytest.raises(ValueError, match=message):
        check_batch(batch, np.array([-1, 2, -1], dtype=np.int32))


# ----- Fingerprints -------------------------------------------------------------------------


def test_mix64_is_splitmix64():
    # First outputs of the published generator for seeds 0 and 1234567.
    assert [int(v) for v in mix64([0, 1234567])] == [0xE220A8397B1DCDAF, 6457827717110365317]


def test_fingerprint_is_the_linear_form_it_says_it_is():
    states = np.random.default_rng(0).integers(-1, 2048, size=(5, 9)).astype(np.int32)
    weights = [int(w) for w in fingerprint_weights(9)]
    expected = [
        sum(w * (int(t) + 2) for w, t in zip(weights, row, strict=True)) % 2**64 for row in states
    ]
    assert [int(v) for v in fingerprint(states)] == expected
    assert all(w % 2 for w in weights)


def test_fingerprint_tells_every_small_state_apart():
    states = np.array(list(itertools.product(range(-1, 3), repeat=5)), dtype=np.int32)
    assert len(set(fingerprint(states).tolist())) == len(states)


@pytest.mark.parametrize("seed", range(5))
def test_a_change_updates_the_fingerprint(seed):
    draw = np.random.default_rng(seed)
    before = draw.integers(-1, 50, size=12).astype(np.int32)
    positions = draw.permutation(12)[: 1 + 2 * seed]
    after = before.copy()
    after[positions] = draw.integers(-1, 50, size=len(positions))
    change = fingerprint_change(positions, before[positions], after[positions], 12)
    updated = (int(fingerprint(before)[0]) + int(change)) % 2**64
    assert updated == int(fingerprint(after)[0])


def test_first_disagreement_is_about_committed_positions_only():
    history = np.array([-1, 2, -1, 0], dtype=np.int32)
    keeps = np.array([[3, 2, -1, 0], [-1, 2, 1, 0]], dtype=np.int32)
    assert first_disagreement(keeps, history) == (-1, -1)
    changed = keeps.copy()
    changed[1, 3] = 1
    assert first_disagreement(changed, history) == (1, 3)
    masked = keeps.copy()
    masked[0, 1] = MASK
    assert first_disagreement(masked, history) == (0, 1)


def test_bounds_of_tokens_and_positions_are_exact():
    assert as_states([3, MASK, 0], 3, 4).tolist() == [[3, MASK, 0]]
    assert as_states([0], 1, 1).tolist() == [[0]]
    with pytest.raises(ValueError, match=r"^states must hold tokens 0\.\.0 or MASK \(-1\), got 1"):
        as_states([1], 1, 1)
    assert check_positions([2, 0], 3).tolist() == [2, 0]
    assert check_positions(np.array([2], dtype=np.uint8), 3).dtype == np.int64
    with pytest.raises(ValueError, match=r"must lie in 0\.\.2, got 1\.\.3"):
        check_positions([3, 1], 3)


def test_the_first_wrong_token_is_named_in_reading_order():
    with pytest.raises(ValueError, match="got 7 in state 1 at position 0"):
        as_states([[0, 1], [7, 9], [8, 0]], 2, 4)


def test_a_value_too_large_for_a_state_is_no_token():
    with pytest.raises(ValueError, match="got 4294967296 in state 0"):
        as_states(np.array([2**32, 0]), 2, 4)


def test_fingerprints_take_any_integers_and_any_layout():
    states = np.random.default_rng(1).integers(-1, 9, size=(4, 6))
    plain = fingerprint(states.astype(np.int32)).tolist()
    assert fingerprint(states.astype(np.int64)).tolist() == plain
    assert fingerprint(states.tolist()).tolist() == plain
    assert fingerprint(np.asfortranarray(states.astype(np.int32))).tolist() == plain
    assert fingerprint(states[0]).tolist() == plain[:1]
