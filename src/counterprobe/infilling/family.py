"""One structure for a family of texts: found in several contexts, averaged, carried to others.

Texts of one length have their positions in common. Antibodies of different lengths have the
places of the fold in common, which IMGT's numbers name: a loop that is longer by two residues has
two places more, and everything after it keeps its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.discovery import Structure, average_structures, discover
from counterprobe.discovery.structure import halves_in
from counterprobe.errors import StructureError
from counterprobe.infilling.task import Task, as_model, make_task
from counterprobe.models.proteins.antibody_numbering import imgt_numbers
from counterprobe.models.template import Template
from counterprobe.run.events import OnEvent
from counterprobe.states import MASK
from counterprobe.streams import Streams

__all__ = ["discover_over", "numbers_of", "places_by_number"]

# Share of its positions that must have a place elsewhere for a structure to be carried there.
MOSTLY = 0.5
_IMGT = re.compile(r"([HL])(\d+)")


def discover_over(
    model: Any,
    templates: Sequence[Template | str],
    *,
    seed: int | Streams = 0,
    probes: int = 256,
    temperature: float = 1.0,
    template_options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    model_options: Mapping[str, Any] | None = None,
    on_event: OnEvent | None = None,
) -> Structure:
    """Find the soft structure of several texts of one family, and average it.

    Parameters
    ----------
    model
        As in ``infill``; no oracle.
    templates : sequence of str or Template
        Texts with masks: other fillings of one text, other chains of a family. Positions are
        those of the first; of texts that are longer or shorter they are found by their IMGT
        numbers, for which all of them must be antibodies.
    seed : int or Streams
    probes : int
        Of each text.
    temperature, model_options
        As in ``infill``.
    template_options : mapping or sequence of mappings, optional
        As in ``infill``, for all texts or one for each: ``{"design": "CDR-H3"}``. Letters that are
        to be designed are then known, and show where loops are; a text of which half is masked
        is no longer recognised as an antibody.
    on_event
        As in ``discover``.

    Returns
    -------
    Structure
        For ``infill(model, template, structure=...)`` with any text of the family, which prices it
        there. How far it carries is measured in docs/learned.md.

    Examples
    --------
    >>> import counterprobe as cp
    >>> chains = ["EVQLVESGGGLVXXGGSLRLSC", "QVQLVQSGAEVKXXGASVKVSC"]
    >>> found = discover_over("sapiens-heavy", chains, probes=16, model_options={"device": "cpu"})
    >>> found.residual, found.about["contexts"]
    (array([12, 13]), 2)
    """
    if not templates:
        raise ValueError("templates must be at least one, got none")
    known = as_model(model, model_options)
    if known is None:
        raise ValueError("model must be a name or a model, which reads several texts, no oracle")
    if template_options is None or isinstance(template_options, Mapping):
        template_options = [template_options or {}] * len(templates)
    tasks = [
        make_task(known, one, temperature=temperature, template_options=chosen)
        for one, chosen in zip(templates, template_options, strict=True)
    ]
    streams = seed if isinstance(seed, Streams) else Streams.from_seed(seed)
    found = [
        discover(
            task.probed,
            streams.with_fresh_decisions(k),
            mode="soft",
            given=task.given,
            on_event=on_event,
            probes=probes,
        )
        for k, task in enumerate(tasks)
    ]
    first, numbers = found[0], numbers_of(tasks[0])
    anywhere = np.full(first.length, MASK)
    placed = [first.in_context(anywhere)]
    for task, one in zip(tasks[1:], found[1:], strict=True):
        places = places_by_number(numbers_of(task), numbers)
        placed.append(one.in_context(anywhere, places=places))
    mean = average_structures(placed)
    given = np.where(np.isfinite(mean.estimated.moved), MASK, first.given).astype(np.int32)
    return replace(
        mean,
        given=given,
        strengths=replace(mean.estimated, **halves_in(mean, given)),
        sample_states=first.sample_states,
        sample_index=first.sample_index,
        sample_position=first.sample_position,
        sample_rows=first.sample_rows,
        about={**first.about, "contexts": len(found), "numbers": list(numbers)},
    )


def numbers_of(task: Task) -> tuple[str, ...]:
    """Return what the positions of a text are called by IMGT; by their count if it is no antibody.

    Letters that were to be designed count where they are known: they show where a loop is.
    """
    length = len(task.given)
    template = task.template
    if template is not None and task.distances is None and len(template.slots) == length:
        native = task.native or ("",) * length
        shown = [
            template.spell(template.vocabulary[token : token + 1]) if token != MASK else letter
            for token, letter in zip(task.given.tolist(), native, strict=True)
        ]
        letters = "".join(one if len(one) == 1 and one.isalpha() else "X" for one in shown)
        try:
            numbers = imgt_numbers(letters)
        except ImportError:
            numbers = ("",) * length
        if sum(map(bool, numbers)) >= MOSTLY * length:
            return numbers
    return tuple(f"{k + 1} of {length}" for k in range(length))


def places_by_number(numbers: Sequence[str], others: Sequence[str]) -> IntArray:
    """Return which of other positions has the name of each; -1 where none has.

    Raises
    ------
    StructureError
        If fewer than half of them have a place.
    """
    where = {name: k for k, name in enumerate(_by_domain(others)) if name[0]}
    places = np.array([where.get(name, -1) for name in _by_domain(numbers)], dtype=np.int64)
    if (places >= 0).sum() < MOSTLY * len(places):
        raise StructureError(
            f"a structure of {len(numbers)} positions cannot be put onto a text of {len(others)}: "
            "they have neither one length nor the IMGT numbers of one kind of antibody chain; "
            "discover one for this text"
        )
    return places


def _by_domain(numbers: Sequence[str]) -> list[tuple[str, int]]:
    """Tell the places of several domains of one kind apart: the first, the second, and so on.

    A domain ends where numbers end, fall, or are those of another chain.
    """
    domains: Counter[str] = Counter()
    named = []
    chain, last = "", 0
    for name in numbers:
        read = _IMGT.match(name)
        now, number = (read[1], int(read[2])) if read else ("", 0)
        if now and (now != chain or number < last):
            domains[now] += 1
        chain, last = now, number
        named.append((name, domains[now]))
    return named
