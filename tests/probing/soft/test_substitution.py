"""Single substitutions give the information that enumeration gives, at the price they say."""

from collections.abc import Callable

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.probing.soft import SoftFindings, SoftSettings, soft_screen
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
