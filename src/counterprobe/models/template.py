"""Templates: what of a model's input is given, what is masked, and what may stand where.

A model reads ids; a sampler works with the tokens ``0 .. V-1`` of N positions. A ``Template`` is
the bridge for one input: a *frame* of ids (special tokens, a prompt in ids that are never drawn),
the *slots* of the frame that are positions of the oracle, the context given at them, the model id
of every token, and, where wanted, which tokens may stand at which position. It turns states into
ids for the model, and finished tokens into text.

Special tokens and the mask are no tokens of a template, so that no sampler ever shows or draws
one; where a token of the vocabulary is not allowed at a position, its probability there is zero.

Several slots may be *tied* into one position: they always show the same token, and their rows are
combined into one (``tied.py``), so that to a sampler they are one position and cost as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.states import MASK, as_states

__all__ = ["Allowed", "Template"]

# Characters of a text that are printed.
SHOWN = 400
# Nats that may be added to a logit: far above what any model says, far below what overflows.
MOST_BIAS = 1_000_000

Spell = Callable[[IntArray], str]
LookUp = Callable[[str], Sequence[int]]
# Everywhere alike; or by position; or one collection a position; or a table of shape (N, V).
Allowed = Iterable[Any] | Mapping[int, Any] | BoolArray


def _as_numbers(ids: IntArray) -> str:
    """Spell ids where nothing better is known."""
    return " ".join(str(int(k)) for k in ids)


def _no_spelling(symbol: str) -> Sequence[int]:
    raise ValueError(f"this template knows no spelling: name tokens by model id, got {symbol!r}")


def names_tokens(allowed: Any) -> bool:
    """Whether ``allowed`` names tokens for every position alike."""
    if isinstance(allowed, Mapping):
        return False
    return all(isinstance(one, (int, np.integer, str)) for one in allowed)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Template:
    """One input of a masked model, with holes.

    Attributes
    ----------
    frame : ndarray of int, shape (L,)
        The model's input ids; what stands at the slots is of no account.
    slots : ndarray of int, shape (S,)
        Where in the frame the oracle's positions are, one slot each unless some are tied.
    given : ndarray of int, shape (N,)
        Tokens known already, ``MASK`` where something is to be filled in.
    vocabulary : ndarray of int, shape (V,)
        The model id of each token; the mask is none of them.
    mask_id : int
        What the model reads at a masked position.
    kind : ndarray of int, shape (N,), optional
        Which row of ``permitted`` a position uses.
    permitted : ndarray of bool, shape (K, V), optional
        The tokens that may stand there; everything is allowed without it.
    spell : callable
        Turns the ids of a whole frame into text.
    look_up : callable
        Turns a spelling into the ids it may mean, for :meth:`allow`.
    names : tuple of str
        What people call each position, such as ``A52B``; without names, its number from 1.
    bias : ndarray of float, shape (N, V), optional
        What is added to logits before they are divided by a temperature.
    tied : ndarray of int, shape (S,), optional
        The position that every slot belongs to, where some are tied.
    shares : ndarray of float, shape (S,), optional
        By how much the logits of every slot count for its position, where some are tied.
    coordinates : ndarray of float, shape (S, 3), optional
        Where every slot is in space, where there is a backbone.

    Examples
    --------
    >>> template = Template.from_ids([101, 7, 103, 103, 102], 103, range(100))
    >>> template.given
    array([ 7, -1, -1], dtype=int32)
    >>> template.text([7, 8, 9])
    '101 7 8 9 102'
    """

    frame: IntArray
    slots: IntArray
    given: StateArray
    vocabulary: IntArray
    mask_id: int
    kind: IntArray | None = None
    permitted: BoolArray | None = None
    spell: Spell = field(default=_as_numbers)
    look_up: LookUp = field(default=_no_spelling)
    names: tuple[str, ...] = ()
    bias: FloatArray | None = None
    tied: IntArray | None = None
    shares: FloatArray | None = None
    coordinates: FloatArray | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        always = self.frame, self.slots, self.given, self.vocabulary
        tied = self.tied, self.shares
        for array in (*always, self.permitted, self.kind, self.bias, *tied, self.coordinates):
            if array is not None:
                array.setflags(write=False)

    def __repr__(self) -> str:
        """Say how much is to be filled in."""
        tied = "" if self.tied is None else f", which {len(self.slots)} residues are tied into"
        return (
            f"Template({len(self.masked)} of {self.length} positions masked{tied}, "
            f"{self.vocab_size} tokens: {self.text(self.given)[:60]!r})"
        )

    def __str__(self) -> str:
        """Say the text, and how much of it is to be filled in from how many tokens."""
        text = self.text(self.given)
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        some = ", not all of them everywhere" if self.has_restrictions else ""
        tied = "" if self.tied is None else f"; {len(self.slots)} residues are tied to these"
        return (
            f"{shown}\n{len(self.masked)} of {self.length} positions masked{tied}; "
            f"{self.vocab_size} tokens{some}"
        )

    @property
    def distances(self) -> FloatArray | None:
        """How far positions are from each other, shape ``(N, N)``, where coordinates are known.

        Tied slots are as near to others as the nearest of them.
        """
        if self.coordinates is None:
            return None
        gaps = self.coordinates[:, None] - self.coordinates[None]
        apart: FloatArray = np.linalg.norm(gaps, axis=-1)
        if self.tied is None:
            return apart
        nearest = np.full((self.length, self.length), np.inf)
        np.minimum.at(nearest, (self.tied[:, None], self.tied[None, :]), apart)
        np.fill_diagonal(nearest, 0.0)
        return nearest

    # ----- Making one ----------------------------------------------------------------------

    @classmethod
    def from_ids(
        cls,
        ids: ArrayLike,
        mask_id: int,
        vocabulary: Iterable[int],
        *,
        allowed: Allowed | None = None,
        spell: Spell = _as_numbers,
        look_up: LookUp = _no_spelling,
    ) -> Template:
        """Make a template of one input of a model.

        Ids outside the vocabulary, such as special tokens, stay as they are and are no positions
        of the oracle; every other one is, masked or given.

        Parameters
        ----------
        ids : array_like of int, shape (L,)
            The input, with ``mask_id`` wherever something is to be filled in.
        mask_id : int
        vocabulary : iterable of int
            The ids that may be drawn; the mask is left out. Token k is the k-th of them.
        allowed
            See :meth:`allow`.
        spell, look_up : callable, optional
        """
        frame = np.array(ids)
        if frame.ndim != 1 or frame.dtype.kind not in "iu":
            raise ValueError(
                f"ids must be a flat list of integers, got shape {frame.shape} and dtype "
                f"{frame.dtype}"
            )
        frame = frame.astype(np.int64)
        mask_id = whole_number("mask_id", mask_id)
        listed = np.fromiter(vocabulary, dtype=np.int64)
        tokens = listed[listed != mask_id]
        if len(tokens) == 0 or tokens.min() < 0 or len(np.unique(tokens)) != len(tokens):
            raise ValueError(
                "vocabulary must hold different ids of at least 0, the mask not counted; got "
                f"{len(tokens)} ids, {len(np.unique(tokens))} different"
            )
        token_of = {int(k): t for t, k in enumerate(tokens)}
        token_of[mask_id] = MASK
        slots = np.flatnonzero([int(k) in token_of for k in frame])
        if len(slots) == 0:
            raise ValueError("ids must hold a mask or a token of the vocabulary, got neither")
        given = np.array([token_of[int(k)] for k in frame[slots]], dtype=np.int32)
        template = cls(frame, slots, given, tokens, mask_id, spell=spell, look_up=look_up)
        return template if allowed is None else template.allow(allowed)

    @classmethod
    def blank(
        cls,
        length: int,
        vocabulary: Iterable[int],
        mask_id: int,
        *,
        allowed: Allowed | None = None,
    ) -> Template:
        """Make a template that masks ``length`` positions and has no frame."""
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length!r}")
        return cls.from_ids(np.full(length, mask_id), mask_id, vocabulary, allowed=allowed)

    def allow(self, allowed: Allowed) -> Template:
        """Return the template with fewer tokens allowed; what was excluded before stays so.

        Parameters
        ----------
        allowed : collection, mapping or ndarray of bool
            One collection of tokens for every position, a mapping from positions to collections,
            one collection a position (a list of N lists), or a table of shape (N, V). Tokens are
            named by model id or, where the template can spell, by spelling: ``{3: "AVL"}``.
        """
        kind, rows = self._allowed_rows(allowed)
        if self.permitted is not None and self.kind is not None:
            pairs, kind = np.unique(
                np.stack([kind, self.kind], axis=1), axis=0, return_inverse=True
            )
            rows = rows[pairs[:, 0]] & self.permitted[pairs[:, 1]]
            kind = kind.reshape(-1).astype(np.int64)
        empty = np.asarray(~rows.any(axis=1))[kind]
        if empty.any():
            k = int(np.argmax(empty))
            where = self.names[k] if self.names else f"number {k + 1}, from 1"
            raise ValueError(f"allowed must leave a token at every position, got none at {where}")
        return replace(self, kind=kind, permitted=rows)

    def favour(self, positions: ArrayLike, tokens: Any, bias: float) -> Template:
        """Return the template with a number added to the logits of some tokens somewhere.

        Parameters
        ----------
        positions : array_like of int, shape (n,)
        tokens
            One or more, named as in :meth:`allow`.
        bias : float
            In nats; above 0 makes tokens likelier. What was added before stays.
        """
        if not abs(bias) <= MOST_BIAS:
            raise ValueError(
                f"bias must be a number of nats, at most {MOST_BIAS:,} either way, got {bias!r}; "
                "leave tokens out to forbid them"
            )
        table = np.zeros((self.length, self.vocab_size)) if self.bias is None else self.bias.copy()
        table[np.ix_(np.asarray(positions), self.which(tokens))] += bias
        return replace(self, bias=table)

    def tie(self, groups: Iterable[ArrayLike], weights: ArrayLike | None = None) -> Template:
        """Return the template with positions tied: each group is one position from now on.

        A group's logits are the mean of those of its members, each times its weight, as in
        ProteinMPNN; its bias is the mean, and what may stand there is what may stand at all of
        them. Groups stand in the order of their first members.

        Parameters
        ----------
        groups : iterable of array_like of int
            Positions that show the same token; who is in none stays alone.
        weights : array_like of float, shape (N,), optional
            By default 1 everywhere. A weight below 0 draws what a member would not have.
        """
        if self.tied is not None:
            raise ValueError("positions must be tied once: name all groups together")
        first, count = np.arange(self.length), np.zeros(self.length, dtype=np.int64)
        for group in groups:
            members = np.asarray(group, dtype=np.int64)
            np.add.at(count, members, 1)
            first[members] = members.min()
        if (count > 1).any():
            twice = self.name_of(int(np.argmax(count > 1)))
            raise ValueError(
                f"a position must be in one group of tied ones, but {twice} is in two"
            )
        heads, tied = np.unique(first, return_inverse=True)
        tied = tied.reshape(-1).astype(np.int64)
        for k in np.flatnonzero(self.given != self.given[first]):
            raise ValueError(
                f"tied positions must be given alike, or all masked; {self.name_of(int(k))} and "
                f"{self.name_of(int(first[k]))} are not"
            )
        sizes = np.bincount(tied)
        whole = np.ones(self.length) if weights is None else np.asarray(weights, dtype=np.float64)
        changes: dict[str, Any] = {}
        if self.bias is not None:
            changes["bias"] = np.zeros((len(heads), self.vocab_size))
            np.add.at(changes["bias"], tied, self.bias / sizes[tied, None])
        plain = replace(
            self,
            given=self.given[heads],
            names=tuple(self.names[k] for k in heads) if self.names else (),
            kind=None,
            permitted=None,
            tied=tied,
            shares=whole / sizes[tied],
            **changes,
        )
        if self.permitted is None:
            return plain
        table = np.ones((len(heads), self.vocab_size), dtype=np.bool_)
        np.logical_and.at(table, tied, self.permitted[self.kind])
        return plain.allow(table)

    def untied(self) -> Template:
        """Return the template of all slots apart, with anything allowed anywhere: what is read."""
        if self.tied is None:
            return self
        return replace(
            self,
            given=self.given[self.tied],
            names=(),
            kind=None,
            permitted=None,
            bias=None,
            tied=None,
            shares=None,
        )

    def _allowed_rows(self, allowed: Allowed) -> tuple[IntArray, BoolArray]:
        """Return which set each position uses, and the sets, shape (K, V)."""
        kind = np.zeros(self.length, dtype=np.int64)
        if isinstance(allowed, np.ndarray) and allowed.dtype == np.bool_:
            if allowed.shape != (self.length, self.vocab_size):
                raise ValueError(
                    f"a table of allowed tokens must have shape {(self.length, self.vocab_size)}, "
                    f"got {allowed.shape}"
                )
            return np.arange(self.length), allowed.copy()
        if isinstance(allowed, Mapping):
            for k, position in enumerate(allowed, start=1):
                if not 0 <= position < self.length:
                    raise ValueError(
                        f"positions of allowed must lie in 0..{self.length - 1}, got {position!r}"
                    )
                kind[position] = k
            anything = np.ones(self.vocab_size, dtype=np.bool_)
            return kind, np.stack([anything, *(self.which(one) for one in allowed.values())])
        every = [allowed] if isinstance(allowed, str) else list(allowed)
        if names_tokens(every):
            return kind, self.which(every)[None, :]
        if len(every) != self.length:
            raise ValueError(
                f"allowed must have one collection for each of {self.length} positions, got "
                f"{len(every)}"
            )
        return np.arange(self.length), np.stack([self.which(tokens) for tokens in every])

    def which(self, tokens: Any) -> BoolArray:
        """Return which tokens a collection names, shape (V,)."""
        names = [tokens] if isinstance(tokens, (int, np.integer, str)) else list(tokens)
        ids: list[int] = []
        for name in names:
            ids.extend(self.look_up(name) if isinstance(name, str) else [int(name)])
        unknown = ~np.isin(ids, self.vocabulary)
        if unknown.any():
            raise ValueError(
                f"allowed tokens must be in the vocabulary, got id {ids[int(np.argmax(unknown))]}"
            )
        return np.isin(self.vocabulary, ids)

    # ----- What it says --------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Number of positions N."""
        return len(self.given)

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return len(self.vocabulary)

    @property
    def masked(self) -> IntArray:
        """Positions to be filled in."""
        return np.flatnonzero(self.given == MASK)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is masked: the text is finished as it is."""
        return len(self.masked) == 0

    @property
    def has_restrictions(self) -> bool:
        """Whether some token is not allowed at some position."""
        return self.permitted is not None and not self.permitted.all()

    def name_of(self, position: int) -> str:
        """Return what people call a position."""
        return self.names[position] if self.names else str(position + 1)

    # ----- Back and forth ------------------------------------------------------------------

    def fill(self, states: ArrayLike) -> IntArray:
        """Return what the model reads: ids of shape ``(B, L)`` for states of shape ``(B, N)``."""
        tokens = as_states(states, self.length, self.vocab_size)
        ids = np.tile(self.frame, (len(tokens), 1))
        if self.tied is not None:
            tokens = tokens[:, self.tied]
        shown = self.vocabulary[np.maximum(tokens, 0)]
        ids[:, self.slots] = np.where(tokens == MASK, self.mask_id, shown)
        return ids

    def text(self, tokens: ArrayLike) -> str:
        """Return one sequence of tokens, shape ``(N,)``, as text; masks stay visible."""
        return self.texts(np.asarray(tokens)[None, :])[0]

    def texts(self, sequences: ArrayLike) -> list[str]:
        """Return sequences of tokens, shape ``(B, N)``, as texts."""
        return [self.spell(ids) for ids in self.fill(sequences)]
