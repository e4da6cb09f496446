"""Sequences side by side: each is what it would have been alone, and the whole is charged once."""

import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.oracles import Reply
from counterprobe.run import Commit, CommitAll, Probe, Read, Share
from counterprobe.samplers import SAMPLERS, Sampler
from counterprobe.samplers.registry import as_sampler, default_orders
from counterprobe.targets import forests

MASK = cp.MASK
STREAMS = cp.Streams(31, 32)


def alone(
    rule: Sampler, oracle: cp.Oracle, sequence: int, streams: cp.Streams = STREAMS, **options: Any
) -> cp.SampleResult:
    return rule(cp.run.Run(oracle, sequence=sequence, **options), streams)


def draw(oracle: cp.Oracle, rule: Sampler | str, count: int, **options: Any) -> cp.SampleBatch:
    options.setdefault("seed", STREAMS)
    return within(60, lambda: cp.sample(oracle, rule, count, progress=False, **options))


def within(seconds: float, act: Callable[[], Any]) -> Any:
    """Act in a thread of its own; fail, instead of hanging, when it takes too long."""
    outcome: list[Any] = []

    def target() -> None:
        try:
            outcome.append((True, act()))
        except BaseException as error:
            outcome.append((False, error))

    before = running()
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, f"nothing came back within {seconds} seconds: a deadlock"
    assert running() <= before, "threads were left behind"
    is_fine, value = outcome[0]
    if not is_fine:
        raise value
    return value


def running() -> int:
    return sum(thread.name.startswith("counterprobe sequence") for thread in threading.enumerate())


def assert_as_alone(result: cp.SampleResult, expected: cp.SampleResult) -> None:
    assert result.stop is expected.stop
    assert result.state.tolist() == expected.state.tolist()
    assert (result.tokens is None) == (expected.tokens is None)
    assert result.round_of_position.tolist() == expected.round_of_position.tolist()
    assert result.ledger == expected.ledger
    assert result.used == expected.used
    assert result.reason == expected.reason
    assert result.transcript.replay() == result.ledger
    for mine, other in zip(result.transcript.events, expected.transcript.events, strict=True):
        assert (mine.operation, mine.evaluations) == (other.operation, other.evaluations)
        assert mine.fingerprints.tolist() == other.fingerprints.tolist()


# ----- Every sampler --------------------------------------------------------------------------


def check_five(law, rule: Sampler, counted, **options: Any) -> cp.SampleBatch:
    """Five sequences equal the runs alone, in as many calls as the longest of them makes."""
    oracle = counted(law.oracle())
    batch = draw(oracle, rule, 5, orders="shared", **options)
    calls = []
    for k, result in enumerate(batch.results):
        single = counted(law.oracle())
        assert_as_alone(result, alone(rule, single, k, **options))
        assert batch.sequences[k].tolist() == result.state.tolist()
        calls.append(single.calls)
    assert (batch.ledger.evaluations, batch.ledger.rows_read) == (oracle.states, oracle.rows_read)
    assert oracle.calls <= max(calls)
    assert batch.ledger.stages == max(ledger.stages for ledger in batch.ledgers)
    assert batch.ledger.evaluations <= sum(ledger.evaluations for ledger in batch.ledgers)
    # The oracle's session, where it has one, changes nothing.
    plain = draw(law.oracle(), rule, 5, orders="shared", **options)
    assert plain.sequences.tolist() == batch.sequences.tolist()
    assert plain.ledger == batch.ledger
    return batch


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"packed-theory"}))
def test_every_sampler_draws_side_by_side_what_it_draws_alone(name, law, counted):
    if name in ("centroid-layers", "planned") and isinstance(law, cp.TableLaw):
        with pytest.raises(ValueError, match=f"'{name}' needs .* forest"):
            SAMPLERS[name]().informed_by(law)
        return
    check_five(law, SAMPLERS[name]().informed_by(law), counted)


def test_infeasible_sequences_say_so_and_submit_nothing(counted):
    law = cp.families.two_type_forest(10, forests.path(10), vocab_size=3)
    oracle = counted(law.oracle())
    batch = draw(oracle, "packed-theory", 5, waive_guarantee=True)
    assert {result.stop for result in batch.results} == {cp.StopReason.INFEASIBLE}
    assert (batch.sequences == MASK).all()
    assert oracle.calls == batch.ledger.evaluations == batch.num_completed == 0


