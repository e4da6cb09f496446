"""A reply cache: what is stored is found again, by any run; what is damaged or foreign is not."""

import dataclasses
import itertools
import logging
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe import Query, Readouts, samplers, testing
from counterprobe.oracles import NUMERICAL_FLOOR, AttentionQuery
from counterprobe.oracles.cache import as_bytes, cached_row_error
from counterprobe.rows import DenseRows
from counterprobe.run import Stream
from in_groups import InGroups

MASK = cp.MASK


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


class Anonymous(testing.CountingOracle):
    """An oracle that says nothing of what it is."""

    digest = None

    @property
    def info(self):
        return dataclasses.replace(super().info, name="anonymous")


class Mortal(testing.CountingOracle):
    """Dies after a number of calls."""

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


def asked(law, position: int, kind=Query, *more) -> Query:
    states = np.full((1, law.length), MASK, dtype=np.int32)
    return kind(states, Readouts.same(1, [position]), *more)


def sampled(oracle, rule, count=1, **options):
    return cp.sample(oracle, rule, count, **{"seed": 3, "progress": False, **options})


# ----- Runs that died -------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("kind", [Mortal, MortalKeeping])
@pytest.mark.parametrize("rule", ["sequential", "random-balanced", "threshold", "punt", "maskgit"])
def test_a_run_that_died_at_any_call_is_resumed_and_asks_nothing_twice(
    forest_law, rule, kind, count, tmp_path
):
    undisturbed = sampled(kind(forest_law.oracle(), -1), rule, count)
    with kind(forest_law.oracle(), -1).cached(tmp_path / "whole") as whole:
        assert same(sampled(whole, rule, count), undisturbed)
        needed = whole.num_misses
        assert needed == whole.inner.states <= undisturbed.ledger.evaluations
    path, states = tmp_path / "run", 0
    for lives in itertools.count(1):
        oracle = kind(forest_law.oracle(), calls=3 + (lives > 1))
        try:
            with oracle.cached(path) as cached:
                resumed = sampled(cached, rule, count)
        except Interrupted:
            continue
        finally:
            states += oracle.states
        break
    assert same(resumed, undisturbed) and lives > 1
    assert states == needed + lives - 1, "one state a life to recognise the oracle"
    silent = kind(forest_law.oracle(), calls=1)
    with silent.cached(path) as cached:
        assert same(sampled(cached, rule, count), undisturbed)
        assert (cached.num_hits, cached.num_misses) == (undisturbed.ledger.evaluations, 0)
    assert silent.states == cached.num_recognising == 1


@pytest.mark.parametrize("mode", ["exact", "soft"])
def test_a_discovery_that_died_at_any_call_finds_the_same(forest_law, mode, tmp_path):
    options = {"mode": mode, **({"probes": 24} if mode == "soft" else {})}
    undisturbed = cp.discover(forest_law.oracle(), **options)
    for lives in itertools.count(1):
        try:
            with Mortal(forest_law.oracle(), 1 + (lives > 1)).cached(tmp_path / "run") as oracle:
                found = cp.discover(oracle, **options)
            break
        except Interrupted:
            pass
    assert lives > 1 and found.ledger == undisturbed.ledger
    assert np.array_equal(found.edges, undisturbed.edges)
    before, after = (
        one.certificate.unary if mode == "exact" else one.strengths.nats
        for one in (undisturbed, found)
    )
    assert np.array_equal(before, after)


def test_context_and_taken_back_commits_are_resumed(table_law, tmp_path):
    given = np.full(table_law.length, MASK)
    given[1] = 2
    options = {"given": given, "temperature": 0.7}
    for rule in (samplers.Sequential("random"), samplers.ReMDM(), samplers.WINO()):
        path = tmp_path / rule.name
        undisturbed = sampled(table_law.oracle(), rule, 2, **options)
        with pytest.raises(Interrupted), Mortal(table_law.oracle(), 1).cached(path) as oracle:
            sampled(oracle, rule, 2, **options)
        with Mortal(table_law.oracle(), -1).cached(path) as oracle:
            assert same(sampled(oracle, rule, 2, **options), undisturbed)


