"""What ``sampler="auto"`` chooses for so many designs, and why; never more than one at a time.

Every design is drawn by the rule ``auto`` (``samplers/auto.py``), which takes at most one
evaluation a mask. Where many are wanted, the first few show how many evaluations that takes. If a
structure that halves them would pay for itself, designs are drawn until they have saved, against
one at a time, what looking for one costs; then it is looked for and priced, and the cheaper way
draws the others. So whatever is found, the whole stays below one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from counterprobe.discovery import Structure, discover
from counterprobe.evaluation.prices import Price, Pricing
from counterprobe.infilling.results import Choice
from counterprobe.infilling.task import Task
from counterprobe.oracles import depends_on_order
from counterprobe.plain import plain
from counterprobe.planning import plan_for
from counterprobe.run.batches import SampleBatch
from counterprobe.run.events import Listener, OnEvent, Progress, tell_all
from counterprobe.run.ledger import Ledger
from counterprobe.run.results import StopReason
from counterprobe.samplers.auto import FEW, Auto
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.planned import Planned
from counterprobe.samplers.registry import PLANS
from counterprobe.sampling import sample, told
from counterprobe.states import MASK
from counterprobe.streams import Streams

__all__ = ["draw_chosen"]

# Designs that show what the rule takes before anything else is asked.
FIRST = 4
# Probes of a screen: twice the masks, within these.
FEWEST_PROBES, MOST_PROBES = 64, 512
# Sequences that a price is measured on, and steps of each batch that are.
PRICED, TERMS = 16, 2
# Standard errors that a price must keep below the target: the lowest of several is looked for.
ERRORS = 2.0
# Share of the masks that designs take where a structure pays soonest.
BEST_PACE = 0.6
# Above so many masks the matrices of a plan's search are large.
MOST_MASKS = 2048


def draw_chosen(
    task: Task,
    rule: Auto,
    count: int,
    *,
    seed: Streams,
    on_event: OnEvent | None = None,
    progress: bool = True,
    **how: Any,
) -> tuple[SampleBatch, Choice]:
    """Draw designs, look for a structure where one pays, and say what was chosen.

    Parameters
    ----------
    task : Task
    rule : Auto
    count, seed, on_event, progress
        As in ``sample``.
    **how
        What else ``sample`` takes.
    """
    if rule.distances is None and task.distances is not None:
        rule = replace(rule, distances=task.distances)
    masked = int((task.given == MASK).sum())
    with told(progress, rule.name, tell_all(on_event)) as hears:
        account = _Account(masked, count, hears)

        def draw(what: Sampler, number: int, **options: Any) -> SampleBatch:
            first = account.num_drawn
            is_followed = hears.sequence in range(first, first + number)
            drawn = sample(
                task.oracle,
                what,
                number,
                seed=seed,
                given=task.given,
                temperature=task.temperature,
                on_event=account.hears if is_followed else replace(account.hears, sequence=None),
                progress=False,
                first=first,
                **{**how, **options},
            )
            account.add(drawn)
            return drawn

        return _drawn(task, rule, seed, account, draw)


def _drawn(
    task: Task, rule: Auto, streams: Streams, account: _Account, draw: Callable[..., SampleBatch]
) -> tuple[SampleBatch, Choice]:
    """Draw a few, decide, draw the others."""
    may_pay = task.temperature == 1 and _could_pay(account)
    drawn = [draw(rule, FIRST if may_pay else account.count)]
    pace = drawn[0].ledger.evaluations / len(drawn[0])
    if not account.num_left:
        why = _why_few(account, rule, drawn[0], pace)
        return drawn[0], account.choice(rule.name, why)
    is_worth_it = drawn[0].num_completed == FIRST and _pays(account, pace)
    price = None
    if is_worth_it:
        more = _designs_before(account.masked, pace) - FIRST
        if more > 0:
            drawn.append(draw(rule, more))
            pace = account.spent.evaluations / account.num_drawn
        is_worth_it = account.saved >= _cost_of_structure(account.masked, pace / 2)
    if is_worth_it:
        structure, price = _find(task, rule, streams, account, pace)
    if price is not None:
        chosen: Sampler = Planned.of(structure, batches=price.batches)
        drawn.append(draw(chosen, account.num_left, orders=PLANS))
        why = _why_planned(account, price, pace)
    else:
        chosen = rule
        drawn.append(draw(chosen, account.num_left))
        why = _why_few(account, rule, _joined(drawn), pace)
        if is_worth_it:
            why += (
                f"; a structure was looked for with {account.measured.evaluations:,} evaluations, "
                f"and no plan by it was measured within {rule.target_kl:g} nats in fewer"
            )
    whole = _joined(drawn)
    whole = replace(whole, ledger=whole.ledger + account.measured)
    return whole, account.choice(chosen.name, why, price)


def _joined(parts: Sequence[SampleBatch]) -> SampleBatch:
    """Return sequences that were drawn one part after another, with the sum of the ledgers."""

    def together(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if any(array is None for array in arrays) else np.concatenate(arrays)

    return SampleBatch(
        together("sequences"),
        together("given"),
        [result for part in parts for result in part.results],
        sum((part.ledger for part in parts), Ledger()),
        token_log_probs=together("token_log_probs"),
        tempered_scores=together("tempered_scores"),
    )


class _Account:
    """What all designs may take, and what was taken."""

    def __init__(self, masked: int, count: int, hears: Listener) -> None:
        self.masked = masked
        self.count = count
        self.spent = Ledger()
        self.measured = Ledger()
        self.num_drawn = self.num_found_after = 0
        self.hears = hears.changing(Progress, self._of_all)

    @property
    def most(self) -> int:
        """Evaluations of one at a time."""
        return self.masked * self.count

    @property
    def saved(self) -> int:
        """Evaluations that one at a time would have taken more for what was drawn."""
        return self.masked * self.num_drawn - self.spent.evaluations

    @property
    def num_left(self) -> int:
        """Designs that are left."""
        return self.count - self.num_drawn

    def add(self, drawn: SampleBatch) -> None:
        """Note what designs took."""
        self.spent = self.spent + drawn.ledger
        self.num_drawn += len(drawn)

    def measure(self, ledger: Ledger) -> None:
        """Note what finding and pricing took."""
        self.spent = self.spent + ledger
        self.measured = self.measured + ledger
        self.num_found_after = self.num_drawn

    def _of_all(self, now: Progress) -> Progress:
        """Return where a part stands as where the whole does."""
        committed = self.num_drawn * self.masked + now.committed
        return replace(now, committed=committed, masked=self.most, ledger=self.spent + now.ledger)

    def choice(self, sampler: str, why: str, price: Price | None = None) -> Choice:
        """Return what was chosen."""
        said = () if price is None else (price.measured.value, price.measured.standard_error)
        return Choice(sampler, why, self.measured, self.most, *map(plain, said))


# ----- Whether a structure pays -----------------------------------------------------------


def _num_probes(masked: int) -> int:
    return min(MOST_PROBES, max(FEWEST_PROBES, 2 * masked))


def _cost_of_structure(masked: int, batches: float) -> int:
    """Return what finding a structure and pricing plans of so many batches take, at most."""
    return _num_probes(masked) + 1 + PRICED * min(masked, math.ceil((1 + TERMS) * batches))


def _designs_before(masked: int, pace: float) -> int:
    """Return after how many designs enough is saved to look for a structure, with some room."""
    return max(FIRST, math.ceil(1.1 * _cost_of_structure(masked, pace / 2) / (masked - pace)))


def _break_even(masked: int, pace: float) -> int | None:
    """Return from how many designs on a structure that halves the evaluations has paid."""
    saved = pace - max(1.0, pace / 2)
    if saved <= 0 or pace >= masked:
        return None
    after = math.ceil(_cost_of_structure(masked, pace / 2) / saved)
    return _designs_before(masked, pace) + after


def _could_pay(account: _Account) -> bool:
    """Whether a structure could pay if designs took what is best for one: known from counts."""
    masked = account.masked
    if masked <= FEW or masked > MOST_MASKS or account.count <= FIRST:
        return False
    least = _break_even(masked, BEST_PACE * masked)
    return least is not None and account.count >= least


def _pays(account: _Account, pace: float) -> bool:
    """Whether a structure that halves what the first designs took would pay for itself."""
    least = _break_even(account.masked, pace)
    return least is not None and account.count >= least


def _find(
    task: Task, rule: Auto, streams: Streams, account: _Account, pace: float
) -> tuple[Structure, Price | None]:
    """Look for a structure, and for the fewest batches that a price allows."""
    structure = discover(
        task.probed,
        streams,
        mode="soft",
        given=task.given,
        on_event=replace(account.hears, sequence=None),
        probes=_num_probes(account.masked),
    )
    account.measure(structure.ledger)
    seed = int(streams.decisions("priced designs").integers(2**31))
    pricing = Pricing(structure, task.oracle, terms=TERMS, distances=None, seed=seed)
    estimated = len(plan_for(structure, target_kl=rule.target_kl, seed=streams))
    batches = min(estimated, math.ceil(pace / 2))
    while batches < pace:
        cost = PRICED * _cost_of_sample(task, account.masked, batches)
        if cost > account.saved or cost >= account.num_left * (pace - batches):
            break
        price = pricing.price("planned", batches, PRICED, PRICED)
        account.measure(price.measured.ledger)
        high = price.measured.value + ERRORS * np.nan_to_num(price.measured.standard_error)
        if high <= rule.target_kl:
            return structure, price
        batches = math.ceil((batches + 1 + pace) / 2)
    return structure, None


def _cost_of_sample(task: Task, masked: int, batches: int) -> int:
    """Return what a price of so many batches takes on one sample, at most."""
    if depends_on_order(task.oracle):
        return batches + 1
    return min(masked, (1 + TERMS) * batches)


# ----- What is said -------------------------------------------------------------------------


def _why_few(account: _Account, rule: Auto, drawn: SampleBatch, pace: float) -> str:
    """Say what designs took, against one at a time, and from how many a structure would pay."""
    masked = account.masked
    each = f"{masked} mask{'' if masked == 1 else 's'}"
    if masked <= FEW:
        return f"one at a time: {each} leave nothing to save" if masked else "nothing is masked"
    finished = [one for one in drawn.results if one.stop is StopReason.COMPLETED]
    if not finished:
        return "nothing: no design was finished"
    took = sum(one.ledger.evaluations for one in finished) / len(finished)
    if took >= masked:
        return (
            f"one at a time: rows moved too much for larger batches at {rule.target_kl:g} nats a "
            "design"
        )
    broken = np.mean([getattr(one.diagnostics, "estimated_kl", math.nan) for one in finished])
    least = _break_even(masked, pace)
    later = ""
    if least is not None and least > account.count:
        later = f"; a structure may pay from {least:,} designs on"
    return (
        f"batches as large as the rows allowed: {took:.3g} evaluations a design in place of "
        f"{masked}, about {broken:.2g} of {rule.target_kl:g} nats broken, estimated while "
        f"drawing{later}"
    )


def _why_planned(account: _Account, price: Price, pace: float) -> str:
    """Say what a plan takes, what it cost to find, and from how many designs on that has paid."""
    kl, paid = price.measured, account.measured.evaluations
    before = account.num_found_after
    least = before + math.ceil(paid / max(pace - price.evaluations, 1e-9))
    pays = f"which pay from {least:,} designs on"
    if least > account.count:
        pays = "more than it saved here"
    return (
        f"batches planned by a structure: {price.evaluations:.3g} evaluations a design in place "
        f"of {account.masked}, {kl.value:.2g} ± {kl.standard_error:.1g} nats broken, measured on "
        f"{kl.samples} sequences; finding and pricing it took {paid:,} "
        f"evaluations, {pays}"
    )
