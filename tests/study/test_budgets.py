"""Budget search: the passing suffix, the bracket, and curves that are not monotone."""

import numpy as np
import pytest

from counterprobe.study.budgets import safe_budget, search_budget


def test_the_suffix_ends_at_the_largest_failure():
    assert safe_budget({1: True, 3: False, 5: True, 9: True}) == 5
    assert safe_budget({9: True}) == 9
    assert safe_budget({1: True, 2: True, 9: True}) == 1
    assert safe_budget({5: True, 8: False, 9: True}) == 9
    with pytest.raises(ValueError, match="largest budget must pass"):
        safe_budget({5: True, 9: False})


@pytest.mark.parametrize("length", [1, 2, 3, 19, 20, 64, 1000, 16384])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.94, 0.99, 1.0])
def test_a_monotone_curve_is_bracketed(length, share):
    edge = max(1, round(share * length))  # every budget from here on passes
    tried = []

    def passes(budget: int) -> bool:
        assert 1 <= budget < length
        tried.append(budget)
        return budget >= edge

    safe = search_budget(length, passes)
    assert safe >= min(edge, length)
    assert safe - edge <= max(1, 0.05 * length)
    assert len(set(tried)) == len(tried) <= 6


def test_the_first_steps_are_those_of_the_paper():
    tried = []
    safe = search_budget(16384, lambda b: bool(tried.append(b)))  # nothing passes
    assert safe == 16384
    assert tried == [8192, 12288, 14336, 15360, 15872]  # the last bracket is 0.03125 N wide


@pytest.mark.parametrize("seed", range(30))
def test_on_any_curve_the_rule_holds_among_observed_budgets(seed):
    draw = np.random.default_rng(seed)
    length = int(draw.integers(2, 400))
    curve = draw.random(length + 1) < draw.random()
    curve[length] = True
    observed = {length: True}

    def passes(budget: int) -> bool:
        assert budget not in observed
        observed[budget] = bool(curve[budget])
        return observed[budget]

    first = draw.random(int(draw.integers(0, 6))).tolist()
    width = float(draw.choice([0.05, 0.2, 0.001]))
    safe = search_budget(length, passes, first=first, width=width)
    assert safe == safe_budget(observed)
    assert all(observed[budget] for budget in observed if budget >= safe)
    below = max((budget for budget in observed if budget < safe), default=0)
    assert safe - below <= max(1, width * length)
    assert below == 0 or not observed[below]


def test_a_hole_above_a_pass_moves_the_suffix_up():
    # 25 passes but 50 does not: the smaller pass is no evidence.
    safe = search_budget(100, {25: True, 50: False, 75: True}.get, first=[0.25, 0.5, 0.75],
                         width=0.3)  # fmt: skip
    assert safe == 75
