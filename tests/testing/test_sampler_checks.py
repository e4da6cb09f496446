"""Every sampler keeps the contract, and the checks notice one that does not."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.oracles import Readouts
from counterprobe.run import (
    Commit,
    CommitAll,
    Noise,
    Preprocess,
    Probe,
    Read,
    Remask,
    Stream,
    Verify,
)
from counterprobe.samplers import SAMPLERS, Sampler
from counterprobe.testing import ConformanceError
from counterprobe.testing import sampler_checks as checks

IDS = {"ids": lambda check: check.__name__}


CHEAP = [check for check in testing.SAMPLER_CHECKS if check is not checks.check_exactness]


@pytest.mark.parametrize("check", CHEAP, **IDS)
def test_every_sampler_conforms(check, sampler):
    check(sampler)


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"packed-theory"}))
def test_every_sampler_is_exact_where_it_says_so(name):
    checks.check_exactness(SAMPLERS[name]())


@pytest.mark.slow
def test_every_setting_of_a_sampler_is_exact_where_it_says_so(sampler):
    checks.check_exactness(sampler)


@pytest.mark.slow
@pytest.mark.parametrize("check", testing.SAMPLER_CHECKS, **IDS)
def test_theory_mode_conforms_where_it_is_feasible(check):
    sampler = cp.samplers.PackedTheory(
        epsilon=0.1, tail_tolerance=0.1, edge_signal=0.3, response_constant=1.0
    )
    check(sampler, [cp.families.two_type_path(10, 1, vocab_size=64)])


# ----- Samplers that are wrong on purpose -----------------------------------------------------


@dataclass(frozen=True)
class Base(Sampler):
    name: ClassVar[str] = "wrong"
    summary: ClassVar[str] = "wrong on purpose"
    source: ClassVar[str] = "tests"

    def unmask(self, view, rng):
        yield CommitAll([[k] for k in view.residual])


class Overconfident(Base):
    """Claims to be exact with everything in one batch."""

    def unmask(self, view, rng):
        yield CommitAll([view.residual])

    def exact_for(self, length):
        return True


class Trusting(Base):
    """Claims to verify, and keeps every draft unseen."""

    @property
    def needs(self):
        return cp.Need.VERIFY

    def exact_for(self, length):
        return True

    def unmask(self, view, rng):
        where = view.residual
        rows = (yield Probe(view.state, where)).rows
        tokens = rows.draw((yield Noise()).uniforms(where))
        yield Verify(where, tokens, rows.log_prob(tokens))


class Undeclared(Base):
    """Selects after the reply without saying so."""

    def unmask(self, view, rng):
        while not view.is_complete:
            reading = yield Read()
            yield Commit(reading.positions[:1], reading)


class Stuck(Base):
    """Commits nothing when rows tie."""

    def unmask(self, view, rng):
        while not view.is_complete:
            rows = (yield Probe(view.state, view.residual)).rows
            top = np.asarray(rows.top()[1])
            yield Commit(view.residual[top > 0.34])


class Forgetful(Base):
    """Another order each time."""

    seen: ClassVar[list[int]] = []

    def unmask(self, view, rng):
        self.seen.append(1)
        shift = len(self.seen) % len(view.residual)
        yield CommitAll([part for part in np.split(view.residual, [shift]) if len(part)])


class Peeking(Base):
    """Its order depends on what the commit noise will be."""

    def unmask(self, view, rng):
        noise = view._commit_noise.uniforms(np.array([1]))[0]
        first = int(noise * 1000) % len(view.residual)
        yield Commit(view.residual[[first]])
        while not view.is_complete:
            yield Commit(view.residual[:1])


class Uncounted(Base):
    """Asks the oracle behind the run's back."""

    def unmask(self, view, rng):
        view.oracle.rows(view.state[None], cp.Readouts.same(1, view.residual))
        yield Commit(view.residual)


class Repentant(Base):
    """Takes a commit back without saying so."""

    def unmask(self, view, rng):
        residual = view.residual
        yield Commit(residual)
        yield Remask(residual[:1])
        yield Commit(residual[:1])


class Silent(Repentant):
    """Goes back behind the run's back: the transcript does not tell."""

    @property
    def needs(self):
        return cp.Need.REMASK

    def unmask(self, view, rng):
        residual = view.residual
        yield Commit(residual)
        view._history.retreat(residual[:1])
        yield Commit(residual[:1])


class Careless(Repentant):
    """Masks given context."""

    @property
    def needs(self):
        return cp.Need.REMASK

    def unmask(self, view, rng):
        yield Commit(view.residual)
        context = np.flatnonzero(view.round_of_position == -1)
        view._history.round_of[context] = 0
        yield Remask([0, *context])
        yield Commit([0, *context])


class Adaptive(Base):
    """Asks five probes in one stage, each about the answers so far."""

    def unmask(self, view, rng):
        state, replies = view.state, []

        def requests():
            for step, position in enumerate(view.residual[:5]):
                if replies:
                    state[step - 1] = replies[-1]
                yield Probe(state[None].copy(), Readouts.same(1, [position]))

        yield Stream(requests(), lambda _, rows: replies.append(int(rows.top()[0][0])))
        yield Commit(view.residual)


class Insistent(Adaptive):
    """The same, and it cannot do without the answers."""

    def unmask(self, view, rng):
        replies = []

        def requests():
            yield Probe(view.state[None], Readouts.same(1, view.residual[:1]))
            state = view.state
            state[view.residual[0]] = replies[0]
            yield Probe(state[None], Readouts.same(1, view.residual[1:2]))

        yield Stream(requests(), lambda _, rows: replies.append(int(rows.top()[0][0])))
        yield Commit(view.residual)


