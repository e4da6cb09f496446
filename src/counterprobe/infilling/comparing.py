"""Several samplers on one learned model: what they draw, what it costs, how good it is.

A model has no law that is known, so that quality is estimated (``evaluation/quality.py``): what
product commits broke, how probable the model finds what was drawn, whether it can be told from
sequences drawn one position at a time, and how varied it is. What was evaluated for measuring is
counted apart from what drawing cost.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.errors import CounterprobeError
from counterprobe.evaluation.quality import Quality, assess, quality_under_parallelism
from counterprobe.infilling.task import Task
from counterprobe.run.batches import SampleBatch
from counterprobe.run.events import OnEvent
from counterprobe.samplers import Sampler, Sequential
from counterprobe.sampling import Orders, sample
from counterprobe.states import MASK
from counterprobe.streams import keyed_generator

__all__ = ["QUALITIES", "ModelComparison", "SamplerOnModel"]

# What may stand in the place of accuracy, in percent.
QUALITIES = {
    "likelihood": "exp of the log-likelihood per token",
    "batch-kl": "exp of minus the batch KL a token",
    "recovery": "masked positions that agree with --truth",
}


@dataclass(frozen=True, slots=True)
class SamplerOnModel:
    """What one sampler drew and how good that is, or why there is nothing."""

    sampler: Sampler
    batch: SampleBatch | None = None
    quality: Quality | None = None
    seconds: float = math.nan
    refusal: str | None = None
    has_failed: bool = False

    def mean(self, count: str) -> float:
        """Return a count of the ledger for a sequence, NaN where nothing was drawn."""
        if self.batch is None:
            return math.nan
        return float(getattr(self.batch.ledger, count)) / len(self.batch)

    @property
    def batch_kl(self) -> float:
        """Nats of a sequence that its batches broke; NaN where that was not measured."""
        kl = None if self.quality is None else self.quality.batch_kl
        return math.nan if kl is None else kl.value

    @property
    def batch_kl_se(self) -> float:
        """Its standard error."""
        kl = None if self.quality is None else self.quality.batch_kl
        return math.nan if kl is None else kl.standard_error


@dataclass(slots=True)
class ModelComparison:
    """What all samplers share, and what each gave.

    Parameters
    ----------
    task : Task
        With an oracle that everything is asked of.
    count : int
        Sequences that each sampler draws.
    seed : int
        Of every sampler; the reference has noise of its own.
    orders : {"fresh", "shared"}
        As in ``sample``.
    evaluate : bool
        Whether what was drawn is scored by the model.
    max_evaluations : int, optional
        Of a sequence.
    kind : str
        Which of ``QUALITIES`` stands in the place of accuracy.
    truth : ndarray of int, shape (N,), optional
        The true tokens, for ``"recovery"``.
    """

    task: Task
    count: int
    seed: int
    orders: Orders = "fresh"
    evaluate: bool = True
    max_evaluations: int | None = None
    kind: str = "likelihood"
    truth: StateArray | None = None
    _reference: SampleBatch | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Refuse what cannot be compared, and a truth that is another text."""
        given, truth = self.task.given, self.truth
        if not (given == MASK).any():
            raise ValueError("the text must have at least one mask, got none: nothing to compare")
        if self.kind not in QUALITIES:
            raise ValueError(f"quality must be one of {', '.join(QUALITIES)}; got {self.kind!r}")
        if truth is None:
            if self.kind == "recovery":
                raise ValueError("quality recovery must come with the truth: a text without masks")
            return
        if len(truth) != len(given) or (truth == MASK).any():
            raise ValueError(
                f"the truth must be the text of {len(given)} positions without masks, got "
                f"{len(truth)} positions, {int((truth == MASK).sum())} of them masked"
            )
        differing = np.flatnonzero((given != MASK) & (given != truth))
        if len(differing):
            raise ValueError(
                "the truth must agree with the text where that is given, but differs at position "
                f"{differing[0]}"
            )

    @property
    def num_masked(self) -> int:
        """Positions that are to be drawn."""
        return int((self.task.given == MASK).sum())

    @property
    def reference(self) -> SampleBatch:
        """Sequences drawn one position at a time, by :meth:`draw_reference`."""
        assert self._reference is not None
        return self._reference

    def draw_reference(self, on_event: OnEvent) -> None:
        """Draw sequences one position at a time, which the others are compared with."""
        self._reference = sample(
            self.task.oracle,
            Sequential("random"),
            self.count,
            seed=self.task.streams(int(keyed_generator(self.seed, "reference").integers(2**62))),
            given=self.task.given,
            orders="fresh",
            on_event=on_event,
            progress=False,
        )

    def run(self, sampler: Sampler, on_event: OnEvent) -> SamplerOnModel:
        """Draw with one sampler and measure it; an error of its own ends it and no other."""
        started = time.perf_counter()
        try:
            batch = sample(
                self.task.oracle,
                sampler,
                self.count,
                seed=self.task.streams(self.seed),
                given=self.task.given,
                orders=self.orders,
                max_evaluations=self.max_evaluations,
                on_event=on_event,
                progress=False,
            )
            seconds = time.perf_counter() - started
            if not batch.num_completed:
                reason = batch.results[0].reason
                return SamplerOnModel(sampler, batch, None, seconds, reason)
            quality = assess(
                self.task.oracle, batch, self.reference, evaluate=self.evaluate, seed=self.seed
            )
            return SamplerOnModel(sampler, batch, quality, seconds)
        except ValueError as problem:  # it must be told something, or cannot work at this size
            return SamplerOnModel(sampler, refusal=str(problem))
        except CounterprobeError as problem:
            return SamplerOnModel(sampler, refusal=str(problem), has_failed=True)

    def percent(self, entry: SamplerOnModel) -> float:
        """Return what stands in the place of accuracy; NaN where it was not measured."""
        batch, quality = entry.batch, entry.quality
        if batch is None:
            return math.nan
        masked = batch.given == MASK
        if self.kind == "recovery":
            if self.truth is None or not batch.num_completed:
                return math.nan
            complete = (batch.sequences != MASK).all(axis=1)
            return 100 * float((batch.sequences == self.truth)[complete][masked[complete]].mean())
        if quality is None:
            return math.nan
        if self.kind == "likelihood":
            return 100 * math.exp(quality.log_likelihood_per_token)
        if quality.batch_kl is None:
            return math.nan
        return 100 * math.exp(-quality.batch_kl.value / max(1, int(masked[0].sum())))

    def extremes(self, line: list[SamplerOnModel]) -> tuple[float, float] | None:
        """Return the quality of the slowest setting, and the speed of the fastest within 5 points.

        None where nothing of a line was measured.
        """
        points = self.points({"": line})[""]
        known = sorted((p for p in points if not math.isnan(p[1])), key=lambda p: (p[0], -p[1]))
        if not known:
            return None
        slowest = known[0][1]
        return slowest, max(speed for speed, quality in known if quality >= slowest - 5)

    def points(
        self, lines: dict[str, list[SamplerOnModel]]
    ) -> dict[str, list[tuple[float, float]]]:
        """Return tokens per forward and quality of what each line drew."""
        return {
            name: [
                (entry.batch.tokens_per_forward, self.percent(entry))
                for entry in line
                if entry.batch is not None
            ]
            for name, line in lines.items()
        }

    def scores(self, lines: dict[str, list[SamplerOnModel]]) -> dict[str, float]:
        """Return the quality under parallelism of lines of settings, one number each."""
        points = self.points(lines)
        known = [q for line in points.values() for _, q in line if not math.isnan(q)]
        best = max(known, default=None)
        return {
            name: quality_under_parallelism([x for x, _ in line], [q for _, q in line], best)
            for name, line in points.items()
        }

    def record(self, entries: list[SamplerOnModel]) -> dict[str, Any]:
        """Return everything as plain values."""
        task = self.task
        return {
            "oracle": getattr(task.oracle, "name", None),
            "text": None if task.template is None else task.template.text(task.given),
            "n": task.oracle.length,
            "vocab": task.oracle.vocab_size,
            "masked": self.num_masked,
            "count": self.count,
            "seed": self.seed,
            "orders": self.orders,
            "measuring": task.num_measured,
            "reference": {
                **self.reference.summary(),
                "texts": task.texts(self.reference.sequences),
            },
            "samplers": [self._entry_record(entry) for entry in entries],
        }

    def _entry_record(self, entry: SamplerOnModel) -> dict[str, Any]:
        batch, quality = entry.batch, entry.quality
        drawn: dict[str, Any] = dict.fromkeys(
            (
                "evaluations",
                "evaluations_without_selection",
                "stages",
                "tokens_per_forward",
                "texts",
            )
        )
        if batch is not None:
            drawn = {
                "evaluations": entry.mean("evaluations"),
                "evaluations_without_selection": entry.mean("evaluations_without_selection"),
                "stages": float(np.mean([one.stages for one in batch.ledgers])),
                "tokens_per_forward": batch.tokens_per_forward,
                "texts": self.task.texts(batch.sequences),
            }
        return {
            "sampler": entry.sampler.name,
            "settings": entry.sampler.settings,
            "needs": entry.sampler.needs.names(),
            "reason": entry.refusal,
            "seconds": entry.seconds,
            **drawn,
            "quality_percent": self.percent(entry),
            **({"completed": 0} if quality is None else quality.as_dict()),
        }
