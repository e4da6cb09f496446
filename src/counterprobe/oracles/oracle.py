"""Oracles: what answers a masked state with rows.

An oracle has one verb, :meth:`Oracle.ask`, and one record of what it is, :attr:`Oracle.info`. A
:class:`Query` holds a batch of states and what to read: one readout set shared by all of them, or
flat (state index, position) pairs when each state masks its own set. Each state is one evaluation,
whatever is read from it. Oracles are frozen: the same query gives the same rows whoever asks,
whatever else is asked beside it, and readouts are masked.

Samplers never ask an oracle themselves; they go through :class:`counterprobe.run.Run`, which
counts. To plug in a model, wrap a function in :class:`CallableOracle`; whatever has ``rows(states,
readouts)`` and its sizes serves too (:func:`as_oracle`). What only changes how an answer comes
about is composed around an oracle: ``oracle.cached("replies.sqlite").retrying(3)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from counterprobe.arguments import whole_number
from counterprobe.arrays import FloatArray, StateArray
from counterprobe.oracles.abilities import (
    DrawsPlans,
    FollowsRuns,
    HistoryQuery,
    depends_on_order,
)
from counterprobe.oracles.query import Query, Readouts, Reply
from counterprobe.rows import Rows
from counterprobe.states import MASK

if TYPE_CHECKING:
    import os

    from counterprobe.executors import Executors
    from counterprobe.oracles.cache import Cache
    from counterprobe.oracles.rechecking import Rechecking
    from counterprobe.oracles.retry import Retry
    from counterprobe.oracles.sharding import Sharded

__all__ = [
    "NUMERICAL_FLOOR",
    "LawOracle",
    "Oracle",
    "OracleInfo",
    "RowOracle",
    "Wrapper",
    "as_oracle",
]

T = TypeVar("T")

# An exact oracle still rounds: below this a difference between two rows means nothing.
NUMERICAL_FLOOR = 1e-12


@dataclass(frozen=True, slots=True)
class OracleInfo:
    """What an oracle is.

    Attributes
    ----------
    name : str
        For messages and results.
    length, vocab_size : int
        N and V.
    row_error : float
        Total-variation radius of its rows around the exact ones; an exact oracle declares a
        numerical floor (about 1e-12), so that rounding never becomes a vote.
    trusted : bool
        Whether a run may skip checking what it returns.
    row_hellinger_radius, row_kl_radius : float or None
        Uniform bounds on the squared Hellinger distance and the forward KL of its rows.
    stream_states : int
        States that a stage of many probes submits at once, or a few more: many where replicas
        share the work.
    temperature : float
        What the logits of its law were divided by. Where it is not 1, rows hold those of
        temperature 1 beside them (``rows.own``), by which tokens are scored.
    """

    name: str
    length: int
    vocab_size: int
    row_error: float = NUMERICAL_FLOOR
    trusted: bool = False
    row_hellinger_radius: float | None = None
    row_kl_radius: float | None = None
    stream_states: int = 1
    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Check the sizes."""
        for name in ("length", "vocab_size"):
            value = whole_number(f"oracle.{name}", getattr(self, name), at_least=1)
            object.__setattr__(self, name, value)


