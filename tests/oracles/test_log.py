"""A run that is resumed is the run that was never interrupted; only recognising it is paid."""

import dataclasses
import io
import itertools
import json
import logging
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe import Query, Readouts, samplers, testing
from counterprobe.digests import DIGEST_SIZE
from counterprobe.oracles import NUMERICAL_FLOOR, AttentionQuery, reply_file
from counterprobe.oracles.codec import encode_classes, pack, unpack
from counterprobe.oracles.reply_file import Kind
from counterprobe.rows import DenseRows
from counterprobe.run import Commit, Stream
from counterprobe.states import fingerprint
from reading_ahead import ReadsAhead

MASK = cp.MASK


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


class Anonymous(testing.CountingOracle):
    """An oracle that says nothing of what it is."""

    digest = None

    @property
    def info(self):
        return dataclasses.replace(super().info, name="anonymous")


class AnonymousKeeping(Anonymous):
    """The same, with work kept of runs."""

    def ability(self, kind):
        return self.inner.ability(kind)


class Mortal(testing.CountingOracle):
    """Dies after a number of calls; it keeps work of runs if the inner oracle does."""

    def __init__(self, inner, calls):
        super().__init__(inner)
        self.calls_left = calls

    def ask(self, query):
        if self.calls_left == 0:
            raise Interrupted
        self.calls_left -= 1
        return super().ask(query)


class MortalKeeping(Mortal):
    """The same, around an oracle that keeps work of runs."""

    def ability(self, kind):
        return self.inner.ability(kind)


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


def records_of(path):
    """The records of a log, after the one that says what run it is."""
    with path.open("rb") as file:
        file.seek(len(reply_file.MAGIC))
        first, *rest = reply_file.read_records(file, path.stat().st_size)
    return first, rest


def write_records(path, records):
    path.write_bytes(
        reply_file.MAGIC + b"".join(reply_file.encode_record(*record) for record in records)
    )


def asked(law, position: int, kind=Query, *more) -> Query:
    states = np.full((1, law.length), MASK, dtype=np.int32)
    return kind(states, Readouts.same(1, [position]), *more)


# ----- Lives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("kind", [Mortal, MortalKeeping])
@pytest.mark.parametrize("rule", ["sequential", "random-balanced", "threshold", "punt", "maskgit"])
def test_a_run_that_died_at_any_call_repeats_one_state_a_life_to_recognise_the_oracle(
    forest_law, rule, kind, count, tmp_path
):
    undisturbed = cp.sample(kind(forest_law.oracle(), -1), rule, count, seed=3, progress=False)
    path, states, resumed = tmp_path / "run.log", 0, None
    for lives in itertools.count(1):
        oracle = kind(forest_law.oracle(), calls=3 + (lives > 1))
        try:
            resumed = cp.sample(oracle.logged(path), rule, count, seed=3, progress=False)
        except Interrupted:
            continue
        finally:
            states += oracle.states
        break
    assert same(resumed, undisturbed) and lives > 1
    assert states == undisturbed.ledger.evaluations + lives - 1
    silent = kind(forest_law.oracle(), calls=1)
    again = cp.sample(silent.logged(path), rule, count, seed=3, progress=False)
    assert same(again, undisturbed) and silent.states == 1, "one call to recognise the oracle"


