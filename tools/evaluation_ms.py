"""Print the milliseconds that an evaluation of a measured network took, for ``make run``.

    .venv/bin/python tools/evaluation_ms.py          # a number
    .venv/bin/python tools/evaluation_ms.py --say    # a sentence: what was measured, where, when

From ``benchmarks/results/evaluation.json``, which ``benchmarks/evaluation.py`` writes on a GPU.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

MEASURED = Path(__file__).parents[1] / "benchmarks" / "results" / "evaluation.json"


def main() -> None:
    """Print one or the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--network", default="large")
    parser.add_argument("--say", action="store_true")
    told = parser.parse_args()
    content = json.loads(MEASURED.read_text(encoding="utf-8"))
    network = content["networks"][told.network]
    alone = network["milliseconds"]["1"]
    if not told.say:
        print(f"{alone:.3g}")
        return
    print(
        f"The model: {alone:.3g} ms is what a masked language model of "
        f"{network['parameters'] / 1e9:.1f} billion parameters took for {content['tokens']:,} "
        f"tokens on one {content['device']} ({content['made'][-1]['date'][:10]}, "
        "benchmarks/evaluation.py; random weights take as long as trained ones)."
    )


if __name__ == "__main__":
    main()
