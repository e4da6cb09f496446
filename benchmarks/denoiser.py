"""Learned denoisers with known truth: train them, then measure samplers against the truth.

::

    python benchmarks/denoiser.py train --law all --device cuda --out benchmarks/data/denoisers
    python benchmarks/denoiser.py evaluate --laws all --device cuda --json FILE --figure FILE
    python benchmarks/denoiser.py report PART.json ... --json FILE --figure FILE
    python benchmarks/denoiser.py mixture --laws all --device cuda --json FILE
    python benchmarks/denoiser.py again --laws tree --only "factor factor=1.0" --json PART
    python benchmarks/denoiser.py take PART.json ... --json FILE

``train`` takes about 100 seconds a law on one GPU; with ``--tiny`` it trains networks of two
layers on laws of 8 positions, in seconds on a processor. ``evaluate`` writes what it has after
every measurement and continues where a file of the same settings ends; with ``--quick`` it draws
few samples. Laws may be evaluated side by side, each into a file of its own, which ``report``
joins. ``mixture`` measures what is drawn from eight plans of a sampler together, where
``evaluate`` has the mean over single plans; it continues a file too. ``again`` measures chosen
rivals on more sequences, into a file of its own, and ``take`` puts what such files have in the
place of what a file of ``evaluate`` has. All end with 1 if something could not be measured, and
say what.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from _results import run_program
from denoisers.contestants import Sizes
from denoisers.evaluation import PHASES, Phase, chosen_phase, evaluate, mixture_phase
from denoisers.files import FOLDER, load, save, write_record
from denoisers.laws import LAWS, build_law, law_names
from denoisers.report import draw_figure, table
from denoisers.row_errors import row_errors
from denoisers.store import Store
from denoisers.training import FULL, TINY, Progress, train


def train_laws(options: argparse.Namespace) -> int:
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
    return 0


def evaluate_laws(options: argparse.Namespace) -> int:
    """Measure trained denoisers, the most telling numbers first."""
    sizes = Sizes.quick() if options.quick else Sizes()
    store = Store(options.json, {"sizes": asdict(sizes), "probes": options.probes})
    measure_laws(options, store, sizes, PHASES)
    return show(store, options.figure)


def mix_laws(options: argparse.Namespace) -> int:
    """Measure the mixture of eight plans, for samplers that decide before they see a token."""
    sizes = Sizes(fixed=options.count)
    settings = {"count": sizes.fixed, "plans": sizes.orders, "probes": options.probes}
    store = Store(options.json, settings)
    measure_laws(options, store, sizes, [mixture_phase])
    return tell_failures(store)


def again_laws(options: argparse.Namespace) -> int:
    """Measure chosen samplers on so many sequences, however many ``evaluate`` gives them."""
    sizes = Sizes(fixed=options.count, adaptive=options.count)
    store = Store(options.json, {"sizes": asdict(sizes), "probes": options.probes})
    measure_laws(options, store, sizes, [chosen_phase(options.only)])
    return tell_failures(store)


def take_laws(options: argparse.Namespace) -> int:
    """Replace measurements of a file by those of others."""
    settings = json.loads(options.json.read_text())["settings"]
    store = Store(options.json, settings)
    for part in options.parts:
        store.take(part)
    store.write()
    return show(store, options.figure)


def measure_laws(
    options: argparse.Namespace, store: Store, sizes: Sizes, phases: Iterable[Phase]
) -> None:
    """Go through phases of a measurement as the command line says."""
    evaluate(
        law_names(options.laws),
        options.weights,
        store,
        sizes=sizes,
        probes=options.probes,
        device=options.device,
        say=lambda line: print(line, flush=True),
        phases=phases,
    )


def report_laws(options: argparse.Namespace) -> int:
    """Join files of several laws; print, write and draw them."""
    settings = json.loads(options.parts[0].read_text())["settings"]
    store = Store(None, settings)
    for part in options.parts:
        store.merge(part)
    store.laws = {law: store.laws[law] for law in LAWS if law in store.laws}
    store.file = options.json
    store.write()
    return show(store, options.figure)


def show(store: Store, figure: Path | None) -> int:
    """Draw and print everything, what could not be measured last; return 1 if there is such."""
    if figure is not None:
        draw_figure(store.laws, figure)
    print(table(store.laws))
    return tell_failures(store)


def tell_failures(store: Store) -> int:
    """Print what could not be measured; return 1 if there is such."""
    for failure in store.failures:
        print(f"not measured: {failure}")
    return 1 if store.failures else 0


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

    measure = commands.add_parser("evaluate", help="measure samplers on trained denoisers")
    measure.add_argument("--quick", action="store_true", help="few samples")
    measure.set_defaults(work=evaluate_laws)
    mix = commands.add_parser("mixture", help="measure what all plans of a sampler draw together")
    mix.add_argument("--count", type=int, default=1_024, help="sequences a sampler")
    mix.set_defaults(work=mix_laws)
    again = commands.add_parser("again", help="measure chosen samplers on more sequences")
    again.add_argument("--only", nargs="+", required=True, help="names as in the file")
    again.add_argument("--count", type=int, default=4_096, help="sequences a sampler")
    again.set_defaults(work=again_laws)
    for command in (measure, mix, again):
        command.add_argument("--laws", default="all", help="names separated by commas, or all")
        command.add_argument("--weights", type=Path, default=FOLDER, help="folder of the weights")
        command.add_argument("--device", default="cpu")
        command.add_argument("--probes", type=int, default=128, help="spent on the structure used")
    join = commands.add_parser("report", help="join what was measured law by law")
    join.add_argument("parts", type=Path, nargs="+", help="files that evaluate wrote")
    join.set_defaults(work=report_laws)
    take = commands.add_parser("take", help="replace measurements by those of other files")
    take.add_argument("parts", type=Path, nargs="+", help="files that again wrote")
    take.set_defaults(work=take_laws)
    for command in (measure, mix, again, join, take):
        needed = command is take
        command.add_argument(
            "--json", type=Path, required=needed, help="write the measurements here"
        )
    for command in (measure, join, take):
        command.add_argument("--figure", type=Path, help="draw true KL against evaluations here")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Run a command; bad input ends with one line."""
    return run_program(parse, lambda options: options.work(options), words)


if __name__ == "__main__":
    sys.exit(main())
