"""Neighbourhoods of real laws: found, taken over from the other end, doubted and reopened."""

from functools import partial

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed.knowledge import Knowledge
from counterprobe.discovery.compressed.neighbourhoods import (
    OWN_CLAIMS,
    Neighbourhoods,
)
from screens import Screen

TOLERANCE = 1e-9
# A path of four, a star with three leaves, a pair, and an isolated position.
FOREST = [[0, 1], [2, 1], [2, 3], [4, 5], [4, 6], [7, 4], [9, 8]]
FOREST_LENGTH = 11
LEAVES = OWN_CLAIMS + 3


def star(leaves: int) -> list[list[int]]:
    """Return a star with hub 0, its edges written both ways round."""
    return [[0, i] if i % 2 else [i, 0] for i in range(1, leaves + 1)]


def start(probed, settled=()) -> Neighbourhoods:
    """Return neighbourhoods that know nothing yet."""
    is_settled = np.zeros(probed.law.length, dtype=np.bool_)
    is_settled[list(settled)] = True
    return Neighbourhoods(probed.readings, Knowledge(is_settled))


def name_members(found: Neighbourhoods, members: dict[int, list[int]]) -> None:
    """Let some positions be resolved with the given members."""
    for j, named in members.items():
        found.members[j, : len(named)] = named
        found.count[j] = len(named)
        found.knowledge.resolve(np.array([j]))
        found.has_claims[j] = True


def neighbours(edges, j: int) -> list[int]:
    return [a + b - j for a, b in edges if j in (a, b)]


def pairs(edges) -> list[list[int]]:
    return sorted(sorted(int(i) for i in edge) for edge in edges)


def improve(found: Neighbourhoods) -> None:
    """Search until nothing more is resolved."""
    for _ in range(4):
        found.improve()


@pytest.fixture
def probing(probing):
    """Return the function that starts to probe a law, with the tolerance of this module."""
    return partial(probing, tolerance=TOLERANCE)


@pytest.fixture
def forest(classed_law, probing):
    """Return a probed forest and neighbourhoods found from 200 probes."""
    probed = probing(classed_law(FOREST, FOREST_LENGTH))
    probed.probe_at_random(200)
    found = start(probed)
    improve(found)
    return probed, found


# ----- Whole forests --------------------------------------------------------------------------


def test_a_forest_is_found(forest):
    _, found = forest
    assert found.knowledge.is_resolved.all()
    assert pairs(found.edges()) == pairs(FOREST)
    assert pairs(found.edges(tentative=True)) == pairs(FOREST)
    assert len(found.contradictions()) == 0
    for j in range(FOREST_LENGTH):
        assert sorted(found.members[j, : found.count[j]]) == sorted(neighbours(FOREST, j))
    assert (found.misfit < TOLERANCE).all()


@pytest.mark.parametrize("seed", range(3))
def test_relabelling_positions_relabels_what_is_found(classed_law, probing, seed):
    label = np.random.default_rng(seed).permutation(FOREST_LENGTH)
    probed = probing(classed_law(label[np.array(FOREST)], FOREST_LENGTH), seed=seed)
    probed.probe_at_random(200)
    found = start(probed)
    improve(found)
    assert pairs(found.edges()) == pairs(label[np.array(FOREST)])


def test_tokens_with_columns_of_their_own_give_the_same_forest(classed_law, probing):
    probed = probing(classed_law(FOREST, FOREST_LENGTH), threshold=0.0, as_dense=True)
    probed.probe_at_random(300)
    found = start(probed)
    improve(found)
    assert found.knowledge.is_resolved.all()
    assert pairs(found.edges()) == pairs(FOREST)


def test_an_independent_law_has_no_edges(classed_law, probing):
    probed = probing(classed_law([], 9))
    probed.probe_at_random(60)
    found = start(probed)
    assert found.improve() == 9
    assert found.edges().shape == (0, 2)
    assert found.knowledge.is_resolved.all()


def test_without_a_ranking_only_what_was_named_is_considered(classed_law, probing):
    probed = probing(classed_law([[0, 1], [2, 3]], 5))
    probed.probe_at_random(120)
    found = start(probed)
    found.improve(rank=False)
    assert found.knowledge.is_resolved.tolist() == [False, False, False, False, True]
    name_members(found, {0: [1]})
    found.improve(rank=False)
    # Position 1 has been claimed; 2 and 3 have nobody to consider.
    assert found.knowledge.is_resolved.tolist() == [True, True, False, False, True]
    found.improve()
    assert pairs(found.edges()) == [[0, 1], [2, 3]]


