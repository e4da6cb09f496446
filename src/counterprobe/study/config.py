"""What a study runs: a small TOML file, checked key by key, or one of the presets.

The file names families, sizes, seeds, accuracies and the candidate settings of each sampler.
Unknown keys, wrong types and empty lists are refused before anything runs, with the valid keys.
Two studies are the same study exactly when their configurations are equal; the description does
not count.
"""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from counterprobe.files import read_bytes
from counterprobe.samplers import SAMPLERS, build_sampler
from counterprobe.targets.families import FAMILIES
from counterprobe.theory.colorings import enough_votes

__all__ = [
    "PRESETS",
    "Accuracy",
    "Draws",
    "RandomSearch",
    "Reference",
    "Seeds",
    "StudyConfig",
    "load_preset",
    "read_config",
]

PRESETS = ("paper", "strict", "careful", "tuned-by-hand", "quick", "smoke")
# Which candidates are screened: each one, or from the cheapest on until none left can matter.
SCREENINGS = ("all", "cheapest-first")
# A grid entry's keys that are not settings of the sampler.
GRID_KEYS = ("families", "votes")
# Bytes of a file, candidates of a cell and positions of a target, at most: what is larger would
# take days to check.
MOST_TEXT, MOST_CANDIDATES, MOST_POSITIONS = 1 << 20, 10_000, 2**31 - 1
VOTE_KEYS = ("degree", "miss")


@dataclass(frozen=True)
class Seeds:
    """Target draws and sampler streams; each run takes one of each.

    Screening uses the first development draw with the first development stream.
    """

    development_draws: tuple[int, ...] = (171, 172, 173)
    development_streams: tuple[int, ...] = (271, 272)
    evaluation_draws: tuple[int, ...] = (196, 197, 198)
    proposal_streams: tuple[int, ...] = (292, 293)
    random_streams: tuple[int, ...] = (294, 295)


@dataclass(frozen=True)
class Draws:
    """Monte Carlo draws for each factor of the batch KL that is not enumerated."""

    screening: int = 32
    development: int = 64
    evaluation: int = 128


@dataclass(frozen=True)
class Accuracy:
    """Thresholds on ``K + 2 SE``, as multiples of the family's reference KL."""

    development: float = 1e-3
    evaluation: float = 1e-10


@dataclass(frozen=True)
class Reference:
    """The reference KL ``L_0``: given for each family, or the mean over draws of its own."""

    length: int = 2048
    draws: tuple[int, ...] = (151, 152, 153, 154)
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RandomSearch:
    """The baseline whose budget is searched for each run.

    ``first`` budgets, as fractions of N, are looked at before the bisection; ``width`` is the
    widest bracket between an unsafe and a safe budget that may remain, as a fraction of N. Each of
    the ``variants`` is a table of further settings, searched on every pair; an empty table is the
    sampler as it stands.
    """

    sampler: str = "random-balanced"
    budget: str = "batches"
    first: tuple[float, ...] = ()
    width: float = 0.05
    variants: tuple[Mapping[str, Any], ...] = ({},)


@dataclass(frozen=True)
class StudyConfig:
    """One study.

    Attributes
    ----------
    name : str
        What the store calls it.
    families, sizes
        Their product is the cells.
    sampler : str
        The proposal.
    candidates : int
        How many screened candidates reach development.
    differ_in : tuple of str
        Settings in which those must differ.
    screening : {"all", "cheapest-first"}
        Whether every candidate is screened, or only those that may be among the chosen: from the
        cheapest on, as far as costs are known in advance (``screening.py``), until enough have
        passed and all others must cost more. Both choose the same candidates.
    seeds, draws, accuracy, reference
    random : RandomSearch or None
        None leaves the baseline out.
    grid : mapping of str to list of dict
        Candidate settings of each sampler; lists are expanded to their product. A sampler without
        an entry stands with its defaults.
    description : str
    """

    name: str
    families: tuple[str, ...]
    sizes: tuple[int, ...]
    sampler: str = "packed"
    candidates: int = 6
    differ_in: tuple[str, ...] = ("num_colors", "degree_cutoff")
    screening: str = "all"
    seeds: Seeds = Seeds()
    draws: Draws = Draws()
    accuracy: Accuracy = Accuracy()
    reference: Reference = field(default_factory=Reference)
    random: RandomSearch | None = RandomSearch()
    grid: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""

    def candidate_settings(self, family: str, length: int) -> list[dict[str, Any]]:
        """Return the candidate settings of one cell, lists expanded and votes derived."""
        entries = self.grid.get(self.sampler)
        if not entries:
            return [{}]
        found: list[dict[str, Any]] = []
        for entry in entries:
            if family not in entry.get("families", (family,)):
                continue
            knobs = {key: value for key, value in entry.items() if key not in GRID_KEYS}
            choices = [value if isinstance(value, list) else [value] for value in knobs.values()]
            if math.prod(map(len, choices)) > MOST_CANDIDATES:
                raise ValueError(
                    f"grid.{self.sampler} has an entry of {math.prod(map(len, choices)):,} "
                    f"candidates, at most {MOST_CANDIDATES:,} are tried; shorten its lists"
                )
            for values in itertools.product(*choices):
                settings = dict(zip(knobs, values, strict=True))
                if "votes" in entry:
                    votes = enough_votes(
                        length,
                        settings["num_colors"],
                        degree_cutoff=settings["degree_cutoff"],
                        **entry["votes"],
                    )
                    settings["num_colorings"] = votes.num_colorings
                    settings["majority_fraction"] = votes.majority_fraction
                if settings not in found:
                    found.append(settings)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, from which :func:`config_from_dict` builds the same study."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    def differences(self, other: StudyConfig) -> list[str]:
        """Return the keys in which two configurations differ, the description aside."""
        mine, theirs = _flat(self.as_dict()), _flat(other.as_dict())
        keys = sorted(mine.keys() | theirs.keys())
        return [key for key in keys if key != "description" and mine.get(key) != theirs.get(key)]


