"""What fitted terms imply: the rows of the very law they were fitted to."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.graph import repair_order
from counterprobe.oracle import Readouts
from counterprobe.probing.compressed.findings import CompressedSettings, Terms
from counterprobe.probing.compressed.implied import ImpliedLaw, fitted_terms
from counterprobe.probing.compressed.screen import _CompressedScreen


def screened(oracle: cp.Oracle, seed: int = 1, **settings: object) -> _CompressedScreen:
    """Run a screen and return it with all it knows."""
    run = cp.Unmasking(oracle)
    decisions = cp.Streams.from_seed(seed).decisions
    screen = _CompressedScreen(run, decisions, CompressedSettings(**settings))
    screen.discover()
    return screen


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
def test_terms_imply_every_row_of_a_forest(family: str, options: dict[str, object]) -> None:
    law = cp.families.build(family, 160, 196, **options)
    screen = screened(law.oracle())
    terms, disagreement = fitted_terms(screen.found)
    assert terms.is_complete.all()
    assert disagreement.max(initial=0.0) < 1e-11
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
    screen = screened(dense)
    terms, _ = fitted_terms(screen.found)
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
    screen = screened(law.oracle())
    terms, _ = fitted_terms(screen.found)
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
