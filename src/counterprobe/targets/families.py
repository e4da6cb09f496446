"""Target families: the paper's four, its two special ones, and shapes that are harder than them.

A family fixes a shape, a weight and fields. Following the paper's appendix "Targets": the
vocabulary has 2,048 tokens in three classes, ``phi = +1, -1, 0``; an edge has the factor
``1 + w phi(x_i) phi(x_j)``; one master field vector per target draw is shared by prefixes across
sizes and families; labels are permuted at random. ``signs="mixed"`` flips half of the weights, and
``tables="random"`` draws general positive pair tables over any number of classes instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import real_numbers
from counterprobe.arrays import IntArray
from counterprobe.classes import TokenClasses
from counterprobe.graph import check_forest
from counterprobe.streams import keyed_generator
from counterprobe.targets import forests
from counterprobe.targets.hard_matching import hard_matching as hard_matching
from counterprobe.targets.hard_matching import hard_witness as hard_witness
from counterprobe.targets.law import ForestLaw

__all__ = [
    "FAMILIES",
    "binary_tree",
    "build",
    "caterpillar",
    "double_star",
    "from_edges",
    "from_file",
    "growing_stars",
    "hard_matching",
    "hard_witness",
    "matching",
    "path",
    "preferential_attachment",
    "random_forest",
    "random_recursive_tree",
    "star_degree",
    "two_type_forest",
    "two_type_path",
]

Signs = Literal["same", "mixed"]
Tables = Literal["rank-one", "random"]

VOCAB_SIZE = 2048
PHI = np.array([1.0, -1.0, 0.0])
# An edge list may imply this many positions; more only at so many for each of its edges.
MOST_UNSAID, POSITIONS_PER_EDGE = 1 << 20, 64


@dataclass(frozen=True, slots=True)
class Shape:
    """A family of hidden forests: edges before relabelling, and the default weight."""

    edges: Callable[[int, np.random.Generator], IntArray]
    weight: Callable[[int], float]
    summary: str


def star_degree(length: int) -> int:
    """Return the largest number of leaves of a growing star: ``max(16, ceil(sqrt N))``."""
    return max(16, int(np.ceil(np.sqrt(length))))


SHAPES: dict[str, Shape] = {
    "matching": Shape(lambda n, _: forests.matching(n), lambda n: 0.5, "disjoint pairs"),
    "path": Shape(lambda n, _: forests.path(n), lambda n: 0.25, "one path"),
    "binary-tree": Shape(
        lambda n, _: forests.binary_tree(n), lambda n: 1 / 6, "a complete binary tree"
    ),
    "growing-stars": Shape(
        lambda n, _: forests.stars(n, star_degree(n)),
        lambda n: 0.5 / star_degree(n),
        "stars of max(16, ceil(sqrt N)) leaves",
    ),
    "random-recursive-tree": Shape(
        forests.random_recursive_tree, lambda n: 0.25, "each newcomer joins a random position"
    ),
    "preferential-attachment": Shape(
        forests.preferential_attachment, lambda n: 0.15, "each newcomer joins by degree"
    ),
    "caterpillar": Shape(
        lambda n, _: forests.caterpillar(n), lambda n: 0.1, "a path of hubs with sqrt(N) leaves"
    ),
    "double-star": Shape(
        lambda n, _: forests.double_star(n),
        lambda n: min(0.9, 2 / np.sqrt(n)),
        "two adjacent hubs share all leaves",
    ),
    "random-forest": Shape(
        forests.random_forest, lambda n: 0.25, "a random recursive tree less a fifth of its edges"
    ),
}

FAMILIES: tuple[str, ...] = (*SHAPES, "two-type-path", "hard-matching")


def build(
    family: str,
    length: int,
    target_seed: int = 0,
    *,
    weight: float | None = None,
    signs: Signs = "same",
    classes: int | None = None,
    tables: Tables = "rank-one",
) -> ForestLaw:
    """Build a target of a family by name.

    Parameters
    ----------
    family : str
        One of ``FAMILIES``.
    length : int
        Number of positions N, at least 2.
    target_seed : int
        The target draw: fields, labels and random shapes.
    weight : float, optional
        Edge weight in place of the family's own.
    signs : {"same", "mixed"}
        Whether to flip the sign of half of the weights at random.
    classes : int, optional
        Number of classes, for random tables; 3 by default.
    tables : {"rank-one", "random"}
        The paper's edge factor, or random positive pair tables of strength ``weight``.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown family {family!r}; known families: {', '.join(FAMILIES)}")
    length = forests.check_length(length)
    if length < 2:
        raise ValueError(f"a target needs at least 2 positions, got n = {length}")
    if family in SHAPES:
        shape = SHAPES[family]
        edges = shape.edges(length, keyed_generator(target_seed, f"shape {family}"))
        return from_edges(
            length,
            edges,
            np.full(len(edges), shape.weight(length) if weight is None else weight),
            target_seed,
            name=family,
            signs=signs,
            classes=classes,
            tables=tables,
        )
    if weight is not None or signs != "same" or classes is not None or tables != "rank-one":
        raise ValueError(
            f"family {family!r} has a law of its own: weight, signs, classes and tables do not "
            "apply to it"
        )
    special = two_type_path if family == "two-type-path" else hard_matching
    return special(length, target_seed=target_seed)


