"""The trade-off picture's numbers."""

import pytest

from counterprobe.cli.tradeoff import cap_curves, lower_bound_of, plot_tradeoff
from counterprobe.theory import bounds, calibrate


def test_curves_keep_the_given_radius_and_budget() -> None:
    given = {"hellinger_radius": 0.02, "failure_budget": 0.3}
    public = calibrate(1000, 10**6, epsilon=0.1, degree_cutoff=9, **given)
    curves = cap_curves(public, 1.5)
    for d, points in zip((9, 11), zip(*curves.values(), strict=True), strict=False):
        here = calibrate(1000, 10**6, epsilon=0.1, degree_cutoff=d, **given)
        for tight, point in zip((False, True), points, strict=True):
            caps = bounds.guarantee_caps(here, 1.5, tight=tight)[1]
            assert point == (caps.probes, caps.commits)


def test_the_lower_bound_is_that_of_the_calibration_s_class_at_any_target() -> None:
    public = calibrate(10**24, 10**12, epsilon=0.1, degree_cutoff=9, hellinger_radius=0.2)
    for target in (0.01, 0.125):
        lower = lower_bound_of(public, 1.5, target)
        assert lower.applies
        assert lower.rounds == pytest.approx(10**24 * public.edge_signal**2 / (786432 * target))
    assert lower_bound_of(public, 1.5).target_error == 0.1


def test_the_picture_names_the_target_error(tmp_path) -> None:
    public = calibrate(1000, 10**6, epsilon=0.1, degree_cutoff=9)
    picture = tmp_path / "tradeoff.svg"
    plot_tradeoff(str(picture), public, 1.5, lower_bound_of(public, 1.5, 0.03))
    assert "lower bound at TV error 0.03, rounds" in picture.read_text()
