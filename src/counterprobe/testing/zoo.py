"""A zoo of oracles that break the contract, each in one way.

What a single reply shows is refused by the door, with a message that names the oracle, the state
and the position: numbers that are no probabilities, rows of another shape or type, mass on the
mask. What takes two replies to see (rows that are random, that drift, that depend on the rest of
the batch) shows only where states are submitted twice: ``oracle.rechecking(share)``. Calls that
raise or hang are for ``oracle.retrying``. A buffer that is written over does no
harm where replies are checked, because what a run keeps is copied there.

:func:`bad_oracles` makes them by name; :data:`SEEN_BY` says what sees each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.oracles import OracleInfo, Readouts, RowOracle
from counterprobe.rows import DenseRows, Rows
from counterprobe.states import fingerprint, mix64

__all__ = ["SEEN_BY", "BadOracle", "bad_oracles"]

SeenBy = Literal["door", "rechecking", "retrying", "nobody needs to"]


class BadOracle(RowOracle):
    """Frozen rows over a small vocabulary, spoilt in one way.

    Parameters
    ----------
    name : str
        What is wrong with it.
    spoil : callable
        ``spoil(oracle, masses, states, readouts)`` turns good rows of shape ``(R, V)`` into what
        is returned.
    length, vocab_size : int

    Attributes
    ----------
    num_calls : int
        So far.
    """

    def __init__(
        self,
        name: str,
        spoil: Callable[[BadOracle, FloatArray, StateArray, Readouts], Any],
        length: int = 6,
        vocab_size: int = 4,
    ) -> None:
        self._info = OracleInfo(name, length, vocab_size)
        self.num_calls = 0
        self.buffer = np.empty((1 << 12, vocab_size))
        self.random = np.random.default_rng(7)
        self._spoil = spoil

    @property
    def info(self) -> OracleInfo:
        """What it says it is."""
        return self._info

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return rows that are wrong in the one way."""
        self.num_calls += 1
        masses = self.good(fingerprint(states)[readouts.state_index], readouts.position)
        spoilt = self._spoil(self, masses, states, readouts)
        rows: Rows = DenseRows(spoilt) if isinstance(spoilt, np.ndarray) else spoilt
        return rows

    def good(self, prints: Any, positions: IntArray) -> FloatArray:
        """Return rows that a state's fingerprint and a position determine, shape ``(R, V)``."""
        keys = mix64(prints ^ mix64(positions))[:, None] + np.arange(
            self.vocab_size, dtype=np.uint64
        )
        weights = 0.25 + mix64(keys).astype(np.float64) / 2.0**64
        masses: FloatArray = weights / weights.sum(axis=1, keepdims=True)
        return masses


def _nan_later(oracle: BadOracle, masses: FloatArray, *_: Any) -> Any:
    """Answer two calls, then with a value that is no number."""
    if oracle.num_calls > 2:
        masses[-1, 0] = np.nan
    return masses


def _mass_on_mask(oracle: BadOracle, masses: FloatArray, *_: Any) -> Any:
    """Give the mask a column, and mass."""
    spread = np.concatenate([masses, np.full((len(masses), 1), 0.5)], axis=1)
    return spread / spread.sum(axis=1, keepdims=True)


def _random(oracle: BadOracle, masses: FloatArray, *_: Any) -> Any:
    """Draw new rows each time: dropout that was left on. One reply alone looks right."""
    return oracle.random.dirichlet(np.ones(oracle.vocab_size), size=len(masses))


def _drifting(oracle: BadOracle, masses: FloatArray, *_: Any) -> Any:
    """Move a little with every call: weights that somebody is training. One reply looks right."""
    share = min(0.5, 1e-3 * oracle.num_calls)
    return (1 - share) * masses + share / oracle.vocab_size


def _mixing(oracle: BadOracle, masses: FloatArray, states: StateArray, *_: Any) -> Any:
    """Let the size of the batch into every row: batch normalisation. One reply looks right."""
    share = 0.5 * (1 - 1 / len(states))
    return (1 - share) * masses + share / oracle.vocab_size


def _raising(oracle: BadOracle, masses: FloatArray, *_: Any) -> Any:
    """Raise at every other call."""
    if oracle.num_calls % 2:
        raise ConnectionError("the model is gone")
    return masses


def _slow(oracle: BadOracle, masses: FloatArray, *_: Any) -> Any:
    """Take a third of a second for the first call."""
    if oracle.num_calls == 1:
        time.sleep(0.3)
    return masses


def _reused(oracle: BadOracle, masses: FloatArray, *_: Any) -> Any:
    """Return a view of one buffer, which the next call writes over."""
    oracle.buffer[: len(masses)] = masses
    return oracle.buffer[: len(masses)]


_ZOO: dict[str, tuple[SeenBy, Callable[..., Any]]] = {
    # What one reply shows.
    "not a number": ("door", _nan_later),
    "unnormalised": ("door", lambda _, m, *__: np.concatenate([m[:-1], 2 * m[-1:]])),
    "logits": ("door", lambda _, m, *__: np.log(m)),
    "a row too many": ("door", lambda _, m, *__: np.concatenate([m, m[:1]])),
    "flat": ("door", lambda _, m, *__: m.ravel()),
    "complex": ("door", lambda _, m, *__: m.astype(np.complex128)),
    "objects": ("door", lambda _, m, *__: m.astype(object)),
    "words": ("door", lambda _, m, *__: m.astype("U8")),
    "no rows": ("door", lambda _, m, *__: m.tolist()),
    "mass on the mask": ("door", _mass_on_mask),
    # What takes two replies: each alone looks right.
    "random rows": ("rechecking", _random),
    "drifting": ("rechecking", _drifting),
    "mixes its batch": ("rechecking", _mixing),
    # Calls that fail, and buffers.
    "raising": ("retrying", _raising),
    "slow": ("retrying", _slow),
    "reused buffer": ("nobody needs to", _reused),
}

SEEN_BY: dict[str, SeenBy] = {name: seen for name, (seen, _) in _ZOO.items()}


def bad_oracles() -> dict[str, Callable[..., BadOracle]]:
    """Return what makes each of the zoo, by name.

    Examples
    --------
    >>> import counterprobe as cp
    >>> from counterprobe.run import Probe
    >>> from counterprobe.testing import bad_oracles
    >>> run = cp.run.Run(bad_oracles()["unnormalised"]())
    >>> try:
    ...     run.do(Probe(run.state, [0, 3])).rows
    ... except cp.OracleError as problem:
    ...     print(str(problem)[:74])
    oracle 'unnormalised': the row at state 0, position 3 sums to 2 instead of
    """

    def maker(name: str, spoil: Callable[..., Any]) -> Callable[..., BadOracle]:
        return lambda **sizes: BadOracle(name, spoil, **sizes)

    return {name: maker(name, spoil) for name, (_, spoil) in _ZOO.items()}
