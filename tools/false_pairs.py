"""Count the false and the missed pairs of a first packed screen with default settings.

    .venv/bin/python tools/false_pairs.py --n 2048 --seeds 4

The number of colorings is chosen for readouts of degree three; at one of degree six or more most
of all sources win a majority. ``docs/packed.md`` says what that costs.
"""

from __future__ import annotations

import argparse

import numpy as np

import counterprobe as cp
from counterprobe.discovery.banks import read_banks
from counterprobe.discovery.packed.fillers import FillerContext, make_filler, most_likely_filler
from counterprobe.discovery.packed.screen import draw_colorings, packed_screen
from counterprobe.discovery.packed.selectors import top_votes
from counterprobe.samplers import Packed

FAMILIES = [
    "matching", "path", "binary-tree", "growing-stars", "random-recursive-tree",
    "preferential-attachment", "caterpillar",
]  # fmt: skip


def screen(law: cp.ForestLaw, seed: int) -> tuple[int, int, int]:
    """Return false pairs before and after the cutoff on row sizes, and missed edges."""
    run = cp.Unmasking(law.oracle())
    plan = Packed().plan(law.length, law.vocab_size, run.row_error)
    decisions = cp.Streams.from_seed(seed).decisions
    banks = read_banks(run, plan.bank_threshold, plan.row_error)
    context = FillerContext(run.state, banks, 0)
    draft = make_filler(
        most_likely_filler, context, decisions.generator("draft", 0), law.vocab_size
    )
    colors = draw_colorings(
        plan.screen.num_colorings,
        plan.screen.num_colors,
        law.length,
        decisions.generator("coloring", 0),
    )
    rows = packed_screen(run, plan.screen, banks.columns(draft), draft, colors, top_votes)
    true = keys(law.edges, law.length)
    readout = np.repeat(np.arange(len(rows.residual)), np.diff(rows.candidates.start))
    claimed = rows.residual[np.stack([readout, rows.candidates.source], axis=1)]
    candidates, kept = keys(claimed, law.length), keys(rows.edges(), law.length)
    return (
        len(np.setdiff1d(candidates, true)),
        len(np.setdiff1d(kept, true)),
        len(np.setdiff1d(true, kept)),
    )


def keys(edges: np.ndarray, length: int) -> np.ndarray:
    """Return one number a pair, whichever way round it is."""
    ends = np.sort(np.asarray(edges).reshape(-1, 2), axis=1)
    return np.unique(ends[:, 0] * length + ends[:, 1])


def main() -> None:
    """Screen every family with every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=2048)
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    for family in FAMILIES:
        law = cp.families.build(family, given.n, 196)
        counts = [screen(law, seed) for seed in range(1, given.seeds + 1)]
        candidates, kept, missed = zip(*counts, strict=True)
        print(f"{family}: false {kept} of {candidates} before the cutoff, missed {missed}")


if __name__ == "__main__":
    main()
