"""Work that is kept of a run: rows are the oracle's to the last bit along any history."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import families
from followed import Followed


@pytest.mark.parametrize("shape", ["forest", "path", "star", "caterpillar"])
@pytest.mark.parametrize("num_classes", [2, 3])
def test_rows_equal_the_oracles_along_random_commits(
    shape, num_classes, draw_tree_law, draw_states
):
    for seed in range(6):
        rng = np.random.default_rng([31, seed, *shape.encode()])
        length = int(rng.integers(1, 150))
        law = draw_tree_law(rng, length, shape, num_classes)
        oracle = law.oracle()
        state = draw_states(rng, (1, length), num_classes, rng.choice([0.3, 1.0]))
        run = Followed(oracle, state)
        remaining = rng.permutation(np.flatnonzero(state[0] == cp.MASK))
        while len(remaining):
            for _ in range(rng.integers(3)):  # none, one or two reads between commits
                count = rng.integers(1, len(remaining) + 1)
                asked = rng.choice(remaining, count, replace=bool(rng.integers(2)))
                rows = run.rows(asked)
                expected = oracle.rows(state, cp.Readouts.same(1, asked))
                np.testing.assert_array_equal(rows.masses, expected.masses)
                np.testing.assert_array_equal(rows.positions, asked)
            batch = remaining[: rng.choice([1, 2, 7])]
            remaining = remaining[len(batch) :]
            tokens = rng.integers(num_classes, size=len(batch))
            run.push(batch, tokens)
            state[0, batch] = tokens


def test_every_kept_row_is_still_right_after_each_commit():
    # Reading everything after each commit would show a row that was kept by mistake.
    law = families.binary_tree(63, 5)
    oracle, rng = law.oracle(), np.random.default_rng(32)
    state = np.full((1, 63), cp.MASK)
    run = Followed(oracle, state)
    run.rows(np.arange(63))
    for i in rng.permutation(63)[:-1]:
        state[0, i] = rng.integers(3)
        run.push(np.array([i]), state[0, [i]])
        masked = np.flatnonzero(state[0] == cp.MASK)
        expected = oracle.rows(state, cp.Readouts.same(1, masked)).masses
        np.testing.assert_array_equal(run.rows(masked).masses, expected)


def test_a_commit_elsewhere_keeps_the_rows_it_cannot_change(monkeypatch):
    asked = []
    real = cp.targets.session.rows_of_state
    monkeypatch.setattr(
        cp.targets.session,
        "rows_of_state",
        lambda forest, scratch, state, positions, out: (
            asked.append(sorted(positions.tolist())),
            real(forest, scratch, state, positions, out),
        ),
    )
    law = cp.ForestLaw(np.ones((6, 2)), [[0, 1], [1, 2], [3, 4], [4, 5]], [[2, 1], [1, 2]])
    run = Followed(law.oracle(), np.full(6, cp.MASK))
    run.rows(np.arange(6))
    run.push(np.array([4]), np.array([1]))
    run.rows(np.array([0, 1, 2, 3, 5]))
    assert asked == [[0, 1, 2, 3, 4, 5], [3, 5]]


def test_the_state_that_work_was_kept_of_is_its_own():
    law = cp.ForestLaw(np.ones((2, 2)), [[0, 1]], [[3, 1], [1, 3]])
    state = np.array([0, cp.MASK], dtype=np.int32)
    run = Followed(law.oracle(), state)
    run.rows(np.array([1]))
    state[0] = 1
    np.testing.assert_allclose(run.rows(np.array([1])).dense(), [[0.75, 0.25]])


def test_what_was_returned_is_not_changed_by_later_commits():
    law = families.path(20, 1)
    run = Followed(law.oracle(), np.full(20, cp.MASK))
    first = run.rows(np.arange(20))
    kept = first.masses.copy()
    run.push(np.array([3, 11]), np.array([0, 1]))
    run.rows(np.array([2, 4]))
    np.testing.assert_array_equal(first.masses, kept)


def test_given_context_is_part_of_the_history():
    law = families.path(30, 2)
    given = np.full(30, cp.MASK, dtype=np.int32)
    given[::3] = 0
    masked = np.flatnonzero(given == cp.MASK)
    expected = law.oracle().rows(given[None, :], cp.Readouts.same(1, masked)).masses
    rows = Followed(law.oracle(), given).rows(masked)
    np.testing.assert_array_equal(rows.masses, expected)
