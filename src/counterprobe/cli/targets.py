"""The target that a command works on: from options to a law, and to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from counterprobe.targets import families
from counterprobe.targets.law import ForestLaw

__all__ = [
    "Classes",
    "Edges",
    "Family",
    "Length",
    "Signs",
    "Tables",
    "Target",
    "TargetSeed",
    "Weight",
]

DEFAULT_LENGTH = 4096
PANEL = "Target"

# The options of every command that builds a target.
Family = Annotated[
    str | None,
    typer.Option(
        help=f"Family of the hidden forest, path by default: {', '.join(families.FAMILIES)}.",
        rich_help_panel=PANEL,
    ),
]
Edges = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Your own forest instead: 'i j' or 'i j w' a line, 0-based, # comments.",
        rich_help_panel=PANEL,
    ),
]
Length = Annotated[
    int | None,
    typer.Option("--n", help="Number of positions; 4096 by default.", rich_help_panel=PANEL),
]
TargetSeed = Annotated[
    int, typer.Option(help="Target draw: fields, labels, shape.", rich_help_panel=PANEL)
]
Weight = Annotated[
    float | None,
    typer.Option(help="Edge weight in place of the family's.", rich_help_panel=PANEL),
]
Signs = Annotated[
    str, typer.Option(help="'same' or 'mixed' signs of the weights.", rich_help_panel=PANEL)
]
Classes = Annotated[
    int | None,
    typer.Option(help="Token classes, with --tables random.", rich_help_panel=PANEL),
]
Tables = Annotated[
    str, typer.Option(help="'rank-one' or 'random' pair tables.", rich_help_panel=PANEL)
]


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked for: a family or an edge list file, and its options."""

    family: str | None = None
    edges: str | None = None
    n: int | None = None
    target_seed: int = 196
    weight: float | None = None
    signs: str = "same"
    classes: int | None = None
    tables: str = "rank-one"

    def build(self) -> ForestLaw:
        """Build the law."""
        if self.edges is not None:
            is_plain = self.signs == "same" and self.classes is None and self.tables == "rank-one"
            if self.family is not None or not is_plain:
                raise ValueError(
                    "--edges brings its own forest and weights: leave out --family, --signs, "
                    "--classes and --tables"
                )
            weight = 0.25 if self.weight is None else self.weight
            return families.from_file(self.edges, self.n, self.target_seed, weight=weight)
        options: dict[str, Any] = {
            "weight": self.weight,
            "signs": self.signs,
            "classes": self.classes,
            "tables": self.tables,
        }
        length = DEFAULT_LENGTH if self.n is None else self.n
        return families.build(self.family or "path", length, self.target_seed, **options)

    def as_dict(self, law: ForestLaw) -> dict[str, Any]:
        """Return everything that builds this law again."""
        family = self.family or ("path" if self.edges is None else None)
        return {**asdict(self), "family": family, "n": law.length}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Target:
        """Read the target of a recorded run."""
        if "target" in record:
            return cls(**record["target"])
        # Records of earlier versions name the family only.
        family = str(record["family"])
        options: dict[str, Any] = {"n": record["n"], "target_seed": record["target_seed"]}
        if family.startswith("edges:"):
            return cls(edges=family.removeprefix("edges:"), **options)
        return cls(family=family, **options)
