"""Frozen noise: any oracle, with rows that are wrong by at most a stated radius.

The paper lets an oracle err, in squared Hellinger distance (case (i)) or in forward KL (case
(ii)), by any amount up to a uniform radius, and its errors may conspire (definition "Frozen
conditional oracle", assumption A2). :class:`FrozenNoise` makes such an oracle of another one. In
come an oracle, a radius and a direction; out comes an oracle whose row at (state, position) is a
fixed function of that pair, whatever else is asked beside it.

Each row travels from the exact one along a curve on which the divergence only grows, and stops
where the radius is reached. A *tilt* ``p exp(t d) / Z`` follows a direction ``d``; a *mixture*
``(1 - t) p + t r`` heads for another row ``r``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.classes import TokenClasses
from counterprobe.oracles import Oracle, OracleInfo, Readouts, RowOracle, as_oracle
from counterprobe.oracles.checks import check_rows
from counterprobe.radii import row_radii
from counterprobe.rows import DenseRows, Rows, to_numpy
from counterprobe.states import MASK, all_masked, fingerprint, mix64
from counterprobe.streams import keyed_generator

__all__ = ["FrozenNoise"]

Metric = Literal["hellinger", "kl"]
Direction = Literal["random", "hide", "fake"]
Curve = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]

# A row is settled once its divergence is this close below the radius ...
CLOSE = 0.99
# ... and secant steps aim at the middle of what is left, in the square root of the divergence.
AIM = np.sqrt((1 + CLOSE) / 2)
# Every other step halves the bracket: 2^-60 of it is below the rounding of a double.
MAX_STEPS = 120
# exp(-300) times any probability above 1e-178 is still a positive double.
MAX_TILT = 300.0
# Rows are moved in blocks of this many numbers, so that temporaries stay in the cache.
BLOCK = 1 << 17

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class FrozenNoise(RowOracle):
    """An oracle whose rows differ from the wrapped ones by at most ``radius``.

    Parameters
    ----------
    oracle : Oracle
        What to wrap.
    radius : float
        Bound on the squared Hellinger distance ``1 - sum sqrt(pq)``, in ``[0, 1)``, or on
        ``KL(wrapped || noisy)`` in nats. At zero the wrapped rows come back unchanged.
    metric : {"hellinger", "kl"}
        Which of the two ``radius`` bounds.
    direction : {"random", "hide", "fake"}
        - ``"random"``: each (state, position) is tilted in a direction of its own, by the full
          radius.
        - ``"hide"`` hides edges: each row moves towards the wrapped oracle's row with everything
          masked, and is that row when it lies within the radius. The distance to that row never
          grows. The distance between the rows of two states shrinks when both move by the same
          fraction; when one moves by more it may even grow, by at most the difference of the two
          fractions. The all-mask rows are read once, at the first request; this evaluation is the
          adversary's own and is charged to nobody.
        - ``"fake"`` invents edges: each position has a partner. Where the partner is revealed, the
          row is tilted by the full radius in a direction that depends on the position and on the
          partner's token only, opposite for tokens ``2m`` and ``2m + 1``; where it is masked, the
          row is the wrapped one.
    seed : int
        Draws the directions and the partners.
    classes : TokenClasses, optional
        Treat the tokens of one class alike: random and fake noise then depends on a state only
        through its classes, so that the noisy oracle is as class-invariant as a forest law. (Noise
        that hides always is.)

    Notes
    -----
    Noise acts on what a row stores: classed rows stay classed, and their divergences over classes
    are those over tokens. Dense rows come back as double-precision NumPy arrays.

    Positive rows stay positive (probabilities below 1e-178 may underflow). A tilt leaves zeros at
    zero, so that a run never conditions on what the law excludes; a row that is certain of one
    token cannot be tilted. Where the drawn direction ends before the radius (at the likeliest
    token of a nearly certain row), the row is tilted towards its least likely token instead.

    Examples
    --------
    >>> import counterprobe as cp
    >>> law = cp.families.path(length=6)
    >>> noisy = cp.FrozenNoise(law.oracle(), radius=1e-4, seed=7)
    >>> marginals = cp.run.Run(noisy).do(cp.run.Preprocess())
    >>> marginals.squared_hellinger(law.marginals()).max().round(5)
    np.float64(0.0001)
    >>> round(noisy.row_error, 4)
    0.0141
    """

    oracle: Oracle
    _: KW_ONLY
    radius: float
    metric: Metric = "hellinger"
    direction: Direction = "random"
    seed: int = 0
    classes: TokenClasses | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        object.__setattr__(self, "oracle", as_oracle(self.oracle))
        if self.metric not in ("hellinger", "kl"):
            raise ValueError(f"metric must be 'hellinger' or 'kl', got {self.metric!r}")
        if self.direction not in ("random", "hide", "fake"):
            raise ValueError(
                f"direction must be 'random', 'hide' or 'fake', got {self.direction!r}"
            )
        if self.metric == "hellinger" and not 0 <= self.radius < 1:
            raise ValueError(
                "radius must lie in [0, 1) for the squared Hellinger distance, got "
                f"{self.radius!r}; it bounds 1 - sum sqrt(pq), not its square root"
            )
        if self.metric == "kl" and not 0 <= self.radius < np.inf:
            raise ValueError(
                f"radius must be finite and not negative, got {self.radius!r}; it bounds the "
                "forward KL of a row in nats"
            )
        if not isinstance(self.seed, (int, np.integer)) or self.seed < 0:
            raise ValueError(f"seed must be a non-negative integer, got {self.seed!r}")
        if self.direction == "fake" and self.length < 2:
            raise ValueError(
                f"length must be at least 2 for direction 'fake', got {self.length}; a lone "
                "position has no partner, choose direction='random'"
            )
        shape = (self.length, self.vocab_size)
        if self.classes and (self.classes.length, self.classes.vocab_size) != shape:
            raise ValueError(
                f"classes must cover the oracle's {shape[0]} positions and {shape[1]} tokens, got "
                f"{self.classes.length} and {self.classes.vocab_size}; pass law.classes"
            )

    @classmethod
    def for_hellinger_radius(
        cls, oracle: Oracle, hellinger_radius: float, **settings: Any
    ) -> FrozenNoise:
        """Build the paper's case (i): squared Hellinger at most ``hellinger_radius**2 / (2N)``.

        The noise then adds at most ``hellinger_radius / sqrt(N)`` to the row error. Further
        settings (``direction``, ``seed``, ``classes``) go to the class.
        """
        if not 0 <= hellinger_radius <= 1:
            raise ValueError(
                f"hellinger_radius must lie in [0, 1], got {hellinger_radius!r}; the paper takes "
                "half of the tolerance"
            )
        radius = hellinger_radius**2 / (2 * oracle.length)
        return cls(oracle, radius=radius, metric="hellinger", **settings)

    @classmethod
    def for_kl_tolerance(cls, oracle: Oracle, kl_tolerance: float, **settings: Any) -> FrozenNoise:
        """Build the paper's case (ii): forward KL of a row at most ``kl_tolerance / (2N)``."""
        if not 0 <= kl_tolerance < np.inf:
            raise ValueError(
                f"kl_tolerance must be finite and not negative, got {kl_tolerance!r}; the paper "
                "takes half of the squared tolerance"
            )
        radius = kl_tolerance / (2 * oracle.length)
        return cls(oracle, radius=radius, metric="kl", **settings)

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self.oracle.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.oracle.vocab_size

    @property
    def trusted(self) -> bool:
        """Whether the wrapped oracle is; if not, its rows are checked before noise is added."""
        return self.oracle.info.trusted

    @property
    def info(self) -> OracleInfo:
        """What it is: the wrapped oracle's name, and what was done to it."""
        return OracleInfo(
            f"{self.oracle.name} with {self.direction} noise",
            self.length,
            self.vocab_size,
            self.row_error,
            self.trusted,
            self.row_hellinger_radius,
            self.row_kl_radius,
        )

    @property
    def total_variation_radius(self) -> float:
        """Total variation that the radius allows.

        ``TV <= sqrt(h (2 - h))`` for the squared Hellinger distance h (Cauchy-Schwarz), and
        ``TV <= sqrt(KL / 2)`` (Pinsker).
        """
        if self.metric == "hellinger":
            return float(np.sqrt(self.radius * (2 - self.radius)))
        return float(min(1.0, np.sqrt(self.radius / 2)))

    @property
    def row_error(self) -> float:
        """Total-variation radius around the exact rows: the wrapped oracle's plus the noise's."""
        return min(1.0, self.oracle.row_error + self.total_variation_radius)

    @property
    def row_hellinger_radius(self) -> float:
        """Bound on the squared Hellinger distance from the exact rows.

        The noise's own, ``KL / 2`` for the KL; beside a wrapped error the roots add up, since the
        Hellinger distance is a metric.
        """
        own = self.radius if self.metric == "hellinger" else self.radius / 2
        wrapped = row_radii(self.oracle).squared_hellinger
        return float(min(1.0, wrapped + own + 2 * np.sqrt(wrapped * own)))

    @property
    def row_kl_radius(self) -> float | None:
        """Bound on the forward KL of the exact rows, if there is one.

        The radius, when it is one of the KL and the wrapped oracle is exact. A Hellinger radius
        bounds no KL, and the KL from the wrapped rows none from the exact ones.
        """
        wrapped = row_radii(self.oracle).kl
        if self.radius == 0:
            return wrapped
        return self.radius if self.metric == "kl" and wrapped == 0 else None

    @cached_property
    def partner(self) -> IntArray:
        """Fake partner of each position, shape (N,): one random cycle, so nobody is their own."""
        cycle = keyed_generator(self.seed, "noise partners").permutation(self.length)
        partner = np.empty(self.length, dtype=np.int64)
        partner[cycle] = np.roll(cycle, -1)
        partner.setflags(write=False)
        return partner

    @cached_property
    def _salt(self) -> np.uint64:
        return keyed_generator(self.seed, "noise salt").integers(2**64, dtype=np.uint64)

    @cached_property
    def _reference(self) -> FloatArray:
        """Masses of every position's row with everything masked; where hiding rows head for."""
        everything = Readouts.same(1, np.arange(self.length))
        return _masses(self._wrapped_rows(all_masked(self.length, 1), everything)).copy()

    def _wrapped_rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Ask the wrapped oracle; normalising moved rows would hide that its reply was bad."""
        rows = self.oracle.rows(states, readouts)
        if not self.trusted:
            check_rows(rows, readouts, self.vocab_size, self.name, warn_on_zero=False)
        return rows

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return the wrapped oracle's rows, moved as far as the radius allows."""
        if self.radius == 0 or len(readouts) == 0:
            return self.oracle.rows(states, readouts)
        exact = self._wrapped_rows(states, readouts)
        masses = _masses(exact)
        moved = np.empty_like(masses)
        move = {"random": self._randomise, "hide": self._hide, "fake": self._fake}[self.direction]
        keys = self._keys(np.asarray(states), readouts)
        step = max(1, BLOCK // masses.shape[1])
        for low in range(0, len(masses), step):
            part = slice(low, low + step)
            moved[part] = move(masses[part], readouts.position[part], keys[part])
        return exact.with_masses(moved)

    def _keys(self, states: StateArray, readouts: Readouts) -> IntArray:
        """Return what the noise of each readout depends on beside its position and row."""
        index, position = readouts.state_index, readouts.position
        if self.direction == "fake":
            partner = self.partner[position]
            seen = states[index, partner].astype(np.int64)
            if self.classes is None:
                return seen
            return np.where(seen == MASK, MASK, self.classes.of(partner, np.maximum(seen, 0)))
        if self.direction == "random":
            if self.classes is not None:
                known = self.classes.of(np.arange(self.length), np.maximum(states, 0))
                states = np.where(states == MASK, MASK, known).astype(np.int32)
            return fingerprint(states).view(np.int64)[index]
        return position

    def _randomise(self, exact: FloatArray, position: IntArray, key: IntArray) -> FloatArray:
        directions = self._directions(position, key, exact.shape[1])
        return _tilt(exact, directions, self.radius, self.metric)

    def _fake(self, exact: FloatArray, position: IntArray, key: IntArray) -> FloatArray:
        moved = exact.copy()
        told = np.flatnonzero(key != MASK)
        token = key[told]
        directions = self._directions(position[told], token >> 1, exact.shape[1])
        # Tokens 2m and 2m + 1 pull apart, which doubles the response that a screen sees.
        directions *= 1 - 2 * (token & 1)[:, None]
        moved[told] = _tilt(exact[told], directions, self.radius, self.metric)
        return moved

    def _hide(self, exact: FloatArray, position: IntArray, key: IntArray) -> FloatArray:
        reference = self._reference[position]
        return _advance(_normalised(exact), reference, _mixed, 1.0, self.radius, self.metric)

    def _directions(self, position: IntArray, key: IntArray, num_masses: int) -> FloatArray:
        """Hash (seed, position, key) into uniforms in ``[0, 1)``, shape (n, num_masses)."""
        row = mix64(mix64(position.astype(np.uint64) ^ self._salt) ^ key.astype(np.uint64))
        stream = np.arange(num_masses, dtype=np.uint64) * _GOLDEN
        bits = mix64(row[:, None] + stream[None, :]) >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53


def _masses(rows: Rows) -> FloatArray:
    """Return stored masses in double precision; rows in lower precision are normalised again."""
    stored = to_numpy(rows.masses)
    if stored.dtype == np.float64:
        return stored
    return _normalised(stored.astype(np.float64))


def _normalised(masses: FloatArray) -> FloatArray:
    shares: FloatArray = masses / masses.sum(axis=1, keepdims=True)
    return shares


def _divergence(metric: Metric, exact: FloatArray, other: FloatArray) -> FloatArray:
    """Return the divergence that the radius bounds, computed as ``Rows`` computes it."""
    p, q = DenseRows(exact), DenseRows(other)
    found: FloatArray = p.squared_hellinger(q) if metric == "hellinger" else p.kl(q)
    return np.maximum(found, 0.0)  # rounding may take a KL of almost nothing below zero


def _mixed(exact: FloatArray, other: FloatArray, t: FloatArray) -> FloatArray:
    """Mix two rows; at ``t = 1`` the result is the other row to the last bit."""
    return (1 - t)[:, None] * exact + t[:, None] * other


def _tilted(exact: FloatArray, direction: FloatArray, t: FloatArray) -> FloatArray:
    """Tilt a row in a direction whose largest entry is 0 and whose smallest is -1."""
    return _normalised(exact * np.exp(t[:, None] * direction))


def _tilt(exact: FloatArray, directions: FloatArray, radius: float, metric: Metric) -> FloatArray:
    """Tilt rows as far as the radius allows.

    With ``f(t) = log sum p exp(t d)``, convex, the forward KL is ``f(t) - t f'(0)`` and the log of
    the affinity is ``f(t/2) - f(t)/2``: the first grows with t and the second falls.
    """
    exact = _normalised(exact)
    possible = exact > 0
    top = np.max(directions, axis=1, where=possible, initial=-np.inf, keepdims=True)
    bottom = np.min(directions, axis=1, where=possible, initial=np.inf, keepdims=True)
    span = np.where(top > bottom, top - bottom, 1.0)
    scaled = np.where(possible, (directions - top) / span, 0.0)
    end = _tilted(exact, scaled, np.full(len(exact), MAX_TILT))
    short = np.flatnonzero(_divergence(metric, exact, end) < radius)
    if len(short):
        rarest = np.argmin(np.where(possible[short], exact[short], np.inf), axis=1)
        scaled[short] = -1.0
        scaled[short, rarest] = 0.0
    return _advance(exact, scaled, _tilted, MAX_TILT, radius, metric)


def _advance(
    exact: FloatArray,
    towards: FloatArray,
    curve: Curve,
    limit: float,
    radius: float,
    metric: Metric,
) -> FloatArray:
    """Follow a curve from each row until the divergence reaches the radius.

    Parameters
    ----------
    exact, towards : ndarray of float, shape (n, C)
        Where each row starts, and what the curve needs to know about where it goes.
    curve : callable
        ``curve(exact, towards, t)`` is ``exact`` at ``t = 0``, and its divergence from there never
        falls as t grows.
    limit : float
        The largest t.
    radius : float
    metric : {"hellinger", "kl"}

    Returns
    -------
    ndarray of float, shape (n, C)
        The end of the curve where that is within the radius; otherwise a point whose divergence
        lies between ``CLOSE * radius`` and ``radius``. Steps depend on the row alone, and only
        points whose divergence was computed and found within the radius are returned.
    """
    best = curve(exact, towards, np.full(len(exact), limit))
    found = _divergence(metric, exact, best)
    rest = np.flatnonzero(~(found <= radius))
    best[rest] = exact[rest]
    low, high = np.zeros(len(rest)), np.full(len(rest), limit)
    # The square root of a divergence is nearly linear in t, so its secants aim well.
    below, above = np.zeros(len(rest)), np.sqrt(found[rest])
    aim = AIM * np.sqrt(radius)
    for step in range(MAX_STEPS):
        if not len(rest):
            break
        share = 0.5 if step % 2 else (aim - below) / (above - below)
        t = low + share * (high - low)
        start = exact[rest]
        point = curve(start, towards[rest], t)
        found = _divergence(metric, start, point)
        within = found <= radius
        best[rest[within]] = point[within]
        low, high = np.where(within, t, low), np.where(within, high, t)
        root = np.sqrt(found)
        below, above = np.where(within, root, below), np.where(within, above, root)
        going = ~(within & (found >= CLOSE * radius))
        rest, low, high = rest[going], low[going], high[going]
        below, above = below[going], above[going]
    return best
