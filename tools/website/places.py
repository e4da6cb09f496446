"""Public names, and the one place where the reference describes each of them.

A place is a module whose names people are meant to use. What several places offer
(``cp.Structure`` is ``cp.discovery.Structure``) is described at the most particular of them, once,
and found by any of its names.
"""

from __future__ import annotations

import importlib
import inspect
from functools import cache
from types import ModuleType
from typing import Any

__all__ = ["PLACES", "described", "name_of", "object_named", "public_names"]

# In the order of docs/architecture.md: what is used stands before what uses it.
PLACES: dict[str, str] = {
    "counterprobe": "the front door",
    "counterprobe.oracles": "models as oracles",
    "counterprobe.rows": "rows",
    "counterprobe.classes": "token classes",
    "counterprobe.states": "states and masks",
    "counterprobe.streams": "seeds",
    "counterprobe.radii": "declared errors",
    "counterprobe.errors": "errors",
    "counterprobe.run": "runs and ledgers",
    "counterprobe.graph": "forests",
    "counterprobe.targets": "laws that are known",
    "counterprobe.targets.families": "families of laws",
    "counterprobe.targets.class_checker": "constants of the paper's class",
    "counterprobe.theory": "guarantees",
    "counterprobe.theory.parameters": "the paper's parameters",
    "counterprobe.theory.bounds": "upper and lower bounds",
    "counterprobe.theory.collisions": "the lower bound's lemmas",
    "counterprobe.theory.hypotheses": "hypotheses of a guarantee",
    "counterprobe.discovery": "finding structure",
    "counterprobe.discovery.soft": "strengths",
    "counterprobe.discovery.packed.fillers": "fillers of a screen",
    "counterprobe.discovery.banks": "banks",
    "counterprobe.discovery.packed.screen": "a packed screen",
    "counterprobe.discovery.packed.votes": "votes of a screen",
    "counterprobe.discovery.packed.selectors": "rows of a screen",
    "counterprobe.planning": "plans with a price",
    "counterprobe.samplers": "samplers",
    "counterprobe.samplers.packed": "the paper's sampler",
    "counterprobe.sampling": "many sequences",
    "counterprobe.evaluation": "measures",
    "counterprobe.models": "models by name",
    "counterprobe.infilling": "texts with masks",
    "counterprobe.integrations.transformers": "inside transformers",
    "counterprobe.integrations.diffusers": "inside diffusers",
    "counterprobe.executors": "processes and clusters",
    "counterprobe.threads": "threads",
    "counterprobe.plots": "pictures",
    "counterprobe.trace": "traces of runs",
    "counterprobe.report": "reports",
    "counterprobe.study": "the paper's study",
    "counterprobe.testing": "conformance",
}  # fmt: skip


def public_names(place: str) -> list[str]:
    """Return what a module offers: its ``__all__``, or the library's names that it holds."""
    module = importlib.import_module(place)
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if not name.startswith("__")]
    names = [name for name in dir(module) if not name.startswith("_")]
    return [name for name in names if _is_ours(getattr(module, name))]


def _is_ours(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return False
    return str(getattr(value, "__module__", "")).partition(".")[0] == "counterprobe"


@cache
def described() -> dict[str, list[str]]:
    """Return, for each place, the names that the reference describes there."""
    homes: dict[int, str] = {}
    for place in PLACES:
        for name in public_names(place):
            value = getattr(importlib.import_module(place), name)
            if inspect.isclass(value) or inspect.isroutine(value):
                homes[id(value)] = place if id(value) not in homes else max(
                    homes[id(value)], place, key=lambda one: _shared(one, value))  # fmt: skip
    found: dict[str, list[str]] = {place: [] for place in PLACES}
    for place in PLACES:
        module = importlib.import_module(place)
        for name in public_names(place):
            if homes.get(id(getattr(module, name))) == place:
                found[place].append(name)
    return found


def _shared(place: str, value: Any) -> int:
    """Count the leading parts that a place shares with the module that defines a value."""
    count = 0
    for one, other in zip(place.split("."), value.__module__.split("."), strict=False):
        if one != other:
            break
        count += 1
    return 2 * count - (place.count(".") + 1 > count)


@cache
def _homes() -> dict[int, str]:
    return {
        id(getattr(importlib.import_module(place), name)): f"{place}.{name}"
        for place, names in described().items()
        for name in names
    }


@cache
def _classes() -> dict[str, str]:
    """Return classes by their bare names, where only one has it."""
    by_name: dict[str, set[str]] = {}
    for full in _homes().values():
        by_name.setdefault(full.rpartition(".")[2], set()).add(full)
    return {
        name: fulls.pop()
        for name, fulls in by_name.items()
        if len(fulls) == 1 and name[0].isupper()
    }


def object_named(text: str) -> Any:
    """Return what a dotted name leads to, from the package or from within it.

    Raises
    ------
    LookupError
        If it leads nowhere.
    """
    words = text.removesuffix("()").split(".")
    words = words[1:] if words[0] in ("cp", "counterprobe") else words
    here: Any = importlib.import_module("counterprobe")
    for number, word in enumerate(words):
        try:
            here = getattr(here, word)
        except AttributeError:
            try:
                here = importlib.import_module(".".join(["counterprobe", *words[: number + 1]]))
            except ImportError:
                break
    else:
        return here
    full = _classes().get(words[0], "") if words[0][:1].isupper() else ""
    if full.count(".") > 1:  # not at the front door, where it was looked for already
        return object_named(".".join([full, *words[1:]]))
    raise LookupError(f"{text!r} names nothing in the library")


def name_of(text: str) -> str | None:
    """Return the name under which the reference describes what a text names, if it does.

    Names with a dot, and classes by their bare names; a plain small word is a word.
    """
    if "." not in text and not (text[:1].isupper() and text in _classes()):
        return None
    try:
        value = object_named(text)
    except (LookupError, ValueError):
        return None
    if full := _homes().get(id(value)):
        return full
    owner, _, member = text.removesuffix("()").rpartition(".")
    if owner and (full := name_of(owner) or _classes().get(owner)):
        return f"{full}.{member}"
    return None
