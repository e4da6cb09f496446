"""Prices of plans beside what they break: promised, held out and true, at design temperatures.

    python benchmarks/plan_prices.py [--models proteinmpnn,frame2seq] [--backbones 1ubi,1ake]
        [--temperatures 1,0.3,0.1] [--batches 4,8] [--probes 256] [--plans 4] [--samples 64]
        [--device cpu] [--json FILE]

For every model, backbone and temperature a structure is found twice: as the library does, which
below temperature 1 reads rows of temperature 1 and divides strengths by the temperature
(``scaled``), and from the rows of that temperature alone (``rows``). Plans of either have three
prices: by the strengths that chose them (``promised``), by probes that did not (``held out``, with
what pairs do not cover beside it), and the true one, measured on samples under the model's own
law: ProteinMPNN in commit order, Frame2seq by its chain rule. Random batches stand beside. Every
entry is written when it is known. A file is continued: what it has with the same settings is kept,
other numbers of batches are added to it, and what was measured with other settings is replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _results import plain, run_program, write_results
from designs.pricing import make_plans

import counterprobe as cp
from counterprobe.evaluation import plan_kl
from counterprobe.oracles import Query, Reply, Wrapper
from counterprobe.planning import price_of_batches
from counterprobe.tempered import TemperedRows

# Numbers of batches; an evaluation of Frame2seq is a full pass.
BATCHES = {"proteinmpnn": (4, 8, 16), "frame2seq": (4, 8)}
# Steps of each batch that are expanded where rows do not depend on the order of commits.
TERMS = 1


class ColdRows(Wrapper):
    """An oracle of whose rows nothing but their own temperature is known."""

    def ask(self, query: Query) -> Reply:
        """Ask, and leave out the rows of temperature 1."""
        reply = self.inner.ask(query)
        rows = reply.rows
        return Reply(rows.law if isinstance(rows, TemperedRows) else rows)


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    probes: int
    plans: int
    samples: int
    seed: int


def priced(
    oracle: cp.Oracle, structure: cp.Structure, way: str, batches: int, settings: Settings
) -> dict[str, Any]:
    """Return every price of plans of one way."""
    plans = make_plans(way, structure, batches, settings.plans, seed=settings.seed)
    found: dict[str, Any] = {"evaluations": np.mean([len(plan) for plan in plans])}
    if way == "planned":
        # As a search reads them, and back in nats of this temperature.
        unit = structure.halves.temperature if structure.halves is not None else 1.0
        strength = unit * structure.strength
        promised = [price_of_batches(strength, plan.batches) / unit for plan in plans]
        found |= {
            "promised": np.mean(promised),
            "held_out": plans[0].estimated_kl,
            "held_out_se": plans[0].estimated_kl_se,
            "uncovered": np.mean([plan.uncovered for plan in plans]),
        }
    else:
        halves = structure.halves
        assert halves is not None
        by_pairs = [halves.mean_price(plan.batches) for plan in plans]
        found |= {
            "held_out": np.mean([price.nats for price in by_pairs]),
            "held_out_se": np.mean([price.error for price in by_pairs]),
            "uncovered": np.mean([structure.coverage.uncovered(plan.batches) for plan in plans]),
        }
    terms = None if cp.oracles.depends_on_order(oracle) else TERMS
    true = plan_kl(
        oracle, plans, samples=settings.samples, terms=terms, seed=settings.seed + 1, at_once=64
    )
    return found | {"true": true.value, "true_se": true.standard_error}


def measure(
    model: Any, name: str, temperature: float, counts: Sequence[int], settings: Settings
) -> dict[str, Any]:
    """Return the prices of one model on one backbone at one temperature, by number of batches."""
    probed = model.oracle(temperature=temperature)
    in_order = {"order": "commit"} if name == "proteinmpnn" else {}
    drawn = model.oracle(temperature=temperature, **in_order)
    oracles = {"scaled": probed}
    if temperature < 1:
        oracles["rows"] = ColdRows(probed)
    streams = cp.Streams.from_seed(settings.seed)
    structures = {
        kind: cp.discover(oracle, streams, mode="soft", probes=settings.probes)
        for kind, oracle in oracles.items()
    }
    found: dict[str, Any] = {}
    for batches in counts:
        here = {
            kind: priced(drawn, structure, "planned", batches, settings)
            for kind, structure in structures.items()
        }
        here["random"] = priced(drawn, structures["scaled"], "random", batches, settings)
        found[str(batches)] = here
    return found


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default="proteinmpnn,frame2seq")
    parser.add_argument("--backbones", default="1ubi,1ake")
    parser.add_argument("--temperatures", default="1,0.3,0.1")
    parser.add_argument("--batches", help="numbers of batches in place of those of the model")
    parser.add_argument("--probes", type=int, default=256)
    parser.add_argument("--plans", type=int, default=4)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, default=None)
    return parser.parse_args(words)


def run(args: argparse.Namespace) -> int:
    """Measure everything that a file does not have yet."""
    settings = Settings(args.probes, args.plans, args.samples, 0)
    measured: dict[str, Any] = {}
    if args.json is not None and args.json.is_file():
        measured = json.loads(args.json.read_text())["prices"]
    for name in args.models.split(","):
        for backbone in args.backbones.split(","):
            here = measured.setdefault(name, {}).setdefault(backbone, {})
            counts = BATCHES[name]
            if args.batches is not None:
                counts = tuple(int(word) for word in args.batches.split(","))
            model = None
            for temperature in args.temperatures.split(","):
                known = here.get(temperature, {})
                if not asdict(settings).items() <= known.items():
                    known = {}
                had = known.get("batches", {})
                wanted = [count for count in counts if str(count) not in had]
                if not wanted:
                    continue
                started = time.perf_counter()
                model = model or cp.models.load(name, backbone=backbone, device=args.device)
                found = measure(model, name, float(temperature), wanted, settings)
                merged = sorted({**had, **plain(found)}.items(), key=lambda item: int(item[0]))
                here[temperature] = {
                    "length": len(model.backbone),
                    **asdict(settings),
                    "batches": dict(merged),
                    "seconds": plain(known.get("seconds", 0) + time.perf_counter() - started),
                }
                print(name, backbone, temperature, here[temperature], flush=True)
                write_results(args.json, {"prices": measured})
    return 0


if __name__ == "__main__":
    sys.exit(run_program(parsed, run))
