"""Structure found once: reuse, and refusing what it does not belong to."""

import math

import numpy as np
import pytest
from scipy import stats

import counterprobe as cp
from counterprobe.probing.compressed import CompressedSettings

STREAMS = cp.Streams(71, 72)


def test_it_holds_the_graph_its_evidence_and_its_cost(
    law: cp.ForestLaw, structure: cp.Structure
) -> None:
    expected = np.unique(np.sort(law.edges, axis=1), axis=0)
    np.testing.assert_array_equal(structure.edges, expected)
    assert len(structure.unresolved) == 0
    assert structure.evidence.min() >= structure.needed
    assert structure.misfit.max() < 1e-9
    assert structure.ledger.commits == 0
    assert structure.ledger.preprocessing == 1
    summary = structure.summary()
    assert summary["total"] == structure.ledger.total
    assert summary["edges"] == len(expected)
    assert summary["decision_seed"] == 71


def test_a_sample_costs_only_its_rounds(law: cp.ForestLaw, structure: cp.Structure) -> None:
    seen: list[tuple[int, int]] = []
    many = structure.sample(
        law.oracle(), 20, STREAMS, progress=lambda done, total: seen.append((done, total))
    )
    rounds = len(structure.order.batches)
    assert rounds <= math.ceil(math.log2(256 + 1))
    assert [ledger.total for ledger in many.ledgers] == [rounds] * 20
    # The whole also pays for asking the stored probes again.
    assert many.ledger.probes == len(structure.sample_states) == 3
    assert many.ledger.commits == 20 * rounds
    assert many.ledger.depth == rounds + 1
    assert many.ledger.total == 20 * rounds + 3
    assert seen == [(k + 1, rounds) for k in range(rounds)]
    unchecked = structure.sample(law.oracle(), 20, STREAMS, check=False)
    assert unchecked.ledger.probes == 0
    np.testing.assert_array_equal(unchecked.tokens, many.tokens)


def test_a_sequence_is_the_one_the_sampler_would_draw(
    law: cp.ForestLaw, structure: cp.Structure
) -> None:
    alone = cp.samplers.Compressed()(cp.Unmasking(law.oracle()), STREAMS)
    many = structure.sample(law.oracle(), 2, STREAMS)
    np.testing.assert_array_equal(many.tokens[0], alone.tokens)


def test_context_is_kept(law: cp.ForestLaw) -> None:
    given = np.full(256, cp.MASK)
    given[:40] = 0
    structure = cp.discover(law.oracle(), STREAMS, given=given)
    many = structure.sample(law.oracle(), 3, STREAMS)
    assert (many.tokens[:, :40] == 0).all()
    assert (many.tokens >= 0).all()


def edge_p_values(law: cp.ForestLaw, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Two-sample chi-square p-value of the class pair counts of each edge."""
    classes = law.num_classes
    values = []
    for i, j in law.edges:
        counts = []
        for tokens in (one, other):
            a = law.classes.of(np.full(len(tokens), i), tokens[:, i])
            b = law.classes.of(np.full(len(tokens), j), tokens[:, j])
            counts.append(np.bincount(a * classes + b, minlength=classes**2))
        table = np.array(counts)
        table = table[:, table.sum(axis=0) >= 10]
        values.append(stats.chi2_contingency(table, correction=False).pvalue)
    return np.array(values)


def check_two_samples(law: cp.ForestLaw, count: int, level: float, seed: int) -> None:
    """Samples of the structure pass against exact joint samples; a product batch does not."""
    structure = cp.discover(law.oracle(), cp.Streams.from_seed(seed))
    streams = cp.Streams.from_seed(seed + 1)
    many = structure.sample(law.oracle(), count, streams)
    assert len(structure.order.batches) <= math.ceil(math.log2(law.length + 1))
    exact = law.sample(count, np.random.default_rng(seed + 2))
    assert edge_p_values(law, many.tokens, exact).min() * len(law.edges) > level
    product = cp.samplers.OneBatch().sample_many(law.oracle(), count, streams)
    assert edge_p_values(law, product.tokens, exact).min() * len(law.edges) < level


@pytest.mark.statistical
def test_samples_have_the_joint_law_on_every_edge(false_alarms: float, seed_of) -> None:
    check_two_samples(cp.families.path(256, target_seed=196), 1000, false_alarms, seed_of(7))


@pytest.mark.slow
@pytest.mark.statistical
def test_a_thousand_long_samples_have_the_joint_law(false_alarms: float, seed_of) -> None:
    check_two_samples(cp.families.path(4096, target_seed=196), 1000, false_alarms, seed_of(8))


# ----- Other oracles --------------------------------------------------------------------------


def test_an_oracle_of_another_size_is_refused(structure: cp.Structure) -> None:
    other = cp.families.build("random-forest", 128, 196)
    with pytest.raises(cp.StructureError, match="256 positions and 2048 tokens"):
        structure.sample(other.oracle(), 1, STREAMS)


def test_an_oracle_with_the_same_marginals_only_is_refused() -> None:
    # Uniform fields and symmetric tables: all-mask rows cannot tell the two laws apart.
    table = [[3.0, 1.0], [1.0, 3.0]]
    edges = [[k, k + 1] for k in range(39)]
    one = cp.ForestLaw(np.ones((40, 2)), edges, table)
    other = cp.ForestLaw(np.ones((40, 2)), edges[:-1], table)
    structure = cp.discover(one.oracle(), STREAMS)
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        structure.sample(other.oracle(), 1, STREAMS)
    structure.sample(one.oracle(), 1, STREAMS)


def test_an_oracle_with_other_rows_is_refused(law: cp.ForestLaw, structure: cp.Structure) -> None:
    exact = law.oracle()

    def dense(states: np.ndarray) -> np.ndarray:
        table = np.full((*states.shape, law.vocab_size), 1 / law.vocab_size)
        return table

    uniform = cp.CallableOracle(dense, law.length, law.vocab_size)
    with pytest.raises(cp.StructureError, match="entries a row"):
        structure.check(uniform)
    assert structure.check(exact) == 3


def test_a_vague_oracle_is_not_let_through(law: cp.ForestLaw, structure: cp.Structure) -> None:
    other = cp.families.build("random-forest", 256, 197)
    vague = cp.FrozenNoise(other.oracle(), radius=0.3)
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        structure.check(vague)


def test_a_screen_that_resolves_nothing_is_refused_unless_allowed(law: cp.ForestLaw) -> None:
    poor = CompressedSettings(max_probes=8, first_batch=8)
    with pytest.raises(cp.Infeasible, match="resolved none of 256 positions"):
        cp.discover(law.oracle(), STREAMS, settings=poor)
    singles = cp.discover(law.oracle(), STREAMS, settings=poor, fallback=True)
    assert len(singles.order.batches) == 256
