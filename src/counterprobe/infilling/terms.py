"""What determines an infill, and so every question that it asks: by this its log is known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from counterprobe.arrays import BoolArray
from counterprobe.digests import digest_of
from counterprobe.discovery import Structure
from counterprobe.infilling.task import Task
from counterprobe.models import Template
from counterprobe.oracles import FollowsRuns
from counterprobe.plain import plain
from counterprobe.run.record import OracleIdentity, RunRecord
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import Orders, as_sampler
from counterprobe.states import MASK
from counterprobe.streams import STREAMS_VERSION, Streams

__all__ = ["DEFAULT_SAMPLER", "design_terms", "infill_record", "rule_of"]

DEFAULT_SAMPLER = "auto"
# What decides which questions are asked and when, but not which letters a design has.
OF_QUESTIONS = ("at_once", "traced", "traced_sequence")
# What becomes one short text together.
TOGETHER = ("frame", "slots", "vocabulary", "allowed", "bias", "tied", "shares")
# Characters of a value that is written as it is.
MOST_SHOWN = 40
# Hexadecimal digits of a digest.
DIGITS = 12


def rule_of(
    sampler: str | Sampler | None,
    structure: Structure | None,
    settings: dict[str, Any],
) -> Sampler:
    """Return the sampler that is meant: the structure's own, where there is one."""
    if structure is None:
        return as_sampler(sampler or DEFAULT_SAMPLER, settings)
    if isinstance(sampler, (str, Sampler)):
        raise ValueError("give a sampler or a structure, which has its own, not both")
    return as_sampler(structure, settings)


def infill_record(
    task: Task,
    rule: Sampler,
    *,
    structure: Structure | None,
    seed: int | Streams,
    count: int,
    orders: Orders | int,
    temperature: float,
    max_evaluations: int | None,
    at_once: int,
    likelihood_orders: int,
    trace_sequence: int | None,
) -> RunRecord:
    """Return what determines an infill, and so every question that it asks.

    Parameters
    ----------
    task : Task
    rule : Sampler
    structure, seed, count, orders, temperature, max_evaluations, at_once
        As in ``infill``.
    likelihood_orders : int
    trace_sequence : int or None
        The sequence that is followed, from 0, and so starts before the others; None if none is.
        Where one is, sequences are drawn one by one and not together: another order of
        questions only where a sequence has a session of its own or waits for its turn.
    """
    in_turn = count > 1 and (count > at_once or task.oracle.ability(FollowsRuns) is not None)
    more = {
        **_text(task),
        "structure": None if structure is None else structure.digest,
        "at_once": at_once,
        "likelihood_orders": likelihood_orders,
    }
    if in_turn:
        more["traced"] = trace_sequence is not None
    if task.occurrence:
        more["occurrence"] = task.occurrence
    if trace_sequence:
        more["traced_sequence"] = f"number {trace_sequence + 1}"
    return RunRecord(
        sampler=rule.name,
        settings=rule.settings,
        oracle=OracleIdentity.of(task.oracle),
        streams=seed if isinstance(seed, Streams) else Streams.from_seed(seed),
        given=task.given,
        count=count,
        orders=orders,
        temperature=temperature,
        # A budget decides who asks next, and what is scored.
        max_evaluations=max_evaluations if in_turn or likelihood_orders else None,
        more=more,
    )


def _text(task: Task) -> dict[str, Any]:
    """Return what stands around the positions, and what may stand where."""
    template = task.template
    if template is None:
        return {}
    allowed = None
    if template.has_restrictions and template.permitted is not None:
        allowed = template.permitted[template.kind]
    changes = {"bias": template.bias, "tied": template.tied, "shares": template.shares}
    return {
        **{name: value for name, value in changes.items() if value is not None},
        "frame": np.delete(template.frame, template.slots),
        "slots": template.slots,
        "vocabulary": template.vocabulary,
        "allowed": allowed,
    }


# ----- What a file says of each design ---------------------------------------------------------


def design_terms(record: RunRecord, template: Template | None, seed: int) -> dict[str, str]:
    """Return what two designs of one name and number must have in common, as short texts.

    Everything that determines a design's letters and scores. How many designs are drawn, a budget
    and who watches are no part of it.

    Parameters
    ----------
    record : RunRecord
        That of the infill.
    template : Template, optional
        What spells letters.
    seed : int
        What the record's streams were made from.
    """
    more, oracle, given = dict(record.more), record.oracle, record.given
    assert given is not None
    around = [np.asarray(more[name]) for name in TOGETHER[:3] if name in more]
    digest = _digest(given.astype(np.int32), *around)
    terms: dict[str, Any] = {
        "model": oracle.name,
        "text": f"{int((given == MASK).sum())} of {given.size} masked {digest}",
        "letters": _letters(template, more, given == MASK),
        "ties": None if "tied" not in more else _digest(more["tied"], more.get("shares")),
        "sampler": record.sampler,
        **{f"{record.sampler}.{name}": record.settings[name] for name in record.settings},
        "temperature": record.temperature,
        "seed": seed,
        "orders": record.orders,
        **{name: more[name] for name in more if name not in (*OF_QUESTIONS, *TOGETHER)},
        "streams": STREAMS_VERSION,
        "weights": None if oracle.digest is None else oracle.digest[:DIGITS],
    }
    return {name: _short(value) for name, value in plain(terms).items() if value is not None}


def _letters(template: Template | None, more: dict[str, Any], masked: BoolArray) -> str:
    """Spell the letters that may be drawn, where they are the same at every mask."""
    allowed, bias = more.get("allowed"), more.get("bias")
    if allowed is not None:
        allowed = allowed[masked]
    if bias is not None:
        return _digest(allowed, bias)
    if allowed is None or allowed.all():
        return "any"
    if template is None or (allowed != allowed[:1]).any():
        return _digest(allowed)
    ids = template.vocabulary[allowed[0]]
    return "".join(template.spell(ids[k : k + 1]) for k in range(len(ids)))


def _short(value: Any) -> str:
    """Return a value that stands in a header: itself, or a digest of what is too long for one."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    text = "_".join(text.split())
    is_plain = len(text) <= MOST_SHOWN and not {*";:"} & {*text}
    return text if is_plain else _digest(text.encode())


def _digest(*parts: Any) -> str:
    return digest_of(*parts).hex()[:DIGITS]
