"""Single substitutions give the information that enumeration gives, at the price they say."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import counterprobe as cp
from counterprobe.discovery.soft import SoftFindings, SoftSettings, soft_screen
from counterprobe.discovery.soft.readings import Coordinates
from counterprobe.discovery.soft.selection import LEAST_MOVEMENT
from counterprobe.discovery.soft.sources import shown_tokens
from counterprobe.discovery.soft.substitution import (
    Substitutions,
    _bulk_chances,
    context_cost,
    draw_contexts,
)
from counterprobe.rows import DenseRows
from counterprobe.testing import CountingOracle, NoisyLogits


def screen(oracle: cp.Oracle, seed: int = 1, **settings: object) -> SoftFindings:
    run = cp.Unmasking(oracle)
    found = soft_screen(run, cp.Streams(seed, 0).decisions, SoftSettings(**settings))
    assert run.ledger.probes == found.num_probes <= settings["probes"]
    np.testing.assert_array_equal(found.strength, found.strength.T)
    assert np.isfinite(found.strength_se).all() and not np.diag(found.strength_se).any()
    return found


def mutual_information(joint: np.ndarray, i: int, j: int) -> float:
    others = tuple(k for k in range(joint.ndim) if k not in (i, j))
    pair = joint.sum(axis=others)
    product = np.outer(pair.sum(axis=1), pair.sum(axis=0))
    return float((pair * np.log(pair / product)).sum())


def test_with_every_token_shown_strengths_are_mutual_information() -> None:
    joint = np.random.default_rng(0).dirichlet(np.full(81, 0.7)).reshape((3,) * 4)
    found = screen(cp.TableLaw(joint).oracle(), probes=12, estimator="substitution")
    for i, j in ((0, 1), (0, 3), (1, 2), (2, 3)):
        assert found.strength[i, j] == pytest.approx(mutual_information(joint, i, j), abs=1e-9)
        assert found.strength_se[i, j] < 1e-9  # both ends agree
    assert found.num_probes == 12
    assert [batch.probes for batch in found.batches] == [12]
    assert found.sample is not None


def test_contexts_average_the_information_given_what_they_reveal() -> None:
    joint = np.random.default_rng(1).dirichlet(np.full(27, 0.7)).reshape((3,) * 3)
    settings = {"estimator": "contexts", "mask_rate": 0.66, "probes": 700, "first": 28}
    found = screen(cp.TableLaw(joint).oracle(), **settings)
    # Two of three are masked in each context, the third shows a token at a floored frequency.
    marginal = joint.sum(axis=(0, 1))
    frequency = np.maximum(marginal, 0.15) / np.maximum(marginal, 0.15).sum()
    given = [mutual_information(joint[..., v] / marginal[v], 0, 1) for v in range(3)]
    error = found.strength_se[0, 1]
    assert 0 < error < 0.03
    assert found.strength[0, 1] == pytest.approx(float(frequency @ given), abs=4 * error)
    probes = [batch.probes for batch in found.batches]
    assert probes[:3] == [28, 56, 112] and probes[-1] == 700


def test_edges_of_a_noisy_path_are_strongest_by_substitution(
    noisy_forest: Callable[[str, int], tuple[NoisyLogits, set[tuple[int, int]]]],
) -> None:
    oracle, edges = noisy_forest("path", 5)
    counting = CountingOracle(oracle)
    found = screen(counting, probes=192, estimator="substitution")
    assert counting.states == 193
    listed = {(int(i), int(j)) for i, j in found.edges}
    assert len(edges & listed) >= 60
    strongest = {(int(i), int(j)) for i, j in found.edges[:63]}
    assert len(edges & strongest) >= 55


@pytest.mark.parametrize("estimator", ["substitution", "contexts"])
def test_a_product_law_has_nothing_to_find(estimator: str) -> None:
    law = cp.ForestLaw(np.random.default_rng(0).uniform(0.2, 1, (8, 5)), [], np.ones((5, 5)))
    found = screen(law.oracle(), probes=60, estimator=estimator)
    assert not found.strength.any() and len(found.edges) == 0 and found.noise_floor == 0


def test_the_caller_may_stop_between_batches_of_contexts() -> None:
    law = cp.families.path(length=10, target_seed=1)
    run = cp.Unmasking(law.oracle())
    settings = SoftSettings(probes=200, first=13, estimator="contexts")
    found = soft_screen(run, cp.Streams(1, 0).decisions, settings, is_enough=lambda _: True)
    assert found.num_probes == run.ledger.probes == 13
    # Pairs that no context masked together have an error all the same.
    assert (found.strength_se[np.triu_indices(10, 1)] >= 0).all()


@pytest.mark.filterwarnings("ignore:.*probability zero")
def test_positions_with_one_possible_token_cost_nothing() -> None:
    joint = np.random.default_rng(4).dirichlet(np.ones(9)).reshape(3, 3)
    law = cp.TableLaw(np.stack([joint, 0 * joint, 0 * joint], axis=1))
    found = screen(law.oracle(), probes=9, estimator="substitution")
    assert found.num_probes == 6
    assert found.strength[0, 2] == pytest.approx(mutual_information(joint[:, None], 0, 2))
    assert not found.strength[1].any()


@pytest.mark.parametrize(("estimator", "needed"), [("substitution", 30), ("contexts", 13)])
def test_too_few_probes_are_refused_with_a_remedy(estimator: str, needed: int) -> None:
    law = cp.families.path(length=10, target_seed=1)
    settings = SoftSettings(probes=12, estimator=estimator)
    with pytest.raises(ValueError, match=f"probes must be at least {needed} .* got 12; raise"):
        soft_screen(cp.Unmasking(law.oracle()), cp.Streams(1, 0).decisions, settings)


# ----- Plainly --------------------------------------------------------------------------------


def directed_plainly(
    oracle: cp.Oracle, state: NDArray[np.int32], settings: SoftSettings
) -> NDArray[np.float64]:
    """Information of each source (second index) at each readout (first), one pair at a time."""
    directed = np.zeros((len(state), len(state)))
    masked = np.flatnonzero(state == cp.MASK)
    rows = oracle.rows(state[None, :], cp.Readouts.same(1, masked))
    sources = shown_tokens(rows, settings.shown, settings.floor)
    for k, source in enumerate(masked):
        for readout in masked[masked != source]:
            read = []
            for token in sources.tokens[k]:
                shown = state.copy()
                shown[source] = token
                rows = oracle.rows(shown[None, :], cp.Readouts.same(1, [readout]))
                read.append(np.asarray(rows.dense())[0])
            p = sources.probability[k]
            mixture = p @ np.array(read)
            nats = sum(
                p[a] * (read[a] * np.log(read[a] / mixture)).sum() for a in np.flatnonzero(p)
            )
            directed[readout, source] = sources.spread[k] * nats
    return directed


def averaged_plainly(
    found: list[tuple[NDArray[np.bool_], NDArray[np.float64]]], length: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Strengths and errors of all pairs, from what each context masks and says."""
    strength, error = np.full((2, length, length), np.nan)
    for i, j in itertools.combinations(range(length), 2):
        both = [said for masked, said in found if masked[i] and masked[j]]
        means = np.array([(said[i, j] + said[j, i]) / 2 for said in both])
        strength[i, j] = means.mean() if len(both) and means.mean() > LEAST_MOVEMENT else 0.0
        if len(both) == 1:
            error[i, j] = abs(both[0][i, j] - both[0][j, i]) / 2
        elif len(both):
            error[i, j] = means.std(ddof=1) / np.sqrt(len(both))
    measured = ~np.isnan(error)
    error[np.triu(~measured, 1)] = strength[measured].std() if measured.any() else 0.0
    return strength, error