def test_a_run_that_stopped_is_resumed_with_a_larger_budget(table_law, tmp_path):
    with testing.CountingOracle(table_law.oracle()).cached(tmp_path / "run") as oracle:
        stopped = sampled(oracle, "sequential", max_evaluations=2)
        assert stopped.results[0].stop is cp.StopReason.BUDGET_SPENT
        finished = sampled(oracle, "sequential")
        assert finished.results[0].stop is cp.StopReason.COMPLETED
        assert oracle.inner.states == table_law.length


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
@pytest.mark.parametrize("in_groups", [False, True], ids=["one by one", "in groups"])
def test_a_run_with_impossible_drafts_is_resumed(in_groups, tmp_path, monkeypatch):
    monkeypatch.setattr("counterprobe.samplers.rules.waves.MOST_NUMBERS", 4)  # one state each
    refused = []

    class Dying(Mortal):
        def ask(self, query):
            try:
                return super().ask(query)
            except cp.errors.ImpossibleState:
                refused.append(self)
                raise

    class DyingInGroups(InGroups, Dying):
        pass

    copied = np.zeros((2,) * 4)
    copied[0, 0, 0, 0] = copied[1, 1, 1, 1] = 1
    law = cp.TableLaw(copied)
    streams = cp.Streams(1, 1)
    kind = DyingInGroups if in_groups else Dying
    for rule in (samplers.Autospeculation(), samplers.ASSD(4)):
        expected = rule(cp.run.Run(law.oracle()), streams)
        for calls in itertools.count(1):
            path = tmp_path / f"{rule.name} {calls}"
            try:
                with kind(law.oracle(), calls).cached(path) as oracle:
                    rule(cp.run.Run(oracle), streams)
                break
            except Interrupted:
                pass
            with kind(law.oracle(), -1).cached(path) as oracle:
                result = rule(cp.run.Run(oracle), streams)
            assert result.tokens.tolist() == expected.tokens.tolist()
            assert result.ledger == expected.ledger
        assert calls > 3 and refused
        before = len(refused)
        with kind(law.oracle(), -1).cached(path) as oracle:
            assert rule(cp.run.Run(oracle), streams).ledger == expected.ledger
            assert oracle.num_misses == 0
        assert len(refused) == before, "a refusal is a reply as well"


class MortalInGroups(InGroups, Mortal):
    """Dies after some calls."""


def test_queries_that_are_asked_at_once_are_stored_state_by_state(forest_law, tmp_path):
    states = np.full((16, forest_law.length), MASK)
    states[np.arange(16), 0] = np.arange(16) % forest_law.vocab_size
    states[np.arange(16), 3] = np.arange(16) // forest_law.vocab_size % forest_law.vocab_size
    different = len(np.unique(states, axis=0))
    requests = [cp.run.Probe(states[k : k + 2], Readouts.same(2, [1, 2])) for k in range(0, 16, 2)]

    def run(oracle):
        seen = []
        unmasking = cp.run.Run(oracle)
        unmasking.do(Stream(iter(requests), lambda _, rows: seen.append(rows.masses.copy())))
        return np.concatenate(seen), unmasking.ledger

    alone, ledger = run(forest_law.oracle())
    for lasting in (1, 2, -1):
        inner = MortalInGroups(forest_law.oracle(), lasting)
        try:
            with inner.cached(tmp_path / "run") as oracle:
                rows, charged = run(oracle)
        except Interrupted:
            pass
    assert np.array_equal(rows, alone) and charged == ledger
    assert oracle.num_hits + oracle.num_misses == 16 and oracle.num_misses < different


def test_attempts_that_somebody_gave_up_on_do_no_harm(table_law, tmp_path):
    """They answer late, beside the second attempt or after it."""
    go_on = threading.Event()

    class Hanging(testing.CountingOracle):
        def ask(self, query):
            self.calls += 1
            if self.calls == 2:
                go_on.wait(30)
            return self.inner.ask(query)

    hanging = Hanging(table_law.oracle())
    with hanging.cached(tmp_path / "run") as cached:
        oracle = cached.retrying(2, timeout=0.2, backoff=0)
        for position in range(2):
            oracle.ask(asked(table_law, position))
        workers = [t for t in threading.enumerate() if t.name.startswith("oracle ")]
        go_on.set()
        for worker in workers:
            worker.join(30)
        oracle.ask(asked(table_law, 2))
    assert len(oracle.failures) == 1 and len(workers) == 1
    with hanging.cached(tmp_path / "run") as cached:
        for position in range(3):
            cached.ask(asked(table_law, position))
        assert (cached.num_hits, cached.num_misses) == (3, 0)


