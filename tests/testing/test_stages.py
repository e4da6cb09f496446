"""A run that lists its stages asks what a plain one asks, and two runs are compared by stage."""

import numpy as np

import counterprobe as cp
from counterprobe import testing
from counterprobe.oracles import Readouts
from counterprobe.run import Commit, Probe, Stream
from counterprobe.testing.wrappers import (
    ListingRun,
    asked_by_stage,
    first_other_stage,
)


def test_requests_are_listed_before_anything_is_asked(counted, table_law):
    oracle = counted(table_law.oracle())
    run = ListingRun(oracle)
    calls_at_yield = []

    def requests():
        for token in range(3):
            calls_at_yield.append(oracle.calls)
            yield Probe(np.array([[token, -1, -1, -1]]), Readouts.same(1, [1]), token)

    labels = []
    run.do(Stream(requests(), lambda request, rows: labels.append(request.label)))
    assert calls_at_yield == [0, 0, 0]
    assert labels == [0, 1, 2]
    assert [int(states[0, 0]) for states in oracle.seen] == [0, 1, 2]
    assert (run.ledger.probes, run.ledger.stages) == (3, 1)


def test_what_a_run_asked_is_grouped_by_stage(counted, forest_law):
    sampler = cp.samplers.PUNT(0.05, tests="parallel")
    oracle = counted(forest_law.oracle())
    result = sampler(cp.run.Run(oracle), cp.Streams(1, 2))
    stages = asked_by_stage(oracle, result.transcript)
    events = result.transcript.events
    assert [stage.operation for stage in stages] == [event.operation for event in events]
    assert sum(len(stage.asked) for stage in stages) == oracle.calls
    assert first_other_stage(stages, stages) is None


def test_the_first_stage_that_differs_is_named(counted):
    law = testing.small_table()

    def asked(batches):
        oracle = counted(law.oracle())
        run = cp.run.Run(oracle)
        run.begin(cp.Streams(1, 2))
        for batch in batches:
            run.do(Commit(batch))
        return asked_by_stage(oracle, run.transcript)

    one = asked([[0], [1], [2, 3]])
    assert first_other_stage(one, asked([[0], [1], [2], [3]])) == 2
    assert first_other_stage(one, asked([[0], [1]])) == 2
    assert first_other_stage(asked([[0], [1]]), one) == 2
    assert first_other_stage(one, asked([[0], [1], [2, 3]])) is None
