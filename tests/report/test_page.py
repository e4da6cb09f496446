"""Pages as files, one look with the page of traces, and how things show themselves."""

import re
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import report
from counterprobe.report import Note, Report, write_report
from counterprobe.rows import DenseRows

ROOT = Path(__file__).parents[2]


def test_a_page_is_written_whole_and_replaces_what_is_there(tmp_path):
    file = tmp_path / "run.html"
    file.write_text("before")
    write_report(Report("A run", sections=[Note("a < b")]), file)
    assert "a &lt; b" in file.read_text("utf-8")
    assert [one.name for one in tmp_path.iterdir()] == ["run.html"]


@pytest.mark.parametrize("name", ["run.txt", "run", "run.html.gz"])
def test_a_page_has_the_ending_of_pages(tmp_path, name):
    with pytest.raises(ValueError, match=r"must end in \.html, got"):
        write_report(Report("A run"), tmp_path / name)


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_report(Report("A run"), tmp_path / "nowhere" / "run.html")


def test_reports_and_traces_have_one_palette():
    """Every color of a theme is that of the page of traces, which is built elsewhere."""
    mine = (Path(report.__file__).parent / "page.css").read_text()
    theirs = (ROOT / "page" / "src" / "style.css").read_text()
    for theme in (r":root \{", r':root\[data-theme="dark"\] \{'):
        blocks = [re.search(theme + r"(.*?)\}", text, re.S)[1] for text in (mine, theirs)]
        assert blocks[0].split() == blocks[1].split()


# ----- Things that show themselves --------------------------------------------------------------


@pytest.fixture(scope="module")
def law():
    return cp.families.path(length=24, target_seed=196)


def test_a_result_shows_what_it_cost_and_its_rounds(law, tmp_path):
    result = cp.sample(law.oracle(), "spread", seed=1, batches=3).results[0]
    html = result._repr_html_()
    assert f"<dt>evaluations</dt><dd>{result.ledger.evaluations}</dd>" in html
    assert "positions committed in each round" in html and "<svg" in html
    result.report(tmp_path / "result.html", "My run")
    page = (tmp_path / "result.html").read_text("utf-8")
    assert "<h1>My run</h1>" in page and "spread" in page


def test_many_sequences_show_a_row_each_and_no_more_than_fit(law):
    batch = cp.sample(law.oracle(), "sequential", count=12, seed=1)
    html = batch._repr_html_()
    assert html.count("<tr>") == 11 and "... and 2 more" in html


def test_a_certified_structure_shows_its_pairs(law):
    found = cp.discover(law.oracle(), cp.Streams.from_seed(1))
    html = found._repr_html_()
    assert found.lines()[0] in html and "<svg" in html
    assert "... and 13 more" in html
    i, j = found.edges[0].tolist()
    assert f"{i} - {j}" in html


def test_a_soft_structure_shows_strengths_in_the_order_of_its_edges():
    law = cp.families.path(length=10, target_seed=3)
    found = cp.discover(law.oracle(), cp.Streams.from_seed(1), mode="soft", probes=48)
    assert len(found.edges) > 2
    strength, error = found.strength, found.strength_se
    headings, cells = found.shown.cells()
    assert headings == ["pair", "nats", "SE"]
    assert cells == [
        [f"{i + 1} - {j + 1}", f"{strength[i, j]:.3f}", f"{error[i, j]:.3f}"]
        for i, j in found.edges.tolist()
    ]
    np.testing.assert_array_equal(found.shown.nats, strength[tuple(found.edges.T)])


def test_advice_shows_what_to_use_and_every_price_that_was_measured():
    law = cp.families.path(length=10, target_seed=3)
    found = cp.discover(law.oracle(), cp.Streams.from_seed(1), mode="soft", probes=48)
    advice = cp.evaluation.advise(law.oracle(), found, 100, max_evaluations=400, seed=1)
    html = advice._repr_html_()
    assert '<p class="decision">For 100 sequences at 0.1 nats each: use ' in html
    assert advice.table.prices
    for price in advice.table.prices:
        assert price.cell.replace("<", "&lt;") in html


def test_a_plan_shows_its_price_and_the_sizes_of_its_batches():
    plan = cp.planning.spread_plan(np.arange(12), 3, np.random.default_rng(1), 12)
    html = plan._repr_html_()
    assert "3 batches for 12 positions" in html and "<svg" in html


@pytest.mark.parametrize("count", [0, 1, 20])
def test_rows_show_their_likeliest_tokens(count):
    table = np.random.default_rng(1).dirichlet(np.ones(5), size=count)
    rows = DenseRows(table)
    html = rows._repr_html_()
    assert f"{count} rows over 5 tokens" in html
    assert html.count("<tr>") == 1 + min(count, 8)
    for row in table[:8]:
        assert f"{row.argmax()}: {row.max():.3g}" in html
    if count > 8:
        assert "... and 12 more" in html


def test_a_display_without_matplotlib_says_how_to_have_plots(law, monkeypatch):
    import importlib

    def absent(name: str, package: str | None = None) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return importlib.__import__(name, fromlist=["x"])

    result = cp.sample(law.oracle(), "one-batch", seed=1).results[0]
    monkeypatch.setattr("counterprobe.extras.importlib.import_module", absent)
    html = result._repr_html_()
    assert "The plot is left out: a figure needs matplotlib: pip install" in html
    assert "<svg" not in html
