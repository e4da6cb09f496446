"""``fill_mask``: the likeliest ways to fill in several masks together.

The fill-mask call of other libraries ranks words for each mask on its own; several masks then get
words that do not go together. Here completions are ranked by their joint probability, the product
of a model's rows along one order of the masks, and what independent masks would have said stands
beside it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.infilling.task import Task, make_task
from counterprobe.models import Template
from counterprobe.models.template import Allowed
from counterprobe.oracles import Readouts
from counterprobe.rows import to_numpy
from counterprobe.run.ledger import Ledger
from counterprobe.run.requests import Probe, Requests
from counterprobe.run.run import measure
from counterprobe.states import MASK

__all__ = ["Completion", "Completions", "fill_mask"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One way to fill in the masks.

    Attributes
    ----------
    text : str or None
        The whole text; None where nothing can spell.
    tokens : tuple of int
        The tokens at the masks, in increasing order of position.
    log_joint : float
        Log-probability of them together.
    log_independent : float
        What independent masks would have said: the sum of their log-rows with all masked.
    """

    text: str | None
    tokens: tuple[int, ...]
    log_joint: float
    log_independent: float


@dataclass(frozen=True, slots=True)
class Completions(Sequence[Completion]):
    """Completions by joint probability, the likeliest first.

    Attributes
    ----------
    ranked : tuple of Completion
    independent : tuple of Completion
        What independent masks would have put first, with their joint probabilities.
    positions : tuple of int
        Where the masks are.
    order : tuple of int
        The order of the masks that joint probabilities are products along.
    is_exhaustive : bool
        Whether every completion was compared; otherwise a beam was, and a better one may exist.
    ledger : Ledger
        What it cost.
    measuring : Ledger
        What building the oracle evaluated, apart from ``ledger``.
    """

    ranked: tuple[Completion, ...]
    independent: tuple[Completion, ...]
    positions: tuple[int, ...]
    order: tuple[int, ...]
    is_exhaustive: bool
    ledger: Ledger
    measuring: Ledger

    def __len__(self) -> int:
        """Return the number of completions."""
        return len(self.ranked)

    def __getitem__(self, index: Any) -> Any:
        """Return a completion, or several."""
        return self.ranked[index]


def fill_mask(
    model: Any,
    template: Template | str | ArrayLike | None = None,
    *,
    top_k: int = 5,
    beam: int = 32,
    allowed: Allowed | None = None,
    model_options: Mapping[str, Any] | None = None,
    oracle_options: Mapping[str, Any] | None = None,
) -> Completions:
    """Return the likeliest joint completions of a text with masks.

    A beam search along one order of the masks, the most certain first: it evaluates one state,
    then for each further mask the ``beam`` best beginnings. Where there are at most ``beam``
    completions of all masks but the last, every one is compared.

    Parameters
    ----------
    model, template, allowed, model_options, oracle_options
        As for ``infill``.
    top_k : int
        Completions to return.
    beam : int
        Beginnings that are followed.

    Examples
    --------
    >>> import counterprobe as cp
    >>> both = cp.fill_mask(
    ...     "sapiens-heavy", "EVQLVESGGGLVQPGXSLRLXCAAS", top_k=2, model_options={"device": "cpu"}
    ... )
    >>> [one.text for one in both][0], both.ledger.evaluations
    ('EVQLVESGGGLVQPGGSLRLSCAAS', 23)
    """
    top_k = whole_number("top_k", top_k, at_least=1)
    beam = whole_number("beam", beam, at_least=1)
    task = make_task(
        model,
        template,
        allowed=allowed,
        model_options=model_options,
        oracle_options=oracle_options,
    )
    masked = np.flatnonzero(task.given == MASK)
    if len(masked) == 0:
        only = _completion(task, masked, (), 0.0, 0.0)
        return Completions((only,), (only,), (), (), True, Ledger(), Ledger())
    [found], ledger = measure(task.probed, [_complete(task, masked, top_k, beam)])
    return replace(found, ledger=ledger, measuring=Ledger(probes=task.num_measured))


