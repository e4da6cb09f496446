"""Single substitutions give the information that enumeration gives, at the price they say."""

import numpy as np
import pytest
from substitution import estimate, find_by

import counterprobe as cp
from counterprobe.discovery.soft import SoftFindings, SoftSettings


def screen(oracle: cp.Oracle, estimator: str, **settings: object) -> SoftFindings:
    run = cp.run.Run(oracle)
    found = estimate(run, cp.Streams(1, 0).decisions, SoftSettings(**settings), estimator)
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
    found = screen(cp.TableLaw(joint).oracle(), estimator="substitution", probes=12)
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


@pytest.mark.parametrize("estimator", ["substitution", "contexts"])
def test_a_product_law_has_nothing_to_find(estimator: str) -> None:
    law = cp.ForestLaw(np.random.default_rng(0).uniform(0.2, 1, (8, 5)), [], np.ones((5, 5)))
    found = screen(law.oracle(), probes=60, estimator=estimator)
    assert not found.strength.any() and len(found.edges) == 0 and found.noise_floor == 0


@pytest.mark.filterwarnings("ignore:.*probability zero")
def test_positions_with_one_possible_token_cost_nothing() -> None:
    joint = np.random.default_rng(4).dirichlet(np.ones(9)).reshape(3, 3)
    law = cp.TableLaw(np.stack([joint, 0 * joint, 0 * joint], axis=1))
    found = screen(law.oracle(), probes=9, estimator="substitution")
    assert found.num_probes == 6
    assert found.strength[0, 2] == pytest.approx(mutual_information(joint[:, None], 0, 2))
    assert not found.strength[1].any()


@pytest.mark.parametrize(("estimator", "needed"), [("substitution", 30), ("contexts", 13)])
def test_too_few_probes_are_refused(estimator: str, needed: int) -> None:
    law = cp.families.path(length=10, target_seed=1)
    with pytest.raises(ValueError, match=f"probes must be at least {needed} .* got 12"):
        screen(law.oracle(), estimator, probes=12)


def test_a_structure_of_another_estimator_plans_and_says_what_was_not_measured() -> None:
    law = cp.families.path(length=8, target_seed=1)
    found = find_by(law.oracle(), "substitution", 64)
    assert np.isnan(found.strengths.moved).all() and found.untrusted.tolist() == list(range(8))
    assert cp.planning.plan_for(found).sizes == [1] * 8