def test_settled_positions_are_left_alone(classed_law, probing):
    probed = probing(classed_law(FOREST, FOREST_LENGTH))
    masked = probed.rng.random((200, FOREST_LENGTH)) < 0.33
    masked[:, [1, 8]] = False
    probed.probe(masked)
    found = start(probed, settled=[1, 8])
    assert found.knowledge.is_resolved.tolist() == [i in (1, 8) for i in range(FOREST_LENGTH)]
    improve(found)
    assert found.knowledge.is_resolved.all()
    assert found.count[[1, 8]].tolist() == [0, 0]
    assert found.recheck() == 0
    everybody = start(probed, settled=range(FOREST_LENGTH))
    assert everybody.improve() == 0


# ----- The graph ------------------------------------------------------------------------------


def test_edges_need_a_resolved_end_and_tentative_ones_do_not(forest):
    _, found = forest
    found.knowledge.reopen([8, 9])
    assert pairs(found.edges()) == pairs(FOREST[:-1])
    assert pairs(found.edges(tentative=True)) == pairs(FOREST)
    found.knowledge.resolve(9)
    assert pairs(found.edges()) == pairs(FOREST)


def test_a_position_named_in_vain_is_a_contradiction(forest):
    _, found = forest
    found.count[8] = 0  # 9 names 8, which is resolved and names nobody
    assert found.contradictions().tolist() == [8, 9]
    found.knowledge.reopen(8)
    assert found.contradictions().tolist() == []
    found.knowledge.resolve([8])
    found.knowledge.reopen([9])
    assert found.contradictions().tolist() == []


def test_a_hub_that_many_name_need_not_name_them_back(classed_law, probing):
    for leaves, contradictions in ((OWN_CLAIMS, range(OWN_CLAIMS + 1)), (OWN_CLAIMS + 1, [])):
        probed = probing(classed_law(star(leaves), leaves + 1))
        found = start(probed)
        name_members(found, {0: [], **{i: [0] for i in range(1, leaves + 1)}})
        assert found.contradictions().tolist() == list(contradictions)


# ----- Evidence -------------------------------------------------------------------------------


def clean_counts(states: np.ndarray, edges) -> np.ndarray:
    """Count the probes that mask each position and reveal all its neighbours."""
    masked = states == cp.MASK
    return np.array(
        [
            (masked[:, j] & ~masked[:, neighbours(edges, j)].any(axis=1)).sum()
            for j in range(states.shape[1])
        ]
    )


def test_evidence_is_what_was_explained_after_the_choice(forest):
    probed, found = forest
    assert (found.evidence == 0).all()
    total = np.zeros(FOREST_LENGTH, dtype=np.int64)
    for count in (20, 30):
        states, _ = probed.probe_at_random(count)
        assert found.recheck() == 0
        total += clean_counts(states, FOREST)
        assert found.evidence.tolist() == total.tolist()
    assert total.max() > 5


def test_evidence_starts_again_when_a_neighbourhood_changes(forest):
    probed, found = forest
    probed.probe_at_random(40)
    found.recheck()
    before = found.evidence.copy()
    assert before.min() > 0
    # The order of members is no change; one member more is one, although it does nothing.
    found.members[4, :3] = found.members[4, :3][::-1].copy()
    found.recheck()
    assert found.evidence.tolist() == before.tolist()
    found.members[4, 3], found.count[4] = 10, 4
    assert found.recheck() == 0
    assert found.evidence[4] == 0
    assert np.delete(found.evidence, 4).tolist() == np.delete(before, 4).tolist()
    found.count[4] = 3
    found.recheck()
    assert found.evidence[4] == 0


