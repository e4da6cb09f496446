"""Where the graph comes from: attention, strengths or probes, and what each is charged."""

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.samplers import DAPD, DAWN, DEMASK

STREAMS = cp.Streams(3, 4)
RULES = [DAWN, DAPD, DEMASK]
MATCHING = cp.families.matching(12, target_seed=5)


def partners(law: cp.ForestLaw) -> np.ndarray:
    """Ones between the two of each edge."""
    joined = np.zeros((law.length, law.length))
    joined[law.edges[:, 0], law.edges[:, 1]] = 1
    return joined + joined.T


def run(oracle: cp.Oracle, rule: cp.samplers.Sampler, **options) -> cp.run.results.SampleResult:
    return rule(cp.run.Run(oracle, **options), STREAMS)


@pytest.mark.parametrize("rule", [DAWN, DAPD])
def test_auto_takes_attention_where_there_is_some_and_says_so(rule):
    oracle = AttentiveLaw(MATCHING.oracle(), partners(MATCHING) / 2)
    result = run(oracle, rule(num_layers=2))
    assert result.diagnostics.graph == "attention"
    assert result.notes == ["dependence read from the attention of the last 2 layers"]
    assert oracle.calls == [2] * result.ledger.commits
    assert result.ledger.evaluations == result.ledger.commits == oracle.states
    assert result.used == cp.Need.SELECT


@pytest.mark.parametrize("rule", RULES)
def test_auto_probes_where_there_is_none_and_says_so(rule, counted):
    oracle = counted(MATCHING.oracle())
    sampler = DAWN(0.0, 2.0, 2.0) if rule is DAWN else rule()
    result = run(oracle, sampler)
    assert result.notes == ["dependence found by probing"]
    ledger = result.ledger
    assert ledger.probes == ledger.evaluations - ledger.commits > 0
    assert ledger.evaluations == oracle.states
    if rule is DEMASK:
        assert (result.used, sampler.needs) == (cp.Need.NONE, cp.Need.PROBE)
        return
    without = run(MATCHING.oracle(), sampler, allowed=cp.Need.CANDIDATES)
    assert without.notes == result.notes
    assert without.ledger.probes == ledger.probes + ledger.commits


@pytest.mark.parametrize("rule", RULES)
def test_strengths_are_taken_first_and_cost_no_probe(rule):
    oracle = AttentiveLaw(MATCHING.oracle(), partners(MATCHING))
    result = run(oracle, rule(strength=partners(MATCHING)))
    assert result.notes == ["dependence taken from the strengths of a structure found before"]
    assert result.ledger.evaluations == result.ledger.commits == oracle.states
    assert oracle.calls == []


def test_attention_that_is_asked_for_and_not_there_is_refused_before_a_evaluation(counted):
    oracle = counted(MATCHING.oracle())
    with pytest.raises(ValueError, match=r"attention needs a model that returns it.*probes"):
        run(oracle, DAPD(graph="attention"))
    assert oracle.calls == 0


def test_probes_that_are_asked_for_are_made_beside_attention():
    oracle = AttentiveLaw(MATCHING.oracle(), partners(MATCHING))
    result = run(oracle, DAPD(graph="probes"))
    assert result.diagnostics.graph == "probes" and oracle.calls == []
    plain = run(MATCHING.oracle(), DAPD())
    assert np.array_equal(plain.tokens, result.tokens) and plain.ledger == result.ledger


def test_nats_bound_total_variation():
    # Two positions with s nats are joined below the root of s / 2, and not above it.
    strength = np.zeros((12, 12))
    strength[0, 1] = strength[1, 0] = 0.08
    oracle = AttentiveLaw(MATCHING.oracle(), partners(MATCHING))
    for threshold, batches in ((0.199, 2), (0.201, 1)):
        rule = DAPD(threshold, strength=strength)
        assert run(oracle, rule).ledger.commits == batches


@pytest.mark.parametrize("rule", RULES)
def test_strengths_that_say_nothing_about_a_position_are_refused(rule, counted):
    strength = partners(MATCHING)
    strength[3] = strength[:, 3] = np.nan
    oracle = counted(MATCHING.oracle())
    with pytest.raises(ValueError, match="position 3 was not masked when"):
        run(oracle, rule(strength=strength))
    assert oracle.calls == 0
    given = np.full(12, cp.MASK)
    given[3] = 1
    assert run(oracle, rule(strength=strength), given=given).tokens[3] == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"graph": "tree"}, "graph must be one of"),
        ({"graph": "strength"}, r"strength must be given for graph='strength', got None"),
        ({"strength": np.zeros(3)}, r"strength must have shape \(N, N\), got \(3,\)"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"pool": 0}, "pool must be at least 1, got 0"),
    ],
)
@pytest.mark.parametrize("rule", RULES)
def test_bad_settings_are_refused(rule, settings, said):
    with pytest.raises(ValueError, match=said):
        rule(**settings)


@pytest.mark.parametrize("rule", [DAWN(0.0, 2.0, 2.0, pool=3), DAPD(pool=3), DEMASK(pool=3)])
def test_a_pool_bounds_what_a_step_probes_and_commits(rule):
    result = run(MATCHING.oracle(), rule)
    values = getattr(rule, "num_values", 1)
    assert result.ledger.widest_stage <= 3 * values
    assert max(len(batch) for batch in result.batches) <= 3


def test_more_positions_than_can_be_probed_are_refused(monkeypatch, counted):
    monkeypatch.setattr("counterprobe.samplers.rules.graph_rule.MOST_POSITIONS", 11)
    oracle = counted(MATCHING.oracle())
    with pytest.raises(ValueError, match=r"probes at most 11 positions, got 12.*strength="):
        run(oracle, DAPD())
    assert oracle.calls == 0
    with_attention = AttentiveLaw(MATCHING.oracle(), partners(MATCHING))
    assert run(with_attention, DAPD()).tokens is not None


def test_what_is_foreseen_follows_from_the_graph():
    assert DAPD().foreseen_evaluations(100, 4) is None
    assert DAPD(graph="probes").foreseen_evaluations(100, 4) == 200
    assert DAPD(-1.0, graph="probes").foreseen_evaluations(100, 4) is None
    assert DAWN(graph="probes").foreseen_evaluations(100, 4) is None
    assert DEMASK(graph="probes").foreseen_evaluations(100, 4) == 200


@pytest.mark.parametrize("rule", [DAWN(0.0, 2.0, 2.0), DAPD()])
def test_sequences_side_by_side_read_attention_in_one_call_a_step(rule):
    oracle = AttentiveLaw(MATCHING.oracle(), partners(MATCHING) / 2)
    batch = cp.sample(oracle, rule, 5, seed=STREAMS, progress=False)
    assert len(oracle.calls) == 2 and oracle.states == 10 == batch.ledger.evaluations
    for k, result in enumerate(batch.results):
        alone = run(AttentiveLaw(MATCHING.oracle(), partners(MATCHING) / 2), rule, sequence=k)
        assert np.array_equal(result.tokens, alone.tokens)
        assert result.ledger == alone.ledger and result.notes == alone.notes
