"""What fitted terms imply for rows that are read anyway.

A screen gathers its evidence under the probing distribution: arbitrary tokens shown, half of
everything masked. Commits happen under the law, with nearly everything masked. A law that is not
pairwise, or a token that matters only where its neighbours allow it, can look settled to every
probe and be wrong at every commit. The fitted terms are a law of their own, a forest law over the
coordinates of the rows, so message passing says what they imply for any state: the all-mask rows
and every row of a commit are compared with that, for free.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.classes import TokenClasses
from counterprobe.discovery.compressed.columns import ABSENT
from counterprobe.discovery.compressed.findings import Terms
from counterprobe.discovery.compressed.neighbourhoods import Neighbourhoods
from counterprobe.graph import components
from counterprobe.oracles import Readouts
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.states import MASK
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.session import ForestSession

__all__ = ["ImpliedLaw", "allowed_misfit", "coordinates_of", "fitted_terms", "tokens_of"]


# Log-weights this far below the largest are as good as nothing; a forest law permits e^69.
DEEPEST = 60.0
# Rounding of terms and of message passing, in total variation: 1e-14 on ordinary laws, up to 1e-5
# where tables of strength five saturate most rows.
IMPLIED_ROUNDING = 3e-5
# Fits are held to a tolerance of three row errors; noise of one row error in every row moved
# implied rows by 0.5 to 2.2 of them.
TOLERANCES = 2.0


def allowed_misfit(tolerance: float) -> float:
    """Return the total variation between two accounts of a row that noise explains."""
    return IMPLIED_ROUNDING + TOLERANCES * tolerance


def fitted_terms(found: Neighbourhoods) -> tuple[Terms, FloatArray]:
    """Read unaries and pair tables off the fits of a screen whose rows were not sketched.

    The log-row of ``j`` is a constant plus ``t_ji(a, b)`` for each neighbour ``i`` that shows
    coordinate ``a``. Both ends of an edge share its interaction ``t(a, b) - t(a0, b) - t(a, b0) +
    t(a0, b0)``, relative to a reference coordinate of each; ``t_ji(a0, b)`` goes to the unary of
    the end that was fitted.

    Returns
    -------
    terms : Terms
    disagreement : ndarray of float, shape (E,)
        How far apart the tables are that the two ends of an edge imply: the largest difference,
        each entry weighted by the smaller of its two all-mask masses. Zero where one end was
        fitted.
    """
    readings = found.readings
    all_mask, columns = readings.all_mask, readings.columns
    length, width = all_mask.shape
    is_present = all_mask > ABSENT
    reference = all_mask.argmax(axis=1)
    is_fitted = found.knowledge.is_found
    is_complete = is_fitted.copy()
    # What each source adds to the log-row of its reader: own fits first, then terms taken over.
    reader, slot = found.named(is_fitted)
    source = found.members[reader, slot]
    choice = columns.choice_of_coordinate[source]
    is_known = found.is_determined[reader[:, None], slot[:, None], choice] & (choice >= 0)
    is_complete[reader[(is_present[source] & ~is_known).any(axis=1)]] = False
    own = np.where(is_known[:, :, None], found.terms[reader[:, None], slot[:, None], choice], 0.0)
    readouts = np.flatnonzero(is_fitted)
    known = found.known(readouts)
    choice = columns.choice_of_coordinate[known.position]
    taken = known.terms[np.arange(len(choice))[:, None], np.maximum(choice, 0)]
    num_own = len(reader)
    reader = np.concatenate([reader, np.repeat(readouts, np.diff(known.start))])
    source = np.concatenate([source, known.position])
    added = np.concatenate([own, taken.reshape(-1, width, width)])
    added = np.where(is_present[source][:, :, None] & is_present[reader][:, None, :], added, 0.0)
    everyone = np.arange(len(added))
    at_reference = added[everyone, reference[source]]
    unary = found.constant.copy()
    np.add.at(unary, reader, at_reference)
    interaction = added - at_reference[:, None, :]
    interaction -= interaction[everyone, :, reference[reader]][:, :, None]

    # Every pair that a fit used: a hub takes terms over from ends that lack their evidence, too.
    low, high = np.minimum(reader, source), np.maximum(reader, source)
    pairs, edge = np.unique(low * length + high, return_inverse=True)
    edges = np.stack(np.divmod(pairs, length), axis=1)
    end = (reader == low).astype(np.int64)  # tables have the smaller position first
    turned = np.where(end[:, None, None] == 1, interaction.transpose(0, 2, 1), interaction)
    by_end = np.zeros((2, len(edges), width, width))
    by_end[end, edge] = turned
    is_read, is_own = np.zeros((2, 2, len(edges)), dtype=np.bool_)
    is_read[end, edge] = True
    is_own[end[:num_own], edge[:num_own]] = True
    # Noise of one row error moves the log of a mass p by row_error / p.
    first, second = all_mask[edges[:, 0]][:, :, None], all_mask[edges[:, 1]][:, None, :]
    trust = np.stack(np.broadcast_arrays(second**2, first**2)) * is_read[:, :, None, None]
    total = trust.sum(axis=0)
    tables = (trust * by_end).sum(axis=0) / np.where(total > 0, total, 1.0)
    apart = np.abs(by_end[0] - by_end[1]) * np.minimum(first, second)
    disagreement = np.where(is_own.all(axis=0), apart.max(axis=(1, 2), initial=0.0), 0.0)
    return Terms(
        np.where(is_present, unary, -np.inf), edges, tables, is_complete, found.readings.tolerance
    ), disagreement


@dataclass(frozen=True, slots=True, eq=False)
class ImpliedLaw:
    """What terms say about rows, once some positions are known.

    Attributes
    ----------
    law : ForestLaw
        On N positions and, behind them, one copy of a position that is known first for each of
        its edges: cut there, any graph falls apart into a forest.
    original : ndarray of int
        The position that each copy repeats.
    is_tested : ndarray of bool, shape (N,)
        Positions whose rows can be compared as soon as the others are known.
    touches_known : ndarray of bool, shape (N,)
        Positions whose component has an edge to a position that must be known.
    tolerance : float
        Total variation between a row and the implied one that the noise of fits explains.
    """

    law: ForestLaw
    original: IntArray
    is_tested: BoolArray
    touches_known: BoolArray
    tolerance: float

    @classmethod
    def of(cls, terms: Terms, known_first: BoolArray) -> ImpliedLaw:
        """Build it from terms.

        Parameters
        ----------
        terms : Terms
        known_first : ndarray of bool, shape (N,)
            Positions that are known before any row is compared; without them the graph must be a
            forest.
        """
        length, width = terms.unary.shape
        edges = terms.edges
        is_cut = known_first[edges]
        keep = ~is_cut.all(axis=1)
        edges, tables, is_cut = edges[keep].copy(), terms.tables[keep], is_cut[keep]
        is_free = ~known_first
        label = components(length, edges[~is_cut.any(axis=1)])
        spoilt, touched = np.zeros((2, length), dtype=np.bool_)
        spoilt[label[is_free & ~terms.is_complete]] = True
        row, column = np.nonzero(is_cut)
        touched[label[edges[row, 1 - column]]] = True
        original = edges[row, column]
        edges[row, column] = length + np.arange(len(row))
        unary = np.zeros((length + len(row), width))
        unary[:length] = np.where(is_free[:, None], terms.unary, 0.0)
        return cls(
            _forest_law(unary, edges, tables),
            original,
            is_free & terms.is_complete & ~spoilt[label],
            touched[label],
            allowed_misfit(terms.tolerance),
        )

    def misfit(self, states: StateArray, readouts: Readouts, rows: Rows) -> FloatArray:
        """Return the total variation between rows and what the terms imply, zero if untested.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
            Token states; every position that must be known first is revealed in them.
        readouts : Readouts
        rows : Rows
            What was read.
        """
        tested = np.flatnonzero(self.is_tested[readouts.position])
        distance = np.zeros(len(readouts))
        if len(tested) == 0:
            return distance
        classes = rows.classes if isinstance(rows, ClassedRows) else None
        shown = coordinates_of(states, classes)
        extended = np.concatenate([shown, shown[:, self.original]], axis=1)
        asked = Readouts.pairs(readouts.state_index[tested], readouts.position[tested])
        implied = to_numpy(self.law.oracle().rows(extended, asked).masses)
        read = np.asarray(to_numpy(rows.take(tested).masses), dtype=np.float64)
        distance[tested] = np.abs(implied - read).sum(axis=1) / 2
        return distance

    def draw(self, known: IntArray, layers: list[IntArray], rng: np.random.Generator) -> IntArray:
        """Draw the positions of some layers jointly, as coordinates; others stay as known.

        Parameters
        ----------
        known : ndarray of int, shape (N,)
            Coordinates of the positions that must be known first; of the others nothing is read.
        layers : list of ndarray of int
            Positions of one layer are independent given those before.
        rng : numpy.random.Generator
        """
        values = np.concatenate([known, known[self.original]])
        state = np.full(self.law.length, MASK, dtype=np.int32)
        state[len(known) :] = values[len(known) :]
        session = ForestSession(self.law.arrays, self.law.classes, state)
        for layer in layers:
            values[layer] = session.rows(layer).draw(rng.random(len(layer)))
            session.push(layer, values[layer])
        return values[: len(known)]


def coordinates_of(states: StateArray, classes: TokenClasses | None) -> StateArray:
    """Turn shown tokens into coordinates of rows: their classes, or themselves."""
    if classes is None:
        return states
    shown = classes.token_class[classes.kind, np.maximum(states, 0)]
    return np.where(states == MASK, MASK, shown).astype(np.int32)


def tokens_of(
    coordinates: IntArray,
    positions: IntArray,
    classes: TokenClasses | None,
    rng: np.random.Generator,
) -> IntArray:
    """Turn coordinates of rows into tokens: any of their class, or themselves."""
    if classes is None:
        return coordinates
    one_hot = np.eye(classes.num_classes)[coordinates]
    return ClassedRows(one_hot, classes, positions).draw(rng.random(len(positions)))


def _forest_law(unary: FloatArray, edges: IntArray, tables: FloatArray) -> ForestLaw:
    """Return the law of log-weights; a hub's unary is spread over its tables, in equal shares.

    The unary of a hub with hundreds of neighbours may span more than any factor a law permits;
    what its tables say against that is as large.
    """
    is_absent = np.isneginf(unary)
    finite = np.where(is_absent, 0.0, unary)
    degree = np.bincount(edges.ravel(), minlength=len(unary))
    share = finite / (1 + degree)[:, None]
    pair = tables + share[edges[:, 0]][:, :, None] + share[edges[:, 1]][:, None, :]
    share = np.where(is_absent, -np.inf, share)
    return ForestLaw(_weights(share, (1,)), edges, _weights(pair, (1, 2)), name="implied")


def _weights(logs: FloatArray, axis: tuple[int, ...]) -> FloatArray:
    """Exponentiate relative to the largest entry of each position or edge, floored."""
    if logs.size == 0:
        return np.ones(logs.shape)
    weights: FloatArray = np.exp(np.maximum(logs - logs.max(axis=axis, keepdims=True), -DEEPEST))
    return weights
