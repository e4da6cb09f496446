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
from counterprobe.run.run import measure
from counterprobe.testing import CountingOracle

WIDE = Limits(1000, 1000)


def start_rows(oracle, start, positions):
    return oracle.rows(start[None, :], Readouts.same(1, positions))


def plain_divergence(oracle, chain, tokens):
    """One chain, one step and one position at a time."""
    start = start_rows(oracle, chain.start, chain.positions)
    total = 0.0
    for k in chain.steps:
        state = chain.start.copy()
        state[chain.positions[:k]] = tokens[:k]
        left = []
        for rank in range(k, len(chain)):
            row = start_rows(oracle, state, [chain.positions[rank]])
            left.append(float(start.take(np.array([rank])).kl(row)[0]))
        total += chain.weight * np.mean(left)
    return total


def random_chains(law, seed, count=9):
    """Chains of all sizes at random starts, some with few steps, and values for each."""
    draw = np.random.default_rng(seed)
    chains, values = [], []
    for _ in range(count):
        order = draw.permutation(law.length)
        size = int(draw.integers(1, law.length + 1))
        start = np.full(law.length, cp.MASK, dtype=np.int32)
        known = order[size : size + int(draw.integers(0, law.length - size + 1))]
        start[known] = draw.integers(0, law.vocab_size, len(known))
        values.append(draw.integers(0, law.vocab_size, size))
        steps, weight = choose_steps(size, int(draw.integers(1, 4)), draw)
        chains.append(Chain(start, order[:size], steps, weight))
    return chains, values


def all_divergences(oracle, chains, values, limits):
    tokens = np.concatenate(values)
    [(totals, largest, shown)], ledger = measure(
        oracle, [chain_divergences(chains, limits, tokens=tokens)]
    )
    assert 0 <= largest < np.inf or np.isinf(totals).any()
    assert shown is tokens and ledger.stages == 1
    return totals


@pytest.mark.parametrize("limits", [WIDE, Limits(1, 1000), Limits(3, 1000), Limits(1000, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_many_chains_together_are_each_alone(law, seed, limits):
    oracle, (chains, values) = law.oracle(), random_chains(law, seed)
    found = all_divergences(oracle, chains, values, limits)
    expected = [plain_divergence(oracle, *one) for one in zip(chains, values, strict=True)]
    assert found == pytest.approx(expected, abs=1e-12)
    assert max(expected) > 1e-3


@pytest.mark.parametrize("limits", [Limits(1, 1000), Limits(4, 1000), Limits(1000, 9)])
def test_requests_keep_to_the_limits(forest_law, limits):
    oracle = CountingOracle(forest_law.oracle())
    chains, values = random_chains(forest_law, 5)
    few = next(k for k, chain in enumerate(chains) if len(chain) > 1)
    all_divergences(oracle, [chains[few]], [values[few]], limits)
    assert len(oracle.seen[0]) == 1  # the start
    for states, readouts in zip(oracle.seen[1:], oracle.read[1:], strict=True):
        # One state may have to be read at more positions than a reply should hold.
        assert len(states) <= limits.states
        assert len(readouts) <= limits.rows or len(states) == 1
    assert oracle.states == 1 + len(chains[few].steps)


def test_values_are_drawn_from_the_rows_at_the_starts(table_law):
    oracle, (chains, _) = table_law.oracle(), random_chains(table_law, 2)
    uniforms = np.random.default_rng(0).random(sum(map(len, chains)))
    drawing = chain_divergences(chains, WIDE, uniforms=uniforms)
    [(totals, _, tokens)], ledger = measure(oracle, [drawing])
    assert ledger.stages == 2
    low = 0
    for chain in chains:
        here = slice(low, low + len(chain))
        rows = start_rows(oracle, chain.start, chain.positions)
        assert np.array_equal(tokens[here], rows.draw(uniforms[here]))
        low += len(chain)
    values = np.split(tokens, np.cumsum([len(chain) for chain in chains])[:-1])
    assert totals == pytest.approx(all_divergences(oracle, chains, values, WIDE), abs=1e-12)


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
        chain = Chain(given, np.array(batch)[places], np.arange(1, len(batch)), 1.0)
        shown = [np.array(x)[places] for x in values]
        found = all_divergences(oracle, [chain] * len(values), shown, WIDE)
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
    chain = Chain(start, np.array([0, 1]), np.array([1]), 1.0)
    with pytest.warns(cp.errors.ZeroProbabilityWarning):
        found = all_divergences(copied.oracle(), [chain], [np.array([1, 1])], WIDE)
    assert found.tolist() == [np.inf]
