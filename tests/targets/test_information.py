"""TC, DTC and the information curve, against enumeration."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import dependence, information_curve
from counterprobe.evaluation.output_law import class_table
from counterprobe.targets import information as information_module
from counterprobe.targets.curves import subset_entropies


def tables() -> list[cp.TableLaw]:
    draw = np.random.default_rng(1)
    return [
        cp.TableLaw(draw.dirichlet(np.full(q**n, 0.4)).reshape((q,) * n))
        for q, n in ((2, 1), (2, 3), (3, 3), (2, 6))
    ]


@pytest.mark.parametrize("law", tables(), ids=lambda law: f"{law.vocab_size}^{law.length}")
def test_the_curve_sums_to_both_totals(law):
    curve = information_curve(law)
    known = dependence(law)
    assert known.total == pytest.approx(law.total_correlation(), abs=1e-12)
    assert (curve[0] - curve).sum() == pytest.approx(known.total, abs=1e-12)
    assert (curve - curve[-1]).sum() == pytest.approx(known.dual, abs=1e-12)
    assert law.length * (curve[0] - curve[-1]) == pytest.approx(known.sum, abs=1e-12)
    assert (np.diff(curve) <= 0).all()
    assert known.smaller == min(known.total, known.dual)


def test_copied_and_parity_bits():
    copied = dependence(cp.TableLaw([[0.5, 0.0], [0.0, 0.5]]))
    assert (copied.total, copied.dual) == pytest.approx((np.log(2), np.log(2)))
    parity = dependence(cp.TableLaw(1 - np.indices((2, 2, 2)).sum(axis=0) % 2))
    assert (parity.total, parity.dual) == pytest.approx((np.log(2), 2 * np.log(2)))


def test_subset_entropies_are_indexed_by_bits():
    law = tables()[1]
    entropy = subset_entropies(law)
    marginal = law.table.sum(axis=1).ravel()
    assert entropy[0b101] == pytest.approx(-(marginal * np.log(marginal)).sum())
    assert entropy[0] == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_forest_has_the_totals_of_its_table(seed, forest_law):
    draw = np.random.default_rng(seed)
    edges = [[i, int(draw.integers(i))] for i in range(1, 6) if draw.random() < 0.8]
    law = cp.ForestLaw(
        draw.uniform(0.3, 1.0, size=(6, 3)), edges, draw.uniform(0.1, 1.0, size=(len(edges), 3, 3))
    )
    for one in (law, forest_law):
        known, plain = dependence(one), dependence(class_table(one))
        assert not known.is_bound
        assert known.total == pytest.approx(plain.total, abs=1e-12)
        assert known.dual == pytest.approx(plain.dual, abs=1e-12)
        assert known.dual <= known.total + 1e-12  # on forests


def test_a_hub_too_large_to_enumerate_is_bounded(forest_law, monkeypatch):
    exact = dependence(forest_law)
    monkeypatch.setattr(information_module, "MAX_NEIGHBOURHOOD", 3)
    bound = dependence(forest_law)
    assert bound.is_bound
    assert bound.total == exact.total
    assert exact.dual <= bound.dual <= exact.total + 1e-12


def test_the_curve_of_a_matching_is_exact():
    law = cp.ForestLaw(np.ones((6, 2)), [[0, 3], [1, 4], [2, 5]], [[3, 1], [1, 3]])
    assert information_curve(law) == pytest.approx(information_curve(class_table(law)), abs=1e-12)


def test_the_curve_of_a_forest_is_close_to_the_enumerated_one():
    draw = np.random.default_rng(7)
    law = cp.ForestLaw(
        draw.uniform(0.5, 1.5, size=(8, 2)), [[i, i + 1] for i in range(7)], [[3, 1], [1, 2]]
    )
    modelled, exact = information_curve(law), information_curve(class_table(law))
    assert modelled[[0, -1]] == pytest.approx(exact[[0, -1]], abs=1e-12)
    assert np.abs(modelled - exact).max() < 0.03 * (exact[0] - exact[-1])


def test_a_product_law_has_a_flat_curve():
    law = cp.ForestLaw(np.random.default_rng(1).uniform(0.5, 1, (5, 3)), [], np.ones((3, 3)))
    assert len(set(information_curve(law).tolist())) == 1
    assert dependence(law) == cp.evaluation.Dependence(0.0, 0.0)
    assert len(information_curve(cp.ForestLaw(np.ones((1, 2)), [], np.ones((2, 2))))) == 1


def test_what_has_no_totals_is_refused(uniform_oracle):
    for function in (dependence, information_curve):
        with pytest.raises(ValueError, match="law must be a TableLaw or a ForestLaw, got"):
            function(uniform_oracle())
    with pytest.raises(ValueError, match="at most 16 positions, got 17"):
        dependence(cp.TableLaw(np.ones((2,) * 17)))
