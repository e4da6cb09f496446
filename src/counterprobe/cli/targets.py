"""The target that a command works on: from options to a law, and to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from counterprobe.targets import families
from counterprobe.targets.law import ForestLaw

__all__ = ["DEFAULT_LENGTH", "Target"]

DEFAULT_LENGTH = 4096


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

    def build(self, default_length: int = DEFAULT_LENGTH) -> ForestLaw:
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
        length = default_length if self.n is None else self.n
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
