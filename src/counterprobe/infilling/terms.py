"""What determines an infill, and so every question that it asks: by this its log is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from counterprobe.discovery import SoftStructure, Structure
from counterprobe.infilling.task import Task
from counterprobe.run.record import OracleIdentity, RunRecord
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import Orders, as_sampler
from counterprobe.streams import Streams

__all__ = ["DEFAULT_SAMPLER", "infill_record", "rule_of"]

DEFAULT_SAMPLER = "auto"


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


def infill_record(
    task: Task,
    rule: Sampler,
    *,
    structure: Structure | SoftStructure | None,
    seed: int | Streams,
    count: int,
    orders: Orders | int,
    temperature: float,
    max_submissions: int | None,
    at_once: int,
    likelihood_orders: int,
    trace_sequence: int | None,
    is_waited_for: bool = False,
) -> RunRecord:
    """Return what determines an infill, and so every question that it asks.

    Parameters
    ----------
    task : Task
    rule : Sampler
    structure, seed, count, orders, temperature, max_submissions, at_once
        As in ``infill``.
    likelihood_orders : int
    trace_sequence : int or None
        The sequence that is followed, from 0, and so starts before the others; None if none is.
        Where one is, sequences are drawn side by side and not in lockstep: another order of
        questions only where a sequence has a session of its own or waits for its turn, and where
        some states are submitted twice.
    is_waited_for : bool
        Whether somebody is handed designs as they are finished, and so some at a time.
    """
    info = task.oracle.info
    in_turn = count > 1 and (count > at_once or info.keeps_work)
    decides = in_turn or info.recheck or likelihood_orders
    more = {
        **_text(task),
        "structure": None if structure is None else structure.digest,
        "at_once": at_once,
        "recheck": info.recheck,
        "likelihood_orders": likelihood_orders,
    }
    if in_turn or (count > 1 and info.recheck):
        more["traced"] = trace_sequence is not None
    if task.occurrence:
        more["occurrence"] = task.occurrence
    if is_waited_for and count > at_once:
        more["portions"] = True
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
        # A budget decides what is asked a second time, who asks next, and what is scored.
        max_submissions=max_submissions if decides else None,
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
