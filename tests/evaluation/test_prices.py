"""Prices of plans before they are used."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import price_plans
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL
from counterprobe.evaluation.prices import Price, PriceTable, Pricing


def law_of(kind: str, length: int = 16) -> cp.ForestLaw:
    rng = np.random.default_rng(2)
    edges = {
        "far": [(i, i + length // 2) for i in range(length // 2)],
        "none": np.empty((0, 2), dtype=int),
    }[kind]
    unary = np.exp(rng.normal(0, 0.3, (length, 4)))
    return cp.ForestLaw(unary, edges, np.exp(rng.normal(0, 1.5, (len(edges), 4, 4))))


@pytest.fixture(scope="module")
def far():
    law = law_of("far")
    return law, cp.discover(law.oracle(), mode="soft", probes=64)


def test_prices_are_the_exact_batch_kl_of_the_same_plans(far):
    law, found = far
    table = price_plans(law.oracle(), found, (2, 4), samples=64, plans=8, seed=3)
    assert table.ways == ["planned", "random", "spread"]
    assert all(price.measured.value < 1e-9 for price in table.of("planned"))
    for way in ("random", "spread"):
        for price in table.of(way):
            # Edges join independent pairs: their exact price is that of the pairs inside batches.
            assert price.measured.value > 0 or way == "spread"
            assert price.estimated >= 0
    assert table.ledger.evaluations == sum(p.measured.ledger.evaluations for p in table.prices)


def test_random_batches_cost_what_the_law_says(far):
    law, found = far
    table = price_plans(law.oracle(), found, (2,), samples=400, plans=400, ways=["random"])
    exact = cp.evaluation.reference_kl(law)
    measured = table.prices[0].measured
    # Two random halves hold an edge with probability 7/15; level 1e-6.
    assert abs(measured.value - exact * 7 / 15) < 4.9 * measured.standard_error


def test_distances_are_another_way(far):
    law, found = far
    place = np.arange(16) % 8 * 10.0  # the ends of every edge stand at one place
    distances = np.abs(place[:, None] - place[None])
    table = price_plans(law.oracle(), found, (2,), samples=16, distances=distances)
    assert table.of("distance")[0].measured.value < 1e-9
    assert "distance" in str(table)
    with pytest.raises(ValueError, match="distance needs distances"):
        price_plans(law.oracle(), found, (2,), ways=["distance"])


def price(batches: int, value: float) -> Price:
    kl = ChainRuleKL.of(np.array([[value], [value]]), "product", cp.Ledger(), most=1.0)
    return Price("planned", batches, float(batches), 0.0, 0.0, kl)


def test_a_price_is_that_of_both_parts(far):
    law, found = far
    pricing = Pricing(found, law.oracle(), terms=None, distances=None, seed=3)
    parts = [pricing.price("random", 4, n, n, part) for part, n in enumerate((8, 24))]
    both = parts[0].joined(parts[1])
    assert both.measured.samples == 32
    assert both.measured.per_sample.tolist() == [
        *parts[0].measured.per_sample, *parts[1].measured.per_sample,
    ]  # fmt: skip
    assert both.estimated == pytest.approx((8 * parts[0].estimated + 24 * parts[1].estimated) / 32)


def test_a_table_has_a_row_a_number_of_batches():
    table = PriceTable((price(4, 0.5), price(8, 0.25)), cp.Ledger())
    high = table.prices[0].measured.interval[1]
    cells = str(table).splitlines()[1].split()
    assert cells == ["4", "0.500", "±", "0.000", "<", f"{high:.2g}"]
    assert "if no sample breaks more than 1 nats" in table.note
