from __future__ import annotations

import math
import time
from functools import partial
from typing import ClassVar

import backbones
import numpy as np
import pytest
import torch
from _results import plain
from _timing import alternate
from designs.colab import is_there
from designs.contest import Contestant, Effort, Field, baselines, joint_p_value, peers, recovery
from designs.package import package_designs
from designs.prepared import FREE, OWN, PLANNED, Prepared
from designs.pricing import Dealt, Precision, make_plans, measure_kl
from designs.record import Record
from designs.report import sentences, speed_table, table
from designs.speed import design_speed, held_at_once, seconds_to_encode

import counterprobe as cp
from counterprobe.evaluation import reference_kl, two_sample_test
from counterprobe.planning import Plan


@pytest.fixture(scope="module")
def law():
    rng = np.random.default_rng(3)
    edges = [(k, k + 1) for k in range(7)]
    return cp.ForestLaw(np.ones((8, 3)), edges, np.exp(rng.normal(size=(7, 3, 3))))


@pytest.fixture(scope="module")
def structure(law):
    return cp.discover(law.oracle(), cp.Streams.from_seed(0), mode="soft", probes=48)


def test_recovery_counts_natural_residues_where_they_are_known():
    native = np.array([2, -1, 0, 1])
    sequences = np.array([[2, 0, 0, 1], [2, 1, 1, 0]])
    found = recovery(sequences, native)
    assert found["recovery"] == pytest.approx((1 + 1 / 3) / 2)
    assert found["recovery_se"] == pytest.approx(1 / 3)


def test_recovery_of_nothing_natural_is_not_a_number():
    assert math.isnan(recovery(np.zeros((2, 3), dtype=int), np.full(3, -1))["recovery"])


def test_dealt_plans_are_committed_and_chosen_by_the_decision_seed(law, structure):
    plans = make_plans("planned", structure, 2, 4)
    batch = cp.sample(law.oracle(), Dealt(tuple(plans)), 64, orders="fresh", progress=False)
    firsts = {tuple(sorted(result.batches[0])) for result in batch.results}
    assert firsts == {tuple(sorted(plan.batches[0].tolist())) for plan in plans}


@pytest.mark.parametrize("way", ["planned", "random", "spread", "distance"])
def test_plans_of_every_way_cover_everything_and_free_ones_differ_between_seeds(structure, way):
    apart = np.abs(np.subtract.outer(np.arange(8.0), np.arange(8.0)))
    plans = make_plans(way, structure, 2, 6, distances=apart)
    assert all(sorted(np.concatenate(plan.batches)) == list(range(8)) for plan in plans)
    # The structure is a forest that stands out: its layers are one plan.
    assert (len({tuple(plan.batches[0]) for plan in plans}) > 1) == (way != "planned")


def test_an_unknown_way_and_missing_distances_are_refused(structure):
    with pytest.raises(ValueError, match="way must be one of"):
        make_plans("best", structure, 2, 1)
    with pytest.raises(ValueError, match="needs distances"):
        make_plans("distance", structure, 2, 1)


@pytest.mark.statistical
@pytest.mark.parametrize("direction", ["product", "joint"])
def test_a_measured_price_covers_the_exact_one(law, direction):
    """Within four standard errors: 6e-5 a case. Two batches instead of one are told apart."""
    plan = Plan((np.arange(8),), math.nan, math.nan, "random", 0.0, 8)
    found = measure_kl(law.oracle(), [plan], direction, Precision(0.01, 16, most=400, terms=None))
    if direction == "product":
        exact = reference_kl(law)
        assert abs(found["kl"] - exact) < 4 * found["kl_se"]
    halves = Plan((np.arange(0, 8, 2), np.arange(1, 8, 2)), math.nan, math.nan, "random", 0.0, 8)
    less = measure_kl(law.oracle(), [halves], direction, Precision(0.01, 16, most=400, terms=None))
    assert found["kl"] - less["kl"] > 4 * math.hypot(found["kl_se"], less["kl_se"])


def test_a_pilot_says_how_many_samples_an_error_needs():
    precision = Precision(0.1, least=10, most=500)
    spread = np.array([-1.0, 1.0] * 50)
    assert precision.samples_for(spread) == math.ceil(1.2 * spread.var(ddof=1) / 0.01)
    assert precision.samples_for(0 * spread) == 10
    assert precision.samples_for(100 * spread) == 500


def test_samplers_are_measured_by_cost_price_likelihood_and_test(law):
    contested = Field(law.oracle(), np.full(8, cp.MASK), Effort(40, 40, 20), np.zeros(8, int))
    entries = {one.key: contested.measure(one) for one in baselines((2,))}
    entries |= {
        one.key: contested.measure(one) for one in peers((2,), {"punt": ("epsilon", (0.01,))})
    }
    assert list(entries) == [
        "sequential order=random",
        "random-balanced batches=2",
        "spread batches=2",
        "llada steps=2",
        "maskgit steps=2",
        "punt epsilon=0.01",
    ]
    assert entries["sequential order=random"]["kl"] == 0
    assert entries["sequential order=random"]["evaluations"] == 8
    assert entries["random-balanced batches=2"]["evaluations"] == 2
    assert entries["random-balanced batches=2"]["kl"] > 0
    for entry in entries.values():
        assert entry["scored"] == 20 and entry["sequences"] == 40
        assert 0 < entry["mmd_p"] <= 1 and entry["log_likelihood"] < 0
        assert 0 <= entry["recovery"] <= 1


