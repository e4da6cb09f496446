"""The table of ``counterprobe verify``, and the sentences below it."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from counterprobe.cli.instances import Instance
from counterprobe.cli.tables import Column, print_table
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
    verdicts = [
        ("holds" if all(entry["hypotheses"].values()) else "no claim")
        if entry["holds"]
        else "VIOLATED"
        for entry in cases
    ]
    print_table(
        console,
        f"{sampler.name} on {instance.law.name}, N = {public.length}, V = {public.vocab_size}: "
        f"exact {measure} risk",
        [
            Column("oracle"),
            Column("risk"),
            Column("SE over seeds", 1),
            Column("bound"),
            Column("slack", 3),
            Column("safe seeds", 2),
            Column("peeled", 2),
            Column("verdict"),
        ],
        [
            [
                entry["oracle"],
                f"{entry['risk']:.3e}",
                f"{entry['risk_se']:.1e}",
                f"{entry['bound']:.4g}",
                f"{entry['slack']:.3e}",
                f"{entry['safe_seeds']}/{entry['seeds']}",
                f"{entry['peeled']}",
                verdict,
            ]
            for entry, verdict in zip(cases, verdicts, strict=True)
        ],
    )
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
