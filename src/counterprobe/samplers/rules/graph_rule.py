"""What rules that go by a dependence graph have in common: where the graph comes from.

A rule sees rows and an *influence* matrix: entry ``[j, i]`` says how strongly position j bears on
what position i will be. It comes from one of three places.

- ``attention``: the weight that predicting i puts on j, with the evaluation that the rows come
  from. A step is one evaluation.
- ``strength``: a structure found before, whose nats become a bound on total variation. A step is
  one evaluation.
- ``probes``: candidates are drawn, those of the rule's sources are revealed one by one, and the
  others read (:func:`probed_influence`). A step of c sources is 1 + c evaluations in 2 stages.

``auto`` takes strengths if there are any, then attention if the model offers it, then probes; the
result says which it was.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from counterprobe.arguments import Count
from counterprobe.arrays import FloatArray, IntArray
from counterprobe.oracles import Readouts
from counterprobe.planning.strengths import frozen_strengths, require_known
from counterprobe.rows import Rows, to_numpy
from counterprobe.run.ledger import Need
from counterprobe.run.requests import (
    Commit,
    Draft,
    Drafted,
    Keep,
    Probe,
    Read,
    Reading,
    Requests,
    Stream,
)
from counterprobe.run.view import View
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.rules.stepwise import Reply, best_first
from counterprobe.streams import Decisions

__all__ = [
    "Choice",
    "GraphReport",
    "GraphRule",
    "GraphSource",
    "Source",
    "probed_influence",
    "spread_values",
]

GraphSource = Literal["auto", "attention", "probes", "strength"]
Source = Literal["attention", "probes", "strength"]
# Influence between so many positions takes an eighth of a gigabyte.
MOST_POSITIONS = 4096


@dataclass(frozen=True, slots=True)
class GraphReport:
    """Diagnostics of one run.

    Attributes
    ----------
    graph : {"attention", "probes", "strength"}
        Where the dependence graph came from.
    num_layers : int
        The last layers whose attention was averaged.
    """

    graph: Source
    num_layers: int

    @property
    def notes(self) -> list[str]:
        """Say where the graph came from."""
        if self.graph == "attention":
            return [f"dependence read from the attention of the last {self.num_layers} layers"]
        if self.graph == "strength":
            return ["dependence taken from the strengths of a structure found before"]
        return ["dependence found by probing"]


class Choice(Protocol):
    """A rule during one run."""

    def sources(self, reply: Reply) -> IntArray:
        """Return the positions whose influence has to be known, where it is probed."""
        ...

    def choose(self, reply: Reply, influence: FloatArray) -> IntArray:
        """Return the positions to commit, at least one.

        Parameters
        ----------
        reply : Reply
            The residual positions that may be chosen, and their rows.
        influence : ndarray of float, shape (N, N)
            Of source on target; where it is probed, zero but for the sources.
        """
        ...


@dataclass(frozen=True)
class GraphRule(Sampler):
    """Base of the rules that go by a dependence graph.

    Parameters
    ----------
    graph : {"auto", "attention", "probes", "strength"}
        Where dependence comes from.
    num_layers : int
        Attention is averaged over the last so many layers and all their heads.
    pool : int or None
        Where dependence is probed: only so many of the surest positions are looked at in a step,
        which bounds its cost; None is all of them.
    strength : ndarray of float, shape (N, N), optional
        Nats between positions, such as ``Structure.strength``. Not part of the settings that
        results show.
    """

    reads_everything: ClassVar[bool] = False
    """Whether probes read every residual position, or only the sources."""

    graph: GraphSource = field(default="auto", kw_only=True)
    num_layers: Count = field(default=4, kw_only=True)
    pool: Count | None = field(default=None, kw_only=True)
    strength: FloatArray | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        """Check the settings; freeze a copy of the strengths."""
        super().__post_init__()
        if self.strength is not None:
            object.__setattr__(self, "strength", frozen_strengths(self.strength))
        elif self.graph == "strength":
            raise ValueError(
                "strength must be given for graph='strength', got None: "
                'discover(oracle, mode="soft").strength, or choose another graph'
            )

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the strengths."""
        named = {item.name: getattr(self, item.name) for item in fields(self)}
        del named["strength"]
        return named

    @property
    def needs(self) -> Need:
        """The batch follows the reply; where it is probed, also candidates that were drawn."""
        if self.uses_strength:
            return Need.SELECT
        if self.graph == "attention":
            return Need.SELECT | Need.ATTENTION
        probing = Need.SELECT | Need.CANDIDATES | Need.PROBE
        return probing if self.graph == "probes" else probing | Need.ATTENTION

    @property
    def uses_strength(self) -> bool:
        """Whether the graph comes from strengths, whatever the model offers."""
        return self.strength is not None and self.graph in ("auto", "strength")

    def foreseen_evaluations(self, length: int, vocab_size: int) -> int | None:
        """Return about two per position where all of them are probed: in the worst case many more.

        With ``auto`` it depends on the model.
        """
        return 2 * length if self.graph == "probes" and self.probes_everything else None

    @property
    def probes_everything(self) -> bool:
        """Whether no position is ever committed without having been a source."""
        return False

    @abstractmethod
    def begin(self, view: View, source: Source) -> Choice:
        """Start the rule for one run, whose graph has the given source."""

    def source_of(self, view: View) -> Source:
        """Return where the graph of a run comes from."""
        if self.uses_strength:
            return "strength"
        if self.graph in ("attention", "probes"):
            return self.graph
        return "attention" if view.offers_attention else "probes"

    def unmask(self, view: View, rng: Decisions) -> Requests[GraphReport]:
        """Read, choose, commit, until nothing is left."""
        source = self.source_of(view)
        choice = self.begin(view, source)
        if source == "attention":
            yield from self._with_attention(view, choice)
        elif source == "strength":
            yield from self._with_strength(view, choice)
        else:
            if view.length > MOST_POSITIONS:
                raise ValueError(
                    f"sampler {self.name!r} probes at most {MOST_POSITIONS} positions, got "
                    f"{view.length}; use a model that offers attention, or pass strength="
                )
            yield from self.with_probes(view, choice, rng)
        return GraphReport(source, self.num_layers)

    def _with_attention(self, view: View, choice: Choice) -> Requests[None]:
        step = 0
        while not view.is_complete:
            reading: Reading = yield Read(attention=self.num_layers)
            assert reading.attention is not None
            reply = Reply(step, reading.positions, reading.rows)
            yield Commit(choice.choose(reply, reading.attention.T), reading)
            step += 1

    def _with_strength(self, view: View, choice: Choice) -> Requests[None]:
        assert self.strength is not None
        require_known(self.strength, view.residual)
        # Pinsker and Jensen: the mean total variation is at most the root of half the nats.
        known = np.nan_to_num(self.strength[: view.length, : view.length])
        influence = np.sqrt(np.maximum(known, 0) / 2)
        step = 0
        while not view.is_complete:
            reading: Reading = yield Read()
            reply = Reply(step, reading.positions, reading.rows)
            yield Commit(choice.choose(reply, influence), reading)
            step += 1

    def with_probes(self, view: View, choice: Choice, rng: Decisions) -> Requests[None]:
        """Draw candidates, reveal those of the sources one by one, and keep what is chosen."""
        influence = np.zeros((view.length, view.length))
        step = 0
        while not view.is_complete:
            drawn: Drafted = yield Draft()
            reply = self.pooled(Reply(step, drawn.positions, drawn.rows))
            sources = choice.sources(reply)
            influence[drawn.positions] = 0  # what committed ones moved stays known
            if len(sources) > 1:
                targets = drawn.positions if self.reads_everything else sources
                values = drawn.tokens[drawn.slots(sources)][:, None]
                moved = yield from probed_influence(view, drawn.rows, sources, values, targets)
                influence[np.ix_(sources, targets)] = moved
            yield Keep(choice.choose(reply, influence))
            step += 1

    def pooled(self, reply: Reply) -> Reply:
        """Return the reply restricted to the pool: its surest positions."""
        if self.pool is None or self.pool >= len(reply.residual):
            return reply
        keep = np.zeros(len(reply.residual), dtype=np.bool_)
        keep[best_first(reply.confidence())[: self.pool]] = True
        return reply.within(keep)


