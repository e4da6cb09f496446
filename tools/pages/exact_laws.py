"""Samplers on laws that are known exactly: one sequence, and each of a hundred."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from pages.writing import broken, count, markdown

__all__ = ["FAMILIES", "law_tables", "law_values"]

Sources = Mapping[str, Any]

FAMILIES = ("matching", "path", "binary-tree", "growing-stars")
HUNDRED = {
    "compressed": "`compressed`",
    "punt": "`punt epsilon=1e-9`†",
    "packed": "`packed`, defaults",
    "packed-strict": "`packed`, as the study froze it",
}
FIRST = {
    "compressed": "`compressed` (ours: discovers, then commits in layers)",
    "punt": "`punt`†, epsilon 1e-9 (tests every sequence anew)",
    "packed-strict": "`packed` (the paper's, as its protocol tuned it)",
    "packed": "`packed`, default settings",
    "sequential": "`sequential` (one token at a time)",
    "random-few": "`random-balanced`, 256 batches (free)",
    "random-balanced": "`random-balanced`, 4,096 batches (free)",
    "one-batch": "`one-batch` (everything at once)",
}


def law_tables(sources: Sources) -> dict[str, str]:
    """Return the tables by name."""
    return {
        "first-screen": _first_screen(sources["peers-16384"]),
        "hundred": _hundred(sources["peers-16384"]),
        "compressed-draws": _draws(sources["compressed-draws"]),
        "side-by-side": _side_by_side(sources["side-by-side"]),
        "masking-again": _masking_again(sources["masking-again"]),
    }


def law_values(sources: Sources) -> dict[str, Any]:
    """Return the numbers of the prose: extremes over families, and what ``auto`` keeps to."""
    laws = {family: sources["peers-16384"][family] for family in FAMILIES}
    extremes = {
        name: {
            f"{end}_{what}": pick(laws[family][name][what] for family in FAMILIES)
            for what in ("evaluations", "stages", "each", "stages_of_each", "seconds")
            for end, pick in (("least", min), ("most", max))
        }
        for name in HUNDRED
    }
    return {"laws": extremes, "auto_laws": _auto(sources["auto"]["laws"]["0.1"], 0.1)}


def _auto(measured: Mapping[str, Any], target: float) -> dict[str, Any]:
    """Return what ``auto`` loses on random laws, and takes where it kept to its target before."""
    drawn = [cell for name, cell in measured.items() if name.startswith("attack")]
    kept = [
        cell["evaluations"] / cell["before"]["evaluations"]
        for name, cell in measured.items()
        if name.startswith(("independent", "path", "star")) and cell["before"]["kl"] <= target
    ]
    more = [cell["evaluations"] / cell["before"]["evaluations"] for cell in drawn]
    return {
        "random": len(drawn),
        "within": sum(cell["kl"] <= 1.5 * target for cell in drawn),
        "within_before": sum(cell["before"]["kl"] <= 1.5 * target for cell in drawn),
        "largest": max(cell["kl"] for cell in drawn) / target,
        "evaluations": float(np.median(more)),
        "kept_least": min(kept),
        "kept_most": max(kept),
    }


def _first_screen(measured: Mapping[str, Any]) -> str:
    rows = [
        [
            shown,
            count(cell["evaluations"]),
            count(cell["stages"]),
            count(round(cell["each"])),
            broken(cell["batch_kl"], cell["batch_kl_se"]),
        ]
        for name, shown in FIRST.items()
        for cell in [measured["path"][name]]
    ]
    heading = [
        "sampler", "one sequence", "its sequential stages", f"each of {measured['count']}",
        "batch KL (0: no dependence broken)",
    ]  # fmt: skip
    return markdown(heading, rows)


def _hundred(measured: Mapping[str, Any]) -> str:
    rows = [
        [
            family,
            shown,
            count(cell["evaluations"]),
            count(cell["stages"]),
            broken(cell["batch_kl"], cell["batch_kl_se"]),
            _each(cell, measured["count"]),
            f"{cell['stages_of_each']:.0f}",
        ]
        for family in FAMILIES
        for name, shown in HUNDRED.items()
        for cell in [measured[family][name]]
    ]
    heading = [
        "law", "sampler", "one sequence: evaluations", "stages", "batch KL",
        f"each of {measured['count']}: evaluations", "stages, side by side",
    ]  # fmt: skip
    return markdown(heading, rows, left=2)


def _each(cell: Mapping[str, Any], asked: int) -> str:
    """Write what each of many costs, and of how many where these are fewer than asked for."""
    of = cell.get("each_of", asked)
    return count(cell["each"]) + (f" (of {of})" if 1 < of < asked else "")


def _draws(measured: Mapping[str, Any]) -> str:
    rows = []
    for assume, family in itertools.product(("tested", "generic"), FAMILIES):
        runs = [
            row for row in measured["rows"] if row["family"] == family and row["assume"] == assume
        ]
        totals = [row["evaluations"] for row in runs]
        means = [np.mean([row[name] for row in runs]) for name in ("probes", "commits", "stages")]
        exact = sum(row["batch_kl"] == 0 for row in runs)
        rows.append(
            [
                assume,
                family,
                f"{np.mean(totals):.1f}",
                f"{min(totals)}-{max(totals)}",
                *(f"{mean:.1f}" for mean in means),
                f"{exact} of {len(runs)}",
            ]
        )
    heading = ["assumed", "family", "mean evaluations", "range", "probes", "commits", "stages"]
    heading.append("batch KL 0")
    return markdown(heading, rows)


def _side_by_side(measured: Mapping[str, Any]) -> str:
    rows = [
        [f"`{name}`", *(count(cell[what]) for what in
         ("evaluations", "evaluations_together", "calls", "calls_together"))]
        for name, cell in measured["samplers"].items()
    ]  # fmt: skip
    heading = [
        "sampler", "evaluations, one by one", "side by side", "oracle calls, one by one",
        "side by side",
    ]  # fmt: skip
    return markdown(heading, rows)


def _masking_again(measured: Mapping[str, Any]) -> str:
    rows = [
        [law, steps, *(f"{distance:.4f}" for distance in by_eta.values())]
        for law, by_steps in measured["distances"].items()
        for steps, by_eta in by_steps.items()
    ]
    etas = next(iter(next(iter(measured["distances"].values())).values()))
    names = ["ancestral" if float(eta) == 0 else f"`eta={eta}`" for eta in etas]
    return markdown(["law", "steps", *names], rows)
