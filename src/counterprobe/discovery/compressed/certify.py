"""Certify a finished screen where it will be used: under the law, at every scale.

Probes show arbitrary tokens with half of everything masked. Before positions may be committed
together, what their terms imply is compared with rows of another kind: those read with everything
masked (free), the tables that the two ends of an edge imply (free), and *rehearsals*, sequences
drawn from the fitted terms of which some positions are shown (``rehearsal.py`` says how many).
A component with a row that disagrees is refuted as a whole: what its positions have in common is
not what its edges say. What is left is then rehearsed again.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed.columns import Columns
from counterprobe.discovery.compressed.implied import ImpliedLaw, fitted_terms
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.discovery.compressed.readings import EXACT
from counterprobe.graph import centroid_layers, components, repair_order
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows

__all__ = ["Certificate", "likely_choices"]


def likely_choices(
    columns: Columns, all_mask: FloatArray, count: int, rng: np.random.Generator
) -> IntArray:
    """Draw what every position shows by itself, as the all-mask rows have it, shape (count, N).

    Parameters
    ----------
    columns : Columns
    all_mask : ndarray of float, shape (N, C)
        Rows over coordinates.
    count : int
    rng : numpy.random.Generator
    """
    reach = np.cumsum(all_mask, axis=1)
    drawn = rng.random((count, len(all_mask))) * reach[:, -1]
    coordinate = [(reach[:, :-1] <= mine[:, None]).sum(axis=1) for mine in drawn]
    return columns.choices_of(np.array(coordinate, dtype=np.int64).reshape(count, -1))


class Certificate:
    """What a screen's neighbourhoods imply, to be compared with rows of the law.

    Parameters
    ----------
    found : Neighbourhoods
        Whose rows are not sketched.

    Attributes
    ----------
    free : ndarray of int
        Positions that would be committed in layers; the others are known before.
    """

    def __init__(self, found: Neighbourhoods) -> None:
        terms, disagreement = fitted_terms(found)
        length = len(terms.unary)
        self._all_mask = found.readings.all_mask
        self.columns = found.readings.columns
        self.is_certified = found.knowledge.is_found
        is_free = self.is_certified.copy()
        is_free[repair_order(length, terms.edges, found.knowledge.is_resolved)] = False
        self.free = np.flatnonzero(is_free)
        self.layers = list(centroid_layers(length, terms.edges, is_free))
        self.implied = ImpliedLaw.of(terms, ~is_free & ~found.knowledge.is_settled)
        self.is_compared, self._is_bad, self._is_torn = np.zeros((3, length), dtype=np.bool_)
        inside = found.knowledge.is_resolved[terms.edges].all(axis=1)
        self._label = components(length, terms.edges[inside])
        if terms.tolerance <= 3 * EXACT:
            # With noise, the terms of rare tokens may differ by anything.
            self._is_torn[terms.edges[inside & (disagreement > self.implied.tolerance)]] = True

    @property
    def is_refuted(self) -> BoolArray:
        """Certified positions of components in which a row or a table disagreed."""
        return self._components_of(self._is_bad | self._is_torn)

    @property
    def is_rough(self) -> BoolArray:
        """Refuted positions of components in which only tables disagreed: fitted too roughly."""
        return self.is_refuted & ~self._components_of(self._is_bad)

    def _components_of(self, positions: BoolArray) -> BoolArray:
        """Return the certified positions of the components that some of them belong to."""
        spoilt = np.zeros(len(self._label), dtype=np.bool_)
        spoilt[self._label[positions & self.is_certified]] = True
        members: BoolArray = spoilt[self._label] & self.is_certified
        return members

    def compare_all_mask(self, history: StateArray, rows: Rows) -> None:
        """Compare the rows read with nothing but the context known, shape of ``history`` (N,)."""
        readouts = Readouts.every_masked(history[None, :])
        testable = self.implied.is_tested & ~self.implied.touches_known
        self._compare(history[None, :], readouts, rows, testable)

    def compare_rehearsal(self, states: StateArray, readouts: Readouts, rows: Rows) -> None:
        """Compare the rows of a rehearsal, which reveals whatever is committed singly."""
        self._compare(states, readouts, rows, self.implied.is_tested)

    def _compare(
        self, states: StateArray, readouts: Readouts, rows: Rows, testable: BoolArray
    ) -> None:
        misfit = self.implied.misfit(states, readouts, rows)
        tested = testable[readouts.position]
        is_off = tested & ~(misfit <= self.implied.tolerance)
        self.is_compared[readouts.position[tested]] = True
        self._is_bad[readouts.position[is_off]] = True

    def draw_choices(self, count: int, rng: np.random.Generator) -> IntArray:
        """Draw sequences as choices, shape ``(count, N)``.

        What is committed singly shows what its own all-mask row has, whatever the others show;
        the rest is drawn jointly, given that.
        """
        choices = likely_choices(self.columns, self._all_mask, count, rng)
        everywhere = np.arange(choices.shape[1])
        for k in range(count if len(self.free) else 0):
            known = np.maximum(self.columns.coordinate_of_choice[everywhere, choices[k]], 0)
            drawn = self.implied.draw(known, self.layers, rng)
            choices[k, self.free] = self.columns.choices_of(drawn)[self.free]
        return choices
