"""The base class of samplers, and that decisions follow from the history."""

import multiprocessing
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Commit, CommitAll, Preprocess
from counterprobe.samplers import Sampler

STREAMS = cp.Streams(21, 22)


def sample(sampler: Sampler, law, streams: cp.Streams = STREAMS, **options) -> cp.SampleResult:
    return sampler(cp.run.Run(law.oracle(), **options), streams)


@pytest.mark.parametrize("order", ["index", "confidence", "entropy"])
def test_decisions_from_one_history_do_not_depend_on_the_commit_seed(order, law):
    # Start again from each history of a run: the next batch is the one that run chose, whatever
    # was drawn with which seed. A random order is left out: it permutes what is left at the start.
    sampler = cp.samplers.Sequential(order)
    result = sample(sampler, law)
    history = np.full(law.length, cp.MASK)
    for batch in result.batches:
        for seed in (1, 2, 3):
            again = sample(sampler, law, cp.Streams(21, seed), given=history)
            assert again.batches[0].tolist() == batch.tolist()
        history[batch] = result.tokens[batch]


@pytest.mark.slow
def test_a_spawned_process_draws_the_same(forest_law):
    runs = [
        (sampler, cp.run.Run(forest_law.oracle(), sequence=2))
        for sampler in (
            cp.samplers.Sequential("random"),
            cp.samplers.Sequential("confidence"),
            cp.samplers.RandomBalanced(3),
        )
    ]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        # A sampler is a callable that pickles, so the child needs no code of this test.
        elsewhere = [pool.apply(sampler, (run, STREAMS)) for sampler, run in runs]
        options = {"seed": STREAMS, "progress": False}
        order = (forest_law.oracle(), cp.samplers.Threshold(), 3)
        many = pool.apply(cp.sample, order, options)
    for (sampler, run), result in zip(runs, elsewhere, strict=True):
        here = sampler(run, STREAMS)
        assert result.tokens.tolist() == here.tokens.tolist()
        assert result.round_of_position.tolist() == here.round_of_position.tolist()
        assert result.ledger == here.ledger
    expected = cp.sample(*order, **options)
    assert many.sequences.tolist() == expected.sequences.tolist()
    assert many.ledger == expected.ledger


# ----- The base class -----------------------------------------------------------------------


@dataclass(frozen=True)
class Halves(Sampler):
    """Two batches, without a reply."""

    name: ClassVar[str] = "halves"

    def unmask(self, view, rng):
        yield CommitAll([view.residual[::2], view.residual[1::2]])


@dataclass(frozen=True)
class Half(Sampler):
    """Stops too early."""

    name: ClassVar[str] = "half"

    def unmask(self, view, rng):
        yield CommitAll([view.residual[::2]])


@dataclass(frozen=True)
class Unwilling(Sampler):
    """Looks once and gives up."""

    name: ClassVar[str] = "unwilling"

    def unmask(self, view, rng):
        yield Preprocess()
        raise cp.Infeasible("3 colors are too few for degree 7")


@dataclass(frozen=True)
class Telling(Sampler):
    """Notes, diagnoses, and sees decision randomness only."""

    name: ClassVar[str] = "telling"

    def unmask(self, view, rng):
        assert not hasattr(rng, "commit_seed")
        view.note("order", residual=view.residual)
        yield Commit(rng("order").permutation(view.residual))
        return {"rounds": 1}


@dataclass(frozen=True)
class Empty(Sampler):
    """Forgets to yield."""

    name: ClassVar[str] = "empty"

    def unmask(self, view, rng):
        Commit(view.residual)


def test_batches_fixed_at_once_are_enough_to_be_a_sampler(law):
    result = sample(Halves(), law)
    evens = list(range(0, law.length, 2))
    assert [batch.tolist() for batch in result.batches] == [
        evens,
        [i for i in range(law.length) if i not in evens],
    ]
    assert result.ledger.evaluations == result.ledger.stages == 2
    many = cp.sample(law.oracle(), Halves(), 2, seed=STREAMS, progress=False)
    assert many.sequences[0].tolist() == list(result.tokens)


def test_diagnostics_and_notes_reach_the_result(law):
    result = sample(Telling(), law, keep_notes=True)
    assert result.diagnostics == {"rounds": 1}
    assert [note.name for note in result.transcript.notes] == ["order"]
    assert sample(Telling(), law).transcript.notes == []


def test_a_rule_that_stops_early_is_an_error(law):
    left = law.length // 2
    with pytest.raises(
        cp.CounterprobeError, match=f"'half' stopped with {left} of {law.length} positions"
    ):
        sample(Half(), law)


