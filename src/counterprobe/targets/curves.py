"""The exact information curve of forests that have one in closed form: paths, and small trees.

For a random set S of j positions let ``D_j`` be the mean of ``sum_{i in S} H(X_i) - H(X_S)``;
then ``h_0 - h_j = D_{j+1} - D_j``. A set falls into one part per component, so D_j adds up:

- on a path the shown values are a Markov chain, and what a set loses is the sum of
  ``I(X_a; X_b)`` over neighbouring shown positions a, b: two positions at distance d are
  neighbours in S with chance ``j (j - 1) [N - j]_{d-1} / [N]_{d+1}``, where ``[n]_k`` is
  ``n (n - 1) .. (n - k + 1)``;
- a small component is enumerated: each of its sets of k out of m positions is the part that S
  shows with chance ``[j]_k [N - j]_{m-k} / [N]_m``.

The differences are taken by hand, so that nothing cancels. Elsewhere a hidden hub ties all of its
leaves together, and no closed form is known.
"""

from __future__ import annotations

import numpy as np
import scipy

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.graph import adjacency, components
from counterprobe.rows import DenseRows
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = ["forest_curve", "forest_table", "subset_deficits", "subset_entropies"]

# Less than this a pair is rounding, and so is everything farther along a path: by data processing
# no pair farther apart shares more, so that h_j is off by no more than twice as much.
NEGLIGIBLE = 1e-15
# Cells that enumeration may visit, and pairs of a size and a distance that sums may run over.
MAX_CELLS = 1 << 25
MAX_PAIRS = 1 << 27


def forest_curve(law: ForestLaw) -> FloatArray | None:
    """Return ``h_0 .. h_{N-1}`` exactly, or None where no closed form is at hand.

    Parameters
    ----------
    law : ForestLaw
        Each component a path, or a tree small enough to enumerate.
    """
    paths, trees = _split(law)
    cells = sum((2 * law.num_classes) ** len(tree) for tree in trees)
    if cells > MAX_CELLS:
        return None
    along = _path_information(law, paths)
    if along is None:
        return None
    drop = _drop_on_paths(law.length, along)
    for size, deficits in _tree_deficits(law, trees).items():
        drop += _drop_on_trees(law.length, size, deficits)
    first = float(law.marginals().entropy().mean())
    return np.minimum.accumulate(first - drop)  # a flat stretch may rise by a rounding


def _split(law: ForestLaw) -> tuple[list[IntArray], list[IntArray]]:
    """Return the components of two or more positions: paths from end to end, and other trees."""
    rows = adjacency(law.length, law.edges)
    degree = np.diff(rows.start)
    label = components(law.length, law.edges)
    by_label = np.argsort(label, kind="stable")
    paths, trees = [], []
    for vertices in np.split(by_label, np.flatnonzero(np.diff(label[by_label])) + 1):
        if len(vertices) < 2:
            continue
        if degree[vertices].max() > 2:
            trees.append(vertices)
            continue
        walk = [int(vertices[degree[vertices] == 1][0])]
        before = -1
        while len(walk) < len(vertices):
            here = walk[-1]
            ahead = rows.neighbour[rows.start[here] : rows.start[here + 1]]
            walk.append(int(ahead[ahead != before][0]))
            before = here
        paths.append(np.array(walk))
    return paths, trees


# ----- Paths --------------------------------------------------------------------------------


def _path_information(law: ForestLaw, paths: list[IntArray]) -> FloatArray | None:
    """Return the sum of ``I(X_a; X_b)`` over pairs at each distance, from 1 on."""
    if not paths:
        return np.zeros(0)
    kernels, ends = _kernels(law, paths)
    marginal = law.class_marginals
    steps, start = kernels, np.concatenate([path[:-1] for path in paths])
    # Steps of one path are consecutive; a pair at distance d + 1 needs the step d ahead of it.
    alive = np.arange(len(start))
    reach = kernels
    found: list[float] = []
    while len(alive):
        distance = len(found) + 1
        if distance * law.length > MAX_PAIRS:
            return None
        first = marginal[start[alive]]
        joint = first[:, :, None] * reach
        product = first[:, :, None] * marginal[_ahead(paths, alive, distance)][:, None, :]
        information = scipy.special.kl_div(joint, product).sum(axis=(1, 2))
        found.append(float(information.sum()))
        if information.max() < NEGLIGIBLE:
            break
        kept = alive + distance < ends[alive]
        alive, reach = alive[kept], reach[kept] @ steps[alive[kept] + distance]
    return np.array(found)


