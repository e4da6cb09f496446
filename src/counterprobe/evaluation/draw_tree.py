"""The exact output law of a sampler that commits candidates, by walking the tree of its draws.

``exact_output_law`` forces commits to a sequence, which needs rules that draw only what they
commit. Where candidates are drawn and some thrown away, every possible vector of draws is followed
instead, with its probability. That is dear, a few positions over a few tokens, but it needs
nothing from the rule except that its decisions follow from the seed and what it has seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Oracle, as_oracle
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Right
from counterprobe.run.results import StopReason
from counterprobe.run.unmasking import Unmasking
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = ["draw_tree_law"]

Draws = tuple[tuple[int, ...], ...]

MAX_REPLAYS = 1 << 16


class _MoreDraws(Exception):
    """The script of draws ended: here are the rows of the next one."""

    def __init__(self, masses: FloatArray) -> None:
        super().__init__()
        self.masses = masses


class _ScriptedDraw:
    """Draws what is given beforehand."""

    def __init__(self, draws: Draws) -> None:
        self._draws: Iterator[tuple[int, ...]] = iter(draws)

    def __call__(self, state: StateArray, positions: IntArray, rows: Rows, index: int) -> IntArray:
        drawn = next(self._draws, None)
        if drawn is None:
            raise _MoreDraws(np.asarray(to_numpy(rows.dense()), dtype=np.float64))
        return np.array(drawn, dtype=np.int64)


def draw_tree_law(
    law: ForestLaw | TableLaw,
    sampler: Sampler,
    *,
    oracle: Oracle | None = None,
    decision_seed: int = 0,
) -> FloatArray | None:
    """Return the probability of every output, shape ``(V,) * N``; None when infeasible.

    Parameters
    ----------
    law : ForestLaw or TableLaw
        Small: the draws of a run may have at most 2^16 joint values.
    sampler : Sampler
        Any whose only commit randomness is what it draws from rows.
    oracle : Oracle, optional
        ``law.oracle()`` by default.
    decision_seed : int
    """
    if sampler.rights & (Right.VERIFY | Right.REMASK):
        raise ValueError(f"sampler {sampler.name!r} rejects or masks again what it drew")
    asked = as_oracle(oracle or law.oracle())
    output = np.zeros((law.vocab_size,) * law.length)
    waiting: list[tuple[Draws, float]] = [((), 1.0)]
    replays = 0
    while waiting:
        draws, weight = waiting.pop()
        replays += 1
        if replays > MAX_REPLAYS:
            raise ValueError(
                f"sampler {sampler.name!r} has more than {MAX_REPLAYS} ways to draw on "
                f"{law!r}; choose a smaller law"
            )
        try:
            run = Unmasking(asked.declaring(trusted=True), draw=_ScriptedDraw(draws))
            result = sampler(run, Streams(decision_seed, 0))
        except _MoreDraws as more:
            tokens = [np.flatnonzero(row).tolist() for row in more.masses]
            for values in itertools.product(*tokens):
                chance = float(np.prod(more.masses[np.arange(len(values)), list(values)]))
                waiting.append(((*draws, values), weight * chance))
            continue
        if result.stop is not StopReason.COMPLETED:
            return None
        output[tuple(result.tokens)] += weight  # type: ignore[arg-type]
    return output