def test_the_test_tells_a_sampler_that_draws_all_at_once_from_one_that_does_not():
    """A pair that nearly always agrees; at 80 sequences the p-value is the least there is."""
    oracle = cp.TableLaw([[0.49, 0.01], [0.01, 0.49]]).oracle()
    contested = Field(oracle, np.full(2, cp.MASK), Effort(80, 80, 4))
    one_batch = contested.measure(Contestant.named("one-batch", "baseline"))
    alone = contested.measure(Contestant.named("sequential", "baseline", order="random"))
    assert one_batch["mmd_p"] < 0.01 <= alone["mmd_p"]


def test_a_joint_p_value_pays_for_every_kernel():
    rng = np.random.default_rng(0)
    test = two_sample_test(rng.integers(0, 3, (20, 4)), rng.integers(0, 3, (20, 4)))
    kernels = len(test.p_value)
    assert kernels > 1
    assert joint_p_value(test) == min(1, kernels * min(test.p_value.values()))


# ----- Keeping ------------------------------------------------------------------------------


def nothing(tasks):
    return [{"claim": "none", "tasks": len(tasks), "holds": True}]


def test_a_record_is_written_after_every_measurement_and_continued(tmp_path):
    file, calls = tmp_path / "found.json", []

    def work(value):
        calls.append(value)
        return {"kl": value}

    record = Record(file, {"samples": 3}, nothing, lambda line: None)
    assert record.measure("a", "prices", "x", lambda: work(0.123456789))["kl"] == 0.12346
    assert record.measure("a", "prices", "y", lambda: 1 / 0) is None
    again = Record(file, {"samples": 3}, nothing, lambda line: None)
    assert again.measure("a", "prices", "x", lambda: work(2.0))["kl"] == 0.12346
    assert calls == [0.123456789]
    assert again.failures == ["a prices y: ZeroDivisionError: division by zero"]
    assert again.measure("a", "prices", "y", lambda: work(3.0))["kl"] == 3.0
    assert again.failures == []


def test_a_task_that_cannot_be_begun_is_kept_as_a_failure_until_it_can(tmp_path):
    record = Record(tmp_path / "found.json", {}, nothing, lambda line: None)
    with record.attempt("a"):
        raise OSError("no weights")
    assert record.failures == ["a task begun: OSError: no weights"]
    again = Record(tmp_path / "found.json", {}, nothing, lambda line: None)
    with again.attempt("a"):
        again.measure("a", "prices", "x", lambda: {"kl": 1.0})
    assert again.failures == []


def test_a_record_of_other_settings_is_not_continued(tmp_path):
    file = tmp_path / "found.json"
    Record(file, {"samples": 3}, nothing, lambda line: None).measure("a", "b", "c", dict)
    with pytest.raises(ValueError, match="other settings"):
        Record(file, {"samples": 4}, nothing, lambda line: None)


def test_what_json_lacks_becomes_plain():
    found = plain({"a": np.float64(math.nan), 2: np.arange(2), "c": (math.inf, 1.0)})
    assert found == {"a": None, "2": [0, 1], "c": [None, 1.0]}


def test_a_table_leaves_out_failures_and_columns_that_nobody_has():
    lines = table({"x": {"kl": 0.5}, "y": {"error": "no"}, "z": {"kl": None}}).splitlines()
    assert len(lines) == 3
    assert "batch KL" in lines[0] and "recovery" not in lines[0]
    assert "0.500" in lines[1] and lines[2].strip() == "z"


def test_claims_and_failures_are_said(tmp_path):
    record = Record(None, {}, nothing, lambda line: None)
    record.measure("a", "prices", "y", lambda: 1 / 0)
    assert "holds: none (tasks 1)" in sentences(record)
    assert "not measured: a prices y" in sentences(record)


# ----- Timing and the package ---------------------------------------------------------------


def test_work_is_done_turn_by_turn_after_a_round_to_warm_up():
    done = []
    best = alternate({"a": lambda: done.append("a"), "b": lambda: done.append("b")}, repeats=2)
    assert done == ["a", "b"] * 3
    done.clear()
    works = {name: partial(done.append, name) for name in "ab"}
    assert set(alternate(works, repeats=2, once=("a",))) == {"a", "b"}
    assert done == ["b", "a", "b", "b"]
    assert set(best) == {"a", "b"} and all(seconds >= 0 for seconds in best.values())


