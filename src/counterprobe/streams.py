"""Randomness, handed out by purpose: decisions, commit draws and evaluation never share a stream.

``Streams`` is what a caller passes to a sampler. Decision randomness (colorings, fillers, orders)
comes as NumPy generators keyed by purpose and round, so that how much one round drew never
shifts the next. Commit noise is one uniform for each (commit seed, sequence, position, draw): the
same noise at every budget, batch split and worker count, which is also how random-budget curves
are coupled. From one decision seed and one history, decisions are the same whatever the commit
draws were.

Inputs, such as the texts of one ``infill`` or the prompts of one ``generate``, each draw with a
commit seed of their own (:meth:`Streams.of_input`): it follows from the ids and masks of the input
and from how many equal inputs came before it. So different inputs draw independently, and what an
input draws depends neither on the inputs beside it nor on their order. Decisions are shared by all
inputs of a seed: given the decisions, their tokens are independent. ``sample`` draws from one law
and keys by sequence alone, whatever context it is given.
"""

from __future__ import annotations

import platform
import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from counterprobe.philox import keyed_uniforms
from counterprobe.version import __version__

__all__ = [
    "STREAMS_VERSION",
    "CommitNoise",
    "Decisions",
    "Streams",
    "commit_uniforms",
    "require_streams",
    "versions",
]

# Raised whenever a fixed seed would draw different values than before.
STREAMS_VERSION = 2

_COMMIT = "commit"
_FRESH = "decision seed of a sequence"
_INPUT = "commit seed of an input"
_COMMIT_KEY = zlib.crc32(_COMMIT.encode())
# What the commit noise of a sequence has beside its uniforms, whose keys are shorter.
_RACES, _BRANCHES = 1, 2


def _check_seed(name: str, seed: int) -> None:
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"{name} must be a non-negative integer, got {seed!r}")


def keyed_generator(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """Return the generator of one purpose: independent across seeds, purposes and indices."""
    _check_seed("seed", seed)
    key = (zlib.crc32(purpose.encode()), *(int(k) for k in index))
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=key)))


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decision randomness of one run; the only randomness a sampler's rule may see."""

    seed: int

    def __call__(self, purpose: str, *index: int) -> np.random.Generator:
        """Return the generator for one purpose, such as ``rng("coloring", screen_index)``."""
        if purpose == _COMMIT:
            # With equal seeds this would be the commit noise itself.
            raise ValueError(f"purpose {_COMMIT!r} is reserved for commit noise; choose another")
        return keyed_generator(self.seed, purpose, *index)


@dataclass(frozen=True, slots=True)
class CommitNoise:
    """The commit uniforms of one sequence: one for each position and draw.

    Parameters
    ----------
    seed, sequence, length : int
        Commit seed, index of the sequence in its batch, number of positions.
    """

    seed: int
    sequence: int
    length: int
    _drawn: dict[int, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def uniforms(self, positions: NDArray[np.int64], draw: int = 0) -> NDArray[np.float64]:
        """Return the uniforms in ``[0, 1)`` of some positions, whatever else was asked."""
        if draw not in self._drawn:
            # A rule that redraws every step asks for thousands of draws, each once.
            for old in [k for k in self._drawn if k]:
                del self._drawn[old]
            key = (_COMMIT_KEY, self.sequence, draw)
            source = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=key))
            self._drawn[draw] = np.random.Generator(source).random(self.length)
        return self._drawn[draw][positions]

    def exponentials(self, positions: NDArray[np.int64], count: int) -> NDArray[np.float64]:
        """Return the standard exponentials of some positions, shape ``(n, count)``.

        Entry k of a position is the same whatever else was asked: each position counts from a
        place of its own in one counter-based stream.
        """
        seeds = (_COMMIT_KEY, self.sequence, 0, _RACES)
        key = np.random.SeedSequence(self.seed, spawn_key=seeds).generate_state(2, np.uint64)
        drawn = np.empty((len(positions), count))
        for row, position in zip(drawn, positions, strict=True):
            place = np.array([0, position, 0, 0], dtype=np.uint64)
            np.random.Generator(np.random.Philox(counter=place, key=key)).standard_exponential(
                out=row
            )
        return drawn

    def generator(self, *index: int) -> np.random.Generator:
        """Return a stream of its own, for rules that cannot say beforehand how often they draw."""
        key = (_COMMIT_KEY, self.sequence, 0, _BRANCHES, *index)
        source = np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=key))
        return np.random.Generator(source)


@dataclass(frozen=True, slots=True)
class Streams:
    """The seeds of one run.

    Parameters
    ----------
    decision_seed : int
        Colorings, probe values, tie-breaks, orders.
    commit_seed : int
        Token values, and nothing else.
    """

    decision_seed: int
    commit_seed: int

    def __post_init__(self) -> None:
        """Check the seeds."""
        _check_seed("decision_seed", self.decision_seed)
        _check_seed("commit_seed", self.commit_seed)

    @classmethod
    def from_seed(cls, seed: int) -> Streams:
        """Derive every stream from one seed, as ``--seed`` does on the command line."""
        _check_seed("seed", seed)
        decision, commit = np.random.SeedSequence(seed).generate_state(2, np.uint32)
        return cls(decision_seed=int(decision), commit_seed=int(commit))

    def with_fresh_decisions(self, sequence: int) -> Streams:
        """Return the streams of one of many sequences that decide independently of each other."""
        source = keyed_generator(self.decision_seed, _FRESH, sequence)
        return Streams(int(source.integers(2**63)), self.commit_seed)

    def of_input(self, digest: bytes, occurrence: int = 0) -> Streams:
        """Return the streams of one input: its own commit seed, the decisions of all inputs.

        Parameters
        ----------
        digest : bytes
            Of the ids and masks of the input; 16 bytes.
        occurrence : int
            How many equal inputs came before it.
        """
        words = np.frombuffer(digest, dtype="<u4")
        source = keyed_generator(self.commit_seed, _INPUT, *words, occurrence)
        return Streams(self.decision_seed, int(source.integers(2**63)))

    @property
    def decisions(self) -> Decisions:
        """The half a sampler's rule may see."""
        return Decisions(self.decision_seed)

    def commit_noise(self, length: int, sequence: int = 0) -> CommitNoise:
        """Return the other half: the uniforms that turn rows into tokens."""
        return CommitNoise(self.commit_seed, sequence, length)


def commit_uniforms(
    streams: Streams, length: int, sequences: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the first commit uniforms of every position of many sequences, shape ``(n, N)``."""
    return keyed_uniforms(streams.commit_seed, (_COMMIT_KEY,), sequences, (0,), length)


def require_streams(streams: object) -> None:
    """Refuse what is not a ``Streams``, such as a plain seed."""
    if not isinstance(streams, Streams):
        seed = streams if isinstance(streams, (int, np.integer)) else "seed"
        raise ValueError(
            f"streams must be a Streams, got {streams!r}; from one seed: Streams.from_seed({seed})"
        )


def versions() -> dict[str, str]:
    """Return what a result depends on: package, stream layout, NumPy, Python."""
    return {
        "counterprobe": __version__,
        "streams": str(STREAMS_VERSION),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