def load_preset(name: str) -> StudyConfig:
    """Read a preset by name."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; presets: {', '.join(PRESETS)}")
    text = resources.files("counterprobe.study").joinpath(f"presets/{name}.toml").read_text()
    return config_from_dict(tomllib.loads(text), f"preset {name}")


def read_config(file: str | Path) -> StudyConfig:
    """Read a study of your own from a TOML file."""
    try:
        content = tomllib.loads(read_bytes(file, MOST_TEXT).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(f"{file} is not a TOML file: {problem}") from None
    return config_from_dict(content, str(file))


def config_from_dict(content: Mapping[str, Any], origin: str) -> StudyConfig:
    """Check plain values and build a study; errors start with ``origin``."""
    parts: dict[str, Any] = {
        "seeds": Seeds, "draws": Draws, "accuracy": Accuracy, "reference": Reference,
        "random": RandomSearch,
    }  # fmt: skip
    values = dict(content)
    try:
        for name, cls in parts.items():
            if name == "random" and values.get(name, {}) in (False, None):
                values[name] = None
            elif name in values:
                values[name] = _build(cls, values[name], name)
        config: StudyConfig = _build(StudyConfig, values, "")
        _check(config)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as problem:
        said = " ".join(f"{origin}: {problem}".split())
        raise ValueError(said if len(said) <= 400 else f"{said[:400]}...") from None
    return config


def _build(cls: Any, values: Any, where: str) -> Any:
    """Build a dataclass from a table, strictly."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} must be a table, got {values!r}")
    known = {knob.name: knob for knob in fields(cls)}
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in known:
            raise ValueError(f"unknown key {prefix}{key}; valid keys: {', '.join(known)}")
    for key, knob in known.items():
        is_needed = knob.default is MISSING and knob.default_factory is MISSING
        if is_needed and key not in values:
            raise ValueError(f"{prefix}{key} is missing")
    ready = {}
    for key, value in values.items():
        kind = str(known[key].type)
        ready[key] = _typed(f"{prefix}{key}", value, kind)
    return cls(**ready)


def _typed(name: str, value: Any, kind: str) -> Any:
    """Check one value against a field's declared type."""
    if kind.startswith("tuple["):
        item = kind[len("tuple[") :].split(",")[0]
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{name} must be a list, got {value!r}")
        return tuple(_typed(name, entry, item) for entry in value)
    if kind.startswith("Mapping[") and not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a table, got {value!r}")
    wanted: dict[str, Any] = {"int": int, "float": (int, float), "str": str}
    if kind in wanted:
        if not isinstance(value, wanted[kind]) or isinstance(value, bool):
            raise ValueError(f"{name} must be of type {kind}, got {value!r}")
        return float(value) if kind == "float" else value
    return value


