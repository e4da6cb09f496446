"""Samplers by name, and their settings from text: what the command line and studies build with."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from counterprobe.arguments import whole_number
from counterprobe.discovery import Structure
from counterprobe.samplers.auto import Auto
from counterprobe.samplers.balanced import OneBatch, RandomBalanced, Spread
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.centroid_layers import CentroidLayers
from counterprobe.samplers.compressed import Compressed
from counterprobe.samplers.packed import Packed
from counterprobe.samplers.packed_theory import PackedTheory
from counterprobe.samplers.peers.ancestral import Ancestral, ReMDM
from counterprobe.samplers.peers.assd import ASSD
from counterprobe.samplers.peers.autospeculation import Autospeculation
from counterprobe.samplers.peers.dapd import DAPD
from counterprobe.samplers.peers.dawn import DAWN
from counterprobe.samplers.peers.demask import DEMASK
from counterprobe.samplers.peers.dependence import (
    ChenCongLi,
    InformationCurve,
    InformationProfile,
    LiCai,
)
from counterprobe.samplers.peers.freedave import FreeDave
from counterprobe.samplers.peers.lookahead import InfoGain, LookUM
from counterprobe.samplers.peers.mean_field import MeanField
from counterprobe.samplers.peers.punt import PUNT
from counterprobe.samplers.peers.random_times import EffectiveTC, ZhaoCai
from counterprobe.samplers.peers.threshold import KLASS, EntropyBounded, Factor, Threshold
from counterprobe.samplers.peers.topk import Dream, LLaDA, MaskGIT
from counterprobe.samplers.peers.universal_coupling import UniversalCoupling
from counterprobe.samplers.peers.wino import WINO
from counterprobe.samplers.planned import Planned
from counterprobe.samplers.sequential import Sequential
from counterprobe.samplers.structured import Structured

__all__ = [
    "SAMPLERS",
    "Orders",
    "as_groups",
    "as_sampler",
    "build_sampler",
    "default_orders",
    "describe_samplers",
    "read_samplers",
    "read_settings",
    "settings_of",
    "structure_settings",
]

Orders = Literal["shared", "fresh"]
# Groups of sequences with a plan each, where a soft structure plans.
PLANS = 16
# What plans of a soft structure may be asked for.
PLAN_SETTINGS = ("batches", "information_budget", "target_kl", "method")


SAMPLERS: dict[str, type[Sampler]] = {
    cls.name: cls
    for cls in (
        Auto,
        Compressed,
        Packed,
        PackedTheory,
        Sequential,
        OneBatch,
        RandomBalanced,
        Ancestral,
        Spread,
        MaskGIT,
        LLaDA,
        Dream,
        Threshold,
        Factor,
        KLASS,
        EntropyBounded,
        MeanField,
        PUNT,
        LiCai,
        ChenCongLi,
        InformationCurve,
        InformationProfile,
        EffectiveTC,
        ZhaoCai,
        InfoGain,
        LookUM,
        UniversalCoupling,
        Autospeculation,
        ASSD,
        FreeDave,
        ReMDM,
        WINO,
        CentroidLayers,
        Planned,
        DAWN,
        DAPD,
        DEMASK,
    )
}

# Settings as results recorded earlier name them.
FORMER_NAMES = {"draft": "filler"}


@functools.cache  # resolving annotations takes milliseconds, and a study builds thousands
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def build_sampler(name: str, settings: Mapping[str, Any] | None = None) -> Sampler:
    """Build a sampler from its name and settings.

    Parameters
    ----------
    name : str
        One of ``SAMPLERS``.
    settings : mapping of str to object, optional
        Values may be text, as on the command line.
    """
    if name not in SAMPLERS:
        raise ValueError(
            f"unknown sampler {name!r}; known samplers: {', '.join(sorted(SAMPLERS))}"
        )
    cls = SAMPLERS[name]
    return cls(**settings_of(cls, settings or {}, f"sampler {name!r}", f"{name}."))


def settings_of(
    cls: type[Any], settings: Mapping[str, Any], owner: str, prefix: str = ""
) -> dict[str, Any]:
    """Return settings of a dataclass, those that are text by their types; refuse unknown ones."""
    hints = _hints(cast("Hashable", cls))  # mypy denies that a class is hashable
    knobs = {knob.name for knob in fields(cls)}
    values = {}
    for given, value in settings.items():
        key = FORMER_NAMES.get(given, given) if given not in knobs else given
        if key not in knobs:
            known = ", ".join(sorted(knobs)) or "none"
            raise ValueError(f"{owner} has no setting {given!r}; its settings: {known}")
        values[key] = _parse(f"{prefix}{key}", value, hints[key])
    return values


def read_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """Read ``key=value`` words of the command line."""
    settings = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ValueError(f"--set takes key=value, got {pair!r}")
        settings[key.strip().replace("-", "_")] = value.strip()
    return settings


def read_samplers(text: str) -> list[Sampler]:
    """Read ``name:key=value:key=value,name``; 'all' is every sampler with its defaults."""
    if text.strip() == "all":
        # Theory mode is infeasible on the families at any size one would compare at.
        return [cls() for name, cls in SAMPLERS.items() if name != PackedTheory.name]
    chosen = []
    for word in text.split(","):
        name, *settings = word.strip().split(":")
        if not name:
            raise ValueError(f"--samplers takes names separated by commas, got {text!r}")
        chosen.append(build_sampler(name, read_settings(settings)))
    return chosen


def as_sampler(
    sampler: str | Sampler | Structure, settings: Mapping[str, Any] | None = None
) -> Sampler:
    """Return a sampler that is given by its name and settings, by a structure, or as it is.

    Parameters
    ----------
    sampler : str, Sampler, Structure
    settings : mapping of str to object, optional
        Of a sampler given by name; or of the plans of a soft structure (``batches``,
        ``information_budget``, ``target_kl``, ``method``). A certified structure has none.
    """
    if isinstance(sampler, str):
        return build_sampler(sampler, settings)
    if isinstance(sampler, Structure):
        return _of_structure(sampler, settings or {})
    if not isinstance(sampler, Sampler):
        raise ValueError(
            f"sampler must be a name, a Sampler or a structure, got {sampler!r}; 'counterprobe "
            "samplers' lists the names"
        )
    if settings:
        raise ValueError(
            f"settings go with a sampler's name; {type(sampler).__name__} has its own, so put "
            f"{', '.join(sorted(settings))} there"
        )
    return sampler


def _of_structure(structure: Structure, settings: Mapping[str, Any]) -> Sampler:
    """Return the rule that commits by a structure."""
    known = structure_settings(structure)
    unknown = sorted(set(settings) - set(known))
    if unknown:
        said = f"its settings: {', '.join(known)}" if known else "it has none"
        raise ValueError(f"this structure's rule has no setting {unknown[0]!r}; {said}")
    if structure.strengths is None:
        return Structured.of(structure)
    return Planned.of(structure, **settings)


def structure_settings(structure: Structure) -> list[str]:
    """Return the names of the settings that the rule of a structure has."""
    return [] if structure.strengths is None else list(PLAN_SETTINGS)


def default_orders(structure: Structure | None, rule: Sampler) -> Orders | int:
    """Return who shares decisions where nobody says.

    Plans of a soft structure are searched anew for each of so many groups, so that what one plan
    breaks is not broken in all sequences; ``auto`` begins elsewhere in each of them.
    """
    if isinstance(rule, Auto):
        return "fresh"
    return "shared" if structure is None or structure.strengths is None else PLANS


def describe_samplers() -> list[dict[str, Any]]:
    """Return every sampler with its settings, needs, bound, source and what it must know."""
    described = []
    for name, cls in sorted(SAMPLERS.items()):
        described.append(
            {
                "name": name,
                "summary": cls.summary,
                "settings": {
                    knob.name: None if knob.default is MISSING else knob.default
                    for knob in fields(cls)
                    if knob.repr  # a matrix is no setting to show
                },
                "needs": cls().needs.names(),
                "bound": cls.bound,
                "source": cls.source,
                "knows": cls.knows,
                "sweep": None if cls.sweep is None else asdict(cls.sweep),
            }
        )
    return described


def _parse(name: str, value: Any, hint: Any) -> Any:
    """Turn text into a setting's type; leave other values alone."""
    if not isinstance(value, str):
        return value
    options = get_args(hint) if get_origin(hint) is not Literal else ()
    if type(None) in options:
        if value.lower() in ("none", ""):
            return None
        hint = next(option for option in options if option is not type(None))
    if get_origin(hint) is Literal:
        by_text = {str(option): option for option in get_args(hint)}
        if value not in by_text:
            raise ValueError(f"{name} must be one of {', '.join(by_text)}; got {value!r}")
        return by_text[value]
    if hint is bool:
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {value!r}")
        return value.lower() == "true"
    if hint in (int, float):
        try:
            return hint(value)
        except ValueError:
            kind = "an integer" if hint is int else "a number"
            raise ValueError(f"{name} must be {kind}, got {value!r}") from None
    return value


def as_groups(orders: Orders | int, count: int) -> int:
    """Return how many groups of sequences decide on their own."""
    if isinstance(orders, str):
        if orders not in get_args(Orders):
            known = ", ".join(get_args(Orders))
            raise ValueError(f"orders must be {known} or a number of groups; got {orders!r}")
        return 1 if orders == "shared" else count
    return min(whole_number("orders", orders, at_least=1), count)