def test_context_budget_and_taken_back_commits_are_resumed(table_law, tmp_path):
    given = np.full(table_law.length, MASK)
    given[1] = 2
    options = {"given": given, "progress": False, "temperature": 0.7}
    for rule in (samplers.Sequential("random"), samplers.ReMDM(), samplers.WINO()):
        path = tmp_path / f"{rule.name}.log"
        undisturbed = cp.sample(table_law.oracle(), rule, 2, **options)
        with pytest.raises(Interrupted):
            cp.sample(Mortal(table_law.oracle(), 1).logged(path), rule, 2, **options)
        resumed = cp.sample(Mortal(table_law.oracle(), -1).logged(path), rule, 2, **options)
        assert same(resumed, undisturbed)
    # A budget changes nothing that is asked: a run that stopped may be resumed with a larger one.
    path = tmp_path / "budget.log"
    oracle = testing.CountingOracle(table_law.oracle())
    stopped = cp.sample(oracle.logged(path), "sequential", max_evaluations=2, progress=False)
    assert stopped.results[0].stop is cp.StopReason.BUDGET_SPENT
    finished = cp.sample(oracle.logged(path), "sequential", progress=False)
    assert finished.results[0].stop is cp.StopReason.COMPLETED
    assert oracle.states == table_law.length + 1, "one to recognise the oracle"


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
@pytest.mark.parametrize("ahead", [False, True], ids=["one by one", "read ahead"])
def test_a_run_with_impossible_drafts_is_resumed(ahead, tmp_path, monkeypatch):
    monkeypatch.setattr("counterprobe.samplers.rules.waves.MOST_NUMBERS", 4)  # one state each
    refused = []

    class Dying(Mortal):
        def ask(self, query):
            try:
                return super().ask(query)
            except cp.errors.ImpossibleState:
                refused.append(self)
                raise

    class Ahead(ReadsAhead, Dying):
        pass

    copied = np.zeros((2,) * 4)
    copied[0, 0, 0, 0] = copied[1, 1, 1, 1] = 1
    law = cp.TableLaw(copied)
    streams = cp.Streams(1, 1)
    kind = Ahead if ahead else Dying
    for rule in (samplers.Autospeculation(), samplers.ASSD(4)):
        expected = rule(cp.run.Run(law.oracle()), streams)
        for calls in itertools.count(1):
            log = tmp_path / f"{rule.name} {calls}"
            try:
                with kind(law.oracle(), calls).logged(log).running() as oracle:
                    rule(cp.run.Run(oracle), streams)
                break
            except Interrupted:
                pass
            with kind(law.oracle(), -1).logged(log).running() as oracle:
                result = rule(cp.run.Run(oracle), streams)
            assert result.tokens.tolist() == expected.tokens.tolist()
            assert result.ledger == expected.ledger
        assert calls > 3 and refused


class MortalAhead(ReadsAhead):
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
    requests = [cp.run.Probe(states[k : k + 2], Readouts.same(2, [1, 2])) for k in range(0, 16, 2)]

    def run(oracle):
        seen = []
        unmasking = cp.run.Run(oracle)
        unmasking.do(Stream(iter(requests), lambda _, rows: seen.append(rows.masses.copy())))
        return np.concatenate(seen), unmasking.ledger

    alone, ledger = run(forest_law.oracle())
    answered = 0
    for lasting, first in ((3, 0), (2 + 1, 6), (-1, 10)):
        inner = MortalAhead(forest_law.oracle())
        inner.replies_left = lasting
        oracle = inner.logged(path)
        try:
            with oracle.running():
                rows, charged = run(oracle)
        except Interrupted:
            pass
        assert oracle.num_replayed == first and inner.furthest == 3
        answered += inner.states
    assert np.array_equal(rows, alone) and charged == ledger
    assert answered == ledger.evaluations + 2, "two lives had to recognise the oracle"


def test_only_replies_that_were_waited_for_are_written_once(table_law, tmp_path):
    """An attempt that somebody gave up on answers late, beside its second attempt or after it."""
    go_on = threading.Event()

    class Hanging(testing.CountingOracle):
        def ask(self, query):
            self.calls += 1
            if self.calls == 2:
                go_on.wait(30)
            return self.inner.ask(query)

    path = tmp_path / "run.log"
    hanging = Hanging(table_law.oracle())
    oracle = hanging.logged(path).retrying(2, timeout=0.2, backoff=0)
    with oracle.running() as running:
        for position in range(2):
            running.ask(asked(table_law, position))
        workers = [t for t in threading.enumerate() if t.name.startswith("oracle ")]
        go_on.set()
        for worker in workers:
            worker.join(30)
        running.ask(asked(table_law, 2))
    assert len(oracle.failures) == 1 and len(workers) == 1
    assert [kind for kind, _ in records_of(path)[1]].count(Kind.REPLY) == 3
    with hanging.logged(path).running() as running:
        for position in range(3):
            running.ask(asked(table_law, position))
    assert (running.num_replayed, running.num_asked) == (3, 0)


