"""How dependent a law or a model is: TC, DTC, effective TC and the curve that they are read from.

All three totals are weighted sums of one curve, ``h_j``: the mean entropy of a random position
given the values of j random others (``targets/curves.py``). The curve is exact by enumeration on a
table and in closed form on paths and small trees. Anything else is estimated through its oracle:
sequences are drawn one position at a time in random orders, then hidden again in parts. With all
but m positions shown, ``h_0 - h_{N-m}`` is the mean divergence of a hidden position's row from its
row with everything masked; the parts are consecutive pieces of a random order, so that every
position is hidden at every level. Each sequence gives one value of each total, and their spread
the standard errors.

With the rows of an exact law this is unbiased. A learned model is consistent with no law: its TC
is then what one product batch costs against its own random-order chain, and its curve need not
fall everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.evaluation.chain_rule_kl import standard_error
from counterprobe.oracles import Oracle, Readouts, as_oracle
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Ledger
from counterprobe.run.requests import Probe, Requests, Stream
from counterprobe.run.run import measure
from counterprobe.states import MASK, as_context
from counterprobe.streams import keyed_generator
from counterprobe.targets.information import (
    dependence,
    dual_total_of,
    effective_total_of,
    exact_curve,
    modelled_curve,
    total_of,
)
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw

__all__ = ["DependenceProfile", "Total", "dependence_profile", "estimate_dependence"]

Method = Literal["enumeration", "closed form", "estimate", "model"]
DEFAULT_SAMPLES = 16
AT_ONCE = 4096
# With fewer sequences a slope says little.
LEAST_FOR_REGRESSION = 5


@dataclass(frozen=True, slots=True)
class Total:
    """A number of nats.

    Attributes
    ----------
    value : float
    standard_error : float
        Zero for an exact value, NaN where none is known.
    is_bound : bool
        Whether it is an upper bound: a hub of a forest has too many neighbours to enumerate.
    """

    value: float
    standard_error: float = 0.0
    is_bound: bool = False

    def __str__(self) -> str:
        """Return the value and its error in words."""
        value = f"{'at most ' if self.is_bound else ''}{self.value:.6g}"
        if math.isnan(self.standard_error):
            return f"{value} (error unknown)"
        return f"{value} (SE {self.standard_error:.2g})" if self.standard_error else value


@dataclass(frozen=True, slots=True, eq=False)
class DependenceProfile:
    """The dependence of a law or a model, in nats.

    Attributes
    ----------
    total, dual, effective : Total
        TC, DTC and the effective total correlation.
    curve : ndarray of float, shape (N,)
        ``h_0 .. h_{N-1}``, over the positions that no context gave.
    curve_se : ndarray of float, shape (N,)
        Standard errors, zero where the curve is exact and NaN where it is modelled.
    method : {"enumeration", "closed form", "estimate", "model"}
        Where the curve comes from; of a forest the totals may be exact although it is not.
    samples : int
        Sequences drawn for an estimate.
    ledger : Ledger
        What estimating was charged, as probes.
    """

    total: Total
    dual: Total
    effective: Total
    curve: FloatArray
    curve_se: FloatArray
    method: Method
    samples: int = 0
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        self.curve.setflags(write=False)
        self.curve_se.setflags(write=False)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for files."""
        totals = {"tc": self.total, "dtc": self.dual, "effective_tc": self.effective}
        return {
            **{name: total.value for name, total in totals.items()},
            **{f"{name}_se": total.standard_error for name, total in totals.items()},
            "dtc_is_bound": self.dual.is_bound,
            "method": self.method,
            "samples": self.samples,
            "evaluations": self.ledger.evaluations,
            "curve": self.curve.tolist(),
            "curve_se": self.curve_se.tolist(),
        }


