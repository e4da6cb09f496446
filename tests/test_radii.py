"""What an oracle declares about its rows, and what follows from it."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.radii import RowRadii, row_radii


def declaring(**declared) -> cp.CallableOracle:
    return cp.CallableOracle(lambda states: np.full((*states.shape, 2), 0.5), 3, 2, **declared)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"row_error": 0.1}, RowRadii(0.1, 0.1, None)),
        ({"row_error": 0.1, "row_hellinger_radius": 0.01}, RowRadii(0.1, 0.01, None)),
        ({"row_error": 0.1, "row_kl_radius": 0.004}, RowRadii(0.1, 0.002, 0.004)),
        (
            {"row_error": 0.001, "row_hellinger_radius": 0.01, "row_kl_radius": 0.004},
            RowRadii(0.001, 0.001, 0.004),
        ),
        ({"row_kl_radius": 0.0}, RowRadii(1e-12, 0.0, 0.0)),
    ],
)
def test_a_hellinger_radius_follows_from_the_others_and_a_kl_from_nothing(declared, expected):
    assert row_radii(declaring(**declared)) == expected


def test_the_inequalities_hold_on_random_rows():
    rng = np.random.default_rng(4)
    p, q = (cp.rows.DenseRows(rng.dirichlet(np.full(5, 0.3), size=500)) for _ in range(2))
    squared = p.squared_hellinger(q)
    assert (squared <= p.total_variation(q) + 1e-12).all()
    assert (squared <= p.kl(q) / 2 + 1e-12).all()


def test_no_total_variation_bounds_a_kl():
    p, q = (
        cp.rows.DenseRows(np.array([[1e-3, 0.999]])),
        cp.rows.DenseRows(np.array([[1e-300, 1.0]])),
    )
    assert p.total_variation(q)[0] < 2e-3
    assert p.kl(q)[0] > 0.6


@pytest.mark.parametrize("law", [cp.families.path(6, 1), testing.small_table()])
def test_oracles_of_laws_are_exact(law):
    radii = row_radii(law.oracle())
    assert (radii.squared_hellinger, radii.kl) == (0.0, 0.0)
    assert RowRadii.exact() == RowRadii(0.0, 0.0, 0.0)


@pytest.mark.parametrize("name", ["row_hellinger_radius", "row_kl_radius"])
def test_a_negative_radius_is_refused(name):
    for value in (-1e-9, float("nan")):
        with pytest.raises(ValueError, match=f"{name} must not be negative, got"):
            declaring(**{name: value})

    with pytest.raises(ValueError, match=f"{name} of an oracle must not be negative, got -1.0"):
        row_radii(declaring().declaring(**{name: -1.0}))


@pytest.mark.parametrize("wrapper", [testing.CountingOracle, testing.PiecewiseOracle])
def test_an_oracle_around_another_declares_the_same(wrapper):
    for inner in (
        cp.families.path(6, 1).oracle(),
        cp.FrozenNoise(cp.families.path(6, 1).oracle(), radius=1e-3),
        declaring(row_error=0.1, row_kl_radius=0.2),
    ):
        assert row_radii(wrapper(inner)) == row_radii(inner)
