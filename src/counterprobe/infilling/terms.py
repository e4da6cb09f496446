"""What a file says of each design: everything that determines its letters and scores."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from counterprobe.arrays import BoolArray
from counterprobe.digests import digest_of
from counterprobe.discovery import Structure
from counterprobe.infilling.task import Task
from counterprobe.models import Template
from counterprobe.plain import plain
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import Orders, as_sampler
from counterprobe.states import MASK
from counterprobe.streams import STREAMS_VERSION

__all__ = ["DEFAULT_SAMPLER", "design_terms", "rule_of"]

DEFAULT_SAMPLER = "auto"
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


def design_terms(
    task: Task,
    rule: Sampler,
    *,
    structure: Structure | None,
    seed: int,
    orders: Orders | int,
    temperature: float,
    likelihood_orders: int,
) -> dict[str, str]:
    """Return what two designs of one name and number must have in common, as short texts.

    How many designs are drawn, a budget and who watches are no part of it.

    Parameters
    ----------
    task : Task
    rule : Sampler
    structure, seed, orders, temperature, likelihood_orders
        As in ``infill``.
    """
    template, masked = task.template, task.given == MASK
    digest = task.oracle.digest
    terms: dict[str, Any] = {
        "model": task.oracle.name,
        "text": f"{int(masked.sum())} of {masked.size} masked {_digest(*_text(task))}",
        "letters": _letters(template, masked),
        "ties": None
        if template is None or template.tied is None
        else _digest(template.tied, template.shares),
        "sampler": rule.name,
        **{f"{rule.name}.{name}": value for name, value in rule.settings.items()},
        "temperature": temperature,
        "seed": seed,
        "orders": orders,
        "structure": None if structure is None else structure.digest,
        "likelihood_orders": likelihood_orders,
        "occurrence": task.occurrence or None,
        "streams": STREAMS_VERSION,
        "weights": None if digest is None else digest[:DIGITS],
    }
    return {name: _short(value) for name, value in plain(terms).items() if value is not None}


def _text(task: Task) -> list[Any]:
    """Return what is given, and what stands around it."""
    given, template = task.given.astype(np.int32), task.template
    if template is None:
        return [given]
    return [given, np.delete(template.frame, template.slots), template.slots, template.vocabulary]


def _letters(template: Template | None, masked: BoolArray) -> str:
    """Spell the letters that may be drawn, where they are the same at every mask."""
    if template is None:
        return "any"
    allowed = None
    if template.has_restrictions and template.permitted is not None:
        allowed = template.permitted[template.kind][masked]
    if template.bias is not None:
        return _digest(allowed, template.bias)
    if allowed is None or allowed.all():
        return "any"
    if (allowed != allowed[:1]).any():
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
