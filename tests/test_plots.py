"""Pictures: what they show, by the text and shapes in them."""

import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import counterprobe as cp
from command_line import invoke, refused, said
from counterprobe import plots
from counterprobe.theory import bounds, calibrate

PATH = ("discover", "--family", "path", "--n", 16)


@pytest.fixture
def drawn(monkeypatch) -> list:
    """Keep figures in place of writing them."""
    kept: list = []
    monkeypatch.setattr(plots, "save_picture", lambda figure, file, *, dpi: kept.append(figure))
    return kept


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (PATH, "15 edges, certified"),
        ((*PATH, "--mode", "soft", "--probes", 64), "false discovery rate"),
        (
            ("discover", "--model", "sapiens-heavy", "--device", "cpu", "--sequence", "EVQ"),
            "0 pairs, false discovery rate 0.00",
        ),
    ],
)
def test_a_structure_is_drawn(tmp_path, monkeypatch, arguments, title):
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # titles as text
    file = tmp_path / "structure.svg"
    assert said(*arguments, "--plot", file).endswith(f"Wrote {file}.")
    words = " ".join("".join(ElementTree.parse(file).getroot().itertext()).split())
    assert title in words and "evaluations" in words


def test_arcs_join_the_positions_of_edges_and_long_sequences_are_named_in_steps(drawn):
    law = cp.families.build("path", 100, 196)
    found = cp.discover(law.oracle(), cp.Streams.from_seed(1))
    plots.plot_structure("a.svg", found, "path", [f"X{k}" for k in range(100)])
    (axes,) = drawn[0].axes
    ends = sorted((arc.center[0] - arc.width / 2, arc.width) for arc in axes.patches)
    assert ends == sorted((float(i), float(j - i)) for i, j in np.sort(law.edges, axis=1))
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == [f"X{k}" for k in range(0, 100, 3)]


def test_a_trade_off_shows_caps_the_lower_bound_and_runs_of_one_size(tmp_path):
    picture = tmp_path / "tradeoff.svg"
    words = ("plan", "--n", 1000, "--vocab", 1000000, "--target-error", 0.03, "--plot", picture)
    assert f"Wrote {picture}." in invoke(*words).stdout.replace("\n", "")
    text = picture.read_text()
    assert set(re.findall(r"N = ([\d,]*\d)", text)) == {"1,000"}
    for words in (
        "lower bound at TV error 0.03, rounds", "sequential: no probes", "one-batch: no probes",
        "packed, tuned: measured",
    ):  # fmt: skip
        assert words in text


def test_caps_keep_the_given_radius_and_budget():
    given = {"epsilon": 0.1, "hellinger_radius": 0.02, "failure_budget": 0.3}
    public = calibrate(1000, 10**6, degree_cutoff=9, **given)
    curves = plots._cap_curves(public, 1.5)
    for d, points in zip((9, 11), zip(*curves.values(), strict=True), strict=False):
        here = calibrate(1000, 10**6, degree_cutoff=d, **given)
        for tight, point in zip((False, True), points, strict=True):
            caps = bounds.guarantee_caps(here, 1.5, tight=tight)[1]
            assert point == (caps.probes, caps.commits)


def test_what_cannot_be_drawn_is_refused_before_anything_runs(tmp_path, monkeypatch):
    for command in ("compare", "discover", "plan"):
        assert "must end in .png, .svg, .pdf; got q.bmp" in refused(
            command, "--n", 20, "--plot", "q.bmp"
        )
    for name in ["matplotlib", *sys.modules]:
        if name.split(".")[0] == "matplotlib":
            monkeypatch.setitem(sys.modules, name, None)
    line = refused("compare", "--n", 20, "--plot", tmp_path / "q.png")
    assert "a figure needs matplotlib: pip install 'counterprobe[study]'" in line
