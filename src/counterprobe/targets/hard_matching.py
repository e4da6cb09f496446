"""The hard matching family: pairs that only react to one secret token each.

Definition "Finite hard matching family". Every position has the same public marginal: a bank of
candidate tokens of mass rho each and a background. Each position's *trigger* is one hidden
candidate; a pair's law deviates from independence only through its two triggers, by ``theta``. The
selected frozen oracle answers with the plain marginal unless a trigger is revealed, which is what
makes the family hard: a probe learns about a pair only if it guessed a trigger.

``hard_matching`` takes any parameters that the definition admits. ``hard_witness`` takes the
signal-calibrated ones, with which the paper's lower bound places the family inside the class of
its upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import StateArray
from counterprobe.classes import TokenClasses
from counterprobe.oracles import LawOracle, OracleInfo, Readouts
from counterprobe.rows import ClassedRows, DenseRows
from counterprobe.states import MASK
from counterprobe.streams import keyed_generator
from counterprobe.targets import forests
from counterprobe.targets.law import ForestLaw
from counterprobe.theory.lower import witness_bank
from counterprobe.theory.parameters import check_exponent, standard_signal

__all__ = ["HardMatchingLaw", "HardMatchingOracle", "hard_matching", "hard_witness"]


class HardMatchingLaw(ForestLaw):
    """A member of the hard matching family; build one with :func:`hard_matching`.

    Attributes
    ----------
    mate : ndarray of int, shape (N,)
        The other end of each position's pair.
    trigger : ndarray of int, shape (N,)
        The trigger token of each position.
    bank_size, trigger_mass, coupling
        The public parameters B, rho and theta.
    """

    mate: NDArray[np.int64]
    trigger: NDArray[np.int64]
    bank_size: int
    trigger_mass: float
    coupling: float

    @property
    def largest_rank_exponent(self) -> float:
        """The largest s with which ``rho <= bank_size^-s``, as class inclusion requires.

        RF with C = 1 then holds, if ``V rho > 1`` too. Infinite for a bank of one.
        """
        if self.bank_size == 1:
            return math.inf
        return -math.log(self.trigger_mass) / math.log(self.bank_size)

    def frozen_oracle(self) -> HardMatchingOracle:
        """Return the selected oracle: exact, except blind to revealed non-triggers."""
        return HardMatchingOracle(self)


def hard_matching(
    length: int,
    target_seed: int = 0,
    *,
    vocab_size: int = 2048,
    bank_size: int = 64,
    trigger_mass: float = 1 / 128,
    coupling: float | None = None,
) -> HardMatchingLaw:
    """Draw a member of the hard matching family.

    The defaults are hard, but not in the paper's class at its usual exponents: 64 candidates of
    mass 1/128 satisfy RF with C = 1 only for s up to 7/6 (``largest_rank_exponent``), and not
    for s = 1.5. :func:`hard_witness` draws members that are in the class.

    Parameters
    ----------
    length : int
        Even.
    target_seed : int
        Draws the matching and the triggers.
    vocab_size, bank_size : int
        V and the number of candidates, ``1 <= bank_size < vocab_size``.
    trigger_mass : float
        rho, with ``bank_size * rho < 1`` and ``rho <= 1/2``.
    coupling : float, optional
        theta in ``(0, rho]``; rho by default.
    """
    length = forests.check_length(length)
    theta = trigger_mass if coupling is None else coupling
    if length < 2 or length % 2:
        raise ValueError(f"length must be even and at least 2, got {length}")
    if not 1 <= bank_size < vocab_size:
        raise ValueError(f"bank_size must lie in 1..{vocab_size - 1}, got {bank_size}")
    if not (0 < theta <= trigger_mass <= 0.5 and bank_size * trigger_mass < 1):
        raise ValueError(
            "the hard family needs 0 < coupling <= trigger_mass <= 1/2 and bank_size * "
            f"trigger_mass < 1, got coupling {theta}, trigger_mass {trigger_mass}, bank_size "
            f"{bank_size}"
        )
    label = keyed_generator(target_seed, "labels").permutation(length)
    edges = label[forests.matching(length)]
    trigger = keyed_generator(target_seed, "triggers").integers(bank_size, size=length)
    token_class = np.ones((bank_size, vocab_size), dtype=np.int64)
    token_class[np.arange(bank_size), np.arange(bank_size)] = 0
    marginal = np.full(vocab_size, (1 - bank_size * trigger_mass) / (vocab_size - bank_size))
    marginal[:bank_size] = trigger_mass
    rho = trigger_mass
    feature = np.array([1 - rho, -rho])
    law = HardMatchingLaw(
        np.tile([rho, 1 - rho], (length, 1)),
        edges,
        1 + theta * np.outer(feature, feature) / (rho * (1 - rho)),
        classes=TokenClasses.build(
            length, token_class, within=np.tile(marginal, (bank_size, 1)), kind=trigger
        ),
        name="hard-matching",
    )
    law.mate = np.empty(length, dtype=np.int64)
    law.mate[edges[:, 0]], law.mate[edges[:, 1]] = edges[:, 1], edges[:, 0]
    law.trigger = trigger
    law.bank_size, law.trigger_mass, law.coupling = bank_size, trigger_mass, theta
    return law


def hard_witness(
    length: int,
    target_seed: int = 0,
    *,
    vocab_size: int,
    hellinger_radius: float,
    rank_exponent: float = 1.5,
    edge_signal: float | None = None,
) -> HardMatchingLaw:
    """Draw a member of the signal-calibrated hard family, a witness of the lower bound.

    ``rho = theta = omega`` and ``floor(omega^(-1/s))`` candidates (corollary "Signal-calibrated
    finite query-round lower bound"). With ``V omega > 1`` the law is in the class of signal omega
    (``L = alpha = C = 1``), and with ``omega^3 <= x^2 / (2N)`` its frozen oracle is within the
    Hellinger radius x.

    Parameters
    ----------
    length : int
        N, even and at least 4.
    target_seed : int
        Draws the matching and the triggers.
    vocab_size : int
        V.
    hellinger_radius : float
        x, in ``(0, 1]``; ``epsilon / 2`` in the paper's main text.
    rank_exponent : float
        s, above 1.
    edge_signal : float, optional
        omega; ``(1/2) (x^2 / N)^(1/3)`` by default, with which V must exceed
        ``2 (N / x^2)^(1/3)``.

    Examples
    --------
    >>> law = hard_witness(64, vocab_size=256, hellinger_radius=0.05)
    >>> law.bank_size, round(law.trigger_mass, 4)
    (15, 0.017)
    """
    check_exponent(rank_exponent)
    if length < 4 or length % 2:
        raise ValueError(f"length must be even and at least 4, got {length}")
    if not 0 < hellinger_radius <= 1:
        raise ValueError(f"hellinger_radius must lie in (0, 1], got {hellinger_radius!r}")
    signal = standard_signal(length, hellinger_radius) if edge_signal is None else edge_signal
    most = (hellinger_radius**2 / (2 * length)) ** (1 / 3)
    if not 0 < signal <= min(0.5, most):
        raise ValueError(
            f"edge_signal must lie in (0, min(1/2, (hellinger_radius^2 / (2N))^(1/3))] = "
            f"(0, {min(0.5, most):.4g}], got {signal!r}; a larger one takes the oracle out of its "
            "radius"
        )
    if vocab_size * signal <= 1:
        raise ValueError(
            f"vocab_size must exceed 1 / edge_signal = {1 / signal:.4g}, got {vocab_size}"
        )
    return hard_matching(
        length,
        target_seed,
        vocab_size=vocab_size,
        bank_size=witness_bank(signal, rank_exponent),
        trigger_mass=signal,
        coupling=signal,
    )


@dataclass(frozen=True, slots=True)
class HardMatchingOracle(LawOracle):
    """The family's frozen oracle: the marginal, unless the mate shows its trigger.

    Its only error is at a revealed non-trigger, where the exact mass of the own trigger is
    ``rho (1 - theta)`` and the oracle says ``rho``; it declares that error in all three metrics.
    """

    law: HardMatchingLaw

    @property
    def info(self) -> OracleInfo:
        """What it is."""
        return OracleInfo(
            "frozen hard-matching",
            self.law.length,
            self.law.vocab_size,
            self.row_error,
            trusted=True,
            row_hellinger_radius=self.row_hellinger_radius,
            row_kl_radius=self.row_kl_radius,
        )

    @property
    def row_error(self) -> float:
        """The exact total-variation radius."""
        return self.law.coupling * self.law.trigger_mass

    @property
    def row_hellinger_radius(self) -> float:
        """The exact squared Hellinger radius."""
        exact, told = self._wrong_row()
        return float(exact.squared_hellinger(told)[0])

    @property
    def row_kl_radius(self) -> float:
        """The exact radius in forward KL."""
        exact, told = self._wrong_row()
        return max(0.0, float(exact.kl(told)[0]))  # rounding, for tiny couplings

    def _wrong_row(self) -> tuple[DenseRows, DenseRows]:
        """Return class masses next to a revealed non-trigger: the exact ones and the oracle's."""
        rho = self.law.trigger_mass
        lowered = rho * (1 - self.law.coupling)
        return DenseRows(np.array([[lowered, 1 - lowered]])), DenseRows(np.array([[rho, 1 - rho]]))

    def rows(self, states: StateArray, readouts: Readouts) -> ClassedRows:
        """Return the marginal everywhere but next to a revealed trigger."""
        law = self.law
        mate = law.mate[readouts.position]
        seen = np.asarray(states)[readouts.state_index, mate]
        triggered = (seen != MASK) & (seen == law.trigger[mate])
        rho = law.trigger_mass
        masses = np.tile([rho, 1 - rho], (len(readouts), 1))
        # Given the mate's trigger, the own trigger has mass rho (1 + theta (1 - rho) / rho).
        lifted = rho + law.coupling * (1 - rho)
        masses[triggered] = lifted, 1 - lifted
        return ClassedRows(masses, law.classes, readouts.position)
