"""Small laws whose output laws ``verify`` can compute in full, and what was taken of them.

A shape is a forest under the two-type kernel; a family is any of the library's. Theory mode needs
edges that it can resolve, so a star gets as many leaves as the accuracy allows, which the instance
says; a hub insists on leaves enough to be peeled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterprobe.errors import Infeasible
from counterprobe.targets import families, forests
from counterprobe.targets.class_checker import ClassConstants, check_class
from counterprobe.targets.families import two_type_forest
from counterprobe.targets.law import ForestLaw
from counterprobe.theory.parameters import threshold_floor

__all__ = ["HUB_EPSILON", "HUB_VOCAB", "SHAPES", "Instance", "family_instance", "shape_instance"]

SHAPES = ("path", "star", "hub", "isolated")
# Seven leaves move a hub's row by 0.04 at least; these resolve that with some room.
MOST_LEAVES = 7
HUB_EPSILON, HUB_VOCAB = 0.02, 256
# Of a tail tolerance only what is strictly below signal - 4 row_error keeps edges resolvable.
JUST_BELOW = 0.999


@dataclass(frozen=True, slots=True)
class Instance:
    """A small law, and what is known about it.

    Attributes
    ----------
    law : ForestLaw
    constants : ClassConstants
    tail_tolerance : float
        Leaves its edges resolvable, where anything does.
    note : str
        What was taken in place of what was asked; empty if it is the same.
    """

    law: ForestLaw
    constants: ClassConstants
    tail_tolerance: float
    note: str = ""


def shape_instance(shape: str, n: int, vocab: int, s: float, row_error: float) -> Instance:
    """Build a shape's law and choose a tail tolerance that leaves its edges resolvable."""
    if shape not in SHAPES:
        raise ValueError(f"unknown shape {shape!r}; known shapes: {', '.join(SHAPES)}")
    floor = threshold_floor(row_error, vocab)
    if floor > 1 or vocab < 3:
        raise Infeasible(
            f"the threshold floor 4 max(row_error, 1/V) = {floor:.4g} exceeds 1 at V = {vocab}; "
            "V must be at least 4"
        )
    for name, edges in _candidates(shape, n):
        law = two_type_forest(n, edges, vocab_size=vocab, rank_exponent=s, name=f"two-type {name}")
        constants = check_class(law, rank_exponent=s)
        tail = JUST_BELOW * (constants.edge_signal - 4 * row_error)
        if tail >= floor:
            return Instance(law, constants, min(tail, 1.0), _note(shape, len(edges), vocab))
    raise Infeasible(
        f"the law's edge signal {constants.edge_signal:.4g} leaves no tail tolerance above the "
        f"floor {floor:.4g} once 4 row_error = {4 * row_error:.4g} is taken off; lower epsilon or "
        "raise V"
    )


def family_instance(
    family: str, n: int, s: float, row_error: float, *, needs_theory: bool
) -> Instance:
    """Build a family's law; only theory mode needs its edges to be resolvable."""
    law = families.build(family, n, 196)
    constants = check_class(law, rank_exponent=s)
    signal = constants.edge_signal
    tail = JUST_BELOW * (signal - 4 * row_error)
    if tail < threshold_floor(row_error, law.vocab_size):
        if needs_theory:
            raise Infeasible(
                f"{family} at N = {n} has edge signal {signal:.4g}, too small for this accuracy: "
                f"4 row_error = {4 * row_error:.4g} leaves no tail tolerance; lower epsilon"
            )
        tail = signal / 2
    return Instance(law, constants, min(tail, 1.0))


def _candidates(shape: str, n: int) -> list[tuple[str, NDArray[np.int64]]]:
    """Forests of a shape with their names, the preferred one first."""
    if shape == "path":
        return [("path", forests.path(n))]
    if shape == "isolated":
        return [("isolated", np.empty((0, 2), dtype=np.int64))]
    fewest = 2 if shape == "star" else MOST_LEAVES
    return [
        (f"{shape} of {k} leaves", np.array([[0, leaf] for leaf in range(1, k + 1)]))
        for k in range(MOST_LEAVES, fewest - 1, -1)
    ]


def _note(shape: str, leaves: int, vocab: int) -> str:
    """Say what became of a star."""
    if shape != "star" or leaves == MOST_LEAVES:
        return ""
    return (
        f"The star has {leaves} leaves and not {MOST_LEAVES}: with more, its edges respond by "
        f"less than this accuracy and V = {vocab} resolve."
    )
