"""The rule that measures its own batches: never more than N, apart, within its target."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import run_kl
from counterprobe.rows import DenseRows
from counterprobe.samplers import Auto
from counterprobe.samplers.auto import _Pace, _Prices
from counterprobe.states import MASK


def drawn(law: cp.ForestLaw, count: int = 12, **settings: object) -> cp.SampleBatch:
    return cp.sample(law.oracle(), Auto(**settings), count, progress=False)


@pytest.mark.parametrize("family", ["path", "matching", "binary_tree", "growing_stars"])
@pytest.mark.parametrize("target", [0.0, 0.1, 1.0])
def test_a_run_never_takes_more_than_one_at_a_time(family, target):
    law = getattr(cp.families, family)(length=20, target_seed=3)
    batch = drawn(law, target_kl=target)
    assert all(ledger.evaluations <= 20 for ledger in batch.ledgers)
    assert batch.ledger.evaluations == sum(ledger.evaluations for ledger in batch.ledgers)
    if target == 0:
        assert {ledger.evaluations for ledger in batch.ledgers} == {20}


@pytest.mark.parametrize("masked", [1, 2, 3])
def test_few_masks_go_one_at_a_time(masked):
    law = cp.families.path(12, target_seed=1)
    given = np.zeros(12, dtype=np.int64)
    given[:masked] = MASK
    run = cp.sample(law.oracle(), "auto", given=given, progress=False)
    assert run.ledger.evaluations == masked
    assert run.results[0].diagnostics.estimated_kl == 0


def test_independent_positions_double_and_dependent_ones_stay_single():
    product = cp.ForestLaw(np.ones((40, 3)), [], np.ones((0, 3, 3)))
    free = drawn(product, 2)
    assert [len(batch) for batch in free.results[0].batches] == [1, 2, 4, 8, 16, 9]
    tied = np.full((39, 3, 3), 1e-9) + np.eye(3)
    copies = cp.ForestLaw(np.ones((40, 3)), [(0, k) for k in range(1, 40)], tied)
    together = drawn(copies, 4)
    # The first value decides all others: then nothing moves any more.
    assert all((row == row[0]).all() for row in together.sequences)


def strong_pairs(length: int, count: int, seed: int) -> cp.ForestLaw:
    """Return some pairs that agree nearly always, anywhere among independent positions."""
    places = np.random.default_rng(seed).permutation(length)[: 2 * count].reshape(count, 2)
    agreeing = np.tile(1 + 50 * np.eye(4), (count, 1, 1))
    return cp.ForestLaw(np.ones((length, 4)), np.sort(places, axis=1).tolist(), agreeing)


@pytest.mark.statistical
@pytest.mark.parametrize(("length", "seed", "target"), [(32, 1, 0.1), (32, 2, 0.01), (40, 3, 0.1)])
def test_dependence_that_does_not_follow_distance_is_priced(length, seed, target):
    """Four pairs cost 6.3 nats if they are all broken; means over 100 sequences, at 3 errors."""
    law = strong_pairs(length, 4, seed)
    batch = cp.sample(law.oracle(), Auto(target), 100, orders="fresh", progress=False)
    price = run_kl(law.oracle(), batch)
    assert price.value - 3 * price.standard_error <= 1.5 * target
    reports = [one.diagnostics for one in batch.results]
    assert np.mean([report.upper_kl for report in reports]) >= price.value - price.standard_error
    assert batch.ledger.evaluations < length * 100


def test_a_smaller_target_asks_for_more_evidence_before_batches_grow():
    free = cp.ForestLaw(np.ones((40, 3)), [], np.ones((0, 3, 3)))
    sizes = {
        target: [len(batch) for batch in drawn(free, 1, target_kl=target).results[0].batches]
        for target in (0.1, 0.01)
    }
    assert sizes[0.1][:4] == [1, 2, 4, 8]
    assert sizes[0.01][:4] == [1, 1, 1, 1] and max(sizes[0.01]) > 3


def test_an_estimate_holds_room_for_dependence_not_seen():
    free = cp.ForestLaw(np.ones((40, 3)), [], np.ones((0, 3, 3)))
    report = drawn(free).results[0].diagnostics
    assert 0 < report.estimated_kl <= 0.1 < report.upper_kl


# Each of these prices is a mean over 60 sequences; the rule aims at 0.1 by its own estimate.
@pytest.mark.parametrize("family", ["path", "matching", "binary_tree"])
def test_what_is_broken_keeps_to_the_target(family):
    law = getattr(cp.families, family)(length=24, target_seed=5)
    batch = drawn(law, 60)
    price = run_kl(law.oracle(), batch)
    assert batch.ledger.evaluations < 0.7 * 24 * 60
    assert price.value - 3 * price.standard_error <= 0.1
    estimates = [one.diagnostics.estimated_kl for one in batch.results]
    assert np.mean(estimates) <= 0.15
    assert "from how far rows moved" in batch.results[0].notes[0]


def test_positions_of_a_batch_are_far_apart_by_the_distances_given():
    ring = np.abs(np.arange(12)[:, None] - np.arange(12)[None, :])
    ring = np.minimum(ring, 12 - ring).astype(float)
    pace = _Pace(Auto(distances=ring), np.arange(12), np.random.default_rng(1))
    order = list(pace._spread(np.arange(12), 12))
    assert sorted(position for position, _ in order) == list(range(12))
    nearest = [min(apart) for _, apart in order[1:]]
    assert nearest[:3] == [6.0, 3.0, 3.0] and nearest[-1] == 1.0
    position, apart = order[5]
    assert list(apart) == [ring[position, before] for before, _ in order[:5]]
    alone = _Pace(Auto(), np.arange(12), np.random.default_rng(1))
    assert len(list(alone._spread(np.arange(12), 4))) == 4


def test_what_is_left_stays_as_evenly_spread_as_what_is_taken():
    """Half of the positions lie close together: half of a batch is taken from them."""
    places = np.concatenate([np.linspace(0, 1, 20), np.linspace(10, 200, 20)])
    apart = np.abs(places[:, None] - places[None, :])
    apart = np.where(apart == 0, 0, np.log1p(apart))
    pace = _Pace(Auto(distances=apart), np.arange(40), np.random.default_rng(0))
    taken = [position for position, _ in pace._spread(np.arange(40), 10)]
    assert 3 <= sum(position < 20 for position in taken) <= 7


def chain_prices(length: int) -> _Prices:
    places = np.arange(float(length))
    return _Prices(np.sort(np.abs(places[:, None] - places[None, :]), axis=1)[:, 1:])


def price_at(prices: _Prices, distance: float) -> float:
    return prices.of(prices.counted(np.array([[distance]]), np.ones((1, 1)))[0]).seen


def test_movements_are_explained_by_distance_where_they_follow_it():
    """What each revealed position causes is told apart where several were revealed together."""
    rng = np.random.default_rng(4)
    prices = chain_prices(200)
    for _ in range(6):
        shown = rng.choice(200, 8, replace=False)
        rest = np.setdiff1d(np.arange(200), shown)
        apart = np.abs(rest[:, None] - shown[None, :]).astype(float)
        moved = np.where(apart <= 2, 0.5, 0.0).sum(axis=1)
        prices.add(apart, np.ones(apart.shape), moved)
    found = [price_at(prices, d) for d in (1.0, 2.0, 4.0, 16.0, 100.0)]
    assert 0.2 < found[0] < 1 and max(found[3:]) < 1e-3
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(4))
def test_movements_anywhere_are_not_explained_by_distance(seed):
    """One row in forty moves, wherever it lies: near and far pairs then cost the same."""
    rng = np.random.default_rng(seed)
    prices = chain_prices(64)
    for _ in range(12):
        shown = rng.choice(64, 2, replace=False)
        rest = np.setdiff1d(np.arange(64), shown)
        apart = np.abs(rest[:, None] - shown[None, :]).astype(float)
        moved = np.where(rng.random(len(rest)) < 0.05, 1.0, 0.0)
        prices.add(apart, np.ones(apart.shape), moved)
    far = price_at(prices, 40.0)
    assert 0.5 * 0.025 < far < 2 * 0.025
    assert price_at(prices, 1.0) < 3 * far


def test_dependence_not_seen_costs_less_the_more_pairs_were_observed():
    prices = chain_prices(64)
    pair = prices.counted(np.array([[20.0]]), np.ones((1, 1)))[0]
    unseen = []
    for _ in range(3):
        prices.add(np.full((40, 1), 20.0), np.ones((40, 1)), np.zeros(40))
        unseen.append(prices.of(pair).unseen)
        assert prices.of(pair).seen == 0
    assert unseen == pytest.approx([0.1 / 40, 0.1 / 80, 0.1 / 120])
    assert prices.of(pair).deviation > prices.of(pair).mean


def test_rows_that_are_nearly_certain_cost_little():
    """Once one position decides all others, they are committed together, and nothing is lost."""
    tied = np.full((39, 3, 3), 1e-7) + np.eye(3)
    copies = cp.ForestLaw(np.ones((40, 3)), [(0, k) for k in range(1, 40)], tied)
    batch = drawn(copies, 4)
    assert batch.ledger.evaluations <= 4 * 8
    assert run_kl(copies.oracle(), batch).value < 0.01


def test_distances_that_say_nothing_are_no_trouble():
    law = cp.families.path(12, target_seed=1)
    for same in (np.zeros((12, 12)), np.ones((12, 12)) - np.eye(12)):
        batch = drawn(law, 3, distances=same)
        assert batch.num_completed == 3


def test_distances_from_oneself_do_not_count_and_unknown_ones_are_refused():
    law = cp.families.path(8, target_seed=1)
    apart = np.abs(np.arange(8.0)[:, None] - np.arange(8.0))
    np.fill_diagonal(apart, np.nan)
    assert drawn(law, 2, target_kl=5.0, distances=apart).num_completed == 2
    apart[0, 3] = np.nan
    with pytest.raises(ValueError, match="distances must not be NaN"):
        Auto(distances=apart)


@pytest.mark.parametrize(
    ("value", "back", "says"),
    [
        (-1.0, -1.0, "be at least 0, got -1 from 0 to 3"),
        (2.0, 3.0, "be symmetric, got 2 from 0 to 3 and 3 from 3 to 0"),
        (np.inf, 3.0, "be symmetric"),
        (np.nan, np.nan, "not be NaN"),
    ],
)
def test_a_matrix_that_holds_no_distances_is_refused(value, back, says):
    apart = np.abs(np.arange(8.0)[:, None] - np.arange(8.0))
    apart[0, 3], apart[3, 0] = value, back
    with pytest.raises(ValueError, match=says):
        Auto(distances=apart)


@pytest.mark.parametrize("shape", [(8, 7), (8,)])
def test_distances_must_be_square(shape):
    with pytest.raises(ValueError, match="shape"):
        Auto(distances=np.ones(shape))


@pytest.mark.parametrize("length", [7, 9])
def test_distances_of_another_length_are_refused(length):
    with pytest.raises(ValueError, match="N = 8 positions"):
        drawn(cp.families.path(8, target_seed=1), 1, distances=np.ones((length, length)))


def test_unknown_distances_may_be_infinite():
    apart = np.full((8, 8), np.inf)
    assert drawn(cp.families.path(8, target_seed=1), 2, distances=apart).num_completed == 2


def test_a_row_that_loses_all_its_mass_ends_larger_batches():
    """A value that was impossible breaks infinitely much: from then on one at a time."""
    pace = _Pace(Auto(10.0), np.arange(10), np.random.default_rng(0))
    first = pace.batch(np.arange(10), DenseRows(np.tile([1.0, 0.0], (10, 1))))
    left = np.setdiff1d(np.arange(10), first)
    second = pace.batch(left, DenseRows(np.tile([0.0, 1.0], (9, 1))))
    assert len(first) == len(second) == 1
    left = np.setdiff1d(left, second)
    assert len(pace.batch(left, DenseRows(np.tile([0.0, 1.0], (8, 1))))) == 1
