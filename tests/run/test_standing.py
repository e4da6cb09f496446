"""What a run says of itself, before, while and after it moves."""

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.radii import RowRadii

MASK = cp.MASK


def declared(**options) -> cp.CallableOracle:
    return cp.CallableOracle(
        lambda states: np.full((*states.shape, 2), 0.5), 3, 2, name="declared", **options
    )


def test_a_run_repeats_what_its_oracle_declares(law):
    oracle = declared(row_error=0.25, row_hellinger_radius=0.125, row_kl_radius=0.5)
    run = cp.Unmasking(oracle)
    assert (run.length, run.vocab_size, run.row_error) == (3, 2, 0.25)
    assert run.row_radii == RowRadii(0.25, 0.125, 0.5)
    assert run.oracle_name == "declared"
    assert not run.offers_attention
    weights = np.ones((law.length, law.length))
    assert cp.Unmasking(AttentiveLaw(law.oracle(), weights)).offers_attention


def test_a_run_keeps_the_terms_it_was_given():
    rights = cp.Right.VERIFY | cp.Right.REMASK
    run = cp.Unmasking(declared(), rights=rights, temperature=0.5, sequence=7)
    assert (run.rights, run.temperature, run.sequence) == (rights, 0.5, 7)
    assert run.rights_used is cp.Right.NONE
    with pytest.raises(ValueError, match="sequence must be at least 0, got -1"):
        cp.Unmasking(declared(), sequence=-1)
    with pytest.raises(ValueError, match=r"sequence must be a whole number, got 1\.5"):
        cp.Unmasking(declared(), sequence=1.5)


def test_what_stands_follows_every_commit_and_every_step_back():
    run = cp.Unmasking(declared(), given=[MASK, 1, MASK])
    run.begin(cp.Streams(1, 2))
    assert not run.is_complete
    assert run.residual.tolist() == [0, 2]
    assert run.round_of_position.tolist() == [-2, -1, -2]
    run.commit([2])
    run.commit([0])
    assert run.is_complete and len(run.residual) == 0
    assert run.round_of_position.tolist() == [1, -1, 0]
    assert (run.num_undone, run.ledger.commits) == (0, 2)
    run.remask([2])
    assert not run.is_complete
    assert (run.num_undone, run.residual.tolist()) == (1, [2])
    assert run.transcript.replay() == run.ledger
    assert (run.num_rechecked, run.num_recheck_skipped) == (0, 0)


def test_second_submissions_are_told_apart_from_those_left_out():
    run = cp.Unmasking(declared(), paranoid=1.0, max_submissions=3)
    run.begin(cp.Streams(1, 2))
    run.commit([0])
    assert (run.num_rechecked, run.num_recheck_skipped) == (1, 0)
    run.commit([1])
    assert (run.num_rechecked, run.num_recheck_skipped) == (1, 2), "with the first of the run"