class Substituted:
    """Substitutions in given contexts, and all that was told on the way."""

    def __init__(
        self,
        law: cp.TableLaw,
        states: NDArray[np.int32],
        settings: SoftSettings,
        at_once: int,
        batches: int = 1,
    ) -> None:
        self.counting = CountingOracle(law.oracle())
        self.run = cp.Unmasking(self.counting)
        rows = self.run.preprocess()
        self.watched: list[NDArray[np.int32]] = []
        coordinates = Coordinates(rows, np.arange(law.length), law.length)
        self.found = Substitutions(self.run, coordinates, settings, at_once, self.watch)
        for part in np.array_split(states, batches):
            self.found.add(part, self.found.read_contexts(part))

    def watch(self, states: NDArray[np.int32], readouts: cp.Readouts, rows: cp.Rows) -> None:
        assert len(rows) == len(readouts)
        np.testing.assert_array_equal(np.nonzero(states == cp.MASK)[1], readouts.position)
        self.watched.append(states)


# Four, two, two, three and one positions masked of four.
CONTEXTS = np.array(
    [[-1, -1, -1, -1], [-1, 1, 0, -1], [-1, -1, 0, 1], [-1, -1, 2, -1], [0, 1, -1, 2]],
    dtype=np.int32,
)


@pytest.mark.parametrize(
    ("chosen", "at_once", "batches"),
    [([0], 100, 1), ([1, 2, 3, 4], 1, 2), ([0, 1, 2, 3], 4, 1), ([2, 2, 3], 7, 3), ([4], 9, 1)],
)
@pytest.mark.parametrize("shown", [2, 3])
def test_pairs_are_averages_of_what_each_context_says(
    chosen: list[int], at_once: int, batches: int, shown: int
) -> None:
    joint = np.random.default_rng(7).dirichlet(np.full(81, 0.6)).reshape((3,) * 4)
    law, states = cp.TableLaw(joint), CONTEXTS[chosen]
    settings = SoftSettings(shown=shown, estimator="contexts", false_discovery_rate=0.4)
    done = Substituted(law, states, settings, at_once, batches)
    said = [
        (state == cp.MASK, directed_plainly(law.oracle(), state, settings)) for state in states
    ]
    strength, _ = averaged_plainly(said, 4)
    residual = np.array([0, 1, 3]) if 4 not in chosen else np.arange(4)
    got = done.found.pairs(residual)
    upper = np.triu_indices(len(residual), 1)
    inside = np.ix_(residual, residual)
    np.testing.assert_allclose(got.strength[upper], strength[inside][upper], atol=1e-12)
    for matrix in (got.strength, got.strength_se, got.is_edge):
        np.testing.assert_array_equal(matrix, matrix.T)
        assert not np.diag(matrix).any()
    # One probe for each token of each masked position, and one for each context.
    masked = (states == cp.MASK).sum()
    assert done.found.num_probes == done.run.ledger.probes == len(states) + shown * masked
    assert sum(map(len, done.watched)) == done.found.num_probes
    assert max(map(len, done.watched)) <= max(at_once, shown)
    np.testing.assert_array_equal(
        np.concatenate(done.watched), np.concatenate(done.counting.seen[1:])
    )
    assert done.run.ledger.depth == 1 + 2 * batches


