"""What every oracle keeps to: one frozen row for each (state, masked position).

Each check takes an oracle and asks it about a few random states, so that a slow model can be
checked too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from counterprobe.arrays import StateArray
from counterprobe.errors import OracleError
from counterprobe.oracles import (
    Attends,
    AttentionQuery,
    FollowsRuns,
    HistoryQuery,
    Oracle,
    Readouts,
    as_oracle,
    depends_on_order,
)
from counterprobe.oracles.checks import check_attention, check_rows
from counterprobe.radii import row_radii
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.history import History
from counterprobe.states import MASK, all_masked
from counterprobe.targets.law import ForestLaw
from counterprobe.targets.table import TableLaw
from counterprobe.testing.cases import ConformanceError, require

__all__ = ["ORACLE_CHECKS", "OracleCheck", "check_oracle"]

OracleCheck = Callable[[Oracle], None]
NUM_STATES = 4
# A model in single precision may round differently in another batch; exact oracles agree exactly.
TOLERANCE = 1e-5
ROUNDING = 1e-12


def check_oracle(oracle: Oracle, law: ForestLaw | TableLaw | None = None) -> None:
    """Run every check.

    Parameters
    ----------
    oracle : Oracle
    law : ForestLaw or TableLaw, optional
        The law it stands for, if there is one: its rows must be as close as it declares.
    """
    check_declared(oracle)
    oracle = as_oracle(oracle)
    for check in ORACLE_CHECKS:
        check(oracle)
    if law is not None:
        check_row_error(oracle, law)


def check_row_error(oracle: Oracle, law: ForestLaw | TableLaw) -> None:
    """Require rows as close to the law's own as declared, in every metric that is."""
    states = law.sample(NUM_STATES, np.random.default_rng(8))  # possible states only
    states[_states(oracle) == MASK] = MASK
    readouts = Readouts.every_masked(states)
    rows, exact = oracle.rows(states, readouts), law.oracle().rows(states, readouts)
    declared = row_radii(oracle)
    for metric, gaps, radius in (
        ("TV", exact.total_variation(rows), declared.total_variation),
        ("squared Hellinger", exact.squared_hellinger(rows), declared.squared_hellinger),
        ("forward KL", exact.kl(rows), declared.kl),
    ):
        gap = float(np.max(to_numpy(gaps), initial=0.0))
        require(
            radius is None or gap <= radius + ROUNDING,
            _name(oracle),
            f"a row is {gap:.3g} off in {metric}, but it declares {radius or 0.0:.3g}",
        )


def _name(oracle: Oracle) -> str:
    return str(getattr(oracle, "name", type(oracle).__name__))


def _states(oracle: Oracle) -> StateArray:
    """Return random states, from all masked to a single mask."""
    draw = np.random.default_rng(5)
    states = draw.integers(0, oracle.vocab_size, size=(NUM_STATES, oracle.length))
    for k in range(NUM_STATES):
        count = max(1, round(oracle.length * (1 - k / (NUM_STATES - 1))))
        states[k, draw.permutation(oracle.length)[:count]] = MASK
    return states.astype(np.int32)


def _gap(one: Rows, other: Rows) -> float:
    gaps = to_numpy(one.total_variation(other))
    return float(gaps.max()) if len(gaps) else 0.0


def check_declared(oracle: Oracle) -> None:
    """Require an oracle, of at least one position and token, with a row error in [0, 1]."""
    try:
        oracle = as_oracle(oracle)
    except ValueError as problem:
        raise ConformanceError(str(problem)) from problem
    require(oracle.length >= 1, _name(oracle), f"length is {oracle.length}")
    require(oracle.vocab_size >= 1, _name(oracle), f"vocab_size is {oracle.vocab_size}")
    require(0 <= oracle.row_error <= 1, _name(oracle), f"row_error is {oracle.row_error}")


def check_distributions(oracle: Oracle) -> None:
    """Require finite, non-negative rows that sum to one over the V tokens, one per readout."""
    states = _states(oracle)
    for readouts in (
        Readouts.every_masked(states),
        Readouts.same(1, np.arange(oracle.length)),
        Readouts.same(1, []),
    ):
        asked = states if readouts.shared is None else states[:1]
        try:
            check_rows(
                oracle.rows(asked, readouts),
                readouts,
                oracle.vocab_size,
                _name(oracle),
                warn_on_zero=False,
            )
        except OracleError as problem:
            raise ConformanceError(str(problem)) from problem


