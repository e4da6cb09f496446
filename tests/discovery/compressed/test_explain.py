"""Why positions are unresolved: the cause is named, measured, and what helps is advised."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, Findings, compressed_screen
from counterprobe.discovery.compressed.explain import REFUTED, _rounded_up, explain
from counterprobe.discovery.compressed.knowledge import Knowledge
from counterprobe.samplers import Compressed
from counterprobe.targets import forests


def screen(oracle: cp.Oracle, **settings: object) -> tuple[Findings, cp.Ledger]:
    run = cp.run.Run(oracle)
    decisions = cp.Streams.from_seed(1).decisions
    return run.call(compressed_screen, decisions, CompressedSettings(**settings)), run.ledger


class Redeclared:
    """An oracle that claims another row error than its own."""

    trusted = False

    def __init__(self, oracle: cp.Oracle, row_error: float) -> None:
        self.oracle, self.row_error = oracle, row_error
        self.length, self.vocab_size = oracle.length, oracle.vocab_size

    def rows(self, states: np.ndarray, readouts: cp.Readouts) -> cp.rows.Rows:
        return self.oracle.rows(states, readouts)


def falling_path(length: int, vocab_size: int, heads: int = 4) -> cp.ForestLaw:
    """Return a hidden path over tokens of masses that fall as 1/rank, in three classes."""
    rng = np.random.default_rng(0)
    field = rng.uniform(-1.0, 1.0, length)
    unary = np.stack([0.4 * np.exp(field), 0.4 * np.exp(-field), np.full(length, 0.6)], axis=1)
    token_class = np.minimum(np.arange(vocab_size) // heads, 2)
    phi = np.array([1.0, -1.0, 0.0])
    return cp.ForestLaw(
        unary / unary.sum(axis=1, keepdims=True),
        rng.permutation(length)[forests.path(length)],
        1 + 0.5 * np.outer(phi, phi),
        classes=cp.classes.TokenClasses.build(
            length, token_class, within=1 / np.arange(1.0, vocab_size + 1)
        ),
    )


def dense(law: cp.ForestLaw, **options: object) -> cp.CallableOracle:
    """Return the law's oracle with rows that do not tell classes."""
    exact = law.oracle()

    def function(states: np.ndarray) -> np.ndarray:
        table = np.full((*states.shape, law.vocab_size), 1 / law.vocab_size)
        readouts = cp.Readouts.every_masked(states)
        rows = exact.rows(states, readouts).dense()
        table[readouts.state_index, readouts.position] = rows
        return table

    return cp.CallableOracle(function, law.length, law.vocab_size, **options)


# ----- The number of columns ------------------------------------------------------------------


def test_a_path_over_fifty_thousand_tokens_is_found_by_default():
    law = falling_path(200, 50_000)
    result = Compressed()(cp.run.Run(law.oracle()), cp.Streams.from_seed(1))
    assert result.stop is cp.StopReason.COMPLETED
    findings = result.diagnostics.findings
    assert findings.is_resolved.all()
    assert findings.num_choices <= 6
    assert (
        result.ledger.evaluations < 260
    )  # the floor 4/V left some 900 columns, and nothing resolved
    assert cp.evaluation.batch_kl(law, result).value == 0.0
    assert findings.usual_threshold == 4 / 50_000 < findings.bank_threshold
    assert any("bank threshold was raised from 8e-05 to" in note for note in result.notes)


def test_dense_rows_over_three_hundred_tokens_are_screened_with_few_columns():
    law = falling_path(64, 300)
    findings, _ = screen(dense(law), bank_threshold=None)
    assert findings.num_choices <= 17
    found = {tuple(sorted(map(int, edge))) for edge in findings.edges}
    assert found == {tuple(sorted(map(int, edge))) for edge in law.edges}
    assert findings.is_resolved.all()


def test_a_threshold_of_ones_own_is_not_raised_nor_mentioned():
    findings, _ = screen(falling_path(40, 50_000, heads=1).oracle(), bank_threshold=0.05)
    assert findings.bank_threshold == findings.usual_threshold == 0.05
    assert findings.column_note == ""


# ----- Causes ---------------------------------------------------------------------------------


