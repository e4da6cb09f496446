"""Measurements: values, one ledger for all parts, and errors in the part that asked."""

import warnings

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.errors import BudgetExceeded, OracleError, ZeroProbabilityWarning
from counterprobe.oracles import FollowsRuns, Query, Readouts
from counterprobe.run import Probe, Stream
from counterprobe.run.run import measure
from counterprobe.testing import CountingOracle


def reads(law, states, stages):
    """Some stages, each of as many states in two calls."""
    masked = np.full((states, law.length), cp.MASK)
    found = []
    for _ in range(stages):
        found.append((yield Probe(masked, [0])).rows.dense())
        parts = [Probe(part, [1]) for part in np.array_split(masked, 2) if len(part)]
        yield Stream(parts, lambda probe, rows: found.append(rows.dense()))
    return found


def test_stage_k_of_every_part_is_one_stage(table_law):
    oracle = CountingOracle(table_law.oracle())
    parts = (reads(table_law, *sizes) for sizes in ((2, 1), (5, 2)))
    (one, other), ledger = measure(oracle, parts)
    assert (len(one), len(other)) == (3, 6)
    assert (
        ledger.probes == ledger.evaluations == ledger.rows_read == oracle.states == 2 * 2 + 4 * 5
    )
    assert (ledger.stages, ledger.widest_stage) == (4, 7)


def test_nothing_to_measure_costs_nothing(table_law):
    assert measure(table_law.oracle(), []) == ([], cp.Ledger())


def test_a_zero_warns_once_for_all_parts():
    law = cp.TableLaw(np.diag([0.5, 0.5]))

    def part():
        return (yield Probe([[0, cp.MASK]], [1])).rows

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measure(law.oracle(), [part(), part()])
    assert [one.category for one in caught] == [ZeroProbabilityWarning]


def test_errors_are_raised_in_the_part_that_asked(table_law):
    class Failing(CountingOracle):
        def ask(self, query):
            if self.calls:
                raise BudgetExceeded("enough")
            return super().ask(query)

    ended = []

    def part():
        try:
            yield from reads(table_law, 2, 1)
        except BudgetExceeded:
            ended.append(True)
            raise

    with pytest.raises(BudgetExceeded, match="enough"):
        measure(Failing(table_law.oracle()), [part(), part()])
    assert ended == [True]


def test_revealed_positions_are_read_with_ranks_and_not_without(table_law):
    class Ordered(CountingOracle):
        follows_many, depends_on_order, follow = True, True, None

        def ability(self, kind):
            return self if kind is FollowsRuns else None

        def ask(self, query):
            assert query.ranks.tolist() == [[0, 1, 2, 3]]
            masked = np.full_like(query.states, cp.MASK)
            return self.inner.ask(Query(masked, query.readouts))

    readouts = Readouts.same(1, [1, 2])

    def part(ranks):
        return len((yield Probe([[0, 1, 2, 0]], readouts, ranks=ranks)).rows)

    oracle = Ordered(table_law.oracle())
    assert measure(oracle, [part(np.arange(4)[None])])[0] == [2]
    with pytest.raises(ValueError, match="readouts must be masked"):
        measure(oracle, [part(None)])
    with pytest.raises(OracleError, match="order of commits"):
        measure(oracle, [reads_shown()])


def reads_shown():
    yield Probe([[0, 1, 2, cp.MASK]], [3])
