"""What a screen finds of the true edges of a law, asking its denoiser only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from substitution import estimate

import counterprobe as cp
from counterprobe.discovery.soft import SoftSettings

__all__ = ["PROBES", "QUICK_PROBES", "Screen", "edges_found", "find_structure", "screens"]

# Numbers of probes by estimator. Single substitutions show three tokens at each of 64 positions,
# which costs 192 and no more; a context of theirs costs about 80.
PROBES: dict[str, tuple[int, ...]] = {
    "regression": (32, 64, 128, 192, 256, 512),
    "substitution": (192,),
    "contexts": (128, 256, 512, 1_024, 2_048),
}
QUICK_PROBES: dict[str, tuple[int, ...]] = {
    "regression": (64,),
    "substitution": (192,),
    "contexts": (128,),
}


def edges_found(strength: np.ndarray, edges: np.ndarray, true_edges: np.ndarray) -> dict[str, Any]:
    """Count true edges among what was declared, and among the strongest pairs.

    Parameters
    ----------
    strength : ndarray of float, shape (N, N)
    edges : ndarray of int, shape (E, 2)
        The pairs a screen stands by.
    true_edges : ndarray of int, shape (T, 2)

    Returns
    -------
    dict
        ``true``, how many there are; ``declared`` and ``found``, pairs and how many of them are
        true; ``ranked``, true edges among the T strongest pairs, which needs no cut;
        ``weakest_edge`` and ``strongest_other``, strengths in nats on either side of the best cut.

    Notes
    -----
    A screen asks the network, which couples positions that the law does not: a declared pair that
    is no true edge may still be one of the network.
    """
    truth = {tuple(sorted(map(int, edge))) for edge in true_edges}
    declared = {tuple(sorted(map(int, edge))) for edge in edges}
    first, second = np.triu_indices(len(strength), k=1)
    values = strength[first, second]
    is_true = np.array(
        [pair in truth for pair in zip(first.tolist(), second.tolist(), strict=True)]
    )
    strongest = np.argsort(-values, kind="stable")[: len(truth)]
    return {
        "true": len(truth),
        "declared": len(declared),
        "found": len(declared & truth),
        "ranked": int((is_true & (values > 0))[strongest].sum()),
        "weakest_edge": float(values[is_true].min(initial=np.inf)),
        "strongest_other": float(values[~is_true].max(initial=0.0)),
    }


@dataclass(frozen=True, slots=True)
class Screen:
    """A screen with one estimator, a number of probes and a decision seed."""

    estimator: str
    probes: int
    seed: int

    @property
    def key(self) -> str:
        """The settings in one line."""
        return f"{self.estimator} probes={self.probes} seed={self.seed}"

    def found_in(self, oracle: cp.Oracle, true_edges: np.ndarray) -> dict[str, Any]:
        """Screen an oracle and count what was found."""
        first = min(self.probes, SoftSettings().first)
        settings = SoftSettings(probes=self.probes, first=first)
        run = cp.run.Run(oracle)
        found = estimate(run, cp.Streams.from_seed(self.seed).decisions, settings, self.estimator)
        return {
            **asdict(self),
            "evaluations": run.ledger.evaluations,
            **edges_found(found.strength, found.edges, true_edges),
        }


def screens(probes: Mapping[str, Iterable[int]], seeds: int) -> Iterator[Screen]:
    """Yield every estimator at every number of probes."""
    for estimator, counts in probes.items():
        for count in counts:
            for seed in range(seeds):
                yield Screen(estimator, count, seed)


def find_structure(oracle: cp.Oracle, probes: int, seed: int = 0) -> Any:
    """Return the structure that samplers are built from."""
    return cp.discover(oracle, cp.Streams.from_seed(seed), mode="soft", probes=probes)
