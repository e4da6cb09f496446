"""The paper's sampler with its public formulas: every parameter follows from N, V and epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from counterprobe.arguments import NotNegative, Positive, Range
from counterprobe.discovery.packed.fillers import filler_named
from counterprobe.discovery.packed.screen import ScreenSettings
from counterprobe.errors import CounterprobeError
from counterprobe.radii import RowRadii
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.packed import row_selector, run_packed, screen_cost
from counterprobe.samplers.packed_records import PackedReport, PackedSetup
from counterprobe.streams import Decisions
from counterprobe.theory.hypotheses import check_hypotheses
from counterprobe.theory.parameters import Calibration, Case, calibrate, tail_threshold

__all__ = ["PackedTheory"]


@dataclass(frozen=True)
class PackedTheory(Sampler):
    """The paper's sampler with its public formulas.

    Parameters
    ----------
    epsilon : float
        Target accuracy.
    degree_cutoff : int
        d, at least 9 and at most N - 1.
    case : {"tv", "kl"}
        The accuracy case, see ``theory.calibrate``.
    chunk_count : int, optional
        J; d by default.
    hellinger_radius, kl_tolerance, kl_row_budget : float, optional
        What the oracle may err by and what is aimed at, in place of what epsilon implies.
    edge_signal, tail_tolerance, failure_budget : float, optional
        In place of the calibration's.
    response_constant, response_exponent, frequency_constant : float
        The class constants L, alpha and C.
    selector : {"top-votes", "empty-on-overflow"}
    filler : {"most-likely", "rare"}
        Background tokens of a screen; any that submits nothing keeps the guarantee.
    waive_guarantee : bool
        Run even where a hypothesis of the guarantee fails; the result says which.
    """

    name: ClassVar[str] = "packed-theory"
    summary: ClassVar[str] = "the paper's sampler with its public formulas"
    source: ClassVar[str] = "the paper, appendix 'Algorithmic construction'"
    bound: ClassVar[str] = (
        "inside the paper's class, TV risk <= 3 eps/4 with Hellinger oracles or KL risk <= "
        "eps^2/2 with row-KL oracles; with other budgets, theory.Calibration.risk_bound"
    )

    epsilon: float = 0.5
    degree_cutoff: int = 9
    case: Case = "tv"
    chunk_count: int | None = None
    hellinger_radius: float | None = None
    kl_tolerance: float | None = None
    kl_row_budget: float | None = None
    edge_signal: float | None = None
    tail_tolerance: float | None = None
    failure_budget: float | None = None
    response_constant: NotNegative = 1.0
    response_exponent: Positive = 1.0
    frequency_constant: Annotated[float, Range(at_least=1)] = 1.0
    selector: str = "top-votes"
    filler: str = "most-likely"
    waive_guarantee: bool = False

    def __post_init__(self) -> None:
        """Check what does not depend on the target."""
        super().__post_init__()
        row_selector(self.selector)
        filler_named(self.filler)

    def calibration(self, length: int, vocab_size: int) -> Calibration:
        """Return the public parameters for a target's size."""
        return calibrate(
            length,
            vocab_size,
            epsilon=self.epsilon,
            degree_cutoff=self.degree_cutoff,
            case=self.case,
            chunk_count=self.chunk_count,
            hellinger_radius=self.hellinger_radius,
            kl_tolerance=self.kl_tolerance,
            kl_row_budget=self.kl_row_budget,
            edge_signal=self.edge_signal,
            tail_tolerance=self.tail_tolerance,
            failure_budget=self.failure_budget,
        )

    def setup(self, length: int, vocab_size: int, radii: RowRadii) -> PackedSetup:
        """Fix everything before the first evaluation; may raise ``Infeasible``.

        Parameters
        ----------
        length, vocab_size : int
        radii : RowRadii
            What the oracle declares about its rows.
        """
        public = self.calibration(length, vocab_size)
        hypotheses = check_hypotheses(public, radii)
        threshold = tail_threshold(
            public.row_error,
            vocab_size,
            public.tail_tolerance,
            response_constant=self.response_constant,
            response_exponent=self.response_exponent,
            frequency_constant=self.frequency_constant,
        )
        broken = [hypothesis for hypothesis in hypotheses if not hypothesis.holds]
        if broken and not self.waive_guarantee:
            raise ValueError(
                f"{broken[0].problem}; choose another epsilon or signal, or run without the "
                "guarantee by waive_guarantee=true"
            )
        return PackedSetup(
            mode="theory",
            screen=ScreenSettings(
                num_colors=public.num_colors,
                num_colorings=public.num_colorings,
                degree_cutoff=public.degree_cutoff,
                chunk_size=public.chunk_size,
                tv_cut=2 * public.row_error,
            ),
            bank_threshold=threshold,
            row_error=public.row_error,
            phase_cap=public.phase_cap,
            round_cap=public.round_cap,
            hypotheses={hypothesis.name: hypothesis.holds for hypothesis in hypotheses},
        )

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return the cost of one screen, or None where it is infeasible."""
        try:
            setup = self.setup(length, vocab_size, RowRadii.exact())
        except (ValueError, CounterprobeError):
            return None
        return screen_cost(setup.screen)

    @property
    def needs(self) -> Need:
        """Rows of other states than the current one."""
        return Need.PROBE

    def unmask(self, view: View, rng: Decisions) -> Requests[PackedReport]:
        """Run the packed sampler with the paper's formulas."""
        setup = self.setup(view.length, view.vocab_size, view.row_radii)
        filler, selector = filler_named(self.filler), row_selector(self.selector)
        return (yield from run_packed(view, rng, setup, filler=filler, selector=selector))
