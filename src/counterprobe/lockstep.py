"""Moved to :mod:`counterprobe.run.lockstep`; ``Many`` became ``SampleBatch``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.run.ledger import Ledger
from counterprobe.run.lockstep import Lockstep as _Lockstep

__all__ = ["Lockstep", "Many"]


@dataclass(frozen=True, slots=True)
class Many:
    """Sequences, their ledgers and that of the whole."""

    tokens: NDArray[np.int32]
    ledgers: list[Ledger]
    ledger: Ledger


class Lockstep(_Lockstep):
    """A ``run.lockstep.Lockstep`` whose result is a ``Many``."""

    def result(self, *about: Any, **named: Any) -> Many:  # type: ignore[override]
        """Return the sequences and ledgers so far."""
        return Many(self.states, self.ledgers, self.ledger)
