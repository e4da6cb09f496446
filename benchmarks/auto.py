"""What ``sampler="auto"`` takes and breaks, beside one mask at a time.

    python benchmarks/auto.py --json benchmarks/results/auto.json

For every model and text: the evaluations of so many designs, all counted, what was chosen, and the
price of designs measured afterwards by the chain rule, which is no part of those evaluations.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from _made import made_now

import counterprobe as cp
from counterprobe.evaluation import run_kl
from counterprobe.models import load

# Trastuzumab's heavy chain, its loops by IMGT from 0.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC"
    "SRWGGDGFYAMDYWGQGTLVTVSS"
)
LOOPS = {"CDR-H1": (25, 33), "CDR-H2": (50, 58), "CDR-H3": (96, 109)}
COUNTS = (1, 20, 200)
# Designs whose price is measured.
PRICED = 40


def masked(*loops: str) -> str:
    """Return the chain with some of its loops masked."""
    letters = list(HEAVY)
    for loop in loops:
        start, stop = LOOPS[loop]
        letters[start:stop] = "X" * (stop - start)
    return "".join(letters)


CASES: dict[str, dict[str, Any]] = {
    "sapiens CDR-H1": {"model": "sapiens-heavy", "text": masked("CDR-H1")},
    "sapiens CDR-H3": {"model": "sapiens-heavy", "text": masked("CDR-H3")},
    "sapiens three loops": {"model": "sapiens-heavy", "text": masked(*LOOPS)},
    "antiberty CDR-H3": {"model": "antiberty", "text": masked("CDR-H3")},
    "proteinmpnn 1UBI": {
        "model": "proteinmpnn",
        "backbone": "1ubi",
        "order": "commit",
        "counts": COUNTS[:2],
    },
}


def measure(case: dict[str, Any], counts: tuple[int, ...]) -> dict[str, Any]:
    """Return what designs of one case take, for every number of them."""
    options = {"backbone": case["backbone"]} if "backbone" in case else {}
    model = load(case["model"], device="cpu", **options)
    order = {"order": case["order"]} if "order" in case else {}
    oracle = model.oracle(case.get("text"), **order)
    found: dict[str, Any] = {}
    for count in counts:
        designs = cp.infill(
            model, case.get("text"), count=count, seed=1, progress=False, oracle_options=order
        )
        assert designs.choice is not None
        price = run_kl(oracle, list(designs.results)[-PRICED:], terms=2)
        most = designs.choice.one_at_a_time
        found[str(count)] = {
            "evaluations": designs.ledger.total,
            "one_at_a_time": most,
            "share": designs.ledger.total / most,
            "per_design": designs.ledger.total / count,
            "chosen": designs.choice.sampler,
            "kl": price.value,
            "kl_se": None if count == 1 else price.standard_error,
            "says": str(designs.choice),
        }
        print(f"{case['model']}, {count}: {found[str(count)]}", flush=True)
    return {"masks": most // count, "counts": found}


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write it")
    parser.add_argument("--quick", action="store_true", help="one design of the first case")
    options = parser.parse_args()
    cases = dict([*CASES.items()][:1]) if options.quick else CASES
    measured = {
        name: measure(case, (1,) if options.quick else case.get("counts", COUNTS))
        for name, case in cases.items()
    }
    if options.json is not None:
        content = {"made": [made_now()], "target_kl": 0.1, "cases": measured}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