def test_the_package_draws_known_residues_and_repeats_them_with_a_seed():
    torch.set_num_threads(1)
    short = cp.models.Backbone.shipped("1ubi").part(range(50))
    model = cp.models.load("proteinmpnn", backbone=short, device="cpu")
    drawn = package_designs(model, 2, seed=5)
    assert drawn.shape == (2, 50)
    assert drawn.min() >= 0 and drawn.max() < 20
    np.testing.assert_array_equal(drawn, package_designs(model, 2, seed=5))
    assert (drawn[0] != drawn[1]).any()


# ----- Speed --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short():
    """Twelve residues of ubiquitin."""
    torch.set_num_threads(1)
    backbone = cp.models.Backbone.shipped("1ubi").part(range(12), "short")
    return cp.models.load("proteinmpnn", backbone=backbone, device="cpu")


class Refusing:
    """A rival that does not run."""

    seconds_to_compile: ClassVar[dict[int, float]] = {}

    def designs(self, count, seed):
        raise MemoryError("too many")


class Random(Refusing):
    """A rival that draws anything."""

    def designs(self, count, seed):
        self.seconds_to_compile[count] = 0.5
        return np.random.default_rng(seed).integers(0, 20, (count, 12))


def test_designs_are_timed_beside_a_rival_and_without_one(short):
    assert seconds_to_encode(short) > 0
    plan = Plan((np.arange(6), np.arange(6, 12)), math.nan, math.nan, "random", 0.0, 12)
    plans = {"16": [plan], "distance 16": [plan]}
    found = design_speed(short, plans, 2, 1, rival=Random())
    rates = (
        "package",
        "colabdesign",
        "sequential",
        "cached 16",
        "cached distance 16",
        "arithmetic",
    )
    assert all(found[name] > 0 for name in rates)
    assert found["cached 16 ratio"] == found["cached 16"] / found["package"]
    ratio = found["cached 16"] / found["colabdesign"]
    assert found["cached 16 to colabdesign ratio"] == ratio
    assert found["colabdesign seconds to compile"] == 0.5
    assert found["cached 16 to sequential ratio"] == found["cached 16"] / found["sequential"]
    assert found["arithmetic"] > 0
    alone = design_speed(short, plans, 2, 1, rival=Refusing())
    assert alone["colabdesign refused"] == "MemoryError: too many"
    assert alone["cached 16"] > 0 and not any("to colabdesign" in name for name in alone)


def test_plans_are_prepared_once_and_read_again(short, tmp_path):
    made = Prepared.make(short, probes=16, count=2, batches=(3,))
    assert set(made.structures) == {PLANNED, OWN}
    assert set(made.rounds) == {f"{way} 3" for way in (PLANNED, OWN, *FREE)}
    made.save(tmp_path / "plans.json")
    again = Prepared.load(tmp_path / "plans.json")
    for way in (PLANNED, OWN, *FREE):
        one, other = made.plans(way, 3), again.plans(way, 3)
        assert len(one) == 2 and all(len(plan) <= 3 for plan in one)
        for plan, read in zip(one, other, strict=True):
            assert np.array_equal(plan.positions, np.arange(12))
            assert all(map(np.array_equal, plan.batches, read.batches))
            assert read.estimated_kl == pytest.approx(plan.estimated_kl, rel=1e-5)


def test_what_is_held_at_once_is_drawn_again_in_parts(short):
    plan = Plan((np.arange(6), np.arange(6, 12)), math.nan, math.nan, "random", 0.0, 12)
    found = held_at_once(short, Dealt((plan,)), 4, parts=2)
    assert found["at_once"] == 4 and found["residues"] == 12
    for name in ("planned", "sequential"):
        assert found[f"{name} same in parts"] and found[f"{name} designs a second"] > 0


def test_speed_is_shown_with_what_is_done_once():
    once = {"seconds_to_encode": 0.25, "seconds_a_plan": 2.0, "edges": 7}
    entry = {"at_once": 64, "package": 1.5, "cached distance 16": 20.0}
    parts = {"structure": {"used": once}, "speed": {"64": entry, "256": {"error": "no"}}}
    first, second, last = speed_table(parts).splitlines()
    assert first.split() == ["at", "once", "package", "distance", "16"]
    assert second.split() == ["64", "1.5", "20.0"]
    assert last == "once: seconds to encode 0.25, seconds a plan 2"


def test_a_rival_that_was_not_carried_is_not_there():
    assert not is_there()


def test_the_time_of_one_core_is_of_one_thread_on_a_processor(capsys):
    assert backbones.main(["--processor-time", "--threads", "2"]) == 2
    assert "--processor-time must go with --threads 1" in capsys.readouterr().err
    works = {"work": lambda: sum(range(20_000)), "sleep": lambda: time.sleep(0.2)}
    best = alternate(works, repeats=2, clock=time.process_time)
    assert best["sleep"] < 0.1  # which takes 0.2 seconds and no processor