def check_frozen(oracle: Oracle) -> None:
    """Require one answer to one question, and that the states asked about are left alone."""
    states = _states(oracle)
    before = states.copy()
    readouts = Readouts.every_masked(states)
    first, second = oracle.rows(states, readouts), oracle.rows(states, readouts)
    require(np.array_equal(states, before), _name(oracle), "wrote into the states it was given")
    require(_gap(first, second) == 0, _name(oracle), "gave another row the second time")


def check_batches(oracle: Oracle) -> None:
    """Require rows that do not depend on what else is asked beside them."""
    states = _states(oracle)
    readouts = Readouts.every_masked(states)
    together = oracle.rows(states, readouts)
    order = np.random.default_rng(6).permutation(len(readouts))
    shuffled = oracle.rows(
        states, Readouts.pairs(readouts.state_index[order], readouts.position[order])
    )
    gap = _gap(shuffled, together.take(order))
    require(gap <= TOLERANCE, _name(oracle), f"rows moved by {gap:.3g} in another order")
    for k in order[: 2 * NUM_STATES]:
        alone = oracle.rows(
            states[readouts.state_index[k]][None, :],
            Readouts.same(1, readouts.position[k : k + 1]),
        )
        gap = _gap(alone, together.take(np.array([k])))
        require(gap <= TOLERANCE, _name(oracle), f"a row moved by {gap:.3g} when asked alone")


def check_kept_work(oracle: Oracle) -> None:
    """Require of an oracle that keeps work of a run the rows that it gives to anybody."""
    if oracle.ability(FollowsRuns) is None:
        return
    draw = np.random.default_rng(7)
    history = History(all_masked(oracle.length))
    order = draw.permutation(oracle.length)
    for t, batch in enumerate(np.array_split(order, min(4, oracle.length))):
        readouts = Readouts.same(1, history.residual)
        state, ranks = history.state[None, :].copy(), history.ranks[None, :].copy()
        followed = oracle.ask(HistoryQuery(state, readouts, ranks, history.next_runs())).rows
        gap = _gap(followed, oracle.ask(HistoryQuery(state, readouts, ranks)).rows)
        require(gap <= TOLERANCE, _name(oracle), f"rows along a run are {gap:.3g} off")
        if not depends_on_order(oracle):
            gap = _gap(followed, oracle.rows(state, readouts))
            require(gap <= TOLERANCE, _name(oracle), f"rows of a run are {gap:.3g} off a probe's")
        history.advance(batch, draw.integers(0, oracle.vocab_size, size=len(batch)), t)


def check_attention_beside_rows(oracle: Oracle) -> None:
    """Require of attention, if there is any, weights of each state alone beside its usual rows."""
    if oracle.ability(Attends) is None:
        return
    states = _states(oracle)
    readouts = Readouts.every_masked(states)
    reply = oracle.ask(AttentionQuery(states, readouts, layers=2))
    rows = reply.rows
    try:
        together = check_attention(reply.attention, len(states), oracle.length, _name(oracle))
    except OracleError as problem:
        raise ConformanceError(str(problem)) from problem
    gap = _gap(rows, oracle.rows(states, readouts))
    require(gap <= TOLERANCE, _name(oracle), f"rows beside attention are {gap:.3g} off")
    total = float(together.sum(axis=2).max())
    require(total <= 1 + TOLERANCE, _name(oracle), f"attention sums to {total:.6g}, above 1")
    for k in range(len(states)):
        masked = np.flatnonzero(states[k] == MASK)
        query = AttentionQuery(states[k : k + 1], Readouts.same(1, masked), layers=2)
        alone = oracle.ask(query).attention
        gap = math.inf if alone is None else float(np.abs(alone[0] - together[k]).max())
        require(gap <= TOLERANCE, _name(oracle), f"attention moved by {gap:.3g} when asked alone")


ORACLE_CHECKS: tuple[OracleCheck, ...] = (
    check_declared,
    check_distributions,
    check_frozen,
    check_batches,
    check_kept_work,
    check_attention_beside_rows,
)
