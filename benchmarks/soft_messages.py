"""Whether reading a masked source by its own row lowers the probes of the soft screen.

    .venv/bin/python benchmarks/soft_messages.py --json benchmarks/results/soft_messages.json

In a probe that masks it, a source sends its neighbours no token but a mixture. The decoder for
exact rows takes that mixture from the row that the same probe returned. Here the regression of the
soft screen does, where a source is masked: its columns hold its own row over the tokens it shows
in place of the mask's column (``instead``), or beside that column how far its row is from its mean
(``beside``). The same probes are read in all ways, on the small trained denoisers
(benchmarks/data/denoisers; the processor suffices) after 32, 64 and 128 probes: 33, 65 and 129
evaluations with the all-mask one.
"""

from __future__ import annotations

import argparse
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
from counterprobe.discovery.soft import SoftFindings, SoftSettings
from counterprobe.discovery.soft import movement as held_out
from counterprobe.discovery.soft import regression as fitted
from counterprobe.discovery.soft.readings import Readings
from counterprobe.discovery.soft.screen import SoftScreen
from counterprobe.discovery.soft.selection import indicators

LAWS = ("path", "tree", "stars", "grid")
PROBES = (32, 64, 128)
WAYS = ("today", "instead", "beside")


class Screen(SoftScreen):
    """A soft screen whose readings are read in every way."""

    def in_every_way(self, probes: int) -> dict[str, SoftFindings]:
        """Submit probes in one batch, and return what each reading of them finds."""
        readings = Readings(self.coordinates, self.residual, self.sources.num_levels)
        self._submit(readings, probes)
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


def measure(law: str, probes: int, seed: int) -> dict[str, Any]:
    """Screen one denoiser; return what each way found."""
    trained = load(FOLDER, law)
    run = cp.Unmasking(DenoiserOracle(trained))
    settings = SoftSettings(probes=probes, first=probes)
    screen = Screen(run, cp.Streams.from_seed(seed).decisions, settings)
    found = screen.in_every_way(probes)
    return {
        way: {
            **edges_found(one.strength, one.edges, trained.truth.edges),
            "explained": float((one.moved * one.explained).sum() / one.moved.sum()),
        }
        for way, one in found.items()
    }


def main() -> None:
    """Measure, and write after every law."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--laws", nargs="+", default=LAWS)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", type=Path)
    told = parser.parse_args()
    measured: dict[str, Any] = {}
    for law in told.laws:
        for probes in PROBES:
            runs = [measure(law, probes, seed) for seed in range(told.seeds)]
            cell = {
                way: {
                    what: float(np.mean([run[way][what] for run in runs]))
                    for what in ("true", "ranked", "declared", "found", "explained")
                }
                for way in WAYS
            }
            measured.setdefault(law, {})[str(probes)] = cell
            print(law, probes, cell, flush=True)
        write_results(told.json, {"seeds": told.seeds, "laws": plain(measured)})


if __name__ == "__main__":
    main()
