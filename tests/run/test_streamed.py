"""Labelled requests of one stage: answered in order, charged once, never past the budget."""

from contextlib import nullcontext

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.door import Door
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
