"""What is claimed of designs, and whether the measurements bear it out.

A difference counts when it is larger than two standard errors of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = [
    "antibody_claims",
    "backbone_claims",
    "differs",
    "is_larger",
    "judged_claims",
    "protein_claims",
]

Entry = Mapping[str, Any]
Tasks = Mapping[str, Mapping[str, Mapping[str, Entry]]]
Claim = dict[str, Any]

# The level of a permutation test that tells two sets of sequences apart.
LEVEL = 0.01
# How many times the package's own rate designs are to reach, by sequences at once.
SPEEDUPS = {1: 10, 8: 10, 64: 10, 256: 5, 512: 3, 1024: 3}
# Rules that a plan is set against, by the names they are claimed under.
RIVALS = {
    "random": ("random-balanced",),
    "confidence": ("llada", "maskgit"),
    "entropy-bounded": ("entropy-bounded",),
    "punt": ("punt",),
}


def differs(one: Entry, other: Entry, key: str) -> bool:
    """Whether two measurements differ beyond two standard errors of their difference."""
    return abs(one[key] - other[key]) > 2 * _error(one, other, key)


def is_larger(one: Entry, other: Entry, key: str) -> bool:
    """Whether a measurement is beyond doubt larger than another."""
    return bool(one[key] - other[key] > 2 * _error(one, other, key))


def _error(one: Entry, other: Entry, key: str) -> float:
    return math.hypot(one.get(f"{key}_se") or 0.0, other.get(f"{key}_se") or 0.0)


def _measured(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    return {key: entry for key, entry in entries.items() if "error" not in entry}


# ----- Proteins -----------------------------------------------------------------------------


def protein_claims(tasks: Tasks) -> list[Claim]:
    """Judge what is claimed of adenylate kinase."""
    parts = {name: _measured(found) for name, found in tasks.get("1ake", {}).items()}
    used = parts.get("structure", {}).get("used")
    found: list[Claim] = []
    if used is not None:
        probes = used["evaluations"]
        found.append(
            {
                "claim": "1ake: at most 300 probes",
                "evaluations": probes,
                "holds": probes <= 300,
            }
        )
    for direction in ("product", "joint"):
        found += _price_claims(parts.get("prices", {}), direction)
    for at_once, times in SPEEDUPS.items():
        timed = parts.get("speed", {}).get(str(at_once))
        if timed is not None and "cached 16 ratio" in timed:
            found.append(
                {
                    "claim": f"1ake: 16 batches with kept states, {at_once} at once, at least "
                    f"{times} times the package's own sampler",
                    "ratio": timed["cached 16 ratio"],
                    "holds": timed["cached 16 ratio"] >= times,
                }
            )
    return found


def _price_claims(prices: Mapping[str, Entry], direction: str) -> list[Claim]:
    found = []
    for batches, most in ((8, 0.45), (16, 0.2)):
        planned = prices.get(f"planned {batches} {direction}")
        if planned is None:
            continue
        found.append(
            {
                "claim": f"1ake, {direction}: planned in {batches} at most {most} nats, known to "
                "0.03",
                "kl": planned["kl"],
                "kl_se": planned["kl_se"],
                "holds": planned["kl"] <= most and planned["kl_se"] <= 0.03,
            }
        )
        random = prices.get(f"random {batches} {direction}")
        if batches == 8 and random is not None:
            found.append(
                {
                    "claim": f"1ake, {direction}: planned in 8 at most a sixth of random",
                    "planned": planned["kl"],
                    "random": random["kl"],
                    "holds": planned["kl"] <= random["kl"] / 6,
                }
            )
    return found


# ----- Twelve backbones -------------------------------------------------------------------

# Nats that sixteen planned batches are to break at most, and how many times ColabDesign's rate
# they are to reach, by sequences at once.
MOST_BROKEN = 0.1
TIMES_COLABDESIGN = {64: 4, 1024: 3}


def backbone_claims(tasks: Tasks) -> list[Claim]:
    """Judge what is claimed of every backbone; one that was not measured bears nothing out."""
    found: list[Claim] = []
    for part in ("commit 1", "commit 0.1"):
        priced = {name: _measured(parts.get(part, {})) for name, parts in tasks.items()}
        temperature = part.split()[1]
        for batches in (8, 16):
            for way in ("random", "distance"):
                lower, higher = (
                    [name for name, one in priced.items() if _is_lower(one, *pair)]
                    for pair in (
                        (f"planned {batches}", f"{way} {batches}"),
                        (f"{way} {batches}", f"planned {batches}"),
                    )
                )
                found.append(
                    {
                        "claim": f"temperature {temperature}: planned in {batches} breaks less "
                        f"than {way} batches, on every backbone",
                        "backbones": len(tasks),
                        "less": len(lower),
                        "more": len(higher),
                        "more on": ", ".join(higher),
                        "holds": bool(tasks) and len(lower) == len(tasks),
                    }
                )
        within = [n for n, one in priced.items() if _is_within(one.get("planned 16"))]
        found.append(
            {
                "claim": f"temperature {temperature}: planned in 16 breaks at most {MOST_BROKEN} "
                "nats, on every backbone",
                "backbones": len(tasks),
                "within": len(within),
                "holds": bool(tasks) and len(within) == len(tasks),
            }
        )
    for at_once, times in TIMES_COLABDESIGN.items():
        timed = {name: _measured(parts.get("speed", {})) for name, parts in tasks.items()}
        ratios = [
            one.get(str(at_once), {}).get("cached 16 to colabdesign ratio")
            for one in timed.values()
        ]
        known = [ratio for ratio in ratios if ratio is not None]
        found.append(
            {
                "claim": f"planned in 16, {at_once} at once: at least {times} times ColabDesign's "
                "rate, on every backbone",
                "measured on": len(known),
                "least": min(known, default=None),
                "most": max(known, default=None),
                "holds": len(known) == len(tasks) > 0 and min(known) >= times,
            }
        )
    return found


def _is_lower(prices: Mapping[str, Entry], one: str, other: str) -> bool:
    return one in prices and other in prices and is_larger(prices[other], prices[one], "kl")


def _is_within(price: Entry | None) -> bool:
    return price is not None and bool(price["kl"] <= MOST_BROKEN)


# ----- Antibodies ---------------------------------------------------------------------------


def antibody_claims(tasks: Tasks) -> list[Claim]:
    """Judge what is claimed of AntiBERTy on loops and on a random half."""
    found: list[Claim] = []
    loops = _measured(tasks.get("antiberty loops", {}).get("samplers", {}))
    planned, alone = loops.get("planned batches=8"), loops.get("sequential order=random")
    if planned is not None and alone is not None:
        found += _loop_claims(loops, planned, alone)
    for task, parts in tasks.items():
        if task.startswith("antiberty random half"):
            for direction in ("product", "joint"):
                found += _half_claims(task, _measured(parts.get("prices", {})), direction)
    return found


def _half_claims(task: str, prices: Mapping[str, Entry], direction: str) -> list[Claim]:
    """Judge the plan of six batches against the ways without structure."""
    found: list[Claim] = []
    ours = prices.get(f"planned 6 {direction}")
    for way in ("spread", "random"):
        other = prices.get(f"{way} 6 {direction}")
        if ours is not None and other is not None:
            found.append(
                {
                    "claim": f"{task}, {direction}: planned in 6 at most a third of {way}'s "
                    "batch KL",
                    "planned": ours["kl"],
                    "planned_se": ours["kl_se"],
                    way: other["kl"],
                    f"{way}_se": other["kl_se"],
                    "holds": ours["kl"] <= other["kl"] / 3,
                }
            )
    return found


def _loop_claims(samplers: Mapping[str, Entry], planned: Entry, alone: Entry) -> list[Claim]:
    """Judge the plan of eight batches by itself, then each rival."""
    found: list[Claim] = [
        {
            "claim": "loops: log-likelihood of planned in 8 does not differ from sequential's",
            "planned": planned["log_likelihood"],
            "sequential": alone["log_likelihood"],
            "error": _error(planned, alone, "log_likelihood"),
            "holds": not differs(planned, alone, "log_likelihood"),
        },
        {
            "claim": f"loops: planned in 8 passes the test against sequential at {LEVEL}",
            "mmd_p": planned["mmd_p"],
            "holds": planned["mmd_p"] >= LEVEL,
        },
    ]
    for rival, names in RIVALS.items():
        for entry in _at_least_as_dear(samplers, names, planned["evaluations"]):
            fails = {
                "log-likelihood": differs(entry, alone, "log_likelihood"),
                "test": entry["mmd_p"] < LEVEL,
                "batch KL": entry["kl"] is not None and is_larger(entry, planned, "kl"),
            }
            found.append(
                {
                    "claim": f"loops: {rival} with as many evaluations or more is worse",
                    "sampler": entry["sampler"],
                    "evaluations": entry["evaluations"],
                    "by": [name for name, does in fails.items() if does],
                    "holds": any(fails.values()),
                }
            )
    return found


def _at_least_as_dear(
    samplers: Mapping[str, Entry], names: tuple[str, ...], evaluations: float
) -> list[Entry]:
    """Return, of each name, the cheapest setting that is no cheaper than the plan."""
    found = []
    for name in names:
        mine = [
            entry
            for entry in samplers.values()
            if entry["sampler"] == name and entry["evaluations"] >= 0.99 * evaluations
        ]
        if mine:
            found.append(min(mine, key=lambda entry: entry["evaluations"]))
    return found


# ----- Judged by another model --------------------------------------------------------------


def judged_claims(tasks: Tasks) -> list[Claim]:
    """Judge what is claimed of few batches, of all tasks at temperature 1 together."""
    measured = {
        name: _measured(parts.get("ways", {}))
        for name, parts in tasks.items()
        if name.endswith("T=1")
    }
    claims = (
        ("four planned batches break less than one pass", "planned 4", "one-batch", "kl", True),
        ("the judge prefers four planned batches to one pass", "one-batch", "planned 4", "judge",
         True),
        ("four planned batches break less than four random ones", "planned 4", "random 4", "kl",
         True),
        ("the judge does not tell eight planned batches from one at a time", "planned 8",
         "sequential", "judge", False),
    )  # fmt: skip
    found = []
    for text, low, high, key, is_apart in claims:
        both = [(ways[low], ways[high]) for ways in measured.values() if {low, high} <= set(ways)]
        if not both:
            continue
        if is_apart:
            number = sum(is_larger(more, less, key) for less, more in both)
        else:
            number = sum(not differs(one, other, key) for one, other in both)
        found.append(
            {"claim": text, "holds": number == len(both), "tasks": number, "of": len(both)}
        )
    return found
