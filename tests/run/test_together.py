"""Many sequences at once: each is the one it would have been alone."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Query, testing
from counterprobe.errors import BudgetExceeded
from counterprobe.oracles import FollowsRuns, KeptWork
from counterprobe.run.drawing import Scores
from counterprobe.run.together import commit_together
from counterprobe.samplers import RandomBalanced, Sequential, Spread
from counterprobe.streams import commit_uniforms

MASK = cp.MASK
STREAMS = cp.Streams(5, 6)


def alone(sampler, oracle: cp.Oracle, sequence: int, given=None) -> cp.SampleResult:
    return sampler(cp.run.Run(oracle, sequence=sequence, given=given), STREAMS)


def many_of(sampler, oracle: cp.Oracle, count: int, **options) -> cp.SampleBatch:
    return cp.sample(oracle, sampler, count, seed=STREAMS, progress=False, **options)


class Portion:
    """Plans that are committed without a rule."""

    def __init__(self, oracle, plans, group_of, given=None, max_evaluations=None, temperature=1.0):
        length = oracle.length
        self.states = np.full((len(group_of), length), MASK, dtype=np.int32)
        if given is not None:
            self.states[:] = given
        self.log_probs = np.full(self.states.shape, np.nan)
        uniforms = commit_uniforms(STREAMS, length, np.arange(len(group_of)))
        self.door = cp.run.Run(oracle, temperature=temperature, scores=Scores(self.log_probs))
        self.asking = commit_together(
            self.door, self.states, plans, np.array(group_of), uniforms,
            max_evaluations=max_evaluations,
        )  # fmt: skip

    def follow(self):
        self.door.alone(self.asking)
        return self


def unwatched(law) -> cp.Oracle:
    """The law's oracle without work of single runs, so that sequences are drawn together."""
    return testing.CountingOracle(law.oracle())


def test_the_whole_adds_up_evaluations_and_shares_stages(law, counted):
    oracle = counted(unwatched(law))
    many = many_of(RandomBalanced(3), oracle, 5)
    assert many.ledger.evaluations == oracle.states == sum(one.evaluations for one in many.ledgers)
    assert many.ledger.rows_read == oracle.rows_read == sum(one.rows_read for one in many.ledgers)
    assert many.ledger.stages == oracle.calls == many.ledgers[0].stages
    assert many.ledger.widest_stage == 5
    assert many.ledger.noncommit == 0


def test_results_are_those_of_the_runs_alone(law):
    given = np.full(law.length, MASK)
    given[1] = 1
    rule = RandomBalanced(2)
    many = many_of(rule, unwatched(law), 3, given=given)
    assert len(many) == len(many.results) == 3
    for k, result in enumerate(many.results):
        single = alone(rule, law.oracle(), k, given)
        for name in ("tokens", "state", "given", "round_of_position"):
            assert getattr(result, name).tolist() == getattr(single, name).tolist()
        for name in ("ledger", "used", "stop", "reason", "sampler", "settings", "streams"):
            assert getattr(result, name) == getattr(single, name)
        assert result.sequence == k
        assert result.transcript.replay() == result.ledger
        for mine, other in zip(result.transcript.events, single.transcript.events, strict=True):
            assert mine.positions.tolist() == other.positions.tolist()
            assert mine.fingerprints.tolist() == other.fingerprints.tolist()
    assert [one.sequence for one in many.results[1:]] == [1, 2]
    assert many.results[-1].sequence == 2
    with pytest.raises(IndexError):
        many.results[3]


@pytest.mark.parametrize("batch", [[], [0, 0], [1], [99], [-1], [0.0], [True]])
def test_a_bad_batch_is_refused_before_anything_is_asked(law, counted, batch):
    oracle = counted(law.oracle())
    with pytest.raises(ValueError, match=r"batch|committed already"):
        Portion(oracle, [[[1], batch]], [0, 0]).follow()
    assert oracle.states == 0


def test_a_bad_reply_names_state_and_position_and_commits_nothing():
    def function(states):
        reply = np.full((*states.shape, 2), 0.5)
        reply[1, 2] = np.nan
        return reply

    plans = [[[0], [1, 2]]]
    portion = Portion(cp.CallableOracle(function, 4, 2), plans, [0, 0, 0])
    with pytest.raises(cp.OracleError, match="state 1, position 2 holds a value that is not"):
        portion.follow()
    assert (portion.states[:, 0] != MASK).all() and (portion.states[:, 1:] == MASK).all()
    assert portion.door.ledger.commits == 3
    Portion(cp.CallableOracle(function, 4, 2, trusted=True), plans, [0, 0, 0]).follow()


