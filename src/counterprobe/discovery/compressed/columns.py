"""Columns: which tokens a position shows as a source, and how a shown token enters the model.

A source shows one of its bank tokens, or a fresh random token of one of its *tail groups*: the
tokens outside the bank, split into those that rows never tell apart (the classes of classed rows;
dense rows have one tail group). Each of these choices is shown equally often, so that a dependence
carried by any one of them is seen once in K showings; a tail token is drawn anew each time, since
one representative would stand for its group only by luck. What a choice does to a row is one term
of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.compiled import kernel
from counterprobe.discovery.banks import Banks, bounded_threshold
from counterprobe.rows import ClassedRows, Rows, to_numpy
from counterprobe.theory.parameters import threshold_floor

__all__ = ["ABSENT", "MOST_BANK_TOKENS", "MOST_COORDINATES", "Columns", "default_thresholds"]

# A coordinate of less all-mask mass is absent: the position has no such token.
ABSENT = 1e-30
# Dense rows of no more tokens than this are kept as they are, and every token has a column.
MOST_COORDINATES = 32
# Tokens with a column of their own at one position, unless the threshold is given: the probes that
# evidence takes grow in proportion.
MOST_BANK_TOKENS = 16
# Where the paper's floor passes this, it tells tokens apart no more: all of them start in banks.
COARSE = 0.25


def default_thresholds(rows: Rows, row_error: float) -> tuple[float, float]:
    """Return the bank threshold as the paper has it, and as it is used.

    The first is the floor ``4 max(row_error, 1/V)``, or zero (every token) where that is coarse or
    tokens are few. The second is raised until no bank has more than ``MOST_BANK_TOKENS`` tokens;
    the others go to the tail groups. The tail groups of classed rows tell apart all that differ,
    so their banks need no more tokens than there are classes.

    Parameters
    ----------
    rows : Rows
        The all-mask rows.
    row_error : float
    """
    most = MOST_BANK_TOKENS
    if isinstance(rows, ClassedRows):
        most = min(most, rows.classes.num_classes)
    elif rows.vocab_size <= MOST_COORDINATES:
        return 0.0, 0.0
    floor = threshold_floor(row_error, rows.vocab_size)
    usual = 0.0 if floor > COARSE else floor
    return usual, bounded_threshold(rows, row_error, usual, most)


@dataclass(frozen=True, slots=True)
class Columns:
    """What every position can show.

    Attributes
    ----------
    banks : Banks
    num_choices : ndarray of int, shape (N,)
        Bank tokens first, then tail groups.
    kind : ndarray of int, shape (N,)
        Which row of the group arrays a position uses.
    group : ndarray of int, shape (kinds, V)
        Tail group of each token.
    group_tokens, group_start : ndarray of int, shape (kinds, V), (kinds, groups + 1)
        Tokens of each group, increasing; dense rows put behind them what is impossible.
    tail_group : ndarray of int, shape (N, K)
        Group of each tail choice; -1 for bank tokens and unused choices.
    choice_of_coordinate : ndarray of int, shape (N, C)
        A choice that shows a token of each coordinate of the position's row, or -1.
    coordinate_of_choice : ndarray of int, shape (N, K)
        The coordinate that a choice's tokens belong to, or -1. Together these say how the row of
        a position meets its choices as a source.
    """

    banks: Banks
    num_choices: IntArray
    kind: IntArray
    group: IntArray
    group_tokens: IntArray
    group_start: IntArray
    tail_group: IntArray
    choice_of_coordinate: IntArray
    coordinate_of_choice: IntArray

    @classmethod
    def of(cls, banks: Banks, residual: IntArray, rows: Rows) -> Columns:
        """Build the columns of all positions from the banks and the kind of rows read.

        A token that a position cannot have is no choice of it.

        Parameters
        ----------
        banks : Banks
        residual : ndarray of int
            The positions that were read.
        rows : Rows
            Their all-mask rows.
        """
        length, vocab_size = len(banks.tail), rows.vocab_size
        masses = to_numpy(rows.masses)
        is_possible = np.ones((length, masses.shape[1]), dtype=np.bool_)
        is_possible[residual] = masses > ABSENT
        if isinstance(rows, ClassedRows):
            kind, group = rows.classes.kind, rows.classes.token_class
            tokens, group_start = rows.classes.sorted_tokens, rows.classes.class_start
        else:
            # One tail group: the tokens that are possible, first in the order of its kind.
            kinds, kind = np.unique(is_possible, axis=0, return_inverse=True)
            group = np.zeros((len(kinds), vocab_size), dtype=np.int64)
            tokens = np.argsort(~kinds, axis=1, kind="stable")
            group_start = np.stack([np.zeros(len(kinds), np.int64), kinds.sum(axis=1)], axis=1)
        num_groups = group_start.shape[1] - 1
        sizes = banks.sizes
        owner = np.repeat(np.arange(length), sizes)
        slot = np.arange(len(banks.tokens)) - banks.start[owner]
        in_bank = np.zeros((length, num_groups), dtype=np.int64)
        bank_group = group[kind[owner], banks.tokens]
        np.add.at(in_bank, (owner, bank_group), 1)
        outside = np.diff(group_start, axis=1)[kind] - in_bank
        has_tail = outside > 0
        if isinstance(rows, ClassedRows):
            has_tail &= is_possible
        num_choices = sizes + has_tail.sum(axis=1)
        width = int(num_choices.max())
        tail_group = np.full((length, width), -1)
        position, tail = np.nonzero(has_tail)
        tail_choice = (sizes[:, None] + np.cumsum(has_tail, axis=1) - 1)[position, tail]
        tail_group[position, tail_choice] = tail
        # Coordinates are classes for classed rows and tokens for dense ones.
        coordinate_of_choice = np.full((length, width), -1)
        if isinstance(rows, ClassedRows):
            coordinate_of_choice[position, tail_choice] = tail
            coordinate_of_choice[owner, slot] = bank_group
            num_coordinates = num_groups
        else:
            coordinate_of_choice[owner, slot] = banks.tokens
            in_bank_too = np.zeros((length, vocab_size), dtype=np.bool_)
            in_bank_too[owner, banks.tokens] = True
            alone = outside[position, tail] == 1
            left = (is_possible & ~in_bank_too)[position[alone]].argmax(axis=1)
            coordinate_of_choice[position[alone], tail_choice[alone]] = left
            num_coordinates = vocab_size
        choice_of_coordinate = np.full((length, num_coordinates), -1)
        position, choice = np.nonzero(coordinate_of_choice >= 0)
        choice_of_coordinate[position, coordinate_of_choice[position, choice]] = choice
        return cls(
            banks,
            num_choices,
            np.ascontiguousarray(kind),
            np.ascontiguousarray(group),
            np.ascontiguousarray(tokens),
            np.ascontiguousarray(group_start),
            tail_group,
            choice_of_coordinate,
            coordinate_of_choice,
        )

    @property
    def has_mixed_tail(self) -> bool:
        """Whether some tail group holds tokens that may act differently: those of dense rows."""
        num_groups = self.group_start.shape[1] - 1
        is_dense = self.choice_of_coordinate.shape[1] > num_groups
        outside = self.group_start[self.kind, 1] - self.banks.sizes
        return is_dense and bool((outside > 1).any())

    @property
    def width(self) -> int:
        """The largest number of choices."""
        return int(self.tail_group.shape[1])

    def choices_of(self, coordinate: IntArray) -> IntArray:
        """Return choices that show coordinates, shape ``(..., N)``; the last where none does."""
        choice = self.choice_of_coordinate[np.arange(len(self.num_choices)), coordinate]
        return np.where(choice >= 0, choice, np.maximum(self.num_choices - 1, 0))

    def show(self, choice: IntArray, uniforms: FloatArray) -> IntArray:
        """Turn one choice a position into a token.

        Parameters
        ----------
        choice : ndarray of int, shape (B, N)
        uniforms : ndarray of float, shape (B, N)
            Which token of its group, where the choice is a tail group.

        Returns
        -------
        ndarray of int, shape (B, N)
        """
        tokens = np.empty(choice.shape, dtype=np.int64)
        _show(
            choice,
            uniforms,
            self.banks.start,
            self.banks.tokens,
            self.kind,
            self.group,
            self.group_tokens,
            self.group_start,
            self.tail_group,
            tokens,
        )
        return tokens


@kernel
def _show(
    choice: IntArray,
    uniforms: FloatArray,
    start: IntArray,
    bank: IntArray,
    kind: IntArray,
    group: IntArray,
    group_tokens: IntArray,
    group_start: IntArray,
    tail_group: IntArray,
    tokens: IntArray,
) -> None:
    """Look up bank tokens; draw tail tokens uniformly from their group, bank tokens left out."""
    for b in range(choice.shape[0]):
        for i in range(choice.shape[1]):
            low, high, a = start[i], start[i + 1], choice[b, i]
            if a < high - low:
                tokens[b, i] = bank[low + a]
                continue
            g, k = tail_group[i, a], kind[i]
            size = group_start[k, g + 1] - group_start[k, g]
            for s in range(low, high):
                if group[k, bank[s]] == g:
                    size -= 1
            place = group_start[k, g] + int(uniforms[b, i] * size)
            for s in range(low, high):  # bank and group are sorted: step over the bank's tokens
                if group[k, bank[s]] == g and bank[s] <= group_tokens[k, place]:
                    place += 1
            tokens[b, i] = group_tokens[k, place]
