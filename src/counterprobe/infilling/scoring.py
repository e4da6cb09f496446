"""``score``: how well a model likes finished sequences, whoever made them.

A score is in nats per scored position at temperature 1, lower is better, by one of three ways:

- ``decoding-order``: for ProteinMPNN, its own score: mean negative log-likelihood of the scored
  residues, each given those before it in a random order and everything that is fixed; one
  evaluation an order. As in its package the letter X has a share, though it is never drawn, which
  is a few thousandths of a nat.
- ``pseudo``: for masked models; every position alone is masked. One evaluation a position.
- ``chain-rule``: the model's probability of the sequence, position by position in a random order;
  one evaluation a position and order. Orders of a learned model disagree, and by how much is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.evaluation.likelihood import (
    AT_ONCE,
    LogLikelihoods,
    log_likelihoods,
    pseudo_log_likelihoods,
)
from counterprobe.infilling.fasta import FastaRecord
from counterprobe.infilling.task import as_model
from counterprobe.models import MaskedModel, Template
from counterprobe.oracles import Oracle
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

__all__ = ["METHODS", "Method", "Scores", "score"]

Method = Literal["decoding-order", "pseudo", "chain-rule"]
METHODS: tuple[str, ...] = get_args(Method)
# Random orders by default: ProteinMPNN's package has as many sequences a target.
ORDERS = 8
# Rounding of a network; nothing is measured for it where rows are only added up.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Scores of sequences, lower is better.

    Attributes
    ----------
    names : tuple of str
    sequences : tuple of str
    values : ndarray of float, shape (count, orders)
        Nats per scored position, one an order; one column where orders play no part.
    num_scored : ndarray of int, shape (count,)
        Positions that were scored.
    recoveries : ndarray of float, shape (count,), optional
        Share of them that have the backbone's letter.
    method : str
    ledger : Ledger
        What it took, as probes.

    Examples
    --------
    >>> print(score("sapiens-heavy", ["EVQLVESGG", "EVQLWWSGG"], model_options={"device": "cpu"}))
    2 sequences by pseudo, 18 evaluations; lower is better
    1  sequence_1  2.3988
    2  sequence_2  2.6043
    """

    names: tuple[str, ...]
    sequences: tuple[str, ...]
    values: FloatArray
    num_scored: IntArray
    recoveries: FloatArray | None
    method: str
    ledger: Ledger

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.values, self.num_scored, self.recoveries):
            if array is not None:
                array.setflags(write=False)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.names)

    @property
    def mean(self) -> FloatArray:
        """The score of each sequence: the mean over orders."""
        means: FloatArray = self.values.mean(axis=1)
        return means

    @property
    def errors(self) -> FloatArray | None:
        """Standard error of each mean over orders; None where there is but one."""
        orders = self.values.shape[1]
        if orders < 2:
            return None
        spread: FloatArray = self.values.std(axis=1, ddof=1) / math.sqrt(orders)
        return spread

    @property
    def ranked(self) -> IntArray:
        """Which sequence is best, second and so on."""
        return np.argsort(self.mean, kind="stable")

    def __str__(self) -> str:
        """List the sequences, the best first."""
        head = f"{len(self)} sequences by {self.method}, {self.ledger.evaluations:,} evaluations"
        errors = self.errors
        lines = []
        for place, k in enumerate(self.ranked, start=1):
            error = "" if errors is None else f" +- {errors[k]:.4f}"
            lines.append(f"{place}  {self.names[k]}  {self.mean[k]:.4f}{error}")
        return "\n".join([f"{head}; lower is better", *lines])

    def records(self) -> list[dict[str, Any]]:
        """Return a row of plain values for every sequence, the best first."""
        errors = self.errors
        rows: list[dict[str, Any]] = []
        for place, k in enumerate(self.ranked, start=1):
            row = {
                "name": self.names[k],
                "sequence": self.sequences[k],
                "rank": place,
                "score": float(self.mean[k]),
                "error": None if errors is None else float(errors[k]),
                "recovery": None if self.recoveries is None else float(self.recoveries[k]),
                "scored": int(self.num_scored[k]),
            }
            rows.append({key: value for key, value in row.items() if value is not None})
        return rows


