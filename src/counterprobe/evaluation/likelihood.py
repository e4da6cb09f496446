"""How probable an oracle finds sequences: by the chain rule in random orders, or one by one.

``log p(x) = sum_k log q_{o_k}(x_{o_k} | context, x_{o_1} .. x_{o_(k-1)})`` for an order o of the
masked positions. With the rows of an exact law every order gives the same number. A learned model
is consistent with no law, and its orders disagree; by how much is a measure of the model itself,
below which differences between samplers mean little. An oracle whose rows depend on the order of
commits is asked for whole sequences at once: one evaluation an order.

The *pseudo-log-likelihood* ``sum_i log q_i(x_i | x without i)`` is no probability of a sequence,
but ranks the outputs of masked models (Salazar and others, "Masked Language Model Scoring", ACL
2020): every position is masked alone, and everything else is shown.

A model likes what is ordinary: a sampler that repeats one likely sequence scores higher than one
that draws from the model's law, whose mean is minus its entropy. So a log-likelihood is read
beside that of a sequential reference and beside the diversity, never alone. It is of temperature 1
also where the oracle's law has another one: sequences of two temperatures can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import Oracle, Readouts, as_oracle, depends_on_order
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Ledger
from counterprobe.run.requests import Probe, Requests, Stream
from counterprobe.run.run import measure
from counterprobe.states import MASK, as_contexts, as_states
from counterprobe.streams import keyed_generator

__all__ = ["LogLikelihoods", "OrderDisagreement", "log_likelihoods", "pseudo_log_likelihoods"]

# States in one call, by default.
AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class OrderDisagreement:
    """How far apart two random orders put one sequence, in nats.

    Attributes
    ----------
    mean_absolute : float
        Mean absolute difference between two orders of one sequence.
    standard_deviation : float
        Of one order's log-likelihood around the mean of all orders of its sequence.
    sequences : int
        Sequences that were compared.
    """

    mean_absolute: float
    standard_deviation: float
    sequences: int


@dataclass(frozen=True, slots=True, eq=False)
class LogLikelihoods:
    """Log-likelihoods of sequences, in nats.

    Attributes
    ----------
    values : ndarray of float, shape (count, orders)
        One per sequence and order; minus infinity for a sequence that the oracle excludes, NaN for
        one that is not complete.
    num_tokens : ndarray of int, shape (count,)
        Positions of each sequence that were scored: those that no context gave.
    ledger : Ledger
        What measuring was charged, as probes.
    """

    values: FloatArray
    num_tokens: IntArray
    ledger: Ledger

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        self.values.setflags(write=False)
        self.num_tokens.setflags(write=False)

    @property
    def per_sequence(self) -> FloatArray:
        """The mean over orders, shape ``(count,)``."""
        mean: FloatArray = self.values.mean(axis=1)
        return mean

    @property
    def per_token(self) -> FloatArray:
        """Nats per scored position, shape ``(count,)``; NaN where nothing was masked."""
        scored = np.where(self.num_tokens == 0, np.nan, self.num_tokens)
        ratio: FloatArray = self.per_sequence / scored
        return ratio

    @property
    def disagreement(self) -> OrderDisagreement:
        """How far apart the orders are; of complete sequences, and NaN for a single order."""
        known = self.values[np.isfinite(self.values).all(axis=1)]
        orders = self.values.shape[1]
        if orders < 2 or not len(known):
            return OrderDisagreement(math.nan, math.nan, len(known))
        first, second = np.triu_indices(orders, 1)
        gaps = np.abs(known[:, first] - known[:, second])
        variance = known.var(axis=1, ddof=1).mean()
        return OrderDisagreement(float(gaps.mean()), math.sqrt(variance), len(known))


def log_likelihoods(
    oracle: Oracle,
    sequences: ArrayLike,
    *,
    given: ArrayLike | None = None,
    orders: int = 1,
    seed: int = 0,
    at_once: int = AT_ONCE,
) -> LogLikelihoods:
    """Score sequences by the chain rule, each in fresh random orders of its own.

    Every state is known beforehand: all of them are one stage, streamed.

    Parameters
    ----------
    oracle : Oracle
        One state per position and order is submitted; where rows depend on the order of commits
        (ProteinMPNN with ``order="commit"``), one an order, given context decoded first.
    sequences : array_like of int, shape (count, N) or (N,)
        Tokens; a sequence that still has a mask is not scored.
    given : array_like of int, shape (N,) or (count, N), optional
        Context, ``MASK`` at the positions to score: everything by default.
    orders : int
        Random orders per sequence; two or more show how much they disagree.
    seed : int
        Order k of sequence s depends on the seed, s and k alone.
    at_once : int
        States in one call of the oracle, at most.

    Examples
    --------
    >>> import numpy as np, counterprobe as cp
    >>> law = cp.TableLaw(np.array([[0.5, 0.1], [0.1, 0.3]]))
    >>> scored = log_likelihoods(law.oracle(), [[0, 0], [1, 0]], orders=2)
    >>> np.exp(scored.values).round(3).tolist(), scored.ledger.evaluations
    ([[0.5, 0.5], [0.1, 0.1]], 8)
    """
    oracle = as_oracle(oracle)
    probes = _in_one_pass if depends_on_order(oracle) else _step_by_step
    return _score(oracle, sequences, given, orders, seed, at_once, probes)


def pseudo_log_likelihoods(
    oracle: Oracle,
    sequences: ArrayLike,
    *,
    given: ArrayLike | None = None,
    at_once: int = AT_ONCE,
) -> LogLikelihoods:
    """Score sequences position by position, each masked alone and everything else shown.

    Parameters
    ----------
    oracle : Oracle
    sequences : array_like of int, shape (count, N) or (N,)
        Tokens; a sequence that still has a mask is not scored.
    given : array_like of int, shape (N,) or (count, N), optional
        Context, ``MASK`` at the positions to score: everything by default.
    at_once : int
        States in one call of the oracle, at most.

    Returns
    -------
    LogLikelihoods
        With one column; a position costs one evaluation.

    Examples
    --------
    >>> import numpy as np, counterprobe as cp
    >>> law = cp.TableLaw(np.array([[0.5, 0.1], [0.1, 0.3]]))
    >>> scored = pseudo_log_likelihoods(law.oracle(), [[0, 0]])
    >>> np.exp(scored.values).round(3).tolist(), scored.ledger.evaluations  # 5/6 squared
    ([[0.694]], 2)
    """
    by_index = as_oracle(oracle).by_index()
    return _score(by_index, sequences, given, 1, 0, at_once, _masked_alone)


# ----- Scoring ------------------------------------------------------------------------------


def _score(
    oracle: Oracle,
    sequences: ArrayLike,
    given: ArrayLike | None,
    orders: int,
    seed: int,
    at_once: int,
    probes: Callable[[StateArray, IntArray, int], Iterator[Probe]],
) -> LogLikelihoods:
    """Add up the log-probabilities of the tokens that some probes read, all in one stage.

    Parameters
    ----------
    oracle, sequences, given, orders, seed, at_once
        As in :func:`log_likelihoods`.
    probes : callable
        ``probes(tokens, ranks, at_once)``: the label of each probe holds the sequence, the order
        and the position of each readout.
    """
    orders = whole_number("orders", orders, at_least=1)
    at_once = whole_number("at_once", at_once, at_least=1)
    tokens = as_states(sequences, oracle.length, oracle.vocab_size, name="sequences")
    contexts = as_contexts(given, oracle.length, oracle.vocab_size, len(tokens))
    _check_context(tokens, contexts)
    is_complete = (tokens != MASK).all(axis=1)
    values = np.where(is_complete[:, None], np.zeros(orders), np.nan)
    ranks = _ranks(contexts, orders, seed)
    ranks[~is_complete] = -1

    def add(probe: Probe, rows: Rows) -> None:
        sequence, order, position = probe.label
        shown = tokens[sequence, position].astype(np.int64)
        log_prob = to_numpy(rows.own.log_prob(shown)).astype(np.float64)
        np.add.at(values, (sequence, order), log_prob)

    def requests() -> Requests[None]:
        yield Stream(probes(tokens, ranks, at_once), add)

    _, ledger = measure(oracle, [requests()])
    return LogLikelihoods(values, (contexts == MASK).sum(axis=1).astype(np.int64), ledger)


def _step_by_step(tokens: StateArray, ranks: IntArray, at_once: int) -> Iterator[Probe]:
    """Yield one state per order and position, from the first position of each order on.

    Parameters
    ----------
    tokens : ndarray of int, shape (count, N)
    ranks : ndarray of int, shape (count, orders, N)
        When each position is scored, -1 for context.
    at_once : int
    """
    sequence, order, position = np.nonzero(ranks >= 0)
    step = ranks[sequence, order, position]
    turn = np.lexsort((step, order, sequence))
    for low in range(0, len(turn), at_once):
        now = turn[low : low + at_once]
        s, k, here = sequence[now], order[now], position[now]
        states = np.where(ranks[s, k] < step[now, None], tokens[s], MASK)
        yield Probe(states, Readouts.pairs(np.arange(len(now)), here), (s, k, here))


def _in_one_pass(tokens: StateArray, ranks: IntArray, at_once: int) -> Iterator[Probe]:
    """Yield one state per order, read at revealed positions, each given those before it."""
    every = np.argwhere((ranks >= 0).any(axis=2))
    for low in range(0, len(every), at_once):
        s, k = every[low : low + at_once].T
        mine = ranks[s, k]
        # One after another, context first and by index.
        turns = np.argsort(np.argsort(mine, axis=1, kind="stable"), axis=1)
        index, position = np.nonzero(mine >= 0)
        where = s[index], k[index], position
        yield Probe(tokens[s], Readouts.pairs(index, position), where, ranks=turns)


def _masked_alone(tokens: StateArray, ranks: IntArray, at_once: int) -> Iterator[Probe]:
    """Yield one state per position, which alone is masked in it."""
    sequence, order, position = np.nonzero(ranks >= 0)
    for low in range(0, len(sequence), at_once):
        s, k, here = (part[low : low + at_once] for part in (sequence, order, position))
        each = np.arange(len(s))
        states = tokens[s].copy()
        states[each, here] = MASK
        yield Probe(states, Readouts.pairs(each, here), (s, k, here))


def _check_context(tokens: StateArray, contexts: StateArray) -> None:
    wrong = (contexts != MASK) & (tokens != contexts)
    if wrong.any():
        row, column = (int(k) for k in np.argwhere(wrong)[0])
        raise ValueError(
            f"sequences must agree with given, got {int(tokens[row, column])} and not "
            f"{int(contexts[row, column])} in sequence {row + 1} at position {column + 1}"
        )


def _ranks(contexts: StateArray, orders: int, seed: int) -> IntArray:
    """Return when each position is scored in each order, shape ``(count, orders, N)``.

    The first is number 0; context comes before all, at -1.
    """
    ranks = np.full((len(contexts), orders, contexts.shape[1]), -1)
    for s, context in enumerate(contexts):
        masked = np.flatnonzero(context == MASK)
        for k in range(orders):
            order = keyed_generator(seed, "likelihood order", s, k).permutation(masked)
            ranks[s, k, order] = np.arange(len(order))
    return ranks
