"""What every sampler keeps to, whatever its rule.

Each check takes a sampler and the laws to try it on. What a sampler must know about a law is
taken from the law (``informed_by``). A law that it refuses before the first evaluation, by an
infeasible result or a ``ValueError``, is passed over; at least one must work.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields

import numpy as np

from counterprobe.evaluation.output_law import draw_tree_law, exact_output_law
from counterprobe.oracles import Oracle
from counterprobe.run.ledger import Ledger, Need
from counterprobe.run.results import SampleResult
from counterprobe.run.run import Run
from counterprobe.samplers.base import Sampler, fixed_batches
from counterprobe.sampling import sample
from counterprobe.states import MASK, fingerprint
from counterprobe.streams import Streams
from counterprobe.targets import families
from counterprobe.testing.cases import (
    STREAMS,
    ConformanceError,
    Laws,
    attempt,
    batches_made,
    cases,
    degenerate_laws,
    possible,
    require,
    tiny_laws,
)
from counterprobe.testing.wrappers import (
    CountingOracle,
    ListingRun,
    NotingRun,
    PiecewiseOracle,
    asked_by_stage,
    first_other_stage,
)

__all__ = ["SAMPLER_CHECKS", "SamplerCheck", "check_sampler", "check_stages"]

# Draws of a rule that verifies; chi-square on 7 degrees of freedom passes 60 with chance 1.5e-10.
NUM_DRAWS, MOST_SURPRISE = 300, 60.0
SamplerCheck = Callable[..., None]


def check_sampler(sampler: Sampler, laws: Laws = None) -> None:
    """Run every check.

    Parameters
    ----------
    sampler : Sampler
    laws : sequence of ForestLaw or TableLaw, optional
        Laws it can work on, of at least three positions; two small ones by default.
    """
    for check in SAMPLER_CHECKS:
        check(sampler, laws)


def _again(sampler: Sampler, oracle: Oracle, streams: Streams = STREAMS) -> SampleResult:
    return sampler(Run(oracle), streams)


def _same(one: SampleResult, other: SampleResult) -> bool:
    return (
        np.array_equal(one.tokens, other.tokens)  # type: ignore[arg-type]
        and np.array_equal(one.round_of_position, other.round_of_position)
        and one.ledger == other.ledger
    )


def check_completion(sampler: Sampler, laws: Laws = None) -> None:
    """Require a token at every position, never the mask, in batches of at least one."""
    for told, law, result in cases(sampler, laws):
        tokens = result.tokens
        assert tokens is not None
        require(tokens.shape == (law.length,), sampler.name, f"tokens have shape {tokens.shape}")
        in_range = bool(((tokens >= 0) & (tokens < law.vocab_size)).all())
        require(in_range, sampler.name, "drew the mask, or no token at all")
        committed = np.sort(np.concatenate(result.batches))
        whole = np.array_equal(committed, np.arange(law.length))
        require(whole, sampler.name, "batches must hold every position exactly once")
        made = batches_made(result)
        require(
            len(made) == result.ledger.commits,
            sampler.name,
            f"{result.ledger.commits} commits for {len(made)} batches",
        )
        require(
            bool(result.undone) or len(made) == len(result.batches),
            sampler.name,
            "a batch must stand unless commits were taken back",
        )
        require(result.sampler == sampler.name, sampler.name, "the result has another name")
        require(result.settings == told.settings, sampler.name, "the result has other settings")


def check_remasking(sampler: Sampler, laws: Laws = None) -> None:
    """Require that commits taken back add up, and that each state submitted was the history.

    Given context is never masked. A rule that does not declare ``REMASK`` takes nothing back.
    """
    for told, law, _ in cases(sampler, laws):
        given = np.full(law.length, MASK)
        given[1] = possible(law)[1]
        result = told(Run(law.oracle(), given=given), STREAMS)
        if Need.REMASK not in told.needs:
            require(result.undone == 0, sampler.name, "took commits back without REMASK")
        masked = [e.positions for e in result.transcript.events if e.operation == "remask"]
        committed = sum(len(batch) for batch in batches_made(result))
        require(
            sum(map(len, masked)) == result.undone == committed - (law.length - 1),
            sampler.name,
            f"{committed} positions committed and {result.undone} taken back do not leave "
            f"{law.length - 1}",
        )
        states = result.history
        shown = states[:, 1] == given[1]
        require(bool(shown.all()), sampler.name, "masked given context")
        is_commit = np.diff((states != MASK).sum(axis=1)) > 0
        prints = [e.fingerprints[0] for e in result.transcript.events if e.operation == "commit"]
        require(
            np.array_equal(fingerprint(states[:-1][is_commit]), prints),
            sampler.name,
            "a commit was submitted at another state than the history",
        )


def check_progress(sampler: Sampler, laws: Laws = None) -> None:
    """Require an end on ties, certain rows, copied bits, one position and one token."""
    for law in degenerate_laws():
        result = attempt(sampler, law)[1]
        if result is not None and result.tokens is not None:
            is_whole = bool((result.tokens >= 0).all())
            require(is_whole, sampler.name, f"left masks on {law.name}")


def check_ledger(sampler: Sampler, laws: Laws = None) -> None:
    """Require the charges that a counting oracle has counted, with notes and without."""
    for told, law, _ in cases(sampler, laws):
        for keep_notes in (False, True):
            oracle = CountingOracle(law.oracle())
            result = told(Run(oracle, keep_notes=keep_notes), STREAMS)
            ledger = result.ledger
            require(
                (ledger.evaluations, ledger.rows_read) == (oracle.states, oracle.rows_read),
                sampler.name,
                f"charged {ledger.evaluations} evaluations and {ledger.rows_read} rows, asked for "
                f"{oracle.states} and {oracle.rows_read}",
            )
            # A stage may ask in several pieces, so calls only bound the stages.
            require(ledger.stages <= oracle.calls, sampler.name, "more stages than calls")
            require(
                result.transcript.replay() == ledger, sampler.name, "the transcript replays wrong"
            )


def check_stages(sampler: Sampler, laws: Laws = None) -> None:
    """Require stages whose requests do not depend on the replies of the same stage.

    The sampler runs twice, the second time through a door that lists the requests of each stage
    before it asks anything: every stage must ask for the same states and readouts in both runs.
    """
    for told, law, _ in cases(sampler, laws):
        plain, listed = CountingOracle(law.oracle()), CountingOracle(law.oracle())
        result = told(Run(plain), STREAMS)
        try:
            again = told(ListingRun(listed), STREAMS)
        except Exception as problem:
            raise ConformanceError(
                f"{sampler.name}: cannot list the requests of a stage before its first reply "
                f"({type(problem).__name__}: {problem}); a stage's requests must not depend on "
                "its replies, use one stage for each"
            ) from problem
        differs = first_other_stage(
            asked_by_stage(plain, result.transcript), asked_by_stage(listed, again.transcript)
        )
        require(
            differs is None,
            sampler.name,
            f"stage {differs} asks otherwise when its requests are listed before the first reply; "
            "they must not depend on its replies, use one stage for each",
        )


def check_needs(sampler: Sampler, laws: Laws = None) -> None:
    """Require that a rule yields what it declares, and that selecting can be paid for by a probe.

    A rule that may probe, read attention or mask again need not do so in every run; everything
    else that is declared is used.
    """
    for told, law, selecting in cases(sampler, laws):
        needless = Need.PROBE | Need.ATTENTION | Need.REMASK
        noting = NotingRun(law.oracle())
        told(noting, STREAMS)
        for used in (noting.yielded, selecting.used | noting.yielded & ~Need.GRANTED):
            require(
                used | (told.needs & needless) == told.needs,
                sampler.name,
                f"used {used.names()}, declared {told.needs.names()}",
            )
        selects = Need.SELECT in told.needs
        selected = selecting.ledger.selected_commits
        require(
            selected == (selecting.ledger.commits if selects else 0),
            sampler.name,
            "every commit of a rule that selects after the reply must be counted as selected",
        )
        needed = told.needs & Need.GRANTED & ~Need.SELECT
        oracle = CountingOracle(law.oracle())
        if needed:
            try:
                told(Run(oracle, allowed=Need.SELECT), STREAMS)
            except ValueError:
                require(oracle.calls == 0, sampler.name, "asked before it was refused")
            else:
                raise ConformanceError(f"{sampler.name}: ran without {needed.names()}")
        without = told(Run(oracle, allowed=needed), STREAMS)
        require(
            np.array_equal(without.tokens, selecting.tokens),  # type: ignore[arg-type]
            sampler.name,
            "drew other tokens where selecting costs a probe",
        )
        require(
            without.ledger.evaluations
            == selecting.ledger.evaluations_without_selection
            == oracle.states
            and without.ledger.stages == selecting.ledger.stages_without_selection,
            sampler.name,
            "where selecting is not allowed each selected commit must cost one evaluation and "
            "one stage more",
        )
        require(without.transcript.replay() == without.ledger, sampler.name, "replays wrong")


def check_seeds(sampler: Sampler, laws: Laws = None) -> None:
    """Require the same result from the same streams, pickled or not, and another from others."""
    for told, law, result in cases(sampler, laws):
        require(_same(_again(told, law.oracle()), result), sampler.name, "did not repeat itself")
        copy = pickle.loads(pickle.dumps(told))
        require(_same(_again(copy, law.oracle()), result), sampler.name, "changed by pickling")
    target = families.path(24, target_seed=1)
    maybe, first, _ = attempt(sampler, target)
    if maybe is None or first is None:
        return
    told = maybe
    other = _again(told, target.oracle(), Streams(STREAMS.decision_seed, 23))
    require(
        not np.array_equal(first.tokens, other.tokens),  # type: ignore[arg-type]
        sampler.name,
        "another commit seed drew the same 24 tokens",
    )
    next_one = told(Run(target.oracle(), sequence=1), STREAMS)
    require(
        not np.array_equal(first.tokens, next_one.tokens),  # type: ignore[arg-type]
        sampler.name,
        "the next sequence of the same seed drew the same 24 tokens",
    )


def check_decisions(sampler: Sampler, laws: Laws = None) -> None:
    """Require a first batch that does not depend on what will be drawn.

    Rules that choose among drawn candidates, or keep those that pass a test, are exempt: they
    declare it.
    """
    for told, law, _ in cases(sampler, laws):
        if told.needs & (Need.CANDIDATES | Need.VERIFY):
            continue
        given = np.full(law.length, MASK)
        given[1] = possible(law)[1]
        first = {
            tuple(batches_made(told(Run(law.oracle(), given=given), Streams(21, seed)))[0])
            for seed in range(6)
        }
        require(len(first) == 1, sampler.name, "its first batch depends on the commit seed")
        if fixed_batches(told, Run(law.oracle()), STREAMS.decisions) is None:
            continue
        rounds = {
            tuple(_again(told, law.oracle(), Streams(21, seed)).round_of_position)
            for seed in range(6)
        }
        require(len(rounds) == 1, sampler.name, "its schedule depends on the commit seed")


def check_batch_invariance(sampler: Sampler, laws: Laws = None) -> None:
    """Require one result, whether rows come one at a time, together or from a session."""
    for told, law, result in cases(sampler, laws):
        for oracle in (PiecewiseOracle(law.oracle()), CountingOracle(law.oracle())):
            require(
                _same(_again(told, oracle), result),
                sampler.name,
                f"gave another result through {type(oracle).__name__}",
            )


def check_given_context(sampler: Sampler, laws: Laws = None) -> None:
    """Require that context is kept, costs nothing and is never masked in an evaluation."""
    for told, law, _ in cases(sampler, laws):
        given = np.full(law.length, MASK)
        given[[0, 2]] = possible(law)[[0, 2]]
        oracle = CountingOracle(law.oracle())
        result = told(Run(oracle, given=given), STREAMS)
        assert result.tokens is not None
        known = given != MASK
        kept = np.array_equal(result.tokens[known], given[known])
        require(kept, sampler.name, "changed given context")
        shown = all((states[:, known] == given[known]).all() for states in oracle.seen)
        require(shown, sampler.name, "submitted a state without the given context")
        count = sum(len(batch) for batch in result.batches)
        require(count == law.length - 2, sampler.name, "committed given context")


def check_complete_input(sampler: Sampler, laws: Laws = None) -> None:
    """Require that an input with nothing masked comes back without an evaluation."""
    for told, law, _ in cases(sampler, laws):
        given = possible(law)
        oracle = CountingOracle(law.oracle())
        result = told(Run(oracle, given=given), STREAMS)
        free = result.ledger == Ledger() and oracle.calls == 0
        require(free, sampler.name, "charged for a complete input")
        require(
            np.array_equal(result.tokens, given),  # type: ignore[arg-type]
            sampler.name,
            "changed a complete input",
        )


def check_side_by_side(sampler: Sampler, laws: Laws = None) -> None:
    """Require of sequences drawn side by side the tokens and ledgers of one by one."""
    for told, law, _ in cases(sampler, laws):
        oracle = CountingOracle(law.oracle())
        together = sample(oracle, told, 3, seed=STREAMS, orders="shared", progress=False)
        require(
            (together.ledger.evaluations, together.ledger.rows_read)
            == (oracle.states, oracle.rows_read),
            sampler.name,
            "sequences side by side are charged wrong",
        )
        for k, result in enumerate(together.results):
            alone = told(Run(law.oracle(), sequence=k), STREAMS)
            require(_same(result, alone), sampler.name, f"sequence {k} differs beside others")


def check_settings(sampler: Sampler, laws: Laws = None) -> None:
    """Require settings that cannot be edited and build an equal sampler."""
    for knob in fields(sampler):
        try:
            setattr(sampler, knob.name, None)
        except FrozenInstanceError:
            continue
        raise ConformanceError(f"{sampler.name}: setting {knob.name!r} can be edited")
    require(type(sampler)(**sampler.settings) == sampler, sampler.name, "settings do not rebuild")
    if sampler.sweep is not None:
        names = [knob.name for knob in fields(sampler)]
        require(sampler.sweep.setting in names, sampler.name, "sweeps a setting it does not have")


def check_exactness(sampler: Sampler, laws: Laws = None) -> None:
    """Require the target as output law, by enumeration to 1e-12, where exactness is claimed.

    Small laws of its own are used, whatever ``laws`` says. Rules that verify have no end of ways
    to draw: a few hundred draws are judged instead, which shows what is grossly wrong.
    """
    if Need.VERIFY in sampler.needs:
        _check_draws(sampler)
        return
    commits_candidates = Need.CANDIDATES in sampler.needs
    for law in tiny_laws(3 if commits_candidates else 4):
        told = attempt(sampler, law)[0]
        if told is None or not told.exact_for(law.length):
            continue
        for seed in range(3):
            if commits_candidates:
                output = draw_tree_law(law, told, decision_seed=seed)
            else:
                replayed = exact_output_law(law, told, decision_seed=seed)
                output = None if replayed is None else replayed.output
            if output is None:
                continue
            sequences = np.indices(output.shape).reshape(law.length, -1).T
            target = np.exp(law.log_prob(sequences)).reshape(output.shape)
            gap = float(np.abs(output - target).sum() / 2)
            require(gap < 1e-12, sampler.name, f"claims to be exact but is {gap:.3g} off in TV")


def _check_draws(sampler: Sampler) -> None:
    """Compare draws with the target by chi-square, where exactness is claimed."""
    for law in tiny_laws(3):
        told = attempt(sampler, law)[0]
        if told is None or not told.exact_for(law.length):
            continue
        oracle = law.oracle()
        target = np.exp(law.log_prob(np.indices((2,) * 3).reshape(3, -1).T))
        counts = np.zeros(8)
        for k in range(NUM_DRAWS):
            run = Run(oracle.declaring(trusted=True), sequence=k)
            tokens = told(run, Streams(k, 5)).tokens
            counts[np.ravel_multi_index(tuple(tokens), (2,) * 3)] += 1  # type: ignore[arg-type]
        surprise = float(((counts - NUM_DRAWS * target) ** 2 / (NUM_DRAWS * target)).sum())
        require(
            surprise < MOST_SURPRISE,
            sampler.name,
            f"claims to be exact but {NUM_DRAWS} draws have chi-square {surprise:.0f} on 7 "
            "degrees of freedom",
        )


SAMPLER_CHECKS: tuple[SamplerCheck, ...] = (
    check_completion,
    check_remasking,
    check_progress,
    check_ledger,
    check_stages,
    check_needs,
    check_seeds,
    check_decisions,
    check_batch_invariance,
    check_given_context,
    check_complete_input,
    check_side_by_side,
    check_settings,
    check_exactness,
)
