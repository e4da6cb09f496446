"""What a compressed screen is told, what it must show, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.errors import ImpossibleState, Infeasible
from counterprobe.oracles import Readouts

__all__ = [
    "ASSUMPTION",
    "GENERIC",
    "Assume",
    "BatchReport",
    "CompressedSettings",
    "Findings",
    "Sample",
    "Terms",
    "arbitrary_tokens",
    "assumption_of",
    "default_max_probes",
    "needed_evidence",
    "nothing_to_find",
    "refuse_empty",
]

# What no test of a screen sees.
ASSUMPTION = (
    "assumed, not tested: any dependence beyond the edges found moves some row in at least a "
    "third of the sequences that the edges describe, with 1, 2, 4, ... or half of their positions "
    "shown, or all but one in 8 to 64 (a parity of two hundred positions does not)"
)


# What is assumed where nothing was rehearsed.
GENERIC = (
    "assumed, not tested: the law is a forest of pairs, and whatever a neighbour shows, any of "
    "its choices or the mask, acts differently from whatever else it shows"
)

Assume = Literal["tested", "generic"]
Method = Literal["auto", "regression"]


def assumption_of(assume: str) -> str:
    """Return what no test sees, in plain words."""
    return GENERIC if assume == "generic" else ASSUMPTION


@dataclass(frozen=True, slots=True)
class CompressedSettings:
    """The public settings of a compressed screen.

    Attributes
    ----------
    failure_budget : float
        Chance that the structure is wrong, for laws within the assumptions.
    first_batch : int
        Probes of the first batch, which masks at random.
    mask_rate : float
        Share of positions that it masks.
    max_probes : int, optional
        Probes permitted; by default :func:`default_max_probes`.
    bank_threshold : float, optional
        Tokens of at least this all-mask mass get a column of their own; by default the paper's
        floor ``4 max(row_error, 1/V)``, or zero (every token) where that passes 1/4, raised
        until no position has more than 16 such tokens (classed rows: than classes).
    tolerance : float, optional
        Total variation that counts as explained; three row errors by default.
    patience : int
        Batches without progress after which unresolved positions are given up.
    assume : {"tested", "generic"}
        ``generic`` takes it for granted that the law is a forest of pairs of which every choice
        acts, masked included, and leaves the rehearsals out; only the decoder uses it.
    method : {"auto", "regression"}
        ``auto`` decodes exact rows by peeling, and lets the regression screen take over where that
        fails; ``regression`` uses the latter from the start.
    """

    failure_budget: float = 0.01
    first_batch: int = 56
    mask_rate: float = 0.4
    max_probes: int | None = None
    bank_threshold: float | None = None
    tolerance: float | None = None
    patience: int = 12
    assume: Assume = "tested"
    method: Method = "auto"

    def __post_init__(self) -> None:
        """Check the settings."""
        for name in ("failure_budget", "mask_rate"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
        for name in ("first_batch", "max_probes", "patience"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, (int, np.integer)) and value >= 1):
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        for name in ("bank_threshold", "tolerance"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {value!r}")
        for name, allowed in (("assume", get_args(Assume)), ("method", get_args(Method))):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} must be {' or '.join(allowed)}, got {value!r}")


def needed_evidence(
    num_positions: int, num_choices: int, failure_budget: float, *, reveal_rate: float = 1.0
) -> int:
    """Return the clean probes that a readout's neighbourhood must explain after it was chosen.

    A missed neighbour acts through at least one of its K choices, so a probe that reveals it stays
    blind to it with chance ``q = 1 - 1/K`` at most; an edge is missed only if both of its ends are
    blind, so each needs ``log(N / budget) / (2 log(1/q))`` probes. Where only a share of them
    reveals it, ``q = 1 - share/K``. With one choice nothing can be learned, and no number is
    enough.
    """
    if num_choices < 2:
        return 0
    blind = 1 - reveal_rate / num_choices
    return math.ceil(math.log(num_positions / failure_budget) / (2 * math.log(1 / blind)))


def default_max_probes(num_positions: int, num_choices: int, failure_budget: float) -> int:
    """Return a cap far above what forests need: 32 K log(N / budget)."""
    return math.ceil(32 * max(2, num_choices) * math.log(num_positions / failure_budget))


@dataclass(frozen=True, slots=True)
class Sample:
    """Some probes and what came back, kept to recognise the oracle by.

    Attributes
    ----------
    states : ndarray of int, shape (S, N)
    readouts : Readouts
    rows : ndarray of float, shape (R, W)
        Whole rows, or rows pooled to fewer entries.
    width : int
        Entries of a whole row: V or C.
    precision : float
        Total variation by which rows of one model may differ from batch to batch, by the type of
        its numbers.
    """

    states: NDArray[np.int32]
    readouts: Readouts
    rows: FloatArray
    width: int
    precision: float

    @classmethod
    def empty(cls, length: int) -> Sample:
        """Return what a screen that probed nothing keeps."""
        none = Readouts.pairs(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        return cls(np.empty((0, length), dtype=np.int32), none, np.empty((0, 1)), 1, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The law that fitted neighbourhoods describe, over the coordinates of the rows.

    Attributes
    ----------
    unary : ndarray of float, shape (N, C)
        Log-weights, ``-inf`` for coordinates that a position does not have.
    edges : ndarray of int, shape (E, 2)
    tables : ndarray of float, shape (E, C, C)
        Log pair tables, ``tables[e, a, b]`` at ``edges[e] = (i, j)``.
    is_complete : ndarray of bool, shape (N,)
        Positions of which every term was determined, so that rows can be compared.
    tolerance : float
        Total variation that counted as explained when they were fitted.
    """

    unary: FloatArray
    edges: IntArray
    tables: FloatArray
    is_complete: BoolArray
    tolerance: float


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One stage of probes: what it was for and where the screen stood after it."""

    purpose: str
    probes: int
    num_resolved: int
    num_reopened: int
    num_edges: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a compressed screen found.

    Attributes
    ----------
    edges : ndarray of int, shape (E, 2)
        Pairs that a resolved end names, or of which it takes the terms over.
    is_resolved : ndarray of bool, shape (N,)
        Whether a position's neighbourhood is known; given positions count as resolved.
    evidence : ndarray of int, shape (N,)
        Clean probes explained since the neighbourhood was chosen.
    misfit : ndarray of float, shape (N,)
        Worst total variation between a clean row and its reconstruction, by the best
        neighbourhood found where none explains it; NaN where nothing was fitted.
    needed : int
        Evidence that every resolved position has at least.
    num_choices : int
        The largest number of columns K.
    reason : str
        Why positions are unresolved; empty if none is.
    batches : tuple of BatchReport
    sample : Sample or None
        Probes that read every position, and their replies; None where nothing was probed.
    seconds : dict of str to float
        Time spent probing (the oracle and the door), ranking sources and fitting.
    terms : Terms or None
        The fitted terms; None where rows were sketched, or nothing was probed.
    num_compared, num_refuted : int
        Positions of which a row was compared with what the terms imply, under the law; positions
        given up because one of their component disagreed.
    advice : str
        What to try where positions are unresolved; empty if none is.
    bank_threshold, usual_threshold : float
        Mass from which a token has a column of its own: as it was used, and before it was raised
        to bound the number of columns.
    tolerance : float
        Total variation that counted as explained.
    decoder : str
        Which screen found it: ``"peeling"`` or ``"regression"``.
    handover : str
        Why the regression screen took over from the decoder; empty if it did not.
    assume : str
        As in the settings; what the regression screen finds is always tested.
    """

    edges: IntArray
    is_resolved: BoolArray
    evidence: IntArray
    misfit: FloatArray
    needed: int
    num_choices: int
    reason: str
    batches: tuple[BatchReport, ...]
    sample: Sample | None
    seconds: dict[str, float]
    terms: Terms | None = None
    num_compared: int = 0
    num_refuted: int = 0
    advice: str = ""
    bank_threshold: float = 0.0
    usual_threshold: float = 0.0
    tolerance: float = 0.0
    decoder: str = "regression"
    handover: str = ""
    assume: str = "tested"

    @property
    def column_note(self) -> str:
        """What was done to bound the number of columns; empty if nothing."""
        if self.bank_threshold <= self.usual_threshold:
            return ""
        return (
            f"the bank threshold was raised from {self.usual_threshold:.2g} to "
            f"{self.bank_threshold:.2g}, which leaves {self.num_choices} columns a position at "
            "most; tokens of one tail group count as alike, and bank_threshold sets it otherwise"
        )

    @property
    def found_by(self) -> dict[str, str]:
        """Which screen it was, and why if the decoder was left."""
        handover = {"handover": self.handover} if self.handover else {}
        return {"decoder": self.decoder, **handover}

    @property
    def assumption(self) -> str:
        """What no test of this screen sees, in plain words."""
        return assumption_of(self.assume)


