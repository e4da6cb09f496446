"""Prices of plans beside what they break, on laws whose dependence is known.

    .venv/bin/python tools/planning_prices.py --json docs/data/planning-prices.json

Forests of 64 positions, batch KL along a sample for each plan; then a Gaussian law of 214 points
in space, whose batches break ``(sum log S_ii - log det S) / 2`` with S the covariance given what
is committed, by strengths averaged over contexts with half of the positions masked, exact or
noisy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import counterprobe as cp
from counterprobe.arrays import FloatArray
from counterprobe.planning import Plan, distance_plan, make_plan, price_of_batches, random_plan
from counterprobe.planning.search import searched_plan
from counterprobe.planning.strengths import check_strength

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now


def by_pairs_alone(strength: FloatArray, batches: int, rng: np.random.Generator) -> Plan:
    """Equal sizes, searched without walks, in random order."""
    plain = check_strength(strength, longest_walk=1)
    found = searched_plan(plain, batches, 2, rng, growths=(0.0,))
    shuffled = tuple(found.batches[k] for k in rng.permutation(batches))
    price = price_of_batches(strength, shuffled)
    return Plan(shuffled, price, float("nan"), "search", 0.0, len(strength))


def summary(plans: list[Plan], broken: list[float]) -> dict[str, float]:
    """Return estimated and measured means."""
    return {
        "estimated": float(np.mean([plan.estimated_kl for plan in plans])),
        "broken": float(np.mean(broken)),
        "broken_se": float(np.std(broken) / np.sqrt(len(broken))),
    }


def forests(count: int) -> dict[str, Any]:
    """Return what plans break on three forests."""
    found: dict[str, Any] = {}
    for family in ("path", "binary-tree", "random-recursive-tree"):
        law = cp.families.build(family, 64, 3, weight=0.8)
        strength = cp.samplers.Planned().informed_by(law).strength
        assert strength is not None
        for batches in (4, 8):
            rng = np.random.default_rng(0)
            ways: dict[str, Callable[[], Plan]] = {
                "random": lambda k=batches, s=strength, g=rng: random_plan(
                    None, k, g, 64, strength=s
                ),
                "pairs alone": lambda k=batches, s=strength, g=rng: by_pairs_alone(s, k, g),
                "search": lambda k=batches, s=strength, g=rng: make_plan(
                    s, batches=k, method="search", rng=g
                ),
                "auto": lambda k=batches, s=strength, g=rng: make_plan(s, batches=k, rng=g),
            }
            here = found.setdefault(family, {}).setdefault(str(batches), {})
            for name, way in ways.items():
                plans = [way() for _ in range(count)]
                broken = [
                    cp.evaluation.batch_kl_of_batches(law, tokens, plan.batches, draws=64).value
                    for tokens, plan in zip(law.sample(count, rng), plans, strict=True)
                ]
                here[name] = summary(plans, broken)
                print(family, batches, name, here[name], flush=True)
    return found


def gaussian(count: int, noise: float) -> dict[str, Any]:
    """Return what plans break on a Gaussian law of points in space."""
    rng = np.random.default_rng(1)
    n = 214
    points = np.cumsum(rng.normal(size=(n, 3)), axis=0)
    points *= 8 / np.std(points)
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    size = rng.uniform(0.2, 1.0, size=(n, n)) * rng.choice([-1, 0, 0, 1], size=(n, n))
    partial = np.triu(np.exp(-distance / 4) * size, 1)
    partial = partial + partial.T
    precision = np.eye(n) - 0.9 * partial / np.linalg.eigvalsh(partial).max()
    exact = half_masked(precision, rng)
    error = np.triu(rng.normal(0, noise, size=(n, n)), 1)
    read = exact + error + error.T
    strength = np.where(read > 2.5 * noise, read, 0.0)
    found: dict[str, Any] = {"nats": float(exact.sum() / 2)}
    for batches in (4, 8, 16):
        ways: dict[str, Callable[[], Plan]] = {
            "random": lambda k=batches: random_plan(None, k, rng, n, strength=strength),
            "in space": lambda k=batches: distance_plan(distance, k, rng, strength=strength),
            "pairs alone": lambda k=batches: by_pairs_alone(strength, k, rng),
            "auto": lambda k=batches: make_plan(strength, batches=k, rng=rng),
        }
        for name, way in ways.items():
            plans = [way() for _ in range(count)]
            here = found.setdefault(str(batches), {})
            here[name] = summary(plans, [gaussian_broken(precision, plan) for plan in plans])
            print("gaussian", noise, batches, name, here[name], flush=True)
    return found


def half_masked(precision: FloatArray, rng: np.random.Generator, draws: int = 40) -> FloatArray:
    """Information of pairs, averaged over contexts that mask both and half of the others."""
    total, seen = np.zeros_like(precision), np.zeros_like(precision)
    for _ in range(draws):
        masked = np.flatnonzero(rng.random(len(precision)) < 0.5)
        part = np.ix_(masked, masked)
        covariance = np.linalg.inv(precision[part])
        scale = np.sqrt(np.diag(covariance))
        squared = (covariance / scale / scale[:, None]) ** 2
        np.fill_diagonal(squared, 0.0)
        total[part] -= np.log1p(-squared) / 2
        seen[part] += 1
    return total / np.maximum(seen, 1)


def gaussian_broken(precision: FloatArray, plan: Plan) -> float:
    """Total correlation of each batch given those before it, summed."""
    total, left = 0.0, plan.positions
    for batch in plan.batches:
        rows = np.searchsorted(left, batch)
        covariance = np.linalg.inv(precision[np.ix_(left, left)])[np.ix_(rows, rows)]
        total += float(np.log(np.diag(covariance)).sum() - np.linalg.slogdet(covariance)[1]) / 2
        left = np.delete(left, rows)
    return total


def main() -> None:
    """Measure both parts, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--plans", type=int, default=16, help="plans of each kind")
    parser.add_argument("--json", type=Path, required=True)
    told = parser.parse_args()
    found = {
        "forests": forests(told.plans),
        "gaussian": {f"{noise:g}": gaussian(told.plans, noise) for noise in (0.0, 0.004)},
    }
    written = {"made": [made_now()], "plans": told.plans, **found}
    told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
