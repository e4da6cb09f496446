"""A run that is resumed is the run that was never interrupted; only recognising it is paid."""

import dataclasses
import io
import itertools
import json
import logging
from dataclasses import dataclass

import numpy as np
import pytest
from counterprobe.run.encoding import encode_classes, pack, unpack
from counterprobe.run.replies import Kind
from hypothesis import given, settings
from hypothesis import strategies as st

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe import samplers, testing
from counterprobe.digests import DIGEST_SIZE
from counterprobe.rows import DenseRows
from counterprobe.run import replies
from reading_ahead import ReadsAhead

MASK = cp.MASK


class Interrupted(Exception):
    """Stands for whatever ends a process."""


class Mortal(testing.CountingOracle):
    """Dies after a number of calls, before or after it has answered."""

    def __init__(self, inner, calls):
        super().__init__(inner)
        self.calls_left = calls

    def rows(self, states, readouts):
        if self.calls_left == 0:
            raise Interrupted
        self.calls_left -= 1
        return super().rows(states, readouts)


class MortalSessions:
    """An oracle with sessions, one or many, that dies after so many rows() of any of them."""

    def __init__(self, inner, calls):
        self.inner, self.calls_left, self.answered = inner, calls, 0

    def __getattr__(self, name):
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def spend(self, states=1):
        if self.calls_left == 0:
            raise Interrupted
        self.calls_left -= 1
        self.answered += states

    def rows(self, states, readouts):
        self.spend(len(states))
        return self.inner.rows(states, readouts)

    def session(self, state):
        return Spending(self, self.inner.session(state))


class Spending:
    def __init__(self, oracle, session):
        self.oracle, self.session, self.push = oracle, session, session.push

    def rows(self, positions):
        self.oracle.spend()
        return self.session.rows(positions)


def same(one: cp.SampleBatch, other: cp.SampleBatch) -> bool:
    """Whether two batches are the same in everything but the seconds they took."""
    return (
        np.array_equal(one.sequences, other.sequences)
        and one.ledger == other.ledger
        and list(one.ledgers) == list(other.ledgers)
        and all(
            [e.fingerprints.tolist() for e in a.transcript.events]
            == [e.fingerprints.tolist() for e in b.transcript.events]
            for a, b in zip(one.results, other.results, strict=True)
        )
    )


