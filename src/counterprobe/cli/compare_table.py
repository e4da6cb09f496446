"""The table of ``counterprobe compare``, at any width of the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from counterprobe.cli.tables import Column, print_table
from counterprobe.evaluation.comparison import Comparison
from counterprobe.run.ledger import Right
from counterprobe.samplers import Sampler

__all__ = ["label", "point_label", "show_comparison", "sweeps_of"]

# What is left of zero after a sum of logarithms.
ROUNDING = 1e-12
COLUMNS = (
    Column("sampler"),
    Column("total"),
    Column("without S", 4),
    Column("depth"),
    Column("widest stage", 5),
    Column("commits", 6),
    Column("tokens per forward", 3),
    Column("rights", 2),
    Column("batch KL"),
    Column("SE", 1),
    Column("seconds", 7),
    Column("exact", 7),
)
LETTERS = {
    Right.SELECT_AFTER_REPLY: "S",
    Right.COMMIT_CANDIDATES: "C",
    Right.VERIFY: "V",
    Right.REMASK: "M",
}


def label(sampler: Sampler) -> str:
    """Return the name, with the settings that differ from the defaults."""
    return " ".join([sampler.name, *_changed(sampler)])


def point_label(sampler: Sampler) -> str:
    """Return the name of one point of a sweep: the value that is tried is always there."""
    if sampler.sweep is None:
        return label(sampler)
    knob = sampler.sweep.setting
    return " ".join(
        [sampler.name, f"{knob}={sampler.settings[knob]}", *_changed(sampler, besides=knob)]
    )


def sweeps_of(samplers: Iterable[Sampler]) -> dict[str, Sampler]:
    """Return what to sweep, by name: samplers that differ in the swept setting alone are one."""
    found: dict[str, Sampler] = {}
    for sampler in samplers:
        knob = None if sampler.sweep is None else sampler.sweep.setting
        found.setdefault(" ".join([sampler.name, *_changed(sampler, besides=knob)]), sampler)
    return found


def _changed(sampler: Sampler, besides: str | None = None) -> list[str]:
    """List the settings that differ from the defaults, all or all but one."""
    default = type(sampler)().settings
    return [f"{k}={v}" for k, v in sampler.settings.items() if v != default[k] and k != besides]


def show_comparison(console: Console, title: str, compared: Sequence[Comparison]) -> None:
    """Print one line a sampler, and what the letters mean."""
    print_table(console, title, COLUMNS, [_cells(entry) for entry in compared])
    for note in _notes(compared):
        console.print(Text(note, style="dim"))


def _notes(compared: Sequence[Comparison]) -> list[str]:
    samplers = [entry.sampler for entry in compared]
    notes = [
        "Total: submissions. Rights: S selects after the reply, C commits candidates, V verifies, "
        "M masks again; 'without S' is the total if each such selection were a probe."
    ]
    told = ", ".join(f"{rule.name} {rule.knows}" for rule in samplers if rule.knows)
    if told:
        notes.append(f"Told about the law: {told}.")
    if any(Right.COMMIT_CANDIDATES in rule.rights for rule in samplers):
        notes.append(
            "C: choosing among drawn values biases the output, which the batch KL does not see."
        )
    if any(Right.VERIFY in rule.rights for rule in samplers):
        notes.append("V: values may be rejected, so that no batch KL applies.")
    for entry in compared:
        if entry.refusal is not None:
            what = "failed" if entry.problem is not None else "was infeasible"
            notes.append(f"{entry.sampler.name} {what}: {entry.refusal}.")
    return notes


def _cells(entry: Comparison) -> list[str]:
    selects = Right.SELECT_AFTER_REPLY in entry.sampler.rights
    rights = "".join(letter for right, letter in LETTERS.items() if right in entry.sampler.rights)
    return [
        label(entry.sampler),
        _number(entry.mean("total")),
        _number(entry.mean("total_without_rights")) if selects else "",
        _number(entry.mean("depth")),
        _number(entry.mean("widest_stage")),
        _number(entry.mean("commits")),
        "-" if math.isnan(entry.tokens_per_forward) else f"{entry.tokens_per_forward:.3g}",
        rights,
        _small(entry.batch_kl),
        _small(entry.batch_kl_se),
        "-" if math.isnan(entry.seconds) else f"{entry.seconds:.2f}",
        "yes" if entry.is_exact else "no",
    ]


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value == round(value) or value >= 100 else f"{value:.1f}"


def _small(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "0" if abs(value) < ROUNDING else f"{value:.3g}"
