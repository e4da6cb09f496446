"""WINO: what it commits, what it doubts, what reading again costs, and that it ends."""

import itertools

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import WINO, Sequential, Threshold
from counterprobe.testing import CountingOracle

STREAMS = cp.Streams(5, 6)


def sharp_law(length: int = 24, seed: int = 3) -> cp.ForestLaw:
    """A path whose rows are often sure."""
    draw = np.random.default_rng(seed)
    pair = np.full((length - 1, 3, 3), 0.05)
    pair[:, range(3), range(3)] = 1.0
    edges = np.stack([np.arange(length - 1), np.arange(1, length)], axis=1)
    return cp.ForestLaw(np.exp(draw.normal(size=(length, 3))), edges, pair)


def plain_wino(law, sampler: WINO, streams: cp.Streams) -> tuple[list, int]:
    """Follow the published loop with the rows of every state; blocks from the left."""
    oracle, length = law.oracle(), law.length
    noise = streams.commit_noise(length)
    state = np.full(length, -1, dtype=np.int32)
    size = sampler.block_length or length
    back_count = 0
    for low in range(0, length, size):
        block = range(low, min(low + size, length))
        last = 30
        while any(state[i] < 0 for i in block):
            masked = [i for i in block if state[i] < 0]
            rows = oracle.rows(state[None], cp.Readouts.same(1, masked)).dense()
            conf = dict(zip(masked, rows.max(axis=1), strict=True))
            likely = {}
            for i in block:
                if state[i] >= 0:
                    left = state.copy()
                    left[i] = -1
                    row = oracle.rows(left[None], cp.Readouts.same(1, [i])).dense()[0]
                    likely[i] = row[state[i]]
            most = min(max(int(len(masked) * 0.7), 5), 20)
            ranked = sorted(masked, key=lambda i: (-conf[i], i))
            accepted = [i for i in ranked if conf[i] > sampler.threshold][:most] or ranked[:1]
            doubted = sorted((i for i in likely if likely[i] < sampler.threshold_back),
                             key=lambda i: (likely[i], i))  # fmt: skip
            doubted = doubted[: last - 1] if len(accepted) > 1 else []
            where = np.array(sorted(accepted))
            rows = oracle.rows(state[None], cp.Readouts.same(1, where))
            state[where] = rows.draw(noise.uniforms(where, back_count))
            state[doubted] = -1
            back_count += bool(doubted)
            last = len(accepted)
    return state.tolist(), back_count


@pytest.mark.parametrize("block_length", [None, 7])
@pytest.mark.parametrize(("threshold", "back"), [(0.6, 0.9), (0.3, 0.5), (0.0, 1.0), (0.9, 0.2)])
def test_runs_are_those_of_the_published_loop(threshold, back, block_length):
    law = sharp_law()
    sampler = WINO(threshold, back, block_length)
    for seed in range(4):
        streams = cp.Streams(seed, seed + 10)
        result = sampler(cp.run.Run(law.oracle()), streams)
        tokens, times_back = plain_wino(law, sampler, streams)
        assert result.tokens.tolist() == tokens
        events = [event.operation for event in result.transcript.events]
        assert events.count("remask") == times_back


def test_nothing_taken_back_is_the_threshold_rule_with_a_cap():
    law = sharp_law(12)
    capped = WINO(0.6, 0.0)(cp.run.Run(law.oracle()), STREAMS)
    assert capped.used == cp.Need.SELECT
    assert capped.undone == 0
    assert capped.ledger.probes == 0
    plain = Threshold(0.6 + 1e-9)(cp.run.Run(law.oracle()), STREAMS)
    if max(map(len, plain.batches)) <= 5:  # below the cap in every step
        assert capped.tokens.tolist() == plain.tokens.tolist()
    assert max(map(len, capped.batches)) <= 8


def test_above_one_it_is_the_most_confident_order_and_reads_nothing_again():
    law = sharp_law()
    result = WINO(1.5, 1.0)(cp.run.Run(law.oracle()), STREAMS)
    plain = Sequential("confidence")(cp.run.Run(law.oracle()), STREAMS)
    assert result.tokens.tolist() == plain.tokens.tolist()
    assert result.ledger == plain.ledger


@pytest.mark.parametrize("confidence", ["row", "candidate"])
@pytest.mark.parametrize("block_length", [None, 10])
def test_a_rule_that_doubts_everything_ends_within_a_step_a_position(confidence, block_length):
    law = sharp_law(40)
    for seed in range(3):
        sampler = WINO(0.0, 1.0, block_length, confidence)
        result = sampler(cp.run.Run(law.oracle()), cp.Streams(seed, 1))
        assert result.stop is cp.StopReason.COMPLETED
        assert result.ledger.commits <= 40
        assert result.undone > 20


def test_each_position_read_again_is_a_evaluation_and_a_step_is_one_stage():
    law = sharp_law()
    oracle = CountingOracle(law.oracle())
    result = WINO(0.3, 0.8)(cp.run.Run(oracle), STREAMS)
    ledger = result.ledger
    assert ledger.evaluations == oracle.states == ledger.commits + ledger.probes
    probes = [event for event in result.transcript.events if event.operation == "probe"]
    assert len(probes) > 0
    assert ledger.stages == ledger.commits == ledger.selected_commits
    assert ledger.widest_stage == max(event.evaluations for event in probes)
    # A wave reads everything committed so far, each of it once, and the history beside it.
    known = 0
    for event in result.transcript.events:
        if event.operation == "probe":
            assert (event.evaluations, event.rows_read) == (known + 1, law.length)
        known += {"commit": 1, "remask": -1, "probe": 0}[event.operation] * len(event.positions)


def test_less_is_taken_back_than_the_step_before_committed():
    law = sharp_law(40)
    result = WINO(0.0, 1.0)(cp.run.Run(law.oracle()), STREAMS)
    sizes = [(e.operation, len(e.positions)) for e in result.transcript.events if len(e.positions)]
    commits = [size for operation, size in sizes if operation == "commit"]
    assert max(commits) <= 20
    step = -1
    for operation, size in sizes:
        step += operation == "commit"
        if operation == "remask":
            assert size < commits[step - 1]
            assert commits[step] > 1
    assert all(size >= 1 for size in commits)


def test_blocks_are_finished_from_the_left_and_context_is_left_alone():
    law = sharp_law(20)
    given = np.full(20, -1)
    given[[2, 11]] = law.sample(1, np.random.default_rng(1))[0][[2, 11]]
    result = WINO(0.0, 1.0, block_length=10)(cp.run.Run(law.oracle(), given=given), STREAMS)
    assert result.undone > 0
    for before, after in itertools.pairwise(result.history):
        changed = np.flatnonzero(before != after)
        block = changed[0] // 10
        assert (changed // 10 == block).all()
        assert (before[: 10 * block] >= 0).all()
        assert (after[[2, 11]] == given[[2, 11]]).all()