# ----- Which run, which oracle ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": cp.Streams(3, 2)}, "its decision_seed is 1, this run's is 3"),
        ({"seed": cp.Streams(1, 3)}, "its commit_seed is 2, this run's is 3"),
        ({"sampler": "one-batch"}, 'its sampler is "sequential", this run\'s is "one-batch"'),
        ({"order": "random"}, 'its order is "index", this run\'s is "random"'),
        ({"count": 2}, "its count is 1, this run's is 2"),
        ({"temperature": 0.5}, "its temperature is 1.0, this run's is 0.5"),
        ({"given": [0, MASK, MASK, MASK]}, "its given is null, this run's is"),
    ],
)
def test_the_log_of_another_run_is_refused(table_law, tmp_path, change, message):
    path = tmp_path / "run.log"
    options = {"sampler": "sequential", "seed": cp.Streams(1, 2), "progress": False}
    cp.sample(table_law.oracle().logged(path), **options)
    before = path.read_bytes()
    oracle = table_law.oracle().logged(path)
    with pytest.raises(cp.CheckpointError, match=message):
        cp.sample(oracle, **{**options, **change})
    assert path.read_bytes() == before


def test_the_log_of_an_oracle_of_another_name_or_size_is_refused(uniform_oracle, tmp_path):
    path = tmp_path / "run.log"
    cp.sample(uniform_oracle(3, 4, name="one").logged(path), "sequential", progress=False)
    for oracle, message in (
        (uniform_oracle(3, 4, name="two"), 'its oracle is "one", this run\'s is "two"'),
        (uniform_oracle(4, 4, name="one"), "its length is 3, this run's is 4"),
        (uniform_oracle(3, 5, name="one"), "its vocab_size is 4, this run's is 5"),
    ):
        with pytest.raises(cp.CheckpointError, match=message):
            cp.sample(oracle.logged(path), "sequential", progress=False)


def two_laws(kind):
    """Two laws of one name and size."""
    if kind == "table":
        tables = np.random.default_rng(8).random((2, 3, 3, 3)) + 0.1
        return [cp.TableLaw(table) for table in tables]
    return [cp.families.path(12, target_seed=seed) for seed in (1, 2)]


@pytest.mark.parametrize("kind", ["table", "path"])
def test_the_log_of_another_law_is_refused_before_anything_is_asked(kind, tmp_path):
    path, found = tmp_path / "run.log", tmp_path / "screen.log"
    one, two = two_laws(kind)
    cp.sample(one.oracle().logged(path), "sequential", seed=3, progress=False)
    before = path.read_bytes()
    with pytest.raises(cp.CheckpointError, match="its oracle_content is"):
        cp.sample(two.oracle().logged(path), "sequential", seed=3, progress=False)
    assert path.read_bytes() == before
    cp.discover(one.oracle().logged(found), mode="soft", probes=8)
    with pytest.raises(cp.CheckpointError, match="its oracle_content is"):
        cp.discover(two.oracle().logged(found), mode="soft", probes=8)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rule", ["sequential", "one-batch", "threshold", "punt", "compressed"])
@pytest.mark.parametrize(("keeping", "budget"), [(True, None), (False, None), (False, 1)])
def test_replies_of_another_oracle_are_refused_after_one_evaluation(
    rule, count, keeping, budget, tmp_path
):
    path = tmp_path / "run.log"
    one, two = two_laws("path" if keeping else "table")
    options = {"seed": 3, "progress": False}

    def anonymous(law):
        oracle = (AnonymousKeeping if keeping else Anonymous)(law.oracle())
        return oracle, oracle.logged(path)

    first = cp.sample(anonymous(one)[1], rule, count, **options)
    other, logged = anonymous(two)
    message = (
        r"holds replies of another oracle than this 'anonymous': for the state of fingerprint "
        r"[0-9a-f]{16} the row at position \d+ differs by"
    )
    with pytest.raises(cp.CheckpointError, match=message):
        cp.sample(logged, rule, count, max_evaluations=budget, **options)
    assert other.states == 1
    again, logged = anonymous(one)
    assert same(cp.sample(logged, rule, count, **options), first) and again.states == 1


