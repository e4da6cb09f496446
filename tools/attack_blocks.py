"""Blocks that an attack is made of: a few positions with a joint law that can be enumerated.

Most are small enough for a table of all tokens. Gates and topics hide the better the more
positions they have, so they are mixtures of a few products, over *classes* of tokens that act
alike: the KL between two laws that share the law within classes is that of the classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Draw = np.random.Generator
# A table, and the positions of its block that are its axes.
Factor = tuple[tuple[int, ...], Array]

# Numbers in a table with all its margins, (V + 1)^m: eight megabytes.
MOST_CELLS = 1 << 20
# Numbers in the table of a gate's classes, which is made only to be judged by.
MOST_JOINT = 600_000
MOST_GATES, MOST_ALIKE = 14, 28


@dataclass(frozen=True)
class Mixture:
    """A weighted sum of product laws over classes of tokens.

    Attributes
    ----------
    weights : ndarray of float, shape (K,)
        They sum to one; some may be negative.
    factors : list of ndarray of float, each of shape (K, C_i)
        The law of each position's class in each of the products.
    classes : ndarray of int, shape (m, V)
        The class of each token.
    share : ndarray of float, shape (m, V)
        The probability of a token within its class.
    is_exchangeable : bool
        Whether all positions have the same factor, so that only the number of each class counts.
    """

    weights: Array
    factors: list[Array]
    classes: NDArray[np.int64]
    share: Array
    is_exchangeable: bool = False

    @property
    def ndim(self) -> int:
        """Number of positions."""
        return len(self.factors)

    def joint(self) -> Array:
        """Return the joint table of the classes."""
        whole = np.zeros([one.shape[1] for one in self.factors])
        for k, weight in enumerate(self.weights):
            part = np.array(weight)
            for one in self.factors:
                part = np.multiply.outer(part, one[k])
            whole += part
        return whole


# ----- Factors ------------------------------------------------------------------------------


def most_positions(vocab_size: int) -> int:
    """Return how many positions a table of tokens may have."""
    return int(np.log(MOST_CELLS) / np.log(vocab_size + 1) + 1e-9)


def product(factors: list[Factor], size: int) -> Array:
    """Multiply factors, each with the positions that are its axes, and normalise."""
    table = np.ones((len(factors[0][1]),) * size)
    for axes, factor in factors:
        shape = [len(factor) if k in axes else 1 for k in range(size)]
        table *= factor.transpose(np.argsort(axes)).reshape(shape)
    normalised: Array = table / table.sum()
    return normalised


def margin(draw: Draw, vocab_size: int) -> Array:
    """Draw a law of one position, uniform at times."""
    weights = np.exp(draw.normal(size=vocab_size) * (draw.random() < 0.7))
    one: Array = weights / weights.sum()
    return one


def margins(draw: Draw, vocab_size: int, size: int) -> list[Factor]:
    """Draw a factor for each position."""
    return [((k,), margin(draw, vocab_size)) for k in range(size)]


def pair(draw: Draw, vocab_size: int, strength: float) -> Array:
    """Draw a pair table whose logs have a standard deviation."""
    table: Array = np.exp(strength * draw.normal(size=(vocab_size, vocab_size)))
    return table


def pairwise(
    draw: Draw, vocab_size: int, size: int, edges: list[tuple[int, int]], strength: float
) -> Array:
    """Draw a law of these edges, with random tables."""
    tables = [(edge, pair(draw, vocab_size, strength)) for edge in edges]
    return product([*margins(draw, vocab_size, size), *tables], size)


def tree_edges(draw: Draw, size: int) -> list[tuple[int, int]]:
    """Draw a path, a star or a random recursive tree."""
    shape = draw.integers(3)
    parents = [k - 1 if shape == 0 else 0 if shape == 1 else int(draw.integers(k))
               for k in range(1, size)]  # fmt: skip
    return list(zip(parents, range(1, size), strict=True))


# ----- Blocks -------------------------------------------------------------------------------


def forest(draw: Draw, vocab_size: int) -> Array:
    """Draw a tree with random tables."""
    size = int(draw.integers(2, most_positions(vocab_size) + 1))
    return pairwise(draw, vocab_size, size, tree_edges(draw, size), draw.uniform(0.3, 2.0))


def filler(draw: Draw, vocab_size: int) -> Array:
    """Draw one position, or a few that hardly depend on each other."""
    size = int(draw.choice([1, 1, 1, 2, 3]))
    return pairwise(draw, vocab_size, size, tree_edges(draw, size), 10 ** draw.uniform(-4, -2))


def loop(draw: Draw, vocab_size: int) -> Array:
    """Draw a cycle of three to six positions."""
    size = int(draw.integers(3, 7))
    edges = [(k, (k + 1) % size) for k in range(size)]
    return pairwise(draw, vocab_size, size, edges, draw.uniform(0.3, 1.5))


def gate(draw: Draw, vocab_size: int) -> Mixture:
    """Draw pairs that depend on each other only while gates all show their common tokens.

    With p the chance that all do, this is the closed law of gates and pairs, plus p times what
    open gates have with pairs that agree, less p times the same with pairs that do not.
    """
    num_pairs = int(draw.integers(1, 3))
    room = int(np.log2(MOST_JOINT / vocab_size ** (2 * num_pairs)))
    num_gates = int(draw.integers(1, min(room, MOST_GATES) + 1))
    common_mass = float(draw.uniform(0.9, 0.99))
    agreeing = np.exp(float(draw.uniform(1.0, 4.0)) * np.eye(vocab_size))
    agreeing = agreeing[draw.permutation(vocab_size)] * margin(draw, vocab_size)[:, None]
    agreeing /= agreeing.sum()
    first, second = agreeing.sum(axis=1), agreeing.sum(axis=0)
    if draw.random() < 0.25:  # the margins of the pairs then tell of the gates
        closed = margin(draw, vocab_size), margin(draw, vocab_size)
    else:
        closed = first, second
    # One product for each value of the first ends of all pairs, beside the two of closed pairs.
    values = np.indices((vocab_size,) * num_pairs).reshape(num_pairs, -1)
    count = values.shape[1]
    opened = np.array([0.0, 1.0])
    gates = np.stack([np.array([1 - common_mass, common_mass]), *[opened] * (count + 1)])
    factors = [gates] * num_gates
    for one in values:
        ends = np.eye(vocab_size)[one], (agreeing / first[:, None])[one]
        factors += [
            np.concatenate([shut[None, :], shut[None, :], end])
            for shut, end in zip(closed, ends, strict=True)
        ]
    chance = common_mass**num_gates
    weights = np.concatenate([[1.0, -chance], chance * first[values].prod(axis=0)])
    size = len(factors)
    classes = np.tile(np.arange(vocab_size), (size, 1))
    share = np.ones((size, vocab_size))
    for k in range(num_gates):
        common = int(draw.integers(vocab_size))
        classes[k] = np.arange(vocab_size) == common
        share[k] = _within(draw, classes[k])
    return Mixture(weights, factors, classes, share)


def topic(draw: Draw, vocab_size: int) -> Mixture:
    """Draw positions that show a hidden topic's token, but for sequences without a topic."""
    # Three topics at most: what is judged by has a number for every count of every class.
    num_topics = int(draw.integers(2, min(vocab_size, 3) + 1))
    num_classes = min(vocab_size, num_topics + 1)
    size = int(draw.integers(3, MOST_ALIKE + 1))
    share_of_topics = float(draw.uniform(0.5, 0.99))
    weights = margin(draw, num_topics)
    miss = 10 ** draw.uniform(-8, -2)
    is_topic = np.eye(num_topics, num_classes, dtype=np.bool_)
    rest = np.where(is_topic, 0.0, margin(draw, num_classes))
    shown = np.where(is_topic, 1 - miss, miss * rest / rest.sum(axis=1, keepdims=True))
    alone = weights @ shown  # of every position by itself, so that all masks tell nothing
    if draw.random() < 0.3:
        alone = margin(draw, num_classes)
    classes = np.stack([
        np.minimum(draw.permutation(vocab_size), num_classes - 1) for _ in range(size)
    ])  # fmt: skip
    return Mixture(
        np.append(share_of_topics * weights, 1 - share_of_topics),
        [np.concatenate([shown, alone[None, :]])] * size,
        classes,
        np.stack([_within(draw, one) for one in classes]),
        is_exchangeable=True,
    )


