"""The lemmas behind the query-round lower bound, as functions of small numbers.

Appendix "Proof of the lower bound": probes reveal few edges of a hidden matching
(``disclosure_bound``), few rounds then commit both ends of many unrevealed edges at once
(``laplace_bound``, ``collision_tail_bound``), and each such collision costs ``edge_loss``
(``collision_loss``). ``follow_edges`` keeps the proof's record of one execution, and
``internal_edge_law`` is the exact law that the Laplace bound bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import FloatArray

__all__ = [
    "EdgeRecord",
    "collision_loss",
    "collision_tail_bound",
    "disclosure_bound",
    "edge_loss",
    "follow_edges",
    "internal_edge_law",
    "laplace_bound",
]


# ----- Survivors ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """How the edges of a hidden matching were retired.

    Attributes
    ----------
    unresolved : frozenset of (int, int)
        Edges with no end committed and no trigger hit.
    remaining : dict of int to frozenset of int
        Untested candidates of each unresolved position.
    num_probed : int
        Edges that a probe retired.
    active, collisions : tuple of int
        For each commit, its positions on unresolved edges, and the unresolved edges inside it.
    """

    unresolved: frozenset[tuple[int, int]]
    remaining: dict[int, frozenset[int]]
    num_probed: int
    active: tuple[int, ...]
    collisions: tuple[int, ...]


def follow_edges(
    mate: ArrayLike,
    trigger: ArrayLike,
    bank_size: int,
    operations: Sequence[tuple[str, Sequence[int] | Mapping[int, int]]],
) -> EdgeRecord:
    """Replay operations on one instance and keep the analytic record.

    Parameters
    ----------
    mate, trigger : array_like of int, shape (N,)
        The instance: a perfect matching and the trigger candidate of each position.
    bank_size : int
        Candidates, numbered from 0.
    operations : sequence of (name, content)
        ``("probe", tokens)`` with the candidate shown at each position that shows one, or
        ``("commit", positions)``.

    Examples
    --------
    >>> record = follow_edges(
    ...     [1, 0, 3, 2], [0, 1, 1, 1], 2, [("probe", {0: 0}), ("commit", [2, 3])]
    ... )
    >>> record.num_probed, record.active, record.collisions
    (1, (2,), (1,))
    """
    partner, hidden = np.asarray(mate).tolist(), np.asarray(trigger).tolist()
    edges = {(i, j) for i, j in enumerate(partner) if i < j}
    remaining = {i: frozenset(range(bank_size)) for i in range(len(partner))}
    num_probed, active, collisions = 0, [], []
    for name, content in operations:
        if name == "probe":
            shown: dict[int, Any] = dict(content)  # type: ignore[arg-type]
            hit = {e for e in edges if any(shown.get(i) == hidden[i] for i in e)}
            num_probed += len(hit)
            edges -= hit
            for i, candidate in shown.items():
                remaining[i] -= {candidate}
        elif name == "commit":
            batch = set(content)
            active.append(sum(i in batch for e in edges for i in e))
            collisions.append(sum(batch.issuperset(e) for e in edges))
            edges = {e for e in edges if batch.isdisjoint(e)}
        else:
            raise ValueError(f"an operation must be a probe or a commit, got {name!r}")
    alive = {i for e in edges for i in e}
    return EdgeRecord(
        unresolved=frozenset(edges),
        remaining={i: remaining[i] for i in sorted(alive)},
        num_probed=num_probed,
        active=tuple(active),
        collisions=tuple(collisions),
    )


def disclosure_bound(length: int, probes: int, bank_size: int) -> float:
    """Return ``N Q / b``, above the mean number of edges that Q probes retire.

    Lemma "Equality-test disclosure". A position that is shown a new candidate by every probe is
    hit with chance ``Q / b`` exactly.
    """
    if probes < 0 or bank_size < 1:
        raise ValueError(
            f"probes must not be negative and bank_size at least 1, got {probes!r} and "
            f"{bank_size!r}"
        )
    return length * probes / bank_size


# ----- Collisions -----------------------------------------------------------------------------


def internal_edge_law(length: int, batch_size: int) -> FloatArray:
    """Return the chances of 0, 1, ... edges of a uniform perfect matching inside a fixed batch.

    Examples
    --------
    Two of four positions are matched with chance 1/3:

    >>> internal_edge_law(4, 2).round(4)
    array([0.6667, 0.3333])
    """
    n, k = length, batch_size
    if n < 2 or n % 2 or not 0 <= k <= n:
        raise ValueError(
            "length must be even and at least 2 and batch_size lie in 0..length, got "
            f"{length!r} and {batch_size!r}"
        )

    def log_matchings(size: int) -> float:  # of `size` positions, (size - 1)!!
        half = size // 2
        return math.lgamma(size + 1) - half * math.log(2) - math.lgamma(half + 1)

    def log_choose(total: int, part: int) -> float:
        return math.lgamma(total + 1) - math.lgamma(part + 1) - math.lgamma(total - part + 1)

    chances = np.zeros(k // 2 + 1)
    for z in range(max(0, k - n // 2), k // 2 + 1):
        crossing = k - 2 * z
        chances[z] = math.exp(
            log_choose(k, 2 * z)
            + log_matchings(2 * z)
            + log_choose(n - k, crossing)
            + math.lgamma(crossing + 1)
            + log_matchings(n - k - crossing)
            - log_matchings(n)
        )
    chances /= chances.sum()  # one but for the rounding of large logarithms
    return chances


def laplace_bound(length: int, batch_size: int, rate: float) -> float:
    """Return ``exp(-(1 - e^-t) max(k - 1, 0)^2 / (32 n))``, at least the mean of ``e^(-t Z)``.

    Lemma "Internal-edge Laplace transform"; Z has :func:`internal_edge_law`. Both are one for
    ``k <= 1``, and only then equal.
    """
    if rate <= 0:
        raise ValueError(f"rate must be positive, got {rate!r}")
    return math.exp(math.expm1(-rate) * max(batch_size - 1, 0) ** 2 / (32 * length))


def collision_tail_bound(length: int, rounds: int) -> tuple[float, float]:
    """Return ``x = N / (8192 R)`` and the least chance ``1/2 - e^-x`` of as many collisions.

    Proposition "Adaptive collision lower tail", for at most ``bank_size / 8`` probes and
    ``R <= N / 8``. A negative chance, for ``x < log 2``, says nothing.
    """
    if not 1 <= rounds <= length / 8:
        raise ValueError(f"rounds must lie in 1..N / 8 = {length / 8:g}, got {rounds!r}")
    few = length / (8192 * rounds)
    return few, 0.5 - math.exp(-few)


# ----- What a collision costs -----------------------------------------------------------------


def edge_loss(trigger_mass: float, coupling: float) -> float:
    """Return the squared Hellinger distance between an edge's law and the product of its ends.

    It lies in ``[theta^2 / 12, theta^2 / 2]`` ("Local facts for the hard matching family").
    """
    rho, theta = trigger_mass, coupling
    if not 0 < theta <= rho <= 0.5:
        raise ValueError(
            f"needs 0 < coupling <= trigger_mass <= 1/2, got {coupling!r} and {trigger_mass!r}"
        )
    both = rho**2 * math.sqrt(1 + theta * (1 - rho) / rho)
    one = 2 * rho * (1 - rho) * math.sqrt(1 - theta)
    none = (1 - rho) ** 2 * math.sqrt(1 + theta * rho / (1 - rho))
    return 1 - both - one - none


def collision_loss(trigger_mass: float, coupling: float, collisions: float) -> float:
    """Return ``1 - (1 - edge_loss)^Z``, whose mean is below the prior's squared Hellinger risk."""
    return -math.expm1(collisions * math.log1p(-edge_loss(trigger_mass, coupling)))
