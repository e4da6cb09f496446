"""What pairs do not explain: parities beside chains, and what plans and samples make of them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from grouped_laws import GroupedLaw, chain, parity


@pytest.fixture(scope="module")
def triples():
    """Twelve triples of which any two positions are independent."""
    law = GroupedLaw([parity(3)] * 12, seed=0)
    return law, cp.discover(law)


def test_triples_are_committed_one_by_one_and_the_samples_say_why(triples):
    law, found = triples
    assert found.strengths is not None
    assert not found.strengths.nats.any() or found.strengths.nats.max() < 0.1
    assert found.untrusted.tolist() == list(range(36))
    drawn = cp.sample(law, found, 300, seed=cp.Streams(1, 2))
    assert law.price(drawn.results[0].batches) == pytest.approx(0, abs=1e-12)
    sums = drawn.sequences[:, np.stack(law.groups)].sum(axis=2) % 2
    assert sums.mean() < 0.08  # 0.05 by law, 0.5 if broken
    assert all("committed alone for that: 36" in result.notes[0] for result in drawn.results)


def test_few_batches_say_what_they_risk(triples):
    law, found = triples
    plan = cp.planning.plan_for(found, batches=4)
    assert len(plan) == 4 and law.price(plan.batches) > 1
    assert plan.uncovered > law.price(plan.batches)
    assert "not covered" in repr(plan) and plan.as_dict()["uncovered"] == plan.uncovered
    drawn = cp.sample(law, found, 8, seed=cp.Streams(1, 2), batches=4)
    assert "nats of movement that they do not explain" in drawn.results[0].notes[0]
    table = cp.evaluation.price_plans(law, found, (4,), samples=16)
    assert table.of("planned")[0].uncovered == pytest.approx(plan.uncovered, rel=0.2)
    assert "pairs do not explain" in str(table)
    assert json.loads(json.dumps(table.prices[0].as_dict()))["uncovered"] > 1


@pytest.mark.parametrize(("size", "seed"), [(3, 0), (4, 1), (5, 0), (6, 1), (8, 0)])
def test_a_parity_beside_chains_goes_alone(size, seed):
    law = GroupedLaw([parity(size), *[chain(5)] * 4], seed=seed)
    found = cp.discover(law, cp.Streams.from_seed(seed), mode="soft", probes=192)
    assert set(found.untrusted) <= set(law.groups[0].tolist())
    assert len(found.untrusted) >= min(size, 6)
    plan = cp.planning.plan_for(found)
    assert law.price(plan.batches) <= plan.estimated_kl + 0.01
    assert len(plan) <= size + 5
    mean = found.strengths.explained[found.residual].mean()
    assert mean > 0.5  # a mean hides them


def test_chains_alone_are_trusted_and_cheap():
    law = GroupedLaw([chain(6)] * 4, seed=3)
    found = cp.discover(law, mode="soft", probes=192)
    assert len(found.untrusted) == 0
    plan = cp.planning.plan_for(found)
    assert len(plan) <= 4 and law.price(plan.batches) < 0.1
    assert 0 < plan.uncovered < 0.2 * found.strengths.moved.sum()


def test_what_did_not_move_has_nothing_to_explain():
    law = GroupedLaw([np.array([0.3, 0.7])] * 6 + [parity(3)])
    found = cp.discover(law, mode="soft", probes=96)
    assert found.untrusted.tolist() == [6, 7, 8]
    assert (
        found.strengths.most_moved[:6].max() < 1e-6
        and found.strengths.explained[:6].tolist() == [0.0] * 6
    )
    plan = cp.planning.plan_for(found)
    assert plan.sizes == [6, 1, 1, 1] and plan.uncovered < 1e-6


def test_what_was_not_measured_is_not_trusted(tmp_path):
    law = GroupedLaw([chain(4)] * 2)
    found = cp.discover(law, mode="soft", probes=64)
    nothing = {name: np.full(8, np.nan) for name in ("moved", "most_moved", "explained")}
    found = replace(found, strengths=replace(found.strengths, **nothing))
    assert found.untrusted.tolist() == list(range(8))
    assert cp.planning.plan_for(found).sizes == [1] * 8
    plan = cp.planning.plan_for(found, batches=2)
    assert math.isnan(plan.uncovered) and plan.as_dict()["uncovered"] is None
    notes = cp.sample(law, found, 2, seed=cp.Streams(1, 2), batches=2).results[0].notes
    assert "was not measured" in notes[0]
    found.save(tmp_path / "soft.npz")
    assert np.isnan(cp.Structure.load(tmp_path / "soft.npz").strengths.explained).all()
