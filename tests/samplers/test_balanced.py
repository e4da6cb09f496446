"""Batches that need no reply: their sizes, their coupling, their noise."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import OneBatch, RandomBalanced, Sequential
from fixed import batches_of

STREAMS = cp.Streams(51, 52)


def order_of(batches: list[np.ndarray]) -> list[int]:
    return np.concatenate(batches).tolist()


def schedule(batches: int, length: int = 23) -> list[np.ndarray]:
    return batches_of(RandomBalanced(batches), np.arange(length), STREAMS.decisions)


def test_one_batch_is_one_evaluation(law):
    result = OneBatch()(cp.run.Run(law.oracle()), STREAMS)
    assert result.ledger == cp.Ledger(commits=1, stages=1, rows_read=law.length, widest_stage=1)
    assert result.batches[0].tolist() == list(range(law.length))


@pytest.mark.parametrize("batches", [1, 2, 5, 22, 23, 24, 64])
def test_sizes_differ_by_at_most_one_and_cover_everything(batches):
    parts = schedule(batches)
    sizes = [len(part) for part in parts]
    assert len(parts) == min(batches, 23)
    assert max(sizes) - min(sizes) <= 1
    assert sorted(order_of(parts)) == list(range(23))


@pytest.mark.parametrize("batches", [2, 5, 9, 22])
def test_the_larger_batches_come_first_or_last(batches):
    parts = {
        first: batches_of(RandomBalanced(batches, first), np.arange(23), STREAMS.decisions)
        for first in (True, False)
    }
    sizes = {first: [len(part) for part in found] for first, found in parts.items()}
    assert sizes[True] == sorted(sizes[True], reverse=True)
    assert sizes[False] == sorted(sizes[False])
    assert sizes[True][0] > sizes[True][-1]
    assert order_of(parts[True]) == order_of(parts[False])


def test_budgets_share_one_permutation():
    assert len({tuple(order_of(schedule(batches))) for batches in (1, 2, 7, 23)}) == 1
    other = batches_of(RandomBalanced(7), np.arange(23), cp.Streams(53, 52).decisions)
    assert order_of(list(other)) != order_of(schedule(7))


def test_on_a_product_law_every_budget_draws_the_same_tokens():
    product = cp.ForestLaw(
        np.random.default_rng(0).uniform(0.5, 1.5, size=(9, 4)), [], np.ones((4, 4))
    )
    samplers = [OneBatch(), Sequential(), *(RandomBalanced(k) for k in (1, 2, 4, 9))]
    drawn = {tuple(s(cp.run.Run(product.oracle()), STREAMS).tokens) for s in samplers}
    assert len(drawn) == 1


def test_as_many_batches_as_positions_is_the_random_sequential_order(law):
    one = RandomBalanced(law.length)(cp.run.Run(law.oracle()), STREAMS)
    other = Sequential("random")(cp.run.Run(law.oracle()), STREAMS)
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.round_of_position.tolist() == other.round_of_position.tolist()
    assert one.ledger == other.ledger


@pytest.mark.parametrize("length", [7, 9])
def test_distances_of_another_length_are_refused(length):
    rule = cp.samplers.Spread(batches=2, distances=np.ones((length, length)))
    with pytest.raises(ValueError, match="N = 8 positions"):
        cp.sample(cp.families.path(8, target_seed=1).oracle(), rule, progress=False)
