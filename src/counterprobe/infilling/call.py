"""``infill``: finished sequences from a model and a text with masks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.discovery import Structure
from counterprobe.evaluation.likelihood import log_likelihoods
from counterprobe.infilling.carrying import Adopted, adopt
from counterprobe.infilling.choosing import draw_chosen
from counterprobe.infilling.costs import cost_watch
from counterprobe.infilling.results import Choice, Infilled
from counterprobe.infilling.task import Task, make_task, recorder_for
from counterprobe.infilling.terms import rule_of
from counterprobe.models import Template
from counterprobe.models.template import Allowed
from counterprobe.run.events import Finished, Listener, OnEvent, Progress, Step, tell_all
from counterprobe.run.ledger import Ledger
from counterprobe.samplers.auto import Auto
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import default_orders
from counterprobe.sampling import AT_ONCE, Orders, sample
from counterprobe.states import MASK
from counterprobe.streams import Streams
from counterprobe.trace.document import kind_of
from counterprobe.trace.recorder import DEFAULT_BYTES

__all__ = ["InfillStep", "infill"]


@dataclass(frozen=True, slots=True)
class InfillStep(Step):
    """A commit round, with the task it belongs to.

    Attributes
    ----------
    task : Task
    """

    task: Task

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The sequences so far, spelled with their masks; None where nothing can spell."""
        return self.task.texts(self.states)