class Following(testing.CountingOracle):
    """Keeps the states of many runs, and reads nothing from a query but what is new."""

    def __init__(self, inner):
        super().__init__(inner)
        self.kept = KeptWork()

    follows_many, depends_on_order, follow = True, False, None

    def ability(self, kind):
        return self if kind is FollowsRuns else None

    def ask(self, query):
        runs = query.runs
        kept = self.kept.take(runs)
        if kept is None:
            assert runs.serial == 0
            kept = {
                int(k): state.copy() for k, state in zip(runs.members, query.states, strict=True)
            }
        for b, i in zip(runs.fresh.state_index, runs.fresh.position, strict=True):
            kept[int(runs.members[b])][i] = query.states[b, i]
        states = np.stack([kept[int(k)] for k in runs.members])
        self.kept.put(runs, kept)
        return super().ask(Query(states, query.readouts))


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
@pytest.mark.parametrize("rule", [RandomBalanced(3), Sequential("random"), Spread(2)])
def test_groups_and_portions_commit_batches_of_their_own(law, counted, rule, at_once):
    oracle = counted(unwatched(law))
    many = many_of(rule, oracle, 7, orders=3, at_once=at_once, log_probs=True)
    assert many.num_completed == 7
    assert many.ledger.evaluations == oracle.states == sum(one.evaluations for one in many.ledgers)
    assert many.ledger.rows_read == oracle.rows_read == 7 * law.length
    assert many.ledger.stages == max(one.stages for one in many.ledgers)
    for k, group in enumerate([0, 0, 0, 1, 1, 2, 2]):
        streams = STREAMS.with_fresh_decisions(group)
        single = rule(cp.run.Run(law.oracle(), sequence=k), streams)
        assert many.sequences[k].tolist() == single.tokens.tolist()
        assert many.results[k].ledger == single.ledger
        assert many.results[k].round_of_position.tolist() == single.round_of_position.tolist()
        assert many.results[k].streams == streams
        for one, other in zip(
            many.results[k].transcript.entries, single.transcript.entries, strict=True
        ):
            assert one.positions.tolist() == other.positions.tolist()
            assert one.fingerprints.tolist() == other.fingerprints.tolist()


@pytest.mark.parametrize("at_once", [2, 100])
def test_an_oracle_that_follows_many_histories_is_told_of_them(law, at_once):
    oracle = Following(law.oracle())
    given = np.full(law.length, MASK)
    given[1] = 1
    options = {"given": given, "at_once": at_once, "orders": 2}
    many = many_of(RandomBalanced(3), oracle, 5, **options)
    plain = many_of(RandomBalanced(3), law.oracle(), 5, **options)
    assert many.sequences.tolist() == plain.sequences.tolist()
    assert many.ledgers == plain.ledgers
    assert many.ledger.evaluations == oracle.states


def test_plans_may_differ_in_context_and_length(law):
    given = np.full((3, law.length), MASK)
    given[0, 1], given[2, [0, 3]] = 0, [2, 1]
    plans = [np.flatnonzero(row == MASK)[:, None] for row in given]
    portion = Portion(law.oracle(), plans, [0, 1, 2], given).follow()
    for k in range(3):
        single = alone(Sequential(), law.oracle(), k, given[k])
        assert portion.states[k].tolist() == single.tokens.tolist()
    assert portion.door.ledger.stages == law.length


def test_scores_are_the_log_rows_of_what_was_drawn(law):
    batch = [2, 0]
    portion = Portion(law.oracle(), [[batch]], [0, 0, 0], temperature=0.7).follow()
    masked = np.full((1, law.length), MASK)
    rows = law.oracle().rows(masked, cp.Readouts.same(1, batch)).tempered(0.7).dense()
    for k in range(3):
        tokens = portion.states[k, batch]
        assert portion.log_probs[k, batch] == pytest.approx(np.log(rows[[0, 1], tokens]))
    assert np.isnan(np.delete(portion.log_probs, batch, axis=1)).all()


def test_a_round_past_the_budget_is_not_made(law, counted):
    oracle = counted(law.oracle())
    plans = [[[0], [1], [2]], [[1]]]
    portion = Portion(oracle, plans, [0, 0, 1], max_evaluations=2)
    with pytest.raises(BudgetExceeded, match="max_evaluations is 2 and going on would make 3"):
        portion.follow()
    assert oracle.states == portion.door.ledger.evaluations == 5
    assert (portion.states[:2, 2] == MASK).all()
    assert portion.door.ledger.stages == 2


@pytest.mark.parametrize(("sampler", "orders"), [
    ("spread", "shared"), ("sequential", "shared"), ("sequential", 3), ("spread", 4),
    ("spread", 7),
])  # fmt: skip
def test_portions_are_finished_one_after_another(sampler, orders):
    draw = np.random.default_rng(0)
    law = cp.TableLaw(draw.dirichlet(np.ones(3**5)).reshape((3,) * 5))
    how = {"seed": 5, "orders": orders, "log_probs": True}
    whole = cp.sample(law.oracle(), sampler, 23, progress=False, **how)
    seen, told = [], []
    listener = cp.run.tell_all(
        cp.run.Listener(lambda finished: seen.append(finished.batch), cp.run.Finished),
        cp.run.Listener(told.append, cp.run.Progress),
    )
    parts = cp.sample(law.oracle(), sampler, 23, at_once=5, on_event=listener, **how)
    assert np.array_equal(whole.sequences, parts.sequences)
    assert np.array_equal(whole.token_log_probs, parts.token_log_probs)
    assert whole.ledger == parts.ledger and whole.ledgers == parts.ledgers
    assert [r.streams for r in whole.results] == [r.streams for r in parts.results]
    assert [r.sequence for r in parts.results] == [*range(23)]
    assert [len(one) for one in seen] == [5, 5, 5, 5, 3]
    finished = [(r.sequence, tuple(r.tokens)) for one in seen for r in one.results]
    assert finished == [(k, tuple(tokens)) for k, tokens in enumerate(whole.sequences)]
    committed = [now.committed for now in told]
    assert committed == sorted(committed) and committed[-1] == told[-1].masked == 23 * 5
    assert told[-1].ledger.evaluations == whole.ledger.evaluations
