"""The guarantee as one record: its parts are those of the theory, and it says when it pays."""

import json

import pytest

from counterprobe.plain import plain
from counterprobe.theory import bounds, calibrate, guarantee


@pytest.mark.parametrize("cutoff", ["balanced", "best", "12"])
def test_the_parts_are_those_of_the_theory(cutoff):
    found = guarantee(10**6, 10**8, rank_exponent=1.5, epsilon=0.2, cutoff=cutoff)
    public = calibrate(10**6, 10**8, epsilon=0.2, degree_cutoff=found.public.degree_cutoff)
    assert found.public == public
    assert found.caps == bounds.guarantee_caps(public, 1.5)[1]
    assert (found.tight, found.tight_caps) == bounds.guarantee_caps(public, 1.5, tight=True)
    assert found.feasible == bounds.feasibility(public) and found.feasible.directly
    chosen = {
        "balanced": bounds.balanced_cutoff(10**6, public.edge_signal, 1.5)[0],
        "best": bounds.cheapest_cutoff(public, 1.5).degree_cutoff,
        "12": 12,
    }
    assert public.degree_cutoff == chosen[cutoff] and not found.is_clipped
    content = plain(found.as_dict())
    assert json.loads(json.dumps(content)) == content
    assert content["caps"]["evaluations"] == found.caps.evaluations


def test_it_pays_from_the_crossing_on_and_not_before():
    small = guarantee(10**6, 10**8)
    assert small.feasible.directly and not small.pays and small.crossing is not None
    beyond = 3 * small.crossing
    assert guarantee(beyond, beyond).pays
    assert not guarantee(small.crossing // 3, small.crossing // 3).pays


def test_what_epsilon_fixes_can_be_given():
    found = guarantee(1000, 10**6, case="kl", kl_tolerance=0.01, kl_row_budget=1e-6)
    assert (found.public.kl_tolerance, found.public.kl_row_budget) == (0.01, 1e-6)
    assert found.as_dict()["case"] == "kl"


def test_a_cutoff_that_is_none_is_refused_and_a_small_one_clipped():
    with pytest.raises(ValueError, match="cutoff must be a number, 'balanced' or 'best'"):
        guarantee(1000, 1000, cutoff="many")
    assert guarantee(20, 1000).is_clipped
