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
    assert all(ledger.total <= 20 for ledger in batch.ledgers)
    assert batch.ledger.total == sum(ledger.total for ledger in batch.ledgers)
    if target == 0:
        assert {ledger.total for ledger in batch.ledgers} == {20}


@pytest.mark.parametrize("masked", [1, 2, 3])
def test_few_masks_go_one_at_a_time(masked):
    law = cp.families.path(12, target_seed=1)
    given = np.zeros(12, dtype=np.int64)
    given[:masked] = MASK
    run = cp.sample(law.oracle(), "auto", given=given, progress=False)
    assert run.ledger.total == masked
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


# Each of these prices is a mean over 60 sequences; the rule aims at 0.1 by its own estimate.
@pytest.mark.parametrize("family", ["path", "matching", "binary_tree"])
def test_what_is_broken_keeps_to_the_target(family):
    law = getattr(cp.families, family)(length=24, target_seed=5)
    batch = drawn(law, 60)
    price = run_kl(law.oracle(), batch)
    assert batch.ledger.total < 0.7 * 24 * 60
    assert price.value - 3 * price.standard_error <= 0.1
    estimates = [one.diagnostics.estimated_kl for one in batch.results]
    assert np.mean(estimates) <= 0.15
    assert "the rows beside them moved" in batch.results[0].notes[0]


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


def test_movements_are_explained_by_distance():
    """What each revealed position causes is told apart where several were revealed together."""
    rng = np.random.default_rng(4)
    places = np.arange(200.0)
    near = np.sort(np.abs(places[:, None] - places[None, :]), axis=1)[:, 1:]
    prices = _Prices(near)
    assert prices.of(prices.counted(np.array([3.0]))) == 0
    for _ in range(6):
        shown = rng.choice(200, 8, replace=False)
        rest = np.setdiff1d(np.arange(200), shown)
        apart = np.abs(rest[:, None] - shown[None, :]).astype(float)
        prices.add(apart, np.where(apart <= 2, 0.5, 0.0).sum(axis=1))
    found = [prices.of(prices.counted(np.array([d]))) for d in (1.0, 2.0, 4.0, 16.0, 100.0)]
    assert found[0] == pytest.approx(0.5, rel=0.1) and found[1] == pytest.approx(0.5, rel=0.1)
    assert max(found[2:]) < 0.01 and found == sorted(found, reverse=True)
    pairs = np.array([[1.0, 50.0], [2.0, 3.0]])
    assert prices.counted(pairs).sum() == 4
    assert prices.counted(pairs)[0] == pytest.approx(prices.counted(pairs[0]))


def test_distances_that_say_nothing_are_no_trouble():
    law = cp.families.path(12, target_seed=1)
    for same in (np.zeros((12, 12)), np.ones((12, 12)) - np.eye(12)):
        batch = drawn(law, 3, distances=same)
        assert batch.num_completed == 3


def test_distances_that_were_not_seen_cost_what_the_farthest_seen_did():
    places = np.arange(64.0)
    near = np.sort(np.abs(places[:, None] - places[None, :]), axis=1)[:, 1:]
    prices = _Prices(near)
    prices.add(np.full((40, 1), 5.0), np.ones(40))
    assert prices.of(prices.counted(np.array([60.0]))) == pytest.approx(1.0)
    assert prices.of(prices.counted(np.array([1.0]))) == pytest.approx(1.0)


def test_distances_from_oneself_do_not_count_and_unknown_ones_are_refused():
    law = cp.families.path(8, target_seed=1)
    apart = np.abs(np.arange(8.0)[:, None] - np.arange(8.0))
    np.fill_diagonal(apart, np.nan)
    assert drawn(law, 2, target_kl=5.0, distances=apart).num_completed == 2
    apart[0, 3] = np.nan
    with pytest.raises(ValueError, match="distances must not be NaN"):
        Auto(distances=apart)


def test_a_row_that_loses_all_its_mass_ends_larger_batches():
    """A value that was impossible breaks infinitely much: from then on one at a time."""
    pace = _Pace(Auto(10.0), np.arange(10), np.random.default_rng(0))
    first = pace.batch(np.arange(10), DenseRows(np.tile([1.0, 0.0], (10, 1))))
    left = np.setdiff1d(np.arange(10), first)
    second = pace.batch(left, DenseRows(np.tile([0.0, 1.0], (9, 1))))
    assert len(first) == len(second) == 1
    left = np.setdiff1d(left, second)
    assert len(pace.batch(left, DenseRows(np.tile([0.0, 1.0], (8, 1))))) == 1
