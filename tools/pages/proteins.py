"""ProteinMPNN: prices and rates in commit order, and prices and samplers by index order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rivals.published import marked

from pages.writing import count, markdown

__all__ = ["WAYS", "is_above", "priced", "protein_tables", "protein_values", "rate"]

Entry = Mapping[str, Any]
Tasks = Mapping[str, Any]

TIMED = "1ake"
TITLES = {"1ake": "1AKE", "1ubi": "1UBI"}
WAYS = {
    "planned": "planned", "distance": "apart in space", "spread": "apart in sequence",
    "random": "random",
}  # fmt: skip
# What was timed, and the price of each; one residue at a time breaks nothing.
RATES = {
    "colabdesign": ("ColabDesign, one residue at a time", None),
    "cached 16": ("16 batches, planned", "planned 16"),
    "cached distance 16": ("16 batches, apart in space", "distance 16"),
    "cached 8": ("8 batches, planned", "planned 8"),
    "cached distance 8": ("8 batches, apart in space", "distance 8"),
    "sequential": ("ours, one residue at a time", None),
    "package": ("the package's own sampler, one residue at a time", None),
}
DISTANCE = "distance"


def protein_tables(timed: Tasks, by_index: Tasks) -> dict[str, str]:
    """Return the tables by name.

    Parameters
    ----------
    timed : mapping
        Tasks of ``protein_speed.json``: one backbone, in commit order.
    by_index : mapping
        Tasks of ``proteins.json``, whose prices and samplers are by index order.
    """
    here = timed[TIMED]
    return {
        "protein-speed": _rates(here),
        "protein-ratios": _ratios(here["speed"]),
        "protein-commit": _prices({TIMED: here["commit"]}, (8, 16), ""),
        "protein-index": _prices(
            {task: parts["prices"] for task, parts in by_index.items()}, (4, 8, 16, 32), " product"
        ),
        "protein-samplers": _samplers(by_index),
    }


def protein_values(timed: Tasks) -> dict[str, Any]:
    """Return the least and the largest ratio of each way over sequences at once."""
    speed = timed[TIMED]["speed"].values()
    found: dict[str, Any] = {}
    for name in RATES:
        for rival, key in (("package", "ratio"), ("colabdesign", "to colabdesign ratio")):
            ratios = [entry[f"{name} {key}"] for entry in speed if f"{name} {key}" in entry]
            if ratios:
                found.setdefault(name, {})[rival] = {"least": min(ratios), "most": max(ratios)}
    compiling = [entry["colabdesign seconds to compile"] for entry in speed]
    found["compiling"] = {"least": min(compiling), "most": max(compiling)}
    found["waiting"] = {
        str(entry["at_once"]): entry["cached 16"] / entry["sequential"] for entry in speed
    }
    return found


def _rates(task: Mapping[str, Any]) -> str:
    lines = []
    for name, (shown, price) in RATES.items():
        broken = "0" if price is None else priced(task["commit"][price])
        rates = [rate(entry[name]) for entry in task["speed"].values()]
        lines.append([shown, broken, *rates])
    heading = ["designs of 1AKE", "nats broken a design", *_sizes(task["speed"])]
    return markdown(heading, lines)


def _ratios(speed: Mapping[str, Entry]) -> str:
    lines = []
    for name, (shown, _) in RATES.items():
        rows = [
            f"{_ratio(entry[name] / entry['package'])}, {entry[name] / entry['colabdesign']:.2f}"
            for entry in speed.values()
        ]
        lines.append([shown, *rows])
    return markdown(["times the package's rate, times ColabDesign's", *_sizes(speed)], lines)


def _sizes(speed: Mapping[str, Entry]) -> list[str]:
    return [f"{entry['at_once']:,} at once" for entry in speed.values()]


def _ratio(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"


def rate(value: float) -> str:
    """Write sequences a second."""
    return count(round(value)) if value >= 10 else f"{value:.1f}"


def _prices(tasks: Mapping[str, Mapping[str, Entry]], budgets: Sequence[int], end: str) -> str:
    """Write prices, bold what is not above the least of its row by two errors."""
    lines = []
    for task, prices in tasks.items():
        for batches in budgets:
            row = [prices[f"{way} {batches}{end}"] for way in WAYS]
            least = min(row, key=lambda price: price["kl"])
            cells = [priced(price, is_bold=not is_above(price, least)) for price in row]
            lines.append([TITLES[task], str(batches), *cells])
    return markdown(["", "batches", *WAYS.values()], lines)


def _samplers(tasks: Tasks) -> str:
    """Write every sampler; plans by distance have a price and were not drawn from there."""
    lines = []
    for task, parts in tasks.items():
        for name, entry in parts["samplers"].items():
            lines.append([TITLES[task], _named(name, entry), *_measured(entry)])
            if entry["sampler"] == "planned":
                batches = entry["settings"]["batches"]
                price = parts["prices"][f"{DISTANCE} {batches} product"]
                lines.append(
                    [TITLES[task], f"{WAYS[DISTANCE]}, {batches} batches", str(batches),
                     priced(price), "", "", ""]
                )  # fmt: skip
    heading = [
        "", "sampler", "evaluations a design", "batch KL, nats", "log-likelihood a residue", "p",
        "native residues",
    ]  # fmt: skip
    return markdown(heading, lines, left=2)


def _named(name: str, entry: Entry) -> str:
    settings = name.removeprefix(entry["sampler"]).strip()
    return marked(f"{entry['sampler']} {settings}".strip())


def _measured(entry: Entry) -> list[str]:
    return [
        count(round(entry["evaluations"], 1)),
        "" if entry["kl"] is None else priced(entry),
        f"{entry['log_likelihood']:.3f} ± {entry['log_likelihood_se']:.3f}",
        f"{entry['mmd_p']:.3f}",
        f"{entry['recovery']:.3f}",
    ]


def is_above(price: Entry, least: Entry) -> bool:
    """Whether a price is above another by two errors of their difference."""
    apart = float(price["kl"] - least["kl"])
    return apart > 2 * math.hypot(price["kl_se"], least["kl_se"])


def priced(price: Entry, *, is_bold: bool = False) -> str:
    """Write a price with its error."""
    if price["kl"] == 0:
        return "0"
    digits = 4 if price["kl"] < 0.01 else 3 if price["kl"] < 0.5 else 2
    kl = f"{price['kl']:.{digits}f}"
    return f"{f'**{kl}**' if is_bold else kl} ± {price['kl_se']:.{digits}f}"
