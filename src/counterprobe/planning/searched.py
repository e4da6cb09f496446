"""Search plans: sizes that stay equal or grow, several searches of each, the cheapest kept.

Early batches are committed while little is known, so that positions in them depend on each other
through everything that is masked; the search therefore knows which batch comes first, and spreads
the early ones widest. Where dependence is strong it also pays to begin with small batches. On
forests of 0.12 to 0.17 nats an edge, four batches cost a tenth or less of what four equal batches
in random order cost that were searched by direct strength alone; where dependence is weak and
everywhere, equal sizes are about best, the gain is a few per cent, and the price says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.planning.plan import Method, Plan
from counterprobe.planning.price import masked_shares, priced
from counterprobe.planning.search import SWEEPS, search_labels
from counterprobe.planning.strengths import Strengths

__all__ = ["growing_sizes", "searched_plan"]

# Sizes grow with these powers of the batch number.
GROWTHS = (0.0, 0.5, 1.0)
# Swaps tried for each position when sizes are compared.
SHORT_SWEEPS = 20
# Matrices that a search reads, at most, and their entries together.
MOST_LEVELS = 8
MOST_ENTRIES = 1 << 26


def searched_plan(
    strengths: Strengths,
    num_batches: int,
    restarts: int,
    rng: np.random.Generator,
    *,
    growths: Sequence[float] = GROWTHS,
    method: Method = "search",
) -> Plan:
    """Return the cheapest of several searched plans.

    Parameters
    ----------
    strengths : Strengths
    num_batches : int
        At most the number of positions.
    restarts : int
        Searches with the sizes that suit.
    rng : numpy.random.Generator
    growths : sequence of float
        Powers by which sizes may grow.
    method : str
        What the plan says of itself.
    """
    count = len(strengths.positions)
    shapes = sorted({tuple(growing_sizes(count, num_batches, growth)) for growth in growths})
    best: Plan | None = None
    if len(shapes) > 1:  # a short search says which sizes suit
        tried = {shape: _search(strengths, shape, rng, [SHORT_SWEEPS], method) for shape in shapes}
        shape = min(shapes, key=lambda shape: tried[shape].estimated_kl)
        best = tried[shape]
    else:
        (shape,) = shapes
    found = _search(strengths, shape, rng, [SWEEPS] * restarts, method)
    return found if best is None or found.estimated_kl < best.estimated_kl else best


def _search(
    strengths: Strengths,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    sweeps: Sequence[int],
    method: Method,
) -> Plan:
    """Return the cheapest of one search for each number of sweeps, with batches of one shape."""
    sizes = np.array(shape, dtype=np.int64)
    weights, level = _weights(strengths, sizes)
    plans = []
    for some in sweeps:
        labels, _ = search_labels(weights, level, sizes, rng, sweeps=some)
        batches = [np.flatnonzero(labels == k) for k in range(len(sizes))]
        plans.append(priced(strengths, batches, method))
    return min(plans, key=lambda plan: plan.estimated_kl)


def growing_sizes(count: int, parts: int, growth: float) -> list[int]:
    """Split ``count`` into parts that grow with a power of their number, none empty.

    Examples
    --------
    >>> growing_sizes(20, 4, 0), growing_sizes(20, 4, 1), growing_sizes(5, 4, 1)
    ([5, 5, 5, 5], [2, 4, 6, 8], [1, 1, 1, 2])
    """
    wanted = np.arange(1, parts + 1) ** float(growth)
    # One each, and the rest in proportion to what is wanted beyond that.
    wanted = np.maximum(wanted * count / wanted.sum() - 1, 0)
    rest = count - parts
    exact = wanted * (rest / wanted.sum()) if rest else np.zeros(parts)
    sizes = np.floor(exact).astype(np.int64)
    missing = rest - int(sizes.sum())
    # The largest remainders, later parts first where they tie.
    order = np.lexsort((-np.arange(parts), -np.round(exact - sizes, 9)))
    sizes[order[:missing]] += 1
    return [1 + int(size) for size in np.sort(sizes)]


def _weights(strengths: Strengths, sizes: IntArray) -> tuple[FloatArray, IntArray]:
    """Return the matrices of a search, and which of them counts in each batch."""
    shares = masked_shares(sizes)
    affordable = MOST_ENTRIES // max(1, strengths.direct.size)
    levels = max(1, min(MOST_LEVELS, affordable, len(sizes)))
    level = np.arange(len(sizes)) * levels // len(sizes)
    means = [float(shares[level == which].mean()) for which in range(levels)]
    return np.stack([strengths.while_masked(mean) for mean in means]), level
