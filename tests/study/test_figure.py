"""The figure: panels, points, whiskers, the line Q = N, ticks; files of three kinds."""

import numpy as np
import pytest

from counterprobe.study.export import rows_of
from counterprobe.study.figure import draw_figure, save_figure
from counterprobe.study.table import lines_of


@pytest.fixture
def rows(finished):
    return rows_of(finished)


def test_panels_show_means_and_ranges(rows):
    figure = draw_figure(rows)
    assert [panel.get_title() for panel in figure.axes] == ["matching", "path"]
    for panel in figure.axes:
        lines = [line for line in lines_of(rows) if line.family == panel.get_title()]
        dotted = next(line for line in panel.lines if line.get_label() == "Q = N")
        assert dotted.get_linestyle() == ":"
        assert np.array_equal(dotted.get_xdata(), dotted.get_ydata())
        assert [box.get_label() for box in panel.containers] == ["packed", "random-balanced"]
        for box in panel.containers:
            mine = [line for line in lines if line.method == box.get_label()]
            points, _, (bars,) = box.lines
            assert points.get_xdata().tolist() == [line.length for line in mine] == [48, 64]
            assert points.get_ydata().tolist() == [line.mean for line in mine]
            ranges = [segment[:, 1].tolist() for segment in bars.get_segments()]
            for (low, high), line in zip(ranges, mine, strict=True):
                assert (low, high) == pytest.approx((line.least, line.most))
        assert panel.get_ylim()[0] == 0


def test_ticks_are_in_units_of_1024(rows):
    scaled = [
        {**row, "length": row["length"] * 256, "total": row["total"] * 4} for row in rows
    ]  # 12k and 16k
    panel = draw_figure(scaled).axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["12k", "16k"]
    assert panel.get_xticks().tolist() == [12 * 1024, 16 * 1024]
    labels = [label.get_text() for label in panel.get_yticklabels()]
    assert labels[1:] == [f"{tick / 1024:g}k" for tick in panel.get_yticks()[1:]]
    assert (panel.get_yticks() % 1024 == 0).all()


@pytest.mark.parametrize(
    ("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_files_have_their_kind_and_are_the_same_every_time(rows, tmp_path, ending, start):
    files = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for file in files:
        save_figure(rows, file)
    assert files[0].read_bytes().startswith(start)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_text_of_an_svg_is_text(rows, tmp_path):
    save_figure(rows, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    for word in ("matching", "path", "random-balanced", "total oracle submissions", "Q = N"):
        assert f">{word}<" in text


def test_what_is_refused(rows, tmp_path):
    with pytest.raises(ValueError, match=r"must end in .png, .svg, .pdf"):
        save_figure(rows, tmp_path / "a.gif")
    tuning = [row for row in rows if row["phase"] == "screening"]
    with pytest.raises(ValueError, match="no evaluated run to draw yet"):
        draw_figure(tuning)
