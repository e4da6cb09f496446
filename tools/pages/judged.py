"""Designs in few evaluations judged by another model: tables, and means over backbones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from designs.judged import break_even
from rivals.published import marked

from pages.writing import count, markdown

__all__ = ["judged_tables", "judged_values"]

Entry = Mapping[str, Any]
Tasks = Mapping[str, Mapping[str, Mapping[str, Entry]]]

ONE, SINGLY = "one-batch", "sequential"
WAYS = {
    "planned": "planned", "distance": "apart in space", "spread": "apart in sequence",
    "random": "random",
}  # fmt: skip
BATCHES = (2, 4, 8, 16, 32)
# The backbone whose rates are shown.
TIMED = "1ake"


def judged_tables(folding: Tasks, chains: Tasks, singly: Tasks) -> dict[str, str]:
    """Return the tables by name.

    Parameters
    ----------
    folding, chains, singly : mapping
        Tasks of ``judged.json``, of ``judged_antibodies.json`` and of ``judged_singly.json``, the
        last measured on a processor.
    """
    warm = at_temperature(folding, 1)
    made = {
        "judged-broken": _broken(warm),
        "judged-scores": _scores(warm),
        "judged-rules": _rules(warm),
        "judged-pays": _pays(warm),
    }
    if len(warm) < len(folding):
        made |= {"judged-cold": _cold(folding), "judged-cold-broken": _cold_broken(folding)}
    return made | ({"judged-antibodies": _antibodies(chains, singly)} if chains else {})


def judged_values(folding: Tasks) -> dict[str, Any]:
    """Return means over backbones, and the least and largest of what single ones have."""
    return {
        f"{temperature:g}": _means(at_temperature(folding, temperature))
        for temperature in (1.0, 0.3, 0.1)
    }


def at_temperature(tasks: Tasks, temperature: float) -> dict[str, dict[str, Any]]:
    """Return what was measured at a temperature by what was designed, failures left out."""
    end = f" T={temperature:g}"
    return {
        name.removesuffix(end): {
            part: {key: one for key, one in entries.items() if "error" not in one}
            for part, entries in parts.items()
        }
        for name, parts in tasks.items()
        if name.endswith(end) and "ways" in parts
    }


def _means(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for every way that all backbones have, what it breaks and what the judge gives.

    ``gain`` is the judge's mean difference to one pass, in nats a design; ``share`` is of what
    one pass breaks.
    """
    found: dict[str, Any] = {"backbones": len(tasks), "over": _over(tasks)}
    every = [parts["ways"] for parts in tasks.values()]
    for way in (way for way in every[0] if all(way in ways for ways in every)) if every else ():
        entries = [ways[way] for ways in every]
        bases = [parts["ways"][ONE] for parts in tasks.values()]
        gains = [one["judge"] - base["judge"] for one, base in zip(entries, bases, strict=True)]
        errors = [
            math.hypot(one["judge_se"], 0.0 if way == ONE else base["judge_se"])
            for one, base in zip(entries, bases, strict=True)
        ]
        broken = [one.get("kl") for one in entries]
        said: dict[str, Any] = {
            "gain": _mean(gains),
            "gain_se": math.hypot(*errors) / len(errors),
            "recovery": _mean([one["recovery"] for one in entries]),
            "variety": _mean([one["variety"] for one in entries]),
            "designs": int(min(one["designs"] for one in entries)),
        }
        if all(value is not None for value in broken):
            said |= {
                "kl": _mean(broken),
                "kl_se": math.hypot(*(one["kl_se"] for one in entries)) / len(entries),
                "share": sum(broken) / sum(base["kl"] for base in bases)
                if all(base.get("kl") for base in bases)
                else math.nan,
            }
        found[_slug(way)] = said
    return found