def nothing_to_find(length: int) -> Findings:
    """One position, or one token, depends on nothing and costs nothing to find out about."""
    return Findings(
        edges=np.empty((0, 2), dtype=np.int64),
        is_resolved=np.ones(length, dtype=np.bool_),
        evidence=np.zeros(length, dtype=np.int64),
        misfit=np.full(length, np.nan),
        needed=0,
        num_choices=0,
        reason="",
        batches=(),
        sample=None,
        seconds={},
    )


def refuse_empty(findings: Findings, residual: IntArray) -> None:
    """Raise ``Infeasible`` when a screen resolved nothing at all."""
    if len(residual) > 1 and not findings.is_resolved[residual].any():
        probes = sum(batch.probes for batch in findings.batches)
        helps = f"{findings.advice}, or " if findings.advice else ""
        raise Infeasible(
            f"the screen resolved none of {len(residual)} positions with {probes} probes: "
            f"{findings.reason}. What to try: {helps}commit every position singly "
            "(fallback=True), or use a sampler that needs no structure, such as punt or "
            "entropy-bounded"
        )


@contextmanager
def arbitrary_tokens() -> Iterator[None]:
    """Turn an oracle's refusal of a probe as impossible into ``Infeasible``, with advice."""
    try:
        yield
    except ImpossibleState as error:
        raise Infeasible(
            f"a probe showed tokens that cannot stand together ({error}): probes show arbitrary "
            "tokens, and this law forbids some. What to try: a sampler that shows only what it "
            "drew, such as punt or entropy-bounded"
        ) from error
