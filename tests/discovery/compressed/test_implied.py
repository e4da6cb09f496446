"""What fitted terms imply: the rows of the very law they were fitted to."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed.findings import Findings, Terms
from counterprobe.discovery.compressed.implied import (
    ImpliedLaw,
    coordinates_of,
    fitted_terms,
    tokens_of,
)
from counterprobe.discovery.compressed.knowledge import Knowledge
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.graph import repair_order
from counterprobe.oracles import Readouts
from screens import Screen


def screened(oracle: cp.Oracle, method: str = "regression") -> tuple[Findings, Neighbourhoods]:
    """Run a screen; return what it found, and the neighbourhoods that regression fitted."""
    screen = Screen(cp.run.Run(oracle), method=method)
    return screen.now(screen.discover()), screen.found


def random_states(length: int, vocab_size: int, count: int, seed: int) -> np.ndarray:
    """States with anything from nothing to nearly everything masked."""
    draw = np.random.default_rng(seed)
    shown = draw.integers(vocab_size, size=(count, length))
    masked = draw.random((count, length)) < draw.random((count, 1))
    masked[0] = True
    return np.where(masked, cp.MASK, shown).astype(np.int32)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("matching", {}),
        ("path", {}),
        ("binary-tree", {"signs": "mixed"}),
        ("growing-stars", {}),
        ("caterpillar", {"signs": "mixed"}),
        ("double-star", {"weight": 0.5}),
        ("double-star", {"weight": 0.5, "signs": "mixed"}),
        ("random-recursive-tree", {"classes": 4, "tables": "random", "weight": 0.5}),
    ],
)
@pytest.mark.parametrize(("method", "decoder"), [("auto", "peeling"), ("regression",) * 2])
def test_terms_imply_every_row_of_a_forest(
    family: str, options: dict[str, object], method: str, decoder: str
) -> None:
    law = cp.families.build(family, 160, 196, **options)
    findings, found = screened(law.oracle(), method)
    assert findings.decoder == decoder
    terms = findings.terms
    assert terms.is_complete.all()
    assert {*map(tuple, terms.edges)} == {*map(tuple, np.sort(law.edges))}
    if method == "regression":
        assert fitted_terms(found)[1].max(initial=0.0) < 1e-11
    implied = ImpliedLaw.of(terms, np.zeros(160, dtype=np.bool_))
    assert implied.is_tested.all()
    assert not implied.touches_known.any()
    states = random_states(160, law.vocab_size, 12, seed=3)
    readouts = Readouts.every_masked(states)
    rows = law.oracle().rows(states, readouts)
    assert implied.misfit(states, readouts, rows).max() < 1e-11
    # The same rows moved by a little are told from them.
    moved = rows.with_masses(0.999 * rows.masses + 0.001 * np.eye(law.num_classes)[0])
    assert implied.misfit(states, readouts, moved).max() > 1e-5


def test_dense_rows_are_compared_token_by_token() -> None:
    draw = np.random.default_rng(5)
    pair = np.exp(draw.normal(size=(59, 6, 6)))
    law = cp.ForestLaw(draw.uniform(0.3, 1, size=(60, 6)), [(i, i + 1) for i in range(59)], pair)

    def every_row(states: np.ndarray) -> np.ndarray:
        rows = np.full((*states.shape, 6), 1 / 6)
        readouts = Readouts.every_masked(states)
        rows[readouts.state_index, readouts.position] = law.oracle().rows(states, readouts).dense()
        return rows

    dense = cp.CallableOracle(every_row, 60, 6)
    _, found = screened(dense)
    terms, _ = fitted_terms(found)
    implied = ImpliedLaw.of(terms, np.zeros(60, dtype=np.bool_))
    states = random_states(60, 6, 10, seed=1)
    readouts = Readouts.every_masked(states)
    assert implied.misfit(states, readouts, dense.rows(states, readouts)).max() < 1e-11


def test_a_loop_is_cut_at_the_positions_known_first() -> None:
    bits = np.indices((2,) * 5)
    table = np.ones((2,) * 5)
    for a, b in ((0, 1), (1, 2), (2, 3), (0, 3), (3, 4)):
        table = table * np.where(bits[a] == bits[b], 0.7, 0.3)
    law = cp.TableLaw(table)
    _, found = screened(law.oracle())
    terms, _ = fitted_terms(found)
    assert len(terms.edges) == 5
    known_first = np.zeros(5, dtype=np.bool_)
    known_first[repair_order(5, terms.edges)] = True
    implied = ImpliedLaw.of(terms, known_first)
    np.testing.assert_array_equal(implied.is_tested, ~known_first)
    assert implied.touches_known[~known_first].all()
    states = random_states(5, 2, 40, seed=2)
    states[:, known_first] = np.random.default_rng(0).integers(2, size=(40, known_first.sum()))
    readouts = Readouts.every_masked(states)
    rows = law.oracle().rows(states, readouts)
    assert implied.misfit(states, readouts, rows).max() < 1e-12


def test_a_position_with_an_unknown_term_spoils_its_component_and_no_other() -> None:
    terms = Terms(
        unary=np.zeros((5, 2)),
        edges=np.array([[0, 1], [1, 2], [3, 4]]),
        tables=np.zeros((3, 2, 2)),
        is_complete=np.array([True, True, False, True, True]),
        tolerance=1e-12,
    )
    implied = ImpliedLaw.of(terms, np.zeros(5, dtype=np.bool_))
    assert implied.is_tested.tolist() == [False, False, False, True, True]
    # Known first, it only cuts: the others can be compared once it is known.
    implied = ImpliedLaw.of(terms, np.array([False, False, True, False, False]))
    assert implied.is_tested.tolist() == [True, True, False, True, True]
    assert implied.touches_known.tolist() == [True, True, False, False, False]


def test_a_coordinate_that_a_position_lacks_has_no_mass() -> None:
    unary = np.zeros((3, 3))
    unary[1, 2] = -np.inf
    tables = np.log([[[3.0, 1, 1], [1, 3, 1], [1, 1, 3]]] * 2)
    terms = Terms(unary, np.array([[0, 1], [1, 2]]), tables, np.ones(3, dtype=np.bool_), 1e-12)
    implied = ImpliedLaw.of(terms, np.zeros(3, dtype=np.bool_))
    table = np.einsum("ab,bc->abc", np.exp(tables[0]), np.exp(tables[1]))
    table[:, 2, :] = 0.0
    states = np.array([[-1, -1, -1], [2, -1, -1]], dtype=np.int32)
    readouts = Readouts.every_masked(states)
    rows = cp.TableLaw(table).oracle().rows(states, readouts)
    assert implied.misfit(states, readouts, rows).max() < 1e-12


def test_joint_draws_follow_the_fitted_law() -> None:
    law = cp.ForestLaw([[1, 1], [1, 1], [1, 1]], [[0, 1], [1, 2]], [[9, 1], [1, 9]])
    terms = Terms(
        np.log(law.unary), law.edges, np.log(law.pair), np.ones(3, dtype=np.bool_), 1e-12
    )
    implied = ImpliedLaw.of(terms, np.array([True, False, False]))
    rng = np.random.default_rng(1)
    layers = [np.array([1]), np.array([2])]
    drawn = np.array([implied.draw(np.array([1, 0, 0]), layers, rng) for _ in range(600)])
    assert (drawn[:, 0] == 1).all()
    assert abs((drawn[:, 1] == 1).mean() - 0.9) < 0.06
    assert abs((drawn[:, 2] == drawn[:, 1]).mean() - 0.9) < 0.06


# ----- Plainly --------------------------------------------------------------------------------


def plain_terms(found: Neighbourhoods) -> tuple[Terms, list[float]]:
    """Do what ``fitted_terms`` does, one reader, source and coordinate at a time."""
    readings, knowledge = found.readings, found.knowledge
    width = readings.all_mask.shape[1]
    columns, present = readings.columns, readings.all_mask > 1e-30
    reference = [int(np.argmax(row)) for row in readings.all_mask]
    complete = knowledge.is_found.copy()
    added: dict[tuple[int, int], np.ndarray] = {}
    own: set[tuple[int, int]] = set()
    for reader in np.flatnonzero(knowledge.is_found):
        for slot in range(found.count[reader]):
            source = int(found.members[reader, slot])
            table = added[reader, source] = np.zeros((width, width))
            own.add((reader, source))
            for a in range(width):
                choice = columns.choice_of_coordinate[source, a]
                if choice >= 0 and found.is_determined[reader, slot, choice]:
                    table[a] = found.terms[reader, slot, choice]
                elif present[source, a]:
                    complete[reader] = False
        known = found.known(np.array([reader]))
        for k, source in enumerate(known.position):
            shown = columns.choice_of_coordinate[source]
            added[reader, int(source)] = known.terms[k][shown].copy()
    unary = found.constant.copy()
    by_end: dict[tuple[int, int], np.ndarray] = {}
    for (reader, source), table in added.items():
        table[~present[source]] = 0.0
        table[:, ~present[reader]] = 0.0
        a0, b0 = reference[source], reference[reader]
        unary[reader] += table[a0]
        by_end[reader, source] = table - table[a0] - table[:, [b0]] + table[a0, b0]
    unary[~present] = -np.inf
    edges = sorted({(min(pair), max(pair)) for pair in added})
    tables, apart = np.zeros((len(edges), width, width)), []
    for e, (i, j) in enumerate(edges):
        far = 0.0
        for a, b in np.ndindex(width, width):
            mass = {i: readings.all_mask[i, a], j: readings.all_mask[j, b]}
            said = {}
            if (i, j) in by_end:
                said[i] = by_end[i, j][b, a]
            if (j, i) in by_end:
                said[j] = by_end[j, i][a, b]
            trust = sum(mass[end] ** 2 for end in said)
            if trust > 0:
                tables[e, a, b] = sum(mass[end] ** 2 * said[end] for end in said) / trust
            if {(i, j), (j, i)} <= own:
                far = max(far, abs(said[i] - said[j]) * min(mass.values()))
        apart.append(far)
    return Terms(unary, np.array(edges), tables, complete, readings.tolerance), apart


def made_up(probing, law: cp.ForestLaw, seed: int, **options: object) -> Neighbourhoods:
    """Return neighbourhoods of the law's edges with any terms, some of them left open.

    The hub fits one of its leaves itself, and takes over what it can from the others.
    """
    probed = probing(law, tolerance=1e-9, **options)
    found = Neighbourhoods(probed.readings, Knowledge(np.zeros(law.length, dtype=np.bool_)))
    for j in range(law.length):
        named = [int(e.sum()) - j for e in law.edges if j in e]
        found.count[j] = len(named[:3]) if j != HUB else 1
        found.members[j, : len(named[:3])] = named[:3]
    draw = np.random.default_rng(seed)
    found.terms[:] = draw.normal(size=found.terms.shape)
    found.constant[:] = draw.normal(size=found.constant.shape)
    found.is_determined[:] = draw.random(found.is_determined.shape) < 0.95
    found.has_claims[:] = True
    found.knowledge.resolve(np.delete(np.arange(law.length), [1, 9]))
    return found


HUB = 4
PATH_AND_STAR = [[0, 1], [1, 2], [3, 2], *([HUB, i] for i in range(5, 12))]


@pytest.mark.parametrize("columns", [{}, {"threshold": 0.0}, {"threshold": 0.0, "as_dense": True}])
@pytest.mark.parametrize("seed", range(3))
def test_terms_are_read_off_fits_coordinate_by_coordinate(
    classed_law, probing, columns: dict[str, object], seed: int
) -> None:
    found = made_up(probing, classed_law(PATH_AND_STAR, 13), seed, **columns)
    if seed == 2:  # a coordinate that some positions lack
        found.readings.all_mask[[1, 4, 7], 1] = 0.0
    got, disagreement = fitted_terms(found)
    wanted, apart = plain_terms(found)
    np.testing.assert_array_equal(got.edges, wanted.edges)
    np.testing.assert_array_equal(got.is_complete, wanted.is_complete)
    np.testing.assert_allclose(got.unary, wanted.unary, atol=1e-9)
    np.testing.assert_allclose(got.tables, wanted.tables, atol=1e-9)
    np.testing.assert_allclose(disagreement, apart, atol=1e-9)
    assert got.tolerance == 1e-9
    assert 0 < got.is_complete.sum() < 13 and (disagreement > 0).any()


def implied_plainly(terms: Terms, state: np.ndarray, position: int) -> np.ndarray:
    """The row of one position, by summing over everything that is masked."""
    length, width = terms.unary.shape
    free = [i for i in range(length) if state[i] == cp.MASK and i != position]
    row = np.zeros(width)
    for values in itertools.product(range(width), repeat=len(free) + 1):
        filled = state.copy()
        filled[[position, *free]] = values
        log = terms.unary[np.arange(length), filled].sum()
        for (i, j), table in zip(terms.edges, terms.tables, strict=True):
            log += table[filled[i], filled[j]]
        row[values[0]] += np.exp(log)
    return row / row.sum()


# A triangle with a tail, a pair that hangs on nothing, and a position by itself.
CYCLE = np.array([[0, 1], [1, 2], [0, 2], [2, 3], [4, 5]])


@pytest.mark.parametrize("known", [[0], [2], [0, 2], [0, 1, 2, 3], [2, 4]])
@pytest.mark.parametrize("classed", [False, True])
def test_misfits_are_distances_from_the_rows_that_enumeration_gives(
    known: list[int], classed: bool
) -> None:
    draw = np.random.default_rng(len(known))
    length, width = 7, 3
    unary = draw.normal(size=(length, width))
    unary[3, 1] = unary[6, 0] = -np.inf
    terms = Terms(
        unary, CYCLE, draw.normal(size=(5, width, width)), np.ones(length, dtype=np.bool_), 1e-3
    )
    known_first = np.isin(np.arange(length), known)
    implied = ImpliedLaw.of(terms, known_first)
    np.testing.assert_array_equal(implied.is_tested, ~known_first)
    assert implied.tolerance == pytest.approx(3e-5 + 2e-3)
    # A position touches what must be known where a path of free positions leads to it.
    for i in np.flatnonzero(~known_first):
        reached, ahead = set(), [int(i)]
        while ahead:
            here = ahead.pop()
            for e in CYCLE:
                if here in e:
                    other = int(e.sum() - here)
                    if other not in reached and not known_first[other]:
                        ahead.append(other)
                    reached.add(other)
        assert implied.touches_known[i] == bool(reached & set(known))
    states = draw.integers(width, size=(6, length)).astype(np.int32)
    hidden = draw.random((6, length)) < 0.6
    hidden[:, known] = False
    coordinates = np.where(hidden, cp.MASK, states)
    readouts = Readouts.every_masked(coordinates)
    masses = draw.dirichlet(np.ones(width), size=len(readouts))
    if classed:  # tokens 0..8 in three classes, three of each
        classes = cp.classes.TokenClasses.build(length, np.arange(9) % 3)
        rows = cp.rows.ClassedRows(masses, classes, readouts.position)
        shown = np.where(hidden, cp.MASK, states + 3 * draw.integers(3, size=states.shape))
    else:
        rows, shown = cp.rows.DenseRows(masses), coordinates
    got = implied.misfit(shown.astype(np.int32), readouts, rows)
    for r, (s, i) in enumerate(zip(readouts.state_index, readouts.position, strict=True)):
        if not np.isfinite(unary[np.arange(length), coordinates[s]])[coordinates[s] >= 0].all():
            continue  # a state that the law excludes
        row = implied_plainly(terms, coordinates[s], int(i))
        assert got[r] == pytest.approx(np.abs(row - masses[r]).sum() / 2, abs=1e-9)
    # What cannot be tested is not: its distance is zero.
    open_ended = replace(terms, is_complete=np.arange(length) != 3)
    untested = ImpliedLaw.of(open_ended, known_first)
    far = untested.misfit(shown.astype(np.int32), readouts, rows)
    tested = untested.is_tested[readouts.position]
    np.testing.assert_allclose(far, np.where(tested, got, 0.0), atol=1e-12)
    assert not untested.is_tested[3] and untested.is_tested[5]


def test_hubs_have_their_unary_spread_over_their_edges() -> None:
    # A hub of 60 leaves that each pull by 3 against a unary of 150: no single factor holds that.
    length = 61
    unary = np.zeros((length, 2))
    unary[0] = 150.0, 0.0
    edges = np.array([[0, i] for i in range(1, length)])
    tables = np.zeros((60, 2, 2))
    tables[:, 0] = -2.5
    terms = Terms(unary, edges, tables, np.ones(length, dtype=np.bool_), 1e-12)
    implied = ImpliedLaw.of(terms, np.zeros(length, dtype=np.bool_))
    state = np.full((1, length), cp.MASK, dtype=np.int32)
    readouts = Readouts.pairs(np.array([0, 0]), np.array([0, 5]))
    rows = cp.rows.DenseRows(np.array([[0.5, 0.5], [0.5, 0.5]]))
    assert implied.misfit(state, readouts, rows).max() < 1e-9


def test_draws_keep_what_is_known_and_follow_it() -> None:
    # A chain of copies, all but certain; position 3 is known and in no layer.
    copies = np.tile(np.log(np.eye(3) + 1e-12), (3, 1, 1))
    terms = Terms(
        np.zeros((5, 3)),
        np.array([[0, 1], [1, 2], [2, 3]]),
        copies,
        np.ones(5, dtype=np.bool_),
        1e-12,
    )
    known_first = np.array([False, False, False, True, True])
    implied = ImpliedLaw.of(terms, known_first)
    layers = [np.array([1]), np.array([0, 2])]
    for value in range(3):
        known = np.array([0, 0, 0, value, 1])
        drawn = implied.draw(known, layers, np.random.default_rng(value))
        assert drawn.tolist() == [value, value, value, value, 1]
        assert known.tolist() == [0, 0, 0, value, 1]


def test_tokens_and_coordinates_are_turned_into_each_other() -> None:
    classes = cp.classes.TokenClasses.build(3, np.array([2, 0, 1, 0, 2]))
    states = np.array([[0, cp.MASK, 3], [4, 1, cp.MASK]], dtype=np.int32)
    shown = coordinates_of(states, classes)
    assert shown.tolist() == [[2, cp.MASK, 0], [2, 0, cp.MASK]] and shown.dtype == np.int32
    assert coordinates_of(states, None) is states
    rng = np.random.default_rng(0)
    positions = np.tile(np.arange(3), 40)
    coordinates = rng.integers(3, size=120)
    tokens = tokens_of(coordinates, positions, classes, rng)
    np.testing.assert_array_equal(np.array([2, 0, 1, 0, 2])[tokens], coordinates)
    assert {0, 1, 2, 3, 4} == set(tokens.tolist())
    assert tokens_of(coordinates, positions, None, rng) is coordinates
