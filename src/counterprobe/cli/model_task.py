"""How commands name a model and a text with masks: the options they share, read and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from counterprobe.files import read_bytes
from counterprobe.infilling.task import Task, make_task
from counterprobe.models.backbones import SHIPPED

__all__ = [
    "MODEL",
    "Allowed",
    "Backbone",
    "Chains",
    "Device",
    "Model",
    "ModelOrLaw",
    "Order",
    "Sequence",
    "Temperature",
    "model_options",
    "probed_task",
    "read_sequence",
]

MODEL = "Model"
# Bytes of a file that holds a sequence; no model reads a longer one.
MOST_TEXT = 1 << 24

Model = Annotated[
    str,
    typer.Option(
        help="A name that 'counterprobe models' lists, or the folder of a Hugging Face model.",
        rich_help_panel=MODEL,
    ),
]
ModelOrLaw = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A name that 'counterprobe models' lists, or a folder; a hidden law otherwise.",
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
Allowed = Annotated[
    str | None,
    typer.Option(help="Letters that may be drawn, at every mask.", rich_help_panel=MODEL),
]
Temperature = Annotated[
    float,
    typer.Option(
        help="Logits are divided by it; 0 takes the likeliest tokens.", rich_help_panel=MODEL
    ),
]


def model_options(
    model: str,
    device: str | None,
    backbone: str | None,
    chains: str | None,
    order: str | None = None,
) -> dict[str, Any]:
    """Return the options with which a model is loaded; refuse those of another model."""
    foreign = {"--backbone": backbone, "--chains": chains, "--order": order}
    given = [name for name, value in foreign.items() if value is not None]
    if given and model != "proteinmpnn":
        raise ValueError(f"{', '.join(given)} must come with --model proteinmpnn, got {model}")
    if chains is not None and (backbone is None or backbone in SHIPPED):
        raise ValueError("--chains must come with a PDB file as --backbone")
    options = {"device": device, "backbone": backbone, "chains": chains}
    return {name: value for name, value in options.items() if value is not None}


def read_sequence(sequence: str | None) -> str | None:
    """Return a text given directly or, after ``@``, in a file: FASTA without its header."""
    if sequence is None or not sequence.startswith("@"):
        return sequence
    file = sequence[1:]
    try:
        text = read_bytes(file, MOST_TEXT).decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ValueError(f"--sequence @{file} must name a text file in UTF-8") from None
    if not text.startswith(">"):
        return text
    _, *lines = text.splitlines()
    if any(line.startswith(">") for line in lines):
        raise ValueError(f"{file} holds several sequences; one is filled in at a time")
    return "".join(line.strip() for line in lines)


def probed_task(
    model: str,
    sequence: str | None,
    allowed: str | None,
    temperature: float,
    make: Callable[..., Task] = make_task,
    /,
    **options: Any,
) -> Task:
    """Return the task of a model that is to be probed; options as :func:`model_options`."""
    if not temperature > 0:
        raise ValueError(
            f"--temperature must be above 0, where something is left to depend, got {temperature}"
        )
    return make(
        model,
        read_sequence(sequence),
        allowed=allowed,
        temperature=temperature,
        model_options=model_options(model, **options),
    )
