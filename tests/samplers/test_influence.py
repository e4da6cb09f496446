"""Influence by probing: the definition written out, its charges, and values spread over rows."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Draft
from counterprobe.samplers.rules import graph_rule
from counterprobe.samplers.rules.graph_rule import probed_influence, spread_values

MASK = cp.MASK


def random_table(seed: int, shape: tuple[int, ...]) -> cp.TableLaw:
    weights = np.random.default_rng(seed).dirichlet(np.full(int(np.prod(shape)), 0.6))
    return cp.TableLaw(weights.reshape(shape))


def row(law: cp.TableLaw, state: np.ndarray, position: int) -> np.ndarray:
    """The conditional of one position, by enumeration of the table."""
    sequences = np.indices((law.vocab_size,) * law.length).reshape(law.length, -1).T
    table = np.exp(law.log_prob(sequences))
    agrees = ((sequences == state) | (state == MASK)).all(axis=1)
    mass = np.bincount(
        sequences[agrees, position], weights=table[agrees], minlength=law.vocab_size
    )
    return mass / mass.sum()


def plain_influence(law, state, sources, values, targets) -> np.ndarray:
    moved = np.zeros((len(sources), len(targets)))
    for a, source in enumerate(sources):
        for b, target in enumerate(targets):
            if source == target:
                continue
            for value in values[a]:
                beside = state.copy()
                beside[source] = value
                gap = np.abs(row(law, beside, target) - row(law, state, target)).sum() / 2
                moved[a, b] += gap / len(values[a])
    return moved


def begun(oracle: cp.Oracle, given=None) -> tuple[cp.run.Run, cp.rows.Rows]:
    run = cp.run.Run(oracle, given=given)
    run.begin(cp.Streams(1, 2))
    return run, run.do(Draft()).rows


@pytest.mark.parametrize("piece", [1, 9, 1 << 18])
@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_mean_total_variation_by_enumeration(seed, piece, monkeypatch):
    monkeypatch.setattr(graph_rule, "PIECE", piece)
    law = random_table(seed, (3,) * 4)
    draw = np.random.default_rng(seed)
    given = np.full(4, MASK)
    given[seed % 4] = 1 if seed % 2 else MASK
    run, rows = begun(law.oracle(), given)
    sources = draw.permutation(run.residual)[:3]
    targets = run.residual[1:]
    values = draw.integers(0, 3, (3, 4))
    found = run.call(probed_influence, rows, sources, values, targets)
    expected = plain_influence(law, run.state, sources, values, targets)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_wave_is_one_stage_and_asks_no_state_twice(counted):
    law = random_table(5, (2,) * 5)
    oracle = counted(law.oracle())
    run, rows = begun(oracle)
    before = run.ledger
    values = np.array([[0, 0, 1], [1, 1, 1], [0, 1, 0]])
    run.call(probed_influence, rows, np.array([0, 2, 4]), values, run.residual)
    made = run.ledger.probes - before.probes
    assert made == 5 == oracle.states - 1  # distinct (source, value) pairs
    assert run.ledger.stages - before.stages == 1
    assert run.ledger.rows_read - before.rows_read == 5 * 4
    asked = np.concatenate(oracle.seen[1:])
    assert len(np.unique(asked, axis=0)) == 5
    assert ((asked != MASK).sum(axis=1) == 1).all()


def test_what_the_row_error_explains_is_no_influence():
    law = random_table(6, (2,) * 3)

    def noisy(states):
        rows = np.full((*states.shape, 2), 0.5)
        shown = (states != MASK).any(axis=1)
        rows[shown] += np.array([0.01, -0.01])
        return rows

    for row_error, expected in ((0.004, 0.01), (0.006, 0.0)):
        oracle = cp.CallableOracle(noisy, 3, law.vocab_size, row_error=row_error)
        run, rows = begun(oracle)
        moved = run.call(
            probed_influence, rows, np.array([0, 1]), np.zeros((2, 1), int), np.array([2])
        )
        np.testing.assert_allclose(moved, expected, atol=1e-12)


def test_with_every_value_it_is_the_distance_of_the_pair_from_its_product():
    # Marginals in eighths, so that eight spread values are the row itself, wherever they start.
    joint = np.array([[5, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [1, 5, 5, 5]]) / 32
    law = cp.TableLaw(joint)
    for seed in range(8):
        run, rows = begun(law.oracle())
        values = spread_values(rows, 8, np.random.default_rng(seed))
        found = run.call(probed_influence, rows, np.array([0, 1]), values, np.array([0, 1]))
        product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        distance = np.abs(joint - product).sum() / 2
        np.testing.assert_allclose(found, [[0, distance], [distance, 0]], atol=1e-12)


def test_spread_values_come_up_as_often_as_their_probability_says():
    masses = np.random.default_rng(3).dirichlet(np.full(5, 0.7), size=6)
    for count in (1, 3, 50):
        values = spread_values(cp.rows.DenseRows(masses), count, np.random.default_rng(count))
        assert values.shape == (6, count)
        for row_values, mass in zip(values, masses, strict=True):
            seen = np.bincount(row_values, minlength=5)
            assert (np.abs(seen - count * mass) < 1 + 1e-9).all()
