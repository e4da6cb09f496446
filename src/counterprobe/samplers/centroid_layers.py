"""Centroid layers of a known forest: the reference line that discovery works towards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from counterprobe.planning.layers import commit_order
from counterprobe.run.requests import CommitAll, Requests
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Decisions

__all__ = ["CentroidLayers"]


@dataclass(frozen=True)
class CentroidLayers(Sampler):
    """Commit the centroid of every component at once, again and again, on a forest it is told.

    Positions of one layer lie in different components, so they are independent given what is
    committed: exact in at most ``floor(log2 N) + 1`` evaluations. It knows what others must find.

    Parameters
    ----------
    edges : tuple of pairs of int, or None
        The forest; positions given as context drop out of it.
    """

    name: ClassVar[str] = "centroid-layers"
    summary: ClassVar[str] = "centroid layers of the true forest: a reference line, not a peer"
    source: ClassVar[str] = "the paper's terminal phase; paths: Bansal et al., arXiv 2606.22976"
    bound: ClassVar[str] = "exact on the forest it is told, in floor(log2 N) + 1 evaluations"
    knows: ClassVar[str] = "its forest"

    edges: tuple[tuple[int, int], ...] | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.edges is not None:
            pairs = np.asarray(self.edges, dtype=object)
            if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
                raise ValueError(f"edges must be pairs of positions, got {self.edges!r}")
            plain = tuple((int(i), int(j)) for i, j in self.edges)
            object.__setattr__(self, "edges", plain)  # lists, as JSON has them, become tuples

    def exact_for(self, length: int) -> bool:
        """Claim the target wherever the forest is the true one."""
        return self.edges is not None

    def informed_by(self, law: Any) -> Self:
        """Take the forest from the law."""
        if self.edges is not None:
            return self
        edges = getattr(law, "edges", None)
        if edges is None:
            raise ValueError(
                f"sampler {self.name!r} needs a forest, which {law!r} does not have; pass edges= "
                "or choose a ForestLaw"
            )
        return replace(self, edges=tuple((int(i), int(j)) for i, j in edges))

    def unmask(self, view: View, rng: Decisions) -> Requests[None]:
        """Commit the layers of the forest on the residual positions."""
        if self.edges is None:
            raise ValueError(
                f"sampler {self.name!r} needs edges, the law's forest: pass edges=law.edges, or "
                "let informed_by(law) set it"
            )
        joined = np.asarray(self.edges, dtype=np.int64).reshape(-1, 2)
        everywhere = np.ones(max(view.length, joined.max(initial=-1) + 1), dtype=np.bool_)
        order = commit_order(joined, everywhere, view.residual, repair=False)
        yield CommitAll(order.layers)