def _check(config: StudyConfig) -> None:
    """Refuse what could not run."""
    if not config.name.strip():
        raise ValueError("name must not be empty")
    for name in ("families", "sizes"):
        entries = getattr(config, name)
        if not entries or len(set(entries)) != len(entries):
            raise ValueError(f"{name} must list at least one, each once; got {list(entries)}")
    for family in config.families:
        if family not in FAMILIES:
            raise ValueError(f"unknown family {family!r}; known: {', '.join(FAMILIES)}")
    for name in (knob.name for knob in fields(Seeds)):
        entries = getattr(config.seeds, name)
        if not entries or len(set(entries)) != len(entries) or min(entries) < 0:
            raise ValueError(
                f"seeds.{name} must list non-negative integers, each once; got {list(entries)}"
            )
    tuned = set(config.seeds.development_draws)
    if tuned & set(config.seeds.evaluation_draws):
        raise ValueError("seeds.evaluation_draws must not share a draw with development_draws")
    for name, least in (("screening", 2), ("development", 2), ("evaluation", 2)):
        if getattr(config.draws, name) < least:
            raise ValueError(f"draws.{name} must be at least {least}")
    for name in ("development", "evaluation"):
        if not getattr(config.accuracy, name) > 0:
            raise ValueError(f"accuracy.{name} must be positive")
    if min(config.sizes) < 2 or config.candidates < 1:
        raise ValueError("sizes must be at least 2 and candidates at least 1")
    if max(config.sizes) > MOST_POSITIONS:
        raise ValueError(f"sizes must be at most {MOST_POSITIONS}, got {max(config.sizes)}")
    if config.screening not in SCREENINGS:
        raise ValueError(
            f"screening must be one of {', '.join(SCREENINGS)}; got {config.screening!r}"
        )
    _check_reference(config)
    _check_samplers(config)
    try:
        json.dumps(config.as_dict(), allow_nan=False)
    except (ValueError, TypeError):
        raise ValueError(
            "values must be finite numbers, texts, lists and tables, since a store keeps them as "
            "JSON; write a large number in place of inf, and dates as texts"
        ) from None


def _check_reference(config: StudyConfig) -> None:
    values = config.reference.values
    missing = [family for family in config.families if family not in values]
    if values and missing:
        raise ValueError(f"reference.values must name every family; missing: {missing}")
    if any(not isinstance(v, (int, float)) or not v > 0 for v in values.values()):
        raise ValueError(f"reference.values must be positive numbers, got {dict(values)}")
    if not values and (not config.reference.draws or config.reference.length < 2):
        raise ValueError("reference needs values, or a length and draws")


def _check_samplers(config: StudyConfig) -> None:
    """Build every candidate of every cell once, so that nothing fails half way."""
    for name in config.grid:
        if name not in SAMPLERS:
            raise ValueError(f"grid.{name}: unknown sampler; known: {', '.join(sorted(SAMPLERS))}")
        entries = config.grid[name]
        if not isinstance(entries, list) or not all(isinstance(e, Mapping) for e in entries):
            raise ValueError(f"grid.{name} must be a list of tables, [[grid.{name}]]")
        for entry in entries:
            _check_entry(f"grid.{name}", entry)
    if config.grid.get(config.sampler):
        known = [knob.name for knob in fields(SAMPLERS[config.sampler])]
        unknown = [name for name in config.differ_in if name not in known]
        if unknown:
            raise ValueError(
                f"differ_in must name settings of sampler {config.sampler!r}, got {unknown}; its "
                f"settings: {', '.join(known)}"
            )
    for family in config.families:
        for length in config.sizes:
            settings = config.candidate_settings(family, length)
            if not settings:
                raise ValueError(f"grid.{config.sampler} has no candidate for family {family!r}")
            for candidate in settings:
                build_sampler(config.sampler, candidate)
    if config.random is not None:
        _check_random(config.random)


def _check_random(random: RandomSearch) -> None:
    variants = [dict(variant) for variant in random.variants]
    if not variants or any(variant in variants[:k] for k, variant in enumerate(variants)):
        raise ValueError(f"random.variants must list at least one, each once; got {variants}")
    for variant in variants:
        if random.budget in variant:
            raise ValueError(f"random.variants must leave {random.budget} to the search")
        build_sampler(random.sampler, {**variant, random.budget: 1})
    if not 0 < random.width < 1:
        raise ValueError(f"random.width must lie in (0, 1), got {random.width!r}")
    if any(not 0 < share <= 1 for share in random.first):
        raise ValueError(f"random.first must lie in (0, 1], got {list(random.first)}")


def _check_entry(where: str, entry: Mapping[str, Any]) -> None:
    chosen = entry.get("families", [])
    for family in chosen:
        if family not in FAMILIES:
            raise ValueError(f"{where}: unknown family {family!r}; known: {', '.join(FAMILIES)}")
    votes = entry.get("votes")
    if votes is None:
        return
    if not isinstance(votes, Mapping) or set(votes) != set(VOTE_KEYS):
        raise ValueError(f"{where}.votes must have the keys {', '.join(VOTE_KEYS)}; got {votes!r}")
    for key, kinds in (("degree", (int,)), ("miss", (int, float))):
        if type(votes[key]) not in kinds:
            raise ValueError(f"{where}.votes.{key} must be a number, got {votes[key]!r}")
    for key in ("num_colors", "degree_cutoff"):
        if key not in entry:
            raise ValueError(f"{where}.votes needs {key} beside it")
    for key in ("num_colorings", "majority_fraction"):
        if key in entry:
            raise ValueError(f"{where}.votes derives {key}; leave it out")


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested tables to dotted keys."""
    if not isinstance(value, dict) or not value:
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, item in value.items():
        flat |= _flat(item, f"{prefix}.{key}" if prefix else str(key))
    return flat
