"""What determines an infill, and so every question that it asks: by this its log is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterprobe.discovery import SoftStructure, Structure
from counterprobe.infilling.task import Task
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import as_sampler
from counterprobe.streams import Streams

__all__ = ["DEFAULT_SAMPLER", "infill_terms", "rule_of"]

# Steady without a structure: it stops adding positions to a batch when they may depend much.
DEFAULT_SAMPLER = "entropy-bounded"


def rule_of(
    sampler: str | Sampler | None,
    structure: Structure | SoftStructure | None,
    settings: dict[str, Any],
) -> Sampler:
    """Return the sampler that is meant: the structure's own, where there is one."""
    if structure is None:
        return as_sampler(sampler or DEFAULT_SAMPLER, settings)
    if isinstance(sampler, (str, Sampler)):
        raise ValueError("give a sampler or a structure, which has its own, not both")
    return as_sampler(structure, settings)


def infill_terms(
    task: Task,
    rule: Sampler,
    *,
    structure: Structure | SoftStructure | None,
    seed: int | Streams,
    count: int,
    at_once: int,
    is_traced: bool,
    max_submissions: int | None,
    likelihood_orders: int,
    trace_sequence: int,
    **others: Any,
) -> dict[str, Any]:
    """Return what determines a run.

    Parameters
    ----------
    task : Task
    rule : Sampler
    structure, seed, count, at_once, max_submissions, likelihood_orders
        As in ``infill``.
    is_traced : bool
        Whether a sequence is followed, for which sequences are drawn side by side and not
        in lockstep. That is another order of questions only where a sequence has a session of its
        own or waits for its turn, and where some states are submitted twice.
    trace_sequence : int
        The one that is followed, from 0, and so starts before the others.
    **others
        What else of the call determines it, by name: temperature, orders.
    """
    streams = seed if isinstance(seed, Streams) else Streams.from_seed(seed)
    info = task.oracle.info
    has_turns = count > at_once or info.keeps_work
    in_turn = count > 1 and has_turns
    by_budget = in_turn or info.recheck or likelihood_orders
    return {
        **_text(task),
        "structure": None if structure is None else structure.digest,
        **others,
        "sampler": rule.name,
        "settings": rule.settings,
        "count": count,
        "decision_seed": streams.decision_seed,
        "commit_seed": streams.commit_seed,
        "at_once": at_once,
        "recheck": info.recheck,
        "likelihood_orders": likelihood_orders,
        **({"traced": is_traced} if in_turn or (count > 1 and info.recheck) else {}),
        **({"traced_sequence": f"number {trace_sequence + 1}"} if trace_sequence else {}),
        # A budget decides what is asked a second time, who asks next, and what is scored.
        **({"max_submissions": max_submissions} if by_budget else {}),
    }


def _text(task: Task) -> dict[str, Any]:
    """Return what is given and what may stand where."""
    template = task.template
    if template is None:
        return {"given": task.given}
    allowed = None
    if template.has_restrictions and template.permitted is not None:
        allowed = template.permitted[template.kind]
    return {
        "given": task.given,
        "frame": np.delete(template.frame, template.slots),
        "slots": template.slots,
        "vocabulary": template.vocabulary,
        "allowed": allowed,
    }