def score(
    model: Any,
    sequences: Iterable[str | FastaRecord] | Mapping[str, str],
    *,
    method: Method | None = None,
    orders: int = ORDERS,
    seed: int = 0,
    at_once: int = AT_ONCE,
    template_options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
) -> Scores:
    """Score finished sequences of any origin.

    Parameters
    ----------
    model
        As in ``infill``; ProteinMPNN and Frame2seq on a backbone, for sequences of its length.
    sequences : sequences of str or of FastaRecord, or mapping of names to str
        Without masks.
    method : {"decoding-order", "pseudo", "chain-rule"}, optional
        By default ProteinMPNN's own where it is the model, and ``pseudo`` otherwise.
    orders : int
        Random orders of each sequence; the same ones for all sequences of one length.
    seed : int
        Of the orders.
    at_once : int
        States in one call of the model, at most.
    template_options : mapping, optional
        ``design`` or ``fixed``: which positions are scored, given the others. By default all, and
        on a backbone all that the network knows the place of.
    model_options : mapping, optional
        For loading a model by name, such as ``backbone`` and ``device``.
    """
    orders = whole_number("orders", orders, at_least=1)
    if method is not None and method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")
    chosen = dict(template_options or {})
    unread = sorted(set(chosen) - {"design", "fixed"})
    if unread:
        raise ValueError(f"scores know design and fixed, got {', '.join(unread)}")
    known = as_model(model, model_options)
    if known is None:
        raise ValueError("score needs a model that reads sequences, got an oracle")
    is_ordered = hasattr(known, "decoder")
    if method == "decoding-order" and not is_ordered:
        raise ValueError(f"decoding-order is a score of proteinmpnn, got {known.name!r}")
    chosen_method: str = method or ("decoding-order" if is_ordered else "pseudo")
    records = _as_records(sequences)
    read = [_read(known, one, chosen) for one in records]
    parts: list[LogLikelihoods] = []
    oracle: Oracle | None = None
    for k, (template, tokens, is_scored) in enumerate(read):
        if oracle is None or not _is_alike(template, read[k - 1][0]):
            blank = replace(template, given=np.full_like(tokens, MASK))
            options = {}
            if chosen_method == "decoding-order":
                options = {"order": "commit"}
                with_unknown = np.append(template.vocabulary, template.mask_id)
                blank = replace(blank, vocabulary=with_unknown)
            oracle = known.oracle(blank, row_error=ROUNDING, **options)
        given = np.where(is_scored, MASK, tokens)
        if chosen_method == "pseudo":
            found = pseudo_log_likelihoods(oracle, tokens, given=given, at_once=at_once)
        else:
            found = log_likelihoods(
                oracle, tokens, given=given, orders=orders, seed=seed, at_once=at_once
            )
        parts.append(found)
    num_scored = np.concatenate([part.num_tokens for part in parts])
    return Scores(
        tuple(one.name for one in records),
        tuple(one.sequence for one in records),
        -np.concatenate([part.values for part in parts]) / num_scored[:, None],
        num_scored,
        _recoveries(known, records, read),
        chosen_method,
        sum((part.ledger for part in parts), Ledger()),
    )


# ----- Reading --------------------------------------------------------------------------------

_Read = tuple[Template, StateArray, BoolArray]


def _as_records(
    sequences: Iterable[str | FastaRecord] | Mapping[str, str],
) -> list[FastaRecord]:
    if isinstance(sequences, Mapping):
        return [FastaRecord(name, text) for name, text in sequences.items()]
    if isinstance(sequences, str):
        sequences = [sequences]
    records = [
        one if isinstance(one, FastaRecord) else FastaRecord(f"sequence_{k}", one)
        for k, one in enumerate(sequences, start=1)
    ]
    if not records:
        raise ValueError("sequences must hold at least one, got none")
    return records


def _read(model: MaskedModel, record: FastaRecord, chosen: Mapping[str, Any]) -> _Read:
    """Return a template, the tokens, and which positions are scored; errors name the record."""
    try:
        template = model.template(record.sequence)
        if not template.is_complete:
            first = template.name_of(int(template.masked[0]))
            raise ValueError(f"a sequence must be finished to be scored, but {first} is masked")
        is_scored = np.ones(template.length, dtype=np.bool_)
        if chosen:
            is_scored = model.template(record.sequence, **chosen).given == MASK
        elif getattr(model, "backbone", None) is not None:
            is_scored = np.array(model.is_known)  # type: ignore[attr-defined]
    except ValueError as problem:
        raise ValueError(f"{record.name}: {problem}") from None
    if not is_scored.any():
        raise ValueError(f"{record.name}: no position is left to score")
    return template, np.array(template.given), is_scored


def _is_alike(one: Template, other: Template) -> bool:
    """Whether one oracle serves two templates: they differ in what is given alone."""
    return (
        np.array_equal(one.slots, other.slots)
        and np.array_equal(one.vocabulary, other.vocabulary)
        and np.array_equal(np.delete(one.frame, one.slots), np.delete(other.frame, other.slots))
        and not one.has_restrictions
        and not other.has_restrictions
    )


def _recoveries(
    model: MaskedModel, records: Sequence[FastaRecord], read: Sequence[_Read]
) -> FloatArray | None:
    """Return the share of scored positions that have the backbone's letter."""
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        return None
    native = np.array(list(backbone.sequence))
    shares = []
    for template, tokens, is_scored in read:
        ids = template.vocabulary
        letters = np.array([template.spell(ids[k : k + 1]) for k in range(len(ids))])
        compared = is_scored & (native != "X")
        same = letters[tokens][compared] == native[compared]
        shares.append(float(same.mean()) if compared.any() else math.nan)
    return np.array(shares)
