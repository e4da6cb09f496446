"""The whole law, nothing revealed: its normaliser, joint draws and pair marginals."""

from __future__ import annotations

from math import log

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.targets.inference.arrays import ForestArrays, Scratch
from counterprobe.targets.inference.steps import RESCALE_EVERY, up_step

_LOG_2 = log(2.0)


@kernel
def upward_pass(forest: ForestArrays, scratch: Scratch) -> float:
    """Send every message towards the roots, nothing revealed; return log Z of the scaled law."""
    parent, child_start = forest.parent, forest.child_start
    for a in range(len(scratch.cls)):
        scratch.cls[a] = -1
    log_partition = 0.0
    for a in range(len(parent) - 1, -1, -1):
        scale = up_step(forest, scratch, a, parent[a] >= 0)
        log_partition += log(scale)
        if child_start[a + 1] - child_start[a] >= RESCALE_EVERY:
            log_partition += scratch.exponent[0] * _LOG_2
        if parent[a] < 0:
            total = 0.0
            for c in range(len(forest.class_range)):
                total += scratch.belief[a, c]
            log_partition += log(total)
    return log_partition


@kernel
def draw_classes(
    forest: ForestArrays,
    belief: FloatArray,
    uniforms: FloatArray,
    weight: FloatArray,
    out: IntArray,
) -> None:
    """Draw class sequences (count, N) root to leaf from upward beliefs; ``weight`` is scratch."""
    length, num_classes = forest.unary.shape
    for s in range(uniforms.shape[0]):
        for a in range(length):
            parent = forest.parent[a]
            total = 0.0
            for c in range(num_classes):
                weight[c] = belief[a, c]
                if parent >= 0:
                    above = out[s, forest.position[parent]]
                    weight[c] *= forest.tables[forest.table_of[a], above, c]
                total += weight[c]
            target = uniforms[s, a] * total
            chosen = num_classes - 1
            for c in range(num_classes - 1):
                target -= weight[c]
                if target < 0.0:
                    chosen = c
                    break
            out[s, forest.position[a]] = chosen


@kernel
def pair_marginals(
    forest: ForestArrays, belief: FloatArray, rows: FloatArray, out: FloatArray
) -> None:
    """Joint law of (parent, child) at every non-root vertex, from upward beliefs and rows."""
    length, num_classes = forest.unary.shape
    for a in range(length):
        parent = forest.parent[a]
        if parent < 0:
            continue
        t = forest.table_of[a]
        for p in range(num_classes):
            total = 0.0
            for c in range(num_classes):
                out[a, p, c] = forest.tables[t, p, c] * belief[a, c]
                total += out[a, p, c]
            for c in range(num_classes):
                out[a, p, c] *= rows[parent, p] / total
