"""Quality under parallelism, one number a sampler: what ``compare --model --sweep`` adds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from rich.console import Console
from rich.text import Text

from counterprobe.arrays import StateArray
from counterprobe.cli.tables import Column, print_table
from counterprobe.evaluation.quality import Quality, quality_under_parallelism
from counterprobe.run.batches import SampleBatch
from counterprobe.states import MASK

__all__ = ["Kind", "Point", "choose_kind", "quality_of", "scores_record", "show_scores"]

Kind = Literal["likelihood", "batch-kl", "recovery"]
MEANING = {
    "likelihood": "exp of the log-likelihood a token",
    "batch-kl": "exp of minus the batch KL a token",
    "recovery": "masked positions that agree with --truth",
}
COLUMNS = (
    Column("sampler"),
    Column("settings", 3),
    Column("slowest quality", 1),
    Column("fastest within 5", 2),
    Column("AUP"),
)


@dataclass(frozen=True, slots=True)
class Point:
    """One setting of a sampler: how many tokens a forward pass gives, and their quality."""

    tokens_per_forward: float
    quality: float


def choose_kind(asked: str | None, truth: StateArray | None) -> Kind:
    """Return which quality stands in the place of accuracy; refuse what cannot be measured."""
    kind = asked or ("likelihood" if truth is None else "recovery")
    if kind not in get_args(Kind):
        raise ValueError(f"--quality must be one of {', '.join(get_args(Kind))}; got {kind!r}")
    if kind == "recovery" and truth is None:
        raise ValueError("--quality recovery must come with --truth, the text without masks")
    chosen: Kind = kind  # type: ignore[assignment]
    return chosen


def quality_of(
    kind: Kind, batch: SampleBatch, quality: Quality | None, truth: StateArray | None
) -> float:
    """Return the quality of what was drawn, in percent; NaN where it was not measured.

    Parameters
    ----------
    kind : {"likelihood", "batch-kl", "recovery"}
    batch : SampleBatch
    quality : Quality or None
        What was measured of it.
    truth : ndarray of int, shape (N,), or None
        The true tokens.
    """
    masked = batch.given == MASK
    if kind == "recovery":
        if truth is None or not batch.num_completed:
            return math.nan
        complete = (batch.sequences != MASK).all(axis=1)
        return 100 * float((batch.sequences == truth)[complete][masked[complete]].mean())
    if quality is None:
        return math.nan
    if kind == "likelihood":
        return 100 * math.exp(quality.log_likelihood_per_token)
    if quality.batch_kl is None:
        return math.nan
    return 100 * math.exp(-quality.batch_kl.value / max(1, int(masked[0].sum())))


def scores_of(points: Mapping[str, Sequence[Point]]) -> dict[str, float]:
    """Return the quality under parallelism of each sampler over its settings."""
    known = [p.quality for line in points.values() for p in line if not math.isnan(p.quality)]
    best = max(known, default=None)
    return {
        name: quality_under_parallelism(
            [p.tokens_per_forward for p in line], [p.quality for p in line], best
        )
        for name, line in points.items()
    }


def show_scores(console: Console, kind: Kind, points: Mapping[str, Sequence[Point]]) -> None:
    """Print one line a sampler, the best first."""
    scores = scores_of(points)
    ranked = sorted(scores, key=lambda name: -np.nan_to_num(scores[name], nan=-1.0))
    rows = [[name, *_cells(points[name], scores[name])] for name in ranked]
    print_table(console, f"Quality under parallelism, {MEANING[kind]}, in percent", COLUMNS, rows)
    note = (
        "AUP: area under quality against tokens per forward over a sampler's settings, after the "
        "d3LLM leaderboard; settings more than 5 points below the slowest do not count."
    )
    if kind == "likelihood":
        note += " A model likes what is ordinary: read it beside the diversity."
    console.print(Text(note, style="dim"))


def _cells(line: Sequence[Point], score: float) -> list[str]:
    known = sorted(
        (p for p in line if not math.isnan(p.quality)),
        key=lambda p: (p.tokens_per_forward, -p.quality),
    )
    if not known:
        return [str(len(line)), "-", "-", "-"]
    near = [p.tokens_per_forward for p in known if p.quality >= known[0].quality - 5]
    return [str(len(line)), f"{known[0].quality:.1f}", f"{max(near):.2f}", f"{score:.1f}"]


def scores_record(kind: Kind, points: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Return what JSON says: the quality that was taken, and each sampler's number."""
    return {"quality": kind, "aup": scores_of(points)}