def test_laws_that_agree_while_all_is_masked_are_told_apart_by_a_later_question(tmp_path):
    path = tmp_path / "run.log"
    one, two = (
        Anonymous(cp.TableLaw(0.1 + table).oracle()) for table in (np.eye(2), 1 - np.eye(2))
    )
    cp.sample(one.logged(path), "sequential", progress=False)
    with pytest.raises(cp.CheckpointError, match="the row at position 1 differs by"):
        cp.sample(two.logged(path), "sequential", progress=False)


ALL_MASKED = np.full((2, 3), MASK, dtype=np.int32)
REVEALING = np.array([[MASK, 1, MASK]], dtype=np.int32)


def leaning(by: float = 0.0, row_error: float = 0.0) -> Anonymous:
    """Rows of two tokens that lean further the later their position."""

    def function(states):
        lean = by * (1 + np.arange(3))[:, None] * [1, -1]
        return np.broadcast_to(0.5 + lean, (*states.shape, 2))

    return Anonymous(cp.CallableOracle(function, 3, 2, row_error=row_error))


@pytest.mark.parametrize(
    ("queries", "state", "positions"),
    [
        # One state of the first query that reveals a token, with what was read from it.
        (
            [(ALL_MASKED, Readouts.same(2, [2])),
             (np.repeat(REVEALING, 2, axis=0), Readouts.pairs([1, 0, 1], [0, 2, 2]))],
            REVEALING, [0, 2],
        ),
        # Where none does, the first that reads anything, when the log ends.
        (
            [(ALL_MASKED, Readouts.same(2, [])), (ALL_MASKED, Readouts.same(2, [2])),
             (ALL_MASKED, Readouts.same(2, [0]))],
            ALL_MASKED[:1], [2],
        ),
        ([(ALL_MASKED, Readouts.same(2, []))], None, None),
    ],
)  # fmt: skip
def test_an_oracle_is_recognised_by_one_state_and_once(queries, state, positions, tmp_path):
    for life in range(2):
        oracle = leaning()
        with oracle.logged(tmp_path / "run.log").running() as logged:
            for query in queries:
                logged.rows(*query)
            assert logged.num_recognising == (life and state is REVEALING)
        if life:
            assert logged.num_recognising == oracle.calls == oracle.states == (state is not None)
            if state is not None:
                assert oracle.seen[0].tolist() == state.tolist()
                assert oracle.read[0].position.tolist() == positions


@pytest.mark.parametrize(
    ("by", "logged", "declared", "is_same"),
    [
        (0.125, 0.125, 0.0, True), (0.125, 0.0, 0.125, True), (0.125, 0.0625, 0.0625, False),
        (NUMERICAL_FLOOR / 2, 0.0, 0.0, True), (1e-11, 0.0, 0.0, False),
    ],
)  # fmt: skip
def test_rows_may_move_by_the_larger_of_both_declarations_and_by_rounding(
    by, logged, declared, is_same, tmp_path
):
    path = tmp_path / "run.log"
    with leaning(row_error=logged).logged(path).running() as oracle:
        oracle.rows(REVEALING, Readouts.same(1, [0]))
    with leaning(by, declared).logged(path).running() as oracle:
        assert oracle.row_error == logged, "a run keeps the row error it began with"
        if is_same:
            oracle.rows(REVEALING, Readouts.same(1, [0]))
            return
        said = (
            rf"run\.log holds replies of another oracle than this 'anonymous': for the state of "
            rf"fingerprint {int(fingerprint(REVEALING)[0]):016x} the row at position 0 differs by "
            rf"{by:.3g} in total variation, where .* is declared; resume with the oracle"
        )
        with pytest.raises(cp.CheckpointError, match=said):
            oracle.rows(REVEALING, Readouts.same(1, [0]))


def test_an_oracle_that_breaks_the_contract_is_no_other_oracle(tmp_path):
    with leaning().logged(tmp_path / "run.log").running() as oracle:
        oracle.rows(REVEALING, Readouts.same(1, [0]))
    with (
        leaning(np.nan).logged(tmp_path / "run.log").running() as oracle,
        pytest.raises(cp.OracleError, match=r"'anonymous'.*not finite"),
    ):
        oracle.rows(REVEALING, Readouts.same(1, [0]))


