"""PUNT: its counts, what it gets right, and what hides from it."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import draw_tree_law
from counterprobe.samplers import PUNT, OneBatch

STREAMS = cp.Streams(91, 92)


def pairs(count: int, strength: float = 0.5) -> cp.ForestLaw:
    """Matched pairs of two-token positions with fields of their own."""
    draw = np.random.default_rng(2)
    joined = draw.permutation(count).reshape(-1, 2)
    coupling = [[1 + strength, 1 - strength], [1 - strength, 1 + strength]]
    return cp.ForestLaw(draw.uniform(0.5, 1.5, size=(count, 2)), joined, coupling)


@pytest.mark.parametrize(("count", "expected"), [(64, 13), (1024, 21)])
def test_matched_pairs_take_two_steps(count, expected):
    result = PUNT(1e-9)(cp.run.Run(pairs(count).oracle()), STREAMS)
    assert [len(batch) for batch in result.batches] == [count // 2] * 2
    assert result.ledger.evaluations == result.ledger.stages == expected
    assert expected == (1 + math.log2(count)) + (1 + math.log2(count // 2))
    assert (result.ledger.probes, result.ledger.commits) == (expected - 2, 2)
    assert cp.evaluation.batch_kl(pairs(count), result).value == 0.0


def test_matched_pairs_come_out_exactly():
    law = pairs(4)
    output = draw_tree_law(law, PUNT(1e-9))
    sequences = np.indices((2,) * 4).reshape(4, -1).T
    target = np.exp(law.log_prob(sequences)).reshape(output.shape)
    assert np.abs(output - target).sum() < 1e-12


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 9, 64])
@pytest.mark.parametrize("tests", ["successive", "parallel"])
def test_an_infinite_epsilon_is_one_product_batch(count, tests):
    law = cp.families.path(max(2, count), target_seed=1)
    given = np.full(law.length, cp.MASK)
    if count == 1:
        given[0] = 0
    run = cp.run.Run(law.oracle(), given=given)
    result = PUNT(math.inf, tests=tests)(run, STREAMS)
    tested = math.ceil(math.log2(count))
    assert result.ledger.evaluations == 1 + tested
    assert result.ledger.stages == 1 + (tested if tests == "successive" else min(1, tested))
    assert len(result.batches) == 1
    # Its candidates are the first draw of every position, as in one batch.
    alone = OneBatch()(cp.run.Run(law.oracle(), given=given), STREAMS)
    assert result.tokens.tolist() == alone.tokens.tolist()


def test_a_negative_epsilon_is_the_most_confident_chain_rule():
    law = cp.families.path(9, target_seed=1)
    result = PUNT(-1.0)(cp.run.Run(law.oracle()), STREAMS)
    state = np.full(9, cp.MASK, dtype=np.int32)
    for batch in result.batches:
        residual = np.flatnonzero(state == cp.MASK)
        rows = law.oracle().rows(state[None], cp.Readouts.same(1, residual))
        assert batch.tolist() == [residual[int(np.argmax(rows.top()[1]))]]
        state[batch] = result.tokens[batch]


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
def test_parity_hides_from_every_pairwise_test():
    # An independent token at rank 0, then three bits of which any two are independent.
    parity = 1 - np.indices((2, 2, 2)).sum(axis=0) % 2
    law = cp.TableLaw(np.multiply.outer([0.25, 0.75], parity))
    result = PUNT(0.0)(cp.run.Run(law.oracle()), STREAMS)
    assert [len(batch) for batch in result.batches] == [4]
    output = draw_tree_law(law, PUNT(0.0))
    odd = np.broadcast_to(1 - parity, output.shape)
    assert (output * odd).sum() == pytest.approx(0.5)
    assert (law.table * odd).sum() == 0


def test_the_parallel_variant_drops_at_least_as_many_in_the_first_step():
    law = cp.families.path(64, target_seed=5)
    first = {
        tests: PUNT(1e-4, tests=tests)(cp.run.Run(law.oracle()), STREAMS)
        for tests in ("successive", "parallel")
    }
    sizes = {tests: len(result.batches[0]) for tests, result in first.items()}
    assert sizes["parallel"] <= sizes["successive"]
    assert first["parallel"].ledger.stages <= 2 * first["parallel"].ledger.commits


@pytest.mark.parametrize("rank_by", ["confidence", "entropy"])
def test_the_best_ranked_position_is_always_committed(rank_by):
    law = cp.families.path(32, target_seed=6)
    rows = cp.run.Run(law.oracle()).do(cp.run.Preprocess())
    score = rows.top()[1] if rank_by == "confidence" else -rows.entropy()
    result = PUNT(1e-9, rank_by=rank_by)(cp.run.Run(law.oracle()), STREAMS)
    assert int(np.argmax(score)) in result.batches[0]
    for batch, left in zip(
        result.batches, 32 - np.cumsum([0, *map(len, result.batches)]), strict=False
    ):
        assert 1 <= len(batch) <= left
