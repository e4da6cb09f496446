"""The paper's complete sampler: screen, peel, certify, repair, centroid layers, guarded.

Algorithm "Randomized complete packed-screen sampler" of the appendix. ``run_packed`` is its box;
the machinery stands in ``discovery/packed/`` and ``graph/``. ``PackedTheory`` takes the paper's
public formulas (``packed_theory.py``), :class:`Packed` takes settings of its own and derives the
rest from N and the oracle alone; both run the same box.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from counterprobe.arguments import Count, Share, Whole
from counterprobe.arrays import IntArray
from counterprobe.discovery.banks import Banks, read_banks
from counterprobe.discovery.packed.fillers import (
    Filler,
    FillerContext,
    filler_named,
    make_filler,
    most_likely_filler,
)
from counterprobe.discovery.packed.screen import ScreenSettings, draw_colorings, packed_screen
from counterprobe.discovery.packed.selectors import (
    SELECTORS,
    RowSelector,
    ScreenRows,
    SeesTranscript,
    top_votes,
)
from counterprobe.errors import CounterprobeError
from counterprobe.planning.layers import commit_order
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Decisions
from counterprobe.theory.colorings import enough_colorings
from counterprobe.theory.parameters import (
    MIN_CUTOFF,
    peel_phase_cap,
    round_cap,
    threshold_floor,
)

__all__ = [
    "Packed",
    "PackedReport",
    "PackedSetup",
    "ScreenReport",
    "row_selector",
    "run_packed",
    "screen_cost",
]

Guard = Literal["none", "peel", "repair", "centroid"]

# Tuned defaults, for forests whose typical degree is two to four: an edge is seen in 7 of 8
# colorings, a non-edge at a readout of degree three in about a third of them, and a majority of
# 0.65 tells the two apart with the fewest submissions. docs/packed.md has the sums.
DEFAULT_COLORS = 8
DEFAULT_FRACTION = 0.65
DEFAULT_CUTOFF = 8
# Columns of a typical position, where a cost is foreseen: two likely tokens and the tail.
TYPICAL_COLUMNS = 3


@dataclass(frozen=True, slots=True)
class PackedSetup:
    """Everything the box needs, fixed before the first submission.

    Attributes
    ----------
    mode : {"theory", "tuned"}
    screen : Screen
        Colors, colorings, cutoff, chunk size, cut, majority.
    bank_threshold, row_error : float
        Banks keep tokens of mass at least ``bank_threshold - row_error``.
    phase_cap, round_cap : int
        Peel phases and commit rounds permitted.
    hypotheses : dict of str to bool
        Which hypotheses of the guarantee were checked, and whether they hold.
    """

    mode: Literal["theory", "tuned"]
    screen: ScreenSettings
    bank_threshold: float
    row_error: float
    phase_cap: int
    round_cap: int
    hypotheses: dict[str, bool]


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

    @property
    def notes(self) -> list[str]:
        """Say when the guard acted, after which exactness is not claimed."""
        if self.guard == "none":
            return []
        return [
            f"The guard acted at a {self.guard} commit: round {self.setup.round_cap}, the last "
            f"permitted, committed all {self.num_forced:,} positions left in one batch, whatever "
            "joins them. Nothing is claimed about their joint law; raise round_cap."
        ]


class _Rounds:
    """Commits under the round cap: the last permitted round takes everything that is left."""

    def __init__(self, run: Unmasking, cap: int) -> None:
        self.run = run
        self.cap = cap
        self.guard: Guard = "none"
        self.num_forced = 0

    def commit(self, batch: IntArray, place: Guard) -> bool:
        """Commit a batch, or everything when only one round is left; say whether to go on."""
        if self.run.ledger.commits == self.cap - 1:
            self.guard = place
            self.num_forced = len(self.run.residual)
            self.run.transcript.note("guard", place=place)
            self.run.commit(self.run.residual)
            return False
        self.run.transcript.announce("layer" if place == "centroid" else place)
        self.run.commit(batch)
        return True


def run_packed(
    run: Unmasking,
    decisions: Decisions,
    setup: PackedSetup,
    *,
    filler: Filler = most_likely_filler,
    selector: RowSelector | SeesTranscript = top_votes,
) -> PackedReport:
    """Run the paper's box to completion.

    Parameters
    ----------
    run : Unmasking
        A fresh run.
    decisions : Decisions
        Colorings and filler choices have separate keys.
    setup : PackedSetup
    filler : Filler
    selector : RowSelector or SeesTranscript
    """
    # 1. Preprocess: one all-mask readout.
    banks = run.once(
        "banks", functools.partial(read_banks, run, setup.bank_threshold, setup.row_error)
    )
    rounds = _Rounds(run, setup.round_cap)
    log = _Log(setup, banks)
    while not run.is_complete:
        # 2 and 3. Filler, then fresh colors, then the screen.
        probes_before = run.ledger.probes
        screening = functools.partial(_screen, run, decisions, log, filler, selector)
        rows, colors = run.once(f"screen {len(log.screens)}", screening)
        # 4. Peel what many rows claim, one by one, in index order.
        peel = np.flatnonzero(2 * rows.claims(run.length) > setup.screen.degree_cutoff)
        is_last = len(peel) == 0 or log.peel_phases == setup.phase_cap
        probes = run.ledger.probes - probes_before
        log.screened(run, rows, colors, probes, peel[:0] if is_last else peel)
        if is_last:
            return _finish(run, rows, rounds, log)
        for v in peel:
            if not rounds.commit(np.array([v]), "peel"):
                return log.report(rounds)
        log.peel_phases += 1
    return log.report(rounds)


def _screen(
    run: Unmasking,
    decisions: Decisions,
    log: _Log,
    filler: Filler,
    selector: RowSelector | SeesTranscript,
) -> tuple[ScreenRows, NDArray[np.int32]]:
    """Fix a filler, then draw fresh colors for all positions, then run the screen."""
    setup, banks, earlier = log.setup, log.banks, tuple(log.rows)
    index, context = len(earlier), FillerContext(run.state, banks, earlier)
    # The key keeps the paper's word, and with it the tokens of every seed.
    rng = decisions.generator("draft", index)
    tokens = make_filler(filler, context, rng, run.vocab_size)
    colors = draw_colorings(
        setup.screen.num_colorings,
        setup.screen.num_colors,
        run.length,
        decisions.generator("coloring", index),
    )
    columns = banks.columns(tokens)
    rows = packed_screen(run, setup.screen, columns, tokens, colors, selector, earlier)
    return rows, colors


def _finish(run: Unmasking, rows: ScreenRows, rounds: _Rounds, log: _Log) -> PackedReport:
    """Certify the terminal graph, repair its cycles, and commit its centroid layers."""
    # 5. Terminal graph: either end names the other. Nothing is screened again, so the order of
    # repairs and the layers are functions of this graph alone.
    edges = rows.edges()
    order = commit_order(edges, np.ones(run.length, dtype=np.bool_), rows.residual)
    log.terminal_positions, log.terminal_edges = rows.residual, edges
    run.transcript.note("terminal", positions=rows.residual, edges=edges)
    for v in order.repaired:
        if not rounds.commit(np.array([v]), "repair"):
            return log.report(rounds)
        log.num_repaired += 1
    # 6. Centroid layers: one vertex per component, one batch per layer.
    for layer in order.layers:
        if not rounds.commit(layer, "centroid"):
            return log.report(rounds)
        log.num_layers += 1
    return log.report(rounds)


class _Log:
    """What a run adds to as it goes; ``report`` freezes it."""

    def __init__(self, setup: PackedSetup, banks: Banks) -> None:
        self.setup = setup
        self.banks = banks
        self.rows: list[ScreenRows] = []
        self.screens: list[ScreenReport] = []
        self.peel_phases = 0
        self.terminal_positions = np.empty(0, dtype=np.int64)
        self.terminal_edges = np.empty((0, 2), dtype=np.int64)
        self.num_repaired = 0
        self.num_layers = 0

    def screened(
        self,
        run: Unmasking,
        rows: ScreenRows,
        colors: NDArray[np.int32],
        probes: int,
        peel: IntArray,
    ) -> None:
        """Note one screen."""
        self.rows.append(rows)
        self.screens.append(
            ScreenReport(
                num_residual=len(rows.residual),
                probes=probes,
                num_edges=len(rows.edges()),
                num_overflowed=rows.num_overflowed,
                num_peeled=len(peel),
            )
        )
        run.transcript.note("screen", rows=rows, colors=colors, setup=self.setup, peel=peel)

    def report(self, rounds: _Rounds) -> PackedReport:
        """Freeze."""
        return PackedReport(
            setup=self.setup,
            num_columns=self.banks.num_columns,
            screens=tuple(self.screens),
            peel_phases=self.peel_phases,
            terminal_positions=self.terminal_positions,
            terminal_edges=self.terminal_edges,
            num_repaired=self.num_repaired,
            num_layers=self.num_layers,
            guard=rounds.guard,
            num_forced=rounds.num_forced,
        )


def row_selector(name: str) -> RowSelector | SeesTranscript:
    """Return what decides which candidates an overflowing row keeps, by its name."""
    if name not in SELECTORS:
        raise ValueError(f"selector must be one of {', '.join(SELECTORS)}; got {name!r}")
    return SELECTORS[name]


@dataclass(frozen=True)
class Packed(Sampler):
    """The paper's sampler with tuned settings.

    Every setting left at None follows a rule that looks at N and the oracle alone (see
    ``docs/packed.md``): ``num_colors`` 8, ``degree_cutoff`` 8, ``majority_fraction`` 0.65, one
    chunk per color; the number of colorings is :func:`enough_colorings`; the cut is twice the
    oracle's row error; the bank threshold is the paper's floor ``4 max(row_error, 1/V)``, or zero
    (every token) where that passes 1/4.

    Parameters
    ----------
    num_colors, num_colorings, degree_cutoff, chunk_count : int, optional
    tv_cut, majority_fraction, bank_threshold : float, optional
    phase_cap, round_cap : int, optional
        The paper's formulas at ``max(degree_cutoff, 9)`` by default.
    skip_empty_colors : bool
        Leave out source colors that no residual position has.
    selector : {"top-votes", "empty-on-overflow"}
    filler : {"most-likely", "rare"}
        Background tokens of a screen, see ``discovery/packed/fillers.py``.
    """

    name: ClassVar[str] = "packed"
    summary: ClassVar[str] = "the paper's sampler with tuned settings"
    source: ClassVar[str] = "the paper, section 'Finite-size experiments'"
    bound: ClassVar[str] = (
        "exact on runs whose terminal graph contains the residual forest and whose guard did not "
        "act"
    )

    num_colors: Annotated[int, Whole(2)] | None = None
    num_colorings: Count | None = None
    degree_cutoff: Count | None = None
    chunk_count: Count | None = None
    tv_cut: Share | None = None
    majority_fraction: float | None = None
    bank_threshold: Share | None = None
    phase_cap: Annotated[int, Whole(0)] | None = None
    round_cap: Count | None = None
    skip_empty_colors: bool = True
    selector: str = "top-votes"
    filler: str = "most-likely"

    def __post_init__(self) -> None:
        """Check what does not depend on the target."""
        super().__post_init__()
        row_selector(self.selector)
        filler_named(self.filler)
        fraction = self.majority_fraction
        if fraction is not None and not 0 <= fraction < 1:
            raise ValueError(f"majority_fraction must lie in [0, 1), got {fraction!r}")

    def foreseen_submissions(self, length: int, vocab_size: int) -> int | None:
        """Return the cost of one screen, or None where the settings admit none."""
        try:
            setup = self.setup(length, vocab_size, 0.0)
        except (ValueError, CounterprobeError):
            return None
        return screen_cost(setup.screen)

    def setup(self, length: int, vocab_size: int, oracle_row_error: float) -> PackedSetup:
        """Fix everything before the first submission, from N and the oracle alone."""
        colors = DEFAULT_COLORS if self.num_colors is None else self.num_colors
        fraction = DEFAULT_FRACTION if self.majority_fraction is None else self.majority_fraction
        cutoff = DEFAULT_CUTOFF if self.degree_cutoff is None else self.degree_cutoff
        chunks = 1 if self.chunk_count is None else min(self.chunk_count, length)
        colorings = self.num_colorings
        if colorings is None:
            colorings = enough_colorings(length, colors, fraction)
        cut = 2 * oracle_row_error if self.tv_cut is None else self.tv_cut
        threshold = self.bank_threshold
        if threshold is None:
            floor = threshold_floor(oracle_row_error, vocab_size)
            threshold = floor if floor <= 0.25 else 0.0
        theory_cutoff = max(cutoff, MIN_CUTOFF)
        phases = self.phase_cap
        if phases is None:
            phases = peel_phase_cap(length, theory_cutoff)
        rounds = self.round_cap
        if rounds is None:
            rounds = round_cap(length, theory_cutoff, phases)
        return PackedSetup(
            mode="tuned",
            screen=ScreenSettings(
                num_colors=colors,
                num_colorings=colorings,
                degree_cutoff=cutoff,
                chunk_size=-(-length // chunks),
                tv_cut=cut,
                majority_fraction=fraction,
                skip_empty_colors=self.skip_empty_colors,
            ),
            bank_threshold=threshold,
            row_error=oracle_row_error,
            phase_cap=phases,
            round_cap=rounds,
            hypotheses={},
        )

    def unmask(self, run: Unmasking, decisions: Decisions) -> object:
        """Run the box with tuned settings."""
        setup = self.setup(run.length, run.vocab_size, run.row_error)
        filler, selector = filler_named(self.filler), row_selector(self.selector)
        return run_packed(run, decisions, setup, filler=filler, selector=selector)


def screen_cost(screen: ScreenSettings) -> int:
    """Return the submissions of one screen at a typical number of columns."""
    pairs = screen.num_colors * (screen.num_colors - 1)
    return 1 + TYPICAL_COLUMNS * screen.num_colorings * pairs
