"""``counterprobe infill``: finished sequences from a model and a text with masks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from counterprobe.cli import output
from counterprobe.cli.tables import Column, print_table
from counterprobe.infilling import Completions, fill_mask
from counterprobe.infilling import infill as fill_in
from counterprobe.infilling.call import DEFAULT_SAMPLER
from counterprobe.infilling.writing import KINDS, check_kind, write_texts
from counterprobe.run.batches import SampleBatch
from counterprobe.run.results import StopReason
from counterprobe.structure import SoftStructure, load_structure

__all__ = ["Backbone", "Chains", "Device", "Model", "Order", "Sequence", "infill", "options_of"]

MODEL = "Model"
SAMPLER = "Sampler"
OUTPUT = "Output"
# Finished texts that the terminal shows.
SHOWN = 5

Model = Annotated[
    str,
    typer.Option(
        help="A name that 'counterprobe models' lists, or the folder of a Hugging Face model.",
        rich_help_panel=MODEL,
    ),
]
Sequence = Annotated[
    str | None,
    typer.Option(
        help="The text with masks, written [MASK]; X too for proteins. '@FILE' reads a file.",
        show_default="everything masked, where the model knows its length",
        rich_help_panel=MODEL,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="Where the model runs.",
        show_default="a GPU where there is one",
        rich_help_panel=MODEL,
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(
        help="For proteinmpnn: 1ubi, 1ake, or a PDB file.", show_default="1ubi",
        rich_help_panel=MODEL,
    ),
]  # fmt: skip
Chains = Annotated[
    str | None,
    typer.Option(help="For proteinmpnn: letters of the chains to read.", rich_help_panel=MODEL),
]
Order = Annotated[
    str | None,
    typer.Option(
        help="For proteinmpnn: 'commit' keeps what revealed residues computed, which is fast, "
        "but cannot be probed.",
        show_default="index",
        rich_help_panel=MODEL,
    ),
]


@output.friendly
def infill(
    model: Model,
    sequence: Sequence = None,
    device: Device = None,
    backbone: Backbone = None,
    chains: Chains = None,
    order: Order = None,
    allowed: Annotated[
        str | None,
        typer.Option(help="Letters that may be drawn, at every mask.", rich_help_panel=MODEL),
    ] = None,
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
    temperature: Annotated[
        float,
        typer.Option(
            help="Logits are divided by it; 0 takes the likeliest tokens.",
            rich_help_panel=SAMPLER,
        ),
    ] = 1.0,
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
            rich_help_panel=OUTPUT,
        ),
    ] = 0,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help=f"Write the sequences, by the name's ending: {', '.join(KINDS)}.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    json: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a summary as JSON ('-': print it).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Fill in the masks of a text, jointly, any number of times, and say what it cost.

    For example:

    counterprobe infill --model sapiens-heavy --sequence EVQLVESGGGLVQPGGSLRLSCXXSGFXXS --count 5

    counterprobe infill --model proteinmpnn --backbone 1ake --order commit --sampler spread --set
    batches=16 --count 100 --out designs.fasta

    counterprobe infill --model sapiens-heavy --sequence EVQLVESGXGLVQPGGSLRXSC --top-k 5
    """
    output.check_writable(json)
    output.check_writable(out)
    if out is not None:
        check_kind(out)
    named: dict[str, Any] = output.parse_settings(settings or [])
    common: dict[str, Any] = {
        "allowed": allowed,
        "model_options": options_of(device=device, backbone=backbone, chains=chains),
        "oracle_options": options_of(order=order),
    }
    text = read_sequence(sequence)
    known = None if structure is None else load_structure(structure)
    if batches is not None:
        if not isinstance(known, SoftStructure):
            raise ValueError(
                "--batches goes with --structure and a soft structure; samplers take theirs as "
                f"--set batches={batches}"
            )
        named["batches"] = batches
    console = output.console_for(json)
    if top_k is not None:
        if out is not None or sampler is not None or structure is not None or named:
            raise ValueError(
                "--top-k lists completions: leave out --sampler, --set, --structure and --out"
            )
        found = fill_mask(model, text, top_k=top_k, **common)
        show_completions(console, model, found)
        output.write_json(json, completions_record(model, found))
        return
    started = time.perf_counter()
    with output.run_progress(sampler or ("structure" if known else DEFAULT_SAMPLER)) as progress:
        drawn = fill_in(
            model,
            text,
            sampler=sampler,
            structure=known,
            count=count,
            seed=seed,
            temperature=temperature,
            max_submissions=max_submissions,
            likelihood_orders=likelihood_orders,
            progress=progress,
            **common,
            **named,
        )
    seconds = time.perf_counter() - started
    if out is not None and drawn.num_completed == len(drawn):
        write_texts(drawn, out)
    show_batch(console, model, drawn, seconds)
    output.write_json(json, batch_record(model, drawn, seconds))
    stops = {result.stop: result.reason for result in drawn.results}
    for stop, reason in stops.items():
        if stop is not StopReason.COMPLETED:
            output.complain(
                f"{len(drawn) - drawn.num_completed} of {len(drawn)} stopped: {reason}"
            )
            raise typer.Exit(output.INFEASIBLE)
    if out is not None:
        console.print(Text(f"Wrote {out}."))


def options_of(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def read_sequence(sequence: str | None) -> str | None:
    """Return a text given directly or, after ``@``, in a file (FASTA headers are left out)."""
    if sequence is None or not sequence.startswith("@"):
        return sequence
    lines = Path(sequence[1:]).read_text(encoding="utf-8").splitlines()
    if sum(line.startswith(">") for line in lines) > 1:
        raise ValueError(f"{sequence[1:]} holds several sequences; one is filled in at a time")
    return "".join(line for line in lines if not line.startswith(">"))


def show_batch(console: Console, model: str, drawn: SampleBatch, seconds: float) -> None:
    """Print what was drawn and what it cost."""
    log_probs = drawn.log_probs
    masked = int((drawn.given[0] == -1).sum())
    shown = {
        "sequences": len(drawn),
        "masks in each": masked,
        "evaluations, all together": drawn.ledger.total,
        "of a sequence": f"{np.mean([one.total for one in drawn.ledgers]):.1f}",
        "tokens per evaluation": f"{drawn.tokens_per_forward:.3g}",
        "sequential stages": drawn.ledger.depth,
        "evaluations for measuring": drawn.measuring.total,
        "seconds": f"{seconds:.1f}",
    }
    if log_probs is not None and masked:
        shown["mean log-probability when drawn"] = f"{log_probs.mean():.3f}"
    if drawn.log_likelihoods is not None and masked:
        shown["mean log-likelihood, chain rule"] = f"{drawn.log_likelihoods.mean():.3f}"
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


def _share(log_probability: float) -> str:
    return f"{np.exp(log_probability):.3g}"