def _over(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Return how much more the judge gives to plans than to each free way in as many batches."""
    found = {}
    for batches in BATCHES:
        for way in ("random", "distance"):
            both = [
                [parts["ways"].get(f"{name} {batches}") for name in ("planned", way)]
                for parts in tasks.values()
            ]
            if not both or any(one is None for pair in both for one in pair):
                continue
            apart = [mine["judge"] - other["judge"] for mine, other in both]
            errors = [one["judge_se"] for pair in both for one in pair]
            found[f"{way}-{batches}"] = {
                "gain": _mean(apart),
                "gain_se": math.hypot(*errors) / len(both),
            }
    return found


def _slug(key: str) -> str:
    return key.replace(" ", "-")


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


# ----- Temperature 1 ------------------------------------------------------------------------


def _broken(tasks: Mapping[str, Any]) -> str:
    """Write what every way breaks, bold what is not above the least of its column."""
    lines = []
    for name, parts in tasks.items():
        ways = parts["ways"]
        least = {
            n: min(
                (ways[f"{w} {n}"] for w in WAYS if f"{w} {n}" in ways), key=lambda one: one["kl"]
            )
            for n in BATCHES
            if any(f"{w} {n}" in ways for w in WAYS)
        }
        for k, (way, shown) in enumerate(WAYS.items()):
            cells = [
                _kl(ways[f"{way} {n}"], least[n]) if f"{way} {n}" in ways else "" for n in BATCHES
            ]
            if any(cells):
                first = _kl(ways[ONE]) if k == 0 else ""
                lines.append([_titled(name, parts) if k == 0 else "", shown, first, *cells])
    heading = ["backbone", "batches", "its own `design`: 1", *map(str, BATCHES)]
    return markdown(heading, lines, left=2)


def _scores(tasks: Mapping[str, Any]) -> str:
    shown = {
        ONE: "its own `design`", "random 4": "random, 4", "distance 4": "apart in space, 4",
        "planned 4": "planned, 4", "planned 8": "planned, 8", SINGLY: "one at a time",
    }  # fmt: skip
    lines = []
    for name, parts in tasks.items():
        ways = parts["ways"]
        cells = [_score(ways.get(way)) for way in shown]
        nature = parts.get("structure", {}).get("used", {}).get("judge")
        lines.append([_titled(name, parts), *cells, "" if nature is None else f"{nature:.1f}"])
    return markdown(["backbone", *shown.values(), "natural"], lines)


def _rules(tasks: Mapping[str, Any]) -> str:
    """Write the means of every way that all backbones have, the fewest evaluations first."""
    means = _means(tasks)
    every = [parts["ways"] for parts in tasks.values()]
    timed = tasks.get(TIMED, {}).get("ways", {})
    lines = []
    for key in (key for key in every[0] if all(key in ways for ways in every)):
        entries = [ways[key] for ways in every]
        mean = means[_slug(key)]
        rate = timed[key]["designs a second"] if timed.get(key, {}).get("alone") else None
        spent = _mean([one["evaluations"] for one in entries])
        cells = [
            _named(key, entries[0]),
            count(round(spent, 1)),
            _kl(mean) if "kl" in mean else "",
            "" if key == ONE else f"{mean['gain']:.1f} ± {mean['gain_se']:.1f}",
            f"{mean['recovery']:.3f}",
            f"{mean['variety']:.2f}",
            "any number" if key == ONE else "" if rate is None else _rate(rate),
        ]
        lines.append((spent, mean.get("kl", math.inf), cells))
    heading = ["way", "evaluations a design", "broken, nats", "judge above one pass, nats",
               "native residues", "residues that two designs differ in",
               f"designs a second, {TIMED.upper()}"]  # fmt: skip
    return markdown(heading, [cells for *_, cells in sorted(lines, key=lambda one: one[:2])])


def _pays(tasks: Mapping[str, Any]) -> str:
    lines = []
    for name, parts in tasks.items():
        used = parts.get("structure", {}).get("used")
        for plan in ("planned 4", "planned 8"):
            if used is None or plan not in parts["ways"]:
                continue
            found = break_even(parts["ways"], used["evaluations"], plan)
            cells = [_repaid(found.get(way)) for way in (SINGLY, "random", "distance")]
            lines.append([_titled(name, parts), plan.split()[1], _kl(parts["ways"][plan]), *cells])
    heading = ["backbone", "planned batches", "broken, nats", "against one at a time",
               "against random", "against apart in space"]  # fmt: skip
    return markdown(heading, lines)


def _repaid(found: Entry | None) -> str:
    if found is None:
        return "any number: none measured breaks as little"
    if found["designs"] is None:
        return f"never: as little in {count(found['evaluations'])}"
    return f"{count(found['designs'])} ({count(found['evaluations'])} evaluations)"


# ----- Colder -------------------------------------------------------------------------------


def _cold(folding: Tasks) -> str:
    """Write what the judge says and how designs differ, at temperatures below 1."""
    shown = {
        ONE: "its own `design`", "distance 4": "apart in space, 4", "planned 4": "planned, 4",
        "distance 8": "apart in space, 8", "planned 8": "planned, 8", SINGLY: "one at a time",
    }  # fmt: skip
    lines = []
    for temperature in (0.3, 0.1):
        for name, parts in at_temperature(folding, temperature).items():
            ways = [parts["ways"].get(way) for way in shown]
            scores = [_score(one) for one in ways]
            variety = [
                "" if one is None else f"{one['variety']:.2f}" for one in (*ways[:3:2], ways[-1])
            ]
            lines.append([f"{temperature:g}", name.upper(), *scores, *variety])
    told = list(shown.values())
    heading = ["T", "backbone", *(f"judge: {way}" for way in told),
               *(f"differ: {way}" for way in (*told[:3:2], told[-1]))]  # fmt: skip
    return markdown(heading, lines, left=2)


def _cold_broken(folding: Tasks) -> str:
    """Write what batches break at temperature 0.3, bold what is not above the least."""
    lines = []
    for name, parts in at_temperature(folding, 0.3).items():
        ways = parts["ways"]
        cells = [_kl(ways[ONE])]
        for number in (4, 8):
            both = [ways.get(f"{way} {number}") for way in ("planned", "distance")]
            known = [one for one in both if one is not None]
            least = min(known, key=lambda one: one["kl"]) if known else None
            cells += ["" if one is None else _kl(one, least) for one in both]
        lines.append([name.upper(), *cells])
    ways = [f"{way}, {number}" for number in (4, 8) for way in ("planned", "apart in space")]
    return markdown(["backbone", "its own `design`", *ways], lines)


# ----- Antibodies ---------------------------------------------------------------------------


def _antibodies(chains: Tasks, beside: Tasks) -> str:
    shown = (ONE, "random 4", "spread 4", "planned 4", "random 8", "spread 8", "planned 8",
             "maskgit steps=8", "entropy-bounded gamma=10", SINGLY)  # fmt: skip
    lines = []
    further = at_temperature(beside, 1)
    for name, parts in at_temperature(chains, 1).items():
        ways = {**parts["ways"], **further.get(name, {}).get("ways", {})}
        for way in shown:
            entry = ways.get(way)
            if entry is None:
                continue
            lines.append(
                [
                    name,
                    "all at once" if way == ONE else _named(way, entry),
                    count(round(entry["evaluations"], 1)),
                    "" if entry.get("kl") is None else _kl(entry),
                    _score(entry, 2),
                    f"{entry['recovery']:.3f}",
                ]
            )
    heading = ["who draws what", "way", "evaluations", "broken, nats", "the other model, nats",
               "native residues"]  # fmt: skip
    return markdown(heading, lines, left=2)


# ----- Cells --------------------------------------------------------------------------------


def _titled(name: str, parts: Mapping[str, Any]) -> str:
    used = parts.get("structure", {}).get("used")
    return name.upper() if used is None else f"{name.upper()}, {used['masked']}"


def _rate(rate: float) -> str:
    return count(round(rate)) if rate >= 10 else f"{rate:.1f}"


def _named(key: str, entry: Entry) -> str:
    if key == ONE:
        return "its own `design`, all at once"
    if key == SINGLY:
        return "one at a time"
    if entry["sampler"] in WAYS:
        return f"{WAYS[entry['sampler']]}, {entry['settings']['batches']} batches"
    return marked(key)


def _score(entry: Entry | None, digits: int = 1) -> str:
    if entry is None:
        return ""
    return f"{entry['judge']:.{digits}f} ± {entry['judge_se']:.{digits}f}"


def _kl(entry: Entry, least: Entry | None = None) -> str:
    if entry.get("kl") is None:
        median = entry.get("kl_median")
        return "infinite" if median is None else f"infinite (median {median:.1f})"
    if entry["kl"] == 0:
        return "0"
    value, error = entry["kl"], entry["kl_se"] or 0.0
    digits = 3 if value < 0.1 else 2 if value < 10 else 1
    shown = f"{value:.{digits}f}"
    if least is not None and value - least["kl"] <= 2 * math.hypot(error, least["kl_se"] or 0.0):
        shown = f"**{shown}**"
    return f"{shown} ± {error:.{digits}f}"
