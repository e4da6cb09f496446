"""``counterprobe infill``: finished sequences from a model and a text with masks."""

from __future__ import annotations

import inspect
import math
import time
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from counterprobe.arguments import whole_number
from counterprobe.cli import output
from counterprobe.cli.engine_options import (
    Address,
    EngineName,
    Gpus,
    Workers,
    engine_of,
    spread_task,
)
from counterprobe.cli.faults import (
    SHARE,
    CheckpointFile,
    Faults,
    Paranoid,
    ParanoidShare,
    ResumeFile,
    Retries,
    Timeout,
    share_of,
)
from counterprobe.cli.model_task import (
    Allowed,
    Backbone,
    Chains,
    Device,
    Model,
    Order,
    Sequence,
    Temperature,
    model_options,
    read_sequence,
)
from counterprobe.cli.tables import Column, print_table
from counterprobe.cli.tracing import (
    TraceBytes,
    TraceFile,
    TraceSequence,
    check_trace,
    say_written,
    this_command,
)
from counterprobe.discovery import SoftStructure, Structure, load_structure
from counterprobe.engines import AnyEngine
from counterprobe.infilling import Completions, fill_mask
from counterprobe.infilling import infill as fill_in
from counterprobe.infilling.terms import DEFAULT_SAMPLER, infill_record, rule_of
from counterprobe.infilling.writing import KINDS, check_kind, write_texts
from counterprobe.run.batches import SampleBatch
from counterprobe.run.results import StopReason
from counterprobe.samplers.registry import default_orders, structure_settings
from counterprobe.sampling import AT_ONCE
from counterprobe.trace.recorder import DEFAULT_BYTES

__all__ = ["infill"]

SAMPLER = "Sampler"
# Finished texts that the terminal shows.
SHOWN = 5