def rare_class_law(mass: float) -> cp.ForestLaw:
    """Return a pair whose first position has a class of small mass, and an isolated position."""
    classes = cp.classes.TokenClasses.build(3, np.arange(6) % 3)
    unary = np.array([[1 - 2 * mass, mass, mass], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    # The last classes rule each other out.
    pair = np.ones((3, 3))
    pair[2, 2] = 1e-12
    return cp.ForestLaw(unary, [[0, 1]], pair, classes=classes)


def test_a_probe_counts_only_if_any_missed_neighbour_would_show_in_it(probing):
    probed = probing(rare_class_law(0.01))
    probed.probe_at_random(200)
    found = start(probed)
    improve(found)
    assert pairs(found.edges()) == [[0, 1]]
    states, _ = probed.probe_at_random(60)
    found.recheck()
    clean = (states[:, 0] == cp.MASK) & (states[:, 1] != cp.MASK)
    ruled_out = clean & (states[:, 1] % 3 == 2)
    assert ruled_out.sum() > 3
    assert found.evidence[0] == clean.sum() - ruled_out.sum()
    assert found.shows_all.tolist() == [False, False, True]
    per_evidence = (clean.sum() + 2) / (found.evidence[0] + 2)
    np.testing.assert_allclose(found.clean_per_evidence[[0, 2]], [per_evidence, 1])


@pytest.mark.parametrize(("mass", "is_exempt"), [(1e-4, False), (2e-6, False), (0.5e-6, True)])
def test_only_classes_of_no_visible_mass_need_no_evidence(probing, mass, is_exempt):
    probed = probing(rare_class_law(mass))
    assert probed.readings.visible_mass == pytest.approx(1e-6, rel=0.2)
    probed.probe_at_random(200)
    found = start(probed)
    name_members(found, {0: [1], 1: [0], 2: []})
    found.recheck()
    # From here on the class is ruled out whenever position 0 is read.
    masked = np.zeros((40, 3), dtype=np.bool_)
    masked[:, 0] = True
    choices = np.full((40, 3), 2)
    choices[:, 0] = -1
    first = probed.readings.open(choices)
    states = np.where(masked, cp.MASK, 2).astype(np.int32)
    readouts = cp.Readouts.every_masked(states)
    probed.readings.take(first, readouts, probed.oracle.rows(states, readouts))
    found.recheck()
    assert found.evidence[0] == (40 if is_exempt else 0)


def test_an_unresolved_position_has_no_evidence(forest):
    probed, found = forest
    probed.probe_at_random(40)
    found.recheck()
    found.knowledge.reopen(2)
    assert found.evidence[2] == 0
    assert np.delete(found.evidence, 2).min() > 0


@pytest.mark.parametrize("j", [1, 4, 8])
def test_a_wrong_neighbourhood_is_reopened(forest, j):
    _, found = forest
    found.count[j] -= 1
    assert found.recheck() == 1
    assert np.flatnonzero(~found.knowledge.is_resolved).tolist() == [j]
    assert found.misfit[j] > TOLERANCE
    assert found.evidence[j] == 0
    # The search puts it right.
    assert found.improve() == 1
    assert sorted(found.members[j, : found.count[j]]) == sorted(neighbours(FOREST, j))


def test_a_neighbour_that_was_never_varied_is_missed_until_it_is(classed_law, probing):
    probed = probing(classed_law([[0, 1]], 3))
    masked = np.zeros((60, 3), dtype=np.bool_)
    masked[::2, 0] = masked[1::2, 2] = True
    probed.probe(masked)
    # Pretend that position 1 showed its first choice throughout: there are no rows to the
    # contrary in which it showed another.
    data = probed.readings.data
    same = data.choices[1, :60] == 0
    data.weight[0, :60][~same] = 0
    found = start(probed)
    improve(found)
    assert found.knowledge.is_resolved[0]
    assert found.count[0] == 0
    probed.probe(masked)
    assert found.recheck() == 1
    improve(found)
    assert found.members[0, : found.count[0]].tolist() == [1]


def test_an_account_says_where_edges_and_positions_stand(forest):
    _, found = forest
    found.count[8] = 0  # named by 9 in vain
    found.knowledge.reopen(np.array([0, 5]))
    found.knowledge.give_up()
    found.knowledge.reopen(np.array([6]))
    said = found.account()
    assert said["contradicted"].tolist() == [[8, 9]]
    np.testing.assert_array_equal(said["edges"], found.edges())
    assert np.flatnonzero(~said["is_resolved"]).tolist() == [0, 5, 6]
    assert np.flatnonzero(said["is_given_up"]).tolist() == [0, 5]
    found.knowledge.resolve(np.array([0, 6]))
    found.knowledge.take_back()
    # What was said stays said.
    assert np.flatnonzero(~said["is_resolved"]).tolist() == [0, 5, 6]
    assert np.flatnonzero(said["is_given_up"]).tolist() == [0, 5]
    found.count[8] = 1
    assert found.account()["contradicted"].shape == (0, 2)


def test_what_no_neighbourhood_explains_is_measured(forest):
    probed, found = forest
    found.misfit[:] = -1.0
    found.count[[1, 8]] = 0
    found.measure(np.array([1, 8, 10]))
    assert (found.misfit[[1, 8]] > 1e-3).all() and found.misfit[10] < TOLERANCE
    assert (np.delete(found.misfit, [1, 8, 10]) == -1.0).all()
    # The worst distance between a row and the mean of all clean rows, in total variation.
    data = probed.readings.data
    read = data.weight[8] > 0
    logs = data.logs[8, read]
    weight = data.weight[8, read].astype(np.float64)[:, None]
    mean = (weight * logs).sum(axis=0) / weight.sum()
    rows, fitted = (np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True) for x in (logs, mean))
    assert found.misfit[8] == pytest.approx(np.abs(rows - fitted).sum(axis=1).max() / 2)


@pytest.mark.parametrize(("num_probes", "is_judged"), [(0, False), (1, False), (2, True)])
def test_as_many_parameters_as_probes_contradict_nothing(
    classed_law, probing, num_probes, is_judged
):
    probed = probing(classed_law([[0, 1]], 2))
    masked = np.tile([True, False], (num_probes, 1))
    if num_probes:
        probed.probe(masked)
    found = start(probed)
    found.misfit[:] = -1.0
    found.measure(np.array([0]))
    assert np.isnan(found.misfit[0]) != is_judged


# ----- Terms taken over -----------------------------------------------------------------------


def probed_star(classed_law, probing, leaves: int = LEAVES, **options):
    """Return a probed star and neighbourhoods in which the leaves name their hub."""
    probed = probing(classed_law(star(leaves), leaves + 2), **options)
    hub_shown = probed.rng.random((150, leaves + 2)) < 0.4
    hub_shown[:, 0] = False
    probed.probe(hub_shown)
    only_hub = np.zeros((40, leaves + 2), dtype=np.bool_)
    only_hub[:, 0] = True
    states, _ = probed.probe(only_hub)
    found = start(probed)
    name_members(found, {i: [0] for i in range(1, leaves + 1)})
    assert found.recheck() == 0
    return probed, found, states


def log_pair(law: cp.ForestLaw, i: int) -> np.ndarray:
    """Return the log pair table of leaf ``i`` and the hub, leaf first."""
    e = [sorted(edge) for edge in law.edges.tolist()].index([0, i])
    table = np.log(law.pair[e])
    return table if law.edges[e, 0] == i else table.T


COLUMNS = {
    "tails of classes": {},
    "a column for each token": {"threshold": 0.0},
    "some banks": {"threshold": 0.17},
    "dense rows": {"threshold": 0.0, "as_dense": True},
}


@pytest.mark.parametrize("columns", list(COLUMNS))
def test_terms_taken_over_are_the_laws_own(classed_law, probing, columns):
    probed, found, _ = probed_star(classed_law, probing, **COLUMNS[columns])
    known = found.known(np.array([LEAVES + 1, 0]))
    assert known.start.tolist() == [0, 0, LEAVES]
    assert sorted(known.position.tolist()) == list(range(1, LEAVES + 1))
    kinds = probed.law.classes.token_class[0]
    for k, i in enumerate(known.position):
        size = probed.columns.num_choices[i]
        tokens = probed.columns.show(
            np.minimum(np.arange(size)[:, None], probed.columns.num_choices - 1),
            np.zeros((size, probed.law.length)),
        )[:, i]
        wanted = log_pair(probed.law, i)[kinds[tokens]]
        if COLUMNS[columns].get("as_dense"):
            wanted = wanted[:, kinds]
        # Equal up to a function of the choice, which normalises, and one of the coordinate,
        # which belongs to the hub's constant.
        off = known.terms[k, :size] - wanted
        np.testing.assert_allclose(off - off[:1] - off[:, :1] + off[0, 0], 0, atol=1e-7)
        assert np.abs(known.terms[k, :size]).max() > 0.1
        all_mask = probed.readings.all_mask[0]
        np.testing.assert_allclose(known.terms[k, :size] @ all_mask, 0, atol=1e-9)


def test_a_hub_is_explained_by_what_its_leaves_say(classed_law, probing):
    probed, found, states = probed_star(classed_law, probing)
    assert not found.knowledge.is_resolved[0]
    improve(found)
    assert found.knowledge.is_resolved[0]
    assert found.count[0] == 0
    assert found.misfit[0] < 2 * TOLERANCE
    assert pairs(found.edges()) == pairs(star(LEAVES))
    # And its evidence is every probe that masked it alone.
    assert len(found.contradictions()) == 0
    before = found.evidence[0]
    probed.probe(states == cp.MASK)
    assert found.recheck() == 0
    assert found.evidence[0] == before + len(states)


def test_hubs_come_with_terms_and_constants(classed_law, probing):
    probed, found, _ = probed_star(classed_law, probing)
    hubs, known = found.hubs()
    assert hubs.tolist() == [0]
    assert known.start.tolist() == [0, LEAVES]
    data = probed.readings.data
    for t in range(150, 190):
        shown = data.choices[known.position, t]
        explained = found.constant[0] + known.terms[np.arange(LEAVES), shown].sum(axis=0)
        np.testing.assert_allclose(data.logs[0, t], explained, atol=1e-7)


def test_a_few_claims_are_fitted_not_taken_over(classed_law, probing):
    _, found, _ = probed_star(classed_law, probing, OWN_CLAIMS)
    assert len(found.known(np.array([0])).position) == 0
    assert len(found.hubs()[0]) == 0
    improve(found)
    assert sorted(found.members[0, : found.count[0]]) == list(range(1, OWN_CLAIMS + 1))


def test_members_that_a_hub_fits_itself_are_not_taken_over(classed_law, probing):
    _, found, _ = probed_star(classed_law, probing)
    name_members(found, {0: [2, 3]})
    taken = sorted(found.known(np.array([0])).position.tolist())
    assert taken == [i for i in range(1, LEAVES + 1) if i not in (2, 3)]
    found.has_claims[0] = False  # what it named no longer explains it
    assert len(found.known(np.array([0])).position) == LEAVES


def test_a_term_that_the_probes_leave_open_is_not_taken_over(classed_law, probing):
    _, found, _ = probed_star(classed_law, probing)
    found.is_determined[3, 0, 1] = False
    assert sorted(found.known(np.array([0])).position.tolist()) == [
        i for i in range(1, LEAVES + 1) if i != 3
    ]


@pytest.mark.parametrize(("threshold", "count"), [(0.0, LEAVES), (0.17, 0), (2.0, 0)])
def test_a_tail_of_several_tokens_cannot_be_read_from_the_other_end(
    classed_law, probing, threshold, count
):
    # In dense rows such a tail has no coordinate of its own.
    law = classed_law(star(LEAVES), LEAVES + 2)
    found = start(probing(law, threshold=threshold, as_dense=True))
    name_members(found, {i: [0] for i in range(1, LEAVES + 1)})
    found.is_determined[:] = True
    known = found.known(np.array([0]))
    assert len(known.position) == count
    assert known.start.tolist() == [0, count]


def test_a_leaf_with_such_a_tail_cannot_be_read_although_its_hub_could(probing):
    rng = np.random.default_rng(3)
    unary = np.ones((LEAVES + 1, 3))
    unary[4:, 2] = 0.05  # these leaves have two rare tokens, which share a tail
    pair = np.exp(0.2 * rng.normal(size=(LEAVES, 3, 3)))
    classes = cp.classes.TokenClasses.build(LEAVES + 1, np.arange(6) % 3)
    law = cp.ForestLaw(unary, star(LEAVES), pair, classes=classes)
    found = start(probing(law, threshold=0.08, as_dense=True))
    assert found.readings.columns.num_choices.tolist() == [6] * 4 + [5] * (LEAVES - 3)
    name_members(found, {i: [0] for i in range(1, LEAVES + 1)})
    found.is_determined[:] = True
    assert found.known(np.array([0])).position.tolist() == [1, 2, 3]


def test_sketches_are_not_taken_over(classed_law, probing):
    probed = probing(classed_law(star(LEAVES), LEAVES + 2, vocab_size=60), as_dense=True)
    found = start(probed)
    assert found.readings.is_sketch
    name_members(found, {i: [0] for i in range(1, LEAVES + 1)})
    assert len(found.known(np.array([0])).position) == 0


def test_evidence_starts_again_when_a_hub_takes_over_more(classed_law, probing):
    probed, found, states = probed_star(classed_law, probing)
    improve(found)
    probed.probe(states == cp.MASK)
    found.recheck()
    assert found.evidence[0] == len(states)
    # Another position claims the hub: once its terms are fitted, what is taken over changes.
    name_members(found, {LEAVES + 1: [0]})
    assert found.recheck() == 0
    assert LEAVES + 1 in found.known(np.array([0])).position
    assert found.recheck() == 0
    assert found.evidence[0] == 0


# ----- Prices ---------------------------------------------------------------------------------


# ----- Components are remembered as they were validated ----------------------------------------


def test_what_was_validated_is_not_pending_until_it_is_forgotten() -> None:
    law = cp.families.path(30, target_seed=1)
    run = cp.run.Run(law.oracle())
    screen = Screen(run, method="regression")
    screen.now(screen.discover())
    validated = screen.validated
    assert len(validated.pending()) == 0
    assert validated.are_among(validated.keys()).all()
    validated.forget()
    np.testing.assert_array_equal(validated.pending(), np.arange(30))
