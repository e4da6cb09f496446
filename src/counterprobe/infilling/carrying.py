"""A structure that was found once serves every template of its model and backbone.

What depends on what is a matter of the model and the backbone first, and of the residues that
happen to be fixed second. So a structure is restricted to the positions that are masked, and what
its plans break *here* is measured on a few sequences, beside batches that need no structure: apart
in space where there is a backbone, spread along the sequence elsewhere. The cheaper of the two
draws; both prices are in the result, and what they took is in its ledger.

Before that the model must be recognised: the stored replies of the structure must come back, and
its digest must be that of this model, backbone and set of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.discovery import Structure, check_oracle
from counterprobe.errors import StructureError
from counterprobe.evaluation.chain_rule import AT_ONCE, plan_kl
from counterprobe.evaluation.chain_rule_kl import ChainRuleKL
from counterprobe.infilling.family import numbers_of, places_by_number
from counterprobe.infilling.results import Choice
from counterprobe.infilling.task import Task, as_template, make_task
from counterprobe.models import MaskedModel
from counterprobe.run.ledger import Ledger
from counterprobe.run.run import Run
from counterprobe.samplers.balanced import Spread
from counterprobe.samplers.base import Sampler, fixed_batches
from counterprobe.samplers.planned import MeasuredPrice, Planned
from counterprobe.samplers.registry import PLANS
from counterprobe.states import MASK
from counterprobe.streams import Streams

__all__ = ["Adopted", "adopt", "carried", "planned_here"]

# Sequences that both prices are measured on: as many as are drawn, within these.
LEAST_PRICED, MOST_PRICED = 4, 16
# Steps of each batch that are priced.
TERMS = 2


@dataclass(frozen=True, slots=True)
class Adopted:
    """How a structure is used for a template.

    Attributes
    ----------
    rule : Sampler
        What draws.
    ledger : Ledger
        What recognising the model and pricing took.
    beside : dict
        The same in parts, and what was paid before.
    choice : Choice, optional
        What was measured, where the structure comes from another context.
    """

    rule: Sampler
    ledger: Ledger = field(default_factory=Ledger)
    beside: dict[str, int] = field(default_factory=dict)
    choice: Choice | None = None


def adopt(
    task: Task,
    structure: Structure,
    rule: Sampler,
    *,
    count: int,
    streams: Streams,
    at_once: int = AT_ONCE,
) -> Adopted:
    """Recognise the model of a structure, and price it where its context was another.

    Parameters
    ----------
    task : Task
        With something masked.
    structure : Structure
    rule : Sampler
        The structure's own, as it is asked for.
    count : int
        Sequences that are wanted.
    streams : Streams
        Of the plans, which are those that draw.
    at_once : int
        States in one call of the oracle, at most.

    Raises
    ------
    StructureError
        If model, backbone or tokens are others.
    """
    here, checked = carried(task, structure)
    beside = {"discovery": structure.ledger.evaluations, "recognition": checked.evaluations}
    if not isinstance(rule, Planned):
        return Adopted(rule, checked, beside)
    if here.origin is None:  # found in this very context, with a price of its own
        return Adopted(rule, checked, beside)
    if rule.exact_for(len(here.residual)):  # one position a batch breaks nothing
        return Adopted(planned_here(rule, here, streams), checked, beside)
    if task.temperature != 1:
        raise StructureError(
            "a structure of another text is priced before it is used, which temperature "
            f"{task.temperature:g} does not allow: discover one for this text, or pass a model, "
            "whose law has the temperature, and one above 0"
        )
    chosen, choice = _priced(task, here, rule, count, streams, at_once)
    beside["pricing"] = choice.ledger.evaluations
    return Adopted(chosen, checked + choice.ledger, beside, choice)


def carried(task: Task, structure: Structure) -> tuple[Structure, Ledger]:
    """Return a structure as it is for a task, and what recognising its model cost.

    One with strengths is restricted to the positions masked here. A certified one serves a text
    that fixes more than the one it was found for: given more, a law has fewer edges and no others.

    Raises
    ------
    StructureError
        If the model is another, or the context one that a certified structure says nothing about.
    """
    numbers = structure.about.get("numbers")
    if structure.strengths is not None and numbers is not None:
        return _by_number(task, structure, numbers)
    if structure.length != len(task.given) or np.array_equal(structure.given, task.given):
        return structure, check_oracle(structure, task.probed)
    if structure.strengths is None:
        _check_fixed(task, structure)
        return structure, check_oracle(structure, task.probed)
    return structure.in_context(task.given), check_oracle(structure, task.probed)


def _by_number(
    task: Task, structure: Structure, numbers: Sequence[str]
) -> tuple[Structure, Ledger]:
    """Put the structure of a family onto the positions of one text."""
    if len(numbers) != structure.length:
        raise StructureError(
            f"this structure names {len(numbers)} positions and has {structure.length}; discover "
            "it again"
        )
    places = places_by_number(numbers, numbers_of(task))
    probed = task.probed
    if structure.length != len(task.given):
        # The stored replies are those of the text it was found for, as long as that one was.
        if task.model is None:
            raise StructureError(
                f"this structure is of a family of texts, the first of {structure.length} "
                f"positions; to use it for one of {len(task.given)} pass a model, no oracle"
            )
        probed = _as_long(task, task.model, places).probed
    return structure.in_context(task.given, places=places), check_oracle(structure, probed)


def _as_long(task: Task, model: MaskedModel, places: IntArray) -> Task:
    """Return the task of a text as long as a family's first, with the letters that are allowed.

    Positions that this text has no place for allow what all others allow alike, else everything.
    """
    blank, here = as_template(model, "X" * len(places), None, {}), task.template
    assert here is not None
    is_here = places >= 0
    if here.has_restrictions and here.permitted is not None:
        table = here.permitted[here.kind]
        everywhere = table[0] if (table == table[0]).all() else np.ones_like(table[0])
        blank = blank.allow(np.where(is_here[:, None], table[places], everywhere))
    if here.bias is not None:
        alike = here.bias[0] if (here.bias == here.bias[0]).all() else np.zeros_like(here.bias[0])
        blank = replace(blank, bias=np.where(is_here[:, None], here.bias[places], alike))
    return make_task(model, blank, temperature=task.oracle.info.temperature)


def _check_fixed(task: Task, structure: Structure) -> None:
    """Refuse a text that does not have what a certified structure was given."""
    differing = np.flatnonzero((structure.given != MASK) & (structure.given != task.given))
    if len(differing):
        first = int(differing[0])
        named = str(first + 1) if task.template is None else task.template.name_of(first)
        raise StructureError(
            "this structure was certified for another text, whose fixed letters differ at "
            f"{len(differing)} of {structure.length} positions, first at {named}; discover one "
            "for this text, or one with everything masked, which serves all of them"
        )


def planned_here(rule: Planned, here: Structure, streams: Streams) -> Planned:
    """Return the rule that plans by a structure in another context than it was found in.

    Its plans are those that ``advise`` prices. Where a number of nats was asked for, it says how
    many batches there are.

    Parameters
    ----------
    rule : Planned
    here : Structure
        As :meth:`Structure.in_context` returns it.
    streams : Streams
        Of a plan that says how many batches there are.
    """
    batches = rule.batches
    if batches is None:
        rule = replace(rule, strength=here.strength, found=here, halves=here.halves)
        batches = len(rule.plan(here.residual, streams.decisions))
    return Planned.of(here, batches=batches, method=rule.method)


def _priced(
    task: Task, here: Structure, rule: Planned, count: int, streams: Streams, at_once: int
) -> tuple[Sampler, Choice]:
    """Measure what plans break here beside free batches, and take what breaks less."""
    masked, target = here.residual, rule.target_kl
    rule = planned_here(rule, here, streams)
    samples = min(MOST_PRICED, max(LEAST_PRICED, count))
    # The very plans that draw, as far as there are sequences to price them on.
    each = [streams.with_fresh_decisions(k).decisions for k in range(min(samples, PLANS))]
    plans = [list(rule.plan(masked, one).batches) for one in each]
    evaluations = float(np.mean([len(plan) for plan in plans]))
    free = Spread(batches=math.ceil(evaluations), distances=task.distances)
    view = Run(task.oracle, given=task.given)
    fixed = [fixed_batches(free, view, one) for one in each]
    others = [[np.asarray(batch) for batch in one.batches] for one in fixed if one is not None]
    seed = int(streams.decisions("price of a structure").integers(2**63))

    def price(batches: Sequence[Sequence[IntArray]]) -> ChainRuleKL:
        return plan_kl(
            task.oracle,
            batches,
            samples=samples,
            given=task.given,
            terms=TERMS,
            seed=seed,
            at_once=min(at_once, AT_ONCE),
        )

    mine, theirs = price(plans), price(others)
    way, apart = _free_way(task)
    # Two infinities, or what is no number, say nothing: then nothing speaks for the structure.
    is_told = not math.isnan(mine.value - theirs.value)
    is_refused = mine.value > theirs.value or not is_told
    chosen: Sampler = free if is_refused else rule
    kl, took = (theirs, free.batches) if is_refused else (mine, evaluations)
    calls = "1 evaluation" if took == 1 else f"{took:.3g} evaluations"
    said = f"{calls} a design in place of {len(masked)}, {_nats(kl)} broken here"
    if is_refused:
        why = "is refused, since its plans" if is_told else "cannot be told apart: its plans"
        said = f"batches {apart}: {said}; a structure {here.origin} {why}"
        said += f" break {_nats(mine)} in as many"
    else:
        said = f"batches planned by a structure {here.origin}: {said}, {_nats(theirs)} {apart}"
        by = (
            f"measured in this context on {samples} sequences, at most {mine.interval[1]:.2g} at "
            f"{mine.confidence:.0%}; the structure was {here.origin}"
        )
        chosen = replace(rule, price=MeasuredPrice(mine.value, mine.standard_error, by))
    paid = mine.ledger + theirs.ledger
    said += f"; pricing both on {samples} sequences took {paid.evaluations:,} evaluations"
    unknown = int(np.isnan(here.estimated.moved[masked]).sum())
    if unknown:
        said += f"; masked here and fixed there, so that it says nothing of them: {unknown}"
    if target is not None and kl.value > target:
        said += f"; that is more than {target:g} nats: ask for more batches"
    prices = {
        name: (float(one.value), float(one.standard_error))
        for name, one in (("planned", mine), (way, theirs))
    }
    return chosen, Choice(
        chosen.name,
        said,
        paid,
        count * len(masked),
        *prices[way if is_refused else "planned"],
        by="measured prices",
        prices=prices,
    )


def _free_way(task: Task) -> tuple[str, str]:
    """Return what batches without a structure are called, and how they are chosen."""
    if task.distances is None:
        return "spread", "spread along the sequence"
    return "distance", "apart in space"


def _nats(kl: ChainRuleKL) -> str:
    if math.isnan(kl.value):
        return "an unknown number of nats"
    if math.isinf(kl.value):
        return "infinitely many nats"
    most = f"at most {kl.interval[1]:.2g} at {kl.confidence:.0%}"
    return f"{kl.value:.2g} ± {kl.standard_error:.1g} nats ({most})"