class Overwriting(Adaptive):
    """Lists its requests at once, and writes an answer into the next one."""

    def unmask(self, view, rng):
        first, second = view.state[None], view.state[None]
        listed = [
            Probe(first, Readouts.same(1, view.residual[:1])),
            Probe(second, Readouts.same(1, view.residual[1:2])),
        ]

        def consume(request, rows):
            second[0, view.residual[0]] = rows.top()[0][0]

        yield Stream(listed, consume)
        yield Commit(view.residual)


class Growing(Adaptive):
    """Adds a request once it has seen an answer."""

    def unmask(self, view, rng):
        listed = [Probe(view.state[None], Readouts.same(1, view.residual[:1]))]

        def consume(request, rows):
            if len(listed) == 1:
                state = view.state
                state[view.residual[0]] = rows.top()[0][0]
                listed.append(Probe(state[None], Readouts.same(1, view.residual[1:2])))

        yield Stream(listed, consume)
        yield Commit(view.residual)


class Reusing(Adaptive):
    """Fills one array again and again: no answer is used, which is allowed."""

    def unmask(self, view, rng):
        state = view.state[None]

        def requests():
            for position in view.residual:
                state[0] = view.state
                state[0, position] = 0
                yield Probe(state, Readouts.every_masked(state))

        yield Preprocess()
        yield Stream(requests(), lambda request, rows: None)
        yield Commit(view.residual)


class Greedy(Base):
    """Charges for an input that is complete already."""

    def __call__(self, run, streams):
        run.do(Probe(run.state, run.residual))
        return super().__call__(run, streams)


class Editable(Base):
    """Settings can be edited."""

    def __setattr__(self, name, value):
        pass


class EditableKnob(Editable):
    __dataclass_fields__: ClassVar = {
        "batches": cp.samplers.RandomBalanced.__dataclass_fields__["batches"]
    }
    batches: int = 3


class Neighbourly(Base):
    """Commits as many positions at a time as runs of it are alive."""

    alive = 0

    def unmask(self, view, rng):
        Neighbourly.alive += 1
        try:
            while not view.is_complete:
                yield Commit(view.residual[: Neighbourly.alive])
        finally:
            Neighbourly.alive -= 1


class Deaf(Base):
    """Takes its tokens from a seed of its own."""

    def __call__(self, run, streams):
        return super().__call__(run, cp.Streams(streams.decision_seed, 5))


@pytest.mark.parametrize(
    ("check", "broken", "message"),
    [
        (checks.check_exactness, Overconfident, "claims to be exact but is"),
        (checks.check_exactness, Trusting, "claims to be exact but 300 draws have chi-square"),
        (checks.check_needs, Undeclared, r"used \['select'\], declared \[\]"),
        (checks.check_needs, Repentant, r"used \['remask'\], declared \[\]"),
        (checks.check_remasking, Repentant, "took commits back without REMASK"),
        (checks.check_remasking, Silent, "0 taken back do not leave 3"),
        (checks.check_remasking, Careless, "masked given context"),
        (checks.check_seeds, Forgetful, "did not repeat itself"),
        (checks.check_seeds, Deaf, "another commit seed drew the same"),
        (checks.check_decisions, Peeking, "first batch depends on the commit seed"),
        (checks.check_ledger, Uncounted, "charged 1 evaluations and 4 rows, asked for 2 and 8"),
        (checks.check_stages, Adaptive, "stage 0 asks otherwise when its requests are listed"),
        (checks.check_stages, Insistent, "cannot list the requests of a stage .*IndexError"),
        (checks.check_stages, Overwriting, "stage 0 asks otherwise"),
        (checks.check_stages, Growing, "stage 0 asks otherwise"),
        (checks.check_side_by_side, Neighbourly, "sequence 0 differs beside others"),
        (checks.check_complete_input, Greedy, "charged for a complete input"),
        (checks.check_settings, EditableKnob, "setting 'batches' can be edited"),
    ],
)
def test_a_broken_sampler_is_caught(check, broken, message):
    with pytest.raises(ConformanceError, match=message):
        check(broken())


def test_a_stage_that_uses_no_reply_may_stream_from_one_array():
    checks.check_stages(Reusing())
    checks.check_stages(Base())


def test_adaptive_probes_are_charged_one_stage_so_the_check_must_catch_them():
    run = cp.run.Run(testing.small_forest().oracle())
    ledger = Adaptive()(run, cp.Streams(1, 2)).ledger
    assert (ledger.probes, ledger.stages - ledger.commits) == (5, 1)


def test_no_progress_is_caught():
    # The run itself refuses an empty batch, so that no rule can loop for ever.
    with pytest.raises(ValueError, match="a batch must be a non-empty list"):
        checks.check_progress(Stuck())


class Choosy(Base):
    """Never feasible."""

    def unmask(self, view, rng):
        raise cp.Infeasible("needs 64 tokens")


def test_a_sampler_that_is_never_feasible_is_asked_for_laws():
    message = r"works on none of the laws \(needs 64 tokens\); pass laws="
    with pytest.raises(ConformanceError, match=message):
        testing.check_sampler(Choosy())


def test_one_call_runs_every_check():
    testing.check_sampler(cp.samplers.Sequential())
    with pytest.raises(ConformanceError):
        testing.check_sampler(Uncounted())
