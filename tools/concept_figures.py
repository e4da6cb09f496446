"""Draw the pictures of the first page and of docs/concepts.md, from runs made while drawing.

    .venv/bin/python tools/concept_figures.py             # docs/figures/batches.svg, probe.svg

A hidden binary tree of fifteen positions stands for a model: small enough to be seen whole, with
rows that are exact, so that the nats beside each way of drawing are computed and not estimated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import counterprobe as cp  # noqa: E402

FIGURES = ROOT / "docs" / "figures"
TIE, BROKEN, GIVEN, SHOWN = "#7a8aa0", "#c8322b", "#e8ecf2", "#f3c969"
SEED = 4


def example() -> cp.ForestLaw:
    """Return the law of the pictures: a binary tree, four tokens, random tables."""
    rng = np.random.default_rng(SEED)
    name = rng.permutation(15)
    edges = np.array([(name[child], name[(child - 1) // 2]) for child in range(1, 15)])
    return cp.ForestLaw(np.ones((15, 4)), edges, np.exp(rng.normal(size=(14, 4, 4))))


def ways(law: cp.ForestLaw) -> list[tuple[str, cp.SampleResult]]:
    """Return how one sequence can be drawn, and a run of each."""
    structure = cp.discover(law.oracle())
    ours = cp.samplers.as_sampler(structure)
    layers = len(_run(law, ours).batches)
    spent = structure.ledger.evaluations
    return [
        ("one at a time", _run(law, cp.samplers.Sequential())),
        ("all at once", _run(law, cp.samplers.OneBatch())),
        (f"{layers} random batches", _run(law, cp.samplers.RandomBalanced(layers))),
        (f"by ties that {spent} evaluations found, once", _run(law, ours)),
    ]


def _run(law: cp.ForestLaw, sampler: Any) -> cp.SampleResult:
    return sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(SEED))


def rounds(result: cp.SampleResult) -> list[int]:
    """Return in which commit every position was drawn, counted from 1."""
    found = [0] * len(result.tokens)
    for number, batch in enumerate(result.batches, 1):
        for position in batch:
            found[position] = number
    return found


def draw_batches(law: cp.ForestLaw, axes: Any) -> None:
    """Draw each way as a row of positions under the hidden ties, broken ones in red."""
    for row, (name, result) in enumerate(reversed(ways(law))):
        base, when = 3.1 * row, rounds(result)
        kl = cp.evaluation.batch_kl(law, result).value
        evaluations = "1 evaluation" if len(result.batches) == 1 else (
            f"{len(result.batches)} evaluations")  # fmt: skip
        words = "breaks nothing" if kl < 1e-9 else f"breaks {kl:.2f} nats"
        axes.text(-0.5, base + 2.28, name, fontsize=13, weight="bold")
        axes.text(14.5, base + 2.28, f"{evaluations}, {words}", fontsize=13, ha="right",
                  color="black" if kl < 1e-9 else BROKEN)  # fmt: skip
        for one, other in law.edges:
            _arc(axes, one, other, base + 0.85, when[one] == when[other])
        _boxes(axes, base, [str(number) for number in when], [_shade(n, when) for n in when])
    axes.set(xlim=(-0.7, 14.7), ylim=(-0.2, 3.1 * 4), aspect="equal")
    axes.axis("off")


def _shade(number: int, when: Sequence[int]) -> Any:
    import matplotlib

    share = (number - 1) / max(1, max(when) - 1)
    return matplotlib.colormaps["Blues"](0.12 + 0.5 * share)


def _boxes(axes: Any, base: float, words: Sequence[str], colors: Sequence[Any]) -> None:
    from matplotlib.patches import FancyBboxPatch

    for place, (word, color) in enumerate(zip(words, colors, strict=True)):
        box = FancyBboxPatch((place - 0.38, base), 0.76, 0.76, boxstyle="round,pad=0.03",
                             facecolor=color, edgecolor="#4a5666", linewidth=0.8)  # fmt: skip
        axes.add_patch(box)
        axes.text(place, base + 0.36, word, ha="center", va="center", fontsize=12)


def _arc(axes: Any, one: int, other: int, base: float, broken: bool) -> None:
    left, right = sorted((one, other))
    along = np.linspace(0, np.pi, 40)
    height = 0.25 + 0.075 * (right - left)
    x = (left + right) / 2 - np.cos(along) * (right - left) / 2
    axes.plot(x, base + height * np.sin(along), color=BROKEN if broken else TIE,
              linewidth=2.2 if broken else 1.2, zorder=2 if broken else 1)  # fmt: skip


def draw_probe(law: cp.ForestLaw, rows: Any) -> None:
    """Draw two states that differ in one token, and what that does to two masked positions."""
    hub = int(np.argmax(np.bincount(law.edges.ravel())))
    ties = sorted({int(p) for edge in law.edges if hub in edge for p in edge} - {hub})
    readout = ties[-1]
    near = {int(p) for edge in law.edges if readout in edge or hub in edge for p in edge}
    far = min(set(range(15)) - near, key=lambda place: abs(place - 10))
    given = np.random.default_rng(SEED).integers(0, 4, 15)
    states = np.stack([given, given])
    states[:, [readout, far]] = cp.MASK
    states[:, hub] = (2, 3)
    probe = cp.run.Run(law.oracle()).do(cp.run.Probe(states, [readout, far])).rows
    shown = np.asarray(probe.dense()).reshape(2, 2, -1)
    for row, axes in enumerate(rows):
        words = ["?" if value == cp.MASK else str(value) for value in states[row]]
        colors = [SHOWN if place == hub else "white" if word == "?" else GIVEN
                  for place, word in enumerate(words)]  # fmt: skip
        _boxes(axes, 0, words, colors)
        for number, (place, color) in enumerate(((readout, BROKEN), (far, TIE))):
            heights = shown[row, number]
            for token, height in enumerate(heights):
                axes.bar(place + 0.2 * (token - 1.5), 1.6 * height, 0.17, bottom=1.0, color=color)
        name = "a probe" if row == 0 else "the same, one token changed"
        axes.text(-0.5, 2.55, f"{name}: position {hub} shows {states[row, hub]}", fontsize=12)
        axes.set(xlim=(-0.7, 14.7), ylim=(-0.2, 3.0), aspect="equal")
        axes.axis("off")
    moved = 0.5 * np.abs(shown[0] - shown[1]).sum(axis=-1)
    words = f"the row of position {readout} moved by {moved[0]:.2f}: it depends on {hub}; "
    rows[1].text(-0.5, -0.75, words + f"that of {far} by {moved[1]:.2f}", fontsize=12)


def main() -> None:
    """Draw both."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    law = example()
    settings = {"svg.hashsalt": "concepts", "svg.fonttype": "path", "font.family": "DejaVu Sans"}
    with matplotlib.rc_context(settings):
        plot, axes = pyplot.subplots(figsize=(8.4, 6.9), layout="constrained")
        draw_batches(law, axes)
        plot.savefig(FIGURES / "batches.svg", metadata={"Date": None})
        plot, rows = pyplot.subplots(2, figsize=(8.4, 4.4), layout="constrained")
        draw_probe(law, rows)
        plot.savefig(FIGURES / "probe.svg", metadata={"Date": None}, bbox_inches="tight")
        pyplot.close("all")


if __name__ == "__main__":
    main()
