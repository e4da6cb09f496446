"""Runs that meet at the oracle: what they ask together, and what they share."""

import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.run import gathered
from counterprobe.run.door import Door
from counterprobe.run.gathered import Gathering

MASK = cp.MASK


def ask(states: np.ndarray, readouts: cp.Readouts):
    return lambda member: member.rows(states.astype(np.int32), readouts)


def gather(oracle: cp.Oracle, works, at_once: int = 8) -> list:
    return Gathering(oracle, at_once).run(len(works), lambda member: works[member.index](member))


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
        expected = gather(law.oracle(), [work])[0]
        assert np.array_equal(reply.masses, expected.masses)


@pytest.mark.parametrize("first", [0, 2, 3])
def test_the_first_to_start_computes_what_all_share(table_law, first):
    computed: list[int] = []

    def work(member):
        def compute() -> int:
            computed.append(member.index)
            return member.index

        return member.index, member.once("shared", Door(table_law.oracle()), compute)

    results = Gathering(table_law.oracle(), 2).run(4, work, first=first)
    assert computed == [first]
    assert results == [(index, first) for index in range(4)]


def test_a_batch_is_cut_where_memory_ends(monkeypatch, law, counted):
    monkeypatch.setattr(gathered, "MOST_NUMBERS", 4 * law.length)
    oracle = counted(law.oracle())
    sizes = [3, 1, 1, 6, 2]
    works = [ask(np.full((k, law.length), MASK), cp.Readouts.same(k, [0])) for k in sizes]
    replies = gather(oracle, works)
    assert [len(reply) for reply in replies] == sizes
    assert [len(states) for states in oracle.seen] == [4, 1, 6, 2]


def test_an_error_names_the_sequences_that_the_oracle_was_asked_for(law, monkeypatch):
    monkeypatch.setattr(gathered, "MOST_NUMBERS", 2 * law.length)

    class Failing(testing.CountingOracle):
        def ask(self, query):
            if self.calls == 1:
                raise RuntimeError("out of memory")
            return super().ask(query)

    one = ask(np.full((1, law.length), MASK), cp.Readouts.same(1, [0]))
    with pytest.raises(RuntimeError, match="out of memory") as problem:
        gather(Failing(law.oracle()), [one] * 5)
    assert problem.value.__notes__ == ["while the oracle was asked for sequences 2, 3"]


@pytest.mark.parametrize("wrong", [None, 0.5])
def test_a_reply_that_cannot_be_shared_out_names_its_oracle(uniform_oracle, wrong):
    class Short(testing.CountingOracle):
        def ask(self, query):
            return cp.Reply(wrong and super().ask(query).rows.take(np.arange(1)))

    one = ask(np.full((1, 3), MASK), cp.Readouts.same(1, [0]))
    with pytest.raises(cp.OracleError, match="'Short of callable'"):
        gather(Short(uniform_oracle()), [one] * 2)


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


def test_only_one_run_moves_at_a_time_and_in_order(uniform_oracle):
    lock = threading.Lock()
    log: list[tuple[int, int]] = []

    def work(member):
        for step in range(3):
            assert lock.acquire(blocking=False)
            log.append((step, member.index))
            lock.release()
            member.rows(np.full((1, 3), MASK, dtype=np.int32), cp.Readouts.same(1, [0]))

    gather(uniform_oracle(), [work] * 4)
    assert log == [(step, index) for step in range(3) for index in range(4)]


def test_the_oracle_is_asked_in_the_thread_that_called(uniform_oracle):
    asked_in = []

    def function(states):
        asked_in.append(threading.current_thread())
        return np.full((*states.shape, 4), 0.25)

    cp.sample(cp.CallableOracle(function, 3, 4), "threshold", 3, progress=False)
    assert set(asked_in) == {threading.current_thread()}


def test_a_refusal_is_shared_with_its_charges(law, counted):
    oracle = counted(law.oracle())
    state = np.full((1, law.length), MASK)

    def work(member):
        door = Door(member)

        def compute():
            door.probe(state, [0])
            raise cp.Infeasible("nothing was found")

        with pytest.raises(cp.Infeasible, match="nothing was found"):
            member.once("structure", door, compute)
        return door.ledger

    ledgers = gather(oracle, [work] * 3)
    assert ledgers == [cp.Ledger(probes=1, depth=1, rows_read=1, widest_stage=1)] * 3
    assert oracle.states == 1


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


@dataclass(frozen=True)
class LooksLater(cp.samplers.Sampler):
    """Computes what depends on where the run began, at a history that others begin from."""

    name: ClassVar[str] = "looks-later"

    def unmask(self, run, decisions):
        began = int((run.state != MASK).sum())
        if began == 0:
            run.commit([0])
        began = run.once("began", lambda: began)
        run.commit(run.residual)
        return began


def test_a_history_that_was_given_is_not_one_that_was_committed(table_law):
    first = cp.sample(table_law.oracle(), LooksLater(), 1, progress=False)
    given = np.full((2, table_law.length), MASK)
    given[1, 0] = first.sequences[0, 0]
    batch = cp.sample(table_law.oracle(), LooksLater(), 2, given=given, progress=False)
    assert [result.diagnostics for result in batch.results] == [0, 1]


# ----- Threads, refusals and what is known ------------------------------------------------------


