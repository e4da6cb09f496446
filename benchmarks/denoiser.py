"""Learned denoisers with known truth: train them, then measure samplers against the truth.

::

    python benchmarks/denoiser.py train --law all --device cuda --out benchmarks/data/denoisers

``train`` takes about 100 seconds a law on one GPU; with ``--tiny`` it trains networks of two
layers on laws of 8 positions, in seconds on a processor.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path

from denoisers.files import FOLDER, load, save, write_record
from denoisers.laws import build_law, law_names
from denoisers.row_errors import row_errors
from denoisers.training import FULL, TINY, Progress, train


def train_laws(options: argparse.Namespace) -> None:
    """Train one law after another; what is done is on disk before the next begins."""
    settings = TINY if options.tiny else FULL
    for law in law_names(options.law):
        truth = build_law(law, small=options.tiny, device=options.device)

        def tell(progress: Progress, law: str = law) -> None:
            print(
                f"{law}: step {progress.step} of {settings.steps}, loss {progress.loss:.4f}, "
                f"{progress.seconds:.0f} s",
                flush=True,
            )

        started = time.perf_counter()
        network = train(truth, settings, tell)
        seconds = time.perf_counter() - started
        file = save(options.out, law, network, truth, settings, options.tiny)
        # Measured on what was written: half precision is part of the denoiser.
        trained = load(options.out, law, options.device)
        record = {
            "law": law,
            "length": truth.length,
            "vocab_size": truth.vocab_size,
            "num_edges": len(truth.edges),
            "parameters": sum(value.numel() for value in network.parameters()),
            "bytes": file.stat().st_size,
            "settings": asdict(settings),
            "device": str(truth.device),
            "seconds": round(seconds, 1),
            "row_errors": row_errors(trained.network, trained.truth),
        }
        write_record(options.out, law, record)
        errors = ", ".join(f"{row['tv_mean']:.4f}" for row in record["row_errors"])
        print(f"{law}: {seconds:.0f} s, row errors {errors}, wrote {file}", flush=True)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    learn = commands.add_parser("train", help="train denoisers and write their weights")
    learn.add_argument("--law", default="all", help="names separated by commas, or all")
    learn.add_argument("--device", default="cpu")
    learn.add_argument("--out", type=Path, default=FOLDER, help="folder of the weights")
    learn.add_argument("--tiny", action="store_true", help="small laws and networks: seconds")
    learn.set_defaults(work=train_laws)
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run a command; bad input ends with one line."""
    options = parse(words)
    try:
        options.work(options)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
