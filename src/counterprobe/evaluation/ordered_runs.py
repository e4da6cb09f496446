"""Pricing batches where rows depend on the order of commits, as in ProteinMPNN's own sampler.

Such an oracle keeps what each position computed when it was committed, from those before it. In a
batch no position comes before another, so that batches differ from positions one at a time twice:
they are drawn independently, and what they computed without one another stays, for all that come
after. Both are in the divergence between the two laws of whole sequences, and the chain rule gives
it. With ``q_i`` the row that position i is drawn from in its batch, and ``p_i`` its row when all
before it were committed one at a time, the earlier ones of its own batch included,

    KL(batches || one at a time) = E sum_i KL(q_i || p_i)

over draws of the batches. The positions' own values are summed over rather than sampled. All
``p_i`` of a sequence that is known come from one pass (``a query with ranks``), so that a
price costs one evaluation per sample beside those that drew it.

One at a time means an order that keeps to the batches and is uniformly random inside each, a fresh
one for each sample; the law depends on it, and the price is a mean over such orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.evaluation.plan_runs import PlanRun, in_rounds
from counterprobe.oracles import Readouts
from counterprobe.rows import Rows, kl_divergence, to_numpy
from counterprobe.run.history import Histories
from counterprobe.run.ledger import Need
from counterprobe.run.requests import Probe, Requests
from counterprobe.run.results import SampleResult
from counterprobe.states import MASK

__all__ = ["divergences", "finished_terms", "ordered_terms"]

NOWHERE: IntArray = np.empty(0, dtype=np.int64)
# Turns the rows of some positions of some sequences into tokens.
Draw = Callable[[StateArray, IntArray, IntArray, Rows], IntArray]


def ordered_terms(
    run: PlanRun,
    group: slice,
    *,
    is_joint: bool = False,
    tokens: StateArray | None = None,
) -> Requests[tuple[FloatArray, float]]:
    """Compare batches with their positions one after another.

    Parameters
    ----------
    run : PlanRun
    group : slice
        Samples that are followed together.
    is_joint : bool
        Draw one position at a time, and sum ``KL(p_i || q_i)``; every position is an evaluation.
    tokens : ndarray of int, shape (samples, N), optional
        What was drawn in batches; drawn here by default.

    Returns
    -------
    found : ndarray of float, shape (samples of the group, R)
        Which round's positions contribute how much. A batch of one contributes what larger ones
        before it left behind.
    largest : float
        Largest divergence of any row.
    """
    divergence, batch_of = yield from divergences(run, group, is_joint=is_joint, tokens=tokens)
    found = np.zeros((len(batch_of), run.num_rounds))
    for t in range(run.num_rounds):
        found[:, t] = np.where(batch_of == t, divergence, 0.0).sum(axis=1)
    return found, float(divergence.max(initial=0.0))


def divergences(
    run: PlanRun, group: slice, *, is_joint: bool = False, tokens: StateArray | None = None
) -> Requests[tuple[FloatArray, IntArray]]:
    """Compare the rows of every position: in its batch, and one after another.

    Parameters
    ----------
    run, group, is_joint, tokens
        As in :func:`ordered_terms`.

    Returns
    -------
    divergence : ndarray of float, shape (samples of the group, N)
        Zero where nothing is committed.
    batch_of : ndarray of int, shape (samples of the group, N)
        The round of each position: -1 for given context, R where nothing is committed.
    """
    contexts = run.contexts[group]
    noise, uniforms = run.noise(group)
    batches = run.batches(group, noise)
    divergence = np.zeros(contexts.shape)
    batch_of = np.where(contexts == MASK, run.num_rounds, -1)
    for k, mine in enumerate(batches):
        for t, batch in enumerate(mine):
            batch_of[k, batch] = t
    where = np.nonzero((batch_of >= 0) & (batch_of < run.num_rounds))
    if not where[0].size:
        return divergence, batch_of
    if is_joint:
        # In each round the first of every batch, then the second of those that have one, ...
        widest = [max(map(len, now.values())) for now in in_rounds(batches)]
        singles = [
            [
                batch[k : k + 1]
                for batch, size in zip(mine, widest, strict=False)
                for k in range(size)
            ]
            for mine in batches
        ]
        wide, states = yield from _rows_of(contexts, singles, None, uniforms)
        narrow, _ = yield from _rows_of(contexts, batches, states, uniforms)
        divergence[where] = kl_divergence(wide, narrow)
    else:
        known = None if tokens is None else tokens[group]
        narrow, states = yield from _rows_of(contexts, batches, known, uniforms)
        ranks = _ranks(batch_of, noise)
        alone = (yield Probe(states, Readouts.pairs(*where), ranks=ranks)).rows
        divergence[where] = kl_divergence(narrow, _in_double(alone))
    return divergence, batch_of


def finished_terms(
    runs: Sequence[SampleResult], groups: Iterable[slice], seed: int
) -> Iterator[Requests[tuple[FloatArray, float]]]:
    """Follow finished runs once more, and compare them with one position at a time.

    Parameters
    ----------
    runs : sequence of SampleResult
        Completed.
    groups : iterable of slice
        Runs that are followed together.
    seed : int
        Of the order inside batches.
    """
    for run in runs:
        if Need.CANDIDATES in run.used:
            raise ValueError(
                f"run {run.sequence} of {run.sampler} must commit what it draws, but it chose "
                "among values; in commit order such batches have no price: use order='index'"
            )
    plans = [list(run.batches) for run in runs]
    followed = PlanRun(plans, np.stack([run.given for run in runs]), seed)
    tokens = np.stack([run.state for run in runs])
    for group in groups:
        yield ordered_terms(followed, group, tokens=tokens)


def _ranks(batch_of: IntArray, noise: FloatArray) -> IntArray:
    """Order positions by batch and, inside a batch, by noise; given context by index."""
    length = batch_of.shape[1]
    inside = np.where(batch_of < 0, np.arange(length) / length, noise)
    ranks: IntArray = np.argsort(np.lexsort((inside, batch_of), axis=1), axis=1)
    return ranks


def _rows_of(
    contexts: StateArray,
    batches: Sequence[Sequence[IntArray]],
    tokens: StateArray | None,
    uniforms: FloatArray,
) -> Requests[tuple[FloatArray, StateArray]]:
    """Commit batches; return the row of everything committed, and the states at the end.

    Parameters
    ----------
    contexts : ndarray of int, shape (B, N)
    batches : sequence of sequences of ndarray of int
        Of each sequence.
    tokens : ndarray of int, shape (B, N), or None
        What to commit; drawn with ``uniforms`` otherwise.
    uniforms : ndarray of float, shape (B, N)
    """
    seen: list[tuple[IntArray, IntArray, FloatArray]] = []

    def draw(states: StateArray, sequence: IntArray, position: IntArray, rows: Rows) -> IntArray:
        seen.append((sequence, position, _in_double(rows)))
        if tokens is None:
            return rows.draw(uniforms[sequence, position])
        return tokens[sequence, position].astype(np.int64)

    states = yield from _follow(contexts, batches, draw)
    sequence, position, rows = (np.concatenate(part) for part in zip(*seen, strict=True))
    return rows[np.lexsort((position, sequence))], states


def _follow(
    contexts: StateArray, batches: Sequence[Sequence[IntArray]], draw: Draw
) -> Requests[StateArray]:
    """Commit the batches of every sequence side by side; return the states at the end.

    Parameters
    ----------
    contexts : ndarray of int, shape (B, N)
    batches : sequence of sequences of ndarray of int
        Of each sequence; in a round in which its batch is empty it waits for the others.
    draw : callable
        ``draw(states, sequence, position, rows)`` returns a token per row.
    """
    histories = Histories(contexts.copy())
    states = histories.states
    for t, now in enumerate(itertools.zip_longest(*batches, fillvalue=NOWHERE)):
        sequence = np.repeat(np.arange(len(now)), [len(batch) for batch in now])
        position = np.concatenate(now)
        moving, index = np.unique(sequence, return_inverse=True)
        query = histories.query(moving, Readouts.pairs(index, position))
        probe = Probe(query.states, query.readouts, ranks=query.ranks, runs=query.runs)
        rows = (yield probe).rows
        states[sequence, position] = draw(states, sequence, position, rows)
        histories.commit(sequence, position, t)
    return states


def _in_double(rows: Rows) -> FloatArray:
    """Return rows that sum to one: what single precision rounds would add up over a sequence."""
    plain = to_numpy(rows.dense()).astype(np.float64)
    scaled: FloatArray = plain / plain.sum(axis=1, keepdims=True)
    return scaled
