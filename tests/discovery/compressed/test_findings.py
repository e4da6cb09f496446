"""What a screen may be told, how much evidence a stated budget needs, and what findings say."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from counterprobe.discovery.compressed.findings import (
    CompressedSettings,
    Findings,
    default_max_probes,
    needed_evidence,
    nothing_to_find,
)

# ----- Settings -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["failure_budget", "mask_rate"])
def test_shares_lie_strictly_between_zero_and_one(name: str) -> None:
    for value in (1e-9, 1 - 1e-9):
        assert getattr(CompressedSettings(**{name: value}), name) == value
    for value in (0, 1, -0.1, 1.1, math.nan):
        message = f"{name} must lie strictly between 0 and 1, got {value!r}"
        with pytest.raises(ValueError, match=message):
            CompressedSettings(**{name: value})


@pytest.mark.parametrize("name", ["first_batch", "max_probes", "patience"])
def test_counts_are_positive_integers(name: str) -> None:
    for value in (1, np.int64(1), np.uint8(7)):
        assert getattr(CompressedSettings(**{name: value}), name) == value
    for value in (0, -1, 1.0, "3"):
        with pytest.raises(ValueError, match=f"{name} must be a positive integer, got {value!r}"):
            CompressedSettings(**{name: value})


@pytest.mark.parametrize("name", ["bank_threshold", "tolerance"])
def test_thresholds_lie_between_zero_and_one_or_are_left_open(name: str) -> None:
    for value in (None, 0, 0.5, 1):
        assert getattr(CompressedSettings(**{name: value}), name) == value
    for value in (-1e-9, 1 + 1e-9, math.nan):
        with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 1\], got {value!r}"):
            CompressedSettings(**{name: value})


# ----- Evidence -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("num_choices", [2, 3, 17])
def test_where_a_share_reveals_it_the_budget_is_kept_too(num_choices, share):
    needed = needed_evidence(1000, num_choices, 0.01, reveal_rate=share)
    blind = 1 - share / num_choices
    assert 1000 * blind ** (2 * needed) <= 0.01 < 1000 * blind ** (2 * (needed - 1))


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
    assert cap == math.ceil(32 * num_choices * math.log(16384 / 0.01))
    # A position is masked in about half of the probes, its neighbours are not.
    assert cap > 20 * needed_evidence(16384, num_choices, 0.01)


# ----- Findings -------------------------------------------------------------------------------


def test_nothing_to_find_is_resolved_at_no_cost() -> None:
    found = nothing_to_find(3)
    assert found.edges.shape == (0, 2) and found.edges.dtype == np.int64
    assert found.is_resolved.tolist() == [True] * 3 and found.is_resolved.dtype == np.bool_
    assert found.evidence.tolist() == [0, 0, 0] and found.evidence.dtype == np.int64
    assert np.isnan(found.misfit).all() and found.misfit.shape == (3,)
    assert (found.needed, found.num_choices, found.num_compared, found.num_refuted) == (0,) * 4
    assert (found.reason, found.advice, found.column_note) == ("", "", "")
    assert found.batches == () and found.seconds == {}
    assert found.sample is None and found.terms is None


def some_findings(**changes: Any) -> Findings:
    return replace(nothing_to_find(3), **changes)


def test_a_raised_threshold_is_mentioned_and_no_other() -> None:
    raised = some_findings(usual_threshold=0.001, bank_threshold=0.02, num_choices=7)
    assert raised.column_note == (
        "the bank threshold was raised from 0.001 to 0.02, which leaves 7 columns a position at "
        "most; tokens of one tail group count as alike, and bank_threshold sets it otherwise"
    )
    for usual, used in ((0.0, 0.0), (0.02, 0.02), (0.02, 0.01)):
        assert some_findings(usual_threshold=usual, bank_threshold=used).column_note == ""
