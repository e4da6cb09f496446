"""Certify a finished screen where it will be used: under the law, in the order of commits.

Probes show arbitrary tokens with half of everything masked. Before positions may be committed
together, what their terms imply is compared with rows of another kind: those read with everything
masked (free), the tables that the two ends of an edge imply (free), and two *rehearsals*, in which
a sequence drawn from the fitted terms is revealed in a few places, or as far as commits would have
come. A component with a row that disagrees is refuted as a whole: what its positions have in
common is not what its edges say.
"""

from __future__ import annotations

import numpy as np

from counterprobe.arrays import BoolArray, IntArray, StateArray
from counterprobe.graph import centroid_layers, components, repair_order
from counterprobe.oracle import Readouts
from counterprobe.probing.compressed.implied import ImpliedLaw, fitted_terms
from counterprobe.probing.compressed.neighbourhoods import Neighbourhoods
from counterprobe.probing.compressed.readings import EXACT
from counterprobe.rows import Rows

__all__ = ["REHEARSALS", "Certificate"]


# Probes that certification takes.
REHEARSALS = 2
# Positions that the first rehearsal reveals: too few to settle what all have in common.
EARLY = 8


class Certificate:
    """What a screen's neighbourhoods imply, to be compared with rows of the law.

    Parameters
    ----------
    found : Neighbourhoods
        Whose rows are not sketched.
    """

    def __init__(self, found: Neighbourhoods) -> None:
        terms, disagreement = fitted_terms(found)
        length = len(terms.unary)
        self.columns = found.readings.columns
        self.is_certified = found.knowledge.is_found
        is_free = self.is_certified.copy()
        is_free[repair_order(length, terms.edges, found.knowledge.is_resolved)] = False
        self.layers = list(centroid_layers(length, terms.edges, is_free))
        self.implied = ImpliedLaw.of(terms, ~is_free & ~found.knowledge.is_settled)
        self.is_compared, self._is_bad = np.zeros((2, length), dtype=np.bool_)
        self._failed_rehearsal = False
        inside = found.knowledge.is_resolved[terms.edges].all(axis=1)
        self._label = components(length, terms.edges[inside])
        if terms.tolerance <= 3 * EXACT:
            # With noise, the terms of rare tokens may differ by anything.
            self._is_bad[terms.edges[inside & (disagreement > self.implied.tolerance)]] = True

    @property
    def is_refuted(self) -> BoolArray:
        """Certified positions of components in which a row or a table disagreed.

        All of them after a failed rehearsal: rows moved with what was thought independent of
        them, and which rows would move with what was not revealed this time is not known.
        """
        if self._failed_rehearsal:
            return self.is_certified
        spoilt = np.zeros(len(self._label), dtype=np.bool_)
        spoilt[self._label[self._is_bad & self.is_certified]] = True
        refuted: BoolArray = spoilt[self._label] & self.is_certified
        return refuted

    def compare_all_mask(self, history: StateArray, rows: Rows) -> None:
        """Compare the rows read with nothing but the context known, shape of ``history`` (N,)."""
        readouts = Readouts.every_masked(history[None, :])
        testable = self.implied.is_tested & ~self.implied.touches_known
        self._compare(history[None, :], readouts, rows, testable)

    def compare_rehearsal(self, states: StateArray, readouts: Readouts, rows: Rows) -> None:
        """Compare the rows of a rehearsal, which reveals whatever is committed singly."""
        is_off = self._compare(states, readouts, rows, self.implied.is_tested)
        self._failed_rehearsal |= is_off

    def _compare(
        self, states: StateArray, readouts: Readouts, rows: Rows, testable: BoolArray
    ) -> bool:
        misfit = self.implied.misfit(states, readouts, rows)
        tested = testable[readouts.position]
        is_off = tested & ~(misfit <= self.implied.tolerance)
        self.is_compared[readouts.position[tested]] = True
        self._is_bad[readouts.position[is_off]] = True
        return bool(is_off.any())

    def rehearse(self, rng: np.random.Generator) -> tuple[BoolArray, IntArray]:
        """Return what to mask and which choices to show, each of shape ``(REHEARSALS, N)``."""
        length = len(self._label)
        everywhere = np.arange(length)
        choices = rng.integers(self.columns.num_choices, size=(REHEARSALS, length))
        free = np.sort(np.concatenate([np.empty(0, dtype=np.int64), *self.layers]))
        for k in range(REHEARSALS):
            known = np.maximum(self.columns.coordinate_of_choice[everywhere, choices[k]], 0)
            drawn = self.implied.draw(known, self.layers, rng)[free]
            shown_by = self.columns.choice_of_coordinate[free, drawn]
            choices[k, free] = np.where(shown_by >= 0, shown_by, choices[k, free])
        masked = np.zeros((REHEARSALS, length), dtype=np.bool_)
        masked[:, free] = True
        early = rng.choice(free, size=min(EARLY, len(free) // 4), replace=False)
        masked[0, early] = False
        half = len(self.layers) // 2
        under_way = np.concatenate([np.empty(0, dtype=np.int64), *self.layers[:half]])
        if half == 0:  # nothing was found to depend on anything
            under_way = free[rng.random(len(free)) < 0.5]
        masked[1, under_way] = False
        return masked, choices
