"""The three totals of an information curve, against their definitions."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

import counterprobe as cp
from counterprobe.targets.curves import subset_entropies
from counterprobe.targets.information import (
    dependence,
    dual_total_of,
    effective_total_of,
    effective_weights,
    information_curve,
    total_of,
)


def small_laws() -> list[cp.TableLaw]:
    draw = np.random.default_rng(5)
    sizes = [(2, 1), (2, 2), (3, 2), (2, 3), (3, 3), (2, 4), (2, 5)] * 3
    return [cp.TableLaw(draw.dirichlet(np.full(q**n, 0.5)).reshape((q,) * n)) for q, n in sizes]


def effective_total_by_definition(law: cp.TableLaw) -> float:
    """Integrate ``min(1, t)`` times the pair informations of a masked copy, as it is defined."""
    entropy, n = subset_entropies(law), law.length
    # by_size[k]: the sum of I(X_i; X_j | X_S) over ordered pairs and sets of k others.
    by_size = np.zeros(max(n - 1, 1))
    for i, j in itertools.permutations(range(n), 2):
        others = [k for k in range(n) if k not in (i, j)]
        for size in range(n - 1):
            for shown in itertools.combinations(others, size):
                s = sum(1 << k for k in shown)
                by_size[size] += (
                    entropy[s | 1 << i] + entropy[s | 1 << j]
                    - entropy[s | 1 << i | 1 << j] - entropy[s]
                )  # fmt: skip

    def masked_pair_information(t: float) -> float:
        keep = math.exp(-t)
        return sum(
            keep ** (2 + size) * (1 - keep) ** (n - 2 - size) * by_size[size]
            for size in range(n - 1)
        )

    early = integrate.quad(lambda t: t * masked_pair_information(t), 0, 1, epsabs=1e-13)[0]
    return early + integrate.quad(masked_pair_information, 1, np.inf, epsabs=1e-13)[0]


def test_the_effective_total_is_the_integral_that_defines_it():
    for law in small_laws():
        curve = information_curve(law)
        assert effective_total_of(curve) == pytest.approx(
            effective_total_by_definition(law), abs=1e-10
        )


def test_the_effective_total_is_at_most_both_totals():
    for law in small_laws():
        known = dependence(law)
        assert -1e-12 <= effective_total_of(information_curve(law)) <= known.smaller + 1e-12


def test_totals_of_a_curve_are_those_of_the_law():
    for law in small_laws():
        curve, known = information_curve(law), dependence(law)
        assert total_of(curve) == pytest.approx(known.total, abs=1e-12)
        assert dual_total_of(curve) == pytest.approx(known.dual, abs=1e-12)
        assert law.length * (curve[0] - curve[-1]) == pytest.approx(known.sum, abs=1e-12)


@pytest.mark.parametrize("length", [2, 3, 7, 40])
def test_weights_are_the_means_that_define_them(length):
    def mean(j: int) -> float:
        density = stats.beta(j + 2, length - 1 - j).pdf
        late = integrate.quad(lambda u: -math.log(u) * density(u), math.exp(-1), 1, epsabs=1e-13)
        return float(stats.beta(j + 2, length - 1 - j).cdf(math.exp(-1))) + late[0]

    assert effective_weights(length) == pytest.approx(
        [mean(j) for j in range(length - 1)], abs=1e-10
    )


def test_a_copied_token_and_a_single_position():
    assert effective_total_of([1.0, 0.0]) == pytest.approx((1 - math.exp(-2)) / 2, abs=1e-15)
    assert effective_total_of([0.7]) == total_of([0.7]) == dual_total_of([0.7]) == 0
    assert len(effective_weights(1)) == 0


def test_what_is_no_curve_is_refused():
    for curve in ([], [[1.0, 0.5]]):
        with pytest.raises(ValueError, match="curve must be a flat list of entropies, got shape"):
            total_of(curve)
