"""A rule that takes more evaluations than one mask at a time says so: before, or at once."""

from __future__ import annotations

import warnings

from counterprobe.errors import CostWarning
from counterprobe.run.events import Listener, Progress
from counterprobe.samplers.base import Sampler

__all__ = ["cost_watch"]

REMEDY = 'sampler="auto" never does'


def cost_watch(rule: Sampler, masked: int, vocab_size: int, count: int) -> Listener:
    """Warn of a rule that will take more than one at a time; return who warns when it does.

    Parameters
    ----------
    rule : Sampler
    masked, vocab_size, count : int
        Masks of a sequence, tokens, and sequences.
    """
    most = masked * count
    is_said = False
    foreseen = rule.foreseen_evaluations(masked, vocab_size) if masked else None
    if foreseen is not None and foreseen > most:
        is_said = True
        _warn(
            f"{rule.name} will take about {foreseen:,} evaluations or more for {_masks(most)}, "
            f"more than one at a time, {most:,}; {REMEDY}"
        )

    def watch(now: Progress) -> None:
        nonlocal is_said
        if not is_said and now.ledger.evaluations > most:
            is_said = True
            left = now.masked - now.committed
            _warn(
                f"{rule.name} has taken {now.ledger.evaluations:,} evaluations for "
                f"{_masks(most)}, more than one at a time, {most:,}, with {_masks(left)} "
                f"left; {REMEDY}"
            )

    return Listener(watch, Progress)


def _warn(text: str) -> None:
    warnings.warn(text, CostWarning, stacklevel=4)


def _masks(count: int) -> str:
    return f"{count:,} mask{'' if count == 1 else 's'}"