def test_what_determines_a_run_is_written_down(table_law, tmp_path):
    path = tmp_path / "run.log"
    oracle = table_law.oracle().logged(path)
    with oracle.running({"seed": 3, "given": np.arange(3)}):
        with oracle.running({"seed": 4}):  # a part of the run that is open
            oracle.ask(asked(table_law, 0))
        oracle.ask(asked(table_law, 1))
    first, _ = records_of(path)
    content = json.loads(first[1])
    assert content["run"].pop("given").startswith("array <i8 (3,) ")
    assert content == {
        "run": {
            "oracle": table_law.oracle().name, "length": 4, "vocab_size": 3, "streams": 2,
            "seed": 3, "oracle_content": table_law.content_digest,
        },
        "facts": {"row_error": table_law.oracle().row_error},
    }  # fmt: skip


def test_a_log_is_open_only_while_a_run_goes_on(table_law, tmp_path):
    path = tmp_path / "run.log"
    oracle = table_law.oracle().logged(path)
    with pytest.raises(ValueError, match=r"run\.log is not open: hand the oracle to sample"):
        oracle.ask(asked(table_law, 0))
    assert not path.exists()
    with pytest.raises(Interrupted), oracle.running():
        oracle.ask(asked(table_law, 0))
        raise Interrupted
    with table_law.oracle().logged(path).running() as other:  # it was closed
        other.ask(asked(table_law, 0))
    assert (other.num_lives, other.num_replayed) == (2, 1)
    with pytest.raises(ValueError, match="most_bytes must be at least 0"):
        table_law.oracle().logged(path, most_bytes=-1)


# ----- Damage -----------------------------------------------------------------------------------


def test_a_damaged_tail_is_cut_in_one_line_and_asked_for_again(table_law, tmp_path, caplog):
    path = tmp_path / "run.log"
    oracle = testing.CountingOracle(table_law.oracle())
    undisturbed = cp.sample(oracle.logged(path), "sequential", progress=False)
    data = path.read_bytes()[:-5]
    path.write_bytes(data)
    file = io.BytesIO(data)
    file.seek(len(reply_file.MAGIC))
    for _ in reply_file.read_records(file, len(data)):
        end = file.tell()
    with caplog.at_level(logging.WARNING, "counterprobe"):
        resumed = cp.sample(oracle.logged(path), "sequential", progress=False)
    assert same(resumed, undisturbed)
    assert oracle.states == table_law.length + 1 + 1, "one to recognise the oracle"
    assert caplog.messages == [
        f"{path}: its last {len(data) - end} bytes are no whole record and were cut off; the run "
        "goes on from the last whole reply"
    ]


def test_a_log_that_ended_inside_its_first_record_is_said_to_start_over(
    table_law, tmp_path, caplog
):
    path = tmp_path / "run.log"
    undisturbed = cp.sample(table_law.oracle().logged(path), "sequential", progress=False)
    path.write_bytes(path.read_bytes()[:50])
    with caplog.at_level(logging.WARNING, "counterprobe"):
        resumed = cp.sample(table_law.oracle().logged(path), "sequential", progress=False)
    assert same(resumed, undisturbed)
    assert caplog.messages == [
        f"{path}: it ended inside its first record and holds no reply; the run starts from its "
        "beginning"
    ]


@pytest.mark.parametrize("rule", ["sequential", "threshold"])
def test_records_that_somebody_wrote_by_hand_are_replayed_or_refused(law, rule, tmp_path):
    path, spoilt = tmp_path / "run.log", tmp_path / "spoilt.log"
    cp.sample(law.oracle().logged(path), rule, progress=False)
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
        write_records(spoilt, [first, *rest[:which], (kind, changed), *rest[which + 1 :]])
        try:
            batch = cp.sample(law.oracle().logged(spoilt), rule, progress=False)
            assert batch.num_completed == 1
        except cp.CounterprobeError as refused:
            assert "\n" not in str(refused)

    check()


