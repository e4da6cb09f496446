"""Plans for a backbone, made once and kept beside it.

What a structure says does not depend on where it was found, and a plan takes a processor a tenth
of a second: both are made before a GPU is asked for, and carried to it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _results import plain

import counterprobe as cp
from counterprobe.models.proteins.proteinmpnn import InverseFolding
from counterprobe.planning import Plan
from designs.pricing import WAYS, make_plans

__all__ = ["FREE", "OWN", "PLANNED", "Prepared"]

# Batches by a structure found at temperature 1, or at the temperature that designs are drawn at.
PLANNED, OWN = "planned", "planned at 0.1"
FREE = tuple(way for way in WAYS if way != "planned")
TEMPERATURES = {PLANNED: 1.0, OWN: 0.1}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Plans of a backbone, and what they rest on.

    Attributes
    ----------
    structures : dict
        By way: evaluations, edges, total strength, and seconds that it took to find.
    rounds : dict
        By way and number of batches (``planned 16``): of every plan, which batch each residue is
        in.
    estimated : dict
        Likewise, what the structure says that each plan breaks, in nats.
    """

    structures: dict[str, dict[str, Any]]
    rounds: dict[str, list[list[int]]]
    estimated: dict[str, list[float]]

    def plans(self, way: str, batches: int) -> list[Plan]:
        """Return the plans of one way and number of batches."""
        key = f"{way} {batches}"
        return [
            Plan(_batches(np.asarray(rounds)), promised, np.nan, "search", 0.0, len(rounds))
            for rounds, promised in zip(self.rounds[key], self.estimated[key], strict=True)
        ]

    @classmethod
    def make(
        cls, model: InverseFolding, *, probes: int, count: int, batches: Sequence[int]
    ) -> Prepared:
        """Find the structures, and make so many plans of every way and number of batches."""
        made = cls({}, {}, {})
        for way, temperature in TEMPERATURES.items():
            started = time.perf_counter()
            oracle = model.oracle(temperature=temperature)
            found = cp.discover(oracle, cp.Streams.from_seed(0), mode="soft", probes=probes)
            made.structures[way] = {
                "temperature": temperature,
                "evaluations": found.ledger.evaluations,
                "edges": len(found.edges),
                "total_strength": float(found.strengths.nats.sum()),
                "seconds": time.perf_counter() - started,
            }
            for one in (way, *FREE) if way == PLANNED else (way,):
                kind = "planned" if one in TEMPERATURES else one
                for number in batches:
                    plans = make_plans(
                        kind, found, number, count, distances=model.backbone.distances
                    )
                    made.rounds[f"{one} {number}"] = [_rounds(plan) for plan in plans]
                    made.estimated[f"{one} {number}"] = [plan.estimated_kl for plan in plans]
        return made

    def save(self, file: Path) -> None:
        """Write it as JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {name: getattr(self, name) for name in ("structures", "rounds", "estimated")}
        file.write_text(json.dumps(plain(content)) + "\n")

    @classmethod
    def load(cls, file: Path) -> Prepared:
        """Read what was saved."""
        return cls(**json.loads(file.read_text()))


def _rounds(plan: Plan) -> list[int]:
    of_position = np.full(plan.length, -1)
    for number, batch in enumerate(plan.batches):
        of_position[batch] = number
    return [int(number) for number in of_position]


def _batches(rounds: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(np.flatnonzero(rounds == k) for k in range(int(rounds.max()) + 1))
