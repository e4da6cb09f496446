"""The batch KL of rows that are not exact: a row part and a dependence part."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

import counterprobe as cp
from batch_kl_definition import (
    CLOSE,
    asking,
    assert_measured,
    batch_law,
    dense_noise,
    draw_case,
    wobble,
)
from counterprobe.arrays import FloatArray, StateArray
from counterprobe.evaluation import batch_kl_of_batches

# ----- Rows that are not exact ------------------------------------------------------------------


@dataclass(frozen=True)
class ClassedNoise:
    """Class masses of the exact rows, moved; the law within a class stays."""

    law: cp.ForestLaw
    table: FloatArray
    classes: cp.classes.TokenClasses
    name: str = "classed noise"
    row_error: float = 1.0
    trusted: bool = False

    @property
    def length(self) -> int:
        return self.law.length

    @property
    def vocab_size(self) -> int:
        return self.law.vocab_size

    def rows(self, states: StateArray, readouts: cp.Readouts) -> cp.rows.Rows:
        size = self.classes.num_classes
        masses = np.empty((len(readouts), size))
        for k, (b, i) in enumerate(zip(readouts.state_index, readouts.position, strict=True)):
            row = batch_law(self.table, states[b], np.array([i]))
            of_token = self.classes.token_class[self.classes.kind[i]]
            masses[k] = np.bincount(of_token, weights=row, minlength=size)
            masses[k] *= wobble(states[b], i, size)
            masses[k] /= masses[k].sum()
        return cp.rows.ClassedRows(masses, self.classes, readouts.position)


@pytest.mark.parametrize("kind", ["dense", "classed", "classed elsewhere", "finer classes"])
@pytest.mark.parametrize("seed", range(40))
def test_noisy_rows_match_the_definition_in_both_parts(seed, kind):
    case = draw_case(1000 + seed)
    law, table = case.parts.law, case.parts.table
    if kind == "dense":
        oracle = dense_noise(table)
    elif kind == "classed":
        oracle = ClassedNoise(law, table, law.classes)
    elif kind == "classed elsewhere":
        oracle = ClassedNoise(law, table, case.parts.law.classes)  # equal, another object
    else:
        oracle = ClassedNoise(
            law, table, cp.classes.TokenClasses.identity(law.length, law.vocab_size)
        )
    measured = batch_kl_of_batches(
        law, case.tokens, case.batches, given=case.given, oracle=oracle, draws=4000
    )
    exact = case.enumerate(asking(oracle))
    assert_measured(measured, exact)
    assert measured.row_part > 1e-6
    by_table = batch_kl_of_batches(
        cp.TableLaw(table), case.tokens, case.batches, given=case.given, oracle=oracle
    )
    assert by_table.per_round == pytest.approx(exact.per_round, **CLOSE)
    assert by_table.row_part == pytest.approx(exact.row_part.sum(), **CLOSE)


def test_rows_with_zeros_match_the_definition():
    case = draw_case(1003)
    table = case.parts.table

    def certain(states: StateArray) -> FloatArray:
        reply = np.zeros((*states.shape, len(table)))
        reply[..., 0] = 1.0
        return reply

    oracle = cp.CallableOracle(certain, table.ndim, len(table), row_error=1.0)
    assert_measured(case.measure(oracle=oracle), case.enumerate(asking(oracle)))


def test_noise_of_single_commits_is_all_row_part():
    case = draw_case(1004)
    oracle = dense_noise(case.parts.table)
    left = np.flatnonzero(case.given == cp.MASK)
    singles = [left[k : k + 1] for k in range(len(left))]
    measured = batch_kl_of_batches(
        case.parts.law, case.tokens, singles, given=case.given, oracle=oracle
    )
    assert measured.dependence_part == 0.0
    assert measured.value == measured.row_part > 0


def test_the_frozen_hard_matching_oracle_errs_at_revealed_non_triggers():
    law = cp.families.hard_matching(40, 3, vocab_size=6, bank_size=3, trigger_mass=0.2)
    first, second = law.edges.T
    tokens = np.full(40, 5)
    tokens[first[:4]] = law.trigger[first[:4]]
    measured = batch_kl_of_batches(law, tokens, [first, second], oracle=law.frozen_oracle())
    rho, theta = law.trigger_mass, law.coupling
    # Given a non-trigger, the trigger's mass is rho (1 - theta) instead of the frozen rho.
    q, p = np.array([rho, 1 - rho]), np.array([rho * (1 - theta), 1 - rho * (1 - theta)])
    assert measured.per_round[0] == pytest.approx(0, abs=1e-13)
    assert measured.per_round[1] == pytest.approx(16 * (q * np.log(q / p)).sum(), rel=1e-10)
    assert measured.dependence_part == 0.0


def test_the_exact_oracle_given_by_hand_changes_nothing():
    case = draw_case(12)
    law = case.parts.law
    plain = batch_kl_of_batches(law, case.tokens, case.batches, given=case.given)
    named = batch_kl_of_batches(
        law, case.tokens, case.batches, given=case.given, oracle=law.oracle()
    )
    assert plain.value == named.value
    copied = pickle.loads(pickle.dumps(law)).oracle()
    by_copy = batch_kl_of_batches(law, case.tokens, case.batches, given=case.given, oracle=copied)
    assert by_copy.row_part == pytest.approx(0, abs=1e-13)
    assert by_copy.value == pytest.approx(plain.value, **CLOSE)
