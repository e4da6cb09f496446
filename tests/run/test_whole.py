"""The ledger of many runs together."""

import numpy as np

import counterprobe as cp
from counterprobe.run.transcript import Event
from counterprobe.run.whole import Whole


def event(submissions: int, operation="probe", **options) -> Event:
    empty = np.empty(0, dtype=np.int64)
    return Event(operation, submissions, 10, empty, empty.astype(np.uint64), **options)


def test_the_whole_adds_up_and_is_as_deep_as_the_deepest():
    whole = Whole()
    whole.charge(event(3), 0)
    whole.charge(event(5), 0)
    whole.charge(event(1, "commit"), 1)
    assert whole.ledger == cp.Ledger(probes=8, commits=1, depth=2, rows_read=30, widest_stage=8)
    whole.charge(event(0, "commit", promoted=True), 1)  # a probe that became the commit
    assert (whole.ledger.probes, whole.ledger.commits, whole.ledger.depth) == (7, 2, 2)
    whole.reach(4)
    whole.reach(3)
    assert whole.ledger.depth == 4
    assert Whole().ledger == cp.Ledger()
