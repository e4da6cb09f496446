"""A structure that was found elsewhere: restricted, priced where it is used, or refused."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation.prices import Pricing
from counterprobe.infilling import carrying
from counterprobe.oracles import as_oracle
from counterprobe.samplers import Planned, Spread
from counterprobe.testing import CountingOracle
from fixed import batches_of

MASK = cp.MASK
# The gate is position 0: behind each of its values other pairs belong together.
PAIRS = {0: ((1, 3), (2, 4)), 1: ((1, 2), (3, 4))}


@pytest.fixture(scope="module")
def gated() -> cp.TableLaw:
    """A law whose dependence is another behind each value of a gate, and 5 goes with 6."""
    table = np.ones((2,) * 7)
    for x in itertools.product((0, 1), repeat=7):
        spins = 1 - 2 * np.array(x)
        for i, j in (*PAIRS[x[0]], (5, 6)):
            table[x] *= 1 + 0.8 * spins[i] * spins[j]
    return cp.TableLaw(table / table.sum())


def context(*fixed: tuple[int, int]) -> np.ndarray:
    given = np.full(7, MASK)
    for position, token in fixed:
        given[position] = token
    return given


def found_in(law: cp.TableLaw, given: np.ndarray, probes: int = 64) -> cp.Structure:
    return cp.discover(
        law.oracle(), cp.Streams.from_seed(1), mode="soft", given=given, probes=probes
    )


@pytest.fixture(scope="module")
def crossed(gated) -> cp.Structure:
    """Found where the gate was open."""
    return found_in(gated, context((0, 0)))


def infill(oracle: object, given: np.ndarray, structure: object, **options: object) -> object:
    if structure.strengths is not None:
        options = {"batches": 2, **options}
    options = {"count": 6, "seed": 3, "progress": False, **options}
    return cp.infill(oracle, given, structure=structure, **options)


# ----- What is left of it -----------------------------------------------------------------------


def test_a_structure_is_restricted_to_what_is_masked(crossed):
    here = crossed.in_context(context((0, 0), (3, 1)))
    assert here.residual.tolist() == [1, 2, 4, 5, 6]
    kept = [1, 2, 4, 5, 6]
    np.testing.assert_array_equal(
        here.strength[np.ix_(kept, kept)], crossed.strength[np.ix_(kept, kept)]
    )
    assert np.isnan(here.strength[3]).all() and np.isnan(here.strengths.moved[3])
    assert {3} & set(here.strengths.pairs.ravel()) == {3} & set(here.edges.ravel()) == set()
    assert here.ledger == crossed.ledger and len(here.sample_states) == 0


def test_nothing_is_known_of_what_was_fixed_there(gated, crossed):
    here = crossed.in_context(context((6, 0)))
    assert here.residual.tolist() == [0, 1, 2, 3, 4, 5]
    assert 0 in here.untrusted and not np.isfinite(here.strengths.moved[0])
    assert (here.strength[0, :6] == 0).all()
    rule = carrying.planned_here(Planned.of(here, batches=4), here, cp.Streams.from_seed(0))
    alone = [
        b.tolist() for b in rule.plan(here.residual, cp.Streams.from_seed(0).decisions).batches
    ]
    assert [0] in alone
    drawn = infill(gated.oracle(), context((6, 0)), crossed, batches=4)
    assert "masked here and fixed there, so that it says nothing of them: 1" in drawn.choice.why


def test_a_restricted_structure_is_saved_and_read_again(crossed, tmp_path):
    here = crossed.in_context(context((0, 1), (3, 1)))
    here.save(tmp_path / "here.npz")
    again = cp.Structure.load(tmp_path / "here.npz")
    assert again.digest == here.digest and again.about["found_masked"] == 6


@pytest.mark.parametrize(
    ("given", "said"),
    [(np.full(6, MASK), "7"), (np.full((2, 7), MASK), "one context, got 2"), ([2] * 7, "2")],
)
def test_a_context_of_another_kind_is_refused(crossed, given, said):
    with pytest.raises(ValueError, match=said):
        crossed.in_context(given)


# ----- Whether it is used -----------------------------------------------------------------------


def test_a_structure_that_is_wrong_in_this_context_is_refused(gated, crossed):
    """Behind the closed gate it would put 1 with 2, or 3 with 4, which belong together there."""
    drawn = infill(gated.oracle(), context((0, 1), (5, 0), (6, 0)), crossed)
    choice = drawn.choice
    assert choice.sampler == "spread" == drawn.results[0].sampler
    assert choice.prices["spread"] == pytest.approx((0, 0), abs=1e-9)
    assert choice.prices["planned"][0] > 0.1
    assert (choice.batch_kl, choice.batch_kl_se) == choice.prices["spread"]
    assert "is refused, since its plans break" in str(choice)
    assert str(choice).startswith("measured prices chose batches spread along the sequence: 2 ")


def test_a_structure_that_fits_is_used_at_the_price_it_has_here(gated, crossed):
    drawn = infill(gated.oracle(), context((0, 0), (5, 0), (6, 0)), crossed)
    choice = drawn.choice
    assert choice.sampler == "planned" == drawn.results[0].sampler
    planned, spread = choice.prices["planned"], choice.prices["spread"]
    assert planned[0] < 0.05 < spread[0]
    said = (
        "planned by a structure found in another context, with 6 positions masked: 2 evaluations"
    )
    assert said in choice.why
    (note,) = drawn.results[0].notes
    assert note.startswith(
        f"{planned[0]:.3g} ± {planned[1]:.2g} nats measured in this context on 6 "
    )
    assert choice.as_dict()["prices"] == {"planned": planned, "spread": spread}


def test_the_same_context_is_not_priced(gated, crossed):
    drawn = infill(gated.oracle(), context((0, 0)), crossed)
    assert drawn.choice is None and drawn.results[0].sampler == "planned"


def test_one_position_a_batch_needs_no_price(gated, crossed):
    drawn = infill(gated.oracle(), context((0, 1), (3, 0)), crossed, batches=5)
    assert drawn.choice is None and drawn.results[0].ledger.evaluations == 5


def test_positions_apart_in_space_are_the_free_way_where_distances_are_known():
    apart = np.abs(np.subtract.outer([0.0, 1.0, 50.0, 51.0], [0.0, 1.0, 50.0, 51.0]))
    rule = Spread(batches=2, distances=apart)
    batches = batches_of(rule, np.arange(4), cp.Streams.from_seed(1).decisions)
    assert all({0, 1} != set(b.tolist()) != {2, 3} and len(b) == 2 for b in batches)
    assert Spread(batches=2).settings == {"batches": 2}
    assert rule.settings["distances"].startswith("array <f8 (4, 4) "), (
        "which they were is recorded"
    )
    assert rule.settings != Spread(batches=2, distances=2 * apart).settings


def test_what_was_asked_in_nats_says_how_many_batches(gated, crossed):
    drawn = infill(gated.oracle(), context((0, 1)), crossed, batches=None, target_kl=1e-3)
    assert {len(one.batches) for one in drawn.results} <= {2, 3, 4, 5, 6}
    broken = drawn.choice.batch_kl
    assert ("more than 0.001 nats: ask for more batches" in drawn.choice.why) == (broken > 1e-3)


# ----- What it costs ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 6, 40])
def test_recognising_and_pricing_are_in_the_ledger(gated, crossed, count):
    counted = CountingOracle(gated.oracle())
    drawn = infill(counted, context((0, 0), (3, 1)), crossed, count=count)
    drawing = sum(one.evaluations for one in drawn.ledgers)
    recognising = len(crossed.sample_states)
    assert drawn.ledger.evaluations == recognising + drawn.choice.ledger.evaluations + drawing
    assert drawn.ledger.evaluations == counted.states
    samples = min(16, max(4, count))
    # Two ways of two batches, in which no more than one position and two steps are evaluated.
    assert 2 * samples * 2 < drawn.choice.ledger.evaluations <= 2 * samples * 5
    assert f"on {samples} sequences took {drawn.choice.ledger.evaluations:,}" in drawn.choice.why


@pytest.mark.parametrize(
    ("planned", "spread", "chosen"),
    [
        (math.inf, math.inf, "spread"),
        (math.nan, 0.1, "spread"),
        (0.1, math.nan, "spread"),
        (math.inf, 0.1, "spread"),
        (0.1, math.inf, "planned"),
    ],
)
def test_prices_that_are_no_numbers_choose_nothing_and_are_kept_in_files(
    gated, crossed, monkeypatch, planned, spread, chosen
):
    """Rows that underflow make prices infinite, and their standard errors no numbers."""
    left = [planned, spread]
    plan_kl = carrying.plan_kl

    def measured(*what: object, **how: object) -> object:
        kl = plan_kl(*what, **how)
        return replace(kl, value=left.pop(0), standard_error=math.nan)

    monkeypatch.setattr(carrying, "plan_kl", measured)
    drawn = infill(gated.oracle(), context((0, 0), (5, 0), (6, 0)), crossed)
    choice = drawn.choice
    assert choice.sampler == chosen == drawn.results[0].sampler
    is_told = not math.isnan(planned - spread)
    assert ("cannot be told apart" in choice.why) == (not is_told)
    assert ("is refused" in choice.why) == (is_told and chosen == "spread")
    for way, nats in {"planned": planned, "spread": spread}.items():
        np.testing.assert_array_equal(choice.prices[way], (nats, math.nan))
    np.testing.assert_array_equal((choice.batch_kl, choice.batch_kl_se), choice.prices[chosen])


def test_plans_that_were_priced_are_those_that_draw(gated, crossed, monkeypatch):
    priced = []
    plan_kl = carrying.plan_kl
    monkeypatch.setattr(
        carrying,
        "plan_kl",
        lambda oracle, plans, **how: priced.append(plans) or plan_kl(oracle, plans, **how),
    )
    drawn = infill(gated.oracle(), context((0, 0), (5, 0), (6, 0)), crossed, count=6)
    used = {tuple(tuple(b.tolist()) for b in one.batches) for one in drawn.results}
    known = {tuple(tuple(b.tolist()) for b in plan) for plan in priced[0]}
    assert used <= known


@pytest.mark.parametrize("fixed", [((0, 1),), ((0, 0), (3, 1)), ((6, 0),)])
@pytest.mark.parametrize("batches", [2, 3, 4])
def test_what_is_advised_and_what_draws_are_the_same_plans(gated, crossed, fixed, batches):
    """Also where pairs are not trusted, nothing is known, or layers would be fewer."""
    here = crossed.in_context(context(*fixed))
    pricing = Pricing(here, gated.oracle(), terms=None, distances=None, seed=5)
    streams = cp.Streams.from_seed(5)
    rule = carrying.planned_here(Planned.of(crossed, batches=batches), here, streams)
    for k in range(3):
        priced = pricing.makers["planned"](batches, k, 5)
        drawn = rule.plan(here.residual, streams.with_fresh_decisions(k).decisions)
        assert [b.tolist() for b in priced.batches] == [b.tolist() for b in drawn.batches]
        assert len(drawn) == batches


# ----- What is refused --------------------------------------------------------------------------


def test_another_model_is_refused(gated, crossed):
    other = cp.TableLaw(np.transpose(gated.table, (1, 0, 2, 3, 4, 5, 6)))
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        infill(other.oracle(), context((0, 1)), crossed)
    shorter = cp.TableLaw(gated.table.sum(axis=6))
    with pytest.raises(cp.StructureError, match="found with 7 positions and 2 tokens"):
        infill(shorter.oracle(), np.full(6, MASK), crossed)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_draws_at_no_law_of_the_oracle_are_not_priced(gated, crossed, temperature):
    with pytest.raises(cp.StructureError, match=f"temperature {temperature:g} does not allow"):
        infill(gated.oracle(), context((0, 1)), crossed, temperature=temperature)


def test_a_certified_structure_serves_texts_that_fix_more():
    law = cp.families.path(12, target_seed=3)
    certified = cp.discover(law.oracle(), cp.Streams.from_seed(1))
    given = np.full(12, MASK)
    given[[2, 7]] = 1
    drawn = infill(law.oracle(), given, certified)
    assert drawn.num_completed == 6 and (drawn.sequences[:, [2, 7]] == 1).all()
    assert drawn.choice is None, "its rounds break nothing"
    for one in drawn.results:
        assert len(one.batches) <= 4, "layers of what is left of the path"
        assert cp.evaluation.batch_kl(law, one).value == 0
    held = cp.discover(law.oracle(), cp.Streams.from_seed(1), given=given)
    with pytest.raises(cp.StructureError, match="differ at 1 of 12 positions, first at 8;"):
        infill(law.oracle(), np.where(np.arange(12) == 7, MASK, given), held)


def test_prices_are_read_from_a_cache_and_not_paid_twice(gated, crossed, tmp_path):
    given = context((0, 0), (5, 0), (6, 0))
    path, counted = tmp_path / "replies", [CountingOracle(gated.oracle()) for _ in range(2)]
    first, again = (infill(as_oracle(one).cached(path), given, crossed) for one in counted)
    np.testing.assert_array_equal(again.sequences, first.sequences)
    assert again.choice == first.choice and again.ledger == first.ledger
    assert counted[0].states <= first.ledger.evaluations
    assert counted[1].states == 1, "to recognise the oracle"
