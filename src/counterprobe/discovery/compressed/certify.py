"""Certify a finished screen where it will be used: under the law, at every scale.

Probes show arbitrary tokens with half of everything masked. Before positions may be committed
together, what their terms imply is compared with rows of another kind: those read with everything
masked (free), the tables that the two ends of an edge imply (free), and *rehearsals*, sequences
drawn from the fitted terms of which some positions are shown at every scale. A component with a
row that disagrees is refuted as a whole: what its positions have in common is not what its edges
say. What is left is then rehearsed again.

**Which states.** Probes of a screen show arbitrary tokens at half of the positions. Dependence
that such tokens switch off (pairs coupled only while others show their common token), that needs
few positions to be known (a topic that all of a block share), or nearly all of them (a parity), is
seen elsewhere: in sequences of typical values of which a few, half or nearly all positions are
shown. A block of m positions that share a topic moves when exactly one of them is shown, a parity
of m when exactly one is hidden; with each position chosen at the rate a/m that has chance ``a
e^-a``, 0.37 at best. Nobody knows m, so all scales are tried.

**Layer by layer**, for rows that no fitted terms describe. Rows of many tokens are sketched, and a
sketch implies no row. What a commit of a layer relies on can be compared all the same: once the
layers before it are known, the graph falls apart, and the row of a position must not move when
positions of *other* components are shown. So a sequence is drawn as commits would draw it, and
before each layer some of its positions are shown, by code words and at every size; every row
elsewhere is compared with what it was before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.compressed.columns import Columns
from counterprobe.discovery.compressed.design import code_length, code_words
from counterprobe.discovery.compressed.implied import ImpliedLaw, allowed_misfit, fitted_terms
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.discovery.compressed.readings import EXACT
from counterprobe.graph import centroid_layers, components, repair_order
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.requests import Probe, Probed, Requests
from counterprobe.states import MASK

__all__ = [
    "Certificate",
    "LayeredRehearsal",
    "hidden_shares",
    "likely_choices",
    "rehearsal_cost",
    "show_few",
    "shown_sizes",
]

# What one state an octave, of sizes 1, 2, 4, ..., takes off the log-chance that a block stays
# unseen: the sum of -log(1 - a e^-a) over a = c, 2c, 4c, ..., in the mean over the logarithm of c.
NATS_AN_OCTAVE = 1.67
# Largest number of positions shown, as a share; screens show half of everything already.
MOST_SHOWN = 1 / 8
# Largest and smallest share of hidden positions. Screens hide half, and see whatever hangs on up
# to eight positions.
MOST_HIDDEN = 1 / 8
LEAST_HIDDEN = 1 / 64


def _scales(low: float, high: float, failure_budget: float) -> FloatArray:
    """Return scales between two, evenly in their logarithm, as many as a budget asks for.

    With ``log(1 / budget) / 1.67`` states an octave a block of a size between stays unseen with a
    chance of about the budget; at the two ends, where one side has no scales, with its root.
    """
    octaves = max(math.log2(high / low), 1.0)
    count = math.ceil(octaves * math.log(1 / failure_budget) / NATS_AN_OCTAVE)
    return np.geomspace(low, high, count)


def shown_sizes(num_free: int, failure_budget: float) -> IntArray:
    """Return the numbers of positions to show: from 1 to an eighth of them.

    Examples
    --------
    >>> shown_sizes(40, 0.01).tolist()
    [1, 1, 2, 2, 3, 4, 5]
    >>> shown_sizes(2, 0.01).tolist(), shown_sizes(1, 0.01).tolist()
    ([1, 1, 1], [])
    """
    if num_free < 2:
        return np.empty(0, dtype=np.int64)
    return _scales(1.0, max(MOST_SHOWN * num_free, 1.0), failure_budget).round().astype(np.int64)


def hidden_shares(num_free: int, failure_budget: float) -> FloatArray:
    """Return the shares of positions to hide; each hides at least one on average.

    Examples
    --------
    >>> hidden_shares(16, 0.01).round(3).tolist(), hidden_shares(7, 0.01).tolist()
    ([0.062, 0.088, 0.125], [])
    """
    least = max(LEAST_HIDDEN, 1 / max(num_free, 1))
    if least > MOST_HIDDEN:
        return np.empty(0)
    return _scales(least, MOST_HIDDEN, failure_budget)


def rehearsal_cost(num_free: int, failure_budget: float) -> int:
    """Return how many states that is in all."""
    shown, hidden = shown_sizes(num_free, failure_budget), hidden_shares(num_free, failure_budget)
    return len(shown) + len(hidden)


def show_few(num_free: int, sizes: IntArray, rng: np.random.Generator) -> BoolArray:
    """Draw which positions to show, so many in each state, shape ``(states, num_free)``."""
    rank = np.argsort(rng.random((len(sizes), num_free)), axis=1)
    shown: BoolArray = rank < sizes[:, None]
    return shown


@dataclass(frozen=True, slots=True, eq=False)
class LayeredRehearsal:
    """What to rehearse, and what may differ.

    Attributes
    ----------
    edges : ndarray of int, shape (E, 2)
    layers : list of ndarray of int
        Positions of one layer are independent given those before.
    failure_budget : float
        How many sizes are tried; see :func:`shown_sizes`.
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

    def __call__(self, context: StateArray, rng: np.random.Generator) -> Requests[BoolArray]:
        """Rehearse; return the positions that moved, and those connected with them.

        Parameters
        ----------
        context : ndarray of int, shape (N,)
            Tokens everywhere; only those outside the layers are looked at.
        rng : numpy.random.Generator
        """
        state = context.copy()
        length = len(state)
        state[np.concatenate([np.empty(0, dtype=np.int64), *self.layers])] = MASK
        has_moved = np.zeros(length, dtype=np.bool_)
        for layer in self.layers:
            masked = np.flatnonzero(state == MASK)
            probed: Probed = yield Probe(state[None, :], masked, purpose="rehearse")
            before = probed.rows
            place = np.searchsorted(masked, layer)
            values = before.take(place).draw(rng.random(len(layer)))
            if len(layer) > 1:
                has_moved |= yield from self._moved(state, layer, values, before, rng)
            state[layer] = values
        label = components(length, self.edges)
        is_spoilt = np.zeros(length, dtype=np.bool_)
        is_spoilt[label[has_moved]] = True
        return is_spoilt[label]

    def _moved(
        self,
        state: StateArray,
        layer: IntArray,
        values: IntArray,
        before: Rows,
        rng: np.random.Generator,
    ) -> Requests[BoolArray]:
        """Show some positions of a layer, and find rows of other components that move."""
        is_masked = state == MASK
        shown = self._shown(len(layer), rng)
        asked = np.repeat(state[None, :], len(shown), axis=0)
        asked[:, layer] = np.where(shown, values, MASK)
        label = components(len(state), self.edges[is_masked[self.edges].all(axis=1)])
        is_touched = np.zeros(asked.shape, dtype=np.bool_)
        index, one = np.nonzero(shown)
        is_touched[index, label[layer[one]]] = True
        readouts = Readouts.every_masked(asked)
        probed: Probed = yield Probe(asked, readouts, purpose="rehearse")
        rows = probed.rows
        elsewhere = np.flatnonzero(~is_touched[readouts.state_index, label[readouts.position]])
        position = readouts.position[elsewhere]
        then = before.take(np.searchsorted(np.flatnonzero(is_masked), position))
        distance = to_numpy(rows.take(elsewhere).total_variation(then))
        has_moved = np.zeros(len(state), dtype=np.bool_)
        has_moved[position[~(distance <= self.allowed)]] = True
        return has_moved


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
