"""How many colorings a screen needs when a majority decides, by exact binomial tails.

One coloring shows an edge when its ends differ in color; a majority of all colorings decides. The
paper's formula (``parameters.coloring_count``) is a Chernoff bound with room to spare; here the
tails are summed exactly.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from counterprobe.errors import CounterprobeError

__all__ = ["enough_colorings"]

# Degree at which non-edges are to be told from edges.
TYPICAL_DEGREE = 3
# Chance that a screen loses one of N edges, and expected number of false pairs among N^2.
SCREEN_FAILURE = 0.02
FALSE_PAIRS = 1.0
MAX_COLORINGS = 100_000


def enough_colorings(length: int, num_colors: int, majority_fraction: float) -> int:
    """Return the fewest colorings that keep N edges and reject non-edges, by exact tails.

    An edge is seen under a coloring when its ends differ in color, with chance ``1 - 1/p``; it is
    lost when at most ``majority_fraction * M`` colorings see it. The union over N edges must not
    exceed ``SCREEN_FAILURE``. A non-edge seems seen when its color is that of a neighbour of the
    readout; at a readout of degree three that happens with chance ``1 - (1 - 1/p)^3`` at most,
    and over N^2 pairs at most ``FALSE_PAIRS`` of them may win.
    """
    seen = 1 - 1 / num_colors
    crowded = 1 - seen**TYPICAL_DEGREE
    if majority_fraction >= seen:
        raise ValueError(
            f"majority_fraction must lie below 1 - 1/num_colors = {seen:.3g}, got "
            f"{majority_fraction!r}; an edge is only seen when its ends differ in color"
        )
    # Few colors cannot reject crowded readouts; then only the edges decide.
    rejects = majority_fraction > crowded
    for first in range(1, MAX_COLORINGS, 512):
        counts = np.arange(first, first + 512)
        needed = np.floor(majority_fraction * counts)
        lost = length * np.asarray(stats.binom.cdf(needed, counts, seen))
        false = length**2 * np.asarray(stats.binom.sf(needed, counts, crowded))
        good = (lost <= SCREEN_FAILURE) & ((false <= FALSE_PAIRS) | (not rejects))
        if good.any():
            return int(counts[np.argmax(good)])
    raise CounterprobeError(
        f"no number of colorings below {MAX_COLORINGS:,} is enough; move majority_fraction away "
        "from 1 - 1/num_colors and from the crowded readouts' rate"
    )
