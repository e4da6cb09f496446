"""The soft screen: what it finds through noise, how its nats compare, and its own time.

    python benchmarks/soft.py [--quick] [--json FILE]

Laws have 64 positions, 16 tokens, random tables and shuffled labels; rows are off by 0.04 total
variation in the mean. A law is *apart* when its weakest edge is stronger than every other pair.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _timing import TimedOracle, arguments, report

import counterprobe as cp
from counterprobe.discovery.soft import SoftFindings, SoftSettings, soft_screen
from counterprobe.testing import NoisyLogits


def random_forest(kind: str, seed: int) -> tuple[cp.ForestLaw, np.ndarray]:
    """Return a law of 64 positions, and which pairs are its edges."""
    draw = np.random.default_rng(seed)
    nodes = np.arange(64)
    ends = {"path": nodes - 1, "tree": (nodes - 1) // 2, "stars": nodes // 8 * 8}[kind]
    is_child = nodes % 8 > 0 if kind == "stars" else nodes > 0
    label = draw.permutation(64)
    edges = np.stack([label[ends[is_child]], label[nodes[is_child]]], axis=1)
    tables = np.exp(draw.normal(0, 0.7 if kind == "stars" else 1.0, (len(edges), 16, 16)))
    law = cp.ForestLaw(np.exp(draw.normal(0, 0.7, (64, 16))), edges, tables)
    is_edge = np.zeros((64, 64), dtype=bool)
    is_edge[edges.min(axis=1), edges.max(axis=1)] = True
    return law, is_edge


def screen(oracle: cp.Oracle, seed: int, probes: int) -> SoftFindings:
    """Spend all probes."""
    decisions = cp.Streams(seed, 0).decisions
    return cp.run.Run(oracle).call(soft_screen, decisions, SoftSettings(probes=probes))


def through_noise(num_seeds: int) -> dict[str, Any]:
    """Screen noisy forests; means over seeds."""
    figures: dict[str, Any] = {}
    for kind in ("path", "tree", "stars"):
        laws = [random_forest(kind, seed) for seed in range(num_seeds)]
        noisy = [
            NoisyLogits.with_mean_error(law.oracle(), 0.04, k) for k, (law, _) in enumerate(laws)
        ]
        for probes in (64, 128, 256):
            weakest, strongest, floors, explained = [], [], [], []
            for seed, (oracle, (_, is_edge)) in enumerate(zip(noisy, laws, strict=True)):
                found = screen(oracle, seed, probes)
                others = np.triu(~is_edge, 1)
                weakest.append(found.strength[is_edge].min())
                strongest.append(found.strength[others].max())
                floors.append(found.noise_floor)
                explained.append(np.median(found.explained))
            figures[f"{kind}_{probes}"] = {
                "apart": int(np.sum(np.array(weakest) > strongest)),
                "of": num_seeds,
                "weakest_edge": round(float(np.mean(weakest)), 3),
                "strongest_other": round(float(np.mean(strongest)), 3),
                "noise_floor": round(float(np.mean(floors)), 4),
                "explained": round(float(np.mean(explained)), 2),
            }
    return figures


def own_seconds(length: int, vocab_size: int, probes: int) -> float:
    """Return the seconds of a screen that were not the oracle's."""
    draw = np.random.default_rng(0)
    edges = [(i, i + 1) for i in range(length - 1)]
    tables = np.exp(draw.normal(0, 1, (length - 1, vocab_size, vocab_size)))
    law = cp.ForestLaw(np.exp(draw.normal(0, 0.7, (length, vocab_size))), edges, tables)
    screen(cp.families.path(length=8, target_seed=1).oracle(), 0, 16)  # compile
    oracle = TimedOracle(law.oracle())
    started = time.perf_counter()
    screen(oracle, 0, probes)
    return round(time.perf_counter() - started - oracle.seconds, 1)


def main() -> None:
    """Print everything."""
    told = arguments(__doc__ or "")
    figures = through_noise(2 if told.quick else 10)
    figures["own_seconds_214_20_256"] = own_seconds(214, 20, 256)
    if not told.quick:
        figures["own_seconds_1024_64_512"] = own_seconds(1024, 64, 512)
    report(figures, told.json)


if __name__ == "__main__":
    main()
