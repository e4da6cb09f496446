"""One structure of several: what positions depend on in the mean over contexts.

What a masked language model finds at a position depends on the letters around it, so that the
structure of one text is partly that text's. A mean over several (other fillings, other chains of a
family) keeps what they share. It is a guess about every further context, to be priced there.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.discovery.structure import (
    Strengths,
    Structure,
    half_fields,
    halves_as_arrays,
    halves_in,
    no_nearness,
)
from counterprobe.errors import StructureError
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

__all__ = ["average_structures"]


def average_structures(structures: Sequence[Structure]) -> Structure:
    """Average strengths over the contexts in which both positions of a pair were masked.

    Structures of other lengths are put onto the positions of one first, with
    ``structure.in_context(given, places=...)``.

    Parameters
    ----------
    structures : sequence of Structure
        With strengths, of one length and vocabulary. The oracle is recognised by the stored
        replies of the first.

    Returns
    -------
    Structure
        Masked wherever any of them knows something. Of several contexts it has a price in none:
        ``infill`` measures one before it draws. The standard error of a strength is that of
        the mean over contexts where there are several. Edges are those that at least half of the
        contexts found, strongest first; the ledger is that of all.

    Examples
    --------
    >>> import counterprobe as cp
    >>> oracle = cp.families.path(8, target_seed=1).oracle()
    >>> found = [
    ...     cp.discover(oracle, cp.Streams.from_seed(k), mode="soft", probes=48) for k in range(2)
    ... ]
    >>> average_structures(found).ledger.evaluations == sum(
    ...     one.ledger.evaluations for one in found
    ... )
    True
    """
    if not structures:
        raise ValueError("structures must be at least one, got none")
    first = structures[0]
    for one in structures[1:]:
        if (one.length, one.vocab_size) != (first.length, first.vocab_size):
            raise StructureError(
                f"structures must be of one length and vocabulary, got {one.length} positions and "
                f"{one.vocab_size} tokens beside {first.length} and {first.vocab_size}; put them "
                "onto the positions of one with in_context(given, places=...)"
            )
    parts = [one.estimated for one in structures]
    is_known = np.array([np.isfinite(one.moved) for one in parts])
    is_known &= np.array([one.given == MASK for one in structures])
    together = is_known[:, :, None] & is_known[:, None, :]
    matrices = np.where(together, [one.strength for one in structures], 0.0)
    errors = np.where(together, [one.strength_se for one in structures], 0.0)
    count = together.sum(axis=0)
    strength = matrices.sum(axis=0) / np.maximum(count, 1)
    spread = ((matrices - strength) ** 2 * together).sum(axis=0) / np.maximum(count - 1, 1)
    within = np.sqrt((errors**2).sum(axis=0)) / np.maximum(count, 1)
    error = np.where(count > 1, np.sqrt(spread / np.maximum(count, 1)), within)
    i, j = np.nonzero(np.triu(strength, 1) > 0)
    moved, most_moved, explained = (
        np.where(is_known, [getattr(one, name) for one in parts], np.nan)
        for name in ("moved", "most_moved", "explained")
    )
    with warnings.catch_warnings():
        # Of a position that nobody knows there is no mean.
        warnings.simplefilter("ignore", RuntimeWarning)
        explained = np.nanmean(moved * explained, axis=0)
        moved, most_moved = np.nanmean(moved, axis=0), np.nanmax(most_moved, axis=0)
    share = np.divide(explained, moved, out=np.zeros_like(moved), where=moved > 0)
    given = np.where(is_known.any(axis=0), MASK, first.given).astype(np.int32)
    found_in = {(one.given.tobytes(), one.origin) for one in structures}
    contexts = max(len(found_in), *(one.about.get("contexts", 1) for one in structures))
    strengths = Strengths(
        pairs=np.stack([i, j], axis=1),
        nats=strength[i, j],
        nats_se=error[i, j],
        moved=moved,
        most_moved=most_moved,
        explained=np.where(np.isfinite(moved), np.clip(share, 0.0, 1.0), np.nan),
        false_discovery_rate=max(one.false_discovery_rate for one in parts),
        noise_floor=float(np.mean([one.noise_floor for one in parts])),
        num_probes=sum(one.num_probes for one in parts),
        **_mean_halves(structures, is_known, given),
    )
    return replace(
        first,
        given=given,
        edges=_shared_edges(structures, strength, count),
        ledger=sum((one.ledger for one in structures), Ledger()),
        about={**first.about, "contexts": contexts},
        certificate=None,
        strengths=strengths,
        nearness=_mean_nearness(structures, count, given),
    )


def _mean_nearness(
    structures: Sequence[Structure], count: IntArray, given: StateArray
) -> NDArray[np.float32]:
    """Average by what share positions are near, over structures that knew both of a pair.

    None where one structure does not know it, or where two positions were never masked together:
    what is not known must not count as far.
    """
    masked, known = np.flatnonzero(given == MASK), [one.nearness for one in structures]
    if not all(near.size for near in known) or not count[np.ix_(masked, masked)].all():
        return no_nearness()
    near = np.sum(known, axis=0) / np.maximum(count, 1)
    return np.asarray(near / np.maximum(near.sum(axis=1), 1)[:, None], dtype=np.float32)


def _mean_halves(
    structures: Sequence[Structure], is_known: BoolArray, given: StateArray
) -> dict[str, Any]:
    """Average each half over the structures that know a pair; none where one has no halves."""
    if any(one.halves is None for one in structures):
        return halves_as_arrays(None)
    parts = [halves_in(one, given) for one in structures]
    masked = np.flatnonzero(given == MASK)
    i, j = (masked[ends] for ends in np.triu_indices(len(masked), 1))
    together = (is_known[:, i] & is_known[:, j]).sum(axis=0)
    count = np.maximum(together, 1)
    strength = np.sum([part["half_strength"] for part in parts], axis=0) / count
    variance = np.nansum([part["half_variance"] for part in parts], axis=0) / count**2
    variance[:, together == 0] = np.nan
    is_selected = np.any([part["half_selected"] for part in parts], axis=0)
    return half_fields(strength, variance, is_selected)


def _shared_edges(
    structures: Sequence[Structure], strength: FloatArray, count: IntArray
) -> IntArray:
    """Return the pairs that at least half of those who could know them list, strongest first."""
    votes = np.zeros(strength.shape, dtype=np.int64)
    for one in structures:
        i, j = np.sort(one.edges, axis=1).T
        votes[i, j] += 1
    i, j = np.nonzero((votes > 0) & (2 * votes >= count))
    order = np.argsort(-strength[i, j], kind="stable")
    return np.stack([i[order], j[order]], axis=1)