def from_edges(
    length: int,
    edges: ArrayLike,
    weights: ArrayLike,
    target_seed: int = 0,
    *,
    name: str = "edges",
    signs: Signs = "same",
    classes: int | None = None,
    tables: Tables = "rank-one",
    relabel: bool = True,
) -> ForestLaw:
    """Build a target on a forest of your own, with the paper's fields.

    Parameters
    ----------
    length : int
    edges : array_like of int, shape (E, 2)
        A forest on ``0 .. N-1``.
    weights : array_like of float, shape (E,)
        In ``(-1, 1)``.
    target_seed : int
    name : str
    signs, classes, tables
        As in :func:`build`.
    relabel : bool
        Permute the labels at random, so that nothing can be read off positions.
    """
    length = forests.check_length(length)
    joined = check_forest(length, edges)  # before relabelling: errors name the caller's labels
    strength = real_numbers("weights", weights)
    if strength.shape != (len(joined),):
        raise ValueError(f"weights must have shape ({len(joined)},), got {strength.shape}")
    if not (np.abs(strength) < 1).all():
        worst = strength[np.argmax(~(np.abs(strength) < 1))]
        raise ValueError(f"weights must lie strictly between -1 and 1, got {worst}")
    if signs not in ("same", "mixed"):
        raise ValueError(f"signs must be 'same' or 'mixed', got {signs!r}")
    if tables not in ("rank-one", "random"):
        raise ValueError(f"tables must be 'rank-one' or 'random', got {tables!r}")
    if tables == "rank-one" and classes not in (None, 3):
        raise ValueError(
            f"rank-one tables have 3 classes, got {classes}; choose tables='random' for others"
        )
    if signs == "mixed":
        flips = keyed_generator(target_seed, "signs").permutation(len(strength)) % 2
        strength = np.where(flips == 1, -strength, strength)
    if tables == "rank-one":
        # 1 + w phi phi' for every edge; only distinct weights need a table of their own.
        field = keyed_generator(target_seed, "field").uniform(-1.0, 1.0, size=length)
        unary = np.stack([0.4 * np.exp(field), 0.4 * np.exp(-field), np.full(length, 0.2)], axis=1)
        unary /= unary.sum(axis=1, keepdims=True)
        distinct = np.unique(strength)
        outer = np.outer(PHI, PHI)
        pair = (
            1 + distinct[0] * outer if len(distinct) == 1 else 1 + strength[:, None, None] * outer
        )
    else:
        num_classes = 3 if classes is None else classes
        if not 2 <= num_classes <= VOCAB_SIZE:
            raise ValueError(f"classes must lie in 2..{VOCAB_SIZE}, got {num_classes}")
        draw = keyed_generator(target_seed, "random tables")
        unary = draw.uniform(0.5, 1.5, size=(length, num_classes))
        noise = draw.uniform(-1.0, 1.0, size=(len(joined), num_classes, num_classes))
        pair = 1 + strength[:, None, None] * noise
    num_classes = unary.shape[1]
    label = (
        keyed_generator(target_seed, "labels").permutation(length)
        if relabel
        else np.arange(length)
    )
    relabelled = np.empty_like(unary)
    relabelled[label] = unary
    token_class = np.minimum(np.arange(VOCAB_SIZE), num_classes - 1)
    return ForestLaw(
        relabelled,
        label[joined],
        pair,
        classes=TokenClasses.build(length, token_class),
        name=name,
    )


