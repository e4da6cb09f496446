"""The strongest setting of a sampler on a law: the cheapest that meets an accuracy.

A sampler declares the setting that trades quality for evaluations and values to try. They are
tried, the cheap ones first where it is known which these are; then the gap between the best that
meets the accuracy and its neighbour that does not is halved a few times, so that growth over sizes
is not a matter of the grid. Of settings that meet it the fewest evaluations decide; of those that
are exact, the fewest stages for at most twice the fewest, since a rule that is exact whatever its
setting trades the two. Where none meets it, the best quality. The batch KL is a mean over the same
seeds for all.

``packed`` has several settings that matter. Its candidates are those of the study's grid, which
stands for the one that its paper does not publish, and values between them. They are run from the
least that each can cost on, until none can be cheaper.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import counterprobe as cp
from counterprobe.evaluation.comparison import Comparison, compare_sampler, swept
from counterprobe.run.ledger import Need
from counterprobe.samplers import Packed, Sampler
from counterprobe.study.screening import least_total

__all__ = ["Found", "search"]

# Halvings of the gap between a setting that meets the accuracy and one that does not.
HALVINGS = 4
# Cheap settings come first; after this many that meet the accuracy the others only cost more.
ENOUGH = 2
# Evaluations for which an exact setting may spend to save stages, times the fewest.
WORTH = 2.0
# Values beyond a sampler's own that its rule allows, and that make it stronger; steps that reveal
# nothing cost nothing, so that some rules have use for more of them than there are positions.
MORE: dict[str, tuple[Any, ...]] = {
    "threshold": (0.95,),
    "factor": (0.0,),
    "effective-tc": (0.005, 0.01),
}
PACKED: dict[str, tuple[Any, ...]] = {
    "num_colors": (5, 6, 8),
    "num_colorings": (*range(8, 32, 2), 32, 40, 48, 64, 96, 128),
    "majority_fraction": (0.5, 0.6, 0.65, 0.7),
    "degree_cutoff": (16,),
    "tv_cut": (0.001, 0.03),
    "bank_threshold": (None, 0.5),
    "phase_cap": (2,),
}
MORE_TIMES_LENGTH = {"ancestral": (2, 4), "zhao-cai": (2, 4)}


@dataclass(frozen=True, slots=True)
class Found:
    """A sampler at its strongest setting.

    Attributes
    ----------
    comparison : Comparison
    meets : bool
        Whether it meets the accuracy: exact, or a mean batch KL that is small enough.
    tried : int
        Settings that were tried.
    ascends : bool or None
        Whether larger values of the setting cost more; None where nothing was swept.
    """

    comparison: Comparison
    meets: bool
    tried: int
    ascends: bool | None = None


def search(
    law: cp.ForestLaw,
    sampler: Sampler,
    seeds: Sequence[int],
    *,
    accuracy: float,
    max_evaluations: int,
    ascends: bool | None = None,
    is_fixed: bool = False,
) -> Found:
    """Find the strongest setting of a sampler.

    Parameters
    ----------
    law : ForestLaw
    sampler : Sampler
        What it does not sweep is kept.
    seeds : sequence of int
    accuracy : float
        Nats of mean batch KL allowed.
    max_evaluations : int
        A run that would make more stops, and its setting counts as one that fails.
    ascends : bool, optional
        Whether larger values of the setting cost more, where that is known from a smaller law;
        otherwise all values are tried.
    is_fixed : bool
        Whether to take the sampler as it is.
    """

    def measure(rule: Sampler) -> Comparison:
        return compare_sampler(law, rule, seeds, max_evaluations=max_evaluations)

    if isinstance(sampler, Packed) and not is_fixed:
        return _search_packed(law, sampler, seeds, measure, accuracy, max_evaluations)
    if sampler.sweep is None or is_fixed:
        only = measure(sampler)
        return Found(only, _meets(only, accuracy), 1)
    setting = sampler.sweep.setting
    values = sorted({getattr(rule, setting) for rule in swept(sampler, law.length)})
    more = [times * law.length for times in MORE_TIMES_LENGTH.get(sampler.name, ())]
    values = sorted({*values, *MORE.get(sampler.name, ()), *more}, reverse=ascends is False)
    points: dict[Any, Comparison] = {}
    for value in values:
        points[value] = measure(replace(sampler, **{setting: value}))
        if ascends is not None and _is_enough(points, points[value], accuracy):
            break
    for _ in range(HALVINGS):
        between = _next(points, accuracy)
        if between is None:
            break
        points[between] = measure(replace(sampler, **{setting: between}))
    best = _best(points, accuracy)
    if Need.REMASK in sampler.needs and not _meets(points[best], accuracy):
        # What was taken back has no batch KL, so that there is no quality to choose by.
        return Found(measure(sampler), False, 1)
    if ascends is None:
        ends = [points[v].mean("evaluations") for v in (min(values), max(values))]
        ascends = None if any(map(math.isnan, ends)) else ends[0] <= ends[1]
    return Found(points[best], _meets(points[best], accuracy), len(points), ascends)


def _search_packed(
    law: cp.ForestLaw,
    sampler: Packed,
    seeds: Sequence[int],
    measure: Callable[[Sampler], Comparison],
    accuracy: float,
    max_evaluations: int,
) -> Found:
    """Find the cheapest of ``PACKED``, or else take the sampler as it is."""
    grid = [
        replace(sampler, **dict(zip(PACKED, choice, strict=True)))
        for choice in itertools.product(*PACKED.values())
    ]
    best: Comparison | None = None
    cost, tried = math.inf, 0
    for candidate in sorted(grid, key=lambda rule: least_total(rule, law.length)):
        if least_total(candidate, law.length) >= cost:
            break
        tried += 1
        # One seed tells most of those that fail, and those that peel and screen again.
        first = compare_sampler(law, candidate, seeds[:1], max_evaluations=max_evaluations)
        if not _meets(first, accuracy * len(seeds)) or first.mean("evaluations") > 1.5 * cost:
            continue
        found = measure(candidate)
        if _meets(found, accuracy) and found.mean("evaluations") < cost:
            best, cost = found, found.mean("evaluations")
    if best is None:
        found = measure(sampler)
        return Found(found, _meets(found, accuracy), tried + 1)
    return Found(best, True, tried)


def _meets(found: Comparison, accuracy: float) -> bool:
    if not found.trials or len(found.completed) < len(found.trials):
        return False
    return found.is_exact or found.batch_kl <= accuracy


def _is_enough(points: dict[Any, Comparison], last: Comparison, accuracy: float) -> bool:
    """Whether dearer settings can only lose to those measured, cheap ones first."""
    passing = [c for c in points.values() if _meets(c, accuracy)]
    if sum(not c.is_exact for c in passing) >= ENOUGH:
        return True
    fewest = min((c.mean("evaluations") for c in passing), default=math.inf)
    return not last.mean("evaluations") <= 2 * WORTH * fewest


def _best(points: dict[Any, Comparison], accuracy: float) -> Any:
    """Return the value that meets the accuracy for least; the best quality where none does."""
    passing = {v: c for v, c in points.items() if _meets(c, accuracy)}
    if passing:
        fewest = min(
            passing, key=lambda v: (passing[v].mean("evaluations"), passing[v].mean("stages"))
        )
        most = WORTH * passing[fewest].mean("evaluations")
        near = {v: c for v, c in passing.items() if c.is_exact and c.mean("evaluations") <= most}
        if passing[fewest].is_exact:
            return min(near, key=lambda v: (near[v].mean("stages"), near[v].mean("evaluations")))
        return fewest
    quality = {v: c.batch_kl for v, c in points.items() if not math.isnan(c.batch_kl)}
    return min(quality, key=quality.__getitem__) if quality else next(iter(points))


def _next(points: dict[Any, Comparison], accuracy: float) -> Any | None:
    """Return a value between the best one and the cheaper neighbour that fails, if there is."""
    best = _best(points, accuracy)
    if not _meets(points[best], accuracy):
        return None
    order = sorted(points)
    place = order.index(best)
    failing = [
        order[k]
        for k in (place - 1, place + 1)
        if 0 <= k < len(order)
        and not _meets(points[order[k]], accuracy)
        and points[order[k]].mean("evaluations") < points[best].mean("evaluations")
    ]
    if not failing:
        return None
    if isinstance(best, int):
        middle: Any = (best + failing[0]) // 2
    else:
        middle = math.sqrt(best * failing[0]) if min(best, failing[0]) > 0 else None
    return None if middle is None or middle in points else middle