def _complete(task: Task, masked: IntArray, top_k: int, beam: int) -> Requests[Completions]:
    """Find the likeliest completions, and those of independent masks."""
    marginals = yield from _log_rows(task.given[None, :], Readouts.same(1, masked))
    entropy = -(np.exp(marginals) * np.where(np.isinf(marginals), 0, marginals)).sum(axis=1)
    surest = np.argsort(entropy, kind="stable")
    order = masked[surest]
    found, is_exhaustive = yield from _search(task.given, order, marginals[surest], beam)
    rank = np.searchsorted(masked, order)

    def described(tokens: IntArray, joint: float) -> Completion:
        in_place = np.empty(len(masked), dtype=np.int64)
        in_place[rank] = tokens
        alone = float(marginals[np.arange(len(masked)), in_place].sum())
        return _completion(task, masked, tuple(in_place.tolist()), joint, alone)

    ranked = [described(tokens, joint) for tokens, joint in found[:top_k]]
    best_alone = np.array([tokens for _, tokens in _likeliest(marginals[rank], top_k)])
    joints = yield from _joint(task.given, order, best_alone, marginals[rank[0]])
    independent = [described(*one) for one in zip(best_alone, joints.tolist(), strict=True)]
    return Completions(
        tuple(ranked),
        tuple(independent),
        tuple(masked.tolist()),
        tuple(order.tolist()),
        is_exhaustive,
        ledger=Ledger(),
        measuring=Ledger(),
    )


def _completion(
    task: Task, masked: IntArray, tokens: tuple[int, ...], joint: float, alone: float
) -> Completion:
    state = task.given.copy()
    state[masked] = tokens
    texts = task.texts(state[None, :])
    return Completion(None if texts is None else texts[0], tokens, joint, alone)


def _log_rows(states: StateArray, readouts: Readouts) -> Requests[FloatArray]:
    """Read rows; return their logarithms, minus infinity for a token that cannot stand."""
    probed = yield Probe(states, readouts)
    rows = np.asarray(to_numpy(probed.rows.dense()), dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs: FloatArray = np.log(rows)
    return logs


def _search(
    given: StateArray, order: IntArray, marginals: FloatArray, beam: int
) -> Requests[tuple[list[tuple[IntArray, float]], bool]]:
    """Return completions, the likeliest first, and whether none is missing."""
    beginnings = np.empty((1, 0), dtype=np.int64)
    scores = np.zeros(1)
    is_exhaustive = True
    for k, position in enumerate(order):
        if k == 0:
            logs = marginals[:1]
        else:
            states = np.tile(given, (len(beginnings), 1))
            states[:, order[:k]] = beginnings
            logs = yield from _log_rows(states, Readouts.same(len(states), [position]))
        totals = (scores[:, None] + logs).reshape(-1)
        possible = np.flatnonzero(totals > -np.inf)
        kept = possible[np.argsort(-totals[possible], kind="stable")]
        if k < len(order) - 1 and len(kept) > beam:
            kept, is_exhaustive = kept[:beam], False
        parent, token = np.divmod(kept, logs.shape[1])
        beginnings = np.concatenate([beginnings[parent], token[:, None]], axis=1)
        scores = totals[kept]
    return list(zip(beginnings, scores.tolist(), strict=True)), is_exhaustive


def _likeliest(logs: FloatArray, count: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Yield the tokens of highest product, best first: log-rows of shape (masks, V)."""
    order = np.argsort(-logs, axis=1, kind="stable")
    best = np.take_along_axis(logs, order, axis=1)

    def total(ranks: tuple[int, ...]) -> float:
        return float(sum(best[m, r] for m, r in enumerate(ranks)))

    start = (0,) * len(logs)
    heap = [(-total(start), start)]
    seen = {start}
    for _ in range(count):
        if not heap or heap[0][0] == np.inf:
            return
        score, ranks = heapq.heappop(heap)
        yield -score, tuple(int(order[m, r]) for m, r in enumerate(ranks))
        for m, r in enumerate(ranks):
            further = (*ranks[:m], r + 1, *ranks[m + 1 :])
            if r + 1 < logs.shape[1] and further not in seen:
                seen.add(further)
                heapq.heappush(heap, (-total(further), further))


def _joint(
    given: StateArray, order: IntArray, tokens: IntArray, first: FloatArray
) -> Requests[FloatArray]:
    """Return the joint log-probability of completions, all their states in one stage."""
    totals: FloatArray = first[tokens[:, 0]].copy()
    if len(order) == 1:
        return totals
    states = np.tile(given, (len(order) - 1, len(tokens), 1))
    for k in range(1, len(order)):
        states[k - 1][:, order[:k]] = tokens[:, :k]
    flat = states.reshape(-1, len(given))
    readouts = Readouts.pairs(np.arange(len(flat)), np.repeat(order[1:], len(tokens)))
    logs = yield from _log_rows(flat, readouts)
    at = logs[np.arange(len(flat)), tokens[:, 1:].T.reshape(-1)]
    totals += at.reshape(len(order) - 1, len(tokens)).sum(axis=0)
    return totals
