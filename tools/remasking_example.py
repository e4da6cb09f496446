"""What masking again costs or saves with exact rows: two small laws, computed and not sampled.

    .venv/bin/python tools/remasking_example.py --json docs/data/masking-again.json    # seconds

A hidden bit is 0 or 1 with equal chance, and each of N positions shows it with some probability.
Two positions that always show it are a copied bit; sixteen that show it nine times in ten are a
topic. Both laws and ReMDM's random orders treat positions alike, so how many positions show 0 and
how many show 1 is all there is to know of a state, and the output law follows by stepping from
counts to counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
from scipy import signal, special

from counterprobe.arrays import FloatArray
from counterprobe.samplers import ReMDM

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

LAWS = (("copied bit", 2, 1.0), ("topic", 16, 0.9))
ETAS = (0.0, 0.1, 0.5, 1.0)
STEPS = (4, 16, 64)


def binomial(count: int, chance: float) -> FloatArray:
    """Return the probability of each number of successes."""
    successes = np.arange(count + 1)
    return coefficients(count) * chance**successes * (1 - chance) ** (count - successes)


@cache
def coefficients(count: int) -> FloatArray:
    """Return the binomial coefficients."""
    found: FloatArray = special.comb(count, np.arange(count + 1))
    return found


def chance_of_one(zeros: int, ones: int, agreement: float) -> float:
    """Return the row of a masked position beside so many zeros and ones."""
    by_topic = [
        agreement**zeros * (1 - agreement) ** ones,
        agreement**ones * (1 - agreement) ** zeros,
    ]
    share = by_topic[1] / sum(by_topic)
    return share * agreement + (1 - share) * (1 - agreement)


def output_counts(length: int, agreement: float, sampler: ReMDM) -> FloatArray:
    """Return the probability of each number of ones, for a strategy that sees no values."""
    chance = np.zeros((length + 1, length + 1))
    chance[0, 0] = 1.0
    for reveal, again in zip(*sampler.chances(), strict=True):
        after = np.zeros_like(chance)
        for zeros, ones in np.argwhere(chance > 0):
            left = length - zeros - ones
            kept = np.outer(binomial(zeros, 1 - again), binomial(ones, 1 - again))
            moved = kept if left == 0 else signal.convolve2d(
                kept, drawn_counts(left, reveal, chance_of_one(zeros, ones, agreement))
            )  # fmt: skip
            rows, columns = moved.shape
            after[:rows, :columns] += chance[zeros, ones] * moved
        chance = after
    return np.array([chance[length - ones, ones] for ones in range(length + 1)])


def drawn_counts(left: int, reveal: float, one: float) -> FloatArray:
    """Return the probability of so many new zeros and ones among masked positions."""
    found = np.zeros((left + 1, left + 1))
    for revealed, chance in enumerate(binomial(left, reveal)):
        ones = np.arange(revealed + 1)
        found[revealed - ones, ones] = chance * binomial(revealed, one)
    return found


def target_counts(length: int, agreement: float) -> FloatArray:
    """Return the probability of each number of ones under the law."""
    return (binomial(length, agreement) + binomial(length, 1 - agreement)) / 2


def distance(length: int, agreement: float, sampler: ReMDM) -> float:
    """Return the total variation between output law and target: that of the counts."""
    found = output_counts(length, agreement, sampler)
    return float(np.abs(found - target_counts(length, agreement)).sum() / 2)


def main() -> None:
    """Compute every distance, and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    told = parser.parse_args()
    distances = {
        name: {
            str(steps): {
                f"{eta:g}": distance(length, agreement, ReMDM(steps, eta=eta)) for eta in ETAS
            }
            for steps in STEPS
        }
        for name, length, agreement in LAWS
    }
    written = {"made": [made_now()], "distances": distances}
    told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