# ----- Grouping -------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["sequential", "punt", "maskgit", "random-balanced"])
def test_replies_are_found_again_whatever_the_grouping(forest_law, rule, tmp_path):
    path = tmp_path / "run"
    with forest_law.oracle().cached(path) as oracle:
        first = sampled(oracle, rule, 6)
    for at_once, count in ((1, 6), (4, 6), (256, 3)):
        with forest_law.oracle().cached(path) as oracle:
            again = sampled(oracle, rule, count, at_once=at_once)
            assert again.sequences.tolist() == first.sequences[:count].tolist()
            assert oracle.num_misses == 0
    with forest_law.oracle().cached(path) as oracle:
        more = sampled(oracle, rule, 9, at_once=5)
        assert more.sequences[:6].tolist() == first.sequences.tolist()
        assert oracle.num_hits >= first.ledger.evaluations and oracle.num_misses > 0
    alone = sampled(forest_law.oracle(), rule, 9)
    assert more.sequences.tolist() == alone.sequences.tolist()


def test_a_state_keeps_its_first_rows_where_rows_depend_on_the_batch(tmp_path):
    def rounding(states):
        noise = 1e-9 * len(states) * np.array([1, -1])
        return np.broadcast_to(0.5 + noise, (*states.shape, 2))

    def oracle():
        return cp.CallableOracle(rounding, 3, 2, row_error=1e-6).cached(tmp_path / "run")

    states = np.full((4, 3), MASK, dtype=np.int32)
    states[:, 0] = 0, 1, 0, MASK
    query = Query(states, Readouts.same(4, [1, 2]))
    with oracle() as cached:
        first = cached.ask(query.part(np.array([0]))).rows.dense()
        whole = cached.ask(query).rows.dense()
        assert np.array_equal(whole[:2], first) and np.array_equal(whole[4:6], first)
        assert not np.array_equal(whole[2:4], first), "it was asked for in other company"
        assert (cached.num_hits, cached.num_misses) == (2, 3)
    with oracle() as cached:
        back = query.part(np.array([1, 3]))
        assert np.array_equal(cached.ask(back).rows.dense(), whole[[2, 3, 6, 7]])
        assert np.array_equal(cached.ask(query).rows.dense(), whole)
        mixed = Readouts.pairs([3, 0, 1, 0, 2, 2, 1, 3], [1, 2, 1, 1, 1, 2, 2, 2])
        rows = cached.ask(Query(states, mixed)).rows.dense()
        assert np.array_equal(rows, whole[[6, 1, 2, 0, 4, 5, 3, 7]])
        assert cached.num_misses == 0


def test_equal_states_of_one_call_have_one_reply(tmp_path):
    def counting(states):
        noise = 1e-9 * np.arange(len(states))[:, None, None] * np.array([1, -1])
        return np.broadcast_to(0.5 + noise, (*states.shape, 2))

    states = np.full((3, 2), MASK, dtype=np.int32)
    query = Query(states, Readouts.same(3, [0]))
    seen = []
    for _ in range(2):
        oracle = cp.CallableOracle(counting, 2, 2, row_error=1e-6)
        with oracle.cached(tmp_path / "run") as cached:
            seen.append(cached.ask(query).rows.dense())
    assert (seen[0] == seen[0][0]).all() and np.array_equal(*seen)


@pytest.mark.parametrize("kind", [Query, AttentionQuery])
def test_rows_with_and_without_attention_are_kept_apart(forest_law, kind, tmp_path):
    weights = np.random.default_rng(4).random((forest_law.length, forest_law.length))
    for life in range(2):
        inner = AttentiveLaw(forest_law.oracle(), weights)
        with inner.cached(tmp_path / "run") as oracle:
            plain = oracle.ask(asked(forest_law, 1))
            one, two = (oracle.ask(asked(forest_law, 1, AttentionQuery, k)) for k in (1, 2))
            assert plain.attention is None
            assert np.array_equal(one.attention, weights[None])
            assert np.array_equal(one.rows.dense(), two.rows.dense())
            assert (oracle.num_hits, oracle.num_misses) == ((0, 3), (3, 0))[life]


