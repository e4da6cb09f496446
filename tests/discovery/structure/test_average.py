"""Structures of several contexts in one: what is averaged, over whom, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery import average_structures
from counterprobe.planning import nearness

MASK = cp.MASK


@pytest.fixture(scope="module")
def law() -> cp.ForestLaw:
    return cp.families.path(10, target_seed=4)


def found(law: cp.ForestLaw, seed: int, fixed: tuple[int, ...] = ()) -> cp.Structure:
    given = np.full(law.length, MASK)
    given[list(fixed)] = 0
    return cp.discover(
        law.oracle(), cp.Streams.from_seed(seed), mode="soft", given=given, probes=48
    )


@pytest.fixture(scope="module")
def three(law) -> list[cp.Structure]:
    return [found(law, 1), found(law, 2, (3,)), found(law, 3, (3, 7))]


def test_strengths_are_means_over_those_who_know_both(three):
    mean = average_structures(three)
    for i in range(10):
        for j in range(i):
            known = [one.strength[i, j] for one in three if not np.isnan(one.strength[i, j])]
            assert mean.strength[i, j] == pytest.approx(np.mean(known))
            if len(known) > 1 and mean.strength[i, j]:
                error = np.std(known, ddof=1) / np.sqrt(len(known))
                assert mean.strength_se[i, j] == pytest.approx(error)
    alone = [one.strengths.moved[7] for one in three[:2]]
    assert mean.strengths.moved[7] == pytest.approx(np.mean(alone))
    assert mean.strengths.most_moved[0] == max(one.strengths.most_moved[0] for one in three)
    assert mean.strengths.explained[7] == pytest.approx(
        np.mean([one.strengths.moved[7] * one.strengths.explained[7] for one in three[:2]])
        / np.mean(alone)
    )


def test_it_is_masked_where_anyone_knows_and_recognised_by_the_first(law, three):
    mean = average_structures(three[1:])
    assert mean.residual.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9] and mean.given[3] == 0
    assert np.isnan(mean.strength[3]).all() and np.isnan(mean.strengths.moved[3])
    asked = cp.discovery.check_oracle(mean, law.oracle())
    assert asked.evaluations == len(three[1].sample_states)
    assert mean.ledger.evaluations == sum(one.ledger.evaluations for one in three[1:])
    assert mean.strengths.num_probes == 2 * 48 and mean.about["contexts"] == 2


def test_edges_are_those_that_half_of_them_found(three):
    mean = average_structures(three)
    listed = [{tuple(sorted(edge)) for edge in one.edges.tolist()} for one in three]
    for i in range(10):
        for j in range(i + 1, 10):
            able = [k for k, one in enumerate(three) if not np.isnan(one.strength[i, j])]
            votes = sum((i, j) in listed[k] for k in able)
            assert ([i, j] in mean.edges.tolist()) == (votes > 0 and 2 * votes >= len(able))
    nats = mean.strength[tuple(mean.edges.T)]
    assert (np.diff(nats) <= 0).all()


def test_one_structure_is_its_own_mean(three):
    mean = average_structures(three[:1])
    np.testing.assert_array_equal(mean.strength, three[0].strength)
    np.testing.assert_allclose(mean.strength_se, three[0].strength_se)
    np.testing.assert_allclose(mean.strengths.explained, three[0].strengths.explained)


def test_a_mean_is_saved_and_used(law, three, tmp_path):
    average_structures(three).save(tmp_path / "mean.npz")
    mean = cp.Structure.load(tmp_path / "mean.npz")
    with pytest.raises(cp.StructureError, match="this structure was averaged over 3 contexts"):
        cp.sample(law.oracle(), mean, 2, batches=4, seed=1, progress=False)
    given, how = mean.given, {"structure": mean, "batches": 4, "progress": False}
    drawn = cp.infill(law.oracle(), given, count=2, seed=1, **how)
    assert drawn.num_completed == 2 and "averaged over 3 contexts" in drawn.choice.why


def test_a_mean_over_probes_of_one_context_has_its_price_there(law, three):
    mean = average_structures([three[0], found(law, 4)])
    assert mean.origin is None and mean.about["contexts"] == 1
    assert cp.planning.plan_for(mean, batches=2).is_held_out
    drawn = cp.sample(law.oracle(), mean, 2, batches=2, seed=1, progress=False)
    assert "by held-out probes" in drawn.results[0].notes[0]


def test_a_mean_of_what_comes_from_elsewhere_has_no_price(three):
    restricted = three[0].in_context(three[1].given)
    for mean in (
        average_structures([restricted]),
        average_structures([three[1], restricted]),
        average_structures([average_structures(three)]),
    ):
        assert mean.origin is not None
        assert np.isnan(cp.planning.plan_for(mean, batches=2).estimated_kl)


def test_structures_are_put_onto_the_positions_of_one(three):
    places = [9, 8, 7, 6, 5, 4, 3, 2, 1, -1]
    turned = three[0].in_context(np.full(10, MASK), places=places)
    np.testing.assert_array_equal(turned.strength[1:, 1:], three[0].strength[8::-1, 8::-1])
    assert np.isnan(turned.strengths.moved[0]) and (turned.strength[0] == 0).all()
    assert (turned.strengths.pairs[:, 0] < turned.strengths.pairs[:, 1]).all()
    longer = three[0].in_context(np.full(14, MASK), places=np.arange(10) + 4)
    np.testing.assert_array_equal(longer.strength[4:, 4:], three[0].strength)
    assert longer.untrusted.tolist()[:4] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ([0] * 10, "two positions have one place"),
        (range(9), "places must be 10 positions below 12"),
        (range(3, 13), "places must be 10 positions below 12"),
    ],
)
def test_bad_places_are_refused(three, places, said):
    with pytest.raises(ValueError, match=said):
        three[0].in_context(np.full(12, MASK), places=np.array(places))


def test_structures_of_other_sizes_are_refused(three):
    with pytest.raises(ValueError, match="at least one, got none"):
        average_structures([])
    longer = three[0].in_context(np.full(14, MASK), places=np.arange(10))
    with pytest.raises(cp.StructureError, match="got 14 positions and"):
        average_structures([three[0], longer])
    with pytest.raises(cp.StructureError, match="tokens beside 10 and"):
        average_structures([three[0], replace(three[0], vocab_size=three[0].vocab_size + 1)])


def test_what_is_near_is_the_mean_of_those_who_know_both(three):
    length = three[0].length
    apart = np.abs(np.arange(length)[:, None] - np.arange(length)).astype(float)
    knowing = [
        replace(one, nearness=nearness(apart, one.residual).astype(np.float32)) for one in three
    ]
    mean = average_structures([knowing[0], knowing[0]])
    assert mean.nearness == pytest.approx(knowing[0].nearness)
    mixed = average_structures(knowing)
    assert mixed.nearness.size == 0 or (mixed.nearness.sum(axis=1) <= 1 + 1e-5).all()
    assert average_structures([knowing[0], three[0]]).nearness.size == 0
    state = np.zeros(length, dtype=np.int32)
    halves = []
    for part in (slice(None, length // 2), slice(length // 2, None)):
        given = state.copy()
        given[part] = MASK
        halves.append(knowing[0].in_context(given))
    # Positions that were never masked together: not known to be far.
    apart_halves = average_structures(halves)
    assert apart_halves.nearness.size == 0
