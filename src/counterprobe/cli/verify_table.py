"""The table of ``counterprobe verify``, and the sentences below it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from counterprobe.cli.instances import Instance
from counterprobe.samplers import Sampler
from counterprobe.theory.parameters import Calibration

__all__ = ["show_cases"]


def show_cases(
    console: Console,
    instance: Instance,
    sampler: Sampler,
    public: Calibration,
    cases: list[dict[str, Any]],
    violations: list[str],
) -> None:
    """Print the table, and what must be said beside it.

    Parameters
    ----------
    console : Console
    instance : Instance
    sampler : Sampler
    public : Calibration
    cases : list of dict
        One an oracle, as in the JSON output.
    violations : list of str
        Conditions of the class that the law violates.
    """
    measure = "TV" if public.case == "tv" else "KL"
    table = Table(
        title=f"{sampler.name} on {instance.law.name}, N = {public.length}, "
        f"V = {public.vocab_size}: exact {measure} risk",
        title_justify="left",
        pad_edge=False,
    )
    headings = ("oracle", "risk", "SE", "bound", "slack", "safe", "peeled", "verdict")
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "oracle" else "right")
    for entry in cases:
        verdict = "holds" if all(entry["hypotheses"].values()) else "no claim"
        table.add_row(
            entry["oracle"],
            f"{entry['risk']:.3e}",
            f"{entry['risk_se']:.1e}",
            f"{entry['bound']:.4g}",
            f"{entry['slack']:.3e}",
            f"{entry['safe_seeds']}/{entry['seeds']}",
            f"{entry['peeled']}",
            verdict if entry["holds"] else "VIOLATED",
        )
    console.print(table)
    if instance.note:
        console.print(instance.note)
        if not any(entry["peeled"] for entry in cases):
            console.print(
                f"No path peeled: that takes a position that more than "
                f"{public.degree_cutoff / 2:g} rows claim (--shape hub has one)."
            )
    if not public.meets_target:
        console.print(
            f"The bound {public.risk_bound:.4g} is above the accuracy aimed at, "
            f"{public.target_risk:.4g}: these budgets do not promise it."
        )
    console.print(
        "A supremum over oracles is only estimated from below, by trying adversaries. The KL "
        f"identity holds to {max(entry['identity_gap'] for entry in cases):.1e}."
    )
    if violations:
        console.print(f"The law is outside the paper's class: {'; '.join(violations)}.")
