"""``counterprobe dependence``: TC, DTC, effective TC and the information curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress as Bar

from counterprobe.cli import output
from counterprobe.cli.discover import refuse_given
from counterprobe.cli.model_task import (
    Allowed,
    Backbone,
    Chains,
    Device,
    ModelOrLaw,
    Sequence,
    Temperature,
    probed_task,
)
from counterprobe.cli.targets import Edges, Family, Length, Target, TargetSeed, Weight
from counterprobe.evaluation.dependence import (
    DEFAULT_SAMPLES,
    DependenceProfile,
    Total,
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


@output.friendly
def dependence(
    family: Family = None,
    edges: Edges = None,
    n: Length = None,
    target_seed: TargetSeed = 196,
    weight: Weight = None,
    model: ModelOrLaw = None,
    sequence: Sequence = None,
    device: Device = None,
    backbone: Backbone = None,
    chains: Chains = None,
    allowed: Allowed = None,
    temperature: Temperature = 1.0,
    samples: Annotated[
        int,
        typer.Option(
            help="Sequences drawn where nothing exact is known, about N (1 + log N) evaluations "
            "each; for a forest, 0 takes the curve of two numbers."
        ),
    ] = DEFAULT_SAMPLES,
    seed: Annotated[int, typer.Option(help="Of those sequences.")] = 1,
    json: output.SummaryFile = None,
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
    of_model = {"device": device, "backbone": backbone, "chains": chains}
    if model is not None:
        of_law = {"--family": family, "--edges": edges, "--n": n, "--weight": weight}
        refuse_given("--model brings a law of its own: leave out", of_law)
        task = probed_task(model, sequence, allowed, temperature, **of_model)
        num_masked = int((task.given == MASK).sum())
        if not num_masked:
            raise ValueError("--sequence must have at least one mask, got none: nothing depends")
        name = model
        title = f"{model}, {num_masked} of {len(task.given)} positions masked"
        if samples == 0:
            raise ValueError("--samples must be at least 1 for a model, got 0")
        with _bar(samples) as progress:
            profile = estimate_dependence(
                task.oracle, samples=samples, given=task.given, seed=seed, progress=progress
            )
    else:
        changed = None if temperature == 1 else temperature
        words = {"sequence": sequence, **of_model, "allowed": allowed, "temperature": changed}
        refuse_given(
            "a model must be named with --model for",
            {f"--{word}": value for word, value in words.items()},
        )
        law = Target(family, edges, n, target_seed, weight).build()
        name, title = law.name, f"{law.name}, N = {law.length:,}"
        with _bar(samples) as progress:
            profile = dependence_profile(law, samples=samples, seed=seed, progress=progress)
    console = output.console_for(json)
    console.print(output.key_value_table(title, _rows(profile)))
    output.write_json(
        json, {"name": name, "n": len(profile.curve), "seed": seed, **profile.as_dict()}
    )


@contextmanager
def _bar(samples: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many sequences are measured."""
    console = Console(stderr=True)
    with Bar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("sequences", total=samples)
        yield lambda done: bar.update(task, completed=done)


def _rows(profile: DependenceProfile) -> dict[str, Any]:
    count = len(profile.curve)
    places = np.unique(np.linspace(0, count - 1, 5).round().astype(int))
    evaluations = f", {profile.ledger.total:,} evaluations" if profile.ledger.total else ""
    return {
        "total correlation": _nats(profile.total),
        "dual total correlation": _nats(profile.dual),
        "effective total correlation": _nats(profile.effective),
        **{
            f"entropy given {j:,} other{'' if j == 1 else 's'}": f"{profile.curve[j]:.5g}"
            for j in places
        },
        "the curve": METHODS[profile.method] + evaluations,
    }


def _nats(total: Total) -> str:
    value = f"{'at most ' if total.is_bound else ''}{total.value:.6g}"
    if math.isnan(total.standard_error):
        return f"{value} (error unknown)"
    return f"{value} (SE {total.standard_error:.2g})" if total.standard_error else value
