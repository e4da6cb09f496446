"""Prices of plans before they are used, and the advice that follows from them."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import advise, price_plans
from counterprobe.evaluation.advice import batches_for
from counterprobe.evaluation.chain_rule import ChainRuleKL
from counterprobe.evaluation.prices import Price, PriceTable


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
    table = price_plans(found, law.oracle(), (2, 4), samples=64, plans=8, seed=3)
    assert table.ways == ["planned", "random", "spread"]
    assert all(price.measured.value < 1e-9 for price in table.of("planned"))
    for way in ("random", "spread"):
        for price in table.of(way):
            # Edges join independent pairs: their exact price is that of the pairs inside batches.
            assert price.measured.value > 0 or way == "spread"
            assert price.estimated >= 0
    assert table.ledger.total == sum(p.measured.ledger.total for p in table.prices)


def test_random_batches_cost_what_the_law_says(far):
    law, found = far
    table = price_plans(found, law.oracle(), (2,), samples=400, plans=400, ways=["random"])
    exact = cp.evaluation.reference_kl(law)
    measured = table.prices[0].measured
    # Two random halves hold an edge with probability 7/15; level 1e-6.
    assert abs(measured.value - exact * 7 / 15) < 4.9 * measured.standard_error


def test_distances_are_another_way(far):
    law, found = far
    place = np.arange(16) % 8 * 10.0  # the ends of every edge stand at one place
    distances = np.abs(place[:, None] - place[None])
    table = price_plans(found, law.oracle(), (2,), samples=16, distances=distances)
    assert table.of("distance")[0].measured.value < 1e-9
    assert "distance" in str(table)
    with pytest.raises(ValueError, match="distance needs distances"):
        price_plans(found, law.oracle(), (2,), ways=["distance"])


def test_structure_is_advised_where_it_pays(far):
    law, found = far
    advice = found.advise(law.oracle(), 1000, target_kl=0.05, counts=(2, 4), samples=16)
    assert advice.best.way == "planned"
    assert advice.best.batches == 2
    assert advice.break_even is not None
    assert advice.best.cost(1000) == found.ledger.total + 2000
    assert "use planned" in str(advice)
    few = found.advise(law.oracle(), 1, target_kl=0.05, counts=(2, 4), samples=16)
    assert few.best.way != "planned"
    assert few.as_dict()["break_even"] == advice.break_even


def test_structure_is_not_advised_where_there_is_none():
    law = law_of("none")
    found = cp.discover(law.oracle(), mode="soft", probes=64)
    advice = advise(found, law.oracle(), 1000, counts=(1, 2, 4), samples=4)
    assert advice.break_even is None
    assert advice.best.way in ("random", "spread")
    assert "not worth it" in str(advice)


def price(batches: int, value: float) -> Price:
    kl = ChainRuleKL.of(np.array([[value], [value]]), "product", cp.Ledger())
    return Price("planned", batches, float(batches), 0.0, kl)


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        ({4: 0.05, 8: 0.01}, 0.1, 4),
        ({4: 0.4, 8: 0.1}, 0.1, 8),
        ({4: 0.4, 8: 0.1}, 0.2, 6),  # falls as the square of the number: 4 * sqrt 2
        ({4: 0.4, 8: 0.2}, 0.05, 40),  # straight on to nothing at 50
        ({4: 0.4, 8: 0.4}, 0.1, 40),
        ({4: math.inf, 8: 0.05}, 0.1, 8),
        ({4: math.inf, 8: 0.5}, 0.1, 42),
        ({4: 0.4, 50: 0.0}, 0.1, 39),
        ({4: 0.1, 8: 0.3, 16: 0.01}, 0.1, 4),  # noise is levelled
        ({4: 0.0}, 0.1, 4),
        ({4: 0.4}, 0.1, 39),
    ],
)
def test_batches_for_a_price_are_read_off_the_measured_ones(values, target, expected):
    prices = [price(count, value) for count, value in values.items()]
    assert batches_for(prices, target, 50) == expected


def test_bad_requests_are_refused(far):
    law, found = far
    for arguments, said in (
        ({"target_kl": 0}, "target_kl must be"),
        ({"target_kl": math.nan}, "target_kl must be"),
        ({"count": 0}, "count must be"),
        ({"samples": 1}, "samples must be"),
    ):
        with pytest.raises(ValueError, match=said):
            advise(found, law.oracle(), **arguments)


def test_a_table_has_a_row_a_number_of_batches():
    table = PriceTable((price(4, 0.5), price(8, 0.25)), cp.Ledger())
    assert str(table).splitlines()[1].split() == ["4", "0.500", "±", "0.000"]
