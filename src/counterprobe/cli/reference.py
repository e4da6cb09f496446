"""``counterprobe reference``: the reference KL of a family over target draws."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from counterprobe.cli import options, output
from counterprobe.evaluation import reference_kl
from counterprobe.targets import families

__all__ = ["reference"]

# Draws that the terminal shows.
SHOWN = 12


@output.command
def reference(
    family: Annotated[str, typer.Option(help="Family of the hidden forest.")] = "path",
    n: Annotated[int, typer.Option("--n", help="Number of positions.")] = 2048,
    draws: Annotated[int, typer.Option(help="Number of target draws.")] = 8,
    first_seed: Annotated[int, typer.Option(help="Target seed of the first draw.")] = 0,
    json: options.JsonFile = None,
) -> None:
    """Compute the reference KL L_0 of a family: one product batch of all positions.

    It is KL(product of the marginals || joint), exactly, one value per target draw. Accuracy
    thresholds are stated as multiples of it.

    Example: counterprobe reference --family matching --n 2048 --draws 8
    """
    output.check_writable(json)
    if draws < 1:
        raise ValueError(f"--draws must be at least 1, got {draws}")
    values: list[float] = []
    with output.counting("target draws", draws) as show:
        for k in range(draws):
            values.append(reference_kl(families.build(family, n, first_seed + k)))
            show(k + 1)
    mean = float(np.mean(values))
    sd = float(np.std(values, ddof=1)) if draws > 1 else None
    rows = {f"draw {first_seed + k}": f"{value:.6g}" for k, value in enumerate(values[:SHOWN])}
    if draws > SHOWN:
        rows["..."] = f"{draws - SHOWN} more"
    rows |= {"mean": f"{mean:.6g}", "sd": "needs two draws" if sd is None else f"{sd:.3g}"}
    title = f"Reference KL of {family}, N = {n:,}"
    output.print_facts(output.console_for(json), title, rows)
    size = {"family": family, "n": n, "first_seed": first_seed}
    output.write_result(json, {**size, "draws": values, "mean": mean, "sd": sd})
