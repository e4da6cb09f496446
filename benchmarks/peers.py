"""Every sampler under one accounting: the paper's resource table beside what is measured.

::

    python benchmarks/peers.py --json benchmarks/results/peers.json
    make tables

It measures what the file lacks (samplers of the registry that are new, sizes, families), writing
after every cell, and prints the tables; ``make tables`` puts them into docs/peers.md and draws
its figures. The whole takes some ten minutes of one core; ``--quick`` measures small sizes in a
minute, ``--again`` measures samplers named by ``--samplers`` anew, and ``--report`` nothing. Ends
with 1 if a sampler failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _results import run_program
from rivals.measuring import FAMILIES, Plan, Store, measure_all
from rivals.report import tables

RESULTS = Path(__file__).parent / "results"


def learned_results() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the benchmarks of learned models measured: on denoisers, and on pretrained."""

    def read(name: str, part: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))[part]
        return found

    pretrained = read("antibodies.json", "tasks") | read("proteins.json", "tasks")
    return read("denoiser.json", "laws"), pretrained


def run(options: argparse.Namespace) -> int:
    """Measure, draw and fill in."""
    sizes = {"sizes": (32, 64, 128), "other_sizes": (32, 64, 128)} if options.quick else {}
    plan = Plan(families=options.families, accuracy=options.accuracy, runs=options.runs, **sizes)
    store = Store(options.json, plan.lasting)
    if options.again:
        store.forget(options.samplers or ())
    if not options.report:
        measure_all(
            plan,
            store,
            samplers=options.samplers,
            seconds=options.seconds,
            say=lambda line: print(line, flush=True),
        )
    learned, pretrained = learned_results()
    print("\n\n".join(tables(store.cells, learned, pretrained).values()))
    failed = [key for key, cell in store.cells.items() if cell.get("failed")]
    for key in failed:
        print(f"failed: {key}: {store.cells[key]['reason']}", file=sys.stderr)
    return 1 if failed else 0


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def names(text: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in text.split(","))

    parser.add_argument("--json", type=Path, help="continue this file of measurements")
    parser.add_argument("--families", type=names, default=FAMILIES, help="separated by commas")
    parser.add_argument("--samplers", type=names, help="separated by commas; all by default")
    parser.add_argument("--accuracy", type=float, default=0.1, help="nats of batch KL allowed")
    parser.add_argument("--runs", type=int, default=3, help="seeds of each setting")
    parser.add_argument("--seconds", type=float, default=60.0, help="longest cell")
    parser.add_argument("--again", action="store_true", help="measure --samplers anew")
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Run the program; bad input ends with one line."""
    return run_program(parse, run, words)


if __name__ == "__main__":
    sys.exit(main())
