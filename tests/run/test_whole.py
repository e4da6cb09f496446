"""The ledger of many runs together."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.transcript import Event, Whole


def event(evaluations: int, operation="probe", **options) -> Event:
    empty = np.empty(0, dtype=np.int64)
    return Event(operation, evaluations, 10, empty, empty.astype(np.uint64), **options)


def test_the_whole_adds_up_and_is_as_deep_as_the_deepest():
    whole = Whole()
    whole.charge(event(3), 0)
    whole.charge(event(5), 0)
    whole.charge(event(1, "commit"), 1)
    assert whole.ledger == cp.Ledger(probes=8, commits=1, stages=2, rows_read=30, widest_stage=8)
    whole.charge(event(0, "commit", promoted=True), 1)  # a probe that became the commit
    assert (whole.ledger.probes, whole.ledger.commits, whole.ledger.stages) == (7, 2, 2)
    whole.reach(4)
    whole.reach(3)
    assert whole.ledger.stages == 4
    assert Whole().ledger == cp.Ledger()


@pytest.mark.parametrize("seed", range(6))
def test_the_whole_is_what_adding_up_the_stages_of_every_run_gives(seed):
    draw = np.random.default_rng([72, seed])
    ledgers = [cp.Ledger() for _ in range(4)]
    widths: dict[int, int] = {}
    whole = Whole()
    for _ in range(40):
        k = int(draw.integers(4))
        kinds = ["preprocess", "probe", "commit", "promoted"]
        kind = "probe" if not ledgers[k].probes else str(draw.choice(kinds))
        if kind == "promoted":
            one = event(0, "commit", promoted=True, selected=True)
        else:
            one = event(int(draw.integers(1, 6)), kind)
        ledgers[k] = one.charge(ledgers[k])
        stage = ledgers[k].stages - 1
        widths[stage] = widths.get(stage, 0) + one.evaluations
        whole.charge(one, stage)
        names = ("preprocessing", "probes", "commits", "rows_read", "selected_commits")
        sums = {name: sum(getattr(ledger, name) for ledger in ledgers) for name in names}
        depth = max(ledger.stages for ledger in ledgers)
        assert whole.ledger == cp.Ledger(stages=depth, widest_stage=max(widths.values()), **sums)