def test_an_infeasible_rule_becomes_a_stop_reason(law):
    with pytest.warns(
        cp.errors.InfeasibleWarning, match="unwilling drew nothing after 1 evaluation:"
    ):
        result = sample(Unwilling(), law)
    assert result.tokens is None
    assert result.stop is cp.StopReason.INFEASIBLE
    assert result.reason == "3 colors are too few for degree 7"
    assert result.ledger.evaluations == 1
    assert result.batches == []
    assert result.summary()["stop"] == "infeasible"


def test_a_rule_that_is_no_generator_is_an_error(law):
    with pytest.raises(TypeError, match="a rule must be a generator that yields requests"):
        sample(Empty(), law)
    with pytest.raises(TypeError, match="a rule must be a generator that yields requests"):
        cp.sample(law.oracle(), Empty(), 2, progress=False)


def test_a_bad_oracle_leaves_the_run_with_what_was_committed():
    calls = 0

    def function(states):
        nonlocal calls
        calls += 1
        return np.full((*states.shape, 2), 0.5 if calls < 3 else np.nan)

    run = cp.run.Run(cp.CallableOracle(function, 4, 2))
    with pytest.raises(cp.OracleError, match="state 0, position 2 holds a value"):
        cp.samplers.Sequential()(run, STREAMS)
    assert run.residual.tolist() == [2, 3]
    assert run.ledger.commits == 2


# ----- Budgets and seeds --------------------------------------------------------------------


def test_a_budget_stops_a_run_before_the_evaluation_that_would_pass_it(law, counted):
    oracle = counted(law.oracle())
    result = cp.samplers.Sequential()(cp.run.Run(oracle, max_evaluations=3), STREAMS)
    whole = sample(cp.samplers.Sequential(), law)
    assert result.stop is cp.StopReason.BUDGET_SPENT
    assert result.reason == (
        "max_evaluations is 3 and going on would make 4; permit more, or choose a sampler that "
        "needs fewer"
    )
    assert result.tokens is None
    assert result.state[:3].tolist() == whole.tokens[:3].tolist()
    assert (result.state[3:] == cp.MASK).all()
    assert result.round_of_position.tolist() == [0, 1, 2] + [-2] * (law.length - 3)
    assert oracle.states == result.ledger.evaluations == 3
    assert result.transcript.replay() == result.ledger


def test_a_budget_counts_probes_and_stops_inside_a_stage(law, counted):
    oracle = counted(law.oracle())
    result = cp.samplers.Compressed()(cp.run.Run(oracle, max_evaluations=40), STREAMS)
    assert result.stop is cp.StopReason.BUDGET_SPENT
    assert oracle.states == result.ledger.evaluations == 1 + 32  # two requests of sixteen fit
    assert (result.state == cp.MASK).all()


def test_a_budget_that_suffices_changes_nothing(law):
    free = sample(cp.samplers.PUNT(), law)
    enough = sample(cp.samplers.PUNT(), law, max_evaluations=free.ledger.evaluations)
    assert enough.stop is cp.StopReason.COMPLETED
    assert enough.tokens.tolist() == free.tokens.tolist()
    given = np.zeros(law.length, dtype=int)
    nothing = sample(cp.samplers.Sequential(), law, given=given, max_evaluations=0)
    assert nothing.stop is cp.StopReason.COMPLETED


def test_a_plain_seed_in_place_of_streams_is_refused(law, counted):
    oracle = counted(law.oracle())
    with pytest.raises(ValueError, match=r"got 3; from one seed: Streams.from_seed\(3\)"):
        cp.samplers.Sequential()(cp.run.Run(oracle), 3)
    with pytest.raises(ValueError, match="streams must be a Streams, got None"):
        cp.run.Run(oracle).begin(None)
    assert oracle.calls == 0


def test_a_label_has_what_differs_from_the_defaults_and_the_swept_setting_as_asked():
    usual, changed = cp.samplers.LLaDA(), cp.samplers.LLaDA(steps=7, block_length=4)
    assert usual.sweep is not None and usual.sweep.setting == "steps"
    assert usual.label() == usual.label(swept=False) == "llada"
    assert usual.label(swept=True) == f"llada steps={usual.steps}"
    assert changed.label() == "llada steps=7 block_length=4"
    assert changed.label(swept=False) == "llada block_length=4"
    assert changed.label(swept=True) == "llada steps=7 block_length=4"
    assert cp.samplers.Sequential("random").label(swept=True) == "sequential order=random"
