"""The paper's complete sampler: screen, peel, certify, repair, centroid layers, guarded.

Algorithm "Randomized complete packed-screen sampler" of the appendix. ``run_packed`` is its box;
the machinery stands in ``discovery/packed/`` and ``graph/``. ``PackedTheory`` takes the paper's
public formulas (``packed_theory.py``), :class:`Packed` takes settings of its own and derives the
rest from N and the oracle alone; both run the same box.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from counterprobe.arguments import Count, Fraction, Whole
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
from counterprobe.errors import CostWarning, CounterprobeError
from counterprobe.oracles import NUMERICAL_FLOOR
from counterprobe.planning.layers import commit_order
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Commit, CommitAll, Requests, Share
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.packed_records import (
    Guard,
    PackedReport,
    PackedSetup,
    ScreenReport,
)
from counterprobe.streams import Decisions
from counterprobe.theory.colorings import TYPICAL_COLUMNS, cheapest_votes
from counterprobe.theory.parameters import (
    MIN_CUTOFF,
    peel_phase_cap,
    round_cap,
    threshold_floor,
)

__all__ = [
    "Packed",
    "row_selector",
    "run_packed",
    "screen_cost",
]

# Beside a given number of colorings.
DEFAULT_COLORS = 8
DEFAULT_FRACTION = 0.65
DEFAULT_CUTOFF = 8


class _Rounds:
    """Commits under the round cap: the last permitted round takes everything that is left."""

    def __init__(self, view: View, cap: int) -> None:
        self.view = view
        self.cap = cap
        self.num_commits = 0
        self.guard: Guard = "none"
        self.num_forced = 0

    def commit(self, batch: IntArray, place: Guard) -> Requests[bool]:
        """Commit a batch, or everything when only one round is left; say whether to go on."""
        self.num_commits += 1
        if self.num_commits == self.cap:
            residual = self.view.residual
            self.guard, self.num_forced = place, len(residual)
            self.view.note("guard", place=place)
            yield Commit(residual)
            return False
        yield Commit(batch, purpose="layer" if place == "centroid" else place)
        return True


def run_packed(
    view: View,
    rng: Decisions,
    setup: PackedSetup,
    *,
    filler: Filler = most_likely_filler,
    selector: RowSelector | SeesTranscript = top_votes,
) -> Requests[PackedReport]:
    """Run the paper's box to completion.

    Parameters
    ----------
    view : View
        Of a fresh run.
    rng : Decisions
        Colorings and filler choices have separate keys.
    setup : PackedSetup
    filler : Filler
    selector : RowSelector or SeesTranscript
    """
    foreseen = setup.too_costly(len(view.residual), TYPICAL_COLUMNS)
    if foreseen is not None:
        return (yield from _one_by_one(view, setup, foreseen, 0))
    # 1. Preprocess: one all-mask readout.
    banks: Banks = yield Share("banks", read_banks(view, setup.bank_threshold, setup.row_error))
    foreseen = setup.too_costly(len(view.residual), banks.num_columns)
    if foreseen is not None:
        return (yield from _one_by_one(view, setup, foreseen, banks.num_columns))
    rounds = _Rounds(view, setup.round_cap)
    log = _Log(setup, banks)
    while not view.is_complete:
        # 2 and 3. Filler, then fresh colors, then the screen.
        probes_before = view.ledger.probes
        screening = _screen(view, rng, log, filler, selector)
        rows, colors = yield Share(f"screen {len(log.screens)}", screening)
        # 4. Peel what many rows claim, one by one, in index order.
        peel = np.flatnonzero(2 * rows.claims(view.length) > setup.screen.degree_cutoff)
        is_last = len(peel) == 0 or log.peel_phases == setup.phase_cap
        log.screened(
            view, rows, colors, view.ledger.probes - probes_before, peel[:0] if is_last else peel
        )
        if is_last:
            return (yield from _finish(view, rows, rounds, log))
        for v in peel:
            if not (yield from rounds.commit(np.array([v]), "peel")):
                return log.report(rounds)
        log.peel_phases += 1
    return log.report(rounds)


def _one_by_one(
    view: View, setup: PackedSetup, foreseen: int, num_columns: int
) -> Requests[PackedReport]:
    """Say that a screen costs too much, and commit one position at a time in index order."""
    residual = view.residual
    warnings.warn(
        f"packed would take about {foreseen:,} evaluations or more for {len(residual):,} "
        "positions, more than one at a time, and so decodes one position at a time; where "
        "sequences share a screen set shared_by to their number, and to screen whatever it costs "
        "set num_colorings",
        CostWarning,
        stacklevel=2,
    )
    view.note("sequential", foreseen=foreseen)
    yield CommitAll([np.array([v]) for v in residual])
    nothing = np.empty(0, dtype=np.int64)
    return PackedReport(
        setup=setup,
        num_columns=num_columns,
        screens=(),
        peel_phases=0,
        terminal_positions=nothing,
        terminal_edges=nothing.reshape(0, 2),
        num_repaired=0,
        num_layers=0,
        guard="none",
        num_forced=0,
        foreseen=foreseen,
    )


def _screen(
    view: View,
    rng: Decisions,
    log: _Log,
    filler: Filler,
    selector: RowSelector | SeesTranscript,
) -> Requests[tuple[ScreenRows, NDArray[np.int32]]]:
    """Fix a filler, then draw fresh colors for all positions, then run the screen."""
    setup, banks, earlier = log.setup, log.banks, tuple(log.rows)
    index, context = len(earlier), FillerContext(view.state, banks, earlier)
    # The key keeps the paper's word, and with it the tokens of every seed.
    tokens = make_filler(filler, context, rng("draft", index), view.vocab_size)
    screen = setup.screen
    colors = draw_colorings(
        screen.num_colorings, screen.num_colors, view.length, rng("coloring", index)
    )
    columns = banks.columns(tokens, filler_first=screen.share_filler)
    rows = yield from packed_screen(view, screen, columns, tokens, colors, selector, earlier)
    return rows, colors


def _finish(view: View, rows: ScreenRows, rounds: _Rounds, log: _Log) -> Requests[PackedReport]:
    """Certify the terminal graph, repair its cycles, and commit its centroid layers."""
    # 5. Terminal graph: either end names the other. Nothing is screened again, so the order of
    # repairs and the layers are functions of this graph alone.
    edges = rows.edges()
    order = commit_order(edges, np.ones(view.length, dtype=np.bool_), rows.residual)
    log.terminal_positions, log.terminal_edges = rows.residual, edges
    view.note("terminal", positions=rows.residual, edges=edges)
    for v in order.repaired:
        if not (yield from rounds.commit(np.array([v]), "repair")):
            return log.report(rounds)
        log.num_repaired += 1
    # 6. Centroid layers: one vertex per component, one batch per layer.
    for layer in order.layers:
        if not (yield from rounds.commit(layer, "centroid")):
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
        view: View,
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
        view.note("screen", rows=rows, colors=colors, setup=self.setup, peel=peel)

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
    ``docs/packed.md``): ``degree_cutoff`` 8, one chunk per color; the cut is twice the oracle's
    row error; the bank threshold is the paper's floor ``4 max(row_error, 1/V)``, or zero (every
    token) where that passes 1/4.

    Without ``num_colorings``, colors, colorings and majority are those of :func:`cheapest_votes`,
    the filler is submitted once per readout color, and an edge is a pair that name each other, or
    of which one names the other where rows are noisy. A false edge costs a commit at most, so
    nothing is peeled and screened again. A run whose screen is foreseen to take more evaluations
    than one position at a time says so before the first and decodes one position at a time.

    Parameters
    ----------
    num_colors, num_colorings, degree_cutoff, chunk_count : int, optional
        With ``num_colorings`` the screen is the paper's, whatever it costs: rows are cut off at
        ``degree_cutoff``, ``num_colors`` is 8 and ``majority_fraction`` 0.65 unless given.
    tv_cut, majority_fraction, bank_threshold : float, optional
    phase_cap, round_cap : int, optional
        The paper's formulas at ``max(degree_cutoff, 9)`` by default. No phase is permitted where
        ``num_colorings``, ``degree_cutoff`` and ``phase_cap`` are all left at None.
    shared_by : int
        Sequences that share a screen, such as the ``count`` of ``sample``. A screen is weighed
        against what one position at a time takes for all of them.
    skip_empty_colors : bool
        Leave out source colors that no residual position has.
    selector : {"top-votes", "empty-on-overflow"}
        What a row keeps beyond the cutoff, beside ``num_colorings``.
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
    tv_cut: Fraction | None = None
    majority_fraction: float | None = None
    bank_threshold: Fraction | None = None
    phase_cap: Annotated[int, Whole(0)] | None = None
    round_cap: Count | None = None
    shared_by: Count = 1
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
        if self.num_colorings is None and self.selector != "top-votes":
            raise ValueError(
                f"selector={self.selector!r} needs num_colorings; without it a row holds every "
                "candidate that names it too, and none has to be selected"
            )

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return the cost of one screen, or None where there will be none."""
        try:
            setup = self.setup(length, vocab_size, 0.0)
        except (ValueError, CounterprobeError):
            return None
        if setup.too_costly(length, TYPICAL_COLUMNS) is not None:
            return None
        return screen_cost(setup.screen)

    def setup(self, length: int, vocab_size: int, oracle_row_error: float) -> PackedSetup:
        """Fix everything before the first evaluation, from N and the oracle alone."""
        cutoff = DEFAULT_CUTOFF if self.degree_cutoff is None else self.degree_cutoff
        theory_cutoff = max(cutoff, MIN_CUTOFF)  # of the caps, also where rows hold everybody
        chunks = 1 if self.chunk_count is None else min(self.chunk_count, length)
        is_open = self.num_colorings is None
        colors, fraction = self.num_colors, self.majority_fraction
        # Noise may keep an edge's response below the cut at one of its ends: then one is enough.
        mutual = is_open and oracle_row_error <= NUMERICAL_FLOOR
        if is_open and not mutual and self.degree_cutoff is None:
            cutoff = max(length, 1)
        if self.num_colorings is None:
            votes = cheapest_votes(
                length, mutual=mutual, num_colors=colors, majority_fraction=fraction
            )
            colors, colorings = votes.num_colors, votes.num_colorings
            fraction = votes.majority_fraction if fraction is None else fraction
        else:
            colorings = self.num_colorings
            colors = DEFAULT_COLORS if colors is None else colors
            fraction = DEFAULT_FRACTION if fraction is None else fraction
        cut = 2 * oracle_row_error if self.tv_cut is None else self.tv_cut
        threshold = self.bank_threshold
        if threshold is None:
            floor = threshold_floor(oracle_row_error, vocab_size)
            threshold = floor if floor <= 0.25 else 0.0
        phases = self.phase_cap
        if phases is None:
            phases = peel_phase_cap(length, theory_cutoff)
        rounds = self.round_cap
        if rounds is None:
            rounds = round_cap(length, theory_cutoff, phases)
        if is_open and self.phase_cap is None and self.degree_cutoff is None:
            phases = 0  # the cap on rounds leaves room for repairs all the same
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
                share_filler=is_open,
                mutual=mutual,
            ),
            bank_threshold=threshold,
            row_error=oracle_row_error,
            phase_cap=phases,
            round_cap=rounds,
            hypotheses={},
            shared_by=self.shared_by if is_open else None,
        )

    @property
    def needs(self) -> Need:
        """Rows of other states than the current one."""
        return Need.PROBE

    def unmask(self, view: View, rng: Decisions) -> Requests[PackedReport]:
        """Run the box with tuned settings."""
        setup = self.setup(view.length, view.vocab_size, view.row_error)
        filler, selector = filler_named(self.filler), row_selector(self.selector)
        return (yield from run_packed(view, rng, setup, filler=filler, selector=selector))


def screen_cost(screen: ScreenSettings) -> int:
    """Return the evaluations of one screen at a typical number of columns."""
    return 1 + screen.evaluations(TYPICAL_COLUMNS)
