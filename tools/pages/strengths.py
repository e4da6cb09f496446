"""Strengths and plans: what the soft screen finds, and prices beside what is broken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pages.writing import markdown

__all__ = ["message_tables", "nearness_tables", "planning_tables", "price_tables", "soft_tables"]

LAWS = {"path": "path", "tree": "binary tree", "stars": "eight stars of eight"}
PROBES = (64, 128, 256)
FORESTS = {
    "path": "path",
    "binary-tree": "binary tree",
    "random-recursive-tree": "random recursive tree",
}


def soft_tables(figures: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of the soft screen, by name."""
    lines = []
    for law, shown in LAWS.items():
        for probes in PROBES:
            found = figures[f"{law}_{probes}"]
            numbers = [found[name] for name in ("weakest_edge", "strongest_other", "noise_floor")]
            apart = f"{found['apart']} of {found['of']}"
            shares = [f"{number:.3f}" for number in numbers]
            lines.append([shown, str(probes), apart, *shares, f"{found['explained']:.2f}"])
    heading = [
        "law", "probes", "apart", "weakest edge", "strongest other pair", "noise floor",
        "explained",
    ]  # fmt: skip
    return {"soft": markdown(heading, lines)}


def message_tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of three readings of the same probes, by name."""
    priced = []
    for model, by_probes in measured.get("models", {}).items():
        for probes, ways in by_probes.items():
            for way, one in ways.items():
                nats = f"{one['plan_nats']:.2f} ± {one['plan_nats_se']:.2f}"
                shown = [model, way, str(int(probes) + 1), f"{one['ranked']:.0f}"]
                priced.append([*shown, f"{one['declared']:.0f}", nats, f"{one['explained']:.2f}"])
    lines = []
    for law, by_probes in measured["laws"].items():
        for probes, ways in by_probes.items():
            for way, one in ways.items():
                counts = [f"{one[name]:.1f}" for name in ("ranked", "found", "declared")]
                shown = [law, way, str(int(probes) + 1), f"{one['true']:.0f}"]
                lines.append([*shown, *counts, f"{one['explained']:.2f}"])
    heading = [
        "denoiser", "masked sources", "evaluations", "true edges", "among the strongest pairs",
        "among the declared", "declared", "explained",
    ]  # fmt: skip
    of_models = [
        "model", "masked sources", "evaluations", "of the strongest pairs", "declared",
        "nats of plans", "explained",
    ]  # fmt: skip
    return {
        "soft-messages": markdown(heading, lines, left=2),
        "soft-messages-models": markdown(of_models, priced, left=2),
    }


def planning_tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables of prices, by name: forests in four batches, and a Gaussian law."""
    forests = [
        [
            shown,
            _both(here["random"]),
            _broken(here["pairs alone"]),
            _both(here["auto"]),
        ]
        for family, shown in FORESTS.items()
        for here in [measured["forests"][family]["4"]]
    ]
    gaussian = [
        [
            batches,
            *(f"{here[way]['broken']:.2f}" for way in ("random", "in space", "pairs alone")),
            f"{here['auto']['estimated']:.2f}, {here['auto']['broken']:.2f}",
        ]
        for batches, here in measured["gaussian"]["0"].items()
        if batches != "nats"
    ]
    of_forests = [
        "law", "random: estimated, measured", "searched by pairs alone, equal sizes, random order",
        "plan: estimated, measured",
    ]  # fmt: skip
    of_gaussian = [
        "batches", "random", "apart in space", "pairs alone", "plan: estimated, measured",
    ]  # fmt: skip
    return {
        "planning-forests": markdown(of_forests, forests),
        "planning-gaussian": markdown(of_gaussian, gaussian),
    }


MODELS = {"proteinmpnn": "ProteinMPNN", "frame2seq": "Frame2seq"}
READ = {"scaled": "temperature 1, divided", "rows": "that temperature"}


def price_tables(measured: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of prices at design temperatures: promised, held out and true."""
    lines = []
    for model, shown in MODELS.items():
        for backbone, temperatures in measured.get(model, {}).items():
            for temperature in sorted(temperatures, key=float, reverse=True):
                for batches, here in temperatures[temperature]["batches"].items():
                    task = [f"{shown}, {backbone.upper()}", temperature, batches]
                    lines += [
                        [
                            *task,
                            READ[kind] if float(temperature) < 1 else "1",
                            _nats(price["promised"]),
                            f"{_nats(price['held_out'])} ± {_nats(price['held_out_se'])}",
                            _nats(price["uncovered"]),
                            _nats(price["true"])
                            if price["true"] is None
                            else f"{_nats(price['true'])} ± {_nats(price['true_se'])}",
                            _nats(here["random"]["true"]),
                        ]
                        for kind, price in here.items()
                        if kind in READ
                    ]
    heading = [
        "model", "temperature", "batches", "rows read at", "promised", "held out", "not covered",
        "true", "random, true",
    ]  # fmt: skip
    return {"plan-prices": markdown(heading, lines)}


def nearness_tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the table of plans that know what is near, beside those that do not."""
    ways = {
        "planned": "strengths and nearness",
        "strengths alone": "strengths alone",
        "distance": "apart in space",
    }
    lines = [
        [
            row["task"].upper(),
            str(row["batches"]),
            *(f"{row[way]:.4f} ± {row[f'{way} se']:.4f}" for way in ways),
        ]
        for row in rows
    ]
    return {"nearness": markdown(["backbone", "batches", *ways.values()], lines)}


def _nats(value: float | None) -> str:
    if value is None:
        return "infinite"
    return f"{value:.{1 if value >= 9.95 else 2 if value >= 0.995 else 3}f}"


def _broken(price: Mapping[str, float]) -> str:
    digits = 2 if price["broken"] >= 0.1 else 3
    return f"{price['broken']:.{digits}f} ± {price['broken_se']:.{digits}f}"


def _both(price: Mapping[str, float]) -> str:
    digits = 2 if price["estimated"] >= 0.1 else 3
    return f"{price['estimated']:.{digits}f}, {_broken(price)}"
