"""What is claimed of learned denoisers, and whether the measurements bear it out.

Two structured samplers are judged, with the same settings on every law: layers of the structure
found in at most eight rounds, and plans that may cost 0.3 nats by their own estimate. Both were
settled on after a look at a few hundred sequences of each forest, so that the claims were not made
blind. A difference counts when it is larger than two standard errors of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["claims", "figures", "structured"]

Entry = Mapping[str, Any]
Laws = Mapping[str, Mapping[str, Mapping[str, Entry]]]

# Evaluations of what is judged, at most.
FEW = 8
JUDGED: tuple[tuple[str, dict[str, float]], ...] = (
    ("layers", {"batches": FEW}),
    ("planned", {"target_kl": 0.3}),
)
# Probes within which most edges have to be found.
ENOUGH_PROBES = 200


def structured(samplers: Mapping[str, Entry]) -> list[Entry]:
    """Return the structured samplers that are judged, as far as they were measured."""
    return [
        entry
        for name, settings in JUDGED
        for entry in samplers.values()
        if entry.get("sampler") == name
        and entry["settings"] == settings
        and entry.get("kl") is not None
    ]


def sequential(samplers: Mapping[str, Entry]) -> Entry | None:
    """Return one token at a time, the mean over random orders."""
    return next(
        (
            entry
            for entry in samplers.values()
            if entry.get("sampler") == "sequential" and entry.get("kind") == "baseline"
        ),
        None,
    )


def claims(laws: Laws) -> list[dict[str, Any]]:
    """Return each claim with its numbers, and whether it holds."""
    found = []
    for law in ("path", "tree", "stars"):
        parts = laws.get(law, {})
        found += _discovery(law, parts.get("discovery", {}).values())
        samplers = parts.get("samplers", {})
        alone = sequential(samplers)
        if alone is not None and alone.get("kl") is not None:
            for ours in structured(samplers):
                found += [
                    _against_one_at_a_time(law, ours, alone),
                    _against_peers(law, ours, samplers),
                ]
    return found


def _against_one_at_a_time(law: str, ours: Entry, alone: Entry) -> dict[str, Any]:
    """Judge a structured sampler against one token at a time, the mean over random orders."""
    room = 1.2 if law == "path" else 1.0
    closeness = "1.2 times the KL" if law == "path" else "the KL"
    is_close = ours["kl"] <= room * alone["kl"] + 2 * _error(ours, alone, "kl_se")
    return {
        "claim": f"{law}: {ours['sampler']} in at most {FEW} evaluations has at most {closeness} "
        "of one token at a time",
        "structured": ours["kl"],
        "evaluations": ours["evaluations"],
        "sequential": alone["kl"],
        "holds": is_close and ours["evaluations"] <= FEW,
    }


def _against_peers(law: str, ours: Entry, samplers: Mapping[str, Entry]) -> dict[str, Any]:
    """Judge a structured sampler against every peer that spends no more."""
    better = [
        " ".join([entry["sampler"], *(f"{k}={v}" for k, v in entry["settings"].items())])
        for entry in samplers.values()
        if entry.get("kind") in ("peer", "baseline")
        and entry["evaluations"] <= 1.01 * ours["evaluations"]
        and not _is_worse(entry, ours)
    ]
    return {
        "claim": f"{law}: every peer within the {ours['evaluations']:.3g} evaluations of "
        f"{ours['sampler']} is worse",
        "not_worse": better,
        "holds": not better,
    }


def _discovery(law: str, screens: Iterable[Entry]) -> list[dict[str, Any]]:
    """Judge the regression's screens of at most 200 probes, the largest of them, seed by seed."""
    allowed = [
        entry
        for entry in screens
        if entry.get("estimator") == "regression" and entry["probes"] <= ENOUGH_PROBES
    ]
    if not allowed:
        return []
    most = max(entry["probes"] for entry in allowed)
    shares = [entry["found"] / entry["true"] for entry in allowed if entry["probes"] == most]
    return [
        {
            "claim": f"{law}: {most} probes find at least 98% of the edges",
            "least_share": min(shares),
            "holds": min(shares) >= 0.98,
        }
    ]


def _is_worse(entry: Entry, ours: Entry) -> bool:
    """Whether a sampler is beyond doubt worse.

    By KL; where that is not known, by the pairs on true edges or by the size of the energy gap.
    """
    if entry.get("kl") is not None:
        return bool(entry["kl"] - ours["kl"] > 2 * _error(entry, ours, "kl_se"))
    return any(
        abs(entry[measure]) - abs(ours[measure]) > 2 * _error(entry, ours, f"{measure}_se")
        for measure in ("edge_distance", "energy_gap")
    )


def _error(first: Entry, second: Entry, key: str) -> float:
    return math.hypot(first.get(key) or 0.0, second.get(key) or 0.0)


def figures(laws: Laws) -> dict[str, float]:
    """Return the few numbers that matter, by name."""
    found: dict[str, float] = {}
    for law, parts in laws.items():
        samplers = parts.get("samplers", {})
        for ours in structured(samplers):
            found[f"{law}.{ours['sampler']}_kl"] = ours["kl"]
            found[f"{law}.{ours['sampler']}_evaluations"] = ours["evaluations"]
        alone = sequential(samplers)
        if alone is not None and alone.get("kl") is not None:
            found[f"{law}.sequential_kl"] = alone["kl"]
    return found
