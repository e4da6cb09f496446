"""The exact laws behind the learned denoisers, against enumeration and the library's own laws."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from denoisers.forest import ForestTruth
from denoisers.grid import GridTruth
from denoisers.laws import LAWS, Truth, build_law, law_names
from denoisers.topic import TopicTruth
from numpy.typing import ArrayLike

import counterprobe as cp


def every_sequence(length: int, vocab_size: int) -> torch.Tensor:
    return torch.tensor(list(itertools.product(range(vocab_size), repeat=length)))


def table_of(truth: Truth) -> cp.TableLaw:
    sequences = every_sequence(truth.length, truth.vocab_size)
    joint = truth.log_prob(sequences).exp().numpy()
    return cp.TableLaw(joint.reshape((truth.vocab_size,) * truth.length))


def random_grid(
    height: int, width: int, vocab_size: int, seed: int
) -> tuple[GridTruth, cp.TableLaw]:
    """Return a grid law and the same law by multiplying out every factor."""
    rng = np.random.default_rng(seed)
    length = height * width
    unary = np.exp(rng.normal(0, 0.7, (length, vocab_size)))
    left, above = np.exp(rng.normal(0, 1, (2, length, vocab_size, vocab_size)))
    position = rng.permutation(length)
    joint = np.ones((vocab_size,) * length)
    for x in itertools.product(range(vocab_size), repeat=length):
        for site in range(length):
            own = x[position[site]]
            joint[x] *= unary[site, own]
            if site >= height:
                joint[x] *= left[site, x[position[site - height]], own]
            if site % height:
                joint[x] *= above[site, x[position[site - 1]], own]
    grid = GridTruth(unary, left, above, height=height, position=position)
    return grid, cp.TableLaw(joint / joint.sum())


def random_states(length: int, vocab_size: int, count: int, seed: int) -> torch.Tensor:
    """Return states of every degree of masking, nothing and everything shown among them."""
    rng = np.random.default_rng(seed)
    states = rng.integers(vocab_size, size=(count, length))
    states[rng.random((count, length)) < np.linspace(0, 1, count)[:, None]] = cp.MASK
    states[-1] = cp.MASK
    return torch.as_tensor(states)


def check_rows(truth: Truth, law: cp.TableLaw | cp.ForestLaw, seed: int) -> None:
    states = random_states(truth.length, truth.vocab_size, 40, seed)
    rows = truth.rows(states).numpy()
    for state, row in zip(states.numpy().astype(np.int32), rows, strict=True):
        masked = np.flatnonzero(state == cp.MASK)
        if len(masked):
            readouts = cp.Readouts.same(1, masked)
            exact = np.asarray(law.oracle().rows(state[None], readouts).dense())
            np.testing.assert_allclose(row[masked], exact, atol=1e-12)


GRIDS = [(2, 1, 3), (2, 3, 3), (3, 2, 2), (3, 3, 2), (4, 2, 2), (2, 2, 1)]


@pytest.mark.parametrize(("height", "width", "vocab_size"), GRIDS)
def test_grid_has_the_probabilities_of_its_factors(
    height: int, width: int, vocab_size: int
) -> None:
    grid, law = random_grid(height, width, vocab_size, seed=3)
    sequences = every_sequence(grid.length, vocab_size)
    np.testing.assert_allclose(
        grid.log_prob(sequences).numpy(), law.log_prob(sequences.numpy()), atol=1e-10
    )


@pytest.mark.parametrize(("height", "width", "vocab_size"), GRIDS)
def test_grid_has_the_rows_of_its_joint_table(height: int, width: int, vocab_size: int) -> None:
    grid, law = random_grid(height, width, vocab_size, seed=4)
    check_rows(grid, law, seed=height)


def test_grid_edges_join_neighbours_and_nothing_else() -> None:
    grid, _ = random_grid(2, 3, 3, seed=5)
    joined = {tuple(edge) for edge in grid.edges.tolist()}
    assert len(joined) == 7
    for i, j in itertools.combinations(range(6), 2):
        # Everything else shown: a row moves with another position only along an edge.
        states = torch.zeros((3, 6), dtype=torch.int64)
        states[:, i], states[:, j] = cp.MASK, torch.arange(3)
        moves = float((grid.rows(states)[:, i] - grid.rows(states)[0, i]).abs().max())
        assert (moves > 1e-9) == ((i, j) in joined)


def test_grid_of_height_one_is_refused() -> None:
    with pytest.raises(
        ValueError, match="height must be at least 2 and divide the 6 sites, got 1"
    ):
        GridTruth(
            np.ones((6, 2)),
            np.ones((6, 2, 2)),
            np.ones((6, 2, 2)),
            height=1,
            position=np.arange(6),
        )


@pytest.mark.parametrize("seed", range(4))
def test_forest_agrees_with_the_library(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # A random tree, without some of its edges, so that there are several roots.
    edges = np.array([(rng.integers(i), i) for i in range(1, 12)])[rng.random(11) < 0.8]
    edges = rng.permuted(rng.permutation(12)[edges], axis=1)
    unary = np.exp(rng.normal(0, 1, (12, 4)))
    pair = np.exp(rng.normal(0, 1, (len(edges), 4, 4)))
    truth, law = ForestTruth(unary, edges, pair), cp.ForestLaw(unary, edges, pair)
    tokens = law.sample(30, rng)
    np.testing.assert_allclose(
        truth.log_prob(torch.as_tensor(tokens).long()).numpy(), law.log_prob(tokens), atol=1e-10
    )
    check_rows(truth, law, seed)


def test_forest_knows_the_probability_of_what_is_shown() -> None:
    truth = build_law("tree", small=True)
    assert isinstance(truth, ForestTruth)
    sequences = every_sequence(8, 4)
    log_prob = truth.log_prob(sequences)
    for state in random_states(8, 4, 10, seed=1):
        fits = ((sequences == state) | (state < 0)).all(dim=1)
        _, evidence = truth.rows_and_evidence(state[None])
        assert float(evidence[0]) == pytest.approx(float(log_prob[fits].logsumexp(0)), abs=1e-10)


def test_topic_rows_are_those_of_the_mixture() -> None:
    truth = build_law("topic", small=True)
    assert isinstance(truth, TopicTruth)
    law = table_of(truth)
    assert float(truth.log_prob(every_sequence(8, 4)).exp().sum()) == pytest.approx(1.0)
    check_rows(truth, law, seed=2)


def test_topic_joins_positions_that_no_edge_joins() -> None:
    truth = build_law("topic", small=True)
    apart = next(
        (i, j)
        for i, j in itertools.combinations(range(8), 2)
        if not (np.sort(truth.edges, axis=1) == (i, j)).all(axis=1).any()
    )
    states = torch.full((4, 8), -1)
    states[:, apart[0]] = torch.arange(4)
    rows = truth.rows(states)[:, apart[1]]
    assert float((rows - rows[0]).abs().max()) > 0.01


@pytest.mark.statistical
@pytest.mark.parametrize("name", list(LAWS))
def test_samples_follow_the_law(
    name: str,
    chi_square: Callable[[ArrayLike, ArrayLike], float],
    seed_of: Callable[[int], int],
    false_alarms: float,
) -> None:
    # 20,000 draws over pairs of positions: a cell of 1/16 that is off by 3% has z = 1.2, by 15% 5.
    truth = build_law(name, small=True)
    joint = np.exp(truth.log_prob(every_sequence(truth.length, truth.vocab_size)).numpy())
    joint = joint.reshape((truth.vocab_size,) * truth.length)
    generator = torch.Generator().manual_seed(seed_of(7))
    drawn = truth.sample(20_000, generator).numpy()
    pairs = [*truth.edges.tolist()[:4], [0, truth.length - 1]]
    level = false_alarms / len(LAWS) / len(pairs)
    for i, j in pairs:
        i, j = sorted((i, j))
        others = tuple(k for k in range(truth.length) if k not in (i, j))
        counts = np.zeros((truth.vocab_size,) * 2)
        np.add.at(counts, (drawn[:, i], drawn[:, j]), 1)
        assert chi_square(counts, joint.sum(axis=others)) > level
        # Negative control: pairs drawn apart must be told from pairs on an edge.
        if [i, j] in np.sort(truth.edges, axis=1).tolist():
            apart = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
            assert chi_square(apart, joint.sum(axis=others)) < level


@pytest.mark.parametrize("name", list(LAWS))
def test_a_law_is_the_same_every_time_and_has_64_positions(name: str) -> None:
    first, second = build_law(name), build_law(name)
    tokens = first.sample(5, torch.Generator().manual_seed(0))
    assert first.length == 64
    assert torch.equal(first.log_prob(tokens), second.log_prob(tokens))
    assert np.array_equal(first.edges, second.edges)
    # Sampled and scored by the same law: no token is out of range or impossible.
    assert torch.isfinite(first.log_prob(tokens)).all()


def test_unknown_law_is_refused() -> None:
    with pytest.raises(ValueError, match=r"law must be one of path, tree, .*, got 'ring'"):
        law_names("path,ring")
    assert law_names("all") == list(LAWS)
