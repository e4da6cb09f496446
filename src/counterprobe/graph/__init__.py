"""Which vertices hold a graph together: components, rooted forests, centroids and cycles.

In come a number of vertices ``n`` and an integer array of undirected edges ``(E, 2)`` over the
vertices ``0..n-1``; out come arrays over vertices. Inference roots forests here; the samplers take
from here the order of cycle repair and the centroid layers that they commit (the paper's appendix
"Algorithmic construction"). Everything is iterative, and linear in ``n + E`` up to sorting and
the logarithmic number of layers, so a path of 200,000 vertices is an ordinary input.
"""

from counterprobe.graph.cycles import cycle_vertices, repair_order
from counterprobe.graph.neighbours import (
    Adjacency,
    adjacency,
    check_edges,
    components,
    independent_set,
)
from counterprobe.graph.rooted import (
    RootedForest,
    centroid_layers,
    centroids,
    check_forest,
    root_forest,
)

__all__ = [
    "Adjacency",
    "RootedForest",
    "adjacency",
    "centroid_layers",
    "centroids",
    "check_edges",
    "check_forest",
    "components",
    "cycle_vertices",
    "independent_set",
    "repair_order",
    "root_forest",
]
