"""The evaluation as a whole: what it writes, continues, survives, claims and draws."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _results import plain
from denoiser import main
from denoisers import evaluation
from denoisers.claims import claims, figures, structured
from denoisers.discovery import PROBES, QUICK_PROBES, Screen, edges_found, screens
from denoisers.forest import ForestTruth
from denoisers.laws import build_law
from denoisers.report import draw_figure, table
from denoisers.store import Store
from denoisers.training import TINY
from substitution import ESTIMATORS

import counterprobe as cp
from counterprobe.samplers import CentroidLayers, RandomBalanced

PNG = b"\x89PNG"


@dataclass
class Known:
    """A structure that knows the true edges, in place of one that was found."""

    edges: np.ndarray
    ledger: cp.Ledger

    @property
    def residual(self) -> np.ndarray:
        return np.arange(8)

    @property
    def strength(self) -> np.ndarray:
        strength = np.zeros((8, 8))
        strength[self.edges[:, 0], self.edges[:, 1]] = 1.0
        return strength + strength.T

    def sampler(
        self,
        batches: int | None = None,
        target_kl: float | None = None,
        method: str | None = None,
    ) -> Any:
        if method == "layers":
            return CentroidLayers(tuple((int(i), int(j)) for i, j in self.edges))
        return RandomBalanced(batches=batches or 1)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("denoisers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("denoiser.TINY", replace(TINY, steps=2, batch_size=8))
        assert main(["train", "--law", "path,grid", "--tiny", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def known_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    as_sampler = cp.samplers.as_sampler

    def rule_of(structure: Any, settings: dict[str, Any] | None = None) -> Any:
        if isinstance(structure, Known):
            return structure.sampler(**(settings or {}))
        return as_sampler(structure, settings)

    monkeypatch.setattr(cp.samplers, "as_sampler", rule_of)

    def find(oracle: Any, probes: int, seed: int = 0) -> Known:
        law = build_law(oracle.name.split()[-1], small=True)
        # A path of the grid's positions: its own edges have cycles.
        edges = law.edges if len(law.edges) < 8 else np.array([(k, k + 1) for k in range(7)])
        return Known(edges, cp.Ledger(probes=probes))

    monkeypatch.setattr(evaluation, "find_structure", find)
    monkeypatch.setattr(evaluation, "screens", lambda probes, seeds: iter(()))


def run(weights: Path, folder: Path, laws: str, *more: str, name: str = "all") -> int:
    file = str(folder / f"{name}.json")
    quick = ["--laws", laws, "--weights", str(weights), "--quick", "--json", file]
    return main(["evaluate", *quick, *more])


@pytest.mark.slow
@pytest.mark.usefixtures("known_structure")
def test_evaluation_measures_structured_and_peers_and_draws_them(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = tmp_path / "all.png"
    assert run(weights, tmp_path, "path,grid", "--figure", str(figure)) == 0
    written = json.loads((tmp_path / "all.json").read_text())
    samplers = written["laws"]["path"]["samplers"]
    assert samplers["layers batches=8"]["evaluations"] == 4.0
    assert samplers["planned target_kl=0.3"]["evaluations"] == 1.0
    assert written["laws"]["path"]["structure"]["used"]["rounds"] == [1, 4]
    assert {entry["kind"] for entry in samplers.values()} == {
        "truth",
        "structured",
        "baseline",
        "peer",
        "told",
    }
    assert "maskgit steps=4" in samplers
    assert samplers["maskgit steps=4"]["kl"] is None
    assert written["laws"]["grid"]["structure"]["used"]["evaluations"] == 128
    assert written["figures"]["path.sequential_kl"] == samplers["sequential order=random"]["kl"]
    assert figure.read_bytes().startswith(PNG)
    assert "== grid" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("known_structure")
def test_chosen_rivals_are_measured_again_and_take_the_place_of_what_they_were(
    weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["factor factor=1.0", "wino threshold=0.5"]
    words = ["again", "--laws", "path", "--weights", str(weights), "--count", "40", "--json"]
    assert run(weights, tmp_path, "path,grid") == 0
    whole, part = tmp_path / "all.json", tmp_path / "part.json"
    before = json.loads(whole.read_text())
    assert main([*words, str(part), "--only", *chosen]) == 0
    assert main(["take", str(part), "--json", str(whole)]) == 0
    after, again = json.loads(whole.read_text()), json.loads(part.read_text())
    samplers = after["laws"]["path"]["samplers"]
    assert {key: entry["count"] for key, entry in samplers.items() if key in chosen} == {
        key: 40 for key in chosen
    }
    for key in chosen:
        samplers[key] = before["laws"]["path"]["samplers"][key]
    assert after["laws"] == before["laws"]
    assert after["settings"] == before["settings"]
    assert all(entry in after["made"] for entry in [*before["made"], *again["made"]])
    capsys.readouterr()
    assert main([*words, str(tmp_path / "none.json"), "--only", "factor"]) == 1
    assert "only must name samplers as the file does, got ['factor']" in capsys.readouterr().out


@pytest.mark.usefixtures("known_structure")
def test_mixtures_of_plans_are_measured_into_a_file_of_their_own(
    weights: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mixture.json"
    words = ["mixture", "--laws", "path", "--weights", str(weights), "--count", "32"]
    assert main([*words, "--json", str(file)]) == 0
    written = json.loads(file.read_text())
    assert written["settings"] == {"count": 32, "plans": 8, "probes": 128}
    found = written["laws"]["path"]["mixture"]
    names = {"sequential", "one-batch", "random-balanced", "spread", "ancestral"}
    assert {entry["sampler"] for entry in found.values()} == names | {"planned", "layers"}
    alone = found["sequential order=random"]
    assert (alone["count"], alone["plans"], alone["evaluations"]) == (32, 8, 8)
    assert found["layers batches=8"]["different_plans"] == 1
    # With one plan there is nothing to mix.
    assert found["one-batch"]["kl"] == found["one-batch"]["kl_one_plan"]


def test_evaluation_discovers_and_plans_with_the_library(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for phase in ("baselines", "peers"):
        monkeypatch.setattr(evaluation, phase, lambda sizes, budgets: iter(()))
    assert run(weights, tmp_path, "grid", "--probes", "96") == 0
    written = json.loads((tmp_path / "all.json").read_text())["laws"]["grid"]
    assert written["structure"]["used"]["evaluations"] == 97
    rounds = [written["samplers"][f"layers batches={k}"]["evaluations"] for k in (2, 4, 8)]
    assert rounds[0] <= 2 and rounds[1] <= 4 and rounds[2] <= 8
    assert {entry["estimator"] for entry in written["discovery"].values()} == set(ESTIMATORS)


@pytest.mark.usefixtures("known_structure")
def test_evaluation_continues_where_it_ended(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "peers", lambda sizes, budgets: iter(()))
    assert run(weights, tmp_path, "path") == 0
    file = tmp_path / "all.json"
    written = json.loads(file.read_text())
    removed = written["laws"]["path"]["samplers"].pop("one-batch")
    file.write_text(json.dumps(written))
    drawn: list[str] = []
    original = evaluation.draw

    def counting(oracle: Any, contestant: Any) -> Any:
        drawn.append(contestant.key)
        return original(oracle, contestant)

    monkeypatch.setattr(evaluation, "draw", counting)
    assert run(weights, tmp_path, "path") == 0
    assert drawn == ["one-batch"]
    again = json.loads(file.read_text())["laws"]["path"]["samplers"]["one-batch"]
    assert again["kl"] == removed["kl"]


def test_a_failure_is_kept_and_the_rest_is_measured(
    weights: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*ignored: Any) -> None:
        raise RuntimeError("no structure today")

    monkeypatch.setattr(evaluation, "find_structure", fails)
    monkeypatch.setattr(evaluation, "screens", lambda probes, seeds: iter(()))
    monkeypatch.setattr(evaluation, "peers", lambda sizes, budgets: iter(()))
    assert run(weights, tmp_path, "path") == 1
    written = json.loads((tmp_path / "all.json").read_text())["laws"]["path"]
    assert written["structure"]["used"]["error"] == "RuntimeError: no structure today"
    assert "random-balanced batches=4" in written["samplers"]
    said = capsys.readouterr().out
    assert "not measured: path structure used: RuntimeError: no structure today" in said


@pytest.mark.slow
@pytest.mark.usefixtures("known_structure")
def test_a_phase_that_fails_stops_no_other(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*ignored: Any) -> None:
        raise RuntimeError("no baselines today")

    monkeypatch.setattr(evaluation, "baselines", fails)
    monkeypatch.setattr(evaluation, "told_peers", lambda truth, sizes, budgets: iter(()))
    assert run(weights, tmp_path, "path") == 1
    written = json.loads((tmp_path / "all.json").read_text())["laws"]["path"]
    assert written["phases"]["baseline_phase"]["error"] == "RuntimeError: no baselines today"
    assert "maskgit steps=4" in written["samplers"]


@pytest.mark.usefixtures("known_structure")
def test_laws_measured_apart_are_joined(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "peers", lambda sizes, budgets: iter(()))
    for law in ("path", "grid"):
        assert run(weights, tmp_path, law, name=law) == 0
    parts = [str(tmp_path / f"{law}.json") for law in ("grid", "path")]
    joined = tmp_path / "joined.json"
    assert main(["report", *parts, "--json", str(joined)]) == 0
    assert list(json.loads(joined.read_text())["laws"]) == ["path", "grid"]


def test_a_file_of_other_settings_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    Store(file, {"probes": 64}).add("path", "rows", "errors", {"value": 1.0})
    with pytest.raises(ValueError, match="was measured with other settings"):
        Store(file, {"probes": 128})


def test_failed_measurements_are_tried_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "new.json", {})
    store.add("path", "samplers", "one", {"error": "no"})
    assert not store.has("path", "samplers", "one")
    assert store.failures == ["path samplers one: no"]
    store.add("path", "samplers", "one", {"kl": 1.0, "kind": "peer"})
    assert store.has("path", "samplers", "one")
    assert not store.failures


def test_plain_values_have_six_digits_and_no_nan() -> None:
    assert plain({"a": np.float64(1.23456789), "b": float("nan"), "c": (np.int64(2),)}) == {
        "a": 1.23457,
        "b": None,
        "c": [2],
    }


def test_edges_are_counted_whichever_end_comes_first() -> None:
    strength = np.zeros((4, 4))
    for (i, j), value in {(0, 1): 3.0, (1, 2): 2.0, (0, 3): 1.0}.items():
        strength[i, j] = strength[j, i] = value
    found = edges_found(strength, np.array([(1, 0), (0, 3)]), np.array([(0, 1), (2, 1)]))
    counts = {"true": 2, "declared": 2, "found": 1, "ranked": 2}
    assert found == counts | {"weakest_edge": 2.0, "strongest_other": 1.0}


def test_no_edges_are_counted_where_nothing_is_strong() -> None:
    found = edges_found(np.zeros((3, 3)), np.empty((0, 2), dtype=int), np.array([(0, 1)]))
    counts = {"true": 1, "declared": 0, "found": 0, "ranked": 0}
    assert found == counts | {"weakest_edge": 0.0, "strongest_other": 0.0}


def test_every_estimator_is_screened_at_every_number_of_probes() -> None:
    assert set(PROBES) == set(QUICK_PROBES) == set(ESTIMATORS)
    keys = [screen.key for screen in screens({"regression": (64, 128), "contexts": (256,)}, 2)]
    assert len(keys) == len(set(keys)) == 3 * 2


@pytest.mark.parametrize(("estimator", "probes"), [("regression", 256), ("substitution", 192)])
def test_a_screen_of_exact_rows_finds_the_edges(estimator: str, probes: int) -> None:
    truth = build_law("stars")
    assert isinstance(truth, ForestTruth)
    found = Screen(estimator, probes, 0).found_in(truth.forest_law().oracle(), truth.edges)
    assert found["true"] == found["ranked"] == 56
    assert found["evaluations"] == probes + 1


# ----- Claims -------------------------------------------------------------------------------


def entry(sampler: str, kind: str, evaluations: float, kl: float | None, **more: Any) -> dict:
    found = {"sampler": sampler, "kind": kind, "evaluations": evaluations, "kl": kl, "kl_se": 0.01}
    distances = {"edge_distance": 0.5, "edge_distance_se": 0.01}
    energies = {"energy_gap": 0.1, "energy_gap_se": 0.02}
    return found | {"settings": {}, "p_value_pairs": 0.5} | distances | energies | more


def layers(kl: float) -> dict:
    return entry("layers", "structured", 6, kl, settings={"batches": 8})


def measured(law: str, *entries: dict, **parts: Any) -> dict:
    return {law: {"samplers": {str(k): value for k, value in enumerate(entries)}, **parts}}


ALONE = entry("sequential", "baseline", 64, 0.5)


@pytest.mark.parametrize(
    ("law", "kl", "holds"),
    [("tree", 0.5, True), ("tree", 0.6, False), ("path", 0.6, True), ("path", 0.7, False)],
)
def test_structured_is_set_against_one_token_at_a_time(law: str, kl: float, holds: bool) -> None:
    found = claims(measured(law, ALONE, layers(kl)))
    assert found[0]["holds"] == holds


def test_only_the_structured_samplers_named_are_judged() -> None:
    others = [
        entry("planned", "structured", 4, 0.1, settings={"batches": 8}),
        entry("layers", "structured", 16, 0.1, settings={"batches": 16}),
    ]
    assert claims(measured("tree", ALONE, *others)) == []
    priced = entry("planned", "structured", 5, 0.1, settings={"target_kl": 0.3})
    laws = measured("tree", ALONE, *others, priced, layers(0.3))
    assert structured(laws["tree"]["samplers"]) == [layers(0.3), priced]
    assert len(claims(laws)) == 4


def test_a_structured_sampler_of_too_many_evaluations_fails() -> None:
    slow = entry("planned", "structured", 9, 0.1, settings={"target_kl": 0.3})
    assert not claims(measured("tree", ALONE, slow))[0]["holds"]


def test_a_peer_must_be_worse_beyond_its_error() -> None:
    ours = layers(0.2)
    worse = entry("llada", "peer", 6, 0.9)
    unclear = entry("dream", "peer", 5, 0.21)
    many = entry("random-balanced", "baseline", 32, 0.1)
    by_pairs = entry("maskgit", "peer", 6, None, edge_distance=0.9)
    by_energy = entry("info-gain", "peer", 6, None, energy_gap=-2.0)
    by_neither = entry("punt", "peer", 6, None, edge_distance=0.4)
    failed = {"error": "no"}
    fine = claims(measured("tree", ALONE, ours, worse, many, by_pairs, by_energy, failed))[1]
    assert fine["holds"]
    doubtful = claims(measured("tree", ALONE, ours, worse, unclear, by_neither))[1]
    assert not doubtful["holds"]
    assert [name.split()[0] for name in doubtful["not_worse"]] == ["dream", "punt"]


def test_discovery_is_judged_at_the_most_probes_allowed_and_the_worst_seed() -> None:
    def screen(probes: int, found: int, estimator: str = "regression") -> dict:
        return {"estimator": estimator, "probes": probes, "found": found, "true": 100}

    entries = [screen(64, 50), screen(192, 100), screen(192, 97), screen(512, 100)]
    laws = {"path": {"discovery": {str(k): value for k, value in enumerate(entries)}}}
    (claim,) = claims(laws)
    assert (claim["least_share"], claim["holds"]) == (0.97, False)


def test_figures_are_flat_numbers() -> None:
    laws = measured("tree", ALONE, layers(0.2))
    assert figures(laws) == {
        "tree.layers_kl": 0.2,
        "tree.layers_evaluations": 6,
        "tree.sequential_kl": 0.5,
    }


def test_table_says_what_holds() -> None:
    laws = measured("tree", ALONE, layers(0.2) | {"kl_se": None})
    said = table(laws)
    assert "holds: tree: layers in at most 8 evaluations" in said


def test_a_figure_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is nothing to draw"):
        draw_figure({}, tmp_path / "empty.png")
