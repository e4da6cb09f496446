"""One position a round: its orders, and that its law is exact."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import OneBatch, Sampler, Sequential

STREAMS = cp.Streams(31, 32)

# 3,000 draws over 16 sequences: at level 1e-4 / 4 a law at chi-square distance 0.023 (up to 0.076
# in total variation) is rejected with probability 0.99.
COUNT = 3_000


def small_table() -> cp.TableLaw:
    """Four coupled bits, whose most confident position depends on the values seen."""
    return cp.TableLaw(np.random.default_rng(3).dirichlet(np.full(16, 0.7)).reshape((2,) * 4))


def small_forest() -> cp.ForestLaw:
    """A path of four positions over two tokens; here too the confident order varies."""
    unary = [[1, 2], [3, 2], [1, 1], [2, 1]]
    return cp.ForestLaw(unary, [[1, 0], [1, 3], [2, 3]], [[1, 4], [2, 1]])


def enumerated(law: cp.TableLaw | cp.ForestLaw) -> np.ndarray:
    """Probability of every sequence, in index order."""
    sequences = np.indices((law.vocab_size,) * law.length).reshape(law.length, -1).T
    return np.exp(law.log_prob(sequences))


def chi_square_distance(law: cp.TableLaw | cp.ForestLaw) -> float:
    """Chi-square distance from the law to the product of its marginals."""
    joint = enumerated(law).reshape((law.vocab_size,) * law.length)
    product = np.ones(())
    for i in range(law.length):
        others = tuple(j for j in range(law.length) if j != i)
        product = np.multiply.outer(product, joint.sum(axis=others))
    return float(((product - joint) ** 2 / joint).sum())


def histogram(sampler: Sampler, law: cp.TableLaw | cp.ForestLaw, seed: int) -> np.ndarray:
    """Draw with a decision seed of its own for each sequence, and count."""
    oracle = law.oracle()
    counts = np.zeros(law.vocab_size**law.length, dtype=int)
    for k in range(COUNT):
        run = cp.run.Run(oracle, sequence=k)
        tokens = sampler(run, cp.Streams(seed + k, seed)).tokens
        counts[np.ravel_multi_index(tuple(tokens), (law.vocab_size,) * law.length)] += 1
    return counts


CASES = [
    (small_table, "confidence"),
    pytest.param(small_table, "index", marks=pytest.mark.slow),
    pytest.param(small_table, "random", marks=pytest.mark.slow),
    pytest.param(small_forest, "confidence", marks=pytest.mark.slow),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("make", "order"), CASES)
def test_the_enumerated_law_is_drawn_exactly(make, order, chi_square, false_alarms, seed_of):
    law = make()
    counts = histogram(Sequential(order), law, seed_of(41))
    assert chi_square(counts, enumerated(law)) > false_alarms / len(CASES)


@pytest.mark.statistical
@pytest.mark.parametrize("make", [small_table, pytest.param(small_forest, marks=pytest.mark.slow)])
def test_the_same_check_rejects_one_batch_on_a_coupled_law(
    make, chi_square, false_alarms, seed_of
):
    # Negative control. The product law is at chi-square distance above 0.3, far above what the
    # check can see.
    law = make()
    assert chi_square_distance(law) > 0.3
    counts = histogram(OneBatch(), law, seed_of(43))
    assert chi_square(counts, enumerated(law)) < false_alarms / len(CASES)


def test_the_index_order_is_increasing(law):
    result = Sequential()(cp.run.Run(law.oracle()), STREAMS)
    assert result.round_of_position.tolist() == list(range(law.length))
    assert result.ledger == cp.Ledger(
        commits=law.length, stages=law.length, rows_read=law.length, widest_stage=1
    )


def test_the_random_order_follows_the_decision_seed(law):
    def order(seed: int) -> tuple[int, ...]:
        result = Sequential("random")(cp.run.Run(law.oracle()), cp.Streams(seed, 1))
        return tuple(result.round_of_position)

    assert order(1) == order(1)
    assert len({order(seed) for seed in range(8)}) > 4


@pytest.mark.parametrize("order", ["confidence", "entropy"])
def test_row_orders_take_the_best_row_of_the_current_history(order, law):
    result = Sequential(order)(cp.run.Run(law.oracle()), STREAMS)
    state = np.full(law.length, cp.MASK, dtype=np.int32)
    for batch in result.batches:
        residual = np.flatnonzero(state == cp.MASK)
        rows = law.oracle().rows(state[None], cp.Readouts.same(1, residual)).dense()
        score = rows.max(axis=1) if order == "confidence" else (rows * np.log(rows)).sum(axis=1)
        chosen = np.searchsorted(residual, batch[0])
        assert score[chosen] >= score.max() - 1e-12
        state[batch] = result.tokens[batch]
    assert result.ledger.rows_read == law.length * (law.length + 1) // 2


def test_ties_go_to_the_smallest_position(uniform_oracle):
    for order in ("confidence", "entropy"):
        result = Sequential(order)(cp.run.Run(uniform_oracle(5, 2)), STREAMS)
        assert result.round_of_position.tolist() == [0, 1, 2, 3, 4]


def test_only_row_orders_need_a_right():
    assert Sequential().needs == Sequential("random").needs == cp.Need.NONE
    assert Sequential("confidence").needs == cp.Need.SELECT
    assert Sequential("entropy").needs == cp.Need.SELECT