def test_attention_is_found_again_with_its_rows(forest_law, tmp_path):
    weights = np.random.default_rng(4).random((forest_law.length, forest_law.length))
    rule = samplers.SAMPLERS["dapd"]()
    alone = sampled(AttentiveLaw(forest_law.oracle(), weights), rule, 2)
    for life in range(2):
        inner = AttentiveLaw(forest_law.oracle(), weights)
        with inner.cached(tmp_path / "run") as oracle:
            assert same(sampled(oracle, rule, 2), alone)
            assert bool(oracle.num_misses) == (not life)


# ----- Whose replies --------------------------------------------------------------------------


def test_the_cache_of_a_model_of_another_name_or_size_is_refused(uniform_oracle, tmp_path):
    path = tmp_path / "run"
    with uniform_oracle(3, 4, name="one").cached(path) as oracle:
        sampled(oracle, "sequential")
    before = path.read_bytes()
    for oracle, message in (
        (uniform_oracle(3, 4, name="two"), "its name is 'one', this model's is 'two'"),
        (uniform_oracle(4, 4, name="one"), "its length is 3, this model's is 4"),
        (uniform_oracle(3, 5, name="one"), "its vocab_size is 4, this model's is 5"),
    ):
        with pytest.raises(cp.CacheError, match=message):
            oracle.cached(path)
    assert path.read_bytes() == before


def two_laws(kind):
    """Two laws of one name and size."""
    if kind == "table":
        tables = np.random.default_rng(8).random((2, 3, 3, 3)) + 0.1
        return [cp.TableLaw(table) for table in tables]
    return [cp.families.path(12, target_seed=seed) for seed in (1, 2)]


@pytest.mark.parametrize("kind", ["table", "path"])
def test_the_cache_of_another_law_is_refused_before_anything_is_asked(kind, tmp_path):
    one, two = two_laws(kind)
    with one.oracle().cached(tmp_path / "run") as oracle:
        sampled(oracle, "sequential")
    with pytest.raises(cp.CacheError, match="is the cache of another model: its digest is"):
        two.oracle().cached(tmp_path / "run")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("rule", ["sequential", "one-batch", "threshold", "punt", "compressed"])
@pytest.mark.parametrize("kind", ["table", "path"])
def test_replies_of_another_oracle_are_refused_before_one_is_returned(rule, count, kind, tmp_path):
    path = tmp_path / "run"
    one, two = two_laws(kind)
    with Anonymous(one.oracle()).cached(path) as oracle:
        first = sampled(oracle, rule, count)
    message = (
        r"holds replies of another model than this 'anonymous': for a stored state the row at "
        r"position \d+ differs by"
    )
    with Anonymous(two.oracle()).cached(path) as oracle:
        with pytest.raises(cp.CacheError, match=message):
            sampled(oracle, rule, count)
        assert oracle.num_hits == 0 and oracle.inner.states <= 3
    with Anonymous(one.oracle()).cached(path) as oracle:
        assert same(sampled(oracle, rule, count), first)
        assert oracle.inner.states == oracle.num_recognising <= 3


def leaning(by: float = 0.0, row_error: float = 0.0) -> Anonymous:
    """Rows of two tokens that lean further the later their position."""

    def function(states):
        lean = by * (1 + np.arange(3))[:, None] * [1, -1]
        return np.broadcast_to(0.5 + lean, (*states.shape, 2))

    return Anonymous(cp.CallableOracle(function, 3, 2, row_error=row_error))


REVEALING = np.array([[MASK, 1, MASK]], dtype=np.int32)


