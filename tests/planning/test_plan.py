"""What a plan holds and says."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from counterprobe.planning import Coverage, Plan, make_plan


def plan_of(batches, length=6, kl=0.25, se=math.nan, method="search", dropped=0.0) -> Plan:
    return Plan(tuple(np.array(b) for b in batches), kl, se, method, dropped, length)


def test_batches_are_sorted_and_cannot_be_edited() -> None:
    plan = plan_of([[3, 0], [5]])
    assert [batch.tolist() for batch in plan.batches] == [[0, 3], [5]]
    assert plan.positions.tolist() == [0, 3, 5]
    assert plan.sizes == [2, 1]
    assert len(plan) == 2
    with pytest.raises(ValueError, match="read-only"):
        plan.batches[0][0] = 1


def test_it_says_itself_in_one_line() -> None:
    assert repr(plan_of([[0, 1], [2]])) == (
        "Plan(2 batches for 3 of 6 positions, search, about 0.25 nats)"
    )
    assert "about 0.25 ± 0.03 nats" in repr(plan_of([[0]], se=0.03))
    assert "no price: no strengths given" in repr(plan_of([[0]], kl=math.nan, method="random"))


def test_it_says_which_probes_its_price_is_by() -> None:
    chosen_by = replace(plan_of([[0, 1], [2]], se=0.03), uncovered=0.5)
    held_out = replace(chosen_by, is_held_out=True)
    assert "about 0.25 ± 0.03 nats by held-out probes, 0.5 not covered" in repr(held_out)
    assert held_out.as_dict()["is_held_out"] and not chosen_by.as_dict()["is_held_out"]
    assert str(chosen_by).endswith(
        "priced by the probes that chose it, and so too low: measure it"
    )
    assert "too low" not in str(held_out) + str(plan_of([[0]]))


def test_the_summary_names_sizes_price_and_what_layers_ignore() -> None:
    lines = str(plan_of([[0, 1], [2]], se=0.03)).splitlines()
    assert lines == [
        "2 batches for 3 positions (1 to 2 a batch), by search",
        "estimated batch KL: about 0.25 ± 0.03 nats",
    ]
    layered = str(plan_of([[0, 1], [2]], method="layers", dropped=0.25))
    assert layered.endswith("strength of the pairs that layers ignore: 0.25 nats")


def test_plain_values_survive_json() -> None:
    content = plan_of([[0, 1], [2]], kl=math.nan).as_dict()
    assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert content["batches"] == [[0, 1], [2]]
    assert content["num_batches"] == 2
    assert content["estimated_kl"] is None
    assert plan_of([[0]], se=0.5).as_dict()["estimated_kl_se"] == 0.5


@pytest.mark.parametrize(
    ("batches", "problem"),
    [
        ([[0], []], "must not be empty"),
        ([[0, 1], [1]], "must be disjoint"),
        ([[0, 0]], "must be disjoint"),
        ([[0], [6]], r"positions 0..5, got 0..6"),
        ([[-1]], r"positions 0..5, got -1..-1"),
    ],
)
def test_wrong_batches_are_refused(batches, problem) -> None:
    with pytest.raises(ValueError, match=problem):
        plan_of(batches)


def test_every_position_of_a_sequence_may_be_planned_in_any_type() -> None:
    plan = Plan(((5, 0), np.array([[3]], dtype=np.uint8)), 0.5, 0.1, "layers", 0.25, 6)
    assert [batch.tolist() for batch in plan.batches] == [[0, 5], [3]]
    assert all(batch.dtype == np.int64 for batch in plan.batches)
    assert plan.as_dict() == {
        "num_batches": 2,
        "batches": [[0, 5], [3]],
        "estimated_kl": 0.5,
        "estimated_kl_se": 0.1,
        "uncovered": None,
        "is_held_out": False,
        "method": "layers",
        "dropped": 0.25,
        "length": 6,
    }


def test_an_array_that_was_handed_in_stays_its_owners() -> None:
    mine = np.array([3, 0])
    plan = plan_of([mine])
    mine[0] = 5
    assert plan.batches[0].tolist() == [0, 3]


def test_a_plan_of_nothing_is_a_plan() -> None:
    plan = plan_of([])
    assert (len(plan), plan.sizes, plan.positions.tolist()) == (0, [], [])
    assert plan.positions.dtype == np.int64
    assert str(plan).startswith("0 batches for 0 positions (0 a batch), by search")


# ----- Positions that pairs are not trusted with -----------------------------------------------


def pairs(size: int, *edges: tuple[int, int]) -> np.ndarray:
    strength = np.zeros((size, size))
    for i, j in edges:
        strength[i, j] = strength[j, i] = 0.3
    return strength


def coverage(size: int, *untrusted: int) -> Coverage:
    is_trusted = np.ones(size, dtype=bool)
    is_trusted[list(untrusted)] = False
    return Coverage(np.where(is_trusted, 0.01, 0.5), is_trusted)


def test_judged_position_by_position():
    found = Coverage.of(
        np.array([0.001, 0.4, 0.4, 0.4, math.nan]),
        np.array([0.005, 1.0, 1.0, 1.0, math.nan]),
        np.array([0.0, 0.0, 0.49, 0.5, math.nan]),
    )
    assert found.is_trusted.tolist() == [True, False, False, True, False]
    assert found.unexplained[:4].tolist() == pytest.approx([0.001, 0.4, 0.204, 0.2])
    assert found.uncovered([np.array([0]), np.array([4])]) == 0.0
    assert math.isnan(found.uncovered([np.array([0, 4])]))


@pytest.mark.parametrize(
    "request_", [{"target_kl": 0.01}, {"information_budget": 0.01}, {"batches": 6}]
)
def test_neighbours_go_first_and_strangers_last(request_):
    strength = pairs(9, (0, 1), (1, 2), (3, 7), (3, 0))
    plan = make_plan(
        strength, coverage=coverage(9, 3, 8, 5), rng=np.random.default_rng(0), **request_
    )
    singles = [int(batch[0]) for batch in plan.batches if len(batch) == 1]
    assert plan.batches[0].tolist() == [3]
    assert set(singles[-2:]) == {8, 5} and [len(b) for b in plan.batches[-2:]] == [1, 1]
    assert sorted(plan.positions.tolist()) == list(range(9))
    spread = sum(len(b) * (len(b) - 1) for b in plan.batches) / 8 / 2
    assert plan.uncovered == pytest.approx(0.01 * spread)


def test_too_few_batches_keep_them_apart():
    plan = make_plan(
        pairs(12), coverage=coverage(12, 1, 2, 3), batches=3, rng=np.random.default_rng(1)
    )
    assert sorted(len(set(b.tolist()) & {1, 2, 3}) for b in plan.batches) == [1, 1, 1]
    spread = sum((len(b) - 1) ** 2 for b in plan.batches) / 11 / 2  # one of each is untrusted
    assert plan.estimated_kl == 0 and plan.uncovered == pytest.approx(3 * 0.5 + spread * 0.01)


def test_all_untrusted_means_one_each():
    plan = make_plan(
        pairs(4), coverage=coverage(4, 0, 1, 2, 3), target_kl=5.0, rng=np.random.default_rng(1)
    )
    assert plan.sizes == [1] * 4 and plan.uncovered == 0


def test_trust_in_all_changes_nothing():
    strength = pairs(8, (0, 1), (2, 3), (4, 5))
    for request_ in ({"batches": 3}, {"target_kl": 0.1}):
        plain = make_plan(strength, rng=np.random.default_rng(3), **request_)
        covered = make_plan(
            strength, coverage=coverage(8), rng=np.random.default_rng(3), **request_
        )
        assert [b.tolist() for b in plain.batches] == [b.tolist() for b in covered.batches]
        assert math.isnan(plain.uncovered) and covered.uncovered >= 0