def _within(draw: Draw, classes: NDArray[np.int64]) -> Array:
    """Draw the law of the tokens within each class."""
    weights = margin(draw, len(classes))
    share: Array = weights / np.bincount(classes, weights)[classes]
    return share


def parity(draw: Draw, vocab_size: int) -> Array:
    """Draw a soft exclusive or of three to eight positions, of the class of each token."""
    size = int(draw.integers(3, min(8, most_positions(vocab_size)) + 1))
    softness = float(draw.choice([0.3, 0.6, 0.9, 0.99]))
    sign = np.where(np.arange(vocab_size) % 2, -1.0, 1.0)
    is_even = draw.random() < 0.7  # then nothing shows until all but one are known
    whole = np.ones(())
    factors: list[Factor] = []
    for k in range(size):
        whole = np.multiply.outer(whole, sign)
        one = margin(draw, vocab_size)
        if is_even:
            one = np.where(sign > 0, one / one[sign > 0].sum(), one / one[sign < 0].sum()) / 2
        factors.append(((k,), one))
    table = product(factors, size) * (1 + softness * whole)
    normalised: Array = table / table.sum()
    return normalised


def rare(draw: Draw, vocab_size: int) -> Array:
    """Draw a tree whose edges act through one token of small mass at one end."""
    size = int(draw.integers(2, 5))
    rarest = draw.integers(vocab_size, size=size)
    factors: list[Factor] = []
    for k in range(size):
        one = np.where(np.arange(vocab_size) == rarest[k], 0.0, margin(draw, vocab_size))
        mass = 10 ** draw.uniform(-3, -2)
        one *= (1 - mass) / one.sum()
        one[rarest[k]] = mass
        factors.append(((k,), one))
    for i, j in tree_edges(draw, size):
        acts = np.ones((vocab_size, vocab_size))
        drawn = np.exp(float(draw.uniform(1.0, 4.0)) * draw.normal(size=vocab_size))
        if draw.random() < 0.5:
            acts[rarest[i]] = drawn / drawn.max()
        else:
            acts[:, rarest[j]] = drawn / drawn.max()
        factors.append(((i, j), acts))
    return product(factors, size)


def constraint(draw: Draw, vocab_size: int) -> Array:
    """Draw a tree with tokens that a position lacks, or pairs of tokens that never meet."""
    size = int(draw.integers(2, min(6, most_positions(vocab_size)) + 1))
    factors = margins(draw, vocab_size, size)
    if vocab_size > 2:
        for _, one in factors:
            if draw.random() < 0.4:
                one[int(draw.integers(vocab_size))] = 0.0
    for edge in tree_edges(draw, size):
        table = pair(draw, vocab_size, 1.0)
        if draw.random() < 0.5:
            where = np.arange(vocab_size), draw.permutation(vocab_size)
            table[where] *= draw.random(vocab_size) < 0.5
        factors.append((edge, table))
    with np.errstate(invalid="ignore"):
        table = product(factors, size)
    # Zeros may leave nothing at all.
    return table if np.isfinite(table).all() else constraint(draw, vocab_size)


BLOCKS: dict[str, Callable[[Draw, int], Array | Mixture]] = {
    "forest": forest, "loop": loop, "rare": rare, "gate": gate, "topic": topic,
    "parity": parity, "constraint": constraint, "filler": filler,
}  # fmt: skip