@pytest.mark.parametrize(
    ("by", "stored", "declared", "is_same"),
    [
        (0.125, 0.125, 0.0, True), (0.125, 0.0, 0.125, True), (0.125, 0.0625, 0.0625, False),
        (NUMERICAL_FLOOR / 2, 0.0, 0.0, True), (1e-11, 0.0, 0.0, False),
    ],
)  # fmt: skip
def test_rows_may_move_by_the_larger_of_both_declarations_and_by_rounding(
    by, stored, declared, is_same, tmp_path
):
    with leaning(row_error=stored).cached(tmp_path / "run") as oracle:
        oracle.rows(REVEALING, Readouts.same(1, [0]))
    assert cached_row_error(tmp_path / "run") == stored
    with leaning(by, declared).cached(tmp_path / "run") as oracle:
        assert oracle.row_error == stored, "the row error that was declared first"
        if is_same:
            oracle.rows(REVEALING, Readouts.same(1, [0]))
            assert (oracle.num_hits, oracle.num_recognising) == (1, 1)
            return
        with pytest.raises(cp.CacheError, match=rf"the row at position 0 differs by {by:.3g} in"):
            oracle.rows(REVEALING, Readouts.same(1, [0]))


def test_an_oracle_that_breaks_the_contract_is_no_other_oracle(tmp_path):
    with leaning().cached(tmp_path / "run") as oracle:
        oracle.rows(REVEALING, Readouts.same(1, [0]))
    with (
        leaning(np.nan).cached(tmp_path / "run") as oracle,
        pytest.raises(cp.OracleError, match=r"'anonymous'.*not finite"),
    ):
        oracle.rows(REVEALING, Readouts.same(1, [0]))


def test_there_is_no_row_error_before_there_is_a_cache(tmp_path):
    assert cached_row_error(tmp_path / "none") is None
    (tmp_path / "empty").touch()
    assert cached_row_error(tmp_path / "empty") is None


# ----- Damage ---------------------------------------------------------------------------------


def test_a_file_of_something_else_is_refused_and_left_alone(table_law, tmp_path):
    text, other = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("mine" * 100)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(cp.CacheError, match="is not a cache of replies; name another file"):
            table_law.oracle().cached(path)
        assert path.read_bytes() == before
    with pytest.raises(cp.CacheError, match="there is no folder"):
        table_law.oracle().cached(tmp_path / "none" / "run")
    with pytest.raises(cp.CacheError, match="is a folder; a cache must be a regular file"):
        table_law.oracle().cached(tmp_path)


def test_an_empty_file_is_a_new_cache(table_law, tmp_path):
    (tmp_path / "run").touch()
    with table_law.oracle().cached(tmp_path / "run") as oracle:
        sampled(oracle, "sequential")
        assert oracle.num_hits == 0


def spoil(path: Path, change) -> None:
    """Change what is stored of each reply, by a program that knows nothing of checksums."""
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT id, content FROM replies").fetchall()
        for k, (number, content) in enumerate(rows):
            database.execute(
                "UPDATE replies SET content = ? WHERE id = ?", (change(k, content), number)
            )
    database.close()


def test_damaged_replies_are_dropped_and_asked_for_again(forest_law, tmp_path, caplog):
    path = tmp_path / "run"
    with forest_law.oracle().cached(path) as oracle:
        undisturbed = sampled(oracle, "punt", 2)
        stored = oracle.num_misses - 1  # two sequences begin with one state

    def change(k, content):
        flipped = bytearray(content)
        flipped[k % len(content)] ^= 1 << k % 8
        return (bytes(flipped), content[: k % len(content)], b"", "text")[k % 4]

    spoil(path, change)
    with (
        caplog.at_level(logging.WARNING, "counterprobe"),
        forest_law.oracle().cached(path) as oracle,
    ):
        assert same(sampled(oracle, "punt", 2), undisturbed)
        assert oracle.num_again == oracle.num_misses >= stored
    assert all("damaged replies were dropped" in said for said in caplog.messages)
    with forest_law.oracle().cached(path) as oracle:
        assert same(sampled(oracle, "punt", 2), undisturbed)
        assert oracle.num_misses == 0


