"""What batches cost: the KL from what they draw to the law of a block, exactly.

A batch draws its positions from their own rows, given what was drawn before. By the chain rule the
KL of everything is a sum over batches: the expectation, over histories that the commits themselves
draw, of the KL from the product of the rows to the joint law of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attack_blocks import Array, Mixture
from attack_laws import Block
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

Batches = Sequence[NDArray[np.int64]]


def batch_nats(block: Block, batches: Batches) -> list[float]:
    """Return what every batch adds to the KL, in nats; one with a single position adds nothing.

    Infinite where something is drawn that the law rules out; zero after that.
    """
    axis = {int(position): k for k, position in enumerate(block.positions)}
    inside = [[axis[int(one)] for one in batch if int(one) in axis] for batch in batches]
    if all(len(axes) < 2 for axes in inside):
        return [0.0] * len(batches)
    content = block.content
    if isinstance(content, Mixture) and content.is_exchangeable:
        return _by_counts(content, [len(axes) for axes in inside])
    return _by_table(block.joint, inside)


def _by_table(table: Array, batches: list[list[int]]) -> list[float]:
    """Sum over the table of what was drawn so far: a batch adds what the KL grows by."""
    added = [0.0] * len(batches)
    drawn = known = np.ones((1,) * table.ndim)
    done: list[int] = []
    before = 0.0
    for k, axes in enumerate(batches):
        for one in axes:
            joint = _margin(table, [*done, one])
            drawn = drawn * np.divide(joint, known, out=np.zeros_like(joint), where=known > 0)
        done += axes
        known = _margin(table, done)
        if len(axes) > 1:
            if (drawn[known <= 0] > 0).any():
                added[k] = np.inf
                return added
            now = float(np.sum(xlogy(drawn, drawn) - xlogy(drawn, np.where(known > 0, known, 1))))
            added[k], before = max(0.0, now - before), now
    return added


def _margin(table: Array, axes: list[int]) -> Array:
    """Sum over all other axes, which stay with length one."""
    others = tuple(k for k in range(table.ndim) if k not in axes)
    summed: Array = table.sum(axis=others, keepdims=True)
    return summed


def _by_counts(mixture: Mixture, sizes: list[int]) -> list[float]:
    """Sum over how many positions show each class, which is all that counts.

    Of n positions, given counts h, d of each class are drawn with multinomial chance from the row
    r(h); what was drawn has the probability ``prod r(h)^d``, and ``P(h + d) / P(h)`` by the law,
    with P the probability of one sequence with these counts.
    """
    factor, added = mixture.factors[0], []
    base = mixture.ndim + 1
    place = base ** np.arange(factor.shape[1])
    before, chance = np.zeros((1, factor.shape[1]), dtype=np.int64), np.ones(1)
    for size in sizes:
        left = _products(mixture, before)
        rows = left @ factor / left.sum(axis=1, keepdims=True)
        new = _counts(size, factor.shape[1])
        log_drawn = np.log(rows) @ new.T
        ways = gammaln(size + 1) - gammaln(new + 1).sum(axis=1)
        weight = chance[:, None] * np.exp(log_drawn + ways)
        after = before[:, None, :] + new[None, :, :]
        whole = _products(mixture, after).sum(axis=2)
        cost = weight * (log_drawn - np.log(whole / left.sum(axis=1)[:, None]))
        added.append(max(0.0, float(cost.sum())) if size > 1 else 0.0)
        code, where = np.unique(after @ place, return_inverse=True)
        chance = np.bincount(where.ravel(), weight.ravel())
        before = code[:, None] // place % base
    return added


def _products(mixture: Mixture, counts: NDArray[np.int64]) -> Array:
    """Return what each product gives one sequence with these counts, shape ``(..., K)``."""
    with np.errstate(divide="ignore"):
        logs = np.log(mixture.factors[0])
    products: Array = mixture.weights * np.exp(counts @ logs.T)
    return products


def _counts(total: int, num_classes: int) -> NDArray[np.int64]:
    """Return every way to split a total into classes, shape ``(n, C)``."""
    if num_classes == 1:
        return np.array([[total]])
    return np.concatenate([
        np.insert(_counts(total - first, num_classes - 1), 0, first, axis=1)
        for first in range(total + 1)
    ])  # fmt: skip