@output.friendly
def infill(
    model: Model,
    sequence: Sequence = None,
    device: Device = None,
    backbone: Backbone = None,
    chains: Chains = None,
    order: Order = None,
    allowed: Allowed = None,
    temperature: Temperature = 1.0,
    sampler: Annotated[
        str | None,
        typer.Option(
            help="See 'counterprobe samplers'.",
            show_default=DEFAULT_SAMPLER,
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the sampler; may be repeated.",
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Commit by what 'counterprobe discover' wrote for this model and text.",
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(
            help="Batches of a plan, with --structure.",
            show_default="as few as break 0.1 nats",
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    count: Annotated[int, typer.Option(help="Sequences to draw.", rich_help_panel=SAMPLER)] = 1,
    seed: Annotated[
        int, typer.Option(help="Sets decision and commit seeds.", rich_help_panel=SAMPLER)
    ] = 1,
    max_submissions: Annotated[
        int | None,
        typer.Option(
            help="Stop a sequence before more evaluations than this.", rich_help_panel=SAMPLER
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            help="Do not draw: list this many likeliest joint completions.",
            rich_help_panel=SAMPLER,
        ),
    ] = None,
    likelihood_orders: Annotated[
        int,
        typer.Option(
            help="Score finished sequences by the chain rule in this many random orders; the "
            "evaluations are counted apart.",
            rich_help_panel=output.OUTPUT,
        ),
    ] = 0,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Write the sequences, by the name's ending: {', '.join(KINDS)}.",
            rich_help_panel=output.OUTPUT,
        ),
    ] = None,
    engine: EngineName = None,
    workers: Workers = None,
    address: Address = None,
    gpus: Gpus = None,
    trace: TraceFile = None,
    trace_bytes: TraceBytes = DEFAULT_BYTES,
    trace_sequence: TraceSequence = 1,
    checkpoint: CheckpointFile = None,
    resume: ResumeFile = None,
    retries: Retries = 0,
    timeout: Timeout = None,
    paranoid: Paranoid = False,
    paranoid_share: ParanoidShare = SHARE,
    json: output.SummaryFile = None,
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
    output.check_writable(json)
    output.check_writable(out)
    check_trace(trace, trace_bytes, trace_sequence, count)
    faults = Faults(checkpoint, resume, retries, timeout, engine)
    share = share_of(paranoid, paranoid_share)
    if out is not None:
        check_kind(out)
    common: dict[str, Any] = {
        "allowed": allowed,
        "model_options": model_options(model, device, backbone, chains, order),
        "oracle_options": {} if order is None else {"order": order},
    }
    text = read_sequence(sequence)
    known = None if structure is None else load_structure(structure)
    named = checked_settings(known, output.parse_settings(settings or []), batches)
    where = engine_of(engine, workers, address, gpus, faults.task_seconds)
    if where is not None and order == "commit":
        raise ValueError(
            "--order commit must run in this process, as replicas do not share what was "
            "committed: leave out --engine"
        )
    console = output.console_for(json)
    drawing = {
        "--sampler": sampler is not None,
        "--set": bool(named) and structure is None,
        "--structure": structure is not None,
        "--count": count != 1,
        "--temperature": temperature != 1,
        "--max-submissions": max_submissions is not None,
        "--likelihood-orders": likelihood_orders != 0,
        "--out": out is not None,
        "--trace": trace is not None,
        "--checkpoint": checkpoint is not None,
        "--resume": resume is not None,
        "--retries": retries != 0,
        "--timeout": timeout is not None,
        "--paranoid": paranoid,
    }
    if top_k is not None:
        refuse_beside_top_k(drawing)
        found = fill_mask(**asked(where, model, text, common), top_k=top_k)
        show_completions(console, model, found)
        output.write_json(json, completions_record(model, found))
        return
    started = time.perf_counter()
    whole_number("--count", count, at_least=1)
    whole_number("--likelihood-orders", likelihood_orders)
    rule = rule_of(sampler, known, named)
    task = spread_task(where, model, text, **common, temperature=temperature)
    asking: dict[str, Any] = {
        "structure": known,
        "count": count,
        "seed": seed,
        "orders": default_orders(known),
        "max_submissions": max_submissions,
        "at_once": AT_ONCE,
        "likelihood_orders": likelihood_orders,
        "trace_sequence": trace_sequence - 1,
    }
    traced = {"trace_sequence": None if trace is None else trace_sequence - 1}
    determined = infill_record(task, rule, temperature=temperature, **{**asking, **traced})
    with (
        output.run_progress(rule.name) as progress,
        faults.around(
            task.oracle, {"model": model, **determined.terms, "paranoid": share}
        ) as guarded,
    ):
        drawn = fill_in(
            replace(task, oracle=guarded.oracle),
            sampler=sampler,
            progress=progress,
            trace=trace,
            trace_bytes=trace_bytes,
            trace_command=this_command(),
            **asking,
            **named,
        )
    seconds = time.perf_counter() - started
    if out is not None and drawn.num_completed == len(drawn):
        write_texts(drawn, out)
    show_batch(console, model, drawn, seconds, guarded.rows())
    say_written(console, trace)
    record = batch_record(model, drawn, seconds)
    if guarded.report():
        record["faults"] = guarded.report()
    output.write_json(json, record)
    require_complete(drawn, out)
    if out is not None:
        console.print(Text(f"Wrote {out}."), soft_wrap=True)


def require_complete(drawn: SampleBatch, out: str | None) -> None:
    """End the command with a reason if a sequence stopped before it was complete."""
    for result in drawn.results:
        if result.stop is not StopReason.COMPLETED:
            unwritten = "" if out is None else f"; {out} was not written"
            output.complain(
                f"{len(drawn) - drawn.num_completed} of {len(drawn)} stopped: {result.reason}"
                f"{unwritten}"
            )
            raise typer.Exit(output.INFEASIBLE)


def asked(
    engine: AnyEngine | None, model: str, text: str | None, common: dict[str, Any]
) -> dict[str, Any]:
    """Return what names the model and the text: with an engine, a task that is spread over it."""
    if engine is None:
        return {"model": model, "template": text, **common}
    return {"model": spread_task(engine, model, text, **common)}


def checked_settings(
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


def refuse_beside_top_k(given: dict[str, bool]) -> None:
    """Refuse what has no meaning where completions are listed and nothing is drawn."""
    names = [name for name, is_given in given.items() if is_given]
    if names:
        raise ValueError(f"--top-k lists completions: leave out {', '.join(names)}")


def show_batch(
    console: Console, model: str, drawn: SampleBatch, seconds: float, beside: dict[str, int]
) -> None:
    """Print what was drawn and what it cost."""
    log_probs = drawn.log_probs
    masked = int((drawn.given[0] == -1).sum())
    shown = {
        "sequences": len(drawn),
        "masks in each": masked,
        "evaluations, all together": drawn.ledger.total,
        "of a sequence": f"{np.mean([one.total for one in drawn.ledgers]):.1f}",
        "tokens per evaluation": _number(drawn.tokens_per_forward, ".3g"),
        "sequential stages": drawn.ledger.depth,
        "evaluations for measuring": drawn.measuring.total,
        **({"repeated to compare": drawn.num_rechecked} if drawn.num_rechecked else {}),
        **({"not repeated": drawn.num_recheck_skipped} if drawn.num_recheck_skipped else {}),
        **beside,
        "seconds": f"{seconds:.1f}",
    }
    if log_probs is not None and masked:
        shown["mean log-probability when drawn"] = f"{log_probs.mean():.3f}"
    if drawn.log_likelihoods is not None and masked:
        shown["mean log-likelihood, chain rule"] = _number(drawn.log_likelihoods.mean(), ".3f")
    first = drawn.results[0]
    console.print(output.key_value_table(f"{model}, {first.sampler}", shown))
    for k, text in enumerate(drawn.texts or ()):
        if k == SHOWN:
            console.print(Text(f"... and {len(drawn) - SHOWN} more", style="dim"))
            break
        console.print(Text(text), soft_wrap=True)


def batch_record(model: str, drawn: SampleBatch, seconds: float) -> dict[str, Any]:
    """Return what JSON says of a batch."""
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


def show_completions(console: Console, model: str, found: Completions) -> None:
    """Print completions by joint probability, and what independent masks would have said."""
    columns = [Column("completion"), Column("joint"), Column("independent")]
    for title, entries in (
        (f"{model}: likeliest together ({found.ledger.total} evaluations)", found.ranked),
        ("what independent masks would have said", found.independent),
    ):
        rows = [
            [one.text or str(one.tokens), _share(one.log_joint), _share(one.log_independent)]
            for one in entries
        ]
        print_table(console, title, columns, rows)
    if not found.is_exhaustive:
        console.print(Text("A beam was searched: a likelier completion may exist.", style="dim"))


def completions_record(model: str, found: Completions) -> dict[str, Any]:
    """Return what JSON says of completions."""
    return {
        "model": model,
        "positions": found.positions,
        "order": found.order,
        "exhaustive": found.is_exhaustive,
        "measuring": found.measuring.total,
        **found.ledger.as_dict(),
        **{
            name: [
                {
                    "text": one.text,
                    "tokens": one.tokens,
                    "log_joint": one.log_joint,
                    "log_independent": one.log_independent,
                }
                for one in getattr(found, name)
            ]
            for name in ("ranked", "independent")
        },
    }


def _number(value: float, form: str) -> str:
    """Return a number for people; what nothing was measured of has none."""
    return "none" if math.isnan(value) else format(value, form)


def _share(log_probability: float) -> str:
    return f"{np.exp(log_probability):.3g}"
