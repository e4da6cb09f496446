"""Designs judged by another model: measures on laws that are known, cells in their order."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace

import judged
import numpy as np
import pytest
from designs.claims import judged_claims
from designs.contest import Contestant
from designs.judged import Effort, Judged, break_even, by_oracle
from designs.pricing import Dealt, free_plans
from designs.record import Record

import counterprobe as cp
from counterprobe.evaluation import reference_kl

SIZES = replace(
    judged.QUICK, designs={1: 8, 32: 6}, priced={32: 3}, adaptive=Effort(3, 2), plans=2, probes=24
)


def some_law(seed: int) -> cp.ForestLaw:
    rng = np.random.default_rng(seed)
    edges = [(k, k + 1) for k in range(9)]
    return cp.ForestLaw(np.ones((10, 3)), edges, np.exp(rng.normal(size=(9, 3, 3))))


def some_field(native: np.ndarray | None = None) -> Judged:
    given = np.full(10, cp.MASK)
    judge = by_oracle(some_law(4).oracle(), given, 2)
    return Judged(
        some_law(3).oracle(), given, judge, np.zeros(10, int) if native is None else native
    )


@pytest.mark.statistical
def test_one_batch_breaks_what_the_law_says_and_the_judge_scores_by_its_own():
    """Within four standard errors: 6e-5 each."""
    field = some_field()
    one = Contestant.named("one-batch", "baseline")
    found = field.measure(one, Effort(600, 300, None))
    assert found["evaluations"] == 1 and found["designs"] == 600 and found["priced"] == 300
    assert abs(found["kl"] - reference_kl(some_law(3))) < 4 * found["kl_se"]
    assert found["kl_median"] > 0
    # The judge's mean over designs, from rows of its own law.
    sequences = field.draw(one, 600).sequences
    exact = np.array([some_law(4).log_prob(sequence) for sequence in sequences])
    assert found["judge"] == pytest.approx(exact.mean(), abs=1e-4)
    assert found["judge_se"] == pytest.approx(exact.std(ddof=1) / math.sqrt(600), rel=1e-3)
    assert found["recovery"] == pytest.approx((sequences == 0).mean())
    assert 0 < found["variety"] < 1


def test_one_at_a_time_breaks_nothing_and_costs_no_pricing():
    found = some_field().measure(
        Contestant.named("sequential", "baseline", order="random"), Effort(4, 4)
    )
    assert found["kl"] == 0 and found["evaluations"] == 10 and "measuring" not in found


def test_designs_of_a_plan_are_one_observation_for_the_error():
    field = some_field()
    plans = tuple(free_plans("random", None, 10, 2, 3))
    dealt = Contestant.dealt("random", Dealt(plans), batches=2)
    batch = field.draw(dealt, 64)
    scores = field.judge(batch.sequences)
    naive = scores.std(ddof=1) / 8
    assert field.judged(batch)["judge_se"] != pytest.approx(naive, rel=1e-6)


def test_nature_is_judged_where_all_of_it_is_known():
    field = some_field(np.arange(10) % 3)
    expected = some_law(4).log_prob(np.arange(10) % 3)
    assert field.of_nature()["judge"] == pytest.approx(expected, abs=1e-5)
    assert some_field(np.full(10, -1)).of_nature() == {}


def entry(sampler: str, evaluations: float, kl: float | None, error: float = 0.01):
    return {"sampler": sampler, "evaluations": evaluations, "kl": kl, "kl_se": error}


def test_finding_a_structure_is_repaid_by_what_each_design_saves():
    ways = {
        "planned 4": entry("planned", 4, 0.5),
        "random 4": entry("random", 4, 2.0),
        "random 8": entry("random", 8, 0.51),
        "random 16": entry("random", 16, 0.1),
        "distance 4": entry("distance", 4, 0.49),
        "punt epsilon=0.1": entry("punt", 10, None),
        "sequential": entry("sequential", 100, 0.0, 0.0),
    }
    assert break_even(ways, 257, "planned 4") == {
        "random": {"evaluations": 8, "designs": 65},
        "distance": {"evaluations": 4, "designs": None},
        "sequential": {"evaluations": 100, "designs": 3},
    }
    never = {"planned 4": ways["planned 4"], "random 4": ways["random 4"]}
    assert break_even(never, 257, "planned 4") == {}


class LawTask(judged.Task):
    """A known law in place of a network: everything else is the benchmark's own."""

    free = ("random", "spread")

    def _field(self) -> Judged:
        return some_field()


def test_cells_are_measured_by_worth_written_and_continued(tmp_path):
    file, lines = tmp_path / "judged.json", []
    tasks = [LawTask("law", t, SIZES, "cpu") for t in (0.3, 1.0)]

    def record() -> Record:
        return Record(file, {"sizes": 1}, judged_claims, lines.append)

    count = sum(1 for task in tasks for _ in task.cells())
    assert judged.measure_all(record(), tasks, 0, -1.0) == count
    assert judged.measure_all(record(), tasks, 0, math.inf) == 0
    measured = json.loads(file.read_text())["tasks"]
    assert [len(measured[name]["ways"]) for name in ("law T=1", "law T=0.3")] == [33, 15]
    assert not record().failures
    assert lines[0].split("] ")[1].startswith("law T=1 ways one-batch")
    ways = measured["law T=1"]["ways"]
    assert ways["planned 8"]["evaluations"] == 8 and ways["sequential"]["evaluations"] == 10
    assert measured["law T=1"]["structure"]["used"]["evaluations"] == 25
    before = len(lines)
    assert judged.measure_all(record(), tasks, 0, math.inf) == 0
    assert len(lines) == before
    claims = {claim["claim"]: claim for claim in record().claims}
    assert claims["four planned batches break less than one pass"]["of"] == 1


@pytest.mark.slow
def test_another_process_finds_the_structures(tmp_path):
    """The first residues of ubiquitin, by Frame2seq itself."""
    options = argparse.Namespace(tasks="folding", quick=True, backbones=None, device="cpu")
    task = judged.tasks_of(options, judged.QUICK)[0]
    task.cells = lambda: iter([judged.Cell(1, "planned 4", "planned", 4, {}, Effort(2, 2))])
    record = Record(tmp_path / "judged.json", {}, judged_claims, lambda line: None)
    assert judged.measure_all(record, [task], 1, math.inf) == 0
    assert not record.failures
    found = record.part("1ubi T=1", "ways")["planned 4"]
    assert found["evaluations"] == 4 and found["kl"] > 0 and found["judge"] < 0


def test_sizes_are_chosen_by_evaluations_and_temperature():
    full = judged.FULL
    assert full.effort(4, 1.0).designs == 192 and full.effort(4, 0.3).designs == 96
    assert full.effort(1, 1.0).terms == 4 and full.effort(8, 1.0).terms == 1
    assert judged.upto({4: 7, 8: 5}, 6) == 5 and judged.upto({4: 7, 8: 5}, 99) == 5


def test_unknown_tasks_are_refused(capsys):
    assert judged.main(["--tasks", "rna"]) == 2
    assert "tasks must be folding, antibodies or both; got 'rna'" in capsys.readouterr().err
