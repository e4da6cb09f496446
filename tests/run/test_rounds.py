"""Rounds of many sequences, against plain loops over sequences and positions."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.results import versions
from counterprobe.run.rounds import (
    Common,
    Part,
    Results,
    Round,
    common_positions,
    every_position,
    ledger_of,
)

MASK = cp.MASK


def arrays(chosen):
    return [None if batch is None else np.array(batch) for batch in chosen]


@pytest.mark.parametrize(
    ("chosen", "common", "every"),
    [
        ([[2, 0]], [2, 0], [0, 2]),
        ([[2, 0], [2, 0], [2, 0]], [2, 0], [0, 2]),
        ([[2, 0], [0, 2]], None, [0, 2]),
        ([[2], [2, 0]], None, [0, 2]),
        ([None, [2]], None, [2]),
        ([[2], None], None, [2]),
        ([[3], [1], [3]], None, [1, 3]),
    ],
)
def test_common_positions_are_the_same_in_the_same_order_and_every_position_comes_once(
    chosen, common, every
):
    found = common_positions(arrays(chosen))
    assert (None if found is None else found.tolist()) == common
    assert every_position(arrays(chosen)).tolist() == every


def test_a_sequence_is_charged_one_submission_a_round_in_which_its_group_moves():
    none = np.empty(0, dtype=np.uint64)
    rounds = [
        Round(tuple(arrays(chosen)), none)
        for chosen in ([[0, 1], [2]], [None, [0, 1, 3]], [[2], None])
    ]
    assert ledger_of(rounds, 0) == cp.Ledger(commits=2, depth=2, rows_read=3, widest_stage=1)
    assert ledger_of(rounds[1:], 1) == cp.Ledger(commits=1, depth=1, rows_read=3, widest_stage=1)
    assert ledger_of(rounds[1:2], 0) == ledger_of([], 0) == cp.Ledger()


@pytest.mark.parametrize("seed", range(12))
def test_parts_are_what_a_loop_over_sequences_reads(seed):
    draw = np.random.default_rng([74, seed])
    count, groups = int(draw.integers(1, 9)), 1 + seed % 4
    groups = min(groups, count)
    members = np.array_split(np.arange(count), groups)
    chosen = [
        None if draw.random() < 0.3 else draw.permutation(6)[: draw.integers(1, 4)]
        for _ in range(groups)
    ]
    at_once = int(draw.integers(1, count + 2))
    for low in range(0, count, at_once):
        rows, sequences = [], []
        for sequence in range(low, min(low + at_once, count)):
            group = next(k for k, who in enumerate(members) if sequence in who)
            if chosen[group] is not None:
                sequences.append(sequence)
                rows += [(len(sequences) - 1, int(i), sequence) for i in chosen[group]]
        part = Part.of(low, at_once, members, chosen)
        if not sequences:
            assert part is None
            continue
        assert part is not None
        assert (part.low, part.sequences.tolist()) == (low, sequences)
        found = zip(
            part.index.tolist(), part.position.tolist(), part.sequence.tolist(), strict=True
        )
        assert list(found) == rows
        assert part.here.state_index.tolist() == [sequence - low for _, _, sequence in rows]
        assert part.here.position.tolist() == [position for _, position, _ in rows]


def common(**options) -> Common:
    """Three sequences of four positions in two groups; the second has not come to its end."""
    rounds = (
        Round(tuple(arrays([[1, 3], [0]])), np.array([10, 11, 12], dtype=np.uint64)),
        Round(tuple(arrays([[2], None])), np.array([20, 21, 22], dtype=np.uint64)),
    )
    return Common(
        **{
            "given": np.array([[5, MASK, MASK, MASK]] * 2 + [[MASK] * 4], dtype=np.int32),
            "states": np.array([[5, 1, 2, 3], [5, 4, 0, 0], [7, MASK, MASK, MASK]], np.int32),
            "group_of": np.array([0, 0, 1]),
            "rounds": rounds,
            "stop": cp.StopReason.BUDGET_SPENT,
            "reason": "two rounds were permitted",
            "sampler": "mine",
            "settings": {"batches": 2},
            "streams": (cp.Streams(1, 2), cp.Streams(3, 4)),
            "oracle_name": "table",
            "seconds": 1.5,
            "temperature": 0.5,
            "diagnostics": (None, "second group"),
            **options,
        }
    )


def test_a_result_is_made_of_what_its_sequence_and_its_group_did():
    first, second, stopped = results = Results(common())
    assert len(results) == 3
    assert first.tokens.tolist() == first.state.tolist() == [5, 1, 2, 3]
    assert first.tokens.dtype == np.int64
    assert first.given.tolist() == [5, MASK, MASK, MASK]
    assert first.round_of_position.tolist() == [-1, 0, 1, 0]
    assert first.ledger == cp.Ledger(commits=2, depth=2, rows_read=3, widest_stage=1)
    assert (first.stop, first.reason) == (cp.StopReason.COMPLETED, cp.StopReason.COMPLETED.value)
    prints = [event.fingerprints.tolist() for event in second.transcript.events]
    assert prints == [[11], [21]]
    assert [event.positions.tolist() for event in second.transcript.events] == [[1, 3], [2]]
    assert [result.diagnostics for result in results] == [None, None, "second group"]
    for result in results:
        assert result.transcript.replay() == result.ledger
        assert result.rights == cp.Right.NONE
        assert (result.sampler, result.settings) == ("mine", {"batches": 2})
        assert (result.oracle_name, result.seconds, result.temperature) == ("table", 1.5, 0.5)
        assert result.versions == versions()
    assert [result.sequence for result in results] == [0, 1, 2]
    assert [result.streams.decision_seed for result in results] == [1, 1, 3]
    assert stopped.tokens is None
    assert stopped.state.tolist() == [7, MASK, MASK, MASK]
    assert stopped.round_of_position.tolist() == [0, -2, -2, -2]
    assert (stopped.stop, stopped.reason) == (
        cp.StopReason.BUDGET_SPENT, "two rounds were permitted",
    )  # fmt: skip


def test_a_completed_sequence_of_a_completed_run_keeps_the_reason_that_was_given():
    done = common(stop=cp.StopReason.COMPLETED, reason="a plan was followed to its end")
    assert Results(done)[0].reason == "a plan was followed to its end"


def test_results_are_indexed_like_a_list():
    results = Results(common())
    assert [one.sequence for one in results[1:]] == [1, 2]
    assert [one.sequence for one in results[::-2]] == [2, 0]
    assert results[-1].sequence == 2
    for index in (3, -4):
        with pytest.raises(IndexError):
            results[index]
