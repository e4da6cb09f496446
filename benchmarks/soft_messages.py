"""Whether reading a masked source by its own row lowers the probes of the soft screen.

    .venv/bin/python benchmarks/soft_messages.py --json benchmarks/results/soft_messages.json

In a probe that masks it, a source sends its neighbours no token but a mixture. The decoder for
exact rows takes that mixture from the row that the same probe returned. Here the regression of the
soft screen does, where a source is masked: its columns hold its own row over the tokens it shows
in place of the mask's column (``instead``), or beside that column how far its row is from its mean
(``beside``). The same probes are read in all ways, on the small trained denoisers
(benchmarks/data/denoisers; the processor suffices) and on ProteinMPNN, after 32, 64 and 128
probes: 33, 65 and 129 evaluations with the all-mask one.

Nobody knows the true edges of ProteinMPNN. There the strongest pairs of today's screen after
1,024 probes of another seed stand for them, two for every position, and a plan of eight batches,
searched with the strengths of each reading, has the price that the strengths of those 1,024
probes give it. That reference is an estimate of the same kind as ``today``, which may favour it;
how much of the movement is explained is judged on held-out probes and favours none.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from _results import plain, write_results
from denoisers.discovery import edges_found
from denoisers.files import FOLDER, load
from denoisers.oracle import DenoiserOracle

import counterprobe as cp
from counterprobe.arrays import FloatArray
from counterprobe.discovery.soft import SoftFindings, SoftSettings, soft_screen
from counterprobe.discovery.soft import movement as held_out
from counterprobe.discovery.soft import regression as fitted
from counterprobe.discovery.soft.readings import Readings
from counterprobe.discovery.soft.screen import SoftScreen
from counterprobe.discovery.soft.selection import indicators
from counterprobe.planning import make_plan, price_of_batches
from counterprobe.run import Preprocess
from counterprobe.streams import Decisions

LAWS = ("path", "tree", "stars", "grid")
BACKBONES = ("1ubi",)
PROBES = (32, 64, 128)
WAYS = ("today", "instead", "beside")
# What stands for the truth of a model that has none: probes, a seed, and the batches of plans.
REFERENCE_PROBES, REFERENCE_SEED = 1024, 1000
STRONGEST = 2  # pairs for every position
PLANNED_BATCHES, PLANS = 8, 8


class Screen(SoftScreen):
    """A soft screen whose readings are read in every way.

    Parameters
    ----------
    run : Run
        Fresh; the screen asks through it.
    rng : Decisions
    settings : SoftSettings
    """

    def __init__(self, run: cp.run.Run, rng: Decisions, settings: SoftSettings) -> None:
        super().__init__(run, rng, settings, run.do(Preprocess()))
        self._run = run

    def submit(self, readings: Readings, probes: int) -> None:
        """Submit a batch of probes."""
        self._run.alone(self._run.follow(self._submit(readings, probes)))

    def in_every_way(self, probes: int) -> dict[str, SoftFindings]:
        """Submit probes in one batch, and return what each reading of them finds."""
        readings = Readings(self.coordinates, self.residual, self.sources.num_levels)
        self.submit(readings, probes)
        found = {}
        for way in WAYS:
            columns = self.columns(readings, way)
            told: Callable[..., FloatArray] = lambda *_, columns=columns: columns  # noqa: E731
            with (
                patch.object(fitted, "indicators", told),
                patch.object(held_out, "indicators", told),
            ):
                found[way] = self._estimated(readings)
        return found

    def columns(self, readings: Readings, way: str) -> FloatArray:
        """Return the columns of all sources in all probes, shape (T, n * K)."""
        columns = indicators(readings.levels, readings.num_levels)
        if way == "today":
            return columns
        shaped = columns.reshape(len(columns), len(self.residual), -1)
        for s, probe in enumerate(readings.probe):
            rows = np.exp(readings.logs[s].astype(np.float64))[:, self.sources.tokens[s]]
            rows[:, self.sources.probability[s] == 0] = 0.0
            if way == "instead":
                rows /= rows.sum(axis=1, keepdims=True)
                shaped[probe, s, -1] = 0.0
            else:
                rows -= rows.mean(axis=0)
            shaped[probe, s, :-1] = rows[:, 1:]
        return columns


def in_every_way(oracle: cp.Oracle, probes: int, seed: int) -> dict[str, SoftFindings]:
    """Screen an oracle once; return what each way of reading it found."""
    settings = SoftSettings(probes=probes, first=probes)
    screen = Screen(cp.run.Run(oracle), cp.Streams.from_seed(seed).decisions, settings)
    return screen.in_every_way(probes)


def judged(found: SoftFindings, edges: np.ndarray) -> dict[str, Any]:
    """Count edges among what was found, and say how much of the movement is explained."""
    explained = float((found.moved * found.explained).sum() / found.moved.sum())
    return {**edges_found(found.strength, found.edges, edges), "explained": explained}


def measure(law: str, probes: int, seed: int) -> dict[str, Any]:
    """Screen one denoiser; return what each way found."""
    trained = load(FOLDER, law)
    found = in_every_way(DenoiserOracle(trained), probes, seed)
    return {way: judged(one, trained.truth.edges) for way, one in found.items()}


def reference_of(oracle: cp.Oracle) -> SoftFindings:
    """Return what stands for the truth of a model."""
    settings = SoftSettings(probes=REFERENCE_PROBES)
    decisions = cp.Streams.from_seed(REFERENCE_SEED).decisions
    return cp.run.Run(oracle).call(soft_screen, decisions, settings)


def measure_model(
    oracle: cp.Oracle, reference: SoftFindings, probes: int, seed: int
) -> dict[str, Any]:
    """Screen one model; return what each way found, and the price of its plans."""
    told = {}
    for way, one in in_every_way(oracle, probes, seed).items():
        rng = np.random.default_rng(seed)
        plans = [
            make_plan(one.strength, batches=PLANNED_BATCHES, rng=rng).batches for _ in range(PLANS)
        ]
        nats = np.mean([price_of_batches(reference.strength, plan) for plan in plans])
        edges = reference.edges[: STRONGEST * len(reference.strength)]
        told[way] = {**judged(one, edges), "plan_nats": float(nats)}
    return told


def mean_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the means over seeds, way by way, and the standard error of a price."""
    kept = ("true", "ranked", "declared", "found", "explained", "plan_nats")
    told: dict[str, Any] = {}
    for way in WAYS:
        values = {k: [run[way][k] for run in runs] for k in kept if k in runs[0][way]}
        told[way] = {what: float(np.mean(several)) for what, several in values.items()}
        if "plan_nats" in values:
            spread = float(np.std(values["plan_nats"], ddof=1))
            told[way]["plan_nats_se"] = spread / np.sqrt(len(runs))
    return told