def _kernels(law: ForestLaw, paths: list[IntArray]) -> tuple[FloatArray, IntArray]:
    """Return the class kernel of every step along every path, and where its path ends."""
    edge_of = {tuple(sorted(edge)): e for e, edge in enumerate(law.edges.tolist())}
    kernels: list[FloatArray] = []
    ends: list[int] = []
    for path in paths:
        here = len(kernels)
        for a, b in zip(path[:-1].tolist(), path[1:].tolist(), strict=True):
            e = edge_of[min(a, b), max(a, b)]
            pair = law.pair_marginals[e]
            joint = pair if law.edges[e, 0] == a else pair.T
            kernels.append(joint / joint.sum(axis=1, keepdims=True))
        ends += [here + len(path) - 1] * (len(path) - 1)
    return np.array(kernels), np.array(ends)


def _ahead(paths: list[IntArray], steps: IntArray, distance: int) -> IntArray:
    """Return the position that lies some distance after the start of each step."""
    last = np.concatenate([path[1:] for path in paths])
    ahead: IntArray = last[steps + distance - 1]
    return ahead


def _drop_on_paths(length: int, along: FloatArray) -> FloatArray:
    """Sum ``I(d) (p_{j+1}(d) - p_j(d))`` over distances, for every j."""
    j = np.arange(length, dtype=np.float64)
    drop = np.zeros(length)
    if length < 2:
        return drop
    # [N - j - 1]_{d-2} / [N]_{d+1} from one distance to the next; at d = 1 the first is 1/(N - j).
    ratio = 1.0 / ((length - j) * length * (length - 1))
    for k, information in enumerate(along):
        d = k + 1
        drop += information * j * ratio * (2 * (length - j) - (j + 1) * (d - 1))
        factor = (length - j) if d == 1 else np.maximum(length - j - d + 1, 0)
        ratio = ratio * factor / max(length - d - 1, 1)
    return drop


# ----- Small trees --------------------------------------------------------------------------


def _tree_deficits(law: ForestLaw, trees: list[IntArray]) -> dict[int, FloatArray]:
    """Return, for each size of component, the deficits of its sets of k positions, summed."""
    found: dict[int, FloatArray] = {}
    for vertices in trees:
        deficits = subset_deficits(forest_table(_restricted(law, vertices)))
        sizes = [bits.bit_count() for bits in range(len(deficits))]
        size = len(vertices)
        found[size] = found.get(size, np.zeros(size + 1)) + np.bincount(sizes, weights=deficits)
    return found


def _restricted(law: ForestLaw, vertices: IntArray) -> ForestLaw:
    """Return the law of one whole component, over classes."""
    number = np.full(law.length, -1)
    number[vertices] = np.arange(len(vertices))
    inside = number[law.edges[:, 0]] >= 0
    return ForestLaw(law.unary[vertices], number[law.edges[inside]], law.pair[inside])


def _drop_on_trees(length: int, size: int, deficits: FloatArray) -> FloatArray:
    """Sum ``D(k) (c_{j+1}(k) - c_j(k))`` with ``c_j(k) = [j]_k [N - j]_{m-k} / [N]_m``.

    That difference is ``[j]_{k-1} [N - j - 1]_{m-k-1} (k (N - j) - (j + 1)(m - k)) / [N]_m``.
    """
    j = np.arange(length, dtype=np.float64)
    drop = np.zeros(length)
    for k in range(2, size + 1):
        change = k * (length - j) - (j + 1) * (size - k) if k < size else np.full(length, float(k))
        for step in range(k - 1):
            change *= np.maximum(j - step, 0)
        for step in range(size - k - 1):
            change *= np.maximum(length - j - 1 - step, 0)
        drop += deficits[k] * change / np.prod(length - np.arange(size, dtype=np.float64))
    return drop


MAX_TABLE_POSITIONS = 16


def forest_table(law: ForestLaw) -> TableLaw:
    """Return the joint table of a small forest law over its classes, shape ``(C,) * N``."""
    by_class = ForestLaw(law.unary, law.edges, law.pair, name=law.name)
    shape = (law.num_classes,) * law.length
    sequences = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)
    return TableLaw(np.exp(by_class.log_prob(sequences)).reshape(shape), name=law.name)


def subset_entropies(law: TableLaw) -> FloatArray:
    """Return ``H(X_S)`` for every set S of at most 16 positions, indexed by its bits."""
    if law.length > MAX_TABLE_POSITIONS:
        raise ValueError(
            f"subset entropies need at most {MAX_TABLE_POSITIONS} positions, got {law.length}"
        )
    entropies = np.zeros(1 << law.length)
    for bits in range(1, 1 << law.length):
        out = tuple(i for i in range(law.length) if not bits >> i & 1)
        entropies[bits] = DenseRows(law.table.sum(axis=out).reshape(1, -1)).entropy()[0]
    return entropies


def subset_deficits(law: TableLaw) -> FloatArray:
    """Return the total correlation of every set: ``sum_{i in S} H(X_i) - H(X_S)``, by its bits."""
    entropies = subset_entropies(law)
    bits = np.arange(len(entropies))
    alone = sum((bits >> i & 1) * entropies[1 << i] for i in range(law.length))
    deficits: FloatArray = alone - entropies
    return deficits
