"""Which candidates are screened, in which order, and which of them go on to development.

Screening asks for the cheapest candidates that pass. A candidate whose least cost is known to
exceed theirs cannot be one of them, so it need not be run: candidates are taken group by group,
from the least cost on, and the groups that can no longer matter are left out. The choice is the
same as if every candidate had been run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from counterprobe.plain import canonical
from counterprobe.samplers import Packed, Sampler

__all__ = [
    "CostGroup",
    "cheapest_diverse",
    "cost_groups",
    "groups_needed",
    "least_total",
    "passes",
]

Plain = dict[str, Any]
CostGroup = tuple[int, list[int]]
"""A least cost, and the candidates of which it is known, by index."""

# A bank of one token and the tail.
LEAST_COLUMNS = 2


def passes(result: Mapping[str, Any], threshold: float) -> bool:
    """Whether a run completed and its ``K + 2 SE`` is at most the threshold."""
    kl, error = result["batch_kl"], result["batch_kl_se"]
    measured = kl is not None and error is not None
    return result["stop"] == "completed" and measured and kl + 2 * error <= threshold


def least_total(sampler: Sampler, length: int) -> int:
    """Return evaluations that a run cannot do without; zero where nothing is known.

    A run of ``packed`` makes one all-mask readout, at least one whole screen and at least one
    commit. A screen of M colorings with p colors submits ``p (p - 1)`` states for each coloring
    and column, and has at least two columns. (With every bank empty it has none: then nothing is
    learned, and one batch of everything passes nowhere. A color that no position has is left out
    too, which does not happen at the lengths of a study.)

    Examples
    --------
    >>> least_total(Packed(num_colors=4, num_colorings=10), 1000)
    242
    """
    if not isinstance(sampler, Packed):
        return 0
    # Vocabulary and row error decide the bank threshold alone, which is not looked at.
    setup = sampler.setup(length, vocab_size=2, oracle_row_error=0.0)
    least = 1 + setup.screen.evaluations(LEAST_COLUMNS) + 1
    return least if setup.shared_by is None else min(least, length)  # it may decode one by one


def cost_groups(samplers: Sequence[Sampler], length: int) -> list[CostGroup]:
    """Group candidates by the least they can cost, in increasing order."""
    groups: dict[int, list[int]] = {}
    for k, sampler in enumerate(samplers):
        groups.setdefault(least_total(sampler, length), []).append(k)
    return sorted(groups.items())


def cheapest_diverse(
    settings: Sequence[Plain],
    screened: Mapping[int, Plain],
    limit: float,
    *,
    differ_in: Sequence[str],
    count: int,
) -> list[int]:
    """Return the cheapest passing candidates, no two alike in all of ``differ_in``.

    Parameters
    ----------
    settings : sequence of dict
        Of every candidate.
    screened : mapping of int to dict
        Results by candidate.
    limit : float
        Largest ``K + 2 SE`` that passes.
    differ_in : sequence of str
    count : int
        How many at most.
    """
    passing = [k for k, result in screened.items() if passes(result, limit)]
    chosen: list[int] = []
    seen = set()
    for k in sorted(passing, key=lambda k: (screened[k]["evaluations"], k)):
        kind = canonical({name: settings[k].get(name) for name in differ_in})
        if kind not in seen and len(chosen) < count:
            seen.add(kind)
            chosen.append(k)
    return chosen


def groups_needed(
    groups: Sequence[CostGroup],
    result: Callable[[int], Plain | None],
    choose: Callable[[Mapping[int, Plain]], list[int]] | None,
    count: int,
) -> tuple[list[int], bool]:
    """Return the candidates to screen as far as known, and whether all of them are finished.

    A group follows when those before it are finished, unless ``count`` candidates have been
    chosen for less than the least that it can cost.

    Parameters
    ----------
    groups : sequence of CostGroup
        In increasing order.
    result : callable
        A candidate's result, or None while it is missing.
    choose : callable or None
        Picks candidates from finished results; None while it is not known which results pass.
    count : int
    """
    needed: list[int] = []
    done: dict[int, Plain] = {}
    for least, group in groups:
        if len(done) < len(needed) or (needed and choose is None):
            return needed, False
        chosen = choose(done) if choose is not None else []
        if len(chosen) == count and least > max(done[k]["evaluations"] for k in chosen):
            return needed, True
        needed += group
        done |= {k: found for k in group if (found := result(k)) is not None}
    return needed, len(done) == len(needed) and choose is not None