# Numbers in the states, and in the readouts, of one request: a stage is asked in pieces.
PIECE = 1 << 18


def probed_influence(
    view: View, rows: Rows, sources: IntArray, values: IntArray, targets: IntArray
) -> Requests[FloatArray]:
    """Reveal sources one by one; return how far the rows of targets moved.

    One stage, of an evaluation per source and value whatever the number of targets. For exact rows
    the mean of the total variation over a source's own row is the distance between the joint law
    of source and target and the product of their marginals: alike in both directions, and zero if
    and only if they are independent given the history.

    Parameters
    ----------
    view : View
    rows : Rows
        Of every residual position at the current state, increasing.
    sources : ndarray of int, shape (c,)
        Residual positions.
    values : ndarray of int, shape (c, K)
        What each is revealed as; a value that is repeated counts as often and is asked once.
    targets : ndarray of int, shape (t,)
        Residual positions to read.

    Returns
    -------
    ndarray of float, shape (c, t)
        Mean total variation between the target's row beside the source and its row alone. What
        the declared row error explains is no movement; nothing moves itself.
    """
    state, slots = view.state, np.searchsorted(view.residual, targets)
    moved = np.zeros((len(sources), len(targets)))
    pairs, repeats = np.unique(
        np.stack([np.repeat(np.arange(len(sources)), values.shape[1]), values.ravel()], axis=1),
        axis=0,
        return_counts=True,
    )
    source, token = pairs.T

    def probes() -> Iterator[Probe]:
        step = max(1, PIECE // max(view.length, len(targets)))
        for low in range(0, len(source), step):
            which = np.arange(low, min(low + step, len(source)))
            states = np.tile(state, (len(which), 1))
            states[np.arange(len(which)), sources[source[which]]] = token[which]
            index, column = np.nonzero(targets != sources[source[which]][:, None])
            if len(index):
                readouts = Readouts.pairs(index, targets[column])
                yield Probe(states, readouts, label=(which[index], column))

    def compare(probe: Probe, replies: Rows) -> None:
        which, column = probe.label
        far = np.asarray(to_numpy(replies.total_variation(rows.take(slots[column]))), np.float64)
        far[far <= 2 * view.row_error] = 0  # both rows may be off by as much
        np.add.at(moved, (source[which], column), far * repeats[which] / values.shape[1])

    yield Stream(probes(), compare, purpose="influence")
    return moved


def spread_values(rows: Rows, count: int, generator: np.random.Generator) -> IntArray:
    """Draw values from each row, spread evenly over its distribution function.

    One uniform per row is shifted by whole steps of ``1 / count``, so that every value comes
    up as often as its probability says, up to one; the mean of anything over them is unbiased.

    Parameters
    ----------
    rows : Rows
        Of c positions.
    count : int
        Values of each.
    generator : Generator
        Of the decision stream: no value that is committed is looked at.

    Returns
    -------
    ndarray of int, shape (c, count)
    """
    uniforms = (generator.random((len(rows), 1)) + np.arange(count)) / count
    every = rows.take(np.repeat(np.arange(len(rows)), count))
    return np.asarray(every.draw(uniforms.ravel())).reshape(len(rows), count)
