"""``counterprobe advise``: which way of drawing to use for a model, at what price."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from counterprobe.arguments import whole_number
from counterprobe.cli import output
from counterprobe.cli.model_task import (
    MODEL,
    Allowed,
    Backbone,
    Chains,
    Device,
    Model,
    Order,
    Sequence,
    Temperature,
    probed_task,
)
from counterprobe.cli.tables import Column, print_table
from counterprobe.evaluation import advise as give_advice
from counterprobe.infilling.task import make_task
from counterprobe.models.backbones import Backbone as Coordinates
from counterprobe.structure import SoftStructure, load_structure

__all__ = ["advise"]


@output.friendly
def advise(
    model: Model,
    structure: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="What 'counterprobe discover' wrote for this model and text.",
            rich_help_panel=MODEL,
        ),
    ],
    sequence: Sequence = None,
    device: Device = None,
    backbone: Backbone = None,
    chains: Chains = None,
    order: Order = None,
    allowed: Allowed = None,
    temperature: Temperature = 1.0,
    count: Annotated[int, typer.Option(help="Sequences that are wanted.")] = 1000,
    target_kl: Annotated[
        float, typer.Option(help="Nats of dependence that a sequence may break.")
    ] = 0.1,
    batches: Annotated[
        str, typer.Option(help="Numbers of batches to measure at, separated by commas.")
    ] = "4,8,16,32",
    samples: Annotated[int, typer.Option(help="Sequences drawn for each price.")] = 16,
    terms: Annotated[
        int, typer.Option(help="Steps of each batch that are priced; 0: all of them.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of what is drawn for measuring.")] = 1,
    json: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write everything as JSON ('-': print it)."),
    ] = None,
) -> None:
    """Measure plans and what needs no structure, and say in plain words which to use.

    For example:

    counterprobe advise --model proteinmpnn --backbone 1ubi --structure 1ubi.npz --count 1000
    """
    output.check_writable(json)
    found = load_structure(structure)
    if not isinstance(found, SoftStructure):
        raise ValueError(
            f"{structure} holds a certified structure, whose commit rounds break nothing: use it "
            "with 'counterprobe infill --structure'"
        )
    counts = read_counts(batches)
    whole_number("--count", count, at_least=1)
    whole_number("--samples", samples, at_least=2)
    whole_number("--terms", terms)
    if not 0 < target_kl < math.inf:
        raise ValueError(f"--target-kl must be a number of nats above 0, got {target_kl}")
    task = probed_task(
        model,
        sequence,
        allowed,
        temperature,
        partial(make_task, oracle_options={} if order is None else {"order": order}),
        device=device,
        backbone=backbone,
        chains=chains,
        order=order,
    )
    checked = task.recognise(found)
    distances = None
    if model == "proteinmpnn":
        distances = Coordinates.named(backbone or "1ubi", chains).distances
    output.announce(f"measuring prices at {', '.join(map(str, counts))} batches")
    advice = give_advice(
        found,
        task.oracle,
        count,
        target_kl=target_kl,
        counts=counts,
        samples=samples,
        terms=terms or None,
        distances=distances,
        seed=seed,
    )
    console = output.console_for(json)
    ways = advice.table.ways
    rows = []
    for number in sorted({price.batches for price in advice.table.prices}):
        cells = [
            f"{p.measured.value:.3f} ± {p.measured.standard_error:.3f}"
            for way in ways
            for p in advice.table.of(way)
            if p.batches == number
        ]
        rows.append([str(number), *cells])
    columns = [Column("batches"), *(Column(way) for way in ways)]
    print_table(console, "batch KL of a sequence, nats, measured", columns, rows)
    console.print(Text(str(advice)))
    asked = task.num_measured + checked.total + advice.table.ledger.total
    console.print(Text(f"Measuring took {asked:,} evaluations.", style="dim"))
    output.write_json(json, {"model": model, **advice.as_dict(), "measuring": asked})


def read_counts(batches: str) -> list[int]:
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