def test_the_call_that_asks_something_else_is_named_by_its_number(law, tmp_path):
    path = tmp_path / "run.log"
    with law.oracle().logged(path).running() as oracle:
        for position in (0, 1, 2):
            oracle.ask(asked(law, position))
    for agree in (0, 1, 2):
        with law.oracle().logged(path).running() as oracle:
            for position in range(agree):
                oracle.ask(asked(law, position))
            said = (
                f"{path}: call {agree + 1} of this run asks something else than it did when it "
                "was logged; was it made by another version, or with another sampler, seed or "
                "context"
            )
            with pytest.raises(cp.CheckpointError, match=said):
                oracle.ask(asked(law, 3))
            assert (oracle.num_replayed, oracle.num_asked) == (agree, 0)


def test_a_logged_reply_that_is_no_rows_or_has_other_attention_is_named_by_its_number(
    forest_law, tmp_path
):
    path, spoilt = tmp_path / "run.log", tmp_path / "spoilt.log"
    weights = np.full((forest_law.length, forest_law.length), 0.25)

    def both(file):
        with AttentiveLaw(forest_law.oracle(), weights).logged(file).running() as oracle:
            oracle.ask(asked(forest_law, 1))
            return oracle.ask(asked(forest_law, 1, AttentionQuery, 1)).attention

    both(path)
    assert np.array_equal(both(path), weights[None])
    first, rest = records_of(path)
    plain, attended = (content for kind, content in rest if kind is Kind.REPLY)
    meta, arrays = unpack(attended[DIGEST_SIZE:])
    for number, reply, change in (
        (1, plain, {"attention": weights[None]}), (2, attended, {"attention": None}),
        (2, attended, {"attention": weights}), (2, attended, {"attention": -weights[None]}),
        (2, attended, {"masses": 2 * arrays["masses"]}),
    ):  # fmt: skip
        parts = {k: a for k, a in {**arrays, **change}.items() if a is not None}
        changed = reply[:DIGEST_SIZE] + pack(meta, parts)
        records = [(kind, changed if content is reply else content) for kind, content in rest]
        write_records(spoilt, [first, *records])
        with pytest.raises(cp.CheckpointError, match=f"reply to call {number} is no rows of this"):
            both(spoilt)


# ----- What is kept -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Mortal, MortalKeeping])
def test_replies_too_large_to_log_are_asked_again_and_said(kind, forest_law, tmp_path, caplog):
    path = tmp_path / "run.log"
    states = np.full((6, forest_law.length), MASK)
    states[np.arange(6), 0] = np.arange(6)

    def run(oracle):
        unmasking = cp.run.Run(oracle)
        unmasking.begin(cp.Streams(1, 2))
        seen = []
        requests = [
            cp.run.Probe(states[k : k + 2], Readouts.same(2, [1, 2, 3])) for k in (0, 2, 4)
        ]
        unmasking.do(Stream(requests, lambda _, rows: seen.append(rows.masses.copy())))
        unmasking.do(Commit([4]))
        return np.concatenate(seen), unmasking.ledger

    alone, ledger = run(forest_law.oracle())
    room = alone.nbytes // 3
    lives = []
    for _ in range(2):
        counting = kind(forest_law.oracle(), -1)
        with (
            caplog.at_level(logging.WARNING, "counterprobe"),
            counting.logged(path, most_bytes=room).running() as oracle,
        ):
            rows, charged = run(oracle)
        assert np.array_equal(rows, alone) and charged == ledger
        lives.append((counting.states, oracle.num_replayed, oracle.num_asked, oracle.num_again))
    # The first reply of the stage fits, and a commit begins anew.
    assert lives == [(7, 0, 7, 0), (4 + 1, 3, 4, 4)]
    assert caplog.messages == [
        f"{path}: 4 evaluations were made again, and paid again: their replies were too large to "
        "be logged"
    ]


def test_a_reply_that_breaks_the_contract_is_asked_for_again(tmp_path):
    replies = iter([0.25, np.nan, 0.25, 0.25, 0.25])
    oracle = cp.CallableOracle(lambda states: np.full((*states.shape, 4), next(replies)), 3, 4)
    logged = oracle.logged(tmp_path / "run.log")
    with pytest.raises(cp.OracleError, match="not finite"):
        cp.sample(logged, "sequential", progress=False)
    batch = cp.sample(logged, "sequential", progress=False)
    assert batch.results[0].stop is cp.StopReason.COMPLETED
    assert next(replies, None) is None, "one before it, twice; itself, twice; one after it"


