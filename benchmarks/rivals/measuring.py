"""Families, sizes and samplers, one cell after another; what is measured stays measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _results import plain, read_continued, write_results

import counterprobe as cp
from counterprobe.evaluation import dependence_profile
from counterprobe.run.ledger import Need
from counterprobe.samplers import PUNT, SAMPLERS, Packed, Sampler
from rivals.strongest import Found, search

__all__ = ["FAMILIES", "Plan", "Store", "measure_all"]

FAMILIES = ("two-type-path", "matching", "path", "binary-tree", "growing-stars")
# Its smallest feasible size is beyond any that is measured; the page shows its caps instead.
LEFT_OUT = ("packed-theory",)
# Beside every sampler at its strongest setting: one that never breaks a dependence it can see, and
# the paper's without any tuning.
FIXED: dict[str, Sampler] = {"punt epsilon=1e-9": PUNT(epsilon=1e-9), "packed defaults": Packed()}
# Evaluations a position, and at least, after which a run is stopped.
MOST_A_POSITION, MOST = 64, 32_768
# Rules that verify retry until a draft is accepted: what they cost varies more between runs.
MORE_RUNS = 4
# Sequences from which the dependence of a law is estimated where nothing exact is known.
LAW_SAMPLES = 8
# What a cell of twice the size takes, at most, times what this one took.
GROWTH = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Parameters
    ----------
    sizes : tuple of int
        Of the first family.
    other_sizes : tuple of int
        Of the other families.
    families : tuple of str
    accuracy : float
        Nats of mean batch KL that a setting must meet.
    runs : int
        Seeds of each setting.
    target_seed : int
    """

    sizes: tuple[int, ...] = (64, 128, 256, 512, 1024)
    other_sizes: tuple[int, ...] = (64, 128, 256, 512)
    families: tuple[str, ...] = FAMILIES
    accuracy: float = 0.1
    runs: int = 3
    target_seed: int = 196

    def sizes_of(self, family: str) -> tuple[int, ...]:
        """Return the sizes at which a family is measured."""
        return self.sizes if family == FAMILIES[0] else self.other_sizes

    @property
    def lasting(self) -> dict[str, Any]:
        """What every measurement depends on; sizes and families may be added later."""
        return {
            "accuracy": self.accuracy,
            "runs": self.runs,
            "target_seed": self.target_seed,
        }


class Store:
    """Cells by family, size and sampler, on disk after each.

    Parameters
    ----------
    file : Path or None
        A file of the same settings is continued.
    settings : dict
    """

    def __init__(self, file: Path | None, settings: dict[str, Any]) -> None:
        self.file = file
        self.settings = settings
        self.cells: dict[str, dict[str, Any]] = {}
        if file is not None and file.is_file():
            self.cells = read_continued(file, settings, "cells")

    @staticmethod
    def key(family: str, size: int, name: str) -> str:
        """Return the name of a cell."""
        return f"{family} {size} {name}"

    def has(self, key: str) -> bool:
        """Whether a cell was measured; one that was left out may be tried again."""
        return "left_out" not in self.cells.get(key, {"left_out": ""})

    def forget(self, names: Sequence[str]) -> None:
        """Drop every cell of some samplers, to be measured anew."""
        kept = self.cells.items()
        self.cells = {key: cell for key, cell in kept if key.split(" ", 2)[2] not in names}

    def add(self, key: str, value: dict[str, Any]) -> None:
        """Keep a cell, and write everything."""
        self.cells[key] = plain(value, 5)
        write_results(self.file, {"settings": self.settings, "cells": self.cells})


def measure_all(
    plan: Plan,
    store: Store,
    *,
    samplers: Sequence[str] | None = None,
    seconds: float = 60.0,
    say: Callable[[str], None],
) -> None:
    """Measure what is missing, small sizes first.

    Parameters
    ----------
    plan : Plan
    store : Store
    samplers : sequence of str, optional
        All of the registry by default.
    seconds : float
        A cell that would take longer, by what the size before took, is left out and says so.
    say : callable
        Told one line about each cell.
    """
    known_names = [*(name for name in SAMPLERS if name not in LEFT_OUT), *FIXED]
    names = [name for name in known_names if samplers is None or name in samplers]
    for family in plan.families:
        sizes = plan.sizes_of(family)
        for before, size in zip((None, *sizes), sizes, strict=False):
            missing = [n for n in names if not store.has(store.key(family, size, n))]
            law_key = store.key(family, size, "law")
            if not missing and law_key in store.cells:
                continue
            law = cp.families.build(family, size, plan.target_seed)
            if law_key not in store.cells:
                store.add(law_key, _law(law))
            for name in missing:
                key = store.key(family, size, name)
                smaller = store.cells.get(store.key(family, before or 0, name), {})
                foreseen = GROWTH * smaller.get("spent", 0.0)
                if foreseen > seconds or "left_out" in smaller:
                    reason = smaller.get("left_out", f"about {foreseen:.0f} s at {size}")
                    store.add(key, {"left_out": reason})
                    say(f"{key}: left out, {reason}")
                    continue
                store.add(key, _measured(law, name, plan, smaller.get("ascends")))
                say(f"{key}: {_line(store.cells[key])}")


def _measured(law: cp.ForestLaw, name: str, plan: Plan, ascends: bool | None) -> dict[str, Any]:
    """Measure one sampler on one law."""
    rule = FIXED.get(name) or SAMPLERS[name]()
    started = time.process_time()
    found = search(
        law,
        rule,
        range(1, plan.runs * (MORE_RUNS if rule.needs & Need.VERIFY else 1) + 1),
        accuracy=plan.accuracy,
        max_evaluations=max(MOST, MOST_A_POSITION * law.length),
        ascends=ascends,
        is_fixed=name in FIXED,
    )
    return {**_cell(found), "spent": time.process_time() - started}


def _law(law: cp.ForestLaw) -> dict[str, Any]:
    """Return how dependent a law is; the curve is of no use here."""
    profile = dependence_profile(law, samples=LAW_SAMPLES).as_dict()
    kept = ("tc", "dtc", "dtc_se", "effective_tc", "effective_tc_se", "method")
    reference = cp.evaluation.reference_kl(law)
    return {**{name: profile[name] for name in kept}, "reference_kl": reference}


def _cell(found: Found) -> dict[str, Any]:
    entry = found.comparison
    sampler = entry.sampler
    default = type(sampler)().settings
    return {
        "settings": {k: v for k, v in sampler.settings.items() if v != default[k]},
        "evaluations": entry.mean("evaluations"),
        "evaluations_without_selection": entry.mean("evaluations_without_selection"),
        "stages": entry.mean("stages"),
        "widest_stage": entry.mean("widest_stage"),
        "tokens_per_forward": entry.tokens_per_forward,
        "batch_kl": entry.batch_kl,
        "batch_kl_se": entry.batch_kl_se,
        "exact": entry.is_exact,
        "meets": found.meets,
        "needs": sampler.needs.names(),
        "knows": sampler.knows,
        "tried": found.tried,
        "ascends": found.ascends,
        "reason": entry.refusal,
        "failed": entry.problem is not None,
        "run_seconds": entry.seconds,
    }


def _line(cell: dict[str, Any]) -> str:
    if cell["evaluations"] is None:
        return f"nothing, {cell['reason']}"
    quality = "exact" if cell["exact"] else f"KL {cell['batch_kl']}"
    return (
        f"{cell['evaluations']} evaluations in {cell['stages']} stages, {quality}, "
        f"{'meets' if cell['meets'] else 'does not meet'} the accuracy, {cell['spent']:.1f} s"
    )