def test_what_is_sealed_and_no_reply_is_dropped_too(law, tmp_path):
    """Somebody may write what has a checksum."""
    from counterprobe.oracles.cache import _sealed
    from counterprobe.oracles.codec import pack

    path = tmp_path / "run"
    with law.oracle().cached(path) as oracle:
        undisturbed = sampled(oracle, "sequential")
    width = {"masses": np.full((1, 1), 0.5)}
    contents = [
        b"", pack({}, {}), pack({"rows": "DenseRows"}, width), pack({"rows": "object"}, width),
        pack({"rows": "DenseRows"}, {"masses": np.full((1, 3), np.nan)}),
        pack({"rows": "ClassedRows", "classes": "none"}, width),
        pack({"rows": "DenseRows", "device": "moon", "dtype": "torch.float32"}, width),
        pack({"rows": "DenseRows"}, {"masses": np.array(1.0)}),
    ]  # fmt: skip
    for content in contents:
        with sqlite3.connect(path) as database:
            keys = [key for (key,) in database.execute("SELECT key FROM replies")]
            for key in keys:
                sealed = _sealed(key, content)
                database.execute("UPDATE replies SET content = ? WHERE key = ?", (sealed, key))
        database.close()
        with law.oracle().cached(path) as oracle:
            assert same(sampled(oracle, "sequential"), undisturbed)
            assert oracle.num_hits == 0 < oracle.num_again


@pytest.mark.parametrize("what", ["model", "example 0"])
def test_a_damaged_fact_is_refused(forest_law, what, tmp_path):
    path = tmp_path / "run"
    with forest_law.oracle().cached(path) as oracle:
        sampled(oracle, "sequential")
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE facts SET content = x'00' || content WHERE name LIKE ?", (what + "%",)
        )
    database.close()
    with (
        pytest.raises(cp.CacheError, match="is damaged"),
        forest_law.oracle().cached(path) as oracle,
    ):
        sampled(oracle, "sequential")


def test_flipped_bytes_never_come_back_as_a_reply(forest_law, tmp_path):
    whole, path = tmp_path / "whole", tmp_path / "run"
    with forest_law.oracle().cached(whole) as oracle:
        undisturbed = sampled(oracle, "punt", 2)
    content = whole.read_bytes()
    draw = random.Random(5)
    ended = {"as ever": 0, "refused": 0}
    for _ in range(60):
        spoilt = bytearray(content)
        for _ in range(draw.choice((1, 8, 64))):
            spoilt[draw.randrange(len(spoilt))] ^= 1 << draw.randrange(8)
        for file in tmp_path.glob("run*"):
            file.unlink()
        path.write_bytes(spoilt)
        try:
            with forest_law.oracle().cached(path) as oracle:
                assert same(sampled(oracle, "punt", 2), undisturbed)
            ended["as ever"] += 1
        except cp.CacheError as refused:
            assert "\n" not in str(refused)
            ended["refused"] += 1
    assert min(ended.values()) > 5