@pytest.mark.slow
def test_the_papers_sampler_in_theory_mode(counted):
    law = cp.families.two_type_path(10, 1, vocab_size=64)
    rule = cp.samplers.PackedTheory(epsilon=0.1, edge_signal=0.3, tail_tolerance=0.13)
    oracle = counted(law.oracle(), trusted=True)
    batch = draw(oracle, rule, 3)
    for k, result in enumerate(batch.results):
        assert_as_alone(result, alone(rule, law.oracle(), k))
    assert batch.ledger.evaluations == oracle.states < 2 * batch.ledgers[0].evaluations


def test_selection_without_the_right_is_charged_as_alone(law, counted):
    for rule in (cp.samplers.Threshold(0.4), cp.samplers.PUNT(0.05)):
        check_five(law, rule, counted, allowed=cp.Need.CANDIDATES)


def test_temperature_is_that_of_the_runs_alone(law, counted):
    for rule in (cp.samplers.OneBatch(), cp.samplers.LLaDA(3, confidence="candidate")):
        batch = check_five(law, rule, counted, temperature=0.5)
        assert batch.results[3].temperature == 0.5


# ----- What is shared -------------------------------------------------------------------------


def test_shared_decisions_share_one_screen(counted):
    law = cp.families.path(40, target_seed=5)
    rule = cp.samplers.Compressed()
    batch = check_five(law, rule, counted)
    one = batch.ledgers[0]
    assert one.probes > 0
    assert batch.ledger.noncommit == one.noncommit
    assert batch.ledger.commits == sum(ledger.commits for ledger in batch.ledgers)
    assert batch.results[4].diagnostics.findings.edges.tolist() == (
        batch.results[0].diagnostics.findings.edges.tolist()
    )


def test_screens_are_shared_while_histories_agree(counted):
    # Peeling makes further screens, at histories that the drawn values tell apart.
    law = cp.families.double_star(24, target_seed=5)
    rule = cp.samplers.Packed(degree_cutoff=3, num_colors=6, num_colorings=5)
    batch = check_five(law, rule, counted)
    assert any(len(result.diagnostics.screens) > 1 for result in batch.results)
    apart = sum(ledger.probes for ledger in batch.ledgers)
    assert batch.ledgers[0].probes < batch.ledger.probes < apart
    assert batch.ledger.preprocessing == 1


def test_fresh_orders_differ_and_share_nothing(law, counted):
    rule = cp.samplers.Sequential("random")
    shared = draw(law.oracle(), rule, 6)
    orders = {tuple(result.round_of_position) for result in shared.results}
    assert len(orders) == 1
    fresh = draw(law.oracle(), rule, 6, orders="fresh")
    assert len({tuple(result.round_of_position) for result in fresh.results}) > 1
    assert len({result.streams.decision_seed for result in fresh.results}) == 6
    assert {result.streams.commit_seed for result in fresh.results} == {32}
    for k, result in enumerate(fresh.results):
        assert_as_alone(result, alone(rule, law.oracle(), k, result.streams))
    target = cp.families.path(30, target_seed=5)
    oracle = counted(target.oracle())
    screens = draw(oracle, "compressed", 3, orders="fresh")
    assert screens.ledger.preprocessing == 3
    assert (
        screens.ledger.evaluations
        == oracle.states
        == sum(one.evaluations for one in screens.ledgers)
    )


@pytest.mark.parametrize("rule", ["auto", cp.samplers.Auto(0.5)])
@pytest.mark.parametrize("count", [1, 9])
def test_auto_begins_elsewhere_in_every_sequence(rule, count):
    law = cp.families.path(40, target_seed=1)
    drawn, fresh = (
        draw(law.oracle(), rule, count, **orders) for orders in ({}, {"orders": "fresh"})
    )
    assert len({result.streams.decision_seed for result in drawn.results}) == count
    begun = {int(np.argmin(result.round_of_position)) for result in drawn.results}
    assert len(begun) > 1 or count == 1
    assert drawn.sequences.tolist() == fresh.sequences.tolist()
    shared = draw(law.oracle(), rule, count, orders="shared")
    assert len({int(np.argmin(result.round_of_position)) for result in shared.results}) == 1