def test_a_buffer_that_the_oracle_writes_over_is_logged_as_it_was(tmp_path, table_law):
    class Reusing(testing.CountingOracle):
        buffer = np.empty((64, 3))

        def ask(self, query):
            rows = super().ask(query).rows
            self.buffer[: len(rows)] = rows.masses
            return cp.Reply(cp.rows.DenseRows(self.buffer[: len(rows)]))

    undisturbed = cp.sample(table_law.oracle(), "punt", 2, progress=False)
    for _ in range(2):
        oracle = Reusing(table_law.oracle()).logged(tmp_path / "run.log")
        batch = cp.sample(oracle, "punt", 2, progress=False)
        assert np.array_equal(batch.sequences, undisturbed.sequences)


def test_attention_is_replayed_with_its_rows(forest_law, tmp_path):
    weights = np.random.default_rng(4).random((forest_law.length, forest_law.length))
    rule = samplers.SAMPLERS["dapd"]()
    alone = cp.sample(AttentiveLaw(forest_law.oracle(), weights), rule, 2, progress=False)
    for life, expected in enumerate((alone.ledger.evaluations, 0)):
        oracle = AttentiveLaw(forest_law.oracle(), weights)
        batch = cp.sample(oracle.logged(tmp_path / "run.log"), rule, 2, progress=False)
        assert same(batch, alone) and oracle.states == expected + life
        assert bool(oracle.calls) == bool(expected)


def test_rows_of_a_kind_that_cannot_be_kept_are_asked_for_again(table_law, tmp_path):
    @dataclasses.dataclass(frozen=True, slots=True)
    class Marked(DenseRows):
        mark: int = 0

    class Marking(testing.CountingOracle):
        def ask(self, query):
            return cp.Reply(Marked(super().ask(query).rows.dense()))

    for _ in range(2):
        inner = Marking(table_law.oracle())
        with inner.logged(tmp_path / "run.log").running() as oracle:
            assert type(oracle.ask(asked(table_law, 1)).rows) is Marked
        assert inner.states == 1


def test_classes_that_are_equal_are_written_once_and_shared_by_log_and_oracle(
    forest_law, tmp_path
):
    path = tmp_path / "run.log"
    other = cp.classes.TokenClasses.identity(forest_law.length, forest_law.vocab_size)
    equal = dataclasses.replace(forest_law.classes)

    class Changing(testing.CountingOracle):
        def ask(self, query):
            rows = super().ask(query).rows
            position = int(query.readouts.position[0])
            if position == 2:
                return cp.Reply(cp.rows.ClassedRows(rows.dense(), other, rows.positions))
            chosen = equal if position == 1 else rows.classes
            return cp.Reply(cp.rows.ClassedRows(rows.class_masses, chosen, rows.positions))

    found = []
    for last in (3, 5):  # the last two replies of the second life come from the oracle
        with Changing(forest_law.oracle()).logged(path).running() as oracle:
            found.append([oracle.ask(asked(forest_law, k)).rows for k in range(last)])
        is_shared = [rows.classes is found[-1][0].classes for rows in found[-1]]
        assert is_shared == [True, True, False, True, True][:last]
    for one, two in zip(*found, strict=False):
        assert np.array_equal(one.dense(), two.dense())
    kinds = [kind for kind, _ in records_of(path)[1]]
    assert kinds.count(Kind.CLASSES) == 2 and kinds.count(Kind.REPLY) == 5


def test_classes_of_another_size_are_refused(forest_law, tmp_path):
    path = tmp_path / "run.log"
    with forest_law.oracle().logged(path).running() as oracle:
        oracle.ask(asked(forest_law, 1))
    first, rest = records_of(path)
    wrong = cp.classes.TokenClasses.identity(forest_law.length + 1, forest_law.vocab_size)
    write_records(path, [first, (Kind.CLASSES, encode_classes(wrong)), *rest])
    with (
        forest_law.oracle().logged(path).running() as oracle,
        pytest.raises(cp.CheckpointError, match="token classes of another size"),
    ):
        oracle.ask(asked(forest_law, 1))
