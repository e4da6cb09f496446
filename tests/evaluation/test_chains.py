"""Chains of states: exact on enumerated batches, whatever is asked at once."""

import itertools

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import batch_kl_of_batches
from counterprobe.evaluation.chains import (
    Chain,
    Limits,
    chain_divergences,
    choose_steps,
    in_groups,
)
from counterprobe.oracles import Readouts

WIDE = Limits(1000, 1000)


def start_rows(oracle, start, positions):
    return oracle.rows(start[None, :], Readouts.same(1, positions))


def plain_divergence(oracle, chain):
    """One chain, one step and one position at a time."""
    start = start_rows(oracle, chain.start, chain.positions)
    total = 0.0
    for k in chain.steps:
        state = chain.start.copy()
        state[chain.positions[:k]] = chain.tokens[:k]
        left = []
        for rank in range(k, len(chain)):
            row = start_rows(oracle, state, [chain.positions[rank]])
            left.append(float(start.take(np.array([rank])).kl(row)[0]))
        total += chain.weight * np.mean(left)
    return total


def random_chains(law, seed, count=9):
    """Chains of all sizes at random starts, some with few steps."""
    draw = np.random.default_rng(seed)
    chains = []
    for _ in range(count):
        order = draw.permutation(law.length)
        size = int(draw.integers(1, law.length + 1))
        start = np.full(law.length, cp.MASK, dtype=np.int32)
        known = order[size : size + int(draw.integers(0, law.length - size + 1))]
        start[known] = draw.integers(0, law.vocab_size, len(known))
        tokens = draw.integers(0, law.vocab_size, size)
        steps, weight = choose_steps(size, int(draw.integers(1, 4)), draw)
        chains.append(Chain(start, order[:size], tokens, steps, weight))
    return chains


def all_divergences(oracle, chains, limits):
    states = np.stack([chain.start for chain in chains])
    sizes = [len(chain) for chain in chains]
    index = np.repeat(np.arange(len(chains)), sizes)
    rows = oracle.rows(
        states, Readouts.pairs(index, np.concatenate([c.positions for c in chains]))
    )
    totals, largest = chain_divergences(
        oracle.rows, chains, rows, np.cumsum(sizes) - sizes, limits
    )
    assert 0 <= largest < np.inf or np.isinf(totals).any()
    return totals


@pytest.mark.parametrize("limits", [WIDE, Limits(1, 1000), Limits(3, 1000), Limits(1000, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_many_chains_together_are_each_alone(law, seed, limits):
    oracle, chains = law.oracle(), random_chains(law, seed)
    found = all_divergences(oracle, chains, limits)
    expected = [plain_divergence(oracle, chain) for chain in chains]
    assert found == pytest.approx(expected, abs=1e-12)
    assert max(expected) > 1e-3


@pytest.mark.parametrize("limits", [Limits(1, 1000), Limits(4, 1000), Limits(1000, 9)])
def test_requests_keep_to_the_limits(forest_law, limits):
    oracle, asked = forest_law.oracle(), []

    def ask(states, readouts):
        asked.append((len(states), len(readouts)))
        return oracle.rows(states, readouts)

    chains = [c for c in random_chains(forest_law, 5) if len(c) > 1]
    rows = start_rows(oracle, chains[0].start, chains[0].positions)
    chain_divergences(ask, chains[:1], rows, np.array([0]), limits)
    for states, rows_read in asked:
        # One state may have to be read at more positions than a reply should hold.
        assert states <= limits.states
        assert rows_read <= limits.rows or states == 1
    assert sum(states for states, _ in asked) == len(chains[0].steps)


@pytest.mark.parametrize("batch", [[0, 2], [3, 0, 1], [0, 1, 2, 3]])
def test_mean_over_all_values_and_orders_is_the_batch_kl(table_law, batch):
    oracle = table_law.oracle()
    given = np.full(4, cp.MASK, dtype=np.int32)
    if len(batch) < 4:
        given[next(i for i in range(4) if i not in batch)] = 1
    values = list(itertools.product(range(3), repeat=len(batch)))
    rows = start_rows(oracle, given, batch).dense()
    orders = list(itertools.permutations(range(len(batch))))
    mean = 0.0
    for order in orders:
        places = list(order)
        chains = [
            Chain(
                given,
                np.array(batch)[places],
                np.array(x)[places],
                np.arange(1, len(batch)),
                1.0,
            )
            for x in values
        ]
        found = all_divergences(oracle, chains, WIDE)
        weight = [np.prod([rows[r, t] for r, t in enumerate(x)]) for x in values]
        mean += np.dot(weight, found) / len(orders)
    tokens = np.where(given == cp.MASK, 0, given)
    expected = batch_kl_of_batches(table_law, tokens, [batch], given=given).value
    assert mean == pytest.approx(expected, abs=1e-12)
    assert expected > 0.01


@pytest.mark.parametrize("terms", [1, 2, 3])
def test_chosen_steps_keep_the_mean(terms):
    draw = np.random.default_rng(0)
    value = np.array([0.0, 5.0, 1.0, 2.0, 7.0])  # of steps 0 (never taken) to 4
    seen = set()
    for _ in range(200):
        steps, weight = choose_steps(5, terms, draw)
        assert len(set(steps.tolist())) == terms
        assert weight == 4 / terms
        seen.add(tuple(steps.tolist()))
    assert seen == set(itertools.combinations(range(1, 5), terms))
    # Every subset is as likely as any other, so that their mean is the whole sum.
    means = [4 / terms * value[list(subset)].sum() for subset in seen]
    assert np.mean(means) == pytest.approx(value.sum())


def test_groups_cover_everything_within_the_limits():
    draw = np.random.default_rng(1)
    for _ in range(50):
        sizes = draw.integers(0, 9, size=int(draw.integers(0, 20))).tolist()
        groups = list(in_groups(sizes, Limits(4, 10)))
        assert [k for g in groups for k in range(g.start, g.stop)] == list(range(len(sizes)))
        for g in groups:
            assert g.stop - g.start <= 4
            assert sum(sizes[g]) <= 10


def test_a_later_row_that_misses_mass_is_infinitely_far():
    copied = cp.TableLaw(np.diag([0.5, 0.5]))
    start = np.full(2, cp.MASK, dtype=np.int32)
    chain = Chain(start, np.array([0, 1]), np.array([1, 1]), np.array([1]), 1.0)
    assert all_divergences(copied.oracle(), [chain], WIDE).tolist() == [np.inf]