def test_who_shares_decisions_by_default():
    path = cp.families.path(12, target_seed=1)
    exact, soft = (cp.discover(path.oracle(), mode=mode) for mode in ("exact", "soft"))
    auto = cp.samplers.Auto()
    for name in set(SAMPLERS) - {"auto"}:
        assert default_orders(None, SAMPLERS[name]()) == "shared"
    assert default_orders(None, auto) == "fresh"
    assert default_orders(exact, as_sampler(exact)) == "shared"
    assert default_orders(soft, as_sampler(soft)) == 16
    # Whoever draws many sequences without being told goes by that.
    for what, own in ((None, 5), (exact, 1), (soft, 5)):
        asked = {} if what is None else {"structure": what}
        by_infill = cp.infill(path.oracle(), count=5, progress=False, **asked)
        by_sample = cp.sample(path.oracle(), what or "auto", 5, progress=False)
        for batch in (by_infill, by_sample):
            assert len({one.streams.decision_seed for one in batch.results}) == own
        rounds = [batch.results[4].round_of_position.tolist() for batch in (by_infill, by_sample)]
        assert what is None or rounds[0] == rounds[1]


def test_stage_k_of_all_sequences_is_one_stage(table_law, counted):
    rule = cp.samplers.Threshold(0.5)
    batch = draw(counted(table_law.oracle()), rule, 8)
    widths = np.zeros(batch.ledger.stages, dtype=int)
    for result in batch.results:
        events = [event.evaluations for event in result.transcript.events if event.evaluations]
        widths[: len(events)] += events
    assert batch.ledger.widest_stage == widths.max()
    assert widths.sum() == batch.ledger.evaluations
    stages = {ledger.stages for ledger in batch.ledgers}
    assert len(stages) > 1
    assert batch.ledger.stages == max(stages)


# ----- Context --------------------------------------------------------------------------------


def test_every_sequence_may_have_a_context_and_masks_of_its_own(law, counted):
    given = np.full((5, law.length), MASK)
    given[1, 0] = 1
    given[2, [1, 3]] = [0, 1]
    given[3] = 0
    given[4, 0] = 1
    for rule in (cp.samplers.RandomBalanced(2), cp.samplers.EntropyBounded(1.0)):
        oracle = counted(law.oracle())
        batch = draw(oracle, rule, 5, given=given)
        for k, result in enumerate(batch.results):
            assert_as_alone(result, alone(rule, law.oracle(), k, given=given[k]))
        assert batch.ledgers[3] == cp.Ledger()
        assert batch.ledger.evaluations == oracle.states
        assert batch.given.tolist() == given.tolist()
    one = draw(law.oracle(), cp.samplers.OneBatch(), 3, given=given[2])
    assert one.sequences[:, [1, 3]].tolist() == [[0, 1]] * 3


def test_a_screen_is_shared_by_equal_contexts_only(counted):
    law = cp.families.path(24, target_seed=5)
    given = np.full((4, 24), MASK)
    given[2:, 7] = 1
    rule = cp.samplers.Compressed()
    batch = draw(law.oracle(), rule, 4, given=given)
    for k, result in enumerate(batch.results):
        assert_as_alone(result, alone(rule, law.oracle(), k, given=given[k]))
    assert batch.ledger.preprocessing == 2
    assert batch.ledger.probes == batch.ledgers[0].probes + batch.ledgers[2].probes


def test_a_complete_context_costs_nothing(law, counted):
    oracle = counted(law.oracle())
    batch = draw(oracle, "random-balanced", 3, given=np.zeros(law.length, dtype=int))
    assert (batch.sequences == 0).all()
    assert oracle.calls == batch.ledger.evaluations == 0
    assert np.isnan(batch.tokens_per_forward)


# ----- Many -----------------------------------------------------------------------------------


def test_hundreds_of_sequences(uniform_oracle, counted):
    oracle = counted(uniform_oracle(6, 3), trusted=True)
    batch = draw(oracle, cp.samplers.MaskGIT(3), 400)
    assert batch.sequences.shape == (400, 6)
    assert len(np.unique(batch.sequences, axis=0)) > 100
    assert oracle.calls <= 2 * 3
    stepwise = counted(uniform_oracle(6, 3), trusted=True)
    together = draw(stepwise, cp.samplers.RandomBalanced(3), 1000, at_once=500)
    assert stepwise.calls == 6
    assert together.ledger.widest_stage == 1000