def copied_bits() -> cp.TableLaw:
    table = np.zeros((2, 2, 2))
    table[[0, 1], [0, 1]] = [[1.0, 2.0], [3.0, 1.0]]
    return cp.TableLaw(table)


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
def test_an_impossible_state_is_refused_to_the_run_that_asked_and_to_nobody_else(counted):
    law = copied_bits()
    oracle = counted(law.oracle())
    states = np.array([[0, 0, MASK], [0, 1, MASK], [1, 1, MASK], [1, 0, MASK]], dtype=np.int32)

    def work(member):
        try:
            return member.rows(states[member.index : member.index + 1], cp.Readouts.same(1, [2]))
        except cp.errors.ImpossibleState as refusal:
            return str(refusal)

    found = gather(oracle, [work] * 4)
    for k in (0, 2):
        assert found[k].dense().tolist() == [law.conditional(states[k], [2]).tolist()]
    assert "x0=0, x1=1" in found[1] and "x0=1, x1=0" in found[3]
    assert [len(seen) for seen in oracle.seen] == [4, 1, 1, 1, 1]


def test_every_run_has_a_thread_of_its_own_name_with_the_settings_of_the_caller(uniform_oracle):
    def work(member):
        thread = threading.current_thread()
        return thread.name, thread.daemon, np.geterr()["divide"], (
            member.length, member.vocab_size, member.row_error, member.info.trusted, member.name,
        )  # fmt: skip

    oracle = uniform_oracle(row_error=0.25, name="plain")
    with np.errstate(divide="raise"):
        found = gather(oracle, [work] * 3, at_once=2)
    size = (3, 4, 0.25, False, "plain")
    assert found == [(f"counterprobe sequence {k}", True, "raise", size) for k in range(3)]
    assert not [t for t in threading.enumerate() if t.name.startswith("counterprobe sequence")]


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_no_more_runs_are_alive_than_permitted_and_the_next_starts_when_one_ends(
    uniform_oracle, counted, at_once
):
    alive, most = set(), []
    free = np.full((1, 3), MASK, dtype=np.int32)

    def work(member):
        alive.add(member.index)
        for _ in range(1 + member.index % 2):
            member.rows(free, cp.Readouts.same(1, [0]))
        most.append(len(alive))
        alive.remove(member.index)
        return member.index

    oracle = counted(uniform_oracle())
    assert gather(oracle, [work] * 5, at_once) == list(range(5))
    assert max(most) == at_once and oracle.states == 7
    sizes = [len(states) for states in oracle.seen]
    assert sizes == {1: [1] * 7, 2: [2, 2, 2, 1], 5: [5, 2]}[at_once]


def test_an_error_ends_every_run_and_says_whose_it_was(uniform_oracle):
    ended = []
    free = np.full((1, 3), MASK, dtype=np.int32)

    def work(member):
        try:
            member.rows(free, cp.Readouts.same(1, [0]))
            if member.index == 1:
                raise RuntimeError("out of luck")
            member.rows(free, cp.Readouts.same(1, [0]))
        finally:
            ended.append(member.index)

    with pytest.raises(RuntimeError, match="out of luck") as problem:
        gather(uniform_oracle(), [work] * 3)
    assert problem.value.__notes__ == ["in sequence 1 of 3"]
    assert sorted(ended) == [0, 1, 2]
    assert not [t for t in threading.enumerate() if t.name.startswith("counterprobe sequence")]


@pytest.mark.parametrize(
    ("count", "named"), [(4, "0, 1, 2, 3"), (5, "0, 1, 2, 3, ... (5 of them)")]
)
def test_a_few_sequences_are_named_and_many_counted(law, count, named):
    class Failing(testing.CountingOracle):
        def ask(self, query):
            raise RuntimeError("out of memory")

    one = ask(np.full((1, law.length), MASK), cp.Readouts.same(1, [0]))
    with pytest.raises(RuntimeError) as problem:
        gather(Failing(law.oracle()), [one] * count)
    assert problem.value.__notes__ == [f"while the oracle was asked for sequences {named}"]


def test_what_was_looked_at_last_is_kept_longest(monkeypatch, uniform_oracle):
    monkeypatch.setattr(gathered, "MOST_KNOWN", 2)
    computed = []

    def work(member):
        door = Door(member)
        for name in "abacbca":
            assert member.once(name, door, lambda name=name: computed.append(name) or name) == name

    gather(uniform_oracle(), [work])
    assert computed == ["a", "b", "c", "b", "a"], "a was looked at after b, so b made way for c"


def test_runs_that_come_to_the_same_thing_wait_for_the_first_and_share_its_result(law, counted):
    oracle = counted(law.oracle())
    state = np.full((2, law.length), MASK)
    found = []

    def work(member):
        door = Door(member)

        def compute():
            door.probe(state, [0])
            door.probe(state[:1], [1])
            return [member.index]

        found.append((member.index, member.once("structure", door, compute)))
        return door.ledger

    ledgers = gather(oracle, [work] * 3)
    assert ledgers == [cp.Ledger(probes=3, depth=2, rows_read=3, widest_stage=2)] * 3
    assert oracle.states == 3
    assert [index for index, _ in found] == [0, 1, 2]
    assert found[0][1] is found[1][1] is found[2][1] and found[0][1] == [0]


def test_a_run_of_which_work_is_kept_ends_with_the_others(forest_law):
    reached = []

    def follows(member):
        run = cp.Unmasking(member)
        run.begin(cp.Streams(1, 2))
        run.commit([0])
        run.probe(run.state, [1])  # here the other runs have their turn
        reached.append("asked")

    def fails(member):
        raise RuntimeError("elsewhere")

    with pytest.raises(RuntimeError, match="elsewhere"):
        gather(forest_law.oracle(), [follows, fails])
    assert reached == []