def from_file(
    file: str | Path, length: int | None = None, target_seed: int = 0, *, weight: float = 0.25
) -> ForestLaw:
    """Build a target from an edge list file, ``i j [w]`` a line; positions keep their labels."""
    edges, weights = forests.read_edge_list(file, weight)
    if length is None and len(edges) == 0:
        raise ValueError(
            f"{file} holds no edge, so the number of positions is not known; list edges as 'i j', "
            "or give the number of positions"
        )
    size = int(edges.max()) + 1 if length is None else length
    if length is None and size > max(MOST_UNSAID, POSITIONS_PER_EDGE * len(edges)):
        raise ValueError(
            f"{file} has {len(edges):,} edges and names position {size - 1:,}; give the number of "
            "positions if nearly all of them are to have no edge"
        )
    return from_edges(size, edges, weights, target_seed, name=Path(file).name, relabel=False)


def _named(family: str) -> Callable[..., ForestLaw]:
    def make(length: int, target_seed: int = 0, **options: object) -> ForestLaw:
        return build(family, length, target_seed, **options)  # type: ignore[arg-type]

    make.__name__ = family.replace("-", "_")
    make.__doc__ = (
        f"Build a target whose hidden forest is {SHAPES[family].summary}; options as in ``build``."
    )
    return make


matching = _named("matching")
path = _named("path")
binary_tree = _named("binary-tree")
growing_stars = _named("growing-stars")
random_recursive_tree = _named("random-recursive-tree")
preferential_attachment = _named("preferential-attachment")
caterpillar = _named("caterpillar")
double_star = _named("double-star")
random_forest = _named("random-forest")


def two_type_forest(
    length: int,
    edges: ArrayLike,
    *,
    vocab_size: int = 2048,
    rank_exponent: float = 1.5,
    name: str = "two-type forest",
) -> ForestLaw:
    """Put the two-type kernel on every edge of a forest: inside the paper's class.

    Proposition "A shared-class path with linear TC and DTC". Token ``a_1`` alone is type A, every
    other one type B. Adjacent positions are coupled through their types only, and every position
    has the same marginal.

    With ``p = 2 ** -rank_exponent`` the types have masses ``1 - p`` and ``p``, and the two ends of
    an edge have the joint type law ``[[1 - 3p/2, p/2], [p/2, p/2]]``.

    Parameters
    ----------
    length : int
    edges : array_like of int, shape (E, 2)
    vocab_size : int
        At least 3.
    rank_exponent : float
        The exponent s of the rank-frequency envelope, above 1.
    name : str
    """
    if vocab_size < 3:
        raise ValueError(f"vocab_size must be at least 3, got {vocab_size!r}")
    if rank_exponent <= 1:
        raise ValueError(f"rank_exponent must be above 1, got {rank_exponent!r}")
    p = 2.0**-rank_exponent
    mass = np.array([1 - p, p])
    joint = np.array([[1 - 1.5 * p, p / 2], [p / 2, p / 2]])
    token_class = np.minimum(np.arange(vocab_size), 1)
    within = np.full(vocab_size, p / (2 * (vocab_size - 2)))
    within[:2] = 1 - p, p / 2
    return ForestLaw(
        np.tile(mass, (length, 1)),
        edges,
        joint / np.outer(mass, mass),
        classes=TokenClasses.build(length, token_class, within=within),
        name=name,
    )


def two_type_path(
    length: int, target_seed: int = 0, *, vocab_size: int = 2048, rank_exponent: float = 1.5
) -> ForestLaw:
    """Put the two-type kernel on a path with randomly permuted labels."""
    length = forests.check_length(length)
    label = keyed_generator(target_seed, "labels").permutation(length)
    return two_type_forest(
        length,
        label[forests.path(length)],
        vocab_size=vocab_size,
        rank_exponent=rank_exponent,
        name="two-type-path",
    )
