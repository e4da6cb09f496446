"""``counterprobe dependence``: TC, DTC, effective TC and the information curve."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import typer

from counterprobe.cli import options, output
from counterprobe.evaluation.dependence import (
    DEFAULT_SAMPLES,
    DependenceProfile,
    dependence_profile,
    estimate_dependence,
)
from counterprobe.states import MASK

__all__ = ["dependence"]

METHODS = {
    "enumeration": "by enumeration",
    "closed form": "exact, in closed form",
    "estimate": "estimated from sequences drawn in random orders",
    "model": "a curve of two numbers, TC and DTC",
}


@output.command
def dependence(
    target: options.Law,
    text: options.Text,
    model: options.ModelOrLaw = None,
    samples: Annotated[
        int,
        typer.Option(
            help="Sequences drawn where nothing exact is known, about N (1 + log N) evaluations "
            "each; for a forest, 0 takes the curve of two numbers."
        ),
    ] = DEFAULT_SAMPLES,
    seed: Annotated[int, typer.Option(help="Of those sequences.")] = 1,
    json: options.JsonFile = None,
) -> None:
    """Show how dependent a hidden law or a model is: what random-order schedules pay for.

    TC is what one product batch costs in forward KL, DTC its dual; the effective total
    correlation is at most both. All three are read from the information curve: the mean entropy
    of a random position given j random others.

    For example:

    counterprobe dependence --family two-type-path --n 1024

    counterprobe dependence --model sapiens-heavy --sequence EVQLVESGGGLVQPGGSLRLSCXXSGFXXS
    """
    output.check_writable(json)
    if samples < 0:
        raise ValueError(f"--samples must not be negative, got {samples}")
    if model is not None:
        target.refuse()
        task, name = text.task(model, is_probed=True), model
        num_masked = int((task.given == MASK).sum())
        if not num_masked:
            raise ValueError("--sequence must have at least one mask, got none: nothing depends")
        if samples == 0:
            raise ValueError("--samples must be at least 1 for a model, got 0")
        title = f"{model}, {num_masked} of {len(task.given)} positions masked"
        with output.counting("sequences", samples) as show:
            profile = estimate_dependence(
                task.oracle, samples=samples, given=task.given, seed=seed, progress=show
            )
    else:
        text.refuse()
        law = target.build()
        name, title = law.name, f"{law.name}, N = {law.length:,}"
        with output.counting("sequences", samples) as show:
            profile = dependence_profile(law, samples=samples, seed=seed, progress=show)
    output.print_facts(output.console_for(json), title, _rows(profile))
    output.write_result(
        json, {"name": name, "n": len(profile.curve), "seed": seed, **profile.as_dict()}
    )


def _rows(profile: DependenceProfile) -> dict[str, Any]:
    count = len(profile.curve)
    places = np.unique(np.linspace(0, count - 1, 5).round().astype(int))
    evaluations = (
        f", {profile.ledger.evaluations:,} evaluations" if profile.ledger.evaluations else ""
    )
    return {
        "total correlation": str(profile.total),
        "dual total correlation": str(profile.dual),
        "effective total correlation": str(profile.effective),
        **{
            f"entropy given {j:,} other{'' if j == 1 else 's'}": f"{profile.curve[j]:.5g}"
            for j in places
        },
        "the curve": METHODS[profile.method] + evaluations,
    }
