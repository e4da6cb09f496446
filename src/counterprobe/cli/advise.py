"""``counterprobe advise``: which way of drawing to use for a model, at what price."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from counterprobe.cli import output
from counterprobe.cli.infill import (
    MODEL,
    Backbone,
    Chains,
    Device,
    Model,
    Sequence,
    options_of,
    read_sequence,
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
    try:
        counts = [int(word) for word in batches.split(",")]
    except ValueError:
        raise ValueError(
            f"--batches takes whole numbers separated by commas, got {batches!r}"
        ) from None
    options = options_of(device=device, backbone=backbone, chains=chains)
    task = make_task(model, read_sequence(sequence), model_options=options)
    checked = found.check(task.oracle)
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
    asked = checked.total + advice.table.ledger.total
    console.print(Text(f"Measuring took {asked:,} evaluations.", style="dim"))
    output.write_json(json, {"model": model, **advice.as_dict()})
