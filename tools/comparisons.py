"""Run the ``counterprobe compare`` commands whose tables stand in the pages.

    .venv/bin/python tools/comparisons.py --json docs/data/comparisons.json

Runs what the file lacks, writing after each; ``--only NAME ...`` runs some again. It takes a
minute. ``make tables`` writes the pages.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from _made import made_now

LOOP = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSR"
    "XXXXXXXXXXXWGQGTLVTVSS"
)
ON_LOOP = (
    "sequential:order=random,one-batch,random-balanced:batches=4,threshold:threshold=0.3,punt,dawn,"
    "dawn:low_threshold=0.3,dapd,dapd:edge_threshold=0.03,dapd:graph=probes,"
    "dapd:graph=probes:edge_threshold=0.05"
)
WINO = "threshold:threshold=0.6,wino,wino:threshold_back=0.3"

COMMANDS = {
    "loop": (
        f"compare-models --model sapiens-heavy --count 24 --samplers {ON_LOOP} --sequence {LOOP}"
    ),
    "wino": f"compare --family path --n 64 --runs 3 --samplers {WINO}",
}
KEPT = (
    "sampler", "evaluations", "evaluations_without_selection", "evaluations", "stages", "batch_kl",
    "batch_kl_se", "log_likelihood_per_token", "log_likelihood_per_token_se",
    "order_disagreement", "p_value", "mean_distance", "exact", "reason",
)  # fmt: skip


def run(command: str) -> dict[str, Any]:
    """Run a command, and keep what tables show, by the sampler as it was asked for."""
    words = shlex.split(command)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "found.json"
        subprocess.run(
            [sys.executable, "-m", "counterprobe", *words, "--json", str(file)], check=True
        )
        found = json.loads(file.read_text(encoding="utf-8"))
    asked = words[words.index("--samplers") + 1].split(",")
    rows = {
        name.replace(":", " "): {key: entry[key] for key in KEPT if key in entry}
        for name, entry in zip(asked, found["samplers"], strict=True)
    }
    return {"command": f"counterprobe {command}", "rows": rows}


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=COMMANDS, help="run these, again if need be")
    parser.add_argument("--json", type=Path, required=True)
    told = parser.parse_args()
    known: dict[str, Any] = {"made": [], "comparisons": {}}
    if told.json.is_file():
        known = json.loads(told.json.read_text(encoding="utf-8"))
    before, found = known["made"], known["comparisons"]
    for name in told.only or [name for name in COMMANDS if name not in found]:
        found[name] = run(COMMANDS[name])
        written = {"made": [*before, made_now()], "comparisons": found}
        told.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
