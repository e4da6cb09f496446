"""What a command is to work on when it is named at once: FASTA records, or several backbones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from counterprobe.cli.options import Text, read_records

__all__ = ["Input", "inputs_of"]

# Its name, and the text with everything that goes with it.
Input = tuple[str | None, Text]


def inputs_of(text: Text) -> list[Input]:
    """Return every input with its name: each FASTA record, or each of several backbones.

    A text that was given as it is has no name of its own.
    """
    backbones = _split_names(text.backbone)
    if text.sequence is None or not text.sequence.startswith("@"):
        if len(backbones) > 1 and text.sequence is not None:
            raise ValueError(
                f"--sequence must come with one backbone, got {len(backbones)}; without it "
                "every backbone is designed whole"
            )
        names = [Path(one).name.split(".")[0] for one in backbones]
        _check_names(names, "--backbone")
        each = (replace(text, backbone=one) for one in backbones)
        return [*zip(names, each, strict=True)] or [(None, text)]
    if len(backbones) > 1:
        raise ValueError(
            f"--sequence {text.sequence} must come with one backbone, got {len(backbones)}"
        )
    records = read_records(text.sequence)
    return [(one.name, replace(text, sequence=one.sequence)) for one in records]


def _split_names(backbone: str | None) -> list[str]:
    """Split what was named with commas; a file whose own name has one is a single one."""
    if backbone is None:
        return []
    if "," not in backbone or Path(backbone).exists():
        return [backbone]
    return [one.strip() for one in backbone.split(",") if one.strip()]


def _check_names(names: Sequence[str], option: str) -> None:
    """Refuse two inputs of one name: their designs could not be told apart."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{option} must name inputs that can be told apart, two are {name!r}")
