"""ProteinMPNN on twelve backbones chosen beforehand: what batches break, and designs a second.

::

    python tools/fetch_backbones.py carried-backbones
    python benchmarks/backbones.py --prepare
    python benchmarks/backbones.py --device cuda --json FILE
    python benchmarks/backbones.py --draw FILE --figure FILE
    python benchmarks/backbones.py --quick --json FILE
    python benchmarks/backbones.py --backbones 1ake --parts speed --at-once 16 --threads 2 ...
    python benchmarks/backbones.py --backbones 1ake --parts speed --at-once 16 --processor-time ...

The second finds the structures and makes the plans, on a processor, and keeps them beside the
backbones (``NAME.plans.json``). The third prices them in commit order, the law that designs are
drawn from, at temperatures 1 and 0.1, and times designs against ColabDesign (``designs/colab.py``,
where it is) and the package's own sampler; it takes some minutes on one GPU. Nothing is left out:
what could not be measured stands in the file as a failure, and the program then ends with 1.
Everything is written after every measurement, and a file of the same settings is continued. The
last two time processor cores: only ratios count there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import torch
from _results import run_program
from designs.claims import backbone_claims
from designs.colab import ColabDesign, is_there
from designs.drawing import draw_backbones
from designs.options import measuring_parser, parts_asked, was_drawn
from designs.prepared import FREE, OWN, PLANNED, Prepared
from designs.pricing import Dealt, Precision, measure_kl
from designs.record import Record, device_name
from designs.report import sentences
from designs.speed import agreement, design_speed, held_at_once
from designs.twelve import TWELVE, backbone_named, folder, spelled_out

import counterprobe as cp
from counterprobe.models.proteins.proteinmpnn import InverseFolding

PARTS = ("commit", "memory", "speed")
# By temperature, the ways whose batches are priced.
PRICED: Mapping[float, tuple[str, ...]] = {
    1.0: (PLANNED, *FREE),
    0.1: (PLANNED, OWN, *FREE),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes
    ----------
    backbones : tuple of str
    probes, plans : int
        Of a structure, and of every way.
    batches : tuple of int
    samples : int
        Designs that a price is measured on.
    at_once, repeats : sequences at once that are timed, and how often
    held : mapping of str to tuple of int
        Sequences at once whose memory is measured, by backbone.
    """

    backbones: tuple[str, ...]
    probes: int
    plans: int
    batches: tuple[int, ...]
    samples: int
    at_once: tuple[int, ...]
    repeats: int
    held: dict[str, tuple[int, ...]]


FULL = Sizes(TWELVE, 256, 16, (8, 16), 512, (64, 1024), 3, {"3enl": (1024, 4096)})
QUICK = Sizes(("1ubi",), 64, 4, (8, 16), 8, (1, 4), 1, {"1ubi": (4, 8)})


@dataclass(frozen=True, slots=True)
class Bench:
    """One backbone with everything that measurements of it share."""

    name: str
    sizes: Sizes
    record: Record
    model: InverseFolding
    prepared: Prepared

    @classmethod
    def of(cls, name: str, sizes: Sizes, record: Record, device: str) -> Bench:
        """Load the model, and the plans: made now where nobody prepared them."""
        model = cp.models.load("proteinmpnn", backbone=backbone_named(name), device=device)
        return cls(name, sizes, record, model, prepare(name, sizes, model))

    def plans(self, way: str, batches: int) -> list[cp.planning.Plan]:
        """Return the plans of one way."""
        return self.prepared.plans(way, batches)


def prepare(name: str, sizes: Sizes, model: InverseFolding) -> Prepared:
    """Return the plans of a backbone, from their file where it is there."""
    file = folder() / f"{name}.plans.json"
    if sizes.plans == FULL.plans and file.is_file():
        return Prepared.load(file)
    made = Prepared.make(model, probes=sizes.probes, count=sizes.plans, batches=sizes.batches)
    if sizes.plans == FULL.plans:
        made.save(file)
    return made


# ----- Parts, the most telling first --------------------------------------------------------


def commit_part(bench: Bench) -> None:
    """Price every way in commit order, at every temperature."""
    record, sizes = bench.record, bench.sizes
    backbone = bench.model.backbone
    for way, found in bench.prepared.structures.items():
        about = {"residues": len(backbone), "chains": len(backbone.chain_ids), **found}
        record.measure(bench.name, "structure", way, lambda about=about: about)
    exact = Precision(least=sizes.samples, most=sizes.samples)
    for temperature, ways in PRICED.items():
        oracle = cache(
            lambda t=temperature: bench.model.oracle(order="commit", temperature=t, row_error=0.01)
        )
        for way in ways:
            for batches in sizes.batches:

                def work(way: str = way, batches: int = batches) -> dict[str, Any]:
                    plans = bench.plans(way, batches)
                    found = measure_kl(oracle(), plans, "product", exact)  # noqa: B023
                    return {"way": way, "batches": batches, **found}

                record.measure(bench.name, f"commit {temperature:g}", f"{way} {batches}", work)