def dependence_profile(
    law: ForestLaw | TableLaw,
    *,
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> DependenceProfile:
    """Measure a law: exactly where that is possible, else through its oracle.

    Parameters
    ----------
    law : ForestLaw or TableLaw
    samples : int
        Sequences drawn where there is no exact curve, about ``N (1 + log N)`` evaluations each; 0
        takes the curve of two numbers in place of an estimate, without a standard error.
    seed, progress
        As in :func:`estimate_dependence`.

    Examples
    --------
    >>> import counterprobe as cp
    >>> profile = cp.evaluation.dependence_profile(cp.families.two_type_path(64))
    >>> profile.method, [round(part.value, 3) for part in (profile.total, profile.effective)]
    ('closed form', [1.594, 0.672])
    """
    samples = whole_number("samples", samples)
    curve = exact_curve(law)
    if curve is not None:
        method: Method = "enumeration" if isinstance(law, TableLaw) else "closed form"
        return DependenceProfile(
            Total(total_of(curve)),
            Total(dual_total_of(curve)),
            Total(effective_total_of(curve)),
            curve,
            np.zeros(len(curve)),
            method,
        )
    assert isinstance(law, ForestLaw)  # every table has an exact curve
    known = dependence(law)
    total, dual = Total(known.total), Total(known.dual, is_bound=known.is_bound)
    if samples == 0:
        curve = modelled_curve(law)
        effective = Total(effective_total_of(curve), np.nan)
        unknown = np.full(len(curve), np.nan)
        return DependenceProfile(total, dual, effective, curve, unknown, "model")
    drawn = estimate_dependence(
        law.oracle(), samples=samples, seed=seed, known_total=known.total, progress=progress
    )
    return DependenceProfile(
        total,
        drawn.dual if known.is_bound else dual,
        drawn.effective,
        drawn.curve,
        drawn.curve_se,
        "estimate",
        samples,
        drawn.ledger,
    )


def estimate_dependence(
    oracle: Oracle,
    *,
    samples: int = DEFAULT_SAMPLES,
    given: ArrayLike | None = None,
    seed: int = 0,
    known_total: float | None = None,
    at_once: int = AT_ONCE,
    progress: Callable[[int], None] | None = None,
) -> DependenceProfile:
    """Estimate the dependence of what an oracle answers for, by its chain rule in random orders.

    Parameters
    ----------
    oracle : Oracle
        Its rows must be a function of the state alone.
    samples : int
        Sequences drawn side by side; each is charged about ``N (1 + log N)`` evaluations for N
        masked positions.
    given : array_like of int, shape (N,), optional
        Context, ``MASK`` elsewhere.
    seed : int
        Sample k depends on the seed and k alone.
    known_total : float, optional
        TC where it is known, as on a forest: sequences that overrate it overrate the other totals
        too, which are corrected by regression if there are at least five sequences.
    at_once : int
        Rows in one call of the oracle; a single state may have more.
    progress : callable, optional
        Told after each sequence how many are measured.
    """
    oracle = as_oracle(oracle)
    samples = whole_number("samples", samples, at_least=1)
    at_once = whole_number("at_once", at_once, at_least=1)
    context = as_context(given, oracle.length, oracle.vocab_size)[None, :]
    masked = np.flatnonzero(context[0] == MASK)
    if not len(masked):
        raise ValueError("given must leave a position masked, got none: nothing can depend")
    streams = [keyed_generator(seed, "dependence", k) for k in range(samples)]
    requests = _drops(context, masked, streams, at_once, progress)
    [(first, drops)], ledger = measure(oracle, [requests])
    curves = first - drops
    return DependenceProfile(
        total=_mean(total_of, curves),
        dual=_mean(dual_total_of, curves, known_total),
        effective=_mean(effective_total_of, curves, known_total),
        curve=curves.mean(axis=0),
        curve_se=np.array([standard_error(column) for column in drops.T]),
        method="estimate",
        samples=samples,
        ledger=ledger,
    )


def _mean(
    total: Callable[[ArrayLike], float], curves: FloatArray, known_total: float | None = None
) -> Total:
    """Return the mean over sequences; with TC known, by a control variate."""
    values = np.array([total(curve) for curve in curves])
    if known_total is None or len(values) < LEAST_FOR_REGRESSION:
        return Total(float(values.mean()), standard_error(values))
    beside = np.array([total_of(curve) for curve in curves])
    spread = beside - beside.mean()
    slope = float(spread @ values / (spread @ spread)) if spread.any() else 0.0
    left = values - values.mean() - slope * spread
    error = math.sqrt(float(left @ left) / (len(values) - 2) / len(values))
    return Total(float(values.mean() - slope * (beside.mean() - known_total)), error)


def _drops(
    context: StateArray,
    masked: IntArray,
    streams: list[np.random.Generator],
    at_once: int,
    progress: Callable[[int], None] | None,
) -> Requests[tuple[float, FloatArray]]:
    """Draw sequences, then hide each in parts.

    Returns ``h_0``, and how far below it the curve of each is, shape ``(samples, N)``.
    """
    alone = (yield Probe(context, masked)).rows
    tokens = yield from _draw(context, masked, streams)
    drops = np.zeros((len(streams), len(masked)))
    apart: list[FloatArray] = []

    def probes() -> Iterator[Probe]:
        for k, stream in enumerate(streams):
            for hidden in range(1, len(masked)):
                order = stream.permutation(len(masked))
                place = k, len(masked) - hidden
                yield from _hide(tokens[k], masked, order, hidden, at_once, place)
            if progress is not None:
                progress(k + 1)

    def consume(probe: Probe, rows: Rows) -> None:
        place, index = probe.label
        apart.append(to_numpy(rows.kl(alone.take(index))).astype(np.float64))
        if sum(map(len, apart)) == len(masked):  # every position was hidden once
            drops[place] = np.concatenate(apart).mean()
            apart.clear()

    yield Stream(probes(), consume)
    return float(to_numpy(alone.entropy()).mean()), drops


def _draw(
    context: StateArray, masked: IntArray, streams: list[np.random.Generator]
) -> Requests[StateArray]:
    """Draw sequences side by side, one position at a time, each in an order of its own."""
    states = np.repeat(context, len(streams), axis=0)
    orders = np.stack([stream.permutation(masked) for stream in streams])
    uniforms = np.stack([stream.random(len(masked)) for stream in streams])
    everyone = np.arange(len(streams))
    for here, noise in zip(orders.T, uniforms.T, strict=True):
        probed = yield Probe(states, Readouts.pairs(everyone, here))
        states[everyone, here] = probed.rows.draw(noise)
    return states


def _hide(
    tokens: StateArray,
    masked: IntArray,
    order: IntArray,
    hidden: int,
    at_once: int,
    place: tuple[int, int],
) -> Iterator[Probe]:
    """Hide so many positions of an order at a time, and read each position once.

    The last set reaches back for positions of the one before, so that all have one size.
    """
    count = len(order)
    cuts = [(order[low : low + hidden], 0) for low in range(0, count - hidden + 1, hidden)]
    if count % hidden:
        cuts.append((order[count - hidden :], hidden - count % hidden))
    step = max(1, at_once // hidden)
    for low in range(0, len(cuts), step):
        parts = cuts[low : low + step]
        states = np.repeat(tokens[None, :], len(parts), axis=0)
        for state, (part, _) in zip(states, parts, strict=True):
            state[masked[part]] = MASK
        read = [part[seen:] for part, seen in parts]
        index = np.concatenate(read)
        which = np.repeat(np.arange(len(parts)), [len(part) for part in read])
        yield Probe(states, Readouts.pairs(which, masked[index]), (place, index))
