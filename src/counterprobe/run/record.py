"""What determines a run, written once: by this its log, its files and its repetition know it.

Two runs of equal records ask the same questions in the same order and draw the same tokens. The
:attr:`RunRecord.terms` are what a checkpoint compares, term by term, so that it can say which one
differs; :attr:`RunRecord.key` is one short string for all of them; ``to_json`` and ``from_json``
keep a record in a file from which the run can be made again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from counterprobe.digests import digest_of
from counterprobe.oracles import Oracle
from counterprobe.plain import plain
from counterprobe.run.ledger import Need
from counterprobe.states import MASK
from counterprobe.streams import STREAMS_VERSION, Streams, versions

__all__ = ["OracleIdentity", "RunRecord", "canonical", "needs_of"]


@dataclass(frozen=True, slots=True)
class OracleIdentity:
    """Which oracle a run asks.

    Attributes
    ----------
    name : str
    length, vocab_size : int
    digest : str or None
        What tells it from others of its name and size, where it declares that.
    """

    name: str
    length: int
    vocab_size: int
    digest: str | None = None

    @classmethod
    def of(cls, oracle: Oracle) -> OracleIdentity:
        """Return the identity of an oracle."""
        return cls(
            oracle.name,
            int(oracle.length),
            int(oracle.vocab_size),
            oracle.digest,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunRecord:
    """Everything that determines a run, and nothing else.

    Attributes
    ----------
    sampler : str
        Its name; ``discover`` where nothing is drawn.
    settings : mapping
        All of the sampler's settings, defaults included: another default is another run.
    oracle : OracleIdentity
    streams : Streams
    given : ndarray of int, shape (N,) or (count, N), optional
        Context, ``MASK`` elsewhere; None where nothing is given.
    count : int
        Sequences that are drawn.
    orders : str or int
        Who shares decisions: all of them ("shared"), nobody ("fresh"), or so many groups.
    temperature : float
    allowed : Need
    max_evaluations : int, optional
        A budget, where it decides what is asked.
    more : mapping
        What else this kind of run is determined by, by name.
    versions : mapping
        What the run was made with; no part of ``key`` but for the layout of the streams.
    """

    sampler: str
    settings: Mapping[str, Any]
    oracle: OracleIdentity
    streams: Streams
    given: NDArray[np.integer[Any]] | None = None
    count: int = 1
    orders: str | int = "shared"
    temperature: float = 1.0
    allowed: Need = Need.NONE
    max_evaluations: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def terms(self) -> dict[str, Any]:
        """What was asked of the oracle, in plain values by name; arrays are named by digests."""
        given = self.given
        if given is not None:
            given = None if (given == MASK).all() else given.astype(np.int32)
        return {
            "sampler": self.sampler,
            "settings": plain(self.settings),
            "decision_seed": int(self.streams.decision_seed),
            "commit_seed": int(self.streams.commit_seed),
            "given": plain(given, digest_arrays=True),
            "count": self.count,
            "orders": self.orders,
            "temperature": self.temperature,
            "allowed": self.allowed.names(),
            "max_evaluations": self.max_evaluations,
            **plain(self.more, digest_arrays=True),
        }

    @property
    def key(self) -> str:
        """Thirty-two hexadecimal digits by which the run is told from all others."""
        whole = {**asdict(self.oracle), **self.terms, "streams": STREAMS_VERSION}
        return digest_of(canonical(whole).encode()).hex()

    def __eq__(self, other: object) -> bool:
        """Whether another record is of the same run."""
        return isinstance(other, RunRecord) and self.key == other.key

    def __hash__(self) -> int:
        """Return a hash of the key."""
        return hash(self.key)

    def to_json(self) -> dict[str, Any]:
        """Return what JSON has; from it :meth:`from_json` makes an equal record."""
        more = plain(self.more, digest_arrays=True)
        return {
            **{name: value for name, value in self.terms.items() if name not in more},
            "given": plain(self.given),
            "more": more,
            "oracle": asdict(self.oracle),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` made.

        Raises
        ------
        ValueError
            If something is missing or of another kind.
        """
        try:
            return cls(
                sampler=str(content["sampler"]),
                settings=dict(content["settings"]),
                oracle=OracleIdentity(**content["oracle"]),
                streams=Streams(int(content["decision_seed"]), int(content["commit_seed"])),
                given=None if content["given"] is None else np.array(content["given"], np.int32),
                count=int(content["count"]),
                orders=content["orders"],
                temperature=float(content["temperature"]),
                allowed=needs_of(content["allowed"]),
                max_evaluations=content["max_evaluations"],
                more=dict(content["more"]),
                versions=dict(content["versions"]),
            )
        except (KeyError, TypeError) as problem:
            raise ValueError(f"this is no record of a run ({problem})") from None


def needs_of(names: list[str]) -> Need:
    """Return the needs that :meth:`Need.names` listed."""
    found = Need.NONE
    for name in names:
        found |= Need[name.upper().replace("-", "_")]
    return found


def canonical(value: Mapping[str, Any]) -> str:
    """Return the one text of plain values: sorted names, no spaces, shortest numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
