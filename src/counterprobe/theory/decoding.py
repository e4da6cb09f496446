"""What finding a hidden matching takes at least, and what the decoder's stopping rule leaves out.

A probe masks some positions, shows a coordinate at each of the others, and returns the rows of
what it masks. Take the plainest law: every position alike, every pair of a matching coupled by the
same known table with K coordinates. The row of a masked position then says what its partner
*displays*, one of K coordinates or the mask, and nothing else. Whoever finds matchings at all must
find this one.

- :func:`least_probes` bounds any rule, adaptive ones too, by counting replies.
- :func:`least_random_probes` bounds any decoder of independent random probes, by the pairs of
  pairs that could be exchanged without a reply changing.

The other functions are about when the decoder of ``discovery.compressed.peeling`` stops.
:func:`both_blind` is the exact chance that neither end of an edge has shown it, of which the
stopping rule takes a product over ends; :func:`chance_of_mimicry` that of a false neighbour in the
place of a true one. ``docs/compressed.md`` has the argument.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from counterprobe.arrays import FloatArray, IntArray

__all__ = [
    "both_blind",
    "chance_of_mimicry",
    "error_of_random_probes",
    "least_probes",
    "least_random_probes",
    "left_out",
    "reply_bits",
]

MASKED = 0
MOST_PROBES = 10_000


# ----- What a matching takes at least ---------------------------------------------------------


def reply_bits(length: int, num_choices: int) -> float:
    """Bound the bits that the reply to one probe carries, whatever was asked before.

    Of a probe that masks M positions, say 2b have a masked partner; each of the others says one of
    K coordinates, and its partner is one of the ``N - M`` shown. So the reply is one of at most
    ``sum_b C(M, 2b) K^(M - 2b)`` with ``M - 2b <= N - M``. With ``b = beta N / 2`` and h the
    binary entropy, these are ``(N / 2) max_beta [(1 - beta) log2 K + (1 + beta) h(2 beta / (1 +
    beta))] + log2(N / 2 + 1)`` bits at most.
    """
    share = np.linspace(0, 1, 4001)[1:-1]
    mixed = 2 * share / (1 + share)
    entropy = -mixed * np.log2(mixed) - (1 - mixed) * np.log2(1 - mixed)
    bits = (1 - share) * math.log2(num_choices) + (1 + share) * entropy
    # Concave in beta: between two points of the grid it is less than 1e-6 higher.
    return length / 2 * (float(bits.max()) + 1e-6) + math.log2(length / 2 + 1)


def least_probes(length: int, num_choices: int, error: float) -> int:
    """Return the fewest probes after which any rule can name a random matching.

    By Fano's inequality the bits of all replies must add up to ``(1 - error) log2 (N - 1)!! - 1``.

    Parameters
    ----------
    length : int
        Even.
    num_choices : int
    error : float
        Chance of naming another matching.

    Examples
    --------
    >>> least_probes(16384, 3, 0.01)
    6
    """
    _check(length, num_choices, error)
    half = length // 2
    matchings = (math.lgamma(length + 1) - math.lgamma(half + 1)) / math.log(2) - half
    return max(0, math.ceil(((1 - error) * matchings - 1) / reply_bits(length, num_choices)))


def least_random_probes(
    length: int, num_choices: int, mask_rate: float, error: float = 0.25
) -> int:
    """Return the fewest independent random probes from which any decoder can be right enough.

    Parameters
    ----------
    length : int
    num_choices : int
    mask_rate : float
        Share of the positions that a probe masks; the others show each coordinate equally often.
    error : float
        Below one half: the decoder's chance of naming another matching.

    Examples
    --------
    >>> least_random_probes(16384, 3, 0.45)
    14
    """
    _check(length, num_choices, error)
    for count in range(MOST_PROBES):
        if error_of_random_probes(length, num_choices, mask_rate, count) < error:
            return count
    raise ValueError(f"masks at rate {mask_rate} tell nothing; take one between 0 and 1")


def error_of_random_probes(
    length: int, num_choices: int, mask_rate: float, num_probes: int
) -> float:
    """Bound from below the chance that a decoder of random probes names another matching.

    Exchange partners between two pairs. If every reply stays what it is, both matchings are as
    likely, and a decoder is right at most every other time. Let S count the exchanges that no
    probe notices. By Chebyshev's inequality ``P(S = 0) <= Var S / (E S)^2``; of the terms of the
    variance, exchanges without a common pair are independent, and the others are summed exactly.
    """
    pairs = length // 2
    one, same, shared = _unnoticed(num_choices, mask_rate)
    ways = pairs * (pairs - 1) / 2
    expected = 2 * ways * one**num_probes
    if expected == 0:
        return 0.0
    variance = expected + 2 * ways * same**num_probes
    variance += 8 * ways * (pairs - 2) * shared**num_probes
    return max(0.0, (1 - variance / expected**2) / 2)


@lru_cache(maxsize=256)
def _unnoticed(num_choices: int, mask_rate: float) -> tuple[float, float, float]:
    """Return the chances that a probe notices neither of one or two exchanges.

    One exchange; the two ways to exchange the same pairs; two that share one pair.
    """
    chance = np.array([mask_rate, *[(1 - mask_rate) / num_choices] * num_choices])
    shown = np.indices((num_choices + 1,) * 6).reshape(6, -1)
    weight: FloatArray = chance[shown].prod(axis=0)
    a, b, c = shown[0:2], shown[2:4], shown[4:6]
    first = _is_unnoticed(a, b)
    return (
        float(weight[first].sum()),
        float(weight[first & _is_unnoticed(a, b[::-1])].sum()),
        float(weight[first & _is_unnoticed(a, c)].sum()),
    )


def _is_unnoticed(one: IntArray, other: IntArray) -> np.ndarray:
    """Find the displays of two pairs under which exchanging their second members shows nowhere."""
    is_read = [(one[k] == MASKED) | (other[k] == MASKED) for k in range(2)]
    is_equal = [one[k] == other[k] for k in range(2)]
    found: np.ndarray = (~is_read[0] | is_equal[1]) & (~is_read[1] | is_equal[0])
    return found


def _check(length: int, num_choices: int, error: float) -> None:
    if length < 2 or length % 2:
        raise ValueError(f"length must be even and at least 2, got {length!r}")
    if num_choices < 2:
        raise ValueError(f"num_choices must be at least 2, got {num_choices!r}")
    if not 0 <= error < 1:
        raise ValueError(f"error must lie in [0, 1), got {error!r}")


# ----- What the stopping rule leaves out ------------------------------------------------------


def both_blind(num_probes: int, num_reads: int, num_choices: int, *, generic: bool) -> float:
    """Bound the chance that neither end of an edge shows it, each read equally often.

    Both ends are masked in n of the probes, at random. Reads of an end tell nothing while all that
    the other end displays in them is of one class of displays that act alike. With o probes in
    common, ends that are blind through the mask and ``s`` coordinates that act like it have the
    chance ``sum_o P(o) (s / K)^(2 (n - o))``; ends that are blind through one of at most K classes
    of coordinates alone, the largest of ``c``, at most ``K^2 P(0) (c / K)^(2 n)``. Where the law
    is ``generic``, ``s = 0`` and ``c = 1``, and this is exact; otherwise some two coordinates act
    differently, ``s = K - 2`` and ``c = K - 1`` (see :func:`chance_of_mimicry`).

    It is more than the product ``q^(2 (n - 1))`` of the stopping rule: two ends that are masked in
    the same probes are blind in all of them at once.

    Examples
    --------
    >>> both_blind(2, 1, 2, generic=True)  # masked together, or each shows something once
    1.0
    """
    alike, largest = (0, 1) if generic else (num_choices - 2, num_choices - 1)
    ways = [
        math.comb(num_reads, o) * math.comb(num_probes - num_reads, num_reads - o)
        for o in range(num_reads + 1)
    ]
    masked = sum(
        count * (alike / num_choices) ** (2 * (num_reads - o)) for o, count in enumerate(ways)
    )
    apart = num_choices**2 * ways[0] * (largest / num_choices) ** (2 * num_reads)
    return min(1.0, (masked + apart) / math.comb(num_probes, num_reads))


def chance_of_mimicry(num_choices: int, mask_rate: float, *, generic: bool) -> float:
    """Return the chance that a stranger displays, in one read, what acts as a neighbour's display.

    A false neighbour takes the place of a true one only if, whenever the readout is read, the two
    display something of the same class; the chance is the sum of the squared chances of classes.
    Generic displays are classes of their own. Otherwise some two coordinates differ. If there are
    two classes of coordinates the mask is a third, since a proper mixture of two messages is
    neither; if there are more, it may join one: ``max(m^2 + (1 + (K - 1)^2) p^2, (m + (K - 2) p)^2
    + 2 p^2)`` with ``p = (1 - m) / K``.

    Examples
    --------
    >>> round(chance_of_mimicry(3, 0.45, generic=True), 3)
    0.303
    >>> round(chance_of_mimicry(3, 0.45, generic=False), 3)
    0.468
    """
    shown = (1 - mask_rate) / num_choices
    if generic:
        return mask_rate**2 + num_choices * shown**2
    apart = mask_rate**2 + (1 + (num_choices - 1) ** 2) * shown**2
    if num_choices < 3:
        return apart
    return max(apart, (mask_rate + (num_choices - 2) * shown) ** 2 + 2 * shown**2)


def left_out(
    length: int, spare: int, blind: float, num_choices: int, mask_rate: float, *, generic: bool
) -> float:
    """Return by what factor the stopping rule's bound grows with what it leaves out.

    Where every position has t spare reads the rule counts ``N q^(2 t)``. In place of the product
    comes :func:`both_blind`; and at each end one of N strangers may hide the missed edge instead,
    ``N r^t`` times as likely with r the chance of mimicry: of the stranger's own reads, which the
    false edge must explain too, ``q^t`` stands for what the end itself no longer is, blind.

    Parameters
    ----------
    length, spare : int
    blind : float
        The rule's q.
    num_choices : int
    mask_rate : float
    generic : bool
    """
    num_reads = spare + 1
    num_probes = round(num_reads / mask_rate)
    joint = both_blind(num_probes, num_reads, num_choices, generic=generic)
    mimic = chance_of_mimicry(num_choices, mask_rate, generic=generic)
    return joint / blind ** (2 * spare) * (1 + length * mimic**spare) ** 2
