"""Runs that ask one oracle side by side: what goes to it together, and what runs share."""

import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Query, testing
from counterprobe.run import Commit, Driver, Probe, Read, Share, driver
from counterprobe.run.driver import Shared

MASK = cp.MASK
STREAMS = cp.Streams(1, 2)
FREE = np.full((1, 3), MASK, dtype=np.int32)
FIRST = cp.Readouts.same(1, [0])


def ask(states: np.ndarray, readouts: cp.Readouts):
    def work(index):
        reply = yield Query(states.astype(np.int32), readouts)
        return reply.rows

    return work


def gather(oracle: cp.Oracle, works, at_once: int = 8, first: int = 0) -> list:
    runs = Driver(lambda k: works[k](k), len(works), at_once=at_once, first=first)
    return runs.run(oracle)


# ----- What goes to the oracle ------------------------------------------------------------------


def test_what_runs_ask_goes_to_the_oracle_as_one_batch(law, counted):
    oracle = counted(law.oracle())
    free = np.full((1, law.length), MASK)
    seen = free.copy()
    seen[0, 0] = 1
    pairs = cp.Readouts.pairs([1, 0], [2, 1])
    works = [
        ask(free, cp.Readouts.same(1, [1, 3])),
        ask(np.concatenate([seen, free]), pairs),
        ask(seen, cp.Readouts.same(1, [1, 3])),
    ]
    replies = gather(oracle, works)
    assert oracle.calls == 1
    assert oracle.states == 4
    for work, reply in zip(works, replies, strict=True):
        assert np.array_equal(reply.masses, Driver(work).run(law.oracle())[0].masses)


def test_a_batch_is_cut_where_memory_ends(monkeypatch, law, counted):
    monkeypatch.setattr(driver, "MOST_NUMBERS", 4 * law.length)
    oracle = counted(law.oracle())
    sizes = [3, 1, 1, 6, 2]
    works = [ask(np.full((k, law.length), MASK), cp.Readouts.same(k, [0])) for k in sizes]
    replies = gather(oracle, works)
    assert [len(reply) for reply in replies] == sizes
    assert [len(states) for states in oracle.seen] == [4, 1, 6, 2]


@pytest.mark.parametrize("wrong", [None, 0.5])
def test_a_reply_that_cannot_be_shared_out_names_its_oracle(uniform_oracle, wrong):
    class Short(testing.CountingOracle):
        def ask(self, query):
            return cp.Reply(wrong and super().ask(query).rows.take(np.arange(1)))

    with pytest.raises(cp.OracleError, match="'Short of callable'"):
        gather(Short(uniform_oracle()), [ask(FREE, FIRST)] * 2)


@pytest.mark.parametrize("count", [1, 2])
def test_an_answer_in_a_buffer_of_the_oracle_is_everybodys_own(table_law, count):
    class Reusing(testing.CountingOracle):
        buffer = np.empty((64, 3))

        def ask(self, query):
            rows = self.buffer[: len(query.readouts)]
            rows[:] = super().ask(query).rows.dense()
            return cp.Reply(cp.rows.DenseRows(rows))

    oracle = Reusing(table_law.oracle())
    states, readouts = np.full((1, 4), MASK, dtype=np.int32), cp.Readouts.same(1, [0, 2])
    found = gather(oracle, [ask(states, readouts)] * count)
    oracle.buffer[:] = -1
    for rows in found:
        assert np.array_equal(rows.dense(), table_law.oracle().rows(states, readouts).dense())


