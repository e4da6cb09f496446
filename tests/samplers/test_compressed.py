"""The compressed sampler: exact batches, few rounds, and what it does when it cannot."""

import math
from dataclasses import asdict, fields

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed.findings import ASSUMPTION
from counterprobe.evaluation import exact_output_law
from counterprobe.samplers import Compressed, build_sampler

STREAMS = cp.Streams(61, 62)


@pytest.mark.parametrize("family", ["matching", "path", "binary-tree", "growing-stars"])
def test_batches_are_exact_and_rounds_are_logarithmic(family: str) -> None:
    law = cp.families.build(family, 500, 196)
    result = Compressed()(cp.run.Run(law.oracle()), STREAMS)
    kl = cp.evaluation.batch_kl(law, result)
    assert (kl.value, kl.standard_error) == (0.0, 0.0)
    assert result.used == cp.Need.NONE
    assert result.ledger.commits <= math.ceil(math.log2(500 + 1))
    assert result.diagnostics.num_singles == result.diagnostics.num_repaired == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "most"),
    [("matching", 175), ("path", 230), ("binary-tree", 275), ("growing-stars", 185)],
)
def test_totals_at_full_size(family: str, most: int) -> None:
    totals = []
    for target in (196, 197):
        law = cp.families.build(family, 16384, target)
        result = Compressed()(cp.run.Run(law.oracle()), cp.Streams.from_seed(292))
        assert cp.evaluation.batch_kl(law, result).value == 0.0
        assert result.ledger.commits <= 15
        totals.append(result.ledger.evaluations)
    assert np.mean(totals) <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        "random-recursive-tree",
        "caterpillar",
        "double-star",
        "preferential-attachment",
        "random-forest",
    ],
)
@pytest.mark.parametrize("signs", ["same", "mixed"])
def test_harder_shapes_stay_logarithmic(family: str, signs: str) -> None:
    law = cp.families.build(family, 4096, 196, signs=signs)
    result = Compressed()(cp.run.Run(law.oracle()), STREAMS)
    assert cp.evaluation.batch_kl(law, result).value == 0.0
    assert result.ledger.evaluations <= 36 * math.log2(4096)


def test_the_output_law_is_the_target_where_the_graph_is_right() -> None:
    law = cp.families.two_type_path(6, vocab_size=16)
    outcome = exact_output_law(law, Compressed(), decision_seed=3)
    assert outcome is not None
    assert outcome.kl == pytest.approx(0.0, abs=1e-12)


def test_a_loop_is_repaired_and_the_law_kept() -> None:
    bits = np.indices((2,) * 4)
    table = np.ones((2,) * 4)
    for a, b in ((0, 1), (1, 2), (2, 3), (0, 3)):
        table = table * np.where(bits[a] == bits[b], 0.8, 0.2)
    law = cp.TableLaw(table / table.sum())
    outcome = exact_output_law(law, Compressed(), decision_seed=1)
    assert outcome is not None
    assert outcome.kl == pytest.approx(0.0, abs=1e-12)
    result = Compressed()(cp.run.Run(law.oracle()), STREAMS)
    assert result.diagnostics.num_repaired == 1
    assert result.notes == [
        "the recovered graph has cycles; 1 of their positions were committed singly",
        f"the regression screen took over: {result.diagnostics.findings.handover}",
        result.diagnostics.findings.assumption,
    ]


def test_unresolved_positions_are_committed_singly_and_the_law_kept() -> None:
    bits = np.indices((2,) * 5)
    odd = (bits[0] + bits[1] + bits[2]) % 2
    table = np.where(odd == 1, 0.1, 0.9) * np.where(bits[3] == bits[4], 0.8, 0.2)
    law = cp.TableLaw(table / table.sum())
    result = Compressed()(cp.run.Run(law.oracle()), STREAMS)
    assert result.diagnostics.num_singles == 3
    note, handover, assumption = result.notes
    assert assumption == ASSUMPTION
    assert handover.startswith("the regression screen took over: 3 positions were left")
    assert note.startswith("3 of 5 positions were committed singly: no neighbourhood explains")
    outcome = exact_output_law(law, Compressed(), decision_seed=61)
    assert outcome is not None
    assert outcome.kl == pytest.approx(0.0, abs=1e-12)


def test_a_budget_that_resolves_nothing_is_infeasible_unless_singles_are_allowed() -> None:
    law = cp.families.build("path", 100, 196)
    with pytest.warns(cp.errors.InfeasibleWarning, match="drew nothing after 9 evaluations"):
        refused = Compressed(max_probes=10, first_batch=8)(cp.run.Run(law.oracle()), STREAMS)
    assert refused.stop is cp.StopReason.INFEASIBLE
    assert refused.tokens is None
    assert "resolved none of 100 positions" in refused.reason
    assert "max_probes" in refused.reason
    allowed = Compressed(max_probes=10, first_batch=8, fallback=True)(
        cp.run.Run(law.oracle()), STREAMS
    )
    assert allowed.ledger.commits == 100
    assert allowed.diagnostics.num_singles == 100
    assert cp.evaluation.batch_kl(law, allowed).value == 0.0


def test_decisions_do_not_depend_on_commit_draws() -> None:
    law = cp.families.build("random-recursive-tree", 150, 196)
    first = Compressed()(cp.run.Run(law.oracle()), cp.Streams(5, 1))
    second = Compressed()(cp.run.Run(law.oracle()), cp.Streams(5, 2))
    np.testing.assert_array_equal(first.round_of_position, second.round_of_position)
    assert first.ledger == second.ledger
    assert not np.array_equal(first.tokens, second.tokens)


def test_one_position_is_simply_committed() -> None:
    law = cp.ForestLaw([[0.3, 0.7]], np.empty((0, 2), dtype=int), np.ones((2, 2)))
    result = Compressed()(cp.run.Run(law.oracle()), STREAMS)
    assert result.ledger.evaluations == 1


def test_its_settings_are_those_of_the_screen_and_a_fallback() -> None:
    screen = [field.name for field in fields(cp.discovery.CompressedSettings)]
    assert [field.name for field in fields(Compressed)] == [*screen, "fallback"]
    assert {
        **asdict(cp.discovery.CompressedSettings()),
        "fallback": False,
    } == Compressed().settings
    with pytest.raises(ValueError, match="mask_rate must lie strictly between 0 and 1, got 2"):
        Compressed(mask_rate=2)
    built = build_sampler("compressed", {"max_probes": "300", "fallback": "true"})
    assert built == Compressed(max_probes=300, fallback=True)
    law = cp.families.build("path", 100, 196)
    found = cp.discover(law.oracle(), STREAMS, settings=built)
    assert found.about["settings"] == built.settings