RULES = ["sequential", "random-balanced", "threshold", "punt", "maskgit", "compressed"]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("rule", RULES)
def test_a_run_that_died_at_any_call_repeats_one_state_a_life_to_recognise_the_oracle(
    law, rule, count, tmp_path
):
    whole = testing.CountingOracle(law.oracle())
    undisturbed = cp.sample(whole, rule, count, seed=3, progress=False)
    path = tmp_path / "run.log"
    lives, states = 0, 0
    while True:
        oracle = Mortal(law.oracle(), calls=3 + (lives > 0))
        lives += 1
        try:
            resumed = cp.sample(oracle, rule, count, seed=3, progress=False, checkpoint=path)
            break
        except Interrupted:
            states += oracle.states
    states += oracle.states
    assert lives == -(-whole.calls // 3) + (whole.calls % 3 == 0) or lives == -(-whole.calls // 3)
    assert whole.states == undisturbed.ledger.total
    assert states == whole.states + lives - 1
    assert same(resumed, undisturbed)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rule", ["sequential", "threshold", "punt"])
def test_sessions_are_replayed_and_opened_only_where_the_log_ends(
    forest_law, rule, count, tmp_path
):
    undisturbed = cp.sample(forest_law.oracle(), rule, count, seed=5, progress=False)
    path = tmp_path / "run.log"
    answered = lives = 0
    while True:
        oracle = MortalSessions(forest_law.oracle(), calls=4 + (lives > 0))
        lives += 1
        try:
            resumed = cp.sample(oracle, rule, count, seed=5, progress=False, checkpoint=path)
            break
        except Interrupted:
            answered += oracle.answered
    answered += oracle.answered
    assert same(resumed, undisturbed)
    assert answered == undisturbed.ledger.total + lives - 1 and lives > 1
    silent = MortalSessions(forest_law.oracle(), calls=1)
    again = cp.sample(silent, rule, count, seed=5, progress=False, checkpoint=path)
    assert same(again, undisturbed), "a finished run is replayed, with one call to recognise it"
    assert silent.answered == 1


def test_context_budget_and_taken_back_commits_are_resumed(table_law, tmp_path):
    given = np.full(table_law.length, MASK)
    given[1] = 2
    options = {"given": given, "progress": False, "temperature": 0.7}
    for rule in (samplers.Sequential("random"), *samplers_with_rights()):
        path = tmp_path / f"{rule.name}.log"
        undisturbed = cp.sample(table_law.oracle(), rule, 2, **options)
        with pytest.raises(Interrupted):
            oracle = Mortal(table_law.oracle(), calls=1)
            cp.sample(oracle, rule, 2, checkpoint=path, **options)
        oracle = Mortal(table_law.oracle(), calls=-1)
        resumed = cp.sample(oracle, rule, 2, checkpoint=path, **options)
        assert same(resumed, undisturbed)
    # A budget changes nothing that is asked: a run that stopped may be resumed with a larger one.
    path = tmp_path / "budget.log"
    stopped = cp.sample(
        testing.CountingOracle(table_law.oracle()), "sequential", max_submissions=2,
        progress=False, checkpoint=path,
    )  # fmt: skip
    assert stopped.results[0].stop is cp.StopReason.BUDGET_SPENT
    oracle = testing.CountingOracle(table_law.oracle())
    finished = cp.sample(oracle, "sequential", progress=False, checkpoint=path)
    assert finished.results[0].stop is cp.StopReason.COMPLETED
    assert oracle.states == table_law.length - 2 + 1, "one to recognise the oracle"


def samplers_with_rights():
    """Rules that draft, verify or take back, where there are some."""
    names = ("remdm", "wino", "lookahead")
    return [samplers.SAMPLERS[name]() for name in names if name in samplers.SAMPLERS]


def test_any_call_of_a_run_is_refused_when_it_asks_something_else(table_law, tmp_path):
    path = tmp_path / "run.log"
    with cp.checkpointed(table_law.oracle(), path) as oracle:
        samplers.Sequential()(cp.Unmasking(oracle), cp.Streams(1, 2))
    with (
        cp.checkpointed(table_law.oracle(), path) as oracle,
        pytest.raises(cp.CheckpointError, match=r"call \d of this run asks something else"),
    ):
        samplers.Sequential()(cp.Unmasking(oracle), cp.Streams(1, 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": cp.Streams(3, 2)}, "its decision_seed is 1, this run's is 3"),
        ({"seed": cp.Streams(1, 3)}, "its commit_seed is 2, this run's is 3"),
        ({"sampler": "one-batch"}, 'its sampler is "sequential", this run\'s is "one-batch"'),
        ({"order": "random"}, "its settings is"),
        ({"count": 2}, "its count is 1, this run's is 2"),
        ({"temperature": 0.5}, "its temperature is 1.0, this run's is 0.5"),
        ({"given": [0, MASK, MASK, MASK]}, "its given is null, this run's is"),
        ({"paranoid": 0.5}, "its paranoid is 0.0, this run's is 0.5"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(table_law, tmp_path, change, message):
    path = tmp_path / "run.log"
    options = {"sampler": "sequential", "seed": cp.Streams(1, 2), "progress": False}
    cp.sample(table_law.oracle(), checkpoint=path, **options)
    before = path.read_bytes()
    with pytest.raises(cp.CheckpointError, match=message):
        cp.sample(table_law.oracle(), checkpoint=path, **{**options, **change})
    assert path.read_bytes() == before


def test_the_checkpoint_of_another_oracle_is_refused(uniform_oracle, table_law, tmp_path):
    path = tmp_path / "run.log"
    cp.sample(uniform_oracle(3, 4, name="one"), "sequential", progress=False, checkpoint=path)
    for oracle, message in (
        (uniform_oracle(3, 4, name="two"), 'its oracle is "one", this run\'s is "two"'),
        (uniform_oracle(4, 4, name="one"), "its length is 3, this run's is 4"),
        (uniform_oracle(3, 5, name="one"), "its vocab_size is 4, this run's is 5"),
    ):
        with pytest.raises(cp.CheckpointError, match=message):
            cp.sample(oracle, "sequential", progress=False, checkpoint=path)


def test_a_run_keeps_the_row_error_it_began_with(uniform_oracle, tmp_path):
    path = tmp_path / "run.log"
    with cp.checkpointed(uniform_oracle(row_error=0.25), path) as oracle:
        assert oracle.row_error == 0.25
    with cp.checkpointed(uniform_oracle(row_error=0.5), path) as oracle:
        assert oracle.row_error == 0.25
        assert oracle.num_lives == 2


def test_a_damaged_tail_is_cut_in_one_line_and_asked_for_again(table_law, tmp_path, caplog):
    path = tmp_path / "run.log"
    undisturbed = cp.sample(table_law.oracle(), "sequential", progress=False, checkpoint=path)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    oracle = testing.CountingOracle(table_law.oracle())
    with caplog.at_level(logging.WARNING, "counterprobe"):
        oracle.inner = table_law.oracle()
        resumed = cp.sample(
            Named(oracle, table_law.oracle().name), "sequential", progress=False, checkpoint=path
        )
    assert same(resumed, undisturbed) and oracle.states == 1 + 1, "one to recognise the oracle"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"{path}: its last {len(data) - 5 - whole_of(data[:-5])} bytes are no whole record and "
        "were cut off; the run goes on from the last whole reply"
    )


def test_a_log_that_ended_inside_its_first_record_is_said_to_start_over(
    table_law, tmp_path, caplog
):
    path = tmp_path / "run.log"
    undisturbed = cp.sample(table_law.oracle(), "sequential", progress=False, checkpoint=path)
    path.write_bytes(path.read_bytes()[:50])
    with caplog.at_level(logging.WARNING, "counterprobe"):
        resumed = cp.sample(table_law.oracle(), "sequential", progress=False, checkpoint=path)
    assert same(resumed, undisturbed)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"{path}: it ended inside its first record and holds no reply; the run starts from its "
        "beginning"
    )


def whole_of(data: bytes) -> int:
    """Return where the whole records of a log end."""
    file = io.BytesIO(data)
    file.seek(len(replies.MAGIC))
    end = file.tell()
    while replies._read(file, len(data)) is not None:
        end = file.tell()
    return end


class Named:
    """An oracle under another's name."""

    def __init__(self, inner, name):
        self.inner, self.name = inner, name

    def __getattr__(self, attribute):
        return getattr(self.inner, attribute)

    def rows(self, states, readouts):
        return self.inner.rows(states, readouts)


def test_a_stage_too_large_to_log_is_asked_again_and_said(forest_law, tmp_path, caplog):
    path = tmp_path / "run.log"
    states = np.full((6, forest_law.length), MASK)
    states[np.arange(6), 0] = np.arange(6)

    def run(oracle):
        unmasking = cp.Unmasking(oracle)
        unmasking.begin(cp.Streams(1, 2))
        seen = []
        requests = [
            cp.Request(states[k : k + 2], cp.Readouts.same(2, [1, 2, 3])) for k in (0, 2, 4)
        ]
        unmasking.stage(requests, lambda _, rows: seen.append(rows.masses.copy()))
        unmasking.commit([4])
        return np.concatenate(seen), unmasking.ledger

    alone, ledger = run(testing.CountingOracle(forest_law.oracle()))
    one_reply = alone.nbytes // 3
    lives = []
    for _ in range(2):
        counting = testing.CountingOracle(forest_law.oracle())
        with (
            caplog.at_level(logging.WARNING, "counterprobe"),
            cp.checkpointed(counting, path, largest_stage=one_reply) as oracle,
        ):
            rows, charged = run(oracle)
        assert np.array_equal(rows, alone) and charged == ledger
        recognising = oracle.recognition.num_asked
        lives.append((counting.states, oracle.num_replayed, oracle.num_asked, oracle.num_again))
        assert recognising == len(lives) - 1
    # The first reply of the stage fits, and the commit is a stage of its own.
    assert lives == [(7, 0, 7, 0), (4 + 1, 3, 4, 4)]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        f"{path}: 4 submissions were made again, and paid again: their replies were too large to "
        "be logged"
    )


class Streaming(ReadsAhead):
    """Dies after some replies."""

    replies_left = -1

    def about_to_reply(self):
        if self.replies_left == 0:
            raise Interrupted
        self.replies_left -= 1


def test_an_oracle_that_reads_ahead_goes_on_doing_so_where_the_log_ends(forest_law, tmp_path):
    path = tmp_path / "run.log"
    states = np.full((16, forest_law.length), MASK)
    states[np.arange(16), 0] = np.arange(16) % forest_law.vocab_size
    requests = [
        cp.Request(states[k : k + 2], cp.Readouts.same(2, [1, 2])) for k in range(0, 16, 2)
    ]

    def run(oracle):
        seen = []
        unmasking = cp.Unmasking(oracle)
        unmasking.stage(iter(requests), lambda _, rows: seen.append(rows.masses.copy()))
        return np.concatenate(seen), unmasking.ledger

    alone, ledger = run(forest_law.oracle())
    answered = 0
    for lasting, first in ((3, 0), (2, 6), (-1, 10)):
        inner = Streaming(forest_law.oracle())
        inner.replies_left = lasting
        with cp.checkpointed(inner, path) as oracle:
            try:
                rows, charged = run(oracle)
            except Interrupted:
                pass
            assert oracle.num_replayed == first
        assert inner.furthest == 3
        answered += inner.states
    assert np.array_equal(rows, alone) and charged == ledger
    assert ledger.total == 16
    assert answered == 16 + 2, "two lives had to recognise the oracle"


def test_replies_of_gathered_runs_are_bounded_by_the_stage_too(table_law, tmp_path):
    path = tmp_path / "run.log"
    with cp.checkpointed(table_law.oracle(), path, largest_stage=10**6) as oracle:
        cp.sample(oracle, "threshold", 3, progress=False)
        assert oracle._stage_size < 10**4
    with pytest.raises(ValueError, match="largest_stage must be at least 0"):
        with cp.checkpointed(table_law.oracle(), path, largest_stage=-1):
            pass


def test_a_reply_that_breaks_the_contract_is_asked_for_again(tmp_path):
    path = tmp_path / "run.log"
    replies = iter([0.25, np.nan, 0.25, 0.25, 0.25])

    def function(states):
        return np.full((*states.shape, 4), next(replies))

    oracle = cp.CallableOracle(function, 3, 4)
    with pytest.raises(cp.OracleError, match="not finite"):
        cp.sample(oracle, "sequential", progress=False, checkpoint=path)
    batch = cp.sample(oracle, "sequential", progress=False, checkpoint=path)
    assert batch.results[0].stop is cp.StopReason.COMPLETED
    assert next(replies, None) is None, "one before it, twice; itself, twice; one after it"


def test_a_buffer_that_the_oracle_writes_over_is_logged_as_it_was(tmp_path, table_law):
    path = tmp_path / "run.log"

    class Reusing(testing.CountingOracle):
        buffer = np.empty((64, 3))

        def rows(self, states, readouts):
            rows = super().rows(states, readouts)
            self.buffer[: len(rows)] = rows.masses
            return cp.DenseRows(self.buffer[: len(rows)])

    undisturbed = cp.sample(table_law.oracle(), "punt", 2, progress=False)
    for _ in range(2):
        batch = cp.sample(Reusing(table_law.oracle()), "punt", 2, progress=False, checkpoint=path)
        assert np.array_equal(batch.sequences, undisturbed.sequences)


def records_of(path):
    """The records of a log, after the one that says what run it is."""
    with path.open("rb") as file:
        file.seek(len(replies.MAGIC))
        first, *rest = replies._records(file, path.stat().st_size)
    return first, rest


@pytest.mark.parametrize("rule", ["sequential", "threshold"])
def test_records_that_somebody_wrote_by_hand_are_replayed_or_refused(law, rule, tmp_path):
    path, spoilt = tmp_path / "run.log", tmp_path / "spoilt.log"
    cp.sample(law.oracle(), rule, progress=False, checkpoint=path)
    first, rest = records_of(path)

    @settings(derandomize=True, database=None, deadline=None, max_examples=60)
    @given(
        st.integers(0, len(rest) - 1), st.integers(0, 1000),
        st.sampled_from((0, 1, 4, 8, 64, 10**6)),
        st.one_of(st.binary(max_size=8), st.sampled_from((b"9", b"[", b'"', b"\xff" * 8))),
    )  # fmt: skip
    def check(which, place, length, put):
        kind, content = rest[which]
        start = place * len(content) // 1000
        changed = content[:start] + put + content[start + length :]
        whole = [first, *rest[:which], (kind, changed), *rest[which + 1 :]]
        data = b"".join(replies._record(*record) for record in whole)
        spoilt.write_bytes(replies.MAGIC + data)
        try:
            batch = cp.sample(law.oracle(), rule, progress=False, checkpoint=spoilt)
            assert batch.num_completed == 1
        except cp.CounterprobeError as refused:
            assert "\n" not in str(refused)

    check()


def test_classes_of_another_size_are_refused(forest_law, tmp_path):
    path = tmp_path / "run.log"
    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    asked = cp.Readouts.same(1, [1])
    with cp.checkpointed(forest_law.oracle(), path) as oracle:
        other = cp.TokenClasses.identity(forest_law.length + 1, forest_law.vocab_size)
        oracle._log.append(Kind.CLASSES, encode_classes(other))
        oracle.rows(state, asked)
    with (
        cp.checkpointed(forest_law.oracle(), path) as oracle,
        pytest.raises(cp.CheckpointError, match="token classes of another size"),
    ):
        oracle.rows(state, asked)


def test_attention_is_replayed_with_its_rows(forest_law, tmp_path):
    path = tmp_path / "run.log"
    weights = np.random.default_rng(4).random((forest_law.length, forest_law.length))
    rule = samplers.SAMPLERS["dapd"]()
    alone = cp.sample(AttentiveLaw(forest_law.oracle(), weights), rule, 2, progress=False)
    for life, asked in enumerate((alone.ledger.total, 0)):
        oracle = AttentiveLaw(forest_law.oracle(), weights)
        batch = cp.sample(oracle, rule, 2, progress=False, checkpoint=path)
        assert same(batch, alone) and oracle.states == asked + life
        assert bool(oracle.calls) == bool(asked)


def test_attention_that_is_missing_or_too_much_in_the_log_is_refused(forest_law, tmp_path):
    path, spoilt = tmp_path / "run.log", tmp_path / "spoilt.log"
    weights = np.full((forest_law.length, forest_law.length), 0.25)
    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    asked = cp.Readouts.same(1, [1])

    def both(file):
        with cp.checkpointed(AttentiveLaw(forest_law.oracle(), weights), file) as oracle:
            oracle.rows(state, asked)
            oracle.attended_rows(state, asked, 1)

    both(path)
    first, rest = records_of(path)
    plain, attended = (content for kind, content in rest if kind is Kind.REPLY)
    size = DIGEST_SIZE
    meta, arrays = unpack(attended[size:])
    for number, (reply, attention) in enumerate(
        [(plain, weights[None]), (attended, None), (attended, weights), (attended, -weights[None])]
    ):
        parts = {**arrays, "attention": attention}
        changed = reply[:size] + pack(meta, {k: a for k, a in parts.items() if a is not None})
        records = [(k, changed if content is reply else content) for k, content in rest]
        data = b"".join(replies._record(*record) for record in [first, *records])
        spoilt.write_bytes(replies.MAGIC + data)
        with pytest.raises(cp.CheckpointError, match=f"reply to call {min(number, 1) + 1} is no"):
            both(spoilt)


def test_rows_of_the_log_and_of_the_oracle_share_their_classes(forest_law, tmp_path):
    path = tmp_path / "run.log"
    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    one, two = cp.Readouts.same(1, [1]), cp.Readouts.same(1, [2])
    with cp.checkpointed(forest_law.oracle(), path) as oracle:
        oracle.rows(state, one)
    with cp.checkpointed(forest_law.oracle(), path) as oracle:
        old, new = oracle.rows(state, one), oracle.rows(state, two)
        assert old.classes is new.classes
        assert (oracle.num_replayed, oracle.num_asked) == (1, 1)
        kinds = []
        log = oracle._log
        log._reader.seek(len(b"counterprobe replies 1\n"))
        while (record := log.next()) is not None:
            kinds.append(record[0])
        assert kinds.count(Kind.CLASSES) == 1, "classes are written once"


# ----- Whose replies they are -------------------------------------------------------------------


class Anonymous(testing.CountingOracle):
    """An oracle that says nothing of what it is."""

    name = "anonymous"


def two_laws(kind):
    """Two laws of one name and size."""
    if kind == "table":
        tables = np.random.default_rng(8).random((2, 3, 3, 3)) + 0.1
        return [cp.TableLaw(table) for table in tables]
    return [cp.families.path(12, target_seed=seed) for seed in (1, 2)]


@pytest.mark.parametrize("kind", ["table", "path"])
def test_the_checkpoint_of_another_law_is_refused_before_anything_is_asked(kind, tmp_path):
    path = tmp_path / "run.log"
    one, two = two_laws(kind)
    cp.sample(one.oracle(), "sequential", seed=3, progress=False, checkpoint=path)
    before = path.read_bytes()
    with pytest.raises(cp.CheckpointError, match="its oracle_content is"):
        cp.sample(two.oracle(), "sequential", seed=3, progress=False, checkpoint=path)
    assert path.read_bytes() == before
    found = tmp_path / "screen.log"
    cp.discover(one.oracle(), mode="soft", probes=8, checkpoint=found)
    with pytest.raises(cp.CheckpointError, match="its oracle_content is"):
        cp.discover(two.oracle(), mode="soft", probes=8, checkpoint=found)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rule", ["sequential", "one-batch", "threshold", "punt", "compressed"])
@pytest.mark.parametrize("budget", [None, 1])
def test_replies_of_another_oracle_are_refused_after_one_submission(rule, count, budget, tmp_path):
    path = tmp_path / "run.log"
    one, two = two_laws("table")
    options = {"seed": 3, "progress": False, "checkpoint": path}
    first = cp.sample(Anonymous(one.oracle()), rule, count, **options)
    other = Anonymous(two.oracle())
    message = (
        r"holds replies of another oracle than this 'anonymous': for the state of fingerprint "
        r"[0-9a-f]{16} the row at position \d differs by"
    )
    with pytest.raises(cp.CheckpointError, match=message):
        cp.sample(other, rule, count, max_submissions=budget, **options)
    assert other.states == 1
    again = Anonymous(one.oracle())
    assert same(cp.sample(again, rule, count, **options), first) and again.states == 1


def test_laws_that_agree_while_all_is_masked_are_told_apart_by_a_later_question(tmp_path):
    path = tmp_path / "run.log"
    same_token, other_token = np.eye(2), 1 - np.eye(2)
    cp.sample(
        Anonymous(cp.TableLaw(0.1 + same_token).oracle()), "sequential", progress=False,
        checkpoint=path,
    )  # fmt: skip
    with pytest.raises(cp.CheckpointError, match="the row at position 1 differs by"):
        cp.sample(
            Anonymous(cp.TableLaw(0.1 + other_token).oracle()), "sequential", progress=False,
            checkpoint=path,
        )  # fmt: skip


@pytest.mark.parametrize("rule", ["sequential", "threshold"])
@pytest.mark.parametrize("count", [1, 3])
def test_sessions_of_another_oracle_are_refused(rule, count, tmp_path):
    path = tmp_path / "run.log"
    one, two = (MortalSessions(law.oracle(), -1) for law in two_laws("path"))
    one.content_digest = two.content_digest = None
    options = {"seed": 3, "progress": False, "checkpoint": path}
    cp.sample(one, rule, count, **options)
    two.answered = 0
    with pytest.raises(cp.CheckpointError, match="holds replies of another oracle"):
        cp.sample(two, rule, count, **options)
    assert two.answered == 1


def test_an_oracle_that_moved_within_its_row_error_is_recognised(tmp_path):
    path = tmp_path / "run.log"

    def leaning(by, row_error):
        row = np.array([0.25 + by, 0.25 - by, 0.25, 0.25])
        return cp.CallableOracle(
            lambda states: np.broadcast_to(row, (*states.shape, 4)), 3, 4, row_error=row_error
        )

    options = {"progress": False, "checkpoint": path}
    cp.sample(leaning(0.0, 0.1), "sequential", **options)
    cp.sample(leaning(0.09, 0.1), "sequential", **options)
    with pytest.raises(cp.CheckpointError, match=r"differs by 0\.11 in total variation"):
        cp.sample(leaning(0.11, 0.1), "sequential", **options)


@pytest.mark.filterwarnings("ignore::counterprobe.ZeroProbabilityWarning")
@pytest.mark.parametrize("ahead", [False, True], ids=["one by one", "read ahead"])
def test_a_run_with_impossible_drafts_is_resumed(ahead, tmp_path, monkeypatch):
    monkeypatch.setattr("counterprobe.samplers.rules.waves.MOST_NUMBERS", 4)  # one state each
    refused = []

    class Dying(Mortal):
        def rows(self, states, readouts):
            try:
                return super().rows(states, readouts)
            except cp.ImpossibleState:
                refused.append(self)
                raise

    class Whole(Dying):
        def stream(self, requests):
            yield from [self.rows(*request) for request in list(requests)]

    copied = np.zeros((2,) * 4)
    copied[0, 0, 0, 0] = copied[1, 1, 1, 1] = 1
    law = cp.TableLaw(copied)
    streams = cp.Streams(1, 1)
    kind = Whole if ahead else Dying
    for rule in (samplers.Autospeculation(), samplers.ASSD(4)):
        expected = rule(cp.Unmasking(law.oracle()), streams)
        for calls in itertools.count(1):
            log = tmp_path / f"{rule.name} {calls}"
            try:
                with cp.checkpointed(kind(law.oracle(), calls), log) as o:
                    rule(cp.Unmasking(o), streams)
                break
            except Interrupted:
                pass
            with cp.checkpointed(kind(law.oracle(), -1), log) as oracle:
                result = rule(cp.Unmasking(oracle), streams)
            assert result.tokens.tolist() == expected.tokens.tolist()
            assert result.ledger == expected.ledger
        assert calls > 3 and refused


def test_attention_stays_beside_rows_that_are_given_the_classes_of_the_log(forest_law, tmp_path):
    path = tmp_path / "run.log"
    weights = np.random.default_rng(4).random((forest_law.length, forest_law.length))
    state = np.full((1, forest_law.length), MASK, dtype=np.int32)
    one, two = cp.Readouts.same(1, [1]), cp.Readouts.same(1, [2])
    with cp.checkpointed(AttentiveLaw(forest_law.oracle(), weights), path) as oracle:
        oracle.rows(state, one)
    with cp.checkpointed(AttentiveLaw(forest_law.oracle(), weights), path) as oracle:
        old = oracle.rows(state, one)
        rows, attention = oracle.attended_rows(state, two, 1)
        assert rows.classes is old.classes
        assert np.array_equal(attention, weights[None])


@dataclass(frozen=True, slots=True)
class Marked(DenseRows):
    """Rows that are more than their probabilities, which a log would lose."""

    mark: int = 0


def test_rows_of_a_kind_that_cannot_be_kept_are_asked_for_again(table_law, tmp_path):
    class Oracle(testing.CountingOracle):
        def rows(self, states, readouts):
            return Marked(super().rows(states, readouts).dense())

    state = np.full((1, table_law.length), MASK, dtype=np.int32)
    for _ in range(2):
        inner = Oracle(table_law.oracle())
        with cp.checkpointed(inner, tmp_path / "run.log") as oracle:
            assert type(oracle.rows(state, cp.Readouts.same(1, [1]))) is Marked
        assert inner.states == 1


# ----- One call after another -----------------------------------------------------------------


def asked(law, position: int) -> tuple[np.ndarray, cp.Readouts]:
    return np.full((1, law.length), MASK, dtype=np.int32), cp.Readouts.same(1, [position])


def test_the_call_that_asks_something_else_is_named_by_its_number(law, tmp_path):
    path = tmp_path / "run.log"
    with cp.checkpointed(law.oracle(), path) as oracle:
        for position in (0, 1, 2):
            oracle.rows(*asked(law, position))
    for agree in (0, 1, 2):
        with cp.checkpointed(law.oracle(), path) as oracle:
            for position in range(agree):
                oracle.rows(*asked(law, position))
            said = (
                f"{path}: call {agree + 1} of this run asks something else than it did when it "
                "was logged; was it made by another version, or with another sampler, seed or "
                "context"
            )
            with pytest.raises(cp.CheckpointError, match=said):
                oracle.rows(*asked(law, 3))
            assert (oracle.num_replayed, oracle.num_asked) == (agree, 0)


def test_a_logged_reply_that_is_no_rows_is_named_by_its_number(table_law, tmp_path):
    path, spoilt = tmp_path / "run.log", tmp_path / "spoilt.log"
    with cp.checkpointed(table_law.oracle(), path) as oracle:
        for position in (0, 1):
            oracle.rows(*asked(table_law, position))
    first, rest = records_of(path)
    kind, content = rest[-1]
    meta, arrays = unpack(content[16:])
    arrays["masses"] = arrays["masses"] * 2
    records = [first, *rest[:-1], (kind, content[:16] + pack(meta, arrays))]
    spoilt.write_bytes(replies.MAGIC + b"".join(replies._record(*record) for record in records))
    with cp.checkpointed(table_law.oracle(), spoilt) as oracle:
        oracle.rows(*asked(table_law, 0))
        with pytest.raises(cp.CheckpointError, match="the reply to call 2 is no rows of this"):
            oracle.rows(*asked(table_law, 1))


@pytest.mark.parametrize(("room", "kept"), [(0, 0), (23, 0), (24, 1), (47, 1), (48, 2), (96, 4)])
def test_replies_of_a_stage_are_kept_up_to_the_bound_and_the_next_stage_begins_anew(
    table_law, room, kept, tmp_path
):
    path = tmp_path / "run.log"
    for life in range(2):
        with cp.checkpointed(table_law.oracle(), path, largest_stage=room) as oracle:
            for _ in range(2):
                oracle.stage_opened()
                for position in range(4):  # three numbers of eight bytes each
                    oracle.rows(*asked(table_law, position))
        if life == 0:
            assert (oracle.num_replayed, oracle.num_asked, oracle.num_again) == (0, 8, 0)
        else:
            again = 8 - 2 * kept
            assert (oracle.num_replayed, oracle.num_asked) == (2 * kept, again)
            assert oracle.num_again == again
        assert oracle.num_lives == life + 1


def test_a_log_is_closed_and_the_oracle_recognised_however_a_run_ends(table_law, tmp_path):
    path = tmp_path / "run.log"
    with cp.checkpointed(table_law.oracle(), path) as oracle:
        oracle.rows(*asked(table_law, 0))
    counting = Named(testing.CountingOracle(table_law.oracle()), table_law.oracle().name)
    with cp.checkpointed(counting, path) as oracle:
        oracle.rows(*asked(table_law, 0))
        assert oracle.recognition.num_asked == 0, "nothing was revealed yet"
    assert oracle.recognition.num_asked == counting.inner.states == 1
    assert oracle._log._file.closed
    with pytest.raises(Interrupted), cp.checkpointed(counting, path) as oracle:
        oracle.rows(*asked(table_law, 0))
        raise Interrupted
    assert oracle.recognition.num_asked == 0 and oracle._log._file.closed


def test_what_determines_a_run_is_written_down(table_law, tmp_path):
    path = tmp_path / "run.log"
    with cp.checkpointed(table_law.oracle(), path, {"seed": 3}) as oracle:
        assert oracle.row_error == table_law.oracle().row_error
    first, _ = records_of(path)
    assert json.loads(first[1]) == {
        "run": {
            "oracle": table_law.oracle().name,
            "length": 4,
            "vocab_size": 3,
            "streams": 1,
            "seed": 3,
            "oracle_content": table_law.oracle().content_digest,
        },
        "facts": {"row_error": table_law.oracle().row_error},
    }


def test_classes_that_are_equal_are_written_once_and_others_beside_them(forest_law, tmp_path):
    path = tmp_path / "run.log"
    other = cp.TokenClasses.identity(forest_law.length, forest_law.vocab_size)
    equal = dataclasses.replace(forest_law.classes)

    class Changing(testing.CountingOracle):
        def rows(self, states, readouts):
            rows = super().rows(states, readouts)
            kinds = [rows.classes, equal, other, rows.classes]
            chosen = kinds[(self.calls - 1) % 4]
            if chosen is other:
                return cp.ClassedRows(rows.dense(), other, rows.positions)
            return cp.ClassedRows(rows.class_masses, chosen, rows.positions)

    found = []
    for _ in range(2):
        with cp.checkpointed(Changing(forest_law.oracle()), path) as oracle:
            found.append([oracle.rows(*asked(forest_law, k)) for k in range(4)])
            assert [rows.classes is found[-1][0].classes for rows in found[-1]] == [
                True, True, False, True,
            ]  # fmt: skip
    for one, two in zip(*found, strict=True):
        assert np.array_equal(one.class_masses, two.class_masses)
        assert np.array_equal(one.dense(), two.dense())
    kinds = [kind for kind, _ in records_of(path)[1]]
    assert kinds.count(Kind.CLASSES) == 2 and kinds.count(Kind.REPLY) == 4