class Oracle(ABC):
    """A frozen conditional oracle: subclasses have :attr:`info` and :meth:`ask`."""

    __slots__ = ()

    @property
    @abstractmethod
    def info(self) -> OracleInfo:
        """What it is."""

    @abstractmethod
    def ask(self, query: Query) -> Reply:
        """Return one row per readout, in order; the query must be left as it is."""

    @property
    def digest(self) -> str | None:
        """What tells it from others of its name and size; None where it cannot say.

        A cache or a structure of another one is then refused before anything is asked. Apart
        from ``info``, since a network's takes a while.
        """
        return None

    @property
    def distances(self) -> FloatArray | None:
        """How far positions are from each other, shape ``(N, N)``, where its template knows it.

        Plans of a soft structure keep apart what is near and what pairs do not explain.
        """
        apart: FloatArray | None = getattr(getattr(self, "template", None), "distances", None)
        return apart

    def ability(self, kind: type[T]) -> T | None:
        """Return what answers queries that only some oracles answer; None where nothing does.

        Parameters
        ----------
        kind : Protocol
            One of :mod:`counterprobe.oracles.abilities`.
        """
        return self if isinstance(self, kind) else None

    # ----- Conveniences --------------------------------------------------------------------

    def __repr__(self) -> str:
        """Say in one line what it is."""
        info = self.info
        kind = type(self).__name__
        return f"{kind}({info.name!r}: {info.length} positions, {info.vocab_size} tokens)"

    def __str__(self) -> str:
        """Say in a few lines what it is, and what is known of its rows."""
        info = self.info
        given = getattr(getattr(self, "template", None), "given", None)
        masked = "" if given is None else f", {int((given == MASK).sum())} of them masked"
        lines = [
            f"{info.name}: an oracle of {info.length:,} positions{masked}, over "
            f"{info.vocab_size:,} tokens",
            f"rows are within {info.row_error:.2g} of themselves in total variation",
        ]
        if depends_on_order(self):
            lines.append("rows depend on the order of commits; by_index() can be probed")
        if info.temperature != 1:
            lines.append(f"logits are divided by a temperature of {info.temperature:g}")
        return "\n".join(lines)

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self.info.name

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self.info.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.info.vocab_size

    @property
    def row_error(self) -> float:
        """Total-variation radius of its rows."""
        return self.info.row_error

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return the rows of a plain query."""
        return self.ask(Query(states, readouts)).rows

    # ----- Wrappers ------------------------------------------------------------------------

    def retrying(self, attempts: int = 3, **options: Any) -> Retry:
        """Repeat calls that raise or hang; options as for :class:`counterprobe.oracles.Retry`."""
        from counterprobe.oracles.retry import Retry

        return Retry(self, attempts, **options)

    def cached(self, path: str | os.PathLike[str], **options: Any) -> Cache:
        """Look up replies in a file, and store them there: a run that is made again resumes."""
        from counterprobe.oracles.cache import Cache

        return Cache(self, path, **options)

    def rechecking(self, share: float) -> Rechecking:
        """Ask a second time for a share of the states, to find out whether rows are frozen."""
        from counterprobe.oracles.rechecking import Rechecking

        return Rechecking(self, share)

    def sharded(self, executor: Executors, **options: Any) -> Sharded:
        """Spread states over an executor's workers; options as for ``sharding.Sharded``."""
        from counterprobe.oracles.sharding import Sharded

        return Sharded(self, executor, **options)

    def declaring(self, **changes: Any) -> Oracle:
        """Let it say something else of itself, such as ``trusted=True`` or a ``row_error``."""
        return _Declaring(self, changes)

    def by_index(self) -> Oracle:
        """Return it as it is probed: by index, where its rows depend on the order of commits."""
        return _ByIndex(self) if depends_on_order(self) else self