def main() -> None:
    """Measure, and write after every law and every backbone."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--laws", nargs="*", default=LAWS, choices=LAWS)
    parser.add_argument("--backbones", nargs="*", default=BACKBONES)
    parser.add_argument("--seeds", type=int, default=4, help="of each denoiser")
    parser.add_argument("--model-seeds", type=int, default=16, help="of each backbone")
    parser.add_argument("--json", type=Path, help="write here; what else is there stays")
    told = parser.parse_args()
    measured: dict[str, Any] = {"laws": {}, "models": {}}
    if told.json and told.json.is_file():
        known = json.loads(told.json.read_text(encoding="utf-8"))
        if known["seeds"] != told.seeds:
            raise SystemExit(f"{told.json} has {known['seeds']} seeds; write to another file")
        measured = {what: known.get(what, {}) for what in measured}

    def note(what: str, name: str, cells: dict[str, Any]) -> None:
        measured[what][name] = cells
        print(name, cells, flush=True)
        seeds = {"seeds": told.seeds, "model_seeds": told.model_seeds}
        write_results(told.json, {**seeds, **plain(measured)})

    for law in told.laws:
        cells = {
            str(probes): mean_of([measure(law, probes, seed) for seed in range(told.seeds)])
            for probes in PROBES
        }
        note("laws", law, cells)
    for backbone in told.backbones:
        oracle = cp.models.load("proteinmpnn", backbone=backbone, device="cpu").oracle()
        reference = reference_of(oracle)
        cells = {
            str(probes): mean_of(
                [
                    measure_model(oracle, reference, probes, seed)
                    for seed in range(told.model_seeds)
                ]
            )
            for probes in PROBES
        }
        note("models", f"proteinmpnn {backbone}", cells)


if __name__ == "__main__":
    main()
