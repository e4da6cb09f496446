"""The evaluation: rows, discovery, structured samplers and their peers, the most telling first."""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import counterprobe as cp
from counterprobe.samplers.base import fixed_batches
from denoisers.claims import FEW, JUDGED
from denoisers.contestants import (
    BUDGETS,
    Contestant,
    Sizes,
    baselines,
    draw,
    peers,
    told_peers,
)
from denoisers.discovery import PROBES, QUICK_PROBES, edges_found, find_structure, screens
from denoisers.files import Trained, load
from denoisers.mixture import mixture
from denoisers.oracle import DenoiserOracle
from denoisers.row_errors import row_errors
from denoisers.scoring import Draws, Reference, score
from denoisers.store import Store

__all__ = ["PHASES", "Bench", "Phase", "chosen_phase", "evaluate", "mixture_phase"]

Say = Callable[[str], None]

# What is measured as a mixture: rules that decide before they see a token.
MIXED = ("sequential", "one-batch", "random-balanced", "spread", "ancestral")
# Nats that a plan may cost by its own estimate.
PRICES = (0.1, 0.3, 1.0)


@dataclass
class Bench:
    """One law with everything that measurements of it share.

    Parameters
    ----------
    trained : Trained
    sizes : Sizes
    store : Store
    probes : int
        What the structure that samplers use may cost.
    say : callable
        Told one line about each measurement.
    """

    trained: Trained
    sizes: Sizes
    store: Store
    probes: int
    say: Say
    oracle: DenoiserOracle = field(init=False)
    structure: Any = field(init=False, default=None)
    asked: tuple[int, ...] = field(init=False)
    budgets: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Prepare what is shared."""
        truth = self.trained.truth
        self.oracle = DenoiserOracle(self.trained)
        self.asked = tuple(budget for budget in BUDGETS if budget <= truth.length)
        self.budgets = tuple(budget for budget in self.asked if budget < truth.length)

    @functools.cached_property
    def reference(self) -> Reference:
        """Exact samples, for the measurements that need them."""
        return Reference.of(self.trained.truth, self.sizes.reference, self.sizes.entropy)

    @property
    def law(self) -> str:
        """Name of the law."""
        return self.trained.law

    def measure(self, part: str, key: str, work: Callable[[], dict[str, Any]]) -> None:
        """Measure unless that is done already; a failure is kept in place of the result."""
        if self.store.has(self.law, part, key):
            return
        started = time.perf_counter()
        try:
            found = work()
        except Exception as problem:  # the rest is still worth measuring
            traceback.print_exc()
            found = {"error": f"{type(problem).__name__}: {problem}"}
        found["seconds"] = time.perf_counter() - started
        self.store.add(self.law, part, key, found)
        self.say(f"{self.law} {part} {key}: {_in_short(found)}")

    def attempt(self, phase: Phase) -> None:
        """Go through a phase; whatever stops it stops no other."""
        try:
            phase(self)
        except Exception as problem:
            traceback.print_exc()
            error = f"{type(problem).__name__}: {problem}"
            self.store.add(self.law, "phases", phase.__name__, {"error": error})

    def contest(self, contestants: Iterable[Contestant], part: str = "samplers") -> None:
        """Draw from samplers and score them, plan by plan or as a mixture."""
        for contestant in contestants:

            def work(contestant: Contestant = contestant) -> dict[str, Any]:
                draws = draw(self.oracle, contestant)
                found = (
                    mixture(draws, self.oracle, self.trained.truth)
                    if part == "mixture"
                    else score(draws, self.trained, self.reference)
                )
                return {
                    "sampler": contestant.sampler,
                    "settings": contestant.settings,
                    "kind": contestant.kind,
                    **found,
                }

            self.measure(part, contestant.key, work)

    def find(self) -> None:
        """Discover the structure once; every structured sampler uses it."""
        self.structure = find_structure(self.oracle, self.probes)

    def structured(self, name: str, **settings: Any) -> Contestant:
        """Return a sampler that commits by the structure found; every seed has its own plan."""
        method = {"method": "layers"} if name == "layers" else {}
        rule = cp.samplers.as_sampler(self.structure, {**settings, **method})
        sizes = self.sizes
        return Contestant(name, settings, rule, "structured", sizes.orders, sizes.fixed)

    def layers(self) -> list[Contestant]:
        """Return the samplers that commit the structure layer by layer, at every budget."""
        return [self.structured("layers", batches=budget) for budget in self.asked]

    def plans(self) -> list[Contestant]:
        """Return the samplers that plan by strengths, at every budget and at some prices.

        A structure whose pairs explain little names no price.
        """
        prices = PRICES if self.names_prices else ()
        return [
            *(self.structured("planned", batches=budget) for budget in self.asked),
            *(self.structured("planned", target_kl=price) for price in prices),
        ]

    @property
    def names_prices(self) -> bool:
        """Whether plans can be asked for by their price."""
        untrusted = getattr(self.structure, "untrusted", None)  # a forest that is told has none
        return untrusted is None or 2 * len(untrusted) < len(self.structure.residual)


Phase = Callable[[Bench], None]


# ----- Phases, the most telling first -------------------------------------------------------


def rows_phase(bench: Bench) -> None:
    """How far rows are from the truth, and what the truth itself scores."""
    trained, sizes = bench.trained, bench.sizes
    bench.measure(
        "rows", "errors", lambda: {"rates": row_errors(trained.network, trained.truth, count=500)}
    )

    def exact() -> dict[str, Any]:
        generator = torch.Generator(trained.truth.device).manual_seed(12)
        tokens = trained.truth.sample(sizes.adaptive, generator).cpu().numpy()
        nothing = np.zeros(len(tokens), dtype=np.int64)
        draws = Draws(tokens, np.arange(len(tokens)), nothing, nothing, None)
        return {
            "sampler": "truth",
            "settings": {},
            "kind": "truth",
            "entropy": bench.reference.entropy,
            **score(draws, trained, bench.reference),
        }

    bench.measure("samplers", "truth", exact)


def structure_phase(bench: Bench) -> None:
    """Discovery at one price, then the samplers that use it."""

    def work() -> dict[str, Any]:
        bench.find()
        structure = bench.structure
        found = edges_found(structure.strength, structure.edges, bench.trained.truth.edges)
        decisions = cp.Streams(0, 0).decisions
        judged = [
            bench.structured(name, **settings)
            for name, settings in JUDGED
            if bench.names_prices or "target_kl" not in settings
        ]
        view = cp.run.Run(bench.oracle)
        fixed = [fixed_batches(one.rule, view, decisions) for one in judged]
        rounds = {0 if one is None else len(list(one.batches)) for one in fixed}
        return {**found, "evaluations": structure.ledger.evaluations, "rounds": sorted(rounds)}

    if bench.store.has(bench.law, "structure", "used"):
        bench.find()  # samplers that are still missing need it
    bench.measure("structure", "used", work)
    if bench.structure is not None:
        # Peers are also run at as many rounds as what is judged really takes.
        rounds = bench.store.part(bench.law, "structure").get("used", {}).get("rounds", [])
        few = {number for number in rounds if 1 < number < min(FEW + 1, bench.oracle.length)}
        bench.budgets = tuple(sorted({*bench.budgets, *few}))
        bench.contest(bench.layers())
        bench.contest(bench.plans())


def baseline_phase(bench: Bench) -> None:
    """One token at a time, random and spread batches."""
    bench.contest(baselines(bench.sizes, bench.budgets))


def discovery_phase(bench: Bench) -> None:
    """Probes against edges found, every estimator."""
    quick = bench.sizes == Sizes.quick()
    for screen in screens(QUICK_PROBES if quick else PROBES, seeds=1 if quick else 3):
        bench.measure(
            "discovery",
            screen.key,
            lambda screen=screen: screen.found_in(bench.oracle, bench.trained.truth.edges),
        )


def peer_phase(bench: Bench) -> None:
    """Rules that adapt to replies, then those that are told something of the law."""
    bench.contest(told_peers(bench.trained.truth, bench.sizes, bench.budgets))
    bench.contest(peers(bench.sizes, bench.budgets))


# Apart from the others: into files of their own.
def chosen_phase(keys: Collection[str]) -> Phase:
    """Return a phase that measures baselines and peers of these names and settings alone."""

    def chosen(bench: Bench) -> None:
        known = [*baselines(bench.sizes, bench.budgets), *peers(bench.sizes, bench.budgets)]
        unknown = set(keys) - {one.key for one in known}
        if unknown:
            raise ValueError(
                f"only must name samplers as the file does, got {sorted(unknown)}; there are "
                f"{sorted(one.key for one in known)}"
            )
        count = bench.sizes.adaptive
        bench.contest(replace(one, count=count) for one in known if one.key in keys)

    return chosen


def mixture_phase(bench: Bench) -> None:
    """Mix the plans of every sampler that has them before it sees a token."""
    fixed = [one for one in baselines(bench.sizes, bench.budgets) if one.sampler in MIXED]
    bench.contest(fixed, "mixture")
    bench.find()
    bench.contest([*bench.plans(), *bench.layers()], "mixture")


PHASES: tuple[Phase, ...] = (
    rows_phase,
    structure_phase,
    baseline_phase,
    discovery_phase,
    peer_phase,
)


def evaluate(
    laws: Iterable[str],
    folder: Path,
    store: Store,
    *,
    sizes: Sizes,
    probes: int,
    device: object,
    say: Say,
    phases: Iterable[Phase] = PHASES,
) -> None:
    """Measure every law, phase by phase: each phase of all laws before the next begins.

    Parameters
    ----------
    laws : iterable of str
    folder : Path
        Of the trained denoisers.
    store : Store
    sizes : Sizes
    probes : int
        What the structure that samplers use may cost.
    device : optional
    say : callable
        Told one line about each measurement.
    phases : iterable of callable
    """
    benches = [Bench(load(folder, law, device), sizes, store, probes, say) for law in laws]
    for phase in phases:
        for bench in benches:
            bench.attempt(phase)


def _in_short(found: dict[str, Any]) -> str:
    """Return the numbers of a measurement that people wait for."""
    shown = ("error", "found", "ranked", "declared", "true", "evaluations", "kl", "kl_se")
    parts = []
    for name in (*shown, "edge_distance", "seconds"):
        value = found.get(name)
        if value is not None:
            parts.append(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(parts)
