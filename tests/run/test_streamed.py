"""Labelled requests of one stage: answered in order, charged once, never past the budget."""

from contextlib import nullcontext

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.door import Door
from counterprobe.run.refusals import Refusals
from counterprobe.run.streamed import ask_all
from counterprobe.testing import CountingOracle
from reading_ahead import ReadsAhead

MASK = cp.MASK


def labelled(law):
    """Requests of one, two and three states, each with values and readouts of its own."""
    for size in (1, 2, 3):
        states = np.full((size, law.length), MASK, dtype=np.int32)
        states[:, 0] = np.arange(size) % law.vocab_size
        yield f"request {size}", states, cp.Readouts.same(size, [size]), None


@pytest.mark.parametrize("kind", [CountingOracle, ReadsAhead])
def test_every_label_comes_with_its_own_rows_and_every_state_is_charged_once(law, kind):
    oracle = kind(law.oracle())
    door = Door(oracle)
    with door.stage("probe") as stage:
        found = list(ask_all(stage, oracle, labelled(law)))
    assert [label for label, _ in found] == ["request 1", "request 2", "request 3"]
    for (_, rows), (_, states, readouts, _) in zip(found, labelled(law), strict=True):
        assert np.array_equal(rows.dense(), law.oracle().rows(states, readouts).dense())
    assert door.ledger == cp.Ledger(probes=6, depth=1, rows_read=6, widest_stage=6)
    assert oracle.states == 6


@pytest.mark.parametrize("kind", [CountingOracle, ReadsAhead])
@pytest.mark.parametrize(("budget", "answered"), [(0, 0), (1, 1), (2, 1), (3, 2), (5, 2), (6, 3)])
def test_the_first_request_past_the_budget_is_refused_and_never_reaches_the_oracle(
    law, kind, budget, answered
):
    oracle = kind(law.oracle())
    door = Door(oracle, max_submissions=budget)
    seen = []
    refused = pytest.raises(cp.BudgetExceeded, match=f"max_submissions is {budget}")
    with refused if answered < 3 else nullcontext(), door.stage("probe") as stage:
        for label, _ in ask_all(stage, oracle, labelled(law)):
            seen.append(label)
    assert len(seen) == answered
    assert oracle.states == door.ledger.total == [0, 1, 3, 6][answered]


# ----- Requests that an oracle refuses ----------------------------------------------------------


class AllAtOnce(CountingOracle):
    """Reads every request before it answers the first, and refuses when the turn has come."""

    def stream(self, requests):
        yield from [self.rows(*request) for request in list(requests)]


def copies() -> cp.TableLaw:
    """Three tokens, of which the first two are equal."""
    table = np.zeros((2, 2, 2))
    table[[0, 1], [0, 1]] = [[1.0, 2.0], [3.0, 1.0]]
    return cp.TableLaw(table)


def pairs_of(first: int, second: int, noted) -> tuple:
    states = np.array([[first, second, MASK]], dtype=np.int32)
    return (first, second), states, cp.Readouts.same(1, [2]), noted


@pytest.mark.filterwarnings("ignore::counterprobe.ZeroProbabilityWarning")
@pytest.mark.parametrize("kind", [CountingOracle, ReadsAhead, AllAtOnce])
def test_a_refusal_is_noted_where_its_request_says_and_the_others_are_answered(kind):
    oracle = kind(copies().oracle())
    door = Door(oracle)
    noted = [Refusals() for _ in range(6)]
    cases = [(0, 0), (1, 1), (0, 1), (1, 1), (1, 0), (0, 0)]
    with door.stage("probe") as stage:
        requests = (pairs_of(*case, one) for case, one in zip(cases, noted, strict=True))
        found = list(ask_all(stage, oracle, requests))
    assert [label for label, _ in found] == cases
    assert [one.states for one in noted] == [[], [], [0], [], [0], []]
    for (first, second), rows in found:
        if first == second:
            expected = copies().conditional(np.array([first, second, MASK]), [2])
            assert rows.dense().tolist() == [expected.tolist()]
    assert (door.ledger.probes, door.ledger.rows_read) == (6, 4)


@pytest.mark.filterwarnings("ignore::counterprobe.ZeroProbabilityWarning")
@pytest.mark.parametrize("kind", [CountingOracle, ReadsAhead, AllAtOnce])
@pytest.mark.parametrize("first", [None, "noted"])
def test_a_refusal_that_nobody_notes_is_an_error_in_its_turn(kind, first):
    oracle = kind(copies().oracle())
    door = Door(oracle)
    cases = [((0, 0), Refusals() if first else None), ((0, 1), None), ((1, 1), None)]
    seen = []
    with pytest.raises(cp.ImpossibleState), door.stage("probe") as stage:
        for label, _ in ask_all(stage, oracle, (pairs_of(*one, noted) for one, noted in cases)):
            seen.append(label)
    assert seen == ([] if kind is AllAtOnce and not first else [(0, 0)])
    assert door.ledger.probes == len(seen)


def test_a_stage_that_is_left_early_asks_for_no_more_than_was_read_ahead(law):
    oracle = ReadsAhead(law.oracle())
    door = Door(oracle)
    with door.stage("probe") as stage:
        answers = ask_all(stage, oracle, (request for _ in range(3) for request in labelled(law)))
        assert next(answers)[0] == "request 1"
        answers.close()
    assert oracle.states == door.ledger.probes == 1 and oracle.furthest == 3
