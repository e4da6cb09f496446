"""What objects say when printed: a few useful lines, and no result where there is none."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import price_plans
from counterprobe.models import load
from counterprobe.states import MASK


@pytest.fixture(scope="module")
def sapiens():
    return load("sapiens-heavy", device="cpu")


def test_models_say_what_they_draw_and_not_their_layers(sapiens):
    assert repr(sapiens) == "SequenceModel('sapiens-heavy')"
    first, draws, size = str(sapiens).splitlines()
    assert first == "sapiens-heavy, a masked model"
    assert draws.startswith("draws ACDEFGHIKLMNPQRSTVWY; masks are spelled X or [MASK], up to 142")
    assert size == "572,057 parameters on cpu"


def test_a_model_of_a_backbone_names_it():
    folding = load("proteinmpnn", backbone="1ubi", device="cpu")
    assert repr(folding) == "InverseFolding('proteinmpnn 1ubi')"
    assert "for the backbone of 1ubi: 76 residues" in str(folding)
    oracle = folding.oracle(order="commit")
    assert "rows depend on the order of commits" in str(oracle)
    assert repr(oracle) == (
        "CommitOrderOracle('proteinmpnn 1ubi, commit order': 76 positions, 20 tokens)"
    )


def test_templates_and_oracles_say_how_much_is_masked(sapiens):
    template = sapiens.template("EVQLXXES", allowed={4: "AV"})
    assert str(template).splitlines() == [
        "EVQLXXES",
        "2 of 8 positions masked; 20 tokens, not all of them everywhere",
    ]
    oracle = sapiens.oracle(template, row_error=1e-5, temperature=0.5)
    assert str(oracle).splitlines() == [
        "sapiens-heavy: an oracle of 8 positions, 2 of them masked, over 20 tokens",
        "rows are within 1e-05 of themselves in total variation",
        "logits are divided by a temperature of 0.5",
    ]
    assert repr(oracle) == "TorchOracle('sapiens-heavy': 8 positions, 20 tokens)"


def test_structures_plans_and_prices_say_what_was_found_and_what_it_cost():
    law = cp.families.path(12, target_seed=1)
    exact = cp.discover(law.oracle())
    assert repr(exact) == "Structure(11 certified pairs among 12 masked positions)"
    assert str(exact).splitlines()[1] == "every position resolved"
    assert f"finding this took {exact.ledger.evaluations}" in str(exact)
    soft = cp.discover(law.oracle(), mode="soft", probes=64)
    assert repr(soft).startswith("Structure(") and "\n" not in repr(soft)
    assert "strongest, counted from 1, in nats: " in str(soft)
    assert str(soft).splitlines()[-1] == "finding this took 65 evaluations"
    plan = cp.planning.plan_for(soft, batches=4)
    assert str(plan).startswith("4 batches for 12 positions")
    (price,) = price_plans(law.oracle(), soft, [4], samples=2, ways=["spread"]).prices
    assert str(price).startswith("spread, 4 batches: 4 evaluations per sequence, ")


def test_results_say_what_was_drawn_what_it_cost_and_why_so(sapiens):
    designs = cp.infill(sapiens, "EVQLXXXXESXXXX", count=5, progress=False)
    first, why, *texts, more = str(designs).splitlines()
    assert first.startswith("5 sequences of 14 positions by auto: ") and "evaluations" in first
    assert why == str(designs.choice)
    assert texts == list(designs.texts[:3]) and more == "... and 2 more"
    one = str(designs.results[0]).splitlines()
    assert one[0].startswith("auto: 8 of 14 positions drawn, ") and len(one) == 3


def test_a_run_that_stopped_says_why_and_shows_nothing_that_looks_like_a_result():
    law = cp.families.path(12, target_seed=1)
    given = np.full(12, MASK)
    given[0] = 1
    stopped = cp.sample(
        law.oracle(), "sequential", 2, given=given, max_evaluations=3, progress=False
    )
    lines = str(stopped).splitlines()
    assert len(lines) == 2 and lines[1].startswith("2 stopped before they were finished: max_")
    result = stopped.results[0]
    assert str(result).startswith("sequential stopped with 3 of 11 positions committed, after 3 ")
    assert str(result).count("\n") == 0 and "max_evaluations is 3" in str(result)
    for said in (repr(stopped), repr(result)):
        assert "budget-spent" in said and " _ " not in said and "\n" not in said
