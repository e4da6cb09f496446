"""The safe budget of one run: bisection from N, and the paper's passing-suffix rule.

Partitions at adjacent budgets need not be nested, so a curve of passes need not be monotone. Among
the observed budgets the safe one is the first of the longest suffix that passes throughout; the
bracket between it and the largest unsafe budget is refined until it is narrow enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile

__all__ = ["safe_budget", "search_budget"]


def safe_budget(observed: Mapping[int, bool]) -> int:
    """Return the smallest observed budget from which on every observed budget passes.

    Parameters
    ----------
    observed : mapping of int to bool
        Whether each budget passed; the largest must.

    Examples
    --------
    >>> safe_budget({2: True, 4: False, 6: True, 8: True})
    6
    """
    suffix = list(takewhile(lambda budget: observed[budget], sorted(observed, reverse=True)))
    if not suffix:
        raise ValueError(f"the largest budget must pass, got {dict(observed)}")
    return suffix[-1]


def search_budget(
    length: int,
    passes: Callable[[int], bool],
    *,
    first: Iterable[float] = (),
    width: float = 0.05,
) -> int:
    """Search the safe budget of a run of ``length`` positions.

    Parameters
    ----------
    length : int
        N; this budget commits single positions and is safe without being tried.
    passes : callable
        Whether a run at a budget in ``1 .. N - 1`` passes; called once for each budget tried.
    first : iterable of float
        Budgets tried before the bisection, as fractions of N.
    width : float
        Widest bracket that may remain, as a fraction of N.
    """
    observed = {length: True}
    for share in first:
        budget = min(max(round(share * length), 1), length)
        if budget not in observed:
            observed[budget] = passes(budget)
    while True:
        safe = safe_budget(observed)
        # Zero batches commit nothing: below every budget lies an unsafe one.
        unsafe = max((budget for budget in observed if budget < safe), default=0)
        if safe - unsafe <= max(1, width * length):
            return safe
        middle = (unsafe + safe) // 2
        observed[middle] = passes(middle)