# ----- Errors ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FailsIn(Sampler):
    """Adapts to replies, and fails in one sequence after one commit."""

    name: ClassVar[str] = "fails-in"
    sequence: int = 2

    def unmask(self, view, rng):
        while not view.is_complete:
            reading = yield Read()
            yield Commit(reading.positions[:1], reading)
            if view.sequence == self.sequence:
                raise RuntimeError("the rule broke")


@dataclass(frozen=True)
class Stubborn(Sampler):
    """Catches everything it can, in sequences that did nothing wrong."""

    name: ClassVar[str] = "stubborn"

    def unmask(self, view, rng):
        for _ in range(1000):
            try:
                reading = yield Read()
                yield Commit(reading.positions[:1], reading)
            except Exception:
                if view.sequence == 1:
                    raise


@pytest.mark.parametrize("at_once", [2, 3, 256])
def test_an_error_in_one_sequence_ends_all_and_says_which(law, at_once):
    with pytest.raises(RuntimeError, match="the rule broke") as error:
        draw(law.oracle(), FailsIn(), 5, at_once=at_once)
    assert error.value.__notes__ == ["in sequence 2 of 5"]


def test_an_error_reaches_sequences_that_catch_errors(law):
    with pytest.raises(ValueError, match="the run is complete"):
        draw(law.oracle(), Stubborn(), 4)


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_an_oracle_that_fails_ends_all(table_law, counted, failing):
    class Failing(counted):
        def ask(self, query):
            if self.calls == failing - 1:
                raise ConnectionError("the model is away")
            return super().ask(query)

    for rule in (cp.samplers.Sequential("confidence"), cp.samplers.Sequential()):
        with pytest.raises(ConnectionError, match="the model is away"):
            draw(Failing(table_law.oracle()), rule, 4)
    with pytest.raises(ConnectionError) as error:
        draw(Failing(table_law.oracle()), cp.samplers.Sequential("confidence"), 4)
    assert error.value.__notes__ == ["while the oracle was asked for sequences [0, 1, 2, 3]"]


def test_a_bad_row_is_laid_at_the_door_of_its_sequence():
    def function(states):
        reply = np.full((*states.shape, 2), 0.5)
        reply[(states == 0).any(axis=1)] = np.nan
        return reply

    given = np.full((4, 3), MASK)
    given[2, 1] = 0
    with pytest.raises(cp.OracleError, match="state 0, position 0 holds a value") as error:
        draw(cp.CallableOracle(function, 3, 2), "threshold", 4, given=given)
    assert error.value.__notes__ == ["in sequence 2 of 4"]


@pytest.mark.parametrize(
    "reply",
    [lambda rows: rows.masses, lambda rows: cp.rows.DenseRows(rows.masses[1:])],
    ids=["no rows", "too few rows"],
)
def test_a_reply_that_cannot_be_shared_out_is_an_error(table_law, counted, reply):
    class Wrong(counted):
        def ask(self, query):
            return Reply(reply(super().ask(query).rows))

    with pytest.raises(cp.OracleError, match="must return"):
        draw(Wrong(table_law.oracle()), "threshold", 3)


@dataclass(frozen=True)
class FailsWhileOthersWait(Sampler):
    """The run that computes for all of them fails on its way."""

    name: ClassVar[str] = "fails-while-others-wait"

    def unmask(self, view, rng):
        def compute():
            yield Probe(view.state, view.residual)
            raise RuntimeError("no structure")

        yield Share("structure", compute())


@dataclass(frozen=True)
class CrossWaits(Sampler):
    """Two runs that wait for what the other computes: no rule of one seed and history does."""

    name: ClassVar[str] = "cross-waits"

    def unmask(self, view, rng):
        names = ["a", "b"] if view.sequence else ["b", "a"]

        def inner():
            yield Probe(view.state, view.residual)

        def outer():
            yield Probe(view.state, view.residual)
            yield Share(names[1], inner())

        yield Share(names[0], outer())


@dataclass(frozen=True)
class CommitsOnce(Sampler):
    """Commits inside what is to be shared."""

    name: ClassVar[str] = "commits-once"

    def unmask(self, view, rng):
        def commit():
            yield Commit(view.residual)

        yield Share("all", commit())