def test_noise_above_the_declared_row_error_is_measured_and_declaring_it_helps():
    law = cp.families.path(256, target_seed=196)
    noisy = cp.FrozenNoise.for_hellinger_radius(law.oracle(), 1e-3, seed=1, classes=law.classes)
    findings, _ = screen(Redeclared(noisy, 1e-12))
    assert not findings.is_resolved.any()
    assert "more noise than the row_error of 1e-12" in findings.reason
    assert "probes is spent" not in findings.reason
    assert "max_probes" not in findings.advice
    assert "bank_threshold" not in findings.advice  # classed rows have no tail to blame
    worst = float(np.nanmax(findings.misfit))
    assert noisy.row_error / 2 < worst < 4 * noisy.row_error
    assert f"{worst:.2g} at the worst" in findings.reason
    advised = float(re.search(r"row_error=([\d.e-]+)\)", findings.advice)[1])
    assert worst <= advised <= 10 * worst
    again, _ = screen(Redeclared(noisy, advised))
    assert again.is_resolved.all()
    assert (again.reason, again.advice) == ("", "")


def test_a_law_that_is_not_pairwise_gets_no_advice_that_cannot_help():
    bits = np.indices((2,) * 6)
    parity = np.where((bits.sum(axis=0)) % 2 == 1, 0.2, 0.8)
    findings, _ = screen(cp.TableLaw(parity / parity.sum()).oracle())
    assert not findings.is_resolved.any()
    assert "not sums of pairwise terms" in findings.reason
    assert findings.advice == ""  # too much for noise, no tail, no budget
    assert np.nanmax(findings.misfit) > 0.1


def test_a_spent_budget_asks_for_more_probes_and_blames_nothing_else():
    law = cp.families.path(100, target_seed=196)
    findings, _ = screen(law.oracle(), max_probes=10, first_batch=8)
    assert findings.reason == "the budget of 10 probes is spent"
    assert findings.advice == "permit more probes (max_probes)"


def test_no_column_asks_for_a_lower_threshold(uniform_oracle):
    findings, _ = screen(uniform_oracle(length=5, vocab_size=300))
    assert "no token reaches the bank threshold 0.0133" in findings.reason
    assert findings.advice == "lower bank_threshold"


def test_tail_tokens_that_act_differently_are_named_where_there_is_a_tail():
    # Every token acts by itself, and only the likeliest few have a column.
    length, vocab_size = 24, 64
    rng = np.random.default_rng(5)
    unary = np.tile(1 / np.arange(1.0, vocab_size + 1), (length, 1))
    pair = np.exp(rng.normal(scale=0.5, size=(vocab_size, vocab_size)))
    law = cp.ForestLaw(unary, forests.path(length), pair)
    findings, _ = screen(dense(law), max_probes=400)
    assert not findings.is_resolved.any()
    assert "depend on which token of all-mask mass below" in findings.reason
    assert "lower bank_threshold" in findings.advice


def test_what_was_never_fitted_has_no_misfit():
    law = cp.families.path(40, target_seed=196)
    given = np.full(40, cp.MASK)
    given[:10] = 1
    run = cp.run.Run(law.oracle(), given=given)
    findings = run.call(compressed_screen, cp.Streams.from_seed(1).decisions, CompressedSettings())
    assert np.isnan(findings.misfit[:10]).all()
    assert (findings.misfit[10:] < 1e-9).all()
    alone = cp.run.Run(cp.families.path(2).oracle(), given=[cp.MASK, 1])
    nothing = alone.call(
        compressed_screen, cp.Streams.from_seed(1).decisions, CompressedSettings()
    )
    assert np.isnan(nothing.misfit).all()


# ----- What a user sees -----------------------------------------------------------------------


def test_a_run_that_drew_nothing_warns_and_says_what_to_try():
    law = cp.families.path(256, target_seed=196)
    noisy = cp.FrozenNoise.for_hellinger_radius(law.oracle(), 1e-3, seed=1, classes=law.classes)
    run = cp.run.Run(Redeclared(noisy, 1e-12))
    with pytest.warns(
        cp.errors.InfeasibleWarning, match=r"compressed drew nothing after \d+ evaluat"
    ):
        result = Compressed()(run, cp.Streams.from_seed(1))
    assert result.tokens is None
    assert result.stop is cp.StopReason.INFEASIBLE
    assert "nothing was submitted" not in result.stop.value
    assert result.ledger.evaluations > 0
    for remedy in ("row_error=", "fallback=True", "punt", "entropy-bounded"):
        assert remedy in result.reason


