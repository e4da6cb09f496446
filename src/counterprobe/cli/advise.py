"""``counterprobe advise``: which way of drawing to use for a model, at what price."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Annotated, Any

import typer

from counterprobe.arguments import whole_number
from counterprobe.cli import options, output, reporting, runs
from counterprobe.discovery import Structure
from counterprobe.evaluation import advise as give_advice
from counterprobe.evaluation.advice import MAX_EVALUATIONS, MAX_SECONDS, Advice, first_look
from counterprobe.infilling.carrying import carried
from counterprobe.plots import draw_prices
from counterprobe.report import Table

__all__ = ["advise"]


@output.command
def advise(
    model: options.Model,
    structure: Annotated[
        str,
        options.in_model(
            metavar="FILE",
            help="What 'counterprobe discover' wrote for this model and backbone, whatever it "
            "fixed.",
        ),
    ],
    text: options.Text,
    faults: runs.Faults,
    order: options.Order = None,
    count: Annotated[int, typer.Option(help="Sequences that are wanted.")] = 1000,
    target_kl: Annotated[
        float, typer.Option(help="Nats of dependence that a sequence may break.")
    ] = 0.1,
    batches: Annotated[
        str | None,
        typer.Option(
            help="Numbers of batches that may be measured, separated by commas.",
            show_default="any; doubled, then bisected",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Sequences by which a price is first judged.")] = 16,
    terms: Annotated[
        int, typer.Option(help="Steps of each batch that are priced; 0: all of them.")
    ] = 1,
    max_evaluations: Annotated[
        int, typer.Option(help="Evaluations that measuring may take.")
    ] = MAX_EVALUATIONS,
    max_seconds: Annotated[
        float, typer.Option(help="Seconds that measuring may take.")
    ] = MAX_SECONDS,
    seed: Annotated[int, typer.Option(help="Of what is drawn for measuring.")] = 1,
    json: options.JsonFile = None,
    report: reporting.ReportFile = None,
) -> None:
    """Measure plans and what needs no structure, and say in plain words which to use.

    Only what was measured is recommended: the upper limit of its price, at 95%, is within the
    target. When a budget ends, the best way shown by then is said, one position at a time if none.

    For example:

    counterprobe advise --model proteinmpnn --backbone 1ubi --structure 1ubi.npz --count 1000
    """
    output.check_writable(json)
    reporting.report_to(report, f"Which way of drawing to use: {model}", json)
    found = Structure.load(structure)
    if found.strengths is None:
        raise ValueError(
            f"{structure} holds a certified structure, whose commit rounds break nothing: use it "
            "with 'counterprobe infill --structure'"
        )
    counts = None if batches is None else _read_counts(batches)
    whole_number("--count", count, at_least=1)
    whole_number("--samples", samples, at_least=2)
    whole_number("--terms", terms)
    whole_number("--max-evaluations", max_evaluations)
    if not max_seconds >= 0:
        raise ValueError(f"--max-seconds must be at least 0, got {max_seconds}")
    if not 0 < target_kl < math.inf:
        raise ValueError(f"--target-kl must be a number of nats above 0, got {target_kl}")
    task = text.task(model, order=order, is_probed=True, cache=faults.cache)
    started = time.perf_counter()
    here, checked = carried(task, found)
    pace = (time.perf_counter() - started) / max(checked.evaluations, 1)
    distances = task.distances
    look: dict[str, Any] = {"counts": counts, "samples": samples, "terms": terms or None}
    foreseen = first_look(here, **look, num_ways=3 if distances is None else 4)
    output.announce(
        f"measuring prices: about {foreseen:,} evaluations ({foreseen * pace:,.0f} s) for a first "
        f"look, more to show that one holds; at most {max_evaluations:,} evaluations and "
        f"{max_seconds:g} s (--max-evaluations, --max-seconds)"
    )
    with (
        output.budget_progress("advise") as progress,
        runs.oracle_chain(task.oracle, faults) as chain,
    ):
        advice = give_advice(
            chain.oracle,
            here,
            count,
            target_kl=target_kl,
            **look,
            distances=distances,
            max_evaluations=max_evaluations,
            max_seconds=max_seconds,
            progress=progress,
            seed=seed,
        )
    console = output.console_for(json)
    table = advice.table
    if table.prices:
        title = "batch KL of a sequence, nats, measured"
        columns = ["batches", *table.ways]
        output.print_table(console, title, columns, table.rows, [table.note])
        reporting.plot("prices that were measured", partial(draw_prices, table, target_kl))
    output.tell(console, str(advice), decision=True)
    _report_ways(advice)
    asked = task.num_measured + checked.evaluations + advice.measuring
    output.tell(console, f"Measuring took {asked:,} evaluations.")
    record = {"model": model, **advice.as_dict(), "measuring": asked, **chain.record()}
    output.write_json(json, record)


def _report_ways(advice: Advice) -> None:
    """Add the ways that keep to the price to a report, and what each would cost."""
    rows = []
    for way in advice.options:
        known = way.as_dict(advice.count)
        rows.append(
            [
                way.way,
                f"{way.batches:,}",
                f"{way.evaluations:.3g}",
                f"{way.found_with:,}",
                f"{known['evaluations']:,}",
                f"{known['batch_kl']:.3f}",
                f"{known['batch_kl_high']:.3g}",
            ]
        )
    headings = [
        "way", "batches", "evaluations each", "before the first", f"for {advice.count:,}",
        "batch KL", "upper limit",
    ]  # fmt: skip
    title = "Ways that were shown to keep to the price, the cheapest first"
    output.report(Table(title, headings, rows))


def _read_counts(batches: str) -> list[int]:
    """Read numbers of batches, separated by commas."""
    try:
        counts = [int(word) for word in batches.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise ValueError(
            f"--batches must be whole numbers from 1 on, separated by commas, got {batches!r}"
        )
    return counts