def memory_part(bench: Bench) -> None:
    """Measure what many sequences at once hold, and that they are those of fewer."""
    for count in bench.sizes.held.get(bench.name, ()):
        rule = Dealt(tuple(bench.plans(PLANNED, max(bench.sizes.batches))))
        bench.record.measure(
            bench.name,
            "memory",
            str(count),
            lambda count=count, rule=rule: held_at_once(bench.model, rule, count),
        )


def speed_part(
    bench: Bench, rivals: Mapping[str, ColabDesign], clock: Callable[[], float]
) -> None:
    """Time designs against the package's own sampler, and ColabDesign's where it is there."""
    plans = {
        (str(batches) if way == PLANNED else f"{way} {batches}"): bench.plans(way, batches)
        for way in (PLANNED, "distance")
        for batches in bench.sizes.batches
    }
    for at_once in bench.sizes.at_once:
        bench.record.measure(
            bench.name,
            "speed",
            str(at_once),
            lambda at_once=at_once: design_speed(
                bench.model,
                plans,
                at_once,
                bench.sizes.repeats,
                rival=rivals.get(bench.name),
                clock=clock,
            ),
        )


def compiled_rivals(benches: Sequence[Bench], threads: int = 8) -> dict[str, ColabDesign]:
    """Compile ColabDesign for every backbone and number of sequences that is to be timed.

    Side by side: one takes about eight seconds. What refuses to compile is tried again, and
    written down as refused, when it is timed.
    """
    if not is_there():
        return {}
    found, works = {}, []
    for bench in benches:
        done = bench.record.part(bench.name, "speed")
        missing = [count for count in bench.sizes.at_once if str(count) not in done]
        if missing:
            found[bench.name] = rival = ColabDesign(bench.model)
            works += [rival.lowered(count) for count in missing]
    with ThreadPoolExecutor(threads) as pool:
        for waiting in [pool.submit(work) for work in works]:
            if (problem := waiting.exception()) is not None:
                print(f"ColabDesign: {problem}"[:300], flush=True)
    first = benches[0]
    if first.name in found:
        first.record.measure(
            first.name, "rival", "colabdesign", lambda: agreement(first.model, found[first.name])
        )
    return found


# ----- Command line -------------------------------------------------------------------------


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = measuring_parser(__doc__, "one small backbone, few samples", "prices and rates")
    parser.add_argument("--prepare", action="store_true", help="only make plans, and keep them")
    parser.add_argument("--backbones", help="some of the twelve, or shipped ones")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, in their order")
    parser.add_argument("--at-once", help="numbers of sequences to time, separated by commas")
    parser.add_argument("--repeats", type=int, help="how often each is timed; the best counts")
    parser.add_argument("--threads", type=int, default=1, help="of a processor")
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="count the seconds of one core, on a processor beside other work",
    )
    options = parser.parse_args(words)
    if options.processor_time and (options.threads != 1 or options.device != "cpu"):
        raise ValueError("--processor-time must go with --threads 1 on a processor")
    return options


def run(options: argparse.Namespace) -> int:
    """Measure every backbone, part by part: prices of all come before rates of any."""
    if was_drawn(options, draw_backbones):
        return 0
    sizes = QUICK if options.quick else FULL
    names = spelled_out(options.backbones) if options.backbones else sizes.backbones
    wanted = parts_asked(options.parts, PARTS)
    if torch.device(options.device).type == "cpu":
        torch.set_num_threads(options.threads)
    if options.at_once:
        sizes = replace(sizes, at_once=tuple(int(word) for word in options.at_once.split(",")))
    if options.repeats:
        sizes = replace(sizes, repeats=options.repeats)
    settings = asdict(replace(sizes, backbones=())) | {"device": device_name(options.device)}
    if options.processor_time:
        settings["seconds"] = "of one core"
    file = None if options.prepare else options.json
    # What is claimed is claimed of all of them.
    claims = (lambda tasks: []) if options.backbones else backbone_claims
    record = Record(file, settings, claims, lambda line: print(line, flush=True))
    benches = []
    for name in names:
        with record.attempt(name):
            benches.append(Bench.of(name, sizes, record, options.device))
            print(f"{name}: {benches[-1].prepared.structures}", flush=True)
            if "commit" in wanted and not options.prepare:
                commit_part(benches[-1])
    if options.prepare:
        return 1 if record.failures else 0
    if "memory" in wanted:
        for bench in benches:
            memory_part(bench)
    if "speed" in wanted and benches:
        # A rival has threads of its own, which the time of this processor's would count.
        rivals = {} if options.processor_time else compiled_rivals(benches)
        clock = time.process_time if options.processor_time else time.perf_counter
        for bench in benches:
            speed_part(bench, rivals, clock)
    if options.figure is not None:
        draw_backbones(record.tasks, options.figure)
    print(sentences(record))
    return 1 if record.failures else 0


def main(words: Sequence[str] | None = None) -> int:
    """Run; bad input ends with one line."""
    return run_program(parse, run, words)


if __name__ == "__main__":
    sys.exit(main())
