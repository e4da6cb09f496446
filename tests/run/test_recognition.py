"""One question of a log, asked again, tells the oracle that answered it from others."""

import numpy as np
import pytest
from counterprobe.run.recognition import Recognition
from counterprobe.wrapping import row_question

import counterprobe as cp
from counterprobe.oracles import NUMERICAL_FLOOR
from counterprobe.states import fingerprint
from counterprobe.testing import CountingOracle

MASK = cp.MASK
ALL_MASKED = np.full((2, 3), MASK, dtype=np.int32)
REVEALING = np.array([[MASK, 1, MASK]], dtype=np.int32)


def leaning(by: float = 0.0, row_error: float = 0.0) -> CountingOracle:
    """Rows of two tokens that lean further the later their position."""

    def function(states):
        lean = by * (1 + np.arange(3))[:, None] * [1, -1]
        return np.broadcast_to(0.5 + lean, (*states.shape, 2))

    return CountingOracle(cp.CallableOracle(function, 3, 2, row_error=row_error, name="leaning"))


def seen(recognition: Recognition, states, readouts, reply=None) -> None:
    """Show a question with the reply of an oracle that does not lean."""
    rows = leaning().rows(states, readouts)
    recognition.see(row_question(states, readouts), rows if reply is None else (rows, reply))


def test_a_question_that_reveals_a_token_is_asked_at_once_one_state_of_it_and_never_again():
    oracle = leaning()
    recognition = Recognition(oracle, 0.0, "run.log")
    states = np.concatenate([REVEALING, REVEALING])
    seen(recognition, states, cp.Readouts.pairs([1, 0, 1], [0, 2, 2]))
    assert recognition.num_asked == oracle.states == oracle.calls == 1
    assert oracle.seen[0].tolist() == REVEALING.tolist()
    assert oracle.read[0].position.tolist() == [0, 2], "what was read from the second state"
    seen(recognition, states, cp.Readouts.same(2, [0]))
    recognition.settle()
    assert recognition.num_asked == oracle.states == 1


def test_a_log_that_reveals_nothing_is_judged_by_its_first_question_when_it_ends():
    oracle = leaning()
    recognition = Recognition(oracle, 0.0, "run.log")
    seen(recognition, ALL_MASKED, cp.Readouts.same(2, []))  # nothing was read: nothing to compare
    seen(recognition, ALL_MASKED, cp.Readouts.same(2, [2]))
    seen(recognition, ALL_MASKED, cp.Readouts.same(2, [0]))
    assert recognition.num_asked == oracle.states == 0
    recognition.settle()
    recognition.settle()
    assert recognition.num_asked == oracle.states == 1
    assert oracle.read[0].position.tolist() == [2]


def test_a_question_that_reveals_more_takes_the_place_of_the_first():
    oracle = leaning()
    recognition = Recognition(oracle, 0.0, "run.log")
    seen(recognition, ALL_MASKED, cp.Readouts.same(2, [2]))
    seen(recognition, REVEALING, cp.Readouts.same(1, [0]))
    assert oracle.seen[0].tolist() == REVEALING.tolist() and oracle.calls == 1


def test_nothing_is_asked_where_nothing_was_logged():
    oracle = leaning()
    Recognition(oracle, 0.0, "run.log").settle()
    assert oracle.calls == 0


@pytest.mark.parametrize("attention", [None, np.zeros((1, 3, 3))])
def test_another_oracle_is_named_with_file_state_position_and_distance(attention):
    recognition = Recognition(leaning(0.0625, row_error=0.03125), 0.015625, "the/run.log")
    expected = (
        r"the/run\.log holds replies of another oracle than this 'CountingOracle of leaning': "
        rf"for the state of fingerprint {int(fingerprint(REVEALING)[0]):016x} the row at "
        r"position 2 differs by 0\.188 in total variation, where 0\.0312 is declared; "
        "resume with the oracle it was begun with, or name another file"
    )
    with pytest.raises(cp.CheckpointError, match=expected):
        seen(recognition, REVEALING, cp.Readouts.same(1, [0, 2]), attention)
    assert recognition.num_asked == 1


@pytest.mark.parametrize(
    ("by", "logged", "declared", "is_same"),
    [
        (0.125, 0.125, 0.0, True), (0.125, 0.0, 0.125, True), (0.125, 0.0625, 0.0625, False),
        (0.0, 0.0, 0.0, True), (NUMERICAL_FLOOR / 2, 0.0, 0.0, True), (1e-11, 0.0, 0.0, False),
    ],
)  # fmt: skip
def test_rows_may_move_by_the_larger_of_both_declarations_and_by_rounding(
    by, logged, declared, is_same
):
    recognition = Recognition(leaning(by, declared), logged, "run.log")
    if is_same:
        seen(recognition, REVEALING, cp.Readouts.same(1, [0]))
    else:
        with pytest.raises(cp.CheckpointError, match="another oracle"):
            seen(recognition, REVEALING, cp.Readouts.same(1, [0]))


def test_an_oracle_that_breaks_the_contract_is_no_other_oracle():
    def broken(states):
        return np.full((*states.shape, 2), np.nan)

    oracle = cp.CallableOracle(broken, 3, 2, name="broken")
    with pytest.raises(cp.OracleError, match=r"'broken'.*not finite"):
        seen(Recognition(oracle, 0.0, "run.log"), REVEALING, cp.Readouts.same(1, [0]))


@pytest.mark.filterwarnings("error::counterprobe.ZeroProbabilityWarning")
def test_zeros_do_not_warn_here():
    def certain(states):
        return np.broadcast_to([1.0, 0.0], (*states.shape, 2))

    oracle = cp.CallableOracle(certain, 3, 2)
    question = row_question(REVEALING, cp.Readouts.same(1, [0]))
    Recognition(oracle, 0.0, "run.log").see(
        question, oracle.rows(REVEALING, cp.Readouts.same(1, [0]))
    )