def test_a_structure_with_given_context_recognises_its_oracle():
    # The given positions have no misfit, which must not make every reply differ.
    law = cp.families.path(40, target_seed=196)
    given = np.full(40, cp.MASK)
    given[:3] = 1
    structure = cp.discover(law.oracle(), given=given)
    assert np.isnan(structure.certificate.misfit[:3]).all()
    assert cp.discovery.check_oracle(structure, law.oracle()).probes > 0


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (9.6e-5, 1e-4),
        (1e-5, 1e-5),
        (0.0123, 0.02),
        (0.3, 0.3),
        (0.31, 0.4),
        (1.0, 1.0),
        (7.2, 8.0),
    ],
)
def test_advised_numbers_are_short_and_never_too_small(value, rounded):
    assert _rounded_up(value) == pytest.approx(rounded, rel=1e-12)
    assert _rounded_up(value) >= value * (1 - 1e-9)


# ----- Every cause and remedy -----------------------------------------------------------------


class Found:
    """What an explanation looks at, made up; misfits are known once they are measured."""

    def __init__(
        self,
        misfit: list[float],
        *,
        num_probes: int = 100,
        is_sketch: bool = False,
        has_mixed_tail: bool = False,
    ) -> None:
        self.knowledge = Knowledge(np.zeros(len(misfit), dtype=np.bool_))
        self.knowledge.resolve(np.flatnonzero(np.isnan(misfit)))
        self.readings = SimpleNamespace(
            num_probes=num_probes,
            tolerance=3e-3,
            row_error=1e-3,
            is_sketch=is_sketch,
            columns=SimpleNamespace(
                has_mixed_tail=has_mixed_tail, banks=SimpleNamespace(threshold=0.0123)
            ),
        )
        self.misfit = np.full(len(misfit), np.nan)
        self._measured = np.array(misfit)

    def measure(self, readouts: np.ndarray) -> None:
        assert readouts.tolist() == np.flatnonzero(~self.knowledge.is_resolved).tolist()
        self.misfit[readouts] = self._measured[readouts]


def explained(
    found: Found, *, is_spent: bool = False, is_refuted: bool = False
) -> tuple[str, str]:
    if is_refuted:
        found.knowledge.refute(np.flatnonzero(~found.knowledge.is_resolved))
    return explain(found, 18, 400, is_spent=is_spent)


NAN = float("nan")
SATURATED = (
    "fewer than 18 probes were evidence about them: their rows are saturated, all mass on one "
    "token, in nearly every probe"
)
LEFT = (
    "no neighbourhood explains them: 0.02 of total variation is left at the typical position and "
    "0.025 at the worst, 0.003 is allowed; their rows are not sums of pairwise terms"
)
NOISE = "have more noise than the row_error of 0.001 that the oracle declares"
DECLARE = "if that is noise, declare it on the oracle (row_error=0.03)"
LOWER = "lower bank_threshold, so that more tokens have a column of their own"


def test_rows_that_are_explained_but_not_resolved_lack_evidence() -> None:
    # At most the tolerance is left, or nothing could be judged.
    assert explained(Found([3e-3, 1e-9])) == (SATURATED, "")
    unjudged = Found([3e-3, 1e-9])
    unjudged._measured[1] = NAN
    assert explained(unjudged) == (SATURATED, "")
    assert explained(Found([1e-9]), is_refuted=True) == (REFUTED, "")


def test_what_is_left_is_measured_over_what_is_not_explained() -> None:
    misfit = [0.025, NAN, 0.02, 0.004, 1e-9]
    assert explained(Found(misfit)) == (f"{LEFT} or {NOISE}", DECLARE)
    assert explained(Found(misfit), is_refuted=True) == (f"{REFUTED}; {LEFT} or {NOISE}", DECLARE)
    assert explained(Found(misfit, is_sketch=True)) == (
        f"{LEFT}, {NOISE} or have more than 8 neighbours",
        DECLARE,
    )
    mixed = "depend on which token of all-mask mass below 0.012 is shown"
    assert explained(Found(misfit, has_mixed_tail=True)) == (
        f"{LEFT}, {NOISE} or {mixed}",
        f"{DECLARE}, or {LOWER}",
    )
    reason, _ = explained(Found(misfit, is_sketch=True, has_mixed_tail=True))
    assert reason == f"{LEFT}, {NOISE}, have more than 8 neighbours or {mixed}"