def test_runs_move_in_order_in_the_thread_and_with_the_settings_of_the_caller(uniform_oracle):
    log: list[tuple[int, int]] = []
    where = set()

    def work(index):
        for step in range(3):
            log.append((step, index))
            where.add((threading.current_thread(), np.geterr()["divide"]))
            yield Query(FREE, FIRST)

    with np.errstate(divide="raise"):
        gather(uniform_oracle(), [work] * 4)
    assert log == [(step, index) for step in range(3) for index in range(4)]
    assert where == {(threading.current_thread(), "raise")}


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_no_more_runs_are_alive_than_permitted_and_the_next_starts_when_one_ends(
    uniform_oracle, counted, at_once
):
    alive, most = set(), []

    def work(index):
        alive.add(index)
        for _ in range(1 + index % 2):
            yield Query(FREE, FIRST)
        most.append(len(alive))
        alive.remove(index)
        return index

    oracle = counted(uniform_oracle())
    assert gather(oracle, [work] * 5, at_once) == list(range(5))
    assert max(most) == at_once and oracle.states == 7
    sizes = [len(states) for states in oracle.seen]
    assert sizes == {1: [1] * 7, 2: [2, 2, 2, 1], 5: [5, 2]}[at_once]


def test_what_is_kept_of_a_run_is_its_own(forest_law):
    keys = set()

    class Keeping(type(forest_law.oracle())):
        def ask(self, query):
            keys.add(query.runs.key)
            return super().ask(query)

    rule = cp.samplers.Sequential("confidence")
    batch = cp.sample(Keeping(forest_law), rule, 4, seed=3, progress=False)
    assert len(keys) == 4
    plain = cp.sample(testing.CountingOracle(forest_law.oracle()), rule, 4, seed=3, progress=False)
    assert batch.sequences.tolist() == plain.sequences.tolist()
    assert list(batch.ledgers) == list(plain.ledgers)


# ----- Errors -----------------------------------------------------------------------------------


def test_an_error_names_the_sequences_that_the_oracle_was_asked_for(law, monkeypatch):
    monkeypatch.setattr(driver, "MOST_NUMBERS", 2 * law.length)

    class Failing(testing.CountingOracle):
        def ask(self, query):
            if self.calls == 1:
                raise RuntimeError("out of memory")
            return super().ask(query)

    one = ask(np.full((1, law.length), MASK), FIRST)
    with pytest.raises(RuntimeError, match="out of memory") as problem:
        gather(Failing(law.oracle()), [one] * 5)
    assert problem.value.__notes__ == ["while the oracle was asked for sequences [2, 3]"]


@pytest.mark.parametrize(("count", "named"), [(4, "[0, 1, 2, 3]"), (7, "[0, 1, 2, 3, 4, 5, ...]")])
def test_a_few_sequences_are_named_and_many_counted(uniform_oracle, count, named):
    class Failing(testing.CountingOracle):
        def ask(self, query):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError) as problem:
        gather(Failing(uniform_oracle()), [ask(FREE, FIRST)] * count)
    assert problem.value.__notes__ == [f"while the oracle was asked for sequences {named}"]


def test_an_error_ends_every_run_and_says_whose_it_was(uniform_oracle):
    ended = []

    def work(index):
        try:
            yield Query(FREE, FIRST)
            if index == 1:
                raise RuntimeError("out of luck")
            yield Query(FREE, FIRST)
        finally:
            ended.append(index)

    with pytest.raises(RuntimeError, match="out of luck") as problem:
        gather(uniform_oracle(), [work] * 3)
    assert problem.value.__notes__ == ["in sequence 1 of 3"]
    assert sorted(ended) == [0, 1, 2]


def copied_bits() -> cp.TableLaw:
    table = np.zeros((2, 2, 2))
    table[[0, 1], [0, 1]] = [[1.0, 2.0], [3.0, 1.0]]
    return cp.TableLaw(table)


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
def test_an_impossible_state_is_refused_to_the_run_that_asked_and_to_nobody_else(counted):
    law = copied_bits()
    oracle = counted(law.oracle())
    states = np.array([[0, 0, MASK], [0, 1, MASK], [1, 1, MASK], [1, 0, MASK]], dtype=np.int32)

    def work(index):
        try:
            return (yield Query(states[index : index + 1], cp.Readouts.same(1, [2]))).rows
        except cp.errors.ImpossibleState as refusal:
            return str(refusal)

    found = gather(oracle, [work] * 4)
    for k in (0, 2):
        assert found[k].dense().tolist() == [law.conditional(states[k], [2]).tolist()]
    assert "x0=0, x1=1" in found[1] and "x0=1, x1=0" in found[3]
    assert [len(seen) for seen in oracle.seen] == [4, 1, 1, 1, 1]


