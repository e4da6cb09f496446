"""What the door refuses of a reply, and how it says so."""

import warnings

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.oracles.checks import check_rows

READOUTS = cp.Readouts.pairs([0, 3, 3], [7, 2, 9])
GOOD = np.array([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1]])


def check(probabilities: object, readouts: cp.Readouts = READOUTS) -> bool:
    return check_rows(cp.rows.DenseRows(probabilities), readouts, 2, "mine", warn_on_zero=False)


def spoiled(row: int, values: list[float]) -> np.ndarray:
    rows = GOOD.copy()
    rows[row] = values
    return rows


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([np.nan, 0.5], "not finite"),
        ([np.inf, 0.5], "not finite"),
        ([np.inf, -np.inf], "not finite"),
        ([-0.25, 1.25], "holds a negative probability -0.25"),
        ([0.5, 0.6], r"sums to 1\.1 instead of 1; normalise it"),
        ([0.5, 0.5 + 1e-7], r"sums to 1\.0000001 instead of 1"),
        ([0.0, 0.0], "sums to 0 instead of 1"),
        ([1e200, 0.5], r"sums to 1e\+200 instead of 1"),
        ([1e308, 1.7e308], "not finite"),
    ],
)
@pytest.mark.parametrize("to", [np.asarray, torch.from_numpy])
def test_a_bad_row_is_named_by_state_and_position(values, problem, to):
    with pytest.raises(cp.OracleError, match=problem) as error:
        check(to(spoiled(1, values)))
    assert "oracle 'mine': the row at state 3, position 2 " in str(error.value)


def test_the_first_bad_row_is_the_one_named():
    rows = spoiled(2, [2.0, 2.0])
    rows[0] = [np.nan, 1.0]
    with pytest.raises(
        cp.OracleError, match="state 0, position 7 holds a value that is not finite"
    ):
        check(rows)


def test_classed_rows_are_checked_by_their_masses():
    classes = cp.classes.TokenClasses.build(10, [0, 0, 1])
    rows = cp.rows.ClassedRows(np.array([[0.4, 0.6], [0.4, 0.4]]), classes, np.array([7, 2]))
    with pytest.raises(cp.OracleError, match=r"state 3, position 2 sums to 0\.8"):
        check_rows(rows, cp.Readouts.pairs([0, 3], [7, 2]), 3, "mine", warn_on_zero=False)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (GOOD, "must return Rows, got ndarray"),
        (None, "must return Rows, got NoneType"),
        (cp.rows.DenseRows(GOOD[:2]), "one row per readout: 3 asked, 2 returned"),
        (cp.rows.DenseRows(np.ones((3, 4)) / 4), r"rows over 2 tokens, got 4$"),
        (cp.rows.DenseRows(np.ones((3, 3)) / 3), "got 3; one too many: leave the mask token out"),
        (cp.rows.DenseRows(np.ones(3)), r"rows of shape \(n, V\), got \(3,\)"),
        (cp.rows.DenseRows(GOOD[None]), r"rows of shape \(n, V\), got \(1, 3, 2\)"),
    ],
)
def test_a_reply_of_the_wrong_kind_or_shape_is_refused(reply, message):
    with pytest.raises(cp.OracleError, match=message) as error:
        check_rows(reply, READOUTS, 2, "mine", warn_on_zero=True)
    assert "oracle 'mine'" in str(error.value)


def test_good_rows_pass_in_every_precision():
    assert check(GOOD) is False
    assert check(GOOD.astype(np.float32)) is False
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        logits = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 2)))
        assert check(torch.softmax(logits, dim=1).to(dtype)) is False
    assert check(torch.softmax(torch.zeros(3, 2, requires_grad=True), dim=1)) is False


def test_single_precision_may_sum_to_one_less_exactly_than_double():
    rows = spoiled(1, [0.5, 0.5 + 5e-4])
    assert check(rows.astype(np.float32)) is False
    with pytest.raises(cp.OracleError, match="sums to"):
        check(rows)
    with pytest.raises(cp.OracleError, match="sums to"):
        check(spoiled(1, [0.5, 0.51]).astype(np.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_softmax_in_low_precision_may_be_widened_afterwards(dtype):
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 997))).to(dtype)
    softmax = torch.softmax(logits, dim=1)
    readouts = cp.Readouts.same(50, [0])
    for widened in (softmax.double(), softmax.double().numpy()):
        rows = cp.rows.DenseRows(widened)
        assert float(abs(rows.masses.sum(1) - 1).max()) > 1e-8
        assert check_rows(rows, readouts, 997, "mine", warn_on_zero=False) is False


def test_a_widened_row_that_was_never_normalised_is_still_refused():
    rows = spoiled(1, [0.5, 0.51]).astype(np.float32).astype(np.float64)
    with pytest.raises(cp.OracleError, match=r"sums to 1\.00999999"):
        check(rows)


@pytest.mark.parametrize(
    "logits", [[-2.0, 1.5], [3.0, 1.5], [-0.1, -2.3]], ids=["mixed", "positive", "log"]
)
def test_logits_are_told_what_they_lack(logits):
    with pytest.raises(cp.OracleError, match=r"if these are logits .* return their softmax"):
        check(spoiled(1, logits))


def test_a_zero_is_reported_and_warned_about_on_request():
    rows = cp.rows.DenseRows(spoiled(2, [1.0, 0.0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_rows(rows, READOUTS, 2, "mine", warn_on_zero=False) is True
    with pytest.warns(cp.errors.ZeroProbabilityWarning, match="'mine' .* at state 3, position 9"):
        assert check_rows(rows, READOUTS, 2, "mine", warn_on_zero=True) is True
