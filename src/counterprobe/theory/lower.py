"""What no algorithm can avoid: the paper's finite query-round lower bounds.

Appendix "Finite matching lower bound": on the hard matching family, few probes and few rounds
leave pairs broken, whatever the rule. ``minimax_risk_bound`` is the theorem, ``hard_family_bound``
turns it round for a target error, and ``lower_bound`` places the family inside the class of the
upper bound ("Finite lower-bound calibration for the main text"). Probes and rounds are the
algorithm's budgets on every path; errors are total variation. ``families.hard_witness`` builds
members of the calibrated family.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from counterprobe.theory.parameters import ROUNDING, check_exponent, standard_signal

__all__ = ["LowerBound", "hard_family_bound", "lower_bound", "minimax_risk_bound"]

# The theorem counts collisions of at most N / 16384 rounds.
POSITIONS_PER_ROUND = 16384
LARGEST_TARGET = 1 / 8


def minimax_risk_bound(length: int, coupling: float, rounds: int) -> float:
    """Return ``(1/4) (1 - exp(-N theta^2 / (98304 R)))``.

    Every algorithm with at most ``bank_size / 8`` probes and ``R <= N / 16384`` rounds has at
    least this TV risk on some member of the hard matching family.

    Parameters
    ----------
    length : int
        N, even.
    coupling : float
        theta, in ``(0, 1/2]``.
    rounds : int
        R, in ``1 .. N / 16384``; with more the theorem says nothing.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds!r}")
    if length % 2:
        raise ValueError(f"length must be even, got {length!r}")
    if not 0 < coupling <= 0.5:
        raise ValueError(f"coupling must lie in (0, 1/2], got {coupling!r}")
    if POSITIONS_PER_ROUND * rounds > length:
        raise ValueError(
            f"rounds must be at most N / {POSITIONS_PER_ROUND} = "
            f"{length / POSITIONS_PER_ROUND:.4g}, got {rounds!r}; the theorem says nothing about "
            "more rounds"
        )
    return 0.25 * -math.expm1(-length * coupling**2 / (98304 * rounds))


@dataclass(frozen=True, slots=True)
class LowerBound:
    """Every algorithm within the target error probes more, or commits in more rounds.

    Attributes
    ----------
    applies : bool
        Whether the hypotheses hold.
    target_error : float
        The seed-averaged TV risk that the algorithm may have.
    probes : float
        It needs more than this many probes ...
    rounds : float
        ... or at least this many rounds.
    is_vacuous : bool
        Whether any algorithm meets it: one round always happens.
    reason : str
        Why it does not apply, or is vacuous.
    """

    applies: bool
    target_error: float
    probes: float
    rounds: float
    is_vacuous: bool
    reason: str


def hard_family_bound(
    length: int, *, bank_size: int, coupling: float, target_error: float
) -> LowerBound:
    """Evaluate the target-error trade-off on the hard matching family.

    More than ``bank_size / 8`` probes, or at least ``N / 16384`` or ``N theta^2 / (786432 eps)``
    rounds, whichever is less. It applies for even N, theta in ``(0, 1/2]`` and eps in
    ``(0, 1/8]``.
    """
    return _trade_off(length, bank_size, coupling, target_error, [])


def lower_bound(
    length: int,
    vocab_size: int,
    *,
    epsilon: float,
    rank_exponent: float,
    target_error: float | None = None,
    hellinger_radius: float | None = None,
    edge_signal: float | None = None,
) -> LowerBound:
    """Evaluate the signal-calibrated lower bound for the class of Hellinger oracles, case (i).

    The class has the radius x of its oracles and the signal omega; the target error is that of
    the output, and may be any number up to 1/8. It applies for even ``N >= 4``, ``V omega > 1``
    and ``omega^3 <= x^2 / (2N)``.

    Parameters
    ----------
    length, vocab_size : int
    epsilon : float
        The accuracy that fixes whatever is not given.
    rank_exponent : float
    target_error : float, optional
        Epsilon by default.
    hellinger_radius : float, optional
        ``epsilon / 2`` by default.
    edge_signal : float, optional
        The benchmark signal of that radius by default.
    """
    check_exponent(rank_exponent)
    target = epsilon if target_error is None else target_error
    radius = epsilon / 2 if hellinger_radius is None else hellinger_radius
    signal = standard_signal(length, radius) if edge_signal is None else edge_signal
    problems = []
    if not 0 < radius <= 1:
        problems.append("hellinger_radius must lie in (0, 1]")
    if not 0 < signal <= 0.5:
        return LowerBound(False, target, 0.0, 0.0, True, "edge_signal must lie in (0, 1/2]")
    if vocab_size * signal <= 1:
        problems.append(f"V edge_signal = {vocab_size * signal:.3g} must exceed 1")
    if signal**3 > radius**2 / (2 * length) * (1 + ROUNDING):
        problems.append("edge_signal^3 must be at most radius^2 / (2N)")
    return _trade_off(length, witness_bank(signal, rank_exponent), signal, target, problems)


def witness_bank(edge_signal: float, rank_exponent: float) -> int:
    """Return ``floor(omega^(-1/s))``, the most candidates of mass omega that RF allows."""
    return math.floor(float(edge_signal ** (-1 / rank_exponent)))


def _trade_off(
    length: int, bank_size: int, coupling: float, target_error: float, problems: list[str]
) -> LowerBound:
    """Add the family's own conditions to ``problems``, and evaluate."""
    if length < 4 or length % 2:
        problems.append("N must be even and at least 4")
    if not 0 < coupling <= 0.5:
        problems.append("coupling must lie in (0, 1/2]")
    if not 0 < target_error <= LARGEST_TARGET:
        problems.append(f"the target error, epsilon, must lie in (0, {LARGEST_TARGET:g}]")
    linear = length * coupling**2 / (786432 * target_error) if target_error > 0 else math.inf
    rounds = min(length / POSITIONS_PER_ROUND, linear)
    vacuous = rounds <= 1
    reason = "; ".join(problems)
    if not reason and vacuous:
        reason = f"it asks for {rounds:.3g} rounds, and every run has at least one"
    return LowerBound(not problems, target_error, bank_size / 8, rounds, vacuous, reason)
