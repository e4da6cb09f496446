"""The committed results: complete, what the page says, and what must hold of each study."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from pages.sources import read_sources
from pages.studies import lines_at_defaults, selections_of

import counterprobe as cp
from counterprobe.discovery.banks import read_banks
from counterprobe.discovery.packed.fillers import FillerContext, rare_filler
from counterprobe.discovery.packed.screen import Chunk, draw_colorings, probe_states
from counterprobe.streams import STREAMS_VERSION
from counterprobe.study.config import config_from_dict, load_preset
from counterprobe.study.export import read_rows
from counterprobe.study.table import growth_of, lines_of
from counterprobe.study.work import do_work, run_key

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMMITTED = sorted(file.stem for file in (DOCS / "study").glob("*.parquet"))


@pytest.fixture(scope="module")
def studies():
    return {name: read_rows(DOCS / "study" / f"{name}.parquet") for name in COMMITTED}


@pytest.fixture(scope="module")
def by_hand(studies):
    return studies["tuned-by-hand"]


def evaluations(rows):
    return [row for row in rows if row["phase"] == "evaluation" and row["stop"] != "failed"]


@pytest.mark.parametrize("name", COMMITTED)
def test_every_cell_is_there_on_the_papers_seeds(studies, name):
    rows, config = studies[name], load_preset(name)
    assert {row["study"] for row in rows} == {name}
    cells = {(family, length) for family in config.families for length in config.sizes}
    failed = {(row["family"], row["length"]) for row in rows if row["stop"] == "failed"}
    phases = [("evaluation", (292, 293), 1)]
    if config.random is not None:
        phases.append(("random search", (294, 295), len(config.random.variants)))
    assert {row["phase"] for row in rows} == {
        "screening", "development", *(phase for phase, *_ in phases)
    }  # fmt: skip
    for phase, streams, copies in phases:
        found = [row for row in rows if row["phase"] == phase and row["stop"] != "failed"]
        there = cells - failed if phase == "evaluation" else cells
        assert len(found) == 6 * len(there) * copies
        assert {(r["family"], r["length"], r["draw"], r["stream"]) for r in found} == {
            (*cell, draw, stream) for cell in there for draw in (196, 197, 198)
            for stream in streams
        }  # fmt: skip
        assert {row["kl_draws"] for row in found} == {128}
    tuning = [row for row in rows if row["phase"] in ("screening", "development")]
    assert {row["draw"] for row in tuning} == {171, 172, 173}
    assert {row["draw"] for row in tuning if row["phase"] == "screening"} == {171}


@pytest.mark.parametrize("name", COMMITTED)
def test_verdicts_and_totals_are_those_of_the_runs(studies, name):
    for row in evaluations(studies[name]):
        assert row["stop"] == "completed"
        assert row["evaluations"] == row["preprocessing"] + row["probes"] + row["commits"]
        within = row["batch_kl"] + 2 * row["batch_kl_se"] <= row["threshold"]
        assert row["passes"] == within


def test_tuning_selected_among_candidates_that_fail_and_pass(studies):
    for name, rows in studies.items():
        if name == "tuned-by-hand":
            continue
        cells = selections_of(rows)
        if name != "careful":  # what it offers a matching cannot fail there
            assert all(cell.passed < cell.screened for cell in cells)
        assert sum(cell.held for cell in cells) > 0
        chosen = {json.dumps(cell.frozen, sort_keys=True) for cell in cells}
        assert len(chosen) > 1  # families differ in what suits them


def test_by_hand_all_proposals_are_exact_and_nothing_failed(by_hand):
    for row in evaluations(by_hand):
        assert (row["batch_kl"], row["batch_kl_se"]) == (0.0, 0.0)
        assert row["passes"]
    tuning = [row for row in by_hand if row["phase"] in ("screening", "development")]
    assert len(tuning) == 870
    assert all(row["passes"] for row in tuning)


def test_by_hand_totals_lie_well_below_n_and_follow_a_formula(by_hand):
    lines = [line for line in lines_of(by_hand) if line.method == "packed"]
    assert len(lines) == 20
    assert all(line.most < 0.6 * line.length for line in lines)
    assert all(line.most - line.least <= 2 for line in lines)
    for (_, method), fit in growth_of(lines_of(by_hand)).items():
        assert fit.num_sizes == 5
        if method == "packed":
            assert fit.exponent < 0.2
            assert (fit.low, fit.high) == (None, None)  # nothing varies


def test_the_defaults_are_exact_and_cost_less_than_n(by_hand):
    cells = [line for line in lines_of(by_hand) if line.method == "packed"]
    lines = lines_at_defaults(read_sources()["packed_defaults"]["figures"], cells)
    assert len(lines) == 20
    for line in lines:
        assert line.batch_kl == 0.0
        assert line.mean < 0.7 * line.length


@pytest.mark.parametrize("name", COMMITTED)
def test_every_safe_budget_passes_and_has_a_narrow_bracket(studies, name):
    for row in studies[name]:
        if row["phase"] == "random search":
            assert row["passes"]
            assert row["evaluations"] == row["commits"] == row["budget"] <= row["length"]
            seen = json.loads(row["observed"])
            unsafe = [o["budget"] for o in seen if o["budget"] < row["budget"]]
            assert row["budget"] - max(unsafe, default=0) <= 0.05 * row["length"]


def test_all_studies_found_the_same_budgets(studies):
    budgets: dict[tuple, set] = {}
    for rows in studies.values():
        for row in rows:
            if row["phase"] == "random search":
                place = tuple(row[k] for k in ("method", "family", "length", "draw", "stream"))
                budgets.setdefault(place, set()).add((row["budget"], row["tokens"]))
    assert all(len(found) == 1 for found in budgets.values())


def test_the_pages_example_is_a_study():
    text = (DOCS / "study.md").read_text()
    example = re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]
    assert config_from_dict(tomllib.loads(example), "docs/study.md").name == "mine"


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_run_can_be_repeated(studies, name):
    runs = evaluations(studies[name])
    row = min(runs, key=lambda row: (row["rows_read"], row["draw"], row["stream"]))
    # Version 2 changed what inputs draw, and no run on a law.
    assert 1 <= int(json.loads(row["versions"])["streams"]) <= STREAMS_VERSION
    key = run_key(row["family"], row["length"], row["draw"], row["stream"], row["method"],
                  json.loads(row["settings"]), row["kl_draws"])  # fmt: skip
    result, _ = do_work(key)
    for name in ("evaluations", "probes", "commits", "stages", "rows_read", "batch_kl", "tokens"):
        assert result[name] == row[name]


@pytest.mark.parametrize(
    ("family", "through"), [("path", 0.01), ("binary-tree", 0.001), ("growing-stars", 0)]
)
def test_the_cut_parts_neighbours_from_what_lies_behind_them(family, through):
    """Responses under four colorings of the frozen number of colors, on a development draw."""
    frozen = {"path": 4, "binary-tree": 5, "growing-stars": 3}[family]
    settings = next(
        entry
        for entry in load_preset("tuned-by-hand").candidate_settings(family, 8192)
        if entry["num_colors"] == frozen
    )
    law = cp.families.build(family, 8192, 171)
    run, rng = cp.run.Run(law.oracle()), np.random.default_rng(1)
    banks = run.call(read_banks, settings["bank_threshold"], run.row_error)
    draft = rare_filler(FillerContext(run.state, banks), rng)
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
@pytest.mark.parametrize("name", COMMITTED)
def test_every_largest_cell_can_be_repeated(studies, name):
    for row in evaluations(studies[name]):
        if row["length"] == 16384 and (row["draw"], row["stream"]) == (196, 292):
            key = run_key(row["family"], row["length"], row["draw"], row["stream"],
                          row["method"], json.loads(row["settings"]), row["kl_draws"])  # fmt: skip
            result, _ = do_work(key)
            assert (result["evaluations"], result["tokens"]) == (row["evaluations"], row["tokens"])
            assert result["batch_kl"] == row["batch_kl"]
