"""Replies are checked unless an oracle is trusted; what an oracle owns is copied."""

import warnings

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run.reply_check import ReplyCheck

ASKED = cp.Readouts.same(1, [2, 0])


class Nameless:
    length, vocab_size, row_error = 3, 2, 0.0

    def __init__(self, trusted=False):
        self.trusted = trusted


class Named(Nameless):
    name = 7


def test_a_check_calls_an_oracle_by_its_name_or_by_its_kind():
    assert ReplyCheck(Nameless()).name == "Nameless"
    assert ReplyCheck(Named()).name == "7"
    with pytest.raises(cp.OracleError, match=r"oracle 'Nameless'.*position 0 sums to 3"):
        ReplyCheck(Nameless())(cp.DenseRows(np.array([[0.5, 0.5], [1.0, 2.0]])), ASKED)
    with pytest.raises(cp.OracleError, match="rows over 2 tokens, got 4"):
        ReplyCheck(Nameless())(cp.DenseRows(np.full((2, 4), 0.25)), ASKED)


@pytest.mark.parametrize(
    ("by_oracle", "by_caller", "is_checked"),
    [
        (False, None, True), (True, None, False), (1, None, False), (False, True, False),
        (True, False, True), (False, False, True), (True, True, False),
    ],
)  # fmt: skip
def test_the_caller_decides_what_is_checked_and_otherwise_the_oracle(
    by_oracle, by_caller, is_checked
):
    check = ReplyCheck(Nameless(by_oracle), by_caller)
    bad = cp.DenseRows(np.full((2, 2), 2.0))
    if is_checked:
        with pytest.raises(cp.OracleError):
            check(bad, ASKED)
    else:
        assert check(bad, ASKED) is bad


def test_rows_that_were_checked_are_copies_and_trusted_ones_are_not():
    masses = np.full((2, 2), 0.5)
    rows = cp.DenseRows(masses)
    checked = ReplyCheck(Nameless())(rows, ASKED)
    assert ReplyCheck(Nameless(trusted=True))(rows, ASKED) is rows
    masses[:] = 9
    assert checked.dense().tolist() == [[0.5, 0.5]] * 2


def test_a_zero_warns_once_and_only_where_it_is_seen():
    check = ReplyCheck(Nameless())
    plain = cp.DenseRows(np.full((2, 2), 0.5))
    zero = cp.DenseRows(np.array([[0.5, 0.5], [0.0, 1.0]]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for rows, so_far in ((plain, 0), (zero, 1), (zero, 1), (plain, 1), (zero, 1)):
            check(rows, ASKED)
            assert len(caught) == so_far
        ReplyCheck(Nameless())(zero, ASKED)
    assert [w.category for w in caught] == [cp.ZeroProbabilityWarning] * 2
