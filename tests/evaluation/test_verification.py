"""Small laws whose exact risk is computed: what is taken, and that theory mode resolves it."""

import math

import pytest

import counterprobe as cp
from counterprobe.evaluation.verification import (
    MOST_LEAVES,
    SHAPES,
    family_instance,
    prepare,
    shape_instance,
)
from counterprobe.theory.parameters import threshold_floor


def row_error(epsilon: float, n: int = 10) -> float:
    return epsilon / 2 / math.sqrt(n)


@pytest.mark.parametrize(
    ("epsilon", "vocab", "leaves"), [(0.1, 64, 4), (0.02, 64, 5), (0.02, 128, 6), (0.02, 256, 7)]
)
def test_a_star_gets_as_many_leaves_as_the_accuracy_resolves(epsilon, vocab, leaves):
    instance = shape_instance("star", 10, vocab, 1.5, row_error(epsilon))
    assert instance.law.name == f"two-type star of {leaves} leaves"
    assert instance.law.edges.tolist() == [[0, leaf] for leaf in range(1, leaves + 1)]
    said = f"{leaves} leaves and not {MOST_LEAVES}"
    assert (said in instance.note) == (leaves < MOST_LEAVES)


@pytest.mark.parametrize("shape", SHAPES)
def test_theory_mode_resolves_what_is_taken(shape):
    epsilon, vocab = 0.02, 256
    instance = shape_instance(shape, 12, vocab, 1.5, row_error(epsilon, 12))
    signal = instance.constants.edge_signal
    assert instance.tail_tolerance >= threshold_floor(row_error(epsilon, 12), vocab)
    assert 4 * row_error(epsilon, 12) + instance.tail_tolerance < signal
    assert instance.constants.violations(signal) == []


def test_what_cannot_be_resolved_is_infeasible():
    with pytest.raises(cp.Infeasible, match="lower epsilon or raise V"):
        shape_instance("hub", 10, 64, 1.5, row_error(0.1))
    with pytest.raises(cp.Infeasible, match="too small for this accuracy"):
        family_instance("growing-stars", 10, 1.5, row_error(0.5), needs_theory=True)
    other = family_instance("growing-stars", 10, 1.5, row_error(0.5), needs_theory=False)
    assert other.tail_tolerance == other.constants.edge_signal / 2


def test_what_is_prepared_is_measured_and_refuses_where_no_theorem_speaks():
    found = prepare(oracles=["exact"], sampler="centroid-layers")
    (case,) = found.measure([3])
    assert case["oracle"] == "exact" and case["risk"] < 1e-12 and case["holds"]
    assert case["hypotheses"] == {one.name: one.holds for one in found.hypotheses["exact"]}
    assert not found.doubts and not found.will_refuse
    # A Hellinger radius bounds no KL.
    doubtful = prepare(oracles=["random"], noise="hellinger", case="kl")
    assert doubtful.doubts and doubtful.will_refuse
    waived = prepare(
        oracles=["random"], noise="hellinger", case="kl", settings={"waive_guarantee": "true"}
    )
    assert waived.doubts and not waived.will_refuse


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"length": 9}, "N must lie in 10..14"),
        ({"vocab_size": 0}, "V must lie in 1.."),
        ({"oracles": ["kind"]}, "unknown oracle"),
        ({"oracles": []}, "known oracles"),
        ({"noise": "tv"}, "noise must be"),
    ],
)
def test_what_cannot_be_verified_is_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        prepare(**wrong)
