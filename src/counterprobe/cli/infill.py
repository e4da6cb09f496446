"""``counterprobe infill``: finished sequences from a model and a text with masks."""

from __future__ import annotations

import inspect
import time
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from counterprobe.arguments import whole_number
from counterprobe.cli import options, output, runs
from counterprobe.cli.output import number
from counterprobe.discovery import SoftStructure, Structure, load_structure
from counterprobe.infilling import Completions, fill_mask
from counterprobe.infilling import infill as fill_in
from counterprobe.infilling.terms import DEFAULT_SAMPLER, infill_record, rule_of
from counterprobe.infilling.writing import KINDS, check_kind, write_texts
from counterprobe.run.batches import SampleBatch
from counterprobe.run.results import StopReason
from counterprobe.samplers.registry import default_orders, read_settings, structure_settings
from counterprobe.sampling import AT_ONCE

__all__ = ["infill"]

# Finished texts that the terminal shows.
SHOWN = 5
# What has no meaning where completions are listed and nothing is drawn.
DRAWING = (
    "sampler", "settings", "structure", "batches", "count", "temperature", "max_submissions",
    "likelihood_orders", "out", "trace", "checkpoint", "retries", "timeout", "recheck",
)  # fmt: skip


@output.command
def infill(
    *,
    model: options.Model,
    text: options.Text,
    order: options.Order = None,
    sampler: Annotated[
        str | None,
        options.in_sampler(help="See 'counterprobe samplers'.", show_default=DEFAULT_SAMPLER),
    ] = None,
    settings: options.Settings = None,
    structure: Annotated[
        str | None,
        options.in_sampler(
            metavar="FILE",
            help="Commit by what 'counterprobe discover' wrote for this model and text.",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        options.in_sampler(
            help="Batches of a plan, with --structure.", show_default="as few as break 0.1 nats"
        ),
    ] = None,
    count: Annotated[int, options.in_sampler(help="Sequences to draw.")] = 1,
    seed: options.Seed = 1,
    max_submissions: options.MaxSubmissions = None,
    top_k: Annotated[
        int | None,
        options.in_sampler(help="Do not draw: list this many likeliest joint completions."),
    ] = None,
    likelihood_orders: Annotated[
        int,
        options.in_output(
            help="Score finished sequences by the chain rule in this many random orders; the "
            "evaluations are counted apart."
        ),
    ] = 0,
    out: Annotated[
        str | None,
        options.in_output(
            metavar="FILE", help=f"Write the sequences, by the name's ending: {', '.join(KINDS)}."
        ),
    ] = None,
    trace_sequence: Annotated[
        int,
        options.in_output(metavar="K", help="Which of --count sequences the trace shows, from 1."),
    ] = 1,
    json: options.JsonFile = None,
    trace: runs.Trace,
    engine: options.ModelEngine,
    faults: runs.Faults,
) -> None:
    """Fill in the masks of a text, jointly, any number of times, and say what it cost.

    For example:

    counterprobe infill --model sapiens-heavy --sequence EVQLVESGGGLVQPGGSLRLSCXXSGFXXS --count 5

    counterprobe infill --model proteinmpnn --backbone 1ake --order commit --sampler spread --set
    batches=16 --count 100 --out designs.fasta

    counterprobe infill --model sapiens-heavy --sequence EVQLVESGXGLVQPGGSLRXSC --top-k 5

    counterprobe infill --model proteinmpnn --backbone 1ake --count 1000 --checkpoint run.log --out
    designs.fasta
    """
    output.check_writable(json, out)
    if out is not None:
        check_kind(out)
    console = output.console_for(json)
    if top_k is not None:
        _refuse_beside_top_k()
        found = fill_mask(text.task(model, engine.open(), order=order), top_k=top_k)
        _show_completions(console, model, found)
        output.write_result(json, _completions_record(model, found))
        return
    whole_number("--count", count, at_least=1)
    whole_number("--likelihood-orders", likelihood_orders)
    _check_traced(trace.trace, trace_sequence, count)
    known = None if structure is None else load_structure(structure)
    named = _checked_settings(known, read_settings(settings), batches)
    rule = rule_of(sampler, known, named)
    where = engine.open(faults.timeout)
    started = time.perf_counter()
    task = text.task(model, where, order=order)
    asking: dict[str, Any] = {
        "structure": known,
        "count": count,
        "seed": seed,
        "orders": default_orders(known, rule),
        "max_submissions": max_submissions,
        "at_once": AT_ONCE,
        "likelihood_orders": likelihood_orders,
        "trace_sequence": trace_sequence - 1,
    }
    determined = infill_record(
        replace(task, oracle=task.oracle.rechecking(faults.recheck)),
        rule,
        temperature=text.temperature,
        **{**asking, "trace_sequence": None if trace.trace is None else trace_sequence - 1},
    )
    with (
        output.run_progress(rule.name) as progress,
        runs.oracle_chain(
            task.oracle, faults, {"model": model, **determined.terms}, where
        ) as chain,
    ):
        drawn = fill_in(
            replace(task, oracle=chain.oracle),
            sampler=sampler,
            progress=progress,
            trace=trace.trace,
            trace_bytes=trace.trace_bytes,
            trace_command=runs.this_command(),
            **asking,
            **named,
        )
    seconds = time.perf_counter() - started
    is_complete = drawn.num_completed == len(drawn)
    if out is not None and is_complete:
        write_texts(drawn, out)
    _show(console, model, drawn, seconds, chain)
    output.say_written(console, trace.trace, out if is_complete else None)
    output.write_result(json, {**_record(model, drawn, seconds), **chain.record()})
    _require_complete(drawn, out)


# ----- What is refused ------------------------------------------------------------------------


def _refuse_beside_top_k() -> None:
    """Refuse what has no meaning where completions are listed and nothing is drawn."""
    given = [name for name in DRAWING if name in output.changed_options()]
    if given:
        options = ["--set" if one == "settings" else f"--{one.replace('_', '-')}" for one in given]
        raise ValueError(f"--top-k lists completions: leave out {', '.join(options)}")


def _check_traced(trace: str | None, sequence: int, count: int) -> None:
    """Refuse to trace a sequence that is not drawn."""
    if not 1 <= sequence <= count:
        raise ValueError(f"--trace-sequence must be one of 1 to --count, {count}; got {sequence}")
    if trace is None and sequence != 1:
        raise ValueError(f"--trace-sequence {sequence} goes with --trace FILE")


def _checked_settings(
    structure: Structure | SoftStructure | None, named: dict[str, Any], batches: int | None
) -> dict[str, Any]:
    """Return the settings of the sampler; refuse those that it does not have."""
    if batches is not None:
        if not isinstance(structure, SoftStructure):
            raise ValueError(
                "--batches goes with --structure and a soft structure; samplers take theirs as "
                f"--set batches={batches}"
            )
        named = {**named, "batches": batches}
    if structure is not None:
        known = structure_settings(structure)
        for name in named:
            if name not in known:
                raise ValueError(
                    f"this structure's sampler has no setting {name!r}; its settings: "
                    f"{', '.join(known) or 'none'}"
                )
    taken = [name for name in named if name in inspect.signature(fill_in).parameters]
    if taken:
        raise ValueError(
            f"--set is for settings of the sampler; {taken[0]} is an option of the command: "
            f"--{taken[0].replace('_', '-')}"
        )
    return named


def _require_complete(drawn: SampleBatch, out: str | None) -> None:
    """End the command with a reason if a sequence stopped before it was complete."""
    for result in drawn.results:
        if result.stop is not StopReason.COMPLETED:
            unwritten = "" if out is None else f"; {out} was not written"
            output.complain(
                f"{len(drawn) - drawn.num_completed} of {len(drawn)} stopped: {result.reason}"
                f"{unwritten}"
            )
            raise typer.Exit(output.INFEASIBLE)


# ----- What people and files get ----------------------------------------------------------------


def _show(
    console: Console, model: str, drawn: SampleBatch, seconds: float, chain: runs.Chain
) -> None:
    """Print what was drawn and what it cost."""
    log_probs, scores = drawn.log_probs, drawn.log_likelihoods
    masked = int((drawn.given[0] == -1).sum())
    shown = {
        "sequences": len(drawn),
        "masks in each": masked,
        "evaluations, all together": drawn.ledger.total,
        "of a sequence": f"{np.mean([one.total for one in drawn.ledgers]):.1f}",
        "tokens per evaluation": number(drawn.tokens_per_forward, ".3g", "none"),
        "sequential stages": drawn.ledger.depth,
        "evaluations for measuring": drawn.measuring.total,
        **({"repeated to compare": drawn.num_rechecked} if drawn.num_rechecked else {}),
        **({"not repeated": drawn.num_recheck_skipped} if drawn.num_recheck_skipped else {}),
        **chain.rows(),
        "seconds": f"{seconds:.1f}",
    }
    if log_probs is not None and masked:
        shown["mean log-probability when drawn"] = f"{log_probs.mean():.3f}"
    if scores is not None and masked:
        shown["mean log-likelihood, chain rule"] = number(scores.mean(), ".3f", "none")
    console.print(output.key_value_table(f"{model}, {drawn.results[0].sampler}", shown))
    if drawn.choice is not None:
        console.print(Text(str(drawn.choice)))
    texts = list(drawn.texts or ())
    for one in texts[:SHOWN]:
        console.print(Text(one), soft_wrap=True)
    if len(texts) > SHOWN:
        console.print(Text(f"... and {len(texts) - SHOWN} more", style="dim"))


def _record(model: str, drawn: SampleBatch, seconds: float) -> dict[str, Any]:
    return {
        "model": model,
        **drawn.summary(),
        "measuring": drawn.measuring.total,
        "rechecked": drawn.num_rechecked,
        "recheck_skipped": drawn.num_recheck_skipped,
        "seconds": seconds,
        "texts": drawn.texts,
        "log_probs": drawn.log_probs,
        "log_likelihoods": drawn.log_likelihoods,
    }


def _show_completions(console: Console, model: str, found: Completions) -> None:
    """Print completions by joint probability, and what independent masks would have said."""
    for title, entries in (
        (f"{model}: likeliest together ({found.ledger.total} evaluations)", found.ranked),
        ("what independent masks would have said", found.independent),
    ):
        rows = [
            [
                one.text or str(one.tokens),
                f"{np.exp(one.log_joint):.3g}",
                f"{np.exp(one.log_independent):.3g}",
            ]
            for one in entries
        ]
        output.print_table(console, title, ["completion", "joint", "independent"], rows)
    if not found.is_exhaustive:
        console.print(Text("A beam was searched: a likelier completion may exist.", style="dim"))


def _completions_record(model: str, found: Completions) -> dict[str, Any]:
    names = ("text", "tokens", "log_joint", "log_independent")
    return {
        "model": model,
        "positions": found.positions,
        "order": found.order,
        "exhaustive": found.is_exhaustive,
        "measuring": found.measuring.total,
        **found.ledger.as_dict(),
        **{
            kind: [{name: getattr(one, name) for name in names} for one in getattr(found, kind)]
            for kind in ("ranked", "independent")
        },
    }