@pytest.mark.parametrize("shown", [2, 3])  # with two of three tokens the ends disagree
def test_errors_where_contexts_measure_all_pairs_some_or_none(shown: int) -> None:
    joint = np.random.default_rng(8).dirichlet(np.full(81, 0.6)).reshape((3,) * 4)
    law, settings = cp.TableLaw(joint), SoftSettings(estimator="contexts", shown=shown)
    for chosen in ([0], [1, 2, 3], [1, 2], [4], [0, 0, 3]):
        states = CONTEXTS[chosen]
        said = [(s == cp.MASK, directed_plainly(law.oracle(), s, settings)) for s in states]
        strength, error = averaged_plainly(said, 4)
        got = Substituted(law, states, settings, 16).found.pairs(np.arange(4))
        upper = np.triu_indices(4, 1)
        np.testing.assert_allclose(got.strength[upper], strength[upper], atol=1e-12)
        np.testing.assert_allclose(got.strength_se[upper], error[upper], atol=1e-7)


def test_chances_are_those_of_a_normal_law_with_the_lower_half_of_all_pairs() -> None:
    logs = np.array([0.0, -2.0, -1.0, -3.0, 1.0])
    measured = np.ones(5, dtype=np.bool_)
    chance, floor = _bulk_chances(np.exp(logs), measured)
    # A quarter lies below -2 and a half below -1: so it is of the normal law.
    np.testing.assert_allclose(chance[[2, 1, 0]], [0.5, 0.75, 0.25], atol=1e-4)
    assert stats.norm.isf(chance[4]) == pytest.approx(2 * 0.6745)
    assert np.log(floor) == pytest.approx(-1 + stats.norm.ppf(0.99) / 0.6745)
    # Pairs of one strength are all at its centre.
    alike, floor = _bulk_chances(np.full(4, 0.3), measured[:4])
    np.testing.assert_allclose(alike, 0.5)
    assert floor == pytest.approx(0.3, rel=1e-4)


