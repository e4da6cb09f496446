"""What ``counterprobe infill`` shows of designs, and what its JSON has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from counterprobe.arrays import FloatArray
from counterprobe.cli import options, output, reporting, runs
from counterprobe.cli.output import number
from counterprobe.infilling.results import Infilled
from counterprobe.infilling.task import Task
from counterprobe.infilling.writing import Design, designs_of, recovery
from counterprobe.plots import draw_rounds
from counterprobe.report import Table
from counterprobe.run.results import StopReason
from counterprobe.states import MASK

__all__ = [
    "Drawn",
    "record",
    "report_designs",
    "require_complete",
    "show_all",
]

# Finished texts that the terminal shows.
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn for one input."""

    name: str
    text: options.Text
    task: Task
    batch: Infilled
    chain: runs.Chain
    seconds: float


def require_complete(made: Sequence[Drawn], out: str | None) -> None:
    """End the command with a reason if a sequence stopped before it was complete."""
    every = [result for one in made for result in one.batch.results]
    stopped = [result for result in every if result.stop is not StopReason.COMPLETED]
    if stopped:
        left = len(every) - len(stopped)
        kept = (
            ""
            if out is None
            else f"; {out} has the other {left}"
            if left
            else f"; {out} has none of them"
        )
        output.complain(f"{len(stopped)} of {len(every)} stopped: {stopped[0].reason}{kept}")
        raise typer.Exit(output.INFEASIBLE)


def show_all(
    console: Console, model: str, made: Sequence[Drawn], seed: int, *, is_many: bool
) -> None:
    """Print what was drawn, of several inputs a line each; a report has every design."""
    if is_many:
        _show_many(console, model, made)
    else:
        _show(console, model, made[0])
    if output.is_reported():
        _report(made, seed)


def _show(console: Console, model: str, made: Drawn) -> None:
    """Print what was drawn and what it cost."""
    drawn = made.batch
    log_probs, scores, likelihoods = drawn.log_probs, drawn.scores, drawn.log_likelihoods
    recoveries = recovery(made.task, drawn.sequences)
    masked = int((drawn.given[0] == MASK).sum())
    shown = {
        "sequences": len(drawn),
        "masks in each": masked,
        "evaluations, all together": drawn.ledger.evaluations,
        "of a sequence": f"{np.mean([one.evaluations for one in drawn.ledgers]):.1f}",
        "tokens per evaluation": number(drawn.tokens_per_forward, ".3g", "none"),
        "sequential stages": drawn.ledger.stages,
        "evaluations for measuring": drawn.measuring.evaluations,
        **made.chain.rows(),
        "seconds": f"{made.seconds:.1f}",
    }
    if scores is not None and masked:
        shown["mean score, temperature 1"] = number(_mean(scores), ".4g", "none")
    if log_probs is not None and masked and made.text.temperature != 1:
        cold = f"mean log-probability, temperature {made.text.temperature:g}"
        shown[cold] = f"{log_probs.mean():.3f}"
    if likelihoods is not None and masked:
        shown["mean log-likelihood, chain rule"] = number(likelihoods.mean(), ".3f", "none")
    if recoveries is not None and masked:
        shown["mean recovery"] = f"{recoveries.mean():.3f}"
    output.print_facts(console, f"{model}, {drawn.results[0].sampler}", shown)
    if drawn.choice is not None and drawn.num_completed:
        output.tell(console, str(drawn.choice), decision=True)
    order = np.arange(len(drawn)) if scores is None else np.argsort(scores, kind="stable")
    finished = [k for k in order if (drawn.sequences[k] != MASK).all()]  # others are no designs
    texts = [drawn.texts[k] for k in finished] if drawn.texts else []
    for k, one in list(zip(finished, texts, strict=False))[:SHOWN]:
        known = [f"{made.name}_{k + 1}"]
        if scores is not None and np.isfinite(scores[k]):
            known.append(f"score {scores[k]:.4g}")
        if recoveries is not None and masked:
            known.append(f"recovery {recoveries[k]:.3f}")
        console.print(Text("  ".join(known), style="dim"))
        console.print(Text(one), soft_wrap=True)
    if len(texts) > SHOWN:
        console.print(Text(f"... and {len(texts) - SHOWN} more, by score", style="dim"))


def _report(made: Sequence[Drawn], seed: int) -> None:
    """Add to a report what the terminal has no room for: every design, and rounds."""
    every = []
    for one in made:
        if one.batch.texts is None:
            output.report(Table(one.name, *one.batch.cells()))
        else:
            every += designs_of(
                one.batch, one.task, one.name, temperature=one.text.temperature, seed=seed
            )
    report_designs(every)
    drawn = {one.name: one.batch for one in made if one.batch.num_completed}
    if drawn:
        reporting.plot("positions filled, round by round", partial(draw_rounds, drawn))


def report_designs(finished: Sequence[Design]) -> None:
    """Add a table of designs to a report, the best score first."""
    if not finished:
        return
    ranked = sorted(finished, key=lambda one: one.columns.get("score", math.inf))
    names = ("score", "recovery", "log_prob", "log_likelihood", "price", "evaluations", "sampler")
    known = [name for name in names if any(name in one.columns for one in ranked)]
    rows = [
        [one.name, *(str(one.row.get(name, "-")) for name in known), one.sequence]
        for one in ranked
    ]
    headings = ["design", *(name.replace("_", " ") for name in known), "sequence"]
    output.report(Table("designs, the best score first", headings, rows))


def _show_many(console: Console, model: str, made: Sequence[Drawn]) -> None:
    """Print a line for every input."""
    rows = []
    for one in made:
        scores, recoveries = one.batch.scores, recovery(one.task, one.batch.sequences)
        known = np.empty(0) if scores is None else scores[np.isfinite(scores)]
        rows.append(
            [
                one.name,
                f"{one.batch.num_completed}",
                f"{(one.batch.given[0] == MASK).sum()}",
                f"{known.min():.4g}" if len(known) else "-",
                f"{known.mean():.4g}" if len(known) else "-",
                "-" if recoveries is None else f"{recoveries.mean():.3f}",
                f"{one.batch.ledger.evaluations}",
            ]
        )
    headings = ["input", "designs", "masks", "best score", "mean score", "recovery", "evaluations"]
    sampler = f", {made[0].batch.results[0].sampler}" if made else ""
    output.print_table(
        console,
        f"{model}{sampler}: {sum(one.batch.num_completed for one in made)} designs",
        headings,
        rows,
        ["Scores are nats per drawn position at temperature 1: lower is better."],
    )
    for one in made:
        if one.batch.choice is not None and one.batch.choice.prices:
            console.print(Text(f"{one.name}: {one.batch.choice}"), soft_wrap=True)


def _mean(scores: FloatArray) -> float:
    """Return the mean of the scores that are known."""
    known = scores[np.isfinite(scores)]
    return float(known.mean()) if len(known) else math.nan


def record(model: str, made: Sequence[Drawn], is_many: bool) -> dict[str, Any]:
    """Return what JSON has: of one input as it is, of several in a list."""
    records = [
        {
            "name": one.name,
            **one.batch.summary(),
            "measuring": one.batch.measuring.evaluations,
            "seconds": one.seconds,
            "texts": one.batch.texts,
            "scores": one.batch.scores,
            "recoveries": recovery(one.task, one.batch.sequences),
            "log_probs": one.batch.log_probs,
            "log_likelihoods": one.batch.log_likelihoods,
            **one.chain.record(),
        }
        for one in made
    ]
    return {"model": model, "inputs": records} if is_many else {"model": model, **records[0]}
