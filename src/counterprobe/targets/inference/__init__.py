"""Exact rows of a forest law by message passing, at a cost that follows what is asked.

The forest is rooted once and numbered breadth first (``graph.root_forest``), so that the children
of a vertex are consecutive. A message always runs along the same edge in the same arithmetic
(``steps.py``), so a row depends on the state alone, to the last bit, whatever else is read beside
it.

Three ways to visit the positions give those same rows, and ``rows.py`` chooses among them. With
few readouts ``components.py`` walks only the masked components that touch one; with more of them
``marked.py`` goes through the same components in memory order; once most positions are read,
``sweep.py`` runs over all of them. ``rows_all_positions`` is the plain reference: it treats
revealed positions like any other and always walks all N.

Numbers stay in range at any degree. Tables are scaled to a maximum of one and may not span more
than 1e30, so one message entry lies in ``[1e-30, 1]``; products over many children keep a separate
binary exponent for each class and are rescaled every eight factors.

Every kernel reads one law, ``ForestArrays``, and writes into the working memory of one thread,
``Scratch``. Few classes are a compile-time constant, the length of the tuple ``class_range``, so
that the inner loops are unrolled; larger numbers share one compilation.
"""

from counterprobe.targets.inference.arrays import MAX_SPREAD as MAX_SPREAD
from counterprobe.targets.inference.arrays import ForestArrays as ForestArrays
from counterprobe.targets.inference.arrays import Scratch as Scratch
from counterprobe.targets.inference.arrays import class_range as class_range
from counterprobe.targets.inference.arrays import make_scratch as make_scratch
from counterprobe.targets.inference.components import collect_component as collect_component
from counterprobe.targets.inference.rows import rows_of_state as rows_of_state
from counterprobe.targets.inference.rows import rows_of_states as rows_of_states
from counterprobe.targets.inference.steps import up_step as up_step
from counterprobe.targets.inference.sweep import rows_all_positions as rows_all_positions
from counterprobe.targets.inference.whole import draw_classes as draw_classes
from counterprobe.targets.inference.whole import pair_marginals as pair_marginals
from counterprobe.targets.inference.whole import upward_pass as upward_pass
