"""The trade-off picture's numbers."""

import re

import pytest

from counterprobe.cli import tradeoff
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


def test_the_picture_shows_one_size_and_its_legend_covers_nothing(tmp_path) -> None:
    public = calibrate(1000, 10**6, epsilon=0.1, degree_cutoff=9)
    picture = tmp_path / "tradeoff.svg"
    plot_tradeoff(str(picture), public, 1.5, lower_bound_of(public, 1.5))
    text = picture.read_text()
    sizes = set(re.findall(r"N = ([\d,]*\d)", text))
    assert sizes == {"1,000"}
    for rule in ("sequential: no probes", "one-batch: no probes", "packed, tuned: measured"):
        assert rule in text


def test_runs_are_of_the_size_that_is_drawn(monkeypatch) -> None:
    (_, zero, rounds), one, packed = tradeoff._runs(200)
    assert (zero, rounds, one[1:]) == (0, 200, (0, 1))
    assert packed[1] > 200 > packed[2]
    monkeypatch.setattr(tradeoff, "MEASURED_LENGTH", 100)
    assert len(tradeoff._runs(200)) == 2  # too large to run for a picture
