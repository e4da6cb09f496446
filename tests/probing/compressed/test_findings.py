"""How much evidence a stated failure budget needs."""

import math

import pytest

from counterprobe.probing.compressed.findings import default_max_probes, needed_evidence


@pytest.mark.parametrize(
    ("num_choices", "needed"),
    # log(16384 / 0.01) = 14.31 against two ends that are each blind with chance 1 - 1/K.
    [(2, 11), (3, 18), (4, 25), (64, 455)],
)
def test_needed_evidence_by_hand(num_choices, needed):
    assert needed_evidence(16384, num_choices, 0.01) == needed


@pytest.mark.parametrize(("num_choices", "total"), [(3, 35), (64, 900)])
def test_two_ends_have_the_evidence_of_the_argument(num_choices, total):
    # 35 clean probes where two of three columns act alike, about 900 for one trigger among 64.
    assert 2 * needed_evidence(16384, num_choices, 0.01) == pytest.approx(total, rel=0.05)


@pytest.mark.parametrize("num_choices", [2, 3, 5, 17, 300])
@pytest.mark.parametrize("budget", [0.5, 0.01, 1e-6])
@pytest.mark.parametrize("num_positions", [1, 2, 1000])
def test_the_evidence_keeps_the_budget_and_no_less_does(num_positions, num_choices, budget):
    needed = needed_evidence(num_positions, num_choices, budget)
    missed = num_positions * (1 - 1 / num_choices) ** (2 * needed)
    one_less = num_positions * (1 - 1 / num_choices) ** (2 * (needed - 1))
    assert missed <= budget * (1 + 1e-9)
    assert one_less > budget * (1 - 1e-9)


def test_one_choice_teaches_nothing():
    assert needed_evidence(16384, 1, 0.01) == 0


def test_more_of_anything_needs_more_evidence():
    by_choices = [needed_evidence(4096, k, 0.01) for k in range(2, 40)]
    assert by_choices == sorted(set(by_choices))
    assert needed_evidence(8192, 8, 0.01) > needed_evidence(4096, 8, 0.01)
    assert needed_evidence(4096, 8, 0.001) > needed_evidence(4096, 8, 0.01)


@pytest.mark.parametrize("num_choices", [2, 3, 64])
def test_the_default_cap_leaves_room_for_the_evidence(num_choices):
    cap = default_max_probes(16384, num_choices, 0.01)
    assert cap == math.ceil(24 * num_choices * math.log(16384 / 0.01))
    # A position is masked in about half of the probes, its neighbours are not.
    assert cap > 20 * needed_evidence(16384, num_choices, 0.01)


def test_the_default_cap_of_one_choice_is_that_of_two():
    assert default_max_probes(100, 1, 0.01) == default_max_probes(100, 2, 0.01)