def infill(
    model: Any,
    template: Template | str | ArrayLike | None = None,
    *,
    sampler: str | Sampler | None = None,
    count: int = 1,
    seed: int | Streams = 0,
    structure: Structure | None = None,
    allowed: Allowed | None = None,
    temperature: float = 1.0,
    likelihood_orders: int = 0,
    orders: Orders | int | None = None,
    max_evaluations: int | None = None,
    at_once: int = AT_ONCE,
    on_event: OnEvent | None = None,
    progress: bool = True,
    template_options: Mapping[str, Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    oracle_options: Mapping[str, Any] | None = None,
    trace: str | os.PathLike[str] | None = None,
    trace_bytes: int = DEFAULT_BYTES,
    trace_sequence: int = 0,
    trace_command: str | None = None,
    **settings: Any,
) -> Infilled:
    """Fill in the masks of a text, jointly, any number of times.

    Parameters
    ----------
    model
        A name that ``counterprobe models`` lists, the folder of a Hugging Face model or its name
        on the hub, a pair of such a model and its tokenizer, what ``models.load`` returns, or any
        oracle, such as ``model.oracle(text).cached("replies.sqlite").retrying(3)``.
    template : str, Template or array_like of int, optional
        The text with masks, ``"EVQL[MASK][MASK]S"``; protein models also read ``X``. A model that
        knows its length masks everything without one. For an oracle: tokens, ``MASK`` elsewhere.
    sampler : str or Sampler, optional
        ``counterprobe samplers`` lists them; settings follow as keywords. By default the
        structure's own, or ``"auto"``: never more evaluations than one at a time, at most
        ``target_kl=0.1`` nats broken by its own estimate; what it chose, and why, is in
        ``choice`` of the result.
    count : int
        Number of sequences.
    seed : int or Streams
        Every input draws with commit noise of its own (``Streams.of_input``), so that what it
        draws depends on no other input.
    structure : Structure, optional
        Found before with this model and backbone: for this very text, or for another, such as
        everything masked. The model is asked a few probes again first. Where the text was
        another, a soft structure is restricted to what is masked here and priced anew beside
        batches that need none (apart in space, or spread along the sequence), which draw where
        they break less; prices and reason are in ``choice`` of the result, and no price of another
        text is. All of that is charged to the whole.
    allowed
        Which tokens may stand where: ``{3: "AVL"}``, or one string for every position.
    temperature : float
        Logits are divided by it, a declared change of the law; 0 takes the likeliest tokens.
    likelihood_orders : int
        Score every finished sequence by the chain rule in this many random orders; what that
        evaluates is charged to ``measuring``.
    orders : {"shared", "fresh"} or int, optional
        As in ``sample``.
    max_evaluations, at_once, progress
        As in ``sample``.
    on_event : callable, optional
        As in ``sample``: every step is an :class:`InfillStep`, which has ``texts``, and so have
        finished sequences, told with ``likelihood_orders`` when all of them are scored.
    template_options : mapping, optional
        Which residues are designed, fixed or tied, as ``model.template`` takes it:
        ``{"design": "A10-25"}``.
    model_options : mapping, optional
        For loading a model by name: ``device``; ``backbone`` of ProteinMPNN and Frame2seq;
        ``download=True`` for one of the hub.
    oracle_options : mapping, optional
        For the model's oracle: ``row_error``, ``batch_size``; ``order`` of ProteinMPNN.
    trace : path, optional
        Write what one sequence did, as a page (``.html``) or as a trace (``.json``).
    trace_sequence : int
        The sequence that is traced, from 0.
    trace_bytes : int
        Details are left out of a trace that would grow beyond this.
    trace_command : str, optional
        A command to put into the trace.
    **settings
        Of the sampler by name, or of the structure's: ``batches=8``.

    Returns
    -------
    Infilled
        With ``texts``, ``log_probs`` and, on request, ``log_likelihoods``; its ``ledger`` has
        every evaluation that drawing took. A text without a mask comes back as it is, and costs
        nothing.

    Examples
    --------
    >>> import counterprobe as cp
    >>> designs = cp.infill(
    ...     "sapiens-heavy",
    ...     "EVQLVESGGGLVQPGGSLRLSCXXSGFXXS",
    ...     count=3,
    ...     progress=False,
    ...     model_options={"device": "cpu"},
    ... )
    >>> len(designs.texts), designs.texts[0][:22], "X" in designs.texts[0]
    (3, 'EVQLVESGGGLVQPGGSLRLSC', False)
    """
    count = whole_number("count", count, at_least=1)
    likelihood_orders = whole_number("likelihood_orders", likelihood_orders)
    at_once = whole_number("at_once", at_once, at_least=1)
    if trace is not None:
        kind_of(trace)
    if whole_number("trace_sequence", trace_sequence) >= count:
        raise ValueError(f"trace_sequence must be below the count, {count}; got {trace_sequence}")
    hears = tell_all(on_event).among(0, count)
    rule = rule_of(sampler, structure, settings)
    task = make_task(
        model,
        template,
        allowed=allowed,
        temperature=temperature,
        template_options=template_options,
        model_options=model_options,
        oracle_options=oracle_options,
    )
    terms: dict[str, Any] = {
        "count": count,
        "seed": seed,
        "orders": default_orders(structure, rule) if orders is None else orders,
        "max_evaluations": max_evaluations,
        "at_once": at_once,
    }
    scores, measuring = None, Ledger(probes=task.num_measured)
    streams = task.streams(seed)
    used = Adopted(rule)
    choice: Choice | None = None
    # A finished text has no use for a structure.
    if structure is not None and (task.given == MASK).any():
        used = adopt(task, structure, rule, count=count, streams=streams, at_once=at_once)
    with recorder_for(
        trace, task, trace_bytes, trace_command, count, used.beside, trace_sequence
    ) as recorder:
        spelled = _spelled(hears, task, used.choice, bool(likelihood_orders))
        how: dict[str, Any] = {
            **terms,
            "seed": streams,
            "log_probs": True,
            "on_event": tell_all(recorder, spelled),
            "progress": progress,
        }
        if isinstance(rule, Auto):
            drawn, choice = draw_chosen(task, rule, **how)
            if recorder and drawn.results[trace_sequence].sampler != rule.name:
                spent = {"discovery and pricing": choice.ledger.evaluations}
                recorder.measured(choice.batch_kl, choice.batch_kl_se, spent)
        else:
            masked = int((task.given == MASK).sum())
            watch = cost_watch(used.rule, masked, task.oracle.vocab_size, count)
            how |= {"given": task.given, "temperature": task.temperature}
            how |= {"on_event": tell_all(recorder, spelled, watch)}
            drawn, choice = sample(task.oracle, used.rule, **how), used.choice
            if recorder and choice is not None:
                recorder.measured(choice.batch_kl, choice.batch_kl_se)
    if likelihood_orders:
        scored = log_likelihoods(
            task.probed,
            drawn.sequences,
            given=drawn.given,
            orders=likelihood_orders,
            at_once=at_once,
        )
        scores, measuring = scored.values, measuring + scored.ledger
    filled = Infilled.of(
        drawn,
        texts=task.texts(drawn.sequences),
        ledger=drawn.ledger + used.ledger,
        log_likelihoods=scores,
        measuring=measuring,
        choice=choice,
    )
    if hears.wants(Finished) and likelihood_orders:
        hears.tell(Finished(filled))
    return filled


def _spelled(hears: Listener, task: Task, choice: Choice | None, is_scored: bool) -> Listener:
    """Return who hears of steps and finished sequences with their texts.

    Of finished ones also with what was chosen before; not at all where they are scored first.
    """

    def spelled(finished: Finished) -> Finished:
        drawn = finished.batch
        return Finished(Infilled.of(drawn, texts=task.texts(drawn.sequences), choice=choice))

    if is_scored:
        hears = replace(hears, kinds=tuple(filter(hears.wants, (Progress, Step))))
    told = hears.changing(Step, lambda one: InfillStep(one.round, one.sequences, one.states, task))
    return told.changing(Finished, spelled)
