"""Rounds that an oracle draws by itself are those that a run would have committed one by one."""

from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import MASK
from counterprobe.errors import OracleError
from counterprobe.oracles import (
    Drawing,
    Drawn,
    DrawsPlans,
    HistoryQuery,
    OracleInfo,
    Readouts,
    RunKey,
    Runs,
)
from counterprobe.oracles.oracle import Wrapper
from counterprobe.rows import to_numpy
from counterprobe.run.lockstep import Lockstep

N = 12


class DrawsItself(Wrapper):
    """An oracle that draws fixed rounds: the plain twin of what a GPU does."""

    num_drawn = 0

    @property
    def info(self) -> OracleInfo:
        return replace(self.inner.info, trusted=True)

    def ability(self, kind):
        return self if kind is DrawsPlans else None

    def draw(self, states, drawing: Drawing) -> Drawn:
        self.num_drawn += 1
        states = states.copy()
        tokens = np.full(states.shape, MASK)
        log_probs, scores = (np.full(states.shape, np.nan) for _ in range(2))
        ranks = np.where(states == MASK, -2, -1)
        for number in range(int(drawing.rounds.max()) + 1):
            where = np.nonzero(drawing.rounds == number)
            whose = Runs(RunKey(), np.arange(len(states)), 0, Readouts.pairs([], []))
            asked = HistoryQuery(states.copy(), Readouts.pairs(*where), ranks, whose)
            rows = self.inner.ask(asked).rows
            cold = rows if drawing.temperature == 1 else rows.tempered(drawing.temperature)
            tokens[where] = states[where] = cold.draw(drawing.uniforms[where])
            log_probs[where] = to_numpy(cold.log_prob(tokens[where]))
            scores[where] = -to_numpy(rows.log_prob(tokens[where]))
        return Drawn(tokens, log_probs, scores)


@pytest.fixture
def law() -> cp.ForestLaw:
    return cp.families.path(length=N, target_seed=3)


def both_ways(law, rounds, count, **options):
    runs = []
    for oracle in (DrawsItself(law.oracle()), law.oracle()):
        run = Lockstep(oracle, count, cp.Streams(1, 2), score=True, **options)
        if isinstance(oracle, DrawsItself):
            assert run.commit_rounds(rounds)
        else:
            for batches in rounds:
                run.commit_groups(batches)
        runs.append(run)
    return runs


def check_same(one: Lockstep, other: Lockstep) -> None:
    np.testing.assert_array_equal(one.states, other.states)
    assert one.ledger == other.ledger
    assert one.ledgers == other.ledgers
    mine, theirs = one.result(), other.result()
    np.testing.assert_allclose(mine.log_probs, theirs.log_probs)
    np.testing.assert_allclose(mine.scores, theirs.scores)
    for a, b in zip(mine.results, theirs.results, strict=True):
        assert a.ledger == b.ledger
        np.testing.assert_array_equal(a.round_of_position, b.round_of_position)
        for left, right in zip(a.transcript.events, b.transcript.events, strict=True):
            np.testing.assert_array_equal(left.fingerprints, right.fingerprints)


@pytest.mark.parametrize("at_once", [None, 2])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_groups_with_a_plan_each(law, at_once, temperature):
    order = np.random.default_rng(0).permutation(N)
    plans = [np.array_split(order, 4), np.array_split(order[::-1], 3), np.array_split(order, 1)]
    rounds = [[plan[k] if k < len(plan) else None for plan in plans] for k in range(4)]
    runs = both_ways(law, rounds, 5, groups=3, at_once=at_once, temperature=temperature)
    check_same(*runs)


def test_context_stays_and_a_run_may_go_on_round_by_round(law):
    given = np.full(N, MASK)
    given[2:5] = 1
    left = np.flatnonzero(given == MASK)
    runs = both_ways(law, [[left[:2]], [left[2:5]]], 3, given=given)
    for run in runs:
        assert (run.states[:, 2:5] == 1).all()
        run.commit(left[5:])
    check_same(*runs)


@pytest.mark.parametrize(
    ("batch", "said"),
    [([1, 1], "twice"), ([N], "must lie in"), ([], "non-empty"), ([0.5], "list of positions")],
)
def test_bad_batches_are_refused_as_ever(law, batch, said):
    run = Lockstep(DrawsItself(law.oracle()), 2, cp.Streams(1, 2))
    with pytest.raises(ValueError, match=said):
        run.commit_rounds([[[3]], [batch]])
    with pytest.raises(ValueError, match="committed already"):
        run.commit_rounds([[[3]], [[3]]])
    assert run.ledger.total == 0


def test_what_has_to_be_done_round_by_round_is_left_alone(law):
    plain = Lockstep(law.oracle(), 2, cp.Streams(1, 2))
    tight = Lockstep(DrawsItself(law.oracle()), 2, cp.Streams(1, 2), max_submissions=1)
    cold = Lockstep(DrawsItself(law.oracle()), 2, cp.Streams(1, 2), temperature=0)
    for run in (plain, tight, cold):
        assert not run.commit_rounds([[[0]], [[1]]])
        assert run.ledger.total == 0
        assert (run.states == MASK).all()


def test_sample_uses_it_unless_somebody_stands_between(law, tmp_path):
    oracle = DrawsItself(law.oracle())
    drawn = cp.sample(oracle, "random-balanced", 3, batches=4, seed=5)
    assert oracle.num_drawn == 1
    plain = cp.sample(law.oracle(), "random-balanced", 3, batches=4, seed=5)
    np.testing.assert_array_equal(drawn.sequences, plain.sequences)
    assert drawn.ledger == plain.ledger
    alone = cp.sample(oracle, "random-balanced", 1, batches=4, seed=5)
    np.testing.assert_array_equal(alone.sequences[0], plain.sequences[0])
    assert oracle.num_drawn == 2
    for around in (
        oracle.logged(tmp_path / "run.log"),
        oracle.retrying(2),
        oracle.rechecking(1.0),
    ):
        again = cp.sample(around, "random-balanced", 3, batches=4, seed=5)
        np.testing.assert_array_equal(again.sequences, plain.sequences)
    assert oracle.num_drawn == 2


def test_what_is_no_token_is_refused(law):
    class Wrong(DrawsItself):
        def draw(self, states, drawing: Drawing) -> Drawn:
            drawn = super().draw(states, drawing)
            drawn.tokens[0, 0] = self.vocab_size
            return drawn

    with pytest.raises(OracleError, match="no token"):
        cp.sample(Wrong(law.oracle()), "random-balanced", 3, batches=4)