def test_an_interrupt_reaches_a_run_that_is_alone_where_it_waits(uniform_oracle):
    class Interrupted(testing.CountingOracle):
        def ask(self, query):
            raise KeyboardInterrupt

    def work():
        try:
            yield Query(FREE, FIRST)
        except KeyboardInterrupt:
            return "what was found"

    assert Driver(lambda _: work()).run(Interrupted(uniform_oracle()))[0] == "what was found"


# ----- What runs share --------------------------------------------------------------------------


def sharing(oracle, shared, requests, name="structure"):
    """Return a run that computes something once, and its ledger and result at the end."""

    def work(index):
        run = cp.run.Run(oracle, shared=shared)
        run.begin(STREAMS)

        def rule():
            found = yield Share(name, requests(index))
            return run.ledger, found

        return run.follow(rule())

    return work


@pytest.mark.parametrize("first", [0, 2, 3])
def test_the_first_to_start_computes_what_all_share(table_law, first):
    computed: list[int] = []

    def requests(index):
        yield from ()
        computed.append(index)
        return index

    oracle = table_law.oracle()
    results = gather(oracle, [sharing(oracle, Shared(), requests)] * 4, 2, first)
    assert computed == [first]
    assert [found for _, found in results] == [first] * 4


def test_runs_that_come_to_the_same_thing_wait_for_the_first_and_share_its_charges(law, counted):
    oracle = counted(law.oracle())
    state = np.full((2, law.length), MASK)

    def requests(index):
        yield Probe(state, [0])
        yield Probe(state[:1], [1])
        return [index]

    results = gather(oracle, [sharing(oracle, Shared(), requests)] * 3)
    ledgers, found = zip(*results, strict=True)
    assert list(ledgers) == [cp.Ledger(probes=3, stages=2, rows_read=3, widest_stage=2)] * 3
    assert oracle.states == 3
    assert found[0] is found[1] is found[2] and found[0] == [0]


def test_a_refusal_is_shared_with_its_charges(law, counted):
    oracle = counted(law.oracle())
    shared = Shared()

    def work(index):
        run = cp.run.Run(oracle, shared=shared)
        run.begin(STREAMS)

        def compute():
            yield Read()
            raise cp.Infeasible("nothing was found")

        def rule():
            with pytest.raises(cp.Infeasible, match="nothing was found"):
                yield Share("structure", compute())

        yield from run.follow(rule())
        return run.ledger

    ledgers = gather(oracle, [work] * 3)
    paid = cp.Ledger(probes=1, stages=1, rows_read=law.length, widest_stage=1)
    assert ledgers == [paid] * 3
    assert oracle.states == 1


def test_what_was_looked_at_last_is_kept_longest():
    shared, computed = Shared(most=2), []
    for name in "abacbca":
        _, is_new = shared.find(name)
        computed += [name] * is_new
    assert computed == ["a", "b", "c", "b", "a"], "a was looked at after b, so b made way for c"


@dataclass(frozen=True)
class LooksLater(cp.samplers.Sampler):
    """Computes what depends on where the run began, at a history that others begin from."""

    name: ClassVar[str] = "looks-later"

    def unmask(self, view, rng):
        began = int((view.state != MASK).sum())
        if began == 0:
            yield Commit([0])

        def compute():
            yield from ()
            return began

        found = yield Share("began", compute())
        yield Commit(view.residual)
        return found


def test_a_history_that_was_given_is_not_one_that_was_committed(table_law):
    first = cp.sample(table_law.oracle(), LooksLater(), 1, progress=False)
    given = np.full((2, table_law.length), MASK)
    given[1, 0] = first.sequences[0, 0]
    batch = cp.sample(table_law.oracle(), LooksLater(), 2, given=given, progress=False)
    assert [result.diagnostics for result in batch.results] == [0, 1]
