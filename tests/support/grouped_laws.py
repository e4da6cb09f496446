"""Laws made of independent groups of positions, small enough to price any plan by enumeration."""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import counterprobe as cp

Table = NDArray[np.float64]


def parity(size: int, error: float = 0.05) -> Table:
    """Positions of two values whose sum is even, up to an error; any fewer are independent."""
    sums = np.indices((2,) * size).sum(axis=0) % 2
    return np.where(sums == 0, 1 - error, error) / 2 ** (size - 1)


def chain(size: int, error: float = 0.2) -> Table:
    """Positions of two values, each like the one before up to an error."""
    values = np.indices((2,) * size)
    same = values[1:] == values[:-1]
    return np.where(same, 1 - error, error).prod(axis=0) / 2


def gated(num_pairs: int, chance: float, error: float = 0.05) -> Table:
    """Pairs that are alike, up to an error, if the first position is 1; independent otherwise."""
    closed, opened = (chain(2, 0.5), 1 - chance), (chain(2, error), chance)
    tables = []
    for pair, weight in (closed, opened):
        joint = np.array(weight)
        for _ in range(num_pairs):
            joint = np.multiply.outer(joint, pair)
        tables.append(joint)
    return np.stack(tables)


def weak_pairs(size: int, scale: float, seed: int) -> Table:
    """Positions of two values, each pair of them coupled a little."""
    draw = np.random.default_rng(seed)
    couplings = np.triu(draw.normal(0, scale, (size, size)), 1)
    field = draw.normal(0, 0.3, size)
    signs = 2 * np.indices((2,) * size).reshape(size, -1) - 1
    weights = np.exp(np.einsum("is,ij,js->s", signs, couplings, signs) + field @ signs)
    table: Table = (weights / weights.sum()).reshape((2,) * size)
    return table


class GroupedLaw:
    """Independent groups, shuffled over the sequence; an oracle of its own.

    Parameters
    ----------
    tables : sequence of ndarray
        The law of each group, an axis a position.
    seed : int, optional
        Of the shuffle; groups follow each other without.
    """

    name = "grouped"
    row_error = 0.0
    trusted = False
    vocab_size = 2

    def __init__(self, tables: Sequence[Table], seed: int | None = None) -> None:
        self.tables = list(tables)
        self.length = sum(table.ndim for table in tables)
        order = np.arange(self.length)
        if seed is not None:
            np.random.default_rng(seed).shuffle(order)
        cuts = np.cumsum([table.ndim for table in tables])[:-1]
        self.groups = np.split(order, cuts)
        self._place = {
            int(p): (g, a) for g, group in enumerate(self.groups) for a, p in enumerate(group)
        }
        self._rows: dict[tuple[int, ...], Table] = {}

    def rows(self, states, readouts) -> cp.rows.DenseRows:
        found = []
        for k, position in zip(readouts.state_index, readouts.position, strict=True):
            g, axis = self._place[int(position)]
            shown = states[k][self.groups[g]].tolist()
            key = (g, axis, *shown)
            if key not in self._rows:
                known = [token if token >= 0 else slice(None) for token in shown]
                part = self.tables[g][tuple(known)]
                mine = sum(token < 0 for token in shown[:axis])
                part = part.sum(axis=tuple(a for a in range(part.ndim) if a != mine))
                self._rows[key] = part / part.sum()
            found.append(self._rows[key])
        return cp.rows.DenseRows(np.array(found))

    def price(self, batches: Sequence[Sequence[int]]) -> float:
        """Return the expected batch KL of a plan, group by group, over all histories."""
        return sum(
            _price(table, [[axis for axis, p in enumerate(group) if p in set(b)] for b in batches])
            for table, group in zip(
                self.tables, [g.tolist() for g in self.groups], strict=True
            )
        )  # fmt: skip


def _price(table: Table, batches: list[list[int]]) -> float:
    """Batches of axes; histories are drawn as the plan draws them."""
    total = 0.0
    histories: dict[tuple[tuple[int, int], ...], float] = {(): 1.0}
    for batch in filter(None, batches):
        following: dict[tuple[tuple[int, int], ...], float] = {}
        for history, weight in histories.items():
            known = dict(history)
            part = table[tuple(known.get(axis, slice(None)) for axis in range(table.ndim))]
            left = [axis for axis in range(table.ndim) if axis not in known]
            joint = part.sum(axis=tuple(k for k, axis in enumerate(left) if axis not in batch))
            joint = joint / joint.sum()
            rows = [joint.sum(axis=tuple(set(range(len(batch))) - {k})) for k in range(len(batch))]
            for values in itertools.product(range(2), repeat=len(batch)):
                drawn = float(np.prod([row[v] for row, v in zip(rows, values, strict=True)]))
                if drawn == 0:
                    continue
                total += weight * drawn * float(np.log(drawn / joint[values]))
                after = history + tuple(zip(batch, values, strict=True))
                following[after] = following.get(after, 0.0) + weight * drawn
        histories = following
    return total
