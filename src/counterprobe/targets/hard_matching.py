"""The hard matching family: pairs that only react to one secret token each.

Definition "Finite hard matching family". Every position has the same public marginal: a bank of
candidate tokens of mass rho each and a background. Each position's *trigger* is one hidden
candidate; a pair's law deviates from independence only through its two triggers, by ``theta``. The
selected frozen oracle answers with the plain marginal unless a trigger is revealed, which is what
makes the family hard: a probe learns about a pair only if it guessed a trigger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.classes import TokenClasses
from counterprobe.oracle import LawOracle, Readouts
from counterprobe.rows import ClassedRows
from counterprobe.states import MASK, StateArray
from counterprobe.streams import keyed_generator
from counterprobe.targets import forests
from counterprobe.targets.law import ForestLaw

__all__ = ["HardMatchingLaw", "HardMatchingOracle", "hard_matching"]


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


@dataclass(frozen=True, slots=True)
class HardMatchingOracle(LawOracle):
    """The family's frozen oracle: the marginal, unless the mate shows its trigger.

    Its only error is at a revealed non-trigger, where it is at total variation exactly
    ``coupling * trigger_mass`` from the exact row.
    """

    law: HardMatchingLaw
    trusted: bool = True

    @property
    def name(self) -> str:
        """What the oracle is."""
        return "frozen hard-matching"

    @property
    def row_error(self) -> float:
        """The exact total-variation radius."""
        return self.law.coupling * self.law.trigger_mass

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