def test_pairs_that_did_not_move_are_unrelated_and_those_not_measured_say_nothing() -> None:
    strength = np.concatenate([np.exp([0.0, 1.0, 2.0]), np.zeros(3), [5.0, 5.0]])
    measured = np.arange(8) < 6
    # Half of what was measured moved: the others count among the unrelated, no more.
    chance, floor = _bulk_chances(strength, measured)
    assert chance[:3] == pytest.approx(stats.norm.sf(0.6745 * np.array([-2, 0, 2])))
    assert (chance[3:] == 1).all() and floor > 0
    # Less than half: whatever moved was moved by something.
    measured[6:] = True
    strength[6:] = 0.0
    chance, floor = _bulk_chances(strength, measured)
    assert chance.tolist() == [0, 0, 0, 1, 1, 1, 1, 1] and floor == 0
    for nothing in (np.zeros(4), np.zeros(0)):
        chance, floor = _bulk_chances(nothing, np.ones(len(nothing), dtype=np.bool_))
        assert (chance == 1).all() and floor == 0
    chance, floor = _bulk_chances(np.ones(3), np.zeros(3, dtype=np.bool_))
    assert chance.tolist() == [1, 1, 1] and floor == 0


def test_contexts_mask_so_many_and_show_tokens_at_their_frequency() -> None:
    masses = np.array([[0.7, 0.3, 0.0], [0.1, 0.3, 0.6], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]])
    sources = shown_tokens(DenseRows(masses), 2, 0.15)
    residual = np.array([0, 2, 3, 5])
    state = np.array([-1, 7, -1, -1, 8, -1], dtype=np.int32)
    states = draw_contexts(state, residual, sources, 2000, 2, np.random.default_rng(1))
    assert states.shape == (2000, 6) and states.dtype == np.int32
    assert (states[:, [1, 4]] == [7, 8]).all() and (state[residual] == cp.MASK).all()
    masked = states[:, residual] == cp.MASK
    assert (masked.sum(axis=1) == 2).all()
    # Each pair of positions is masked a sixth of the time, each token shown at its frequency.
    pairs = np.unique(masked, axis=0, return_counts=True)[1]
    assert len(pairs) == 6 and np.abs(pairs / 2000 - 1 / 6).max() < 0.04
    for k, i in enumerate(residual):
        shown = states[~masked[:, k], i]
        for token, frequency in zip(sources.tokens[k], sources.frequency[k], strict=True):
            share = sources.frequency[k][sources.tokens[k] == token].sum()
            assert frequency == 0 or abs((shown == token).mean() - share) < 0.06
        assert set(shown) <= set(sources.tokens[k])


@pytest.mark.parametrize(
    ("estimator", "shown", "cost"),
    [("substitution", 3, 15), ("contexts", 3, 16), ("contexts", 1, 6)],
)
def test_what_a_context_costs(estimator: str, shown: int, cost: int) -> None:
    assert context_cost(5, SoftSettings(estimator=estimator, shown=shown)) == cost


@pytest.mark.parametrize(
    ("rate", "probes", "first", "totals", "masked"),
    [
        # Two of five positions: seven probes a context, and one batch after the other doubles.
        (0.01, 50, 1, [7, 14, 28, 49], 2),
        (0.5, 35, 14, [14, 28, 35], 2),
        (0.6, 40, 39, [30, 40], 3),
        (0.6, 10, 1, [10], 3),
        (0.9, 29, 1, [13, 26], 4),
    ],
)
def test_batches_of_contexts_double_within_the_budget(
    rate: float, probes: int, first: int, totals: list[int], masked: int
) -> None:
    joint = np.random.default_rng(2).dirichlet(np.ones(3**5)).reshape((3,) * 5)
    counting = CountingOracle(cp.TableLaw(joint).oracle())
    found = screen(counting, probes=probes, first=first, mask_rate=rate, estimator="contexts")
    assert [batch.probes for batch in found.batches] == totals
    contexts = [
        states for states in counting.seen[1:] if (states == cp.MASK).sum(axis=1)[0] == masked
    ]
    assert sum(map(len, contexts)) == totals[-1] // (3 * masked + 1)
    # Each batch has contexts of its own.
    assert len(np.unique(np.concatenate(contexts), axis=0)) > len(totals) - 1
