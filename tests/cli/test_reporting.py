"""``--report``: a page of what a command showed, whichever way it ended."""

import re
from html import unescape
from pathlib import Path

import pytest

import counterprobe.cli.compare as compare_module
import counterprobe.cli.discover as discover_module
import counterprobe.cli.infill as infill_module
import counterprobe.cli.study as study_module
from command_line import invoke, record_of, refused

ROOT = Path(__file__).parents[2]
MODEL = ("--model", "sapiens-heavy", "--device", "cpu", "--sequence", "EVQLVXXSGG____")
COMPARE = (
    "compare",
    "--n",
    20,
    "--samplers",
    "one-batch,spread:batches=2,sequential",
    "--runs",
    1,
)
ADVISE = ("advise", *MODEL, "--batches", "2", "--samples", 4, "--max-evaluations", 100)


def texts(page: str) -> str:
    """Return what a reader sees of a page."""
    body = page[page.index("<body>") : page.index("<script>")]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def report_of(file: Path, *words: object, code: int = 0) -> str:
    """Run a command with a report, and return what its page says."""
    result = invoke(*words, "--report", file)
    assert result.exit_code == code, result.stderr
    page = file.read_text("utf-8")
    assert page.count("<script>") == 1
    return texts(page)


@pytest.fixture
def page(tmp_path) -> Path:
    return tmp_path / "report.html"


def test_a_comparison_says_what_is_cheapest_and_how_it_came_about(page):
    said = report_of(page, *COMPARE)
    assert "sequential took the fewest evaluations, 20. Of those that took fewer" in said
    assert "path, N = 20, V = 2,048, mean of 1 run" in said
    for part in ("one-batch", "spread", "To make this again", "Options that were set", "--n 20"):
        assert part in said, part
    for part in (
        "Options at their defaults option value --family",
        "Versions counterprobe",
        "numpy",
    ):
        assert part in said, part
    assert "Stopped early" not in said
    assert "<svg" in page.read_text("utf-8")


def test_a_report_changes_nothing_else(page):
    def told(*more: object) -> dict[str, object]:
        found = record_of(*COMPARE, *more)
        for one in (*found["samplers"], *found["records"]):
            one.pop("seconds")
        return found

    assert told("--report", page) == told()
    assert "one-batch" in texts(page.read_text("utf-8")), "quiet is the terminal, not the report"


def test_a_comparison_that_is_stopped_says_so_and_shows_what_it_has(page, monkeypatch):
    usual = compare_module.compare_sampler

    def interrupted(laws, sampler, *rest, **options):
        if sampler.name == "spread":
            raise KeyboardInterrupt
        return usual(laws, sampler, *rest, **options)

    monkeypatch.setattr(compare_module, "compare_sampler", interrupted)
    said = report_of(page, *COMPARE, code=130)
    assert "Stopped early interrupted" in said
    assert "one-batch" in said


def test_a_certified_structure_is_shown_with_every_pair(page):
    said = report_of(page, "discover", "--family", "path", "--n", 40)
    assert "39 certified pairs among 40 masked positions" in said
    assert "every position resolved" in said
    assert page.read_text("utf-8").count("<tr><td") > 39


def test_a_discovery_that_finds_nothing_says_why(page, monkeypatch):
    from counterprobe.errors import Infeasible

    def failed(*_: object, **__: object) -> None:
        raise Infeasible("no threshold is feasible")

    monkeypatch.setattr(discover_module, "find_structure", failed)
    said = report_of(page, "discover", "--family", "path", "--n", 6, code=3)
    assert "Stopped early no threshold is feasible" in said


def test_names_from_files_stay_texts(page, tmp_path):
    edges = tmp_path / "<img src=x onerror=alert(1)>.txt"
    edges.write_text("0 1\n1 2\n")
    said = report_of(page, "compare", "--edges", edges, "--samplers", "sequential", "--runs", 1)
    assert "<img" not in page.read_text("utf-8")
    assert "<img src=x onerror=alert(1)>.txt" in said


def test_a_study_is_shown_by_its_table_its_growth_and_its_figure(page):
    data = ROOT / "docs" / "study" / "paper.parquet"
    said = report_of(page, "study", "table", "--data", data)
    assert "Growth over the tested sizes" in said and "Worker time" in said
    assert "matching 8,192 packed" in said
    assert "<svg" in page.read_text("utf-8")


def test_a_study_that_is_stopped_says_so(page, tmp_path, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(study_module, "run_study", interrupted)
    store = tmp_path / "study.db"
    said = report_of(page, "study", "run", "--preset", "smoke", "--store", store, code=130)
    assert "Stopped early interrupted; 0 finished runs are kept" in said
    assert f"study resume --store {store}" in said


def test_advice_says_what_to_use_before_what_it_measured(page, soft_file):
    structure = soft_file("EVQLVXXSGG____", 32)
    said = report_of(page, *ADVISE, "--structure", structure)
    decided = said.index("For 1,000 sequences at 0.1 nats each: use ")
    assert decided < said.index("batch KL of a sequence, nats, measured")
    assert "Ways that were shown to keep to the price" in said and "sequential" in said


def test_samplers_on_a_model_are_drawn_by_what_they_took_and_broke(page):
    words = ("compare-models", *MODEL, "--samplers", "one-batch,spread:batches=2", "--count", 2)
    said = report_of(page, *words)
    assert "batch KL against evaluations of a sequence" in said
    drawing = page.read_text("utf-8").partition("<svg")[2]
    assert "one-batch" in drawing and "spread batches=2" in drawing
    report_of(page, *words, "--no-evaluate")
    assert "<svg" not in page.read_text("utf-8")


def test_designs_are_listed_all_of_them_the_best_first(page):
    said = report_of(page, "infill", *MODEL, "--sampler", "spread", "--count", 7)
    names = re.findall(r"design_\d ([\d.]+)", said)
    assert len(names) == 7 and names == sorted(names, key=float)
    assert "positions filled, round by round" in said


def test_designs_that_were_finished_before_a_stop_are_there(page, monkeypatch):
    usual = infill_module.fill_in

    def interrupted(*arguments, **options):
        usual(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(infill_module, "fill_in", interrupted)
    words = ("infill", *MODEL, "--sampler", "spread", "--count", 2)
    said = report_of(page, *words, code=130)
    assert "Stopped early interrupted" in said
    assert len(re.findall(r"design_\d", said)) == 2


def test_completions_are_a_report_too(page):
    said = report_of(page, "infill", *MODEL[:4], "--sequence", "EVQLVESXXG", "--top-k", 3)
    assert "likeliest together" in said


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("report.txt", "a report's name must end in .html, got"),
        ("-", "--report must name a file that ends in .html, got -"),
        ("nowhere/report.html", "does not exist"),
        ("folder.html", "it is a folder"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch, name, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.html").mkdir()
    assert why in refused("compare", "--n", 10**9, "--report", name)


def test_bad_input_makes_no_report_and_leaves_an_old_one_alone(page):
    page.write_text("before")
    assert "unknown sampler 'none'" in refused(
        "compare", "--n", 8, "--samplers", "none", "--report", page
    )
    assert page.read_text() == "before"


def test_without_matplotlib_the_report_says_what_is_missing(page, monkeypatch):
    from counterprobe.extras import MissingExtra

    def absent(*_: object, **__: object) -> object:
        raise MissingExtra("a figure needs matplotlib: pip install it")

    monkeypatch.setattr("counterprobe.report.pictures.load_extra", absent)
    said = report_of(page, *COMPARE)
    assert "The plot is left out: a figure needs matplotlib" in said
    assert "one-batch" in said
