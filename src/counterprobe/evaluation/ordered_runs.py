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

from collections.abc import Sequence

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.evaluation.chains import Limits, in_groups
from counterprobe.evaluation.plan_runs import PlanRun, Round
from counterprobe.oracles import HistoryQuery, Oracle, Readouts
from counterprobe.oracles.checks import ReplyCheck
from counterprobe.rows import Rows, kl_divergence, to_numpy
from counterprobe.run.door import Door
from counterprobe.run.history import Histories
from counterprobe.run.ledger import Right
from counterprobe.run.results import SampleResult
from counterprobe.run.transcript import Whole
from counterprobe.states import MASK

__all__ = ["finished_terms", "ordered_terms"]

Places = tuple[IntArray, IntArray]


def ordered_terms(
    run: PlanRun,
    door: Door,
    group: slice,
    *,
    is_joint: bool = False,
    tokens: StateArray | None = None,
) -> FloatArray:
    """Compare batches with their positions one after another.

    Parameters
    ----------
    run : PlanRun
    door : Door
    group : slice
        Samples that are followed together.
    is_joint : bool
        Draw one position at a time, and sum ``KL(p_i || q_i)``; every position is an evaluation.
    tokens : ndarray of int, shape (samples, N), optional
        What was drawn in batches; drawn here by default.

    Returns
    -------
    ndarray of float, shape (samples of the group, R)
        Which round's positions contribute how much. A batch of one contributes what larger ones
        before it left behind.
    """
    contexts = run.contexts[group]
    noise, uniforms = run.noise(group)
    rounds = [run.round(t, group, noise) for t in range(run.num_rounds)]
    together = [_places(now) for now in rounds]
    batch_of = np.where(contexts == MASK, len(rounds), -1)
    for t, where in enumerate(together):
        batch_of[where] = t
    if is_joint:
        apart = [where for now in rounds for where in _one_by_one(now)]
        wide, states = _follow(door, contexts, apart, None, uniforms)
        narrow, _ = _follow(door, contexts, together, states, uniforms)
        divergence = kl_divergence(wide, narrow)
    else:
        known = None if tokens is None else tokens[group]
        narrow, states = _follow(door, contexts, together, known, uniforms)
        wide = _in_one_pass(door, states, _ranks(batch_of, noise), batch_of)
        divergence = kl_divergence(narrow, wide)
    run.largest_divergence = max(run.largest_divergence, float(divergence.max(initial=0.0)))
    found = np.zeros((len(contexts), len(rounds)))
    for t in range(len(rounds)):
        found[:, t] = np.where(batch_of == t, divergence, 0.0).sum(axis=1)
    return found


def finished_terms(
    oracle: Oracle,
    runs: Sequence[SampleResult],
    check: ReplyCheck,
    whole: Whole,
    limits: Limits,
    seed: int,
) -> tuple[FloatArray, float]:
    """Follow finished runs once more, and compare them with one position at a time.

    Parameters
    ----------
    oracle : Oracle
    runs : sequence of SampleResult
        Completed.
    check : ReplyCheck
    whole : Whole
        Is charged.
    limits : Limits
    seed : int
        Of the order inside batches.

    Returns
    -------
    terms : ndarray of float, shape (len(runs), R)
    largest : float
        The largest divergence of any row.
    """
    for run in runs:
        if Right.COMMIT_CANDIDATES in run.rights:
            raise ValueError(
                f"run {run.sequence} of {run.sampler} must commit what it draws, but it chose "
                "among values; in commit order such batches have no price: use order='index'"
            )
    plans = [list(run.batches) for run in runs]
    followed = PlanRun(plans, np.stack([run.given for run in runs]), seed)
    tokens = np.stack([run.state for run in runs])
    found = np.zeros((len(runs), followed.num_rounds))
    for group in in_groups([oracle.length] * len(runs), limits):
        door = Door(oracle, check=check, whole=whole)
        found[group] = ordered_terms(followed, door, group, tokens=tokens)
    return found, followed.largest_divergence


def _places(now: Round) -> Places:
    """Return the members and positions of a round."""
    return np.repeat(now.members, now.sizes), np.concatenate([np.empty(0, np.int64), *now.batches])


def _one_by_one(now: Round) -> list[Places]:
    """Split a round: the k-th part has the k-th position of every batch that has one."""
    found = []
    for k in range(max(now.sizes, default=0)):
        active = np.flatnonzero(now.sizes > k)
        position = np.array([now.batches[b][k] for b in active], dtype=np.int64)
        found.append((now.members[active], position))
    return found


def _ranks(batch_of: IntArray, noise: FloatArray) -> IntArray:
    """Order positions by batch and, inside a batch, by noise; given context by index."""
    length = batch_of.shape[1]
    inside = np.where(batch_of < 0, np.arange(length) / length, noise)
    ranks: IntArray = np.argsort(np.lexsort((inside, batch_of), axis=1), axis=1)
    return ranks


def _follow(
    door: Door,
    contexts: StateArray,
    rounds: Sequence[Places],
    tokens: StateArray | None,
    uniforms: FloatArray,
) -> tuple[FloatArray, StateArray]:
    """Commit round after round; return rows where they were read, and the states at the end.

    Parameters
    ----------
    door : Door
    contexts : ndarray of int, shape (B, N)
    rounds : sequence of (members, positions)
    tokens : ndarray of int, shape (B, N), or None
        What to commit; drawn with ``uniforms`` otherwise.
    uniforms : ndarray of float, shape (B, N)
    """
    histories = Histories(contexts.copy())
    states = histories.states
    found = _unread(door, states)
    for t, (member, position) in enumerate(rounds):
        moving, index = np.unique(member, return_inverse=True)
        if not len(moving):
            continue
        with door.stage("probe") as stage:
            rows = stage.ask_now(histories.query(moving, Readouts.pairs(index, position))).rows
        found[member, position] = _in_double(rows)
        if tokens is None:
            committed = rows.draw(uniforms[member, position])
        else:
            committed = tokens[member, position].astype(np.int64)
        states[member, position] = committed
        histories.commit(member, position, t)
    return found, states


def _in_one_pass(
    door: Door, states: StateArray, ranks: IntArray, batch_of: IntArray
) -> FloatArray:
    """Return the rows of all that was committed when it is committed one position at a time."""
    found = _unread(door, states)
    member, position = np.nonzero((batch_of >= 0) & (states != MASK))
    if len(member):
        readouts = Readouts.pairs(member, position)
        with door.stage("probe") as stage:
            rows = stage.ask_now(HistoryQuery(states, readouts, ranks)).rows
        found[member, position] = _in_double(rows)
    return found


def _unread(door: Door, states: StateArray) -> FloatArray:
    """Return one row per position, alike everywhere, to be written over."""
    return np.full((*states.shape, door.vocab_size), 1 / door.vocab_size)


def _in_double(rows: Rows) -> FloatArray:
    """Return rows that sum to one: what single precision rounds would add up over a sequence."""
    plain = to_numpy(rows.dense()).astype(np.float64)
    scaled: FloatArray = plain / plain.sum(axis=1, keepdims=True)
    return scaled
