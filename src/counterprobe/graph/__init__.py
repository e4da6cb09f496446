"""Which vertices hold a graph together: components, rooted forests, centroids and cycles.

In come a number of vertices ``n`` and an integer array of undirected edges ``(E, 2)`` over the
vertices ``0..n-1``; out come arrays over vertices. Inference roots forests here; the samplers take
from here the order of cycle repair and the centroid layers that they commit (the paper's appendix
"Algorithmic construction"). Everything is iterative, and linear in ``n + E`` up to sorting and
the logarithmic number of layers, so a path of 200,000 vertices is an ordinary input.
"""

from counterprobe.graph.cycles import cycle_vertices as cycle_vertices
from counterprobe.graph.cycles import repair_order as repair_order
from counterprobe.graph.edges import check_edges as check_edges
from counterprobe.graph.independent import independent_set as independent_set
from counterprobe.graph.layers import centroid_layers as centroid_layers
from counterprobe.graph.layers import centroids as centroids
from counterprobe.graph.neighbours import Adjacency as Adjacency
from counterprobe.graph.neighbours import adjacency as adjacency
from counterprobe.graph.neighbours import components as components
from counterprobe.graph.rooted import RootedForest as RootedForest
from counterprobe.graph.rooted import check_forest as check_forest
from counterprobe.graph.rooted import root_forest as root_forest
