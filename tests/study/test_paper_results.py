"""The committed result of preset ``paper``: complete, what the page says, and what must hold."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.probing.banks import read_banks
from counterprobe.probing.packed.fillers import FillerContext, rare_filler
from counterprobe.probing.packed.screen import Chunk, draw_colorings, probe_states
from counterprobe.streams import STREAMS_VERSION
from counterprobe.study.config import config_from_dict, load_preset
from counterprobe.study.export import read_rows
from counterprobe.study.growth import growth_of
from counterprobe.study.table import lines_of, to_markdown
from counterprobe.study.work import do_work, run_key

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def rows():
    return read_rows(DOCS / "study" / "paper.parquet")


@pytest.fixture(scope="module")
def evaluations(rows):
    return [row for row in rows if row["phase"] == "evaluation"]


def test_every_cell_is_there_on_the_papers_seeds(rows, evaluations):
    config = load_preset("paper")
    cells = {(family, length) for family in config.families for length in config.sizes}
    for phase, streams in (("evaluation", (292, 293)), ("random search", (294, 295))):
        found = [row for row in rows if row["phase"] == phase]
        assert len(found) == 120
        assert {(r["family"], r["length"], r["draw"], r["stream"]) for r in found} == {
            (*cell, draw, stream) for cell in cells for draw in (196, 197, 198)
            for stream in streams
        }  # fmt: skip
        assert {row["kl_draws"] for row in found} == {128}
    tuning = [row for row in rows if row["phase"] in ("screening", "development")]
    assert {row["draw"] for row in tuning} == {171, 172, 173}
    assert {row["draw"] for row in tuning if row["phase"] == "screening"} == {171}


def test_all_proposals_are_exact_and_pass(evaluations):
    for row in evaluations:
        assert (row["batch_kl"], row["batch_kl_se"]) == (0.0, 0.0)
        assert row["stop"] == "completed"
        assert row["passes"]
        assert row["total"] == row["preprocessing"] + row["probes"] + row["commits"]


def test_totals_lie_well_below_n_and_grow_sublinearly(rows):
    lines = [line for line in lines_of(rows) if line.method == "packed"]
    assert len(lines) == 20
    assert all(line.most < 0.6 * line.length for line in lines)
    for (_, method), fit in growth_of(lines_of(rows)).items():
        if method == "packed":
            assert fit.high < 0.2
            assert fit.num_sizes == 5


def test_every_safe_budget_passes_and_has_a_narrow_bracket(rows):
    for row in rows:
        if row["phase"] == "random search":
            assert row["passes"]
            assert row["total"] == row["commits"] == row["budget"] <= row["length"]
            seen = json.loads(row["observed"])
            unsafe = [o["budget"] for o in seen if o["budget"] < row["budget"]]
            assert row["budget"] - max(unsafe, default=0) <= 0.05 * row["length"]


def test_the_page_shows_the_committed_table():
    text = (DOCS / "study.md").read_text()
    shown = re.search(r"<!-- table -->\n\n(.*?)\n<!-- end of table -->", text, re.DOTALL)[1]
    table = to_markdown(lines_of(read_rows(DOCS / "study" / "paper.parquet")))
    assert shown.strip() == table.strip()


def test_the_pages_example_is_a_study():
    text = (DOCS / "study.md").read_text()
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]
    assert config_from_dict(tomllib.loads(example), "docs/study.md").name == "mine"


def test_a_committed_run_can_be_repeated(evaluations):
    row = min(evaluations, key=lambda row: (row["rows_read"], row["draw"], row["stream"]))
    assert json.loads(row["versions"])["streams"] == str(STREAMS_VERSION)
    key = run_key(row["family"], row["length"], row["draw"], row["stream"], row["method"],
                  json.loads(row["settings"]), row["kl_draws"])  # fmt: skip
    result, _ = do_work(key)
    for name in ("total", "probes", "commits", "depth", "rows_read", "batch_kl", "tokens"):
        assert result[name] == row[name]


@pytest.mark.parametrize(
    ("family", "through"), [("path", 0.01), ("binary-tree", 0.001), ("growing-stars", 0)]
)
def test_the_cut_parts_neighbours_from_what_lies_behind_them(family, through):
    """Responses under four colorings of the frozen number of colors, on a development draw."""
    frozen = {"path": 4, "binary-tree": 5, "growing-stars": 3}[family]
    settings = next(
        entry
        for entry in load_preset("paper").candidate_settings(family, 8192)
        if entry["num_colors"] == frozen
    )
    law = cp.families.build(family, 8192, 171)
    run, rng = cp.Unmasking(law.oracle()), np.random.default_rng(1)
    banks = read_banks(run, settings["bank_threshold"], run.row_error)
    draft = rare_filler(FillerContext(run.state, banks, 0), rng)
    columns = banks.columns(draft)
    assert len(columns) == 2
    few = np.bincount(law.edges.ravel(), minlength=8192) <= 3  # a hub's own row says nothing
    moved: dict[int, list] = {0: [], 1: [], 2: [], 3: []}  # by neighbours of the source color
    for colors in draw_colorings(4, frozen, 8192, rng):
        neighbours = np.zeros((frozen, 8192), dtype=np.int64)
        for one, other in (law.edges.T, law.edges.T[::-1]):
            np.add.at(neighbours, (colors[one], other), 1)
        for color in range(frozen):
            readouts = np.flatnonzero((colors == color) & few)
            sources = np.array([c for c in range(frozen) if c != color])
            chunk = Chunk(0, np.flatnonzero(colors == color), sources)
            states = probe_states(run.state, draft, columns, colors, chunk)
            rows = law.oracle().rows(states, cp.Readouts.same(len(states), readouts))
            first, second = rows.masses.reshape(2, len(sources), len(readouts), -1)
            passes_cut = np.abs(first - second).sum(axis=-1) / 2 > settings["tv_cut"]
            count = neighbours[np.ix_(sources, readouts)]
            for k, found in moved.items():
                found.append(passes_cut[count == k])
    behind, lone, *several = (np.concatenate(found) for found in moved.values())
    assert len(lone) > 10_000
    assert lone.all()
    assert behind.mean() <= through
    # Several neighbours of one color cancel now and then, where one of them has a bank.
    together = np.concatenate([lone, *several])
    assert 1 - together.mean() <= 5e-4


@pytest.mark.slow
def test_every_largest_cell_can_be_repeated(evaluations):
    for row in evaluations:
        if row["length"] == 16384 and (row["draw"], row["stream"]) == (196, 292):
            key = run_key(row["family"], row["length"], row["draw"], row["stream"],
                          row["method"], json.loads(row["settings"]), row["kl_draws"])  # fmt: skip
            result, _ = do_work(key)
            assert (result["total"], result["tokens"]) == (row["total"], row["tokens"])
            assert result["batch_kl"] == 0.0
