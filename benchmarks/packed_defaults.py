"""``packed`` with its defaults: what it costs on six families, and whether it is exact.

The paper's four families, caterpillars and preferential attachment, two target draws each, one run
per draw. At N = 1,024 a screen is foreseen to cost more than one position at a time, and the run
decodes one at a time.
"""

from __future__ import annotations

import warnings
from typing import Any

from _timing import arguments, report

import counterprobe as cp
from counterprobe.errors import CostWarning
from counterprobe.samplers import Packed

FAMILIES = (
    "matching", "path", "binary-tree", "growing-stars", "caterpillar", "preferential-attachment",
)  # fmt: skip
LENGTHS = (1024, 8192, 10_240, 12_288, 14_336, 16_384)
DRAWS = (196, 197)
STREAM = 292


def run(family: str, length: int, draw: int) -> dict[str, Any]:
    """Run the defaults once."""
    law = cp.families.build(family, length, draw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostWarning)
        result = Packed()(cp.run.Run(law.oracle()), cp.Streams.from_seed(STREAM))
    kl = cp.evaluation.batch_kl(law, result)
    return {
        "evaluations": result.ledger.evaluations,
        "probes": result.ledger.probes,
        "commits": result.ledger.commits,
        "stages": result.ledger.stages,
        "batch_kl": kl.value + 2 * kl.standard_error,
    }


def main() -> None:
    """Measure every cell: means over the draws, and the largest batch KL."""
    options = arguments(__doc__)
    figures = {}
    for length in LENGTHS[:1] if options.quick else LENGTHS:
        for family in FAMILIES:
            runs = [run(family, length, draw) for draw in DRAWS]
            cell = {key: sum(one[key] for one in runs) / len(runs) for key in runs[0]}
            cell["batch_kl"] = max(one["batch_kl"] for one in runs)
            cell |= {"share": cell["evaluations"] / length, "runs": len(runs)}
            figures |= {f"{family}.{length}.{key}": value for key, value in cell.items()}
            print(family, length, cell, flush=True)
    report(figures, options.json)


if __name__ == "__main__":
    main()
