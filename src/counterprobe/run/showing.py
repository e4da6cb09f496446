"""What notebooks and reports show of results: their cost, their rounds and their sequences."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.report import Facts, Note, Section, Table
from counterprobe.report.drawings import draw_bars
from counterprobe.report.pictures import picture
from counterprobe.run.ledger import Ledger
from counterprobe.run.results import SampleResult, first_tokens
from counterprobe.states import MASK

if TYPE_CHECKING:
    from counterprobe.run.batches import SampleBatch

__all__ = ["batch_sections", "result_sections", "sequence_cells"]

# Sequences that a display has.
SHOWN = 10


def _charged(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger says, under names for people."""
    return {
        "evaluations": ledger.evaluations,
        "preprocessing": ledger.preprocessing,
        "probes": ledger.probes,
        "commits": ledger.commits,
        "sequential stages": ledger.stages,
        "widest stage": ledger.widest_stage,
        "rows read": ledger.rows_read,
    }


def result_sections(result: SampleResult) -> list[Section]:
    """Return what one result shows."""
    settings = ", ".join(f"{name}={value}" for name, value in result.settings.items())
    streams = result.streams
    facts = {
        "oracle": result.oracle_name,
        **_charged(result.ledger),
        "tokens per evaluation": f"{result.tokens_per_forward:.3g}",
        "used": ", ".join(result.used.names()) or "none",
        "decision seed": str(streams.decision_seed),
        "commit seed": str(streams.commit_seed),
    }
    shown: list[Section] = [Note(str(result)), Facts("", facts)]
    if settings:
        shown.append(Note(f"Settings: {settings}."))
    if sizes := [len(batch) for batch in result.batches]:
        draw = partial(draw_bars, sizes, "commit round", "positions")
        shown.append(picture("positions committed in each round", draw))
    return shown


def batch_sections(batch: SampleBatch) -> list[Section]:
    """Return what many sequences show."""
    first, *rest = str(batch).splitlines()
    shown: list[Section] = [Note(first)]
    if batch.choice is not None:
        shown.append(Note(str(batch.choice), is_decision=True))
        rest = rest[1:]
    if batch.num_completed < len(batch) and rest:
        shown.append(Note(rest[0]))
    each = f"{batch.tokens_per_forward:.3g}"
    shown.append(Facts("", {**_charged(batch.ledger), "tokens per evaluation": each}))
    columns, rows = sequence_cells(batch)
    if rows:
        left = len(rows) - SHOWN
        notes = [f"... and {left:,} more"] if left > 0 else []
        title = "sequences" if batch.scores is None else "sequences, the best score first"
        shown.append(Table(title, columns, rows[:SHOWN], notes))
    return shown


def sequence_cells(batch: SampleBatch) -> tuple[list[str], list[list[str]]]:
    """Return headings and a row for every finished sequence, by score where there is one."""
    scores = batch.scores
    order = np.arange(len(batch)) if scores is None else np.argsort(scores, kind="stable")
    finished = order[(batch.sequences[order] != MASK).all(axis=1)]
    columns = ["number", "evaluations", *(["score"] if scores is not None else []), "sequence"]
    rows = []
    for k in finished.tolist():
        row = [str(k + 1), f"{batch.results[k].ledger.evaluations:,}"]
        if scores is not None:
            row.append(f"{scores[k]:.4g}" if np.isfinite(scores[k]) else "-")
        rows.append([*row, batch.texts[k] if batch.texts else first_tokens(batch.sequences[k])])
    return columns, rows
