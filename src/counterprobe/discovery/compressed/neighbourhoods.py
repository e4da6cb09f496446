"""Neighbourhoods: what each position is thought to depend on, and how well that explains it.

A position names *members*, which its own fit found. Once that fit explains its clean probes the
position is resolved and its members become *claims* on their other ends. A position that many
others claim (a hub) does not fit them itself: for a pairwise law, what a neighbour ``i`` adds to
the log-row of ``j`` is what ``j`` adds to that of ``i``, read the other way round, so it is taken
over from the fit of ``i`` and subtracted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray
from counterprobe.discovery.compressed.columns import ABSENT
from counterprobe.discovery.compressed.data import Known
from counterprobe.discovery.compressed.fitting import CLEAN, RANK, WORST, check_fits
from counterprobe.discovery.compressed.knowledge import Knowledge
from counterprobe.discovery.compressed.ranking import leftovers, rank_sources
from counterprobe.discovery.compressed.readings import FIT_ROUNDING, Readings
from counterprobe.discovery.compressed.search import search_neighbourhoods
from counterprobe.graph import components
from counterprobe.states import mix64
from counterprobe.threads import run_in_parts

__all__ = ["Neighbourhoods", "Validated"]

# Neighbours that a readout fits itself, and claims on it above which it takes them over instead.
OWN_MEMBERS = 8
OWN_CLAIMS = 4
SHORTLIST = 16
RESOLVED_FAVOUR = 0.3
# Clean probes beyond the parameters before a neighbourhood may count as an explanation.
SPARE = 6
# What a source must gain, in log-likelihood: out of N, or when its other end names the readout.
MARGIN = 3.0
MUTUAL_PRICE = 2.0
CLAIMED_PRICE = 1.0


class Neighbourhoods:
    """What is thought of every position, and why.

    Parameters
    ----------
    readings : Readings
    knowledge : Knowledge
        Changed as neighbourhoods are found or doubted.
    """

    def __init__(self, readings: Readings, knowledge: Knowledge) -> None:
        length, width = readings.length, readings.importance.shape[1]
        self.readings = readings
        self.knowledge = knowledge
        self.members = np.zeros((length, OWN_MEMBERS), dtype=np.int64)
        self.count = np.zeros(length, dtype=np.int64)
        self.has_claims = np.zeros(length, dtype=np.bool_)
        self.constant = np.zeros((length, width))
        choices = readings.columns.width
        self.terms = np.zeros((length, OWN_MEMBERS, choices, width))
        self.is_determined = np.zeros((length, OWN_MEMBERS, choices), dtype=np.bool_)
        self.misfit = np.full(length, np.nan)
        # The neighbourhood as it was when it last changed, and what it has explained since.
        self._signature = np.zeros(length, dtype=np.uint64)
        self._since = np.zeros(length, dtype=np.int64)
        self._rank_then = np.zeros(length, dtype=np.int64)
        self._shown = np.zeros((length, 2), dtype=np.int64)
        self.seconds = {"ranking": 0.0, "fitting": 0.0}

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Add up the time of one kind of work."""
        started = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - started

    # ----- The graph -----------------------------------------------------------------------

    @property
    def evidence(self) -> IntArray:
        """Clean probes that each neighbourhood explained since it was last changed.

        Only probes that would have shown any missed neighbour count, less the parameters that the
        later probes were first to determine.
        """
        return np.where(self.knowledge.is_found, np.maximum(self._shown[:, 0], 0), 0)

    @property
    def shows_all(self) -> BoolArray:
        """Positions whose every clean probe, since then, would have shown any missed neighbour."""
        fresh: BoolArray = self._shown[:, 1] == self._shown[:, 0]
        return fresh

    @property
    def clean_per_evidence(self) -> FloatArray:
        """Clean probes that each position takes for one that counts, as far as one can tell."""
        return (np.maximum(self._shown[:, 1], 0) + 2) / (self.evidence + 2)

    def named(self, by: BoolArray) -> tuple[IntArray, IntArray]:
        """Return (position, slot) of the members that some positions name."""
        filled = np.arange(OWN_MEMBERS) < self.count[:, None]
        position, slot = np.nonzero(filled & by[:, None])
        return position, slot

    def edges(self, *, tentative: bool = False) -> IntArray:
        """Return the pairs that a resolved end names, or any end."""
        by = np.ones_like(self.has_claims) if tentative else self._claims_stand
        position, slot = self.named(by)
        pairs = np.stack([position, self.members[position, slot]], axis=1)
        return np.unique(np.sort(pairs, axis=1), axis=0).reshape(-1, 2)

    @property
    def _claims_stand(self) -> BoolArray:
        """Whose members count: positions that are resolved by them."""
        return self.has_claims & self.knowledge.is_resolved

    def contradictions(self) -> IntArray:
        """Return the resolved positions of which one names the other in vain."""
        return np.unique(self._in_vain())

    def _in_vain(self) -> IntArray:
        """Return pairs of resolved positions of which the first names the second in vain."""
        position, slot = self.named(self._claims_stand)
        other = self.members[position, slot]
        few = np.bincount(other, minlength=len(self.count)) <= OWN_CLAIMS
        names_back = (self._members_of(other) == position[:, None]).any(axis=1)
        in_vain = self.knowledge.is_resolved[other] & ~names_back & few[other]
        return np.stack([position[in_vain], other[in_vain]], axis=1)

    def account(self) -> dict[str, NDArray[Any]]:
        """Return where edges and positions stand, for a transcript."""
        return {
            "edges": self.edges(),
            "contradicted": np.unique(np.sort(self._in_vain(), axis=1), axis=0).reshape(-1, 2),
            "is_resolved": self.knowledge.is_resolved.copy(),
            "is_given_up": self.knowledge.is_given_up.copy(),
        }

    def _members_of(self, position: IntArray) -> IntArray:
        """Return the members of some positions, -1 where there are fewer."""
        filled = np.arange(OWN_MEMBERS) < self.count[position][:, None]
        return np.where(filled, self.members[position], -1)

    # ----- Terms taken over from the other end ---------------------------------------------

    def _claims_on(self, readouts: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the claims on some readouts: index of the readout, claiming position, slot."""
        position, slot = self.named(self.has_claims)
        other = self.members[position, slot]
        index = np.full(len(self.count), -1)
        index[readouts] = np.arange(len(readouts))
        mine = np.flatnonzero(index[other] >= 0)
        order = mine[np.argsort(index[other[mine]], kind="stable")]
        return index[other[order]], position[order], slot[order]

    def known(self, readouts: IntArray) -> Known:
        """Return, for readouts that many positions claim, the terms taken over from those."""
        at, position, slot = self._claims_on(readouts)
        many = np.bincount(at, minlength=len(readouts)) > OWN_CLAIMS
        keep = many[at]
        if keep.any():
            own = (self._members_of(readouts[at]) == position[:, None]).any(axis=1)
            keep &= ~(own & self.has_claims[readouts[at]])
        at, position, slot = at[keep], position[keep], slot[keep]
        columns, j = self.readings.columns, readouts[at]
        if self.readings.is_sketch or len(at) == 0:
            none = np.empty((0, *self.terms.shape[2:]))
            return Known(np.zeros(len(readouts) + 1, np.int64), np.empty(0, np.int64), none)
        # The fit of i met each coordinate of j where j made the choice that shows it, and each
        # choice of i shows a coordinate of that fit: the same pair of tokens, read from j.
        met = columns.choice_of_coordinate[j]
        shows = columns.coordinate_of_choice[position]
        is_absent = self.readings.all_mask[j] <= ABSENT
        usable = ((met >= 0) | is_absent).all(axis=1)
        is_determined = self.is_determined[position[:, None], slot[:, None], met]
        usable &= (is_determined | is_absent).all(axis=1)
        in_use = np.arange(shows.shape[1]) < columns.num_choices[position][:, None]
        usable &= ((shows >= 0) | ~in_use).all(axis=1)
        at, position, slot, j = at[usable], position[usable], slot[usable], j[usable]
        terms = self.terms[
            position[:, None, None],
            slot[:, None, None],
            met[usable][:, None, :],
            shows[usable][:, :, None],
        ]
        terms = np.where(is_absent[usable][:, None, :], 0.0, terms)
        weight = self.readings.all_mask[j][:, None, :]
        terms = terms - (weight * terms).sum(axis=2, keepdims=True)
        counts = np.bincount(at, minlength=len(readouts))
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Known(start, position, np.ascontiguousarray(terms))

    def _tolerances(self, known: Known) -> FloatArray:
        """Terms taken over add rounding, but no licence: noise that adds up is not explained."""
        return self.readings.tolerance + FIT_ROUNDING * (1 + np.sqrt(np.diff(known.start)))

    # ----- Checking and improving ----------------------------------------------------------

    def recheck(self) -> int:
        """Fit every resolved position again; reopen and count those no longer explained."""
        readouts = np.flatnonzero(self.knowledge.is_found)
        known = self.known(readouts)
        signature = self._signatures(readouts, known)
        has_changed = signature != self._signature[readouts]
        self._signature[readouts] = signature
        self._since[readouts[has_changed]] = self.readings.num_probes
        outcome, shown = self._fit(readouts, known)
        self.misfit[readouts] = outcome[:, WORST]
        rank = outcome[:, RANK].astype(np.int64)
        self._rank_then[readouts[has_changed]] = rank[has_changed]
        # A probe that first shows a choice only determines a parameter.
        self._shown[readouts] = shown - (rank - self._rank_then[readouts])[:, None]
        is_bad = outcome[:, WORST] > self._tolerances(known)
        self.knowledge.reopen(readouts[is_bad])
        return int(is_bad.sum())

    def measure(self, readouts: IntArray) -> None:
        """Set the misfit of positions that nothing explains to what their best fit leaves.

        It stays NaN where the clean probes are too few to contradict a fit.
        """
        outcome, _ = self._fit(readouts, self.known(readouts))
        is_judged = outcome[:, CLEAN] > outcome[:, RANK]
        self.misfit[readouts] = np.where(is_judged, outcome[:, WORST], np.nan)

    def _fit(self, readouts: IntArray, known: Known) -> tuple[FloatArray, IntArray]:
        """Fit neighbourhoods as they are, and keep their constants and terms."""
        outcome = np.zeros((len(readouts), 4))
        shown = np.zeros((len(readouts), 2), dtype=np.int64)
        data = self.readings.data
        with self._timed("fitting"):
            run_in_parts(
                lambda low, high: check_fits(
                    low,
                    high,
                    readouts,
                    data,
                    self.members,
                    self.count,
                    known,
                    self.constant,
                    self.terms,
                    self.is_determined,
                    self._since,
                    outcome,
                    shown,
                ),
                len(readouts),
            )
        return outcome, shown

    def hubs(self) -> tuple[IntArray, Known]:
        """Return the positions that take terms over, and these; their constants are refitted."""
        everything = np.flatnonzero(~self.knowledge.is_settled)
        known = self.known(everything)
        counts = np.diff(known.start)
        is_hub = counts > 0
        start = np.concatenate([[0], np.cumsum(counts[is_hub])]).astype(np.int64)
        hubs, known = everything[is_hub], known._replace(start=start)
        self._fit(hubs, known)
        return hubs, known

    def _signatures(self, readouts: IntArray, known: Known) -> NDArray[np.uint64]:
        """Return a number for each neighbourhood that changes when it does."""
        members = self._members_of(readouts)
        hashed = np.where(members >= 0, mix64(members), np.uint64(0))
        signature: NDArray[np.uint64] = hashed.sum(axis=1, dtype=np.uint64)
        at = np.repeat(np.arange(len(readouts)), np.diff(known.start))
        np.add.at(signature, at, mix64(known.position))
        signature += np.uint64(1)
        return signature

    def improve(self, *, rank: bool = True) -> int:
        """Search neighbourhoods for the unresolved positions; return how many were resolved.

        Parameters
        ----------
        rank : bool
            Rank all sources anew; otherwise only those named before are considered.
        """
        readouts = np.flatnonzero(~self.knowledge.is_resolved)
        if len(readouts) == 0:
            return 0
        known, data = self.known(readouts), self.readings.data
        lists = [self._few_claims(readouts), self._members_of(readouts)]
        if rank:
            with self._timed("ranking"):
                left = leftovers(readouts, data, self.members, self.count, known)
                # A resolved position has named its neighbours already.
                favour = np.where(self.knowledge.is_resolved, RESOLVED_FAVOUR, 1.0)
                lists.append(rank_sources(left, readouts, data, favour, SHORTLIST)[0])
        shortlist, price = self._priced(readouts, lists)
        with self._timed("fitting"):
            explained = search_neighbourhoods(
                readouts,
                data,
                shortlist,
                price,
                known,
                self._tolerances(known),
                SPARE,
                self.members,
                self.count,
            )
        self.knowledge.resolve(readouts[explained])
        self.has_claims[readouts] = explained
        # Terms of earlier members must not be taken over: fit the new ones first.
        self.is_determined[readouts] = False
        fresh = readouts[explained]
        self._fit(fresh, self.known(fresh))
        self.recheck()
        return int(explained.sum())

    def _few_claims(self, readouts: IntArray) -> IntArray:
        """Return the positions that claim each readout, at most ``OWN_CLAIMS`` of them."""
        at, position, _ = self._claims_on(readouts)
        count = np.bincount(at, minlength=len(readouts))
        rank = np.arange(len(at)) - (np.cumsum(count) - count)[at]
        claims = np.full((len(readouts), OWN_CLAIMS), -1)
        few = rank < OWN_CLAIMS
        claims[at[few], rank[few]] = position[few]
        claims[count > OWN_CLAIMS] = -1
        return claims

    def _priced(self, readouts: IntArray, lists: list[IntArray]) -> tuple[IntArray, FloatArray]:
        """Join short lists without repetition, and price each source."""
        shortlist = np.concatenate(lists, axis=1)
        price = np.full(shortlist.shape, math.log(len(self.count)) + MARGIN)
        source = np.maximum(shortlist, 0)
        names_back = (
            self._members_of(source.ravel()).reshape(*source.shape, -1) == readouts[:, None, None]
        ).any(axis=2)
        price[names_back] = MUTUAL_PRICE
        price[:, : lists[0].shape[1]] = CLAIMED_PRICE
        for later in range(1, shortlist.shape[1]):
            seen = (shortlist[:, :later] == shortlist[:, later, None]).any(axis=1)
            shortlist[seen, later] = -1
        # The best first: pairs are tried among these.
        order = np.argsort(shortlist < 0, axis=1, kind="stable")
        shortlist = np.take_along_axis(shortlist, order, axis=1)
        return np.ascontiguousarray(shortlist), np.take_along_axis(price, order, axis=1)


class Validated:
    """Remembers components by a key that their positions and edges make.

    Parameters
    ----------
    found : Neighbourhoods
        As it stands whenever something is asked.
    """

    def __init__(self, found: Neighbourhoods) -> None:
        self._found = found
        self._keys: Set[int] = frozenset()

    def edges(self) -> IntArray:
        """Return the edges between positions that were not given up."""
        edges = self._found.edges()
        return edges[~self._found.knowledge.is_given_up[edges].any(axis=1)]

    def components(self) -> tuple[IntArray, list[int]]:
        """Label the components as they are, and return the key of each."""
        edges, length = self.edges(), len(self._found.count)
        label = components(length, edges)
        keys = np.zeros(int(label.max()) + 1, dtype=np.uint64)
        np.add.at(keys, label, mix64(np.arange(length)))
        hashed = mix64(edges[:, 0] * length + edges[:, 1] + length)
        np.add.at(keys, label[edges[:, 0]], hashed)
        return label, [int(key) for key in keys]

    def keys(self) -> Set[int]:
        """Return the keys of the components as they are."""
        return frozenset(self.components()[1])

    def note(self, before: Set[int]) -> None:
        """Note that components were validated; those that changed since then were not."""
        self._keys = before & self.keys()

    def forget(self) -> None:
        """Let everything be validated again."""
        self._keys = frozenset()

    def are_among(self, keys: Set[int]) -> BoolArray:
        """Say of each position whether its component is among some, shape (N,)."""
        label, mine = self.components()
        return np.array([key in keys for key in mine], dtype=np.bool_)[label]

    def pending(self) -> IntArray:
        """Return the resolved positions whose component has not been validated as it is."""
        return np.flatnonzero(self._found.knowledge.is_found & ~self.are_among(self._keys))
