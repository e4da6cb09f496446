"""Rehearse layer by layer, for rows that no fitted terms describe.

Rows of many tokens are sketched, and a sketch implies no row. What a commit of a layer relies on
can be compared all the same: once the layers before it are known, the graph falls apart, and the
row of a position must not move when positions of *other* components are shown. So a sequence is
drawn as commits would draw it, and before each layer some of its positions are shown, by code
words and at every size; every row elsewhere is compared with what it was before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import BoolArray, IntArray, StateArray
from counterprobe.discovery.compressed.design import code_length, code_words
from counterprobe.discovery.compressed.implied import allowed_misfit
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.discovery.compressed.rehearsal import show_few, shown_sizes
from counterprobe.graph import centroid_layers, components, repair_order
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.unmasking import Unmasking
from counterprobe.states import MASK

__all__ = ["LayeredRehearsal"]


@dataclass(frozen=True, slots=True, eq=False)
class LayeredRehearsal:
    """What to rehearse, and what may differ.

    Attributes
    ----------
    edges : ndarray of int, shape (E, 2)
    layers : list of ndarray of int
        Positions of one layer are independent given those before.
    failure_budget : float
        How many sizes are tried; see ``rehearsal.py``.
    allowed : float
        Total variation that noise explains.
    """

    edges: IntArray
    layers: list[IntArray]
    failure_budget: float
    allowed: float

    @classmethod
    def of(cls, found: Neighbourhoods, failure_budget: float) -> LayeredRehearsal:
        """Rehearse what a screen found."""
        edges, length = found.edges(), len(found.count)
        is_free = found.knowledge.is_found
        is_free[repair_order(length, edges, found.knowledge.is_resolved)] = False
        layers = list(centroid_layers(length, edges, is_free))
        return cls(edges, layers, failure_budget, allowed_misfit(found.readings.tolerance))

    @property
    def cost(self) -> int:
        """Probes that it takes."""
        return sum(1 + self._num_states(len(layer)) for layer in self.layers)

    def _num_states(self, size: int) -> int:
        if size < 2:
            return 0
        return code_length(size) + len(shown_sizes(size, self.failure_budget))

    def _shown(self, size: int, rng: np.random.Generator) -> BoolArray:
        """Return which positions of a layer to show: by code words, and at every size."""
        few = show_few(size, shown_sizes(size, self.failure_budget), rng)
        return np.concatenate([code_words(size, rng).T, few])

    def __call__(self, run: Unmasking, context: StateArray, rng: np.random.Generator) -> BoolArray:
        """Rehearse; return the positions that moved, and those connected with them.

        Parameters
        ----------
        run : Unmasking
        context : ndarray of int, shape (N,)
            Tokens everywhere; only those outside the layers are looked at.
        rng : numpy.random.Generator
        """
        state = context.copy()
        length = len(state)
        state[np.concatenate([np.empty(0, dtype=np.int64), *self.layers])] = MASK
        has_moved = np.zeros(length, dtype=np.bool_)
        for layer in self.layers:
            run.transcript.announce("rehearse")
            masked = np.flatnonzero(state == MASK)
            before = run.probe(state[None, :], Readouts.same(1, masked))
            place = np.searchsorted(masked, layer)
            values = before.take(place).draw(rng.random(len(layer)))
            if len(layer) > 1:
                has_moved |= self._moved(run, state, layer, values, before, rng)
            state[layer] = values
        label = components(length, self.edges)
        is_spoilt = np.zeros(length, dtype=np.bool_)
        is_spoilt[label[has_moved]] = True
        return is_spoilt[label]

    def _moved(
        self,
        run: Unmasking,
        state: StateArray,
        layer: IntArray,
        values: IntArray,
        before: Rows,
        rng: np.random.Generator,
    ) -> BoolArray:
        """Show some positions of a layer, and find rows of other components that move."""
        is_masked = state == MASK
        shown = self._shown(len(layer), rng)
        asked = np.repeat(state[None, :], len(shown), axis=0)
        asked[:, layer] = np.where(shown, values, MASK)
        label = components(len(state), self.edges[is_masked[self.edges].all(axis=1)])
        is_touched = np.zeros(asked.shape, dtype=np.bool_)
        index, one = np.nonzero(shown)
        is_touched[index, label[layer[one]]] = True
        run.transcript.announce("rehearse")
        readouts = Readouts.every_masked(asked)
        rows = run.probe(asked, readouts)
        elsewhere = np.flatnonzero(~is_touched[readouts.state_index, label[readouts.position]])
        position = readouts.position[elsewhere]
        then = before.take(np.searchsorted(np.flatnonzero(is_masked), position))
        distance = to_numpy(rows.take(elsewhere).total_variation(then))
        has_moved = np.zeros(len(state), dtype=np.bool_)
        has_moved[position[~(distance <= self.allowed)]] = True
        return has_moved