def test_a_file_that_was_cut_off_is_refused_or_asks_again(forest_law, tmp_path):
    path = tmp_path / "run"
    with forest_law.oracle().cached(path) as oracle:
        undisturbed = sampled(oracle, "punt", 2)
    content = path.read_bytes()
    for end in (10, 100, 4096, len(content) // 2, len(content) - 1):
        for file in tmp_path.glob("run*"):
            file.unlink()
        path.write_bytes(content[:end])
        try:
            with forest_law.oracle().cached(path) as oracle:
                assert same(sampled(oracle, "punt", 2), undisturbed)
        except cp.CacheError as refused:
            assert str(path) in str(refused)


# ----- Size -----------------------------------------------------------------------------------


def test_the_oldest_replies_make_room_and_are_counted_when_they_are_asked_for_again(tmp_path):
    def oracle(path, limit):
        function = lambda states: np.full((*states.shape, 512), 1 / 512)  # noqa: E731
        return cp.CallableOracle(function, 10, 512).cached(tmp_path / path, limit=limit)

    states = np.array(list(np.ndindex((2,) * 9)), dtype=np.int32)
    states = np.concatenate([states, np.full((len(states), 1), MASK)], axis=1).astype(np.int32)
    parts = [Query(states[k : k + 1], Readouts.same(1, [9])) for k in range(len(states))]
    limit = 1 << 20
    with oracle("run", limit) as cached:
        for part in parts:
            cached.ask(part)
        assert cached.num_misses == len(parts) and cached.num_again == 0
        for part in parts[-100:]:
            cached.ask(part)
        assert cached.num_misses == len(parts), "the newest are there"
        cached.ask(parts[0])
        assert cached.num_again == 1 and cached.num_misses == len(parts) + 1
        for part in parts:
            cached.ask(part)
        assert cached.num_again > 100
    assert limit // 2 < (tmp_path / "run").stat().st_size <= limit + (64 << 10)
    with oracle("none", 0) as cached:
        rows = [cached.ask(parts[0]).rows.dense() for _ in range(2)]
        assert np.array_equal(*rows) and cached.num_misses == 2


@pytest.mark.parametrize(
    ("limit", "number"),
    [(5, 5), ("5", 5), ("1 GiB", 1 << 30), (" 0.5 MiB", 1 << 19), ("3 B", 3), ("2 TiB", 1 << 41)],
)
def test_a_limit_is_bytes(limit, number):
    assert as_bytes(limit) == number


@pytest.mark.parametrize("limit", ["", "1GB", "GiB", "nan B", "inf GiB", -1, "-1 GiB"])
def test_what_is_no_limit_is_refused(limit, table_law, tmp_path):
    with pytest.raises(ValueError, match="limit must be"):
        table_law.oracle().cached(tmp_path / "run", limit=limit)


# ----- What is kept ---------------------------------------------------------------------------


def test_a_reply_that_breaks_the_contract_is_asked_for_again(tmp_path):
    replies = iter([0.25, np.nan, 0.25, 0.25])
    oracle = cp.CallableOracle(lambda states: np.full((*states.shape, 4), next(replies)), 3, 4)
    with oracle.cached(tmp_path / "run") as cached:
        with pytest.raises(cp.OracleError, match="not finite"):
            sampled(cached, "sequential")
        assert sampled(cached, "sequential").results[0].stop is cp.StopReason.COMPLETED
    assert next(replies, None) is None


def test_a_buffer_that_the_oracle_writes_over_is_stored_as_it_was(tmp_path, table_law):
    class Reusing(testing.CountingOracle):
        buffer = np.empty((64, 3))

        def ask(self, query):
            rows = super().ask(query).rows
            self.buffer[: len(rows)] = rows.masses
            return cp.Reply(DenseRows(self.buffer[: len(rows)]))

    undisturbed = sampled(table_law.oracle(), "punt", 2)
    for _ in range(2):
        with Reusing(table_law.oracle()).cached(tmp_path / "run") as oracle:
            assert same(sampled(oracle, "punt", 2), undisturbed)


def test_rows_of_a_kind_that_cannot_be_kept_are_asked_for_again(table_law, tmp_path):
    @dataclasses.dataclass(frozen=True, slots=True)
    class Marked(DenseRows):
        mark: int = 0

    class Marking(testing.CountingOracle):
        def ask(self, query):
            return cp.Reply(Marked(super().ask(query).rows.dense()))

    for _ in range(2):
        inner = Marking(table_law.oracle())
        with inner.cached(tmp_path / "run") as oracle:
            assert type(oracle.ask(asked(table_law, 1)).rows) is Marked
        assert inner.states == 1


def test_rows_of_two_kinds_never_meet_in_one_reply(tmp_path):
    """Such as rows of another precision, when a model is loaded otherwise."""

    def oracle(dtype):
        function = lambda states: np.full((*states.shape, 4), 0.25, dtype=dtype)  # noqa: E731
        return Anonymous(cp.CallableOracle(function, 3, 4, row_error=1e-6))

    states = np.array([[0, MASK, 1], [1, MASK, 1]], dtype=np.int32)
    query = Query(states, Readouts.same(2, [1]))
    with oracle(np.float32).cached(tmp_path / "run") as cached:
        cached.ask(query.part(np.array([0])))
    with oracle(np.float64).cached(tmp_path / "run") as cached:
        assert cached.ask(query).rows.masses.dtype == np.float64


def test_classes_that_are_equal_are_shared_by_cache_and_oracle(forest_law, tmp_path):
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
        with Changing(forest_law.oracle()).cached(tmp_path / "run") as oracle:
            found.append([oracle.ask(asked(forest_law, k)).rows for k in range(last)])
        is_shared = [rows.classes is found[-1][0].classes for rows in found[-1]]
        assert is_shared == [True, True, False, True, True][:last]
    for one, two in zip(*found, strict=False):
        assert np.array_equal(one.dense(), two.dense())


# ----- Processes ------------------------------------------------------------------------------

# Asks for states in an order of its own and acknowledges each reply, by its number, on its
# standard output; a reply differs from process to process, and so tells who was asked.
ASKING = """
import os, sys, time
import numpy as np
import counterprobe as cp

path, seed, low, high = sys.argv[1], *map(int, sys.argv[2:5])

def rows(states):
    lean = 1e-3 * (os.getpid() % 97) / 97
    return np.broadcast_to([0.5 + lean, 0.5 - lean], (*states.shape, 2))

oracle = cp.CallableOracle(rows, 16, 2, row_error=0.01, name="law").cached(path)
for number in low + np.random.default_rng(seed).permutation(high - low):
    state = [int(bit) for bit in f"{number:015b}"] + [cp.MASK]
    states = np.array([state], dtype=np.int32)
    reply = oracle.ask(cp.Query(states, cp.Readouts.same(1, [15]))).rows.dense()[0, 0]
    print(number, repr(float(reply)), flush=True)
print("end", oracle.num_hits, oracle.num_misses, flush=True)
"""


def ask_apart(path: Path, seed: int, low: int, high: int) -> subprocess.Popen:
    arguments = [sys.executable, "-c", ASKING, path, str(seed), str(low), str(high)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def acknowledged(lines: list[str]) -> dict[int, float]:
    """Return replies by the number of their state; a line that was cut off is none."""
    whole = [line.split() for line in lines if line.endswith("\n") and not line.startswith("end")]
    return {int(number): float(value) for number, value in whole}


def die_at_random(path: Path, kills: int, seed: int) -> None:
    """End a process that asks, again and again; compare whatever it had said."""
    draw = random.Random(seed)
    known: dict[int, float] = {}
    for life in range(kills):
        running = ask_apart(path, life, 0, 4000)
        lines = [running.stdout.readline()]
        time.sleep(draw.uniform(0, 0.05))
        running.send_signal(signal.SIGKILL)
        lines += running.stdout.readlines()
        running.wait()
        running.stdout.close()
        for number, value in acknowledged(lines).items():
            assert known.setdefault(number, value) == value, "a reply that was said was lost"
    assert len(known) > kills
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    rows = lambda states: np.full((*states.shape, 2), 0.5)  # noqa: E731
    with cp.CallableOracle(rows, 16, 2, row_error=0.01, name="law").cached(path) as oracle:
        for number, value in known.items():
            state = [int(bit) for bit in f"{number:015b}"] + [MASK]
            query = Query(np.array([state], dtype=np.int32), Readouts.same(1, [15]))
            assert oracle.ask(query).rows.dense()[0, 0] == value
        assert oracle.num_misses == oracle.num_again == 0


def test_processes_that_are_killed_lose_no_reply_that_they_returned(tmp_path):
    die_at_random(tmp_path / "run", 4, 1)


@pytest.mark.slow
def test_processes_that_are_killed_200_times_lose_no_reply_that_they_returned(tmp_path):
    die_at_random(tmp_path / "run", 200, 2)


def test_two_processes_share_a_file_and_agree_on_every_reply(tmp_path):
    path = tmp_path / "run"
    both = [ask_apart(path, seed, *ends) for seed, ends in ((1, (0, 600)), (2, (200, 800)))]
    said = [running.communicate(timeout=120)[0] for running in both]
    assert [running.returncode for running in both] == [0, 0]
    one, two = (acknowledged(text.splitlines(keepends=True)) for text in said)
    assert len(one) == len(two) == 600
    assert all(one[number] == two[number] for number in one.keys() & two.keys())
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM replies").fetchone() == (800,)
    database.close()


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path):
    many = [ask_apart(tmp_path / "run", k, 0, 20) for k in range(4)]
    said = [running.communicate(timeout=120)[0] for running in many]
    assert [running.returncode for running in many] == [0] * 4
    replies = [acknowledged(text.splitlines(keepends=True)) for text in said]
    assert all(one == replies[0] for one in replies) and len(replies[0]) == 20
    assert os.path.exists(tmp_path / "run")
