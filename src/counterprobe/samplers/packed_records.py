"""Records of the paper's sampler: what is fixed before a run, and what a run reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from counterprobe.arrays import IntArray
from counterprobe.discovery.packed.screen import ScreenSettings

__all__ = ["Guard", "PackedReport", "PackedSetup", "ScreenReport"]

Guard = Literal["none", "peel", "repair", "centroid"]


@dataclass(frozen=True, slots=True)
class PackedSetup:
    """Everything the box needs, fixed before the first evaluation.

    Attributes
    ----------
    mode : {"theory", "tuned"}
    screen : ScreenSettings
        Colors, colorings, cutoff, chunk size, cut, majority.
    bank_threshold, row_error : float
        Banks keep tokens of mass at least ``bank_threshold - row_error``.
    phase_cap, round_cap : int
        Peel phases and commit rounds permitted.
    hypotheses : dict of str to bool
        Which hypotheses of the guarantee were checked, and whether they hold.
    shared_by : int or None
        Decode one position at a time where a screen takes more than that for so many sequences;
        None screens whatever it costs.
    """

    mode: Literal["theory", "tuned"]
    screen: ScreenSettings
    bank_threshold: float
    row_error: float
    phase_cap: int
    round_cap: int
    hypotheses: dict[str, bool]
    shared_by: int | None = None

    def too_costly(self, masked: int, num_columns: int) -> int | None:
        """Return what is foreseen where it makes the run decode one position at a time.

        A round cap below the number of masked positions rules that out: it would be reached.
        """
        if self.shared_by is None or self.round_cap < masked:
            return None
        foreseen = 1 + self.screen.evaluations(num_columns)
        return foreseen if foreseen > masked * self.shared_by else None


@dataclass(frozen=True, slots=True)
class ScreenReport:
    """One screen: what was screened, what it cost, what it named."""

    num_residual: int
    probes: int
    num_edges: int
    num_overflowed: int
    num_peeled: int


@dataclass(frozen=True, slots=True)
class PackedReport:
    """Diagnostics of one run.

    Attributes
    ----------
    setup : PackedSetup
    num_columns : int
        Columns of every screen.
    screens : tuple of ScreenReport
    peel_phases : int
        Completed peel phases.
    terminal_positions : ndarray of int
        Residual positions when peeling ended.
    terminal_edges : ndarray of int, shape (E, 2)
        Certified edges among them, before repair.
    num_repaired, num_layers : int
        Cycle vertices committed singly, and centroid batches committed.
    guard : {"none", "peel", "repair", "centroid"}
        Where the round cap cut the run short, if it did.
    num_forced : int
        Positions that the last permitted round committed at once because of it.
    foreseen : int or None
        Evaluations foreseen for preprocessing and one screen, where they were too many and the
        run decoded one position at a time in place of them; None where it screened.
    """

    setup: PackedSetup
    num_columns: int
    screens: tuple[ScreenReport, ...]
    peel_phases: int
    terminal_positions: IntArray
    terminal_edges: IntArray
    num_repaired: int
    num_layers: int
    guard: Guard
    num_forced: int
    foreseen: int | None = None

    @property
    def notes(self) -> list[str]:
        """Say when no screen was made, and when the guard acted and exactness is not claimed."""
        if self.foreseen is not None:
            return [
                f"Decoded one position at a time: a screen was foreseen to take the run to "
                f"{self.foreseen:,} evaluations or more"
            ]
        if self.guard == "none":
            return []
        return [
            f"The guard acted at a {self.guard} commit: round {self.setup.round_cap}, the last "
            f"permitted, committed all {self.num_forced:,} positions left in one batch, whatever "
            "joins them. Nothing is claimed about their joint law; raise round_cap."
        ]
