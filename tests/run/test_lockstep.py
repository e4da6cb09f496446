"""Many sequences at once: each is the one it would have been alone."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import Query, testing
from counterprobe.oracles import FollowsRuns, KeptWork
from counterprobe.samplers import RandomBalanced, Sequential
from fixed import batches_of

MASK = cp.MASK
STREAMS = cp.Streams(5, 6)


def alone(sampler, oracle: cp.Oracle, sequence: int, given=None) -> cp.SampleResult:
    return sampler(cp.Unmasking(oracle, sequence=sequence, given=given), STREAMS)


def in_lockstep(sampler, oracle: cp.Oracle, count: int, given=None) -> cp.SampleBatch:
    run = cp.run.Lockstep(oracle, count, STREAMS, given=given)
    for batch in batches_of(sampler, run.residual, STREAMS.decisions):
        run.commit(batch)
    return run.result(sampler.name, sampler.settings)


def test_the_whole_adds_up_submissions_and_shares_stages(law, counted):
    oracle = counted(law.oracle())
    many = in_lockstep(RandomBalanced(3), oracle, 5)
    assert many.ledger.total == oracle.states == sum(one.total for one in many.ledgers)
    assert many.ledger.rows_read == oracle.rows_read == sum(one.rows_read for one in many.ledgers)
    assert many.ledger.depth == oracle.calls == many.ledgers[0].depth
    assert many.ledger.widest_stage == 5
    assert many.ledger.noncommit == 0


def test_context_may_differ_in_values_between_sequences(law):
    given = np.full((3, law.length), MASK)
    given[:, 1] = [0, 1, 2]
    many = in_lockstep(Sequential("random"), law.oracle(), 3, given=given)
    for k in range(3):
        single = alone(Sequential("random"), law.oracle(), k, given[k])
        assert many.sequences[k].tolist() == single.tokens.tolist()
    assert many.sequences[:, 1].tolist() == [0, 1, 2]


def test_tokens_come_back_in_the_order_of_the_batch(law):
    run = cp.run.Lockstep(law.oracle(), 3, STREAMS)
    tokens = run.commit([3, 0, 2])
    assert tokens.tolist() == run.states[:, [3, 0, 2]].tolist()
    assert run.residual.tolist() == [i for i in range(law.length) if i not in (0, 2, 3)]
    sorted_run = cp.run.Lockstep(law.oracle(), 3, STREAMS)
    assert sorted_run.commit([0, 2, 3])[:, [2, 0, 1]].tolist() == tokens.tolist()


@pytest.mark.parametrize("batch", [[], [0, 0], [1], [99], [-1], [0.0], [True]])
def test_a_bad_batch_is_refused(law, batch):
    run = cp.run.Lockstep(law.oracle(), 2, STREAMS)
    run.commit([1])
    with pytest.raises(ValueError, match=r"batch|committed already"):
        run.commit(batch)
    assert run.ledger.commits == 2


def test_bad_arguments_are_refused(law):
    some, other = np.full((2, 2, law.length), MASK)
    other[1, 0] = 1
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        cp.run.Lockstep(law.oracle(), 0, STREAMS)
    with pytest.raises(ValueError, match=r"given must have shape \(\d+,\) or \(3, "):
        cp.run.Lockstep(law.oracle(), 3, STREAMS, given=some)
    with pytest.raises(ValueError, match="mask the same positions in every sequence"):
        cp.run.Lockstep(law.oracle(), 2, STREAMS, given=other)
    with pytest.raises(ValueError, match=r"given must have shape"):
        cp.run.Lockstep(law.oracle(), 2, STREAMS, given=[0])
    with pytest.raises(ValueError, match=r"call law\.oracle\(\)"):
        cp.run.Lockstep(law, 2, STREAMS)


def test_a_bad_reply_names_state_and_position_and_commits_nothing():
    def function(states):
        reply = np.full((*states.shape, 2), 0.5)
        reply[1, 2] = np.nan
        return reply

    run = cp.run.Lockstep(cp.CallableOracle(function, 4, 2), 3, STREAMS)
    run.commit([0])
    with pytest.raises(cp.OracleError, match="state 1, position 2 holds a value that is not"):
        run.commit([1, 2])
    assert (run.states[:, 1:] == MASK).all()
    assert run.ledger.commits == 3
    trusting = cp.run.Lockstep(cp.CallableOracle(function, 4, 2, trusted=True), 3, STREAMS)
    trusting.commit([1, 2])


def test_results_are_those_of_the_runs_alone(law):
    given = np.full(law.length, MASK)
    given[1] = 1
    rule = RandomBalanced(2)
    many = in_lockstep(rule, law.oracle(), 3, given)
    assert len(many) == len(many.results) == 3
    for k, result in enumerate(many.results):
        single = alone(rule, law.oracle(), k, given)
        for name in ("tokens", "state", "given", "round_of_position"):
            assert getattr(result, name).tolist() == getattr(single, name).tolist()
        for name in ("ledger", "rights", "stop", "reason", "sampler", "settings", "streams"):
            assert getattr(result, name) == getattr(single, name)
        assert (result.sequence, result.oracle_name) == (k, single.oracle_name)
        assert result.transcript.replay() == result.ledger
        for mine, other in zip(result.transcript.events, single.transcript.events, strict=True):
            assert mine.positions.tolist() == other.positions.tolist()
            assert mine.fingerprints.tolist() == other.fingerprints.tolist()
    assert [one.sequence for one in many.results[1:]] == [1, 2]
    assert many.results[-1].sequence == 2
    with pytest.raises(IndexError):
        many.results[3]


def test_states_go_to_the_oracle_in_parts(law, counted):
    oracle = counted(law.oracle())
    run, whole = (
        cp.run.Lockstep(oracle, 5, STREAMS, at_once=2),
        cp.run.Lockstep(law.oracle(), 5, STREAMS),
    )
    for batch in ([1], [0, 2]):
        assert run.commit(batch).tolist() == whole.commit(batch).tolist()
    assert oracle.calls == 6
    assert run.ledger == whole.ledger


def test_what_else_goes_through_the_door_is_charged_to_the_whole(law):
    run = cp.run.Lockstep(law.oracle(), 2, STREAMS)
    run.door.probe(run.states, [0])
    run.commit([0])
    assert run.ledger == cp.Ledger(probes=2, commits=2, depth=2, rows_read=4, widest_stage=2)
    assert run.ledgers == [cp.Ledger(commits=1, depth=1, rows_read=1, widest_stage=1)] * 2
    assert run.result().ledger == run.ledger


def test_a_round_past_the_budget_is_not_made(law, counted):
    oracle = counted(law.oracle())
    run = cp.run.Lockstep(oracle, 3, STREAMS, max_submissions=2)
    run.commit([0])
    run.commit([1])
    with pytest.raises(
        cp.errors.BudgetExceeded, match="max_submissions is 2 and going on would make 3"
    ):
        run.commit([2])
    assert oracle.states == run.ledger.total == 6
    assert (run.states[:, 2] == MASK).all()


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
def test_groups_commit_batches_of_their_own(law, counted, at_once):
    oracle = counted(law.oracle())
    streams = [STREAMS.with_fresh_decisions(k) for k in range(3)]
    rules = [RandomBalanced(2), RandomBalanced(3), Sequential("random")]
    run = cp.run.Lockstep(oracle, 7, STREAMS, groups=3, at_once=at_once, score=True)
    waiting = [
        batches_of(rule, run.residual, s.decisions) for rule, s in zip(rules, streams, strict=True)
    ]
    for k in range(max(map(len, waiting))):
        run.commit_groups([w[k] if k < len(w) else None for w in waiting])
    many = run.result("mixed", streams=streams)
    assert run.num_left == 0
    assert many.ledger.total == oracle.states == sum(one.total for one in many.ledgers)
    assert many.ledger.rows_read == oracle.rows_read == 7 * law.length
    assert many.ledger.depth == max(one.depth for one in many.ledgers)
    for k, group in enumerate([0, 0, 0, 1, 1, 2, 2]):
        unmasking = cp.Unmasking(law.oracle(), sequence=k)
        single = rules[group](unmasking, streams[group])
        assert many.sequences[k].tolist() == single.tokens.tolist()
        assert many.results[k].ledger == single.ledger
        assert many.results[k].round_of_position.tolist() == single.round_of_position.tolist()
        assert many.results[k].streams == streams[group]
        for one, other in zip(
            many.results[k].transcript.entries, single.transcript.entries, strict=True
        ):
            assert one.positions.tolist() == other.positions.tolist()
            assert one.fingerprints.tolist() == other.fingerprints.tolist()


def test_a_round_needs_a_batch_a_group_and_something_to_commit(law):
    run = cp.run.Lockstep(law.oracle(), 4, STREAMS, groups=2)
    with pytest.raises(ValueError, match="batches must be 2, one per group; got 1"):
        run.commit_groups([[0]])
    with pytest.raises(ValueError, match="every batch is None"):
        run.commit_groups([None, None])
    with pytest.raises(ValueError, match="groups must be at most count = 4, got 5"):
        cp.run.Lockstep(law.oracle(), 4, STREAMS, groups=5)


@pytest.mark.parametrize("at_once", [2, 100])
def test_an_oracle_that_follows_many_histories_is_told_of_them(law, at_once):
    oracle = Following(law.oracle())
    given = np.full(law.length, MASK)
    given[1] = 1
    many = cp.sample(
        oracle, RandomBalanced(3), 5, seed=STREAMS, given=given, at_once=at_once, orders=2
    )
    plain = cp.sample(law.oracle(), RandomBalanced(3), 5, seed=STREAMS, given=given, orders=2)
    assert many.sequences.tolist() == plain.sequences.tolist()
    assert many.ledgers == plain.ledgers
    assert many.ledger.total == oracle.states


def test_scores_are_the_log_rows_of_what_was_drawn(law):
    run = cp.run.Lockstep(law.oracle(), 3, STREAMS, score=True, temperature=0.7)
    batch = [2, 0]
    rows = law.oracle().rows(run.states[:1], cp.Readouts.same(1, batch)).tempered(0.7).dense()
    tokens = run.commit(batch)
    scores = run.result().token_log_probs
    assert scores is not None
    for k in range(3):
        assert scores[k, batch] == pytest.approx(np.log(rows[[0, 1], tokens[k]]))
    assert np.isnan(np.delete(scores, batch, axis=1)).all()


def test_a_result_does_not_change_when_its_runs_go_on(law):
    run = cp.run.Lockstep(law.oracle(), 2, STREAMS, score=True)
    run.commit([0])
    early = run.result()
    run.commit([1])
    assert (early.sequences[:, 1] == MASK).all()
    assert np.isnan(early.token_log_probs[:, 1]).all()
    assert [one.commits for one in early.ledgers] == [1, 1]
    assert (run.result().token_log_probs[:, :2] <= 0).all()


def test_the_budget_of_a_group_is_its_own(law):
    run = cp.run.Lockstep(law.oracle(), 2, STREAMS, groups=2, max_submissions=2)
    run.commit_groups([[0], None])
    run.commit_groups([[1], [0]])
    with pytest.raises(
        cp.errors.BudgetExceeded, match="max_submissions is 2 and going on would make 3"
    ):
        run.commit_groups([[2], [1]])
    run.commit_groups([None, [1]])
    with pytest.raises(cp.errors.BudgetExceeded, match="would make 3"):
        run.commit_groups([None, [2]])
    assert [one.commits for one in run.ledgers] == [2, 2]
    with pytest.raises(ValueError, match=r"max_submissions must be a whole number, got 0\.5"):
        cp.run.Lockstep(law.oracle(), 2, STREAMS, max_submissions=0.5)
    with pytest.raises(ValueError, match="at_once must be at least 1, got 0"):
        cp.run.Lockstep(law.oracle(), 2, STREAMS, at_once=0)
    with pytest.raises(ValueError, match="groups must be at least 1, got 0"):
        cp.run.Lockstep(law.oracle(), 2, STREAMS, groups=0)