def test_sequences_that_wait_for_a_shared_result_do_not_hang_when_it_fails(law):
    with pytest.raises(RuntimeError, match="no structure") as error:
        draw(law.oracle(), FailsWhileOthersWait(), 4)
    assert error.value.__notes__ == ["in sequence 0 of 4"]
    with pytest.raises(cp.CounterprobeError, match="wait for what each other is to compute"):
        draw(law.oracle(), CrossWaits(), 2)
    with pytest.raises(cp.CounterprobeError, match="must not draw nor commit"):
        draw(law.oracle(), CommitsOnce(), 2)


@dataclass(frozen=True)
class Interrupted(Sampler):
    """Somebody presses Ctrl-C while a run is thinking."""

    name: ClassVar[str] = "interrupted"

    def unmask(self, view, rng):
        while not view.is_complete:
            reading = yield Read()
            yield Commit(reading.positions[:1], reading)
            if view.sequence == 1 and len(view.residual) == 2:
                os.kill(os.getpid(), signal.SIGINT)
                threading.Event().wait(0.2)


@pytest.fixture
def ctrl_c_arrives():
    """Receive Ctrl-C as a shell in the foreground would let us; background shells ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_arrives")
def test_ctrl_c_ends_every_sequence(law, counted):
    for oracle in (law.oracle(), counted(law.oracle())):
        with pytest.raises(KeyboardInterrupt):
            cp.sample(oracle, Interrupted(), 4, progress=False)
        assert running() == 0


@pytest.mark.usefixtures("ctrl_c_arrives")
def test_ctrl_c_inside_the_oracle_ends_every_sequence(table_law, counted):
    class Slow(counted):
        def ask(self, query):
            os.kill(os.getpid(), signal.SIGINT)
            return super().ask(query)

    with pytest.raises(KeyboardInterrupt):
        cp.sample(Slow(table_law.oracle()), "threshold", 4, progress=False)
    assert running() == 0


def test_zero_probability_warns_once_for_all():
    bits = cp.TableLaw(np.reshape([1] + [0] * 14 + [1], (2,) * 4))
    for rule in (cp.samplers.Sequential(), cp.samplers.Sequential("confidence")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batch = cp.sample(bits.oracle(), rule, 6, progress=False)
        assert [w.category for w in caught] == [cp.errors.ZeroProbabilityWarning]
        assert (batch.sequences == batch.sequences[:, :1]).all()


def test_settings_of_the_callers_thread_hold_in_every_sequence(table_law):
    seen = []

    @dataclass(frozen=True)
    class Looks(Sampler):
        name: ClassVar[str] = "looks"

        def unmask(self, view, rng):
            seen.append(np.geterr()["divide"])
            reading = yield Read()
            yield Commit(reading.positions, reading)

    with np.errstate(divide="raise"):
        cp.sample(table_law.oracle(), Looks(), 3, progress=False)
    assert set(seen) == {"raise"}


# ----- Budgets --------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2, 3, 50])
def test_a_budget_stops_each_sequence_where_it_would_alone(law, counted, most):
    for rule in (
        cp.samplers.Sequential(),
        cp.samplers.Threshold(0.5),
        cp.samplers.PUNT(0.05),
        cp.samplers.Compressed(fallback=True),
    ):
        batch = check_five(law, rule, counted, max_evaluations=most)
        assert max(ledger.evaluations for ledger in batch.ledgers) <= most
        for result in batch.results:
            spent = result.stop is cp.StopReason.BUDGET_SPENT
            assert (result.tokens is None) == spent
            assert spent == bool((result.state == MASK).any())


@pytest.mark.parametrize(("method", "spent"), [("auto", 29), ("regression", 17)])
def test_a_budget_spent_in_a_shared_screen_is_charged_once(counted, method, spent):
    oracle = counted(cp.families.path(40, target_seed=5).oracle())
    batch = draw(oracle, cp.samplers.Compressed(method=method), 4, max_evaluations=30)
    assert {result.stop for result in batch.results} == {cp.StopReason.BUDGET_SPENT}
    assert [ledger.evaluations for ledger in batch.ledgers] == [spent] * 4
    assert oracle.states == batch.ledger.evaluations == spent


# ----- The call -------------------------------------------------------------------------------


def test_a_seed_and_its_streams_are_the_same(law):
    by_seed = cp.sample(law.oracle(), "threshold", 2, seed=4, progress=False)
    by_streams = cp.sample(
        law.oracle(), "threshold", 2, seed=cp.Streams.from_seed(4), progress=False
    )
    assert by_seed.sequences.tolist() == by_streams.sequences.tolist()
    other = cp.sample(law.oracle(), "sequential", 2, seed=5, progress=False)
    again = cp.sample(law.oracle(), "sequential", 2, seed=5, progress=False)
    assert other.sequences.tolist() == again.sequences.tolist()


def test_no_setting_of_a_sampler_is_taken_for_an_argument():
    arguments = set(cp.sample.__annotations__) - {"settings"}
    for cls in SAMPLERS.values():
        assert not arguments & {knob.name for knob in fields(cls)}


def following(sequence: int) -> cp.run.Listener:
    """Somebody who wants to hear all that one sequence does."""
    return cp.run.Listener(print, (), sequence)


def test_bad_arguments_are_refused_before_anything_is_asked(law, counted):
    oracle = counted(law.oracle())
    n = law.length
    for message, change in {
        "unknown sampler 'best'": {"sampler": "best"},
        "sampler must be a name, a Sampler or a structure, got 3": {"sampler": 3},
        "has no setting 'speed'": {"sampler": "punt", "speed": 3},
        "settings go with a sampler's name; PUNT has its own, so put epsilon there": {
            "sampler": cp.samplers.PUNT(),
            "epsilon": 1.0,
        },
        "count must be at least 1, got 0": {"count": 0},
        r"count must be a whole number, got 1\.5": {"count": 1.5},
        "seed must be a non-negative integer, got -1": {"seed": -1},
        "orders must be shared, fresh or a number of groups; got 'new'": {"orders": "new"},
        rf"given must have shape \({n},\) or \(3, {n}\), got \(2, {n}\)": {
            "given": np.full((2, n), MASK)
        },
        "at_once must be at least 1, got 0": {"at_once": 0},
        "max_evaluations must be at least 0, got -1": {"max_evaluations": -1},
        "temperature must be finite": {"temperature": -1.0},
        "a listener must follow a sequence from 0 to 2, got 3": {"on_event": following(3)},
        "a listener must follow a sequence from 5 to 7, got 4": {
            "on_event": following(4),
            "first": 5,
        },
    }.items():
        options: dict[str, Any] = {"sampler": "threshold", "count": 3, "progress": False, **change}
        with pytest.raises(ValueError, match=message):
            cp.sample(oracle, **options)
    with pytest.raises(ValueError, match=r"call law\.oracle\(\)"):
        cp.sample(law, "threshold")
    assert oracle.calls == 0


def test_whole_numbers_may_be_written_as_floats(uniform_oracle):
    oracle = cp.CallableOracle(lambda states: np.full((*states.shape, 4), 0.25), 3.0, 4.0)
    batch = cp.sample(oracle, "threshold", 2.0, progress=False, at_once=2.0)
    assert batch.sequences.shape == (2, 3)
    with pytest.raises(ValueError, match=r"oracle\.length must be a whole number, got 2\.5"):
        cp.sample(uniform_oracle(2.5), "threshold", progress=False)


@pytest.mark.parametrize("rule", ["one-batch", "threshold", "compressed"])
@pytest.mark.parametrize("count", [1, 4])
def test_progress_is_that_of_the_whole(law, rule, count, counted):
    told: list[cp.run.Progress] = []
    given = np.full(law.length, MASK)
    given[0] = 1
    options = {"fallback": True} if rule == "compressed" else {}
    oracle = counted(law.oracle())
    listener = cp.run.Listener(told.append, cp.run.Progress)
    batch = cp.sample(oracle, rule, count, given=given, on_event=listener, **options)
    assert {progress.masked for progress in told} == {count * (law.length - 1)}
    committed = [progress.committed for progress in told]
    assert committed == sorted(committed)
    assert committed[-1] == count * (law.length - 1)
    assert committed[0] < committed[-1] or len(set(committed)) == 1
    assert told[-1].ledger == batch.ledger


class Terminal(io.StringIO):
    """What rich takes for a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_is_shown_on_a_terminal_and_only_when_wanted(law, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for progress, is_shown in ((True, True), (False, False)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        cp.sample(law.oracle(), "threshold", 3, progress=progress)
        assert ("threshold" in terminal.getvalue()) is is_shown


def test_nothing_is_shown_without_a_terminal(law, capfd):
    cp.sample(law.oracle(), "threshold", 3)
    assert capfd.readouterr() == ("", "")


def test_the_example_of_the_design_runs_as_written():
    law = cp.families.path(length=4096, target_seed=196)
    run = cp.run.Run(law.oracle())
    result = cp.samplers.Sequential()(run, cp.Streams(decision_seed=1, commit_seed=2))
    assert (result.ledger.evaluations, result.ledger.stages, str(result.stop)) == (
        4096,
        4096,
        "completed",
    )
    assert cp.evaluation.batch_kl(law, result).value == 0.0


@pytest.mark.parametrize("rule", ["random-balanced", "maskgit", "punt", "threshold", "compressed"])
def test_groups_share_decisions_and_log_probs_are_those_of_the_rows(law, rule):
    many = cp.sample(law.oracle(), rule, 5, seed=3, orders=2, log_probs=True, progress=False)
    seeds = [result.streams.decision_seed for result in many.results]
    assert seeds[:3] == [seeds[0]] * 3
    assert seeds[3:] == [seeds[3]] * 2
    assert seeds[0] != seeds[3]
    assert many.log_probs is not None
    for result, total in zip(many.results, many.log_probs, strict=True):
        expected = 0.0
        for state, batch in zip(result.history[:-1], result.batches, strict=True):
            rows = law.oracle().rows(state[None, :], cp.Readouts.same(1, batch))
            expected += float(rows.log_prob(result.tokens[batch]).sum())
        assert total == pytest.approx(expected)


@pytest.mark.parametrize("rule", ["random-balanced", "threshold"])
def test_every_commit_round_is_told(law, rule):
    steps = []
    listener = cp.run.Listener(steps.append, cp.run.Step)
    many = cp.sample(law.oracle(), rule, 3, seed=3, on_event=listener, progress=False)
    seen = [[], [], []]
    for step in steps:
        for k, state in zip(step.sequences, step.states, strict=True):
            assert step.round == len(seen[k])
            seen[k].append(state.tolist())
    for k, history in enumerate(result.history for result in many.results):
        assert history[1:].tolist() == seen[k]
        assert (history[0] == cp.MASK).all()
        assert history[-1].tolist() == many.sequences[k].tolist()


def test_a_number_of_groups_above_the_count_is_fresh_orders(law):
    fresh = cp.sample(law.oracle(), "random-balanced", 4, orders="fresh", progress=False)
    many = cp.sample(law.oracle(), "random-balanced", 4, orders=9, progress=False)
    assert fresh.sequences.tolist() == many.sequences.tolist()


@dataclass(frozen=True)
class Uneven(Sampler):
    """As many batches as the decision seed says."""

    name: ClassVar[str] = "uneven"
    summary: ClassVar[str] = "two to five batches"
    source: ClassVar[str] = "a test"

    def unmask(self, view, rng):
        yield CommitAll(np.array_split(view.residual, int(rng("number").integers(2, 6))))


def test_groups_of_unequal_length_stop_and_step_each_for_itself(forest_law, counted):
    steps: list[cp.run.Step] = []
    listener = cp.run.Listener(steps.append, cp.run.Step)
    oracle = counted(forest_law.oracle())  # without sessions, so that groups are drawn together
    many = cp.sample(oracle, Uneven(), 12, orders=4, max_evaluations=3,
                     on_event=listener, progress=False)  # fmt: skip
    alone = cp.sample(oracle, Uneven(), 12, orders=4, progress=False)
    lengths = [len(result.batches) for result in alone.results]
    assert min(lengths) <= 3 < max(lengths)
    for result, length in zip(many.results, lengths, strict=True):
        assert (result.stop is cp.StopReason.COMPLETED) == (length <= 3)
        assert (result.tokens is not None) == (length <= 3)
    for step in steps:
        assert step.sequences.tolist() == [k for k in range(12) if lengths[k] > step.round]
        assert len(step.states) == len(step.sequences)
