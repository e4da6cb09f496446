"""``counterprobe score``: finished sequences of any origin, ranked as a model likes them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from counterprobe.cli import options, output
from counterprobe.infilling.fasta import FastaRecord, read_fasta
from counterprobe.infilling.scoring import METHODS, ORDERS, Scores
from counterprobe.infilling.scoring import score as score_sequences
from counterprobe.infilling.task import as_model
from counterprobe.infilling.writing import KINDS, Design, DesignFile

__all__ = ["score"]

# Sequences that the terminal shows.
SHOWN = 20


@output.command
def score(
    files: Annotated[
        list[str], typer.Argument(metavar="FASTA...", help="Files of finished sequences.")
    ],
    *,
    model: options.Model,
    backbone: options.BackboneFile = None,
    chains: options.Chains = None,
    fill_gaps: options.FillGaps = False,
    weights: options.Weights = None,
    device: options.Device = None,
    download: options.Download = False,
    design: Annotated[
        str | None,
        options.in_model(
            metavar="RESIDUES", help="What is scored, given all else: A10-25,B7 or CDR-H3."
        ),
    ] = None,
    fixed: Annotated[
        str | None, options.in_model(metavar="RESIDUES", help="What is not; all else is scored.")
    ] = None,
    method: Annotated[
        str | None,
        options.in_sampler(
            help=f"{', '.join(METHODS)}.", show_default="decoding-order for proteinmpnn, or pseudo"
        ),
    ] = None,
    orders: Annotated[
        int, options.in_sampler(help="Random orders of each sequence, where orders matter.")
    ] = ORDERS,
    seed: Annotated[int, options.in_sampler(help="Of the orders.")] = 1,
    out: Annotated[
        str | None,
        options.in_output(
            metavar="FILE",
            help=f"Write the sequences, the best first, by the name's ending: {', '.join(KINDS)}.",
        ),
    ] = None,
    force: Annotated[
        bool, options.in_output("--force", help="Replace FILE if it is there.")
    ] = False,
    json: options.JsonFile = None,
) -> None:
    """Score finished sequences, whoever made them, and rank them.

    A score is in nats per scored position at temperature 1: lower is better. For proteinmpnn it is
    its own, by random decoding orders (one evaluation each); for other models every position is
    masked alone (pseudo, one evaluation a position), or the chain rule is followed in random
    orders (chain-rule, one evaluation a position and order).

    For example:

    counterprobe score cold.fasta warm.fasta --model proteinmpnn --backbone 1ubi --out ranked.fasta

    counterprobe score antibodies.fasta --model sapiens-heavy --design CDR-H3
    """
    output.check_writable(json)
    console = output.console_for(json)
    text = options.Text(
        backbone=backbone,
        chains=chains,
        fill_gaps=fill_gaps,
        weights=weights,
        device=device,
        download=download,
    )
    loaded = as_model(model, text.named(model)["model_options"])
    text.tell_notes(loaded)
    written = None if out is None else output.hold(DesignFile(out, force=force))
    records = _read(files)
    found = score_sequences(
        loaded,
        records,
        method=method,  # type: ignore[arg-type]
        orders=orders,
        seed=seed,
        template_options={
            name: value for name, value in (("design", design), ("fixed", fixed)) if value
        },
    )
    if written is not None:
        written.write(_designs(found, records, model))
    _show(console, model, found)
    output.say_written(console, out)
    output.write_result(
        json,
        {
            "model": model,
            "method": found.method,
            "orders": found.values.shape[1],
            **found.ledger.as_dict(),
            "scores": found.records(),
        },
    )


def _read(files: list[str]) -> list[FastaRecord]:
    """Read all records; where two files have one of the same name, it tells its file too."""
    found = [(Path(file).stem, one) for file in files for one in read_fasta(file)]
    counts = Counter(one.name for _, one in found)
    named = [
        one if counts[one.name] == 1 else replace(one, name=f"{stem}/{one.name}")
        for stem, one in found
    ]
    again = [name for name, count in Counter(one.name for one in named).items() if count > 1]
    if again:
        raise ValueError(f"files must differ in their names or their records', two are {again[0]}")
    return named


def _designs(found: Scores, records: list[FastaRecord], model: str) -> list[Design]:
    """Return the sequences with their scores; what their headers said of them stays."""
    known = {one.name: one for one in records}
    designs = []
    for row in found.records():
        told = [word.partition("=") for word in known[row["name"]].description.split()]
        said = {key: value for key, separator, value in told if separator}
        before = {key: said[key] for key in said if key not in ("name", "sequence")}
        drawn = {"drawn_score": before.pop("score")} if "score" in before else {}
        own = {key: row[key] for key in row if key not in ("name", "sequence")}
        columns = {**own, "scored_by": f"{model} {found.method}", **drawn}
        others = {key: value for key, value in before.items() if key not in columns}
        designs.append(Design(row["name"], row["sequence"], {**columns, **others}))
    return designs


def _show(console: Any, model: str, found: Scores) -> None:
    """Print the best, and what it took."""
    rows = [
        [
            row["name"],
            str(row["rank"]),
            f"{row['score']:.4f}",
            output.number(row.get("error"), ".4f"),
            output.number(row.get("recovery"), ".3f"),
            str(row["scored"]),
        ]
        for row in found.records()[:SHOWN]
    ]
    columns = ["name", "rank", "score", "error", "recovery", "positions scored"]
    used = [k for k in range(len(columns)) if any(row[k] != "-" for row in rows)]
    notes = [
        f"{len(found)} sequences, {found.ledger.evaluations:,} evaluations. Nats per scored "
        "position at temperature 1: lower is better."
    ]
    if len(found) > SHOWN:
        notes.insert(0, f"... and {len(found) - SHOWN} more.")
    output.print_table(
        console,
        f"{model}, {found.method}",
        [columns[k] for k in used],
        [[row[k] for k in used] for row in rows],
        notes,
    )
