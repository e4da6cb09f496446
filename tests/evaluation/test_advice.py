"""Advice: only what was measured is recommended, within budgets."""

import math
import time
from functools import cache

import numpy as np
import pytest
from scipy import stats

import counterprobe as cp
from counterprobe.evaluation import advise
from counterprobe.evaluation.advice import first_look
from grouped_laws import GroupedLaw, chain, gated, parity

STREAMS = cp.Streams.from_seed(2)


@cache
def law_of(kind: str) -> GroupedLaw:
    tables = {
        "chains": [chain(4, 0.1)] * 2,
        "none": [np.array([0.4, 0.6])] * 10,
        "parities": [parity(3)] * 2,
        "mixed": [chain(3, 0.1), parity(3)],
        "gated": [gated(2, 0.05), chain(3, 0.1)],
    }[kind]
    return GroupedLaw(tables, seed=1)


@cache
def found_in(law: GroupedLaw) -> cp.Structure:
    return cp.discover(law, STREAMS, mode="soft", probes=96)


def test_structure_is_advised_where_it_pays():
    law = law_of("chains")
    found = found_in(law)
    advice = cp.evaluation.advise(law, found, 1000, target_kl=0.3, seed=1)
    best = advice.best
    assert best.way == "planned" and best.batches == 3
    assert (best.way, best.batches) in {(p.way, p.batches) for p in advice.table.prices}
    assert best.measured.interval[1] <= 0.3
    assert best.cost(1000) == found.ledger.evaluations + 3000
    assert advice.break_even is not None and not advice.stopped
    assert "use planned with 3 batches" in str(advice) and "at 95%" in str(advice)
    few = cp.evaluation.advise(law, found, 1, target_kl=0.3, seed=1)
    assert few.best.way != "planned"
    assert few.as_dict()["break_even"] == advice.break_even


def test_structure_is_not_advised_where_there_is_none():
    law = law_of("none")
    advice = advise(law, found_in(law), 1000, counts=(1, 2, 4))
    assert advice.break_even is None
    assert advice.best.way in ("random", "spread") and advice.best.batches == 1
    assert "not worth it" in str(advice)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("chains", marks=pytest.mark.slow), "parities",
        pytest.param("mixed", marks=pytest.mark.slow), "gated",
    ],
)  # fmt: skip
def test_what_is_recommended_keeps_to_its_price(kind, seed_of):
    law = law_of(kind)
    found = found_in(law)
    target, broken, runs = 0.4, 0, 4
    for k in range(runs):
        advice = advise(
            law, found, 1000, target_kl=target, terms=None, max_evaluations=4_000,
            seed=seed_of(81) + k,
        )  # fmt: skip
        best = advice.best
        assert best.measured is None or best.measured.passes(target)
        if best.way == "planned":
            plans = [
                cp.planning.plan_for(found, batches=best.batches, seed=j).batches for j in range(4)
            ]
            broken += np.mean([law.price(plan) for plan in plans]) > target
    # Each of about four numbers of batches passes wrongly one time in forty at most; level 1e-4.
    assert broken <= stats.binom.isf(1e-4, runs, 0.1)


def test_a_budget_of_evaluations_is_kept_and_said(counted):
    law = law_of("parities")
    found = found_in(law)
    for most in (0, 40, 400):
        asked = counted(law)
        advice = advise(asked, found, 10, max_evaluations=most)
        assert asked.states <= most and advice.table.ledger.evaluations <= most
        assert advice.best.way == "sequential" and advice.best.cost(10) == 60
        if most < 400:
            assert f"the budget of {most} evaluations ended" in advice.stopped
            assert "Stopped early" in str(advice)
    assert advice.as_dict()["stopped"] == advice.stopped


def test_what_was_shown_before_a_budget_ended_is_recommended():
    law = law_of("chains")
    found = found_in(law)
    whole = advise(law, found, 1000, target_kl=0.3, seed=1)
    paid = sum(p.measured.ledger.evaluations for p in whole.table.of("planned"))
    short = advise(law, found, 1000, target_kl=0.3, max_evaluations=paid + 50, seed=1)
    assert (short.best.way, short.best.batches) == ("planned", 3)
    assert short.stopped


def test_a_budget_of_seconds_is_kept():
    law = law_of("parities")
    found = found_in(law)

    class Slow(GroupedLaw):
        def rows(self, states, readouts):
            time.sleep(0.05)
            return super().rows(states, readouts)

    slow = Slow(law.tables, seed=1)
    started = time.monotonic()
    advice = advise(slow, found, 10, max_seconds=0.5)
    assert time.monotonic() - started < 10
    assert "the budget of 0.5 seconds ended" in advice.stopped
    assert advice.best.way == "sequential"


def test_what_cannot_be_shown_is_named_with_what_it_would_take():
    law = law_of("chains")
    advice = advise(law, found_in(law), 1000, max_evaluations=700)
    assert advice.best.way == "sequential" and advice.nearest is not None
    assert "Not shown: planned with" in str(advice) and "samples, " in str(advice)
    assert advice.as_dict()["nearest"]["batch_kl_high"] > 0.1


def test_progress_is_told_and_a_first_look_is_foreseen(counted):
    law = law_of("parities")
    found = found_in(law)
    told = []
    asked = counted(law)
    advise(asked, found, 10, target_kl=1e-6, progress=told.append)
    assert [t.evaluations for t in told] == sorted(t.evaluations for t in told)
    assert told[-1].evaluations <= asked.states and told[-1].now.startswith("spread")
    assert 0.2 * asked.states <= first_look(found) <= 5 * asked.states


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"target_kl": 0}, "target_kl must be"),
        ({"target_kl": math.nan}, "target_kl must be"),
        ({"count": 0}, "count must be"),
        ({"samples": 1}, "samples must be"),
        ({"counts": [0]}, "counts must be"),
        ({"max_evaluations": -1}, "max_evaluations must be"),
        ({"max_seconds": -1}, "max_seconds must be"),
    ],
)
def test_bad_requests_are_refused(arguments, said):
    law = law_of("none")
    with pytest.raises(ValueError, match=said):
        advise(law, found_in(law), **arguments)
