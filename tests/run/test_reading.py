"""A run that reads: what it is opened with, what it remembers, and what it tells."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.door import Door
from counterprobe.run.recheck import Recheck

MASK = cp.MASK
STREAMS = cp.Streams(5, 6)


def begun(oracle: cp.Oracle, **options) -> cp.Unmasking:
    run = cp.Unmasking(oracle, **options)
    run.begin(STREAMS)
    return run


# ----- Opening --------------------------------------------------------------------------------


def test_a_door_of_its_own_has_every_option_of_the_run(law):
    class Silent:
        def charged(self, event, ledger):
            pass

    silent = Silent()
    run = cp.Unmasking(
        law.oracle(), trusted=True, record=cp.Level.FULL, max_submissions=7, listener=silent,
        paranoid=0.5,
    )  # fmt: skip
    door = run._door
    assert door.check._trusted is True
    assert door.transcript.level == cp.Level.FULL
    assert door.transcript.listener is silent
    assert door._max_submissions == 7
    assert isinstance(door._recheck, Recheck) and door._recheck._share == 0.5


def test_options_that_nobody_gave_are_the_plainest(law):
    run = cp.Unmasking(law.oracle())
    door = run._door
    assert door.check._trusted is law.oracle().trusted
    assert (door.transcript.level, door.transcript.listener) == (cp.Level.LEDGER, None)
    assert (door._max_submissions, door._recheck) == (None, None)
    assert (run.temperature, run.sequence, run.rights) == (1.0, 0, ~cp.Right.NONE)


def test_a_door_that_is_handed_in_is_the_one_that_is_used(law):
    door = Door(law.oracle(), record=cp.Level.STRUCTURE)
    assert cp.Unmasking(law.oracle(), door=door, record=cp.Level.FULL)._door is door


@pytest.mark.parametrize("sequence", [0, 3])
@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_values_are_drawn_with_the_noise_of_the_sequence_at_the_temperature(
    law, sequence, temperature
):
    run = begun(law.oracle(), sequence=sequence, temperature=temperature)
    where = run.residual
    rows = law.oracle().rows(run.state[None], cp.Readouts.same(1, where))
    if temperature != 1:
        rows = rows.tempered(temperature)
    uniforms = STREAMS.commit_noise(law.length, sequence).uniforms(where)
    assert run.commit(where).tolist() == rows.draw(uniforms).tolist()


def test_streams_are_bound_once_and_must_be_streams(law):
    run = cp.Unmasking(law.oracle())
    with pytest.raises(ValueError, match=r"got 3; from one seed: Streams.from_seed\(3\)"):
        run.begin(3)
    with pytest.raises(ValueError, match="no commit noise yet: call begin"):
        run.commit([0])
    run.begin(STREAMS)
    with pytest.raises(ValueError, match="already used by a sampler; build a new one"):
        run.begin(STREAMS)


def test_a_drawing_of_ones_own_outlives_the_beginning(law):
    def last(state, positions, rows, index):
        return np.full(len(positions), law.vocab_size - 1)

    run = begun(law.oracle(), draw=last)
    assert run.commit([1, 0]).tolist() == [law.vocab_size - 1] * 2


# ----- What runs remember ---------------------------------------------------------------------


class Remembering:
    """A memory that keeps every key, and computes what it does not know."""

    def __init__(self):
        self.known = {}
        self.doors = []

    def once(self, key, door, compute):
        self.doors.append(door)
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]


def test_a_memory_is_asked_by_name_seed_context_and_history(table_law):
    memory = Remembering()
    given = np.array([1, MASK, MASK, MASK])

    def always_one(state, positions, rows, index):
        return np.ones(len(positions), dtype=np.int64)

    def run(seeds=STREAMS, context=None, batch=(), **options) -> cp.Unmasking:
        one = cp.Unmasking(
            table_law.oracle(), memory=memory, given=context, draw=always_one, **options
        )
        one.begin(seeds)
        for position in batch:
            one.commit([position])
        return one

    first = run()
    assert first.once("edges", lambda: "computed") == "computed"
    assert memory.doors == [first._door]
    for same in (run(), run(cp.Streams(5, 99)), run(sequence=4), run(rights=cp.Right.NONE)):
        assert same.once("edges", lambda: "anew") == "computed"
    others = [
        run(cp.Streams(6, 6)), run(context=given), run(batch=[0]), run(batch=[1]),
        run(batch=[0, 1]), run(context=given, batch=[1]),
    ]  # fmt: skip
    for k, other in enumerate(others):
        assert other.once("edges", lambda k=k: k) == k
    assert first.once("layers", lambda: "another name") == "another name"
    assert run(batch=[1, 0]).once("edges", lambda: "anew") == 4, "the order does not matter"


def test_a_run_without_memory_or_without_seeds_computes_for_itself(law):
    memory = Remembering()
    assert begun(law.oracle()).once("edges", lambda: 3) == 3
    assert cp.Unmasking(law.oracle(), memory=memory).once("edges", lambda: 4) == 4
    assert memory.known == {}


# ----- Stages ---------------------------------------------------------------------------------


def test_a_request_reaches_its_consumer_with_its_label_and_states_as_they_were_checked(law):
    run = cp.Unmasking(law.oracle())
    plain = [[MASK] * law.length, [1] + [MASK] * (law.length - 1)]
    request = cp.Request(plain, cp.Readouts.pairs([1, 0], [2, 0]), label="mine")
    seen = []
    run.stage([request], lambda *reply: seen.append(reply))
    ((found, rows),) = seen
    assert found is request
    expected = law.oracle().rows(np.array(plain, dtype=np.int32), request.readouts)
    assert np.array_equal(rows.masses, expected.masses)
    empty = cp.Request(np.empty((0, law.length), dtype=int), cp.Readouts.same(0, [0]))
    run.stage([empty], lambda *reply: seen.append(reply))
    assert len(seen) == 2 and run.ledger.depth == 1


def test_a_probe_reads_the_same_from_every_state_or_what_pairs_say(law):
    run = cp.Unmasking(law.oracle())
    states = np.full((3, law.length), MASK, dtype=np.int32)
    states[:, 0] = [0, 1, 2]
    every = law.oracle().rows(states, cp.Readouts.same(3, [2, 1]))
    assert np.array_equal(run.probe(states, [2, 1]).masses, every.masses)
    pairs = cp.Readouts.pairs([2, 0], [1, 2])
    assert np.array_equal(run.probe(states, pairs).masses, law.oracle().rows(states, pairs).masses)


def test_progress_counts_what_is_open_while_it_is_open(law):
    told = []
    given = np.full(law.length, MASK)
    given[3] = 0
    run = begun(law.oracle(), given=given, progress=told.append)
    two = cp.Request(np.repeat(run.state[None], 2, axis=0), cp.Readouts.same(2, [0]))
    run.preprocess()
    run.stage([two, two], lambda request, rows: None)
    run.commit([0, 1])
    assert [(p.operation, p.committed, p.length, p.ledger.probes) for p in told] == [
        ("preprocess", 1, law.length, 0),
        ("probe", 1, law.length, 2),
        ("probe", 1, law.length, 4),
        ("probe", 1, law.length, 4),
        ("commit", 3, law.length, 4),
    ]
    assert [p.ledger.depth for p in told] == [1, 1, 1, 2, 3]