class RowOracle(Oracle):
    """An oracle with a method for each kind of query: subclasses have ``rows``, at least."""

    __slots__ = ()

    @abstractmethod
    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Return one row per readout, in order; ``states`` must be left as they are."""

    def ask(self, query: Query) -> Reply:
        """Answer by the method that the query asks for."""
        return query.put_to(self)


class LawOracle(RowOracle):
    """What every oracle of a law has in common: its size and its name are the law's.

    It is exact, rounding aside, unless a subclass says otherwise.
    """

    __slots__ = ()
    law: Any

    @property
    def info(self) -> OracleInfo:
        """What it is."""
        return self.info_with()

    def info_with(self, **changes: Any) -> OracleInfo:
        """Return what the exact oracle of the law is, but for what a subclass does otherwise."""
        law = self.law
        exact = {"trusted": True, "row_hellinger_radius": 0.0, "row_kl_radius": 0.0}
        return OracleInfo(f"exact {law.name}", law.length, law.vocab_size, **{**exact, **changes})

    @property
    def digest(self) -> str | None:
        """What tells the law from others of its name and size."""
        digest: str = self.law.content_digest
        return digest


# ----- Around others ------------------------------------------------------------------------


class Wrapper(Oracle):
    """Another oracle, with something done to its queries or replies; attributes are passed on.

    Parameters
    ----------
    oracle : Oracle
    """

    def __init__(self, oracle: Oracle) -> None:
        self.inner = as_oracle(oracle)

    @property
    def info(self) -> OracleInfo:
        """What the inner oracle is."""
        return self.inner.info

    @property
    def distances(self) -> FloatArray | None:
        """How far the inner oracle says that positions are apart."""
        apart: FloatArray | None = getattr(self.inner, "distances", None)
        return apart

    @property
    def digest(self) -> str | None:
        """What tells the inner oracle from others."""
        return self.inner.digest

    def ability(self, kind: type[T]) -> T | None:
        """Return what the inner oracle can do, to whoever sees each of its replies."""
        return None if kind is DrawsPlans else self.inner.ability(kind)

    def ask(self, query: Query) -> Reply:
        """Hand a query on."""
        return self.inner.ask(query)

    def __getattr__(self, name: str) -> Any:
        """Pass on whatever else the inner oracle has, such as a template."""
        if name.startswith("_") or name == "inner":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.inner, name)


class _Declaring(Wrapper):
    """An oracle that says something else of itself."""

    def __init__(self, oracle: Oracle, changes: dict[str, Any]) -> None:
        super().__init__(oracle)
        self._changes = changes
        replace(self.inner.info, **changes)  # an unknown word is refused here

    @property
    def info(self) -> OracleInfo:
        return replace(self.inner.info, **self._changes)


class _ByIndex(Wrapper):
    """An oracle whose rows depend on the order of commits, as it is probed."""

    @property
    def digest(self) -> str | None:
        around = self.inner
        return around.inner.by_index().digest if isinstance(around, Wrapper) else around.digest

    def ability(self, kind: type[T]) -> T | None:
        return None if kind is FollowsRuns else super().ability(kind)

    def ask(self, query: Query) -> Reply:
        if isinstance(query, HistoryQuery):
            query = Query(query.states, query.readouts)
        return self.inner.ask(query)


class _RowsOnly(Wrapper):
    """Anything with ``rows`` and its sizes: what was not written as an :class:`Oracle`."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def info(self) -> OracleInfo:
        inner: Any = self.inner
        return OracleInfo(
            str(getattr(inner, "name", type(inner).__name__)),
            inner.length,
            inner.vocab_size,
            inner.row_error,
            bool(getattr(inner, "trusted", False)),
            getattr(inner, "row_hellinger_radius", None),
            getattr(inner, "row_kl_radius", None),
        )

    @property
    def digest(self) -> str | None:
        found: str | None = getattr(self.inner, "digest", None)
        return found

    def ability(self, kind: type[T]) -> T | None:
        return None

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        return self.inner.rows(states, readouts)

    def ask(self, query: Query) -> Reply:
        return Reply(self.inner.rows(query.states, query.readouts))


def as_oracle(oracle: object) -> Oracle:
    """Return an oracle; whatever has ``rows``, sizes and a row error becomes one.

    Raises
    ------
    ValueError
        For what is none, such as a plain function or a law.
    """
    if isinstance(oracle, Oracle):
        return oracle
    if all(hasattr(oracle, name) for name in ("length", "vocab_size", "row_error", "rows")):
        return _RowsOnly(oracle)
    raise ValueError(
        f"oracle must have length, vocab_size, row_error and rows(), or be an Oracle; got "
        f"{oracle!r}. Wrap a function in counterprobe.CallableOracle, or call law.oracle()"
    )
