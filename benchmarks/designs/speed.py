"""Designs a second: the package's own sampler, full passes and kept decoder states, in one run.

All of them are timed turn by turn after a round to warm up, so that a slow spell of the machine
hits them alike, and the best time of each counts. Plans are made before: they serve any number of
sequences, and how long one takes is reported beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from _timing import alternate

import counterprobe as cp
from counterprobe.models.proteinmpnn import InverseFolding
from counterprobe.planning import Plan
from designs.package import package_designs
from designs.pricing import Dealt

__all__ = ["design_speed"]

# Groups of sequences with a plan each, and sequences from which on full passes are left out.
GROUPS = 16
MOST_FULL_PASSES = 256


def design_speed(
    model: InverseFolding,
    plans: Mapping[int, Sequence[Plan]],
    at_once: int,
    repeats: int,
    *,
    full_passes: bool = True,
) -> dict[str, Any]:
    """Time designs, so many sequences at once.

    Parameters
    ----------
    model : InverseFolding
    plans : mapping of int to sequence of Plan
        By number of batches; more batches are dealt out to 16 groups of sequences.
    at_once : int
    repeats : int
    full_passes : bool
        Whether to time decoding the whole state for every batch too.

    Returns
    -------
    dict
        Sequences a second: ``package``, ``cached 16`` and ``full 16`` and so on, and how many
        times the package's rate each of them is.
    """
    kept = model.oracle(order="commit")
    works: dict[str, Callable[[], object]] = {"package": lambda: package_designs(model, at_once)}

    def designs(oracle: cp.Oracle, count: int) -> Callable[[], object]:
        return lambda: cp.sample(
            oracle,
            Dealt(tuple(plans[count])),
            at_once,
            orders=GROUPS,
            at_once=at_once,
            progress=False,
        )

    for count in plans:
        works[f"cached {count}"] = designs(kept, count)
        if full_passes and at_once <= MOST_FULL_PASSES and kept.by_index is not None:
            works[f"full {count}"] = designs(kept.by_index, count)
    rates = {name: at_once / best for name, best in alternate(works, repeats=repeats).items()}
    ratios = {
        f"{name} ratio": rate / rates["package"]
        for name, rate in rates.items()
        if name != "package"
    }
    return {"at_once": at_once, **rates, **ratios}
