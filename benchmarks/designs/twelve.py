"""The twelve backbones that were chosen before anything was measured, by name.

``tools/fetch_backbones.py`` says by which rule, and puts them where they are looked for here: into
the folder ``carried-backbones`` at the root of the repository, or that which ``BACKBONES`` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from counterprobe.models.proteins.backbones import SHIPPED, Backbone

__all__ = ["TWELVE", "backbone_named", "folder", "spelled_out"]

ROOT = Path(__file__).parents[2]
TWELVE: tuple[str, ...] = tuple(
    one["name"]
    for one in json.loads((ROOT / "benchmarks/data/backbones.json").read_text())["backbones"]
)


def folder() -> Path:
    """Return where the twelve lie."""
    return Path(os.environ.get("BACKBONES", ROOT / "carried-backbones"))


def backbone_named(name: str) -> Backbone:
    """Return one of the twelve, a shipped backbone, or that of a file."""
    if name not in TWELVE:
        return Backbone.named(name)
    file = folder() / f"{name}.npz"
    if not file.is_file():
        raise ValueError(
            f"{name} must lie in {file}; fetch the twelve with: python tools/fetch_backbones.py "
            f"{file.parent.name}"
        )
    return Backbone.load(file)


def spelled_out(names: str) -> tuple[str, ...]:
    """Return names separated by commas; ``twelve`` stands for the twelve, ``shipped`` for two."""
    groups = {"twelve": TWELVE, "shipped": SHIPPED}
    return tuple(one for word in names.split(",") for one in groups.get(word, (word,)))
