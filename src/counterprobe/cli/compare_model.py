"""``counterprobe compare --model``: several samplers on one model, one table.

A model has no law that is known, so that quality is estimated (``evaluation/quality.py``): what
product commits broke, how probable the model finds what was drawn, whether it can be told from
sequences drawn one position at a time, and how varied it is. What was evaluated for measuring is
counted apart from what drawing cost.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from counterprobe.arrays import StateArray
from counterprobe.cli import output
from counterprobe.cli.compare_table import label, point_label, sweeps_of
from counterprobe.cli.engine_options import engine_of, spread_task
from counterprobe.cli.faults import share_of
from counterprobe.cli.model_task import model_options, read_sequence
from counterprobe.cli.parallelism import (
    Kind,
    Point,
    choose_kind,
    quality_of,
    scores_record,
    show_scores,
)
from counterprobe.cli.tables import Column, print_table
from counterprobe.errors import CounterprobeError
from counterprobe.evaluation.comparison import swept
from counterprobe.evaluation.quality import Quality, assess
from counterprobe.infilling.task import Task, as_model, make_task
from counterprobe.run.batches import SampleBatch
from counterprobe.samplers import Sampler, Sequential
from counterprobe.sampling import Orders, sample
from counterprobe.states import MASK
from counterprobe.streams import keyed_generator

__all__ = ["MODEL_DEFAULT", "MODEL_OPTIONS", "compare_on_model", "requires_model"]

MODEL_DEFAULT = (
    "sequential:order=random,random-balanced:batches=8,random-balanced:batches=16,"
    "spread:batches=8,maskgit:steps=8,threshold,entropy-bounded,punt"
)
# Options that say which model, and how much to draw from it.
MODEL_OPTIONS = (
    "model", "sequence", "length", "backbone", "chains", "device", "count", "orders", "sweep",
    "quality", "truth",
)  # fmt: skip
# Options that a model has no use for.
LAW_OPTIONS = (
    "family", "edges", "n", "target_seed", "weight", "signs", "classes", "tables", "runs",
    "targets", "kl_draws", "plot",
)  # fmt: skip
COLUMNS = (
    Column("sampler"),
    Column("evaluations each"),
    Column("tokens per forward", 5),
    Column("batch KL"),
    Column("SE", 1),
    Column("log-lik. a token", 2),
    Column("log-lik. SE", 6),
    Column("orders apart", 7),
    Column("MMD p", 3),
    Column("pairs p", 8),
    Column("mean distance", 4),
    Column("distinct", 9),
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One sampler on the model: what it drew and how good that is, or why there is nothing."""

    sampler: Sampler
    name: str
    asked: str
    batch: SampleBatch | None = None
    quality: Quality | None = None
    seconds: float = math.nan
    refusal: str | None = None
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What all samplers share."""

    name: str
    task: Task
    count: int
    seed: int
    orders: Orders
    evaluate: bool
    max_submissions: int | None
    reference: SampleBatch
    kind: Kind
    truth: StateArray | None
    paranoid: float
    entries: list[_Entry] = field(default_factory=list)

    @property
    def num_masked(self) -> int:
        """Positions that are to be drawn."""
        return int((self.task.given == MASK).sum())

    @property
    def num_rechecked(self) -> int:
        """Submissions that only repeated earlier ones, to compare the replies."""
        return sum(entry.batch.num_rechecked for entry in self.entries if entry.batch is not None)

    def quality_of(self, entry: _Entry) -> float:
        """Return what stands in the place of accuracy, in percent."""
        if entry.batch is None:
            return math.nan
        return quality_of(self.kind, entry.batch, entry.quality, self.truth)

    @property
    def points(self) -> dict[str, list[Point]]:
        """Each sampler that was asked for, and what its settings gave."""
        found: dict[str, list[Point]] = {}
        for entry in self.entries:
            line = found.setdefault(entry.asked, [])
            if entry.batch is not None:
                line.append(Point(entry.batch.tokens_per_forward, self.quality_of(entry)))
        return found


def requires_model(context: typer.Context) -> bool:
    """Whether the comparison is on a model; refuse options that do not go together."""

    def given(names: Sequence[str]) -> list[str]:
        sources = {name: context.get_parameter_source(name) for name in names}
        return [
            f"--{name.replace('_', '-')}"
            for name, source in sources.items()
            if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
        ]

    chosen = given(MODEL_OPTIONS)
    if "--model" not in chosen:
        if chosen:
            raise ValueError(f"{', '.join(chosen)} must come with --model, which was not given")
        return False
    unlike = given(LAW_OPTIONS)
    if unlike:
        raise ValueError(
            f"--model brings a law of its own: leave out {', '.join(unlike)} (--count says how "
            "many sequences each sampler draws)"
        )
    return True


def compare_on_model(
    options: dict[str, Any], samplers: Sequence[Sampler], json: str | None
) -> None:
    """Run the samplers on a model, print the table and write JSON.

    Parameters
    ----------
    options : dict
        The values of the command's options, by name.
    samplers : sequence of Sampler
    json : str, optional
        Where to write everything.
    """
    shared = _prepare(options)
    interrupted = False
    is_swept = bool(options["sweep"])
    lines = [*sweeps_of(samplers).items()] if is_swept else [(label(s), s) for s in samplers]
    finished = 0
    try:
        for asked, sampler in lines:
            for point in swept(sampler, shared.num_masked) if is_swept else [sampler]:
                name = point_label(point) if is_swept else asked
                shared.entries.append(_run(shared, point, name, asked))
            finished += 1
    except KeyboardInterrupt:  # what was computed is still shown and written
        interrupted = True
    console = output.console_for(json)
    if shared.entries:
        _show(console, shared)
    if shared.entries and is_swept:
        show_scores(console, shared.kind, shared.points)
    if interrupted:
        console.print(f"Interrupted: {finished} of {len(lines)} samplers were finished.")
    scores = scores_record(shared.kind, shared.points) if is_swept else {}
    output.write_json(json, {**_record(shared), **scores})
    if interrupted:
        raise KeyboardInterrupt
    failed = [e for e in shared.entries if e.has_failed]
    if failed:
        output.complain("; ".join(f"{e.sampler.name} failed: {e.refusal}" for e in failed))
        raise typer.Exit(output.FAILED)
    if all(entry.quality is None for entry in shared.entries):
        output.complain("; ".join(f"{e.sampler.name}: {e.refusal}" for e in shared.entries))
        raise typer.Exit(output.INFEASIBLE)


def _prepare(options: dict[str, Any]) -> _Comparison:
    """Load the model, read the text and draw the reference."""
    count, seed, orders = options["count"], options["seed"], options["orders"]
    if count < 2:
        raise ValueError(f"--count must be at least 2, to know an error; got {count}")
    if orders not in get_args(Orders):
        raise ValueError(f"--orders must be one of {', '.join(get_args(Orders))}; got {orders!r}")
    text, length = read_sequence(options["sequence"]), options["length"]
    if length is not None:
        if text is not None:
            raise ValueError("give --sequence or --length, which masks everything, not both")
        if length < 1:
            raise ValueError(f"--length must be at least 1, got {length}")
        text = "[MASK]" * length
    names = ("device", "backbone", "chains")
    loaded = model_options(options["model"], **{n: options[n] for n in names})
    model = as_model(options["model"], loaded)
    chosen_engine = ("engine", "workers", "address", "gpus", "timeout")
    where = engine_of(*(options[name] for name in chosen_engine))
    if where is None:
        task = make_task(model, text)
    else:
        task = spread_task(where, options["model"], text, model_options=loaded)
    if not (task.given == MASK).any():
        raise ValueError("--sequence must have at least one mask, got none: nothing to compare")
    truth = _read_truth(model, read_sequence(options["truth"]), task.given)
    kind = choose_kind(options["quality"], truth)
    if options["sweep"] and kind != "recovery" and not options["evaluate"]:
        raise ValueError(f"--sweep with the quality {kind} must evaluate: leave out --no-evaluate")
    with output.run_progress("reference") as progress:
        reference = sample(
            task.oracle,
            Sequential("random"),
            count,
            # Noise of its own, whatever the samplers' seed.
            seed=int(keyed_generator(seed, "reference").integers(2**62)),
            given=task.given,
            orders="fresh",
            progress=progress,
        )
    return _Comparison(
        name=str(options["model"]),
        task=task,
        count=count,
        seed=seed,
        orders=orders,
        evaluate=options["evaluate"],
        max_submissions=options["max_submissions"],
        reference=reference,
        kind=kind,
        truth=truth,
        paranoid=share_of(options["paranoid"], options["paranoid_share"]),
    )


def _read_truth(model: Any, text: str | None, given: StateArray) -> StateArray | None:
    """Return the tokens of the text without masks; refuse another text."""
    if text is None:
        return None
    truth = make_task(model, text).given
    if len(truth) != len(given) or (truth == MASK).any():
        raise ValueError(
            f"--truth must be the sequence of {len(given)} positions without masks, got "
            f"{len(truth)} positions, {int((truth == MASK).sum())} of them masked"
        )
    differing = np.flatnonzero((given != MASK) & (given != truth))
    if len(differing):
        raise ValueError(
            "--truth must agree with --sequence where that is given, but differs at position "
            f"{differing[0]}"
        )
    return truth


def _run(shared: _Comparison, sampler: Sampler, name: str, asked: str) -> _Entry:
    """Draw with one sampler and measure it; an error of its own ends it and no other."""
    started = time.perf_counter()
    try:
        with output.run_progress(sampler.name) as progress:
            batch = sample(
                shared.task.oracle.rechecking(shared.paranoid),
                sampler,
                shared.count,
                seed=shared.seed,
                given=shared.task.given,
                orders=shared.orders,
                max_submissions=shared.max_submissions,
                progress=progress,
            )
        seconds = time.perf_counter() - started
        if not batch.num_completed:
            reason = batch.results[0].reason
            return _Entry(sampler, name, asked, batch, seconds=seconds, refusal=reason)
        quality = assess(
            shared.task.oracle,
            batch,
            shared.reference,
            evaluate=shared.evaluate,
            seed=shared.seed,
        )
        return _Entry(sampler, name, asked, batch, quality, seconds)
    except ValueError as problem:  # it must be told something, or cannot work at this size
        return _Entry(sampler, name, asked, refusal=str(problem))
    except CounterprobeError as problem:
        return _Entry(sampler, name, asked, refusal=str(problem), has_failed=True)


# ----- What people and files get ------------------------------------------------------------


def _show(console: Console, shared: _Comparison) -> None:
    title = (
        f"{shared.name}, {shared.num_masked} of {shared.task.oracle.length} positions masked, "
        f"{shared.count} sequences each"
    )
    print_table(console, title, COLUMNS, [_cells(entry) for entry in shared.entries])
    for note in _notes(shared):
        console.print(Text(note, style="dim"))


def _cells(entry: _Entry) -> list[str]:
    if entry.batch is None or entry.quality is None:
        return [entry.name] + ["-"] * (len(COLUMNS) - 1)
    quality, kl, test = entry.quality, entry.quality.batch_kl, entry.quality.test
    scored = quality.likelihood
    apart = math.nan if scored is None else scored.disagreement.mean_absolute
    return [
        entry.name,
        f"{entry.batch.ledger.total / len(entry.batch):.1f}",
        f"{entry.batch.tokens_per_forward:.2f}",
        _number(math.nan if kl is None else kl.value),
        _number(math.nan if kl is None else kl.standard_error),
        _number(quality.log_likelihood_per_token),
        _number(quality.log_likelihood_per_token_se),
        _number(apart),
        "-" if test is None else f"{test.p_value['hamming']:.3f}",
        "-" if test is None else f"{test.p_value['pairs']:.3f}",
        f"{quality.diversity.mean_distance:.2f}",
        f"{quality.diversity.num_distinct}/{quality.completed}",
    ]


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return "0" if abs(value) < 1e-12 else f"{value:.3f}"


def _notes(shared: _Comparison) -> list[str]:
    measured = shared.task.num_measured
    measured += sum(e.quality.ledger.total for e in shared.entries if e.quality is not None)
    notes = [
        "Batch KL: nats a sequence that product commits break, by the chain rule. MMD p: shuffles "
        "that put the sequences as far from a sequential reference; with several samplers, small "
        "ones are expected by chance. Distance: Hamming, over masked positions.",
        f"Beside the evaluations shown, the reference took {shared.reference.ledger.total:,} and "
        f"measuring {measured:,}.",
    ]
    if shared.paranoid:
        notes.append(f"{shared.num_rechecked:,} evaluations repeated earlier ones, to compare.")
    said: dict[str, list[str]] = {}
    for entry in shared.entries:
        if entry.refusal is not None:
            notes.append(f"{entry.sampler.name} drew nothing: {entry.refusal}.")
        for note in entry.quality.notes if entry.quality is not None else ():
            said.setdefault(note, []).append(entry.sampler.name)
    notes += [f"{', '.join(dict.fromkeys(names))}: {note}." for note, names in said.items()]
    return notes


def _record(shared: _Comparison) -> dict[str, Any]:
    task = shared.task
    return {
        "model": shared.name,
        "oracle": getattr(task.oracle, "name", None),
        "text": None if task.template is None else task.template.text(task.given),
        "n": task.oracle.length,
        "vocab": task.oracle.vocab_size,
        "masked": shared.num_masked,
        "count": shared.count,
        "seed": shared.seed,
        "orders": shared.orders,
        "measuring": task.num_measured,
        "rechecked": shared.num_rechecked,
        "reference": {
            **shared.reference.summary(),
            "texts": task.texts(shared.reference.sequences),
        },
        "samplers": [_entry_record(shared, entry) for entry in shared.entries],
    }


def _entry_record(shared: _Comparison, entry: _Entry) -> dict[str, Any]:
    batch, quality = entry.batch, entry.quality
    ledgers = [] if batch is None else batch.ledgers
    return {
        "sampler": entry.sampler.name,
        "settings": entry.sampler.settings,
        "rights": entry.sampler.rights.names(),
        "reason": entry.refusal,
        "seconds": entry.seconds,
        "evaluations": None if batch is None else batch.ledger.total / len(batch),
        "evaluations_without_rights": (
            None if batch is None else batch.ledger.total_without_rights / len(batch)
        ),
        "depth": float(np.mean([one.depth for one in ledgers])) if ledgers else None,
        "tokens_per_forward": None if batch is None else batch.tokens_per_forward,
        "quality_percent": shared.quality_of(entry),
        "texts": None if batch is None else shared.task.texts(batch.sequences),
        **({"completed": 0} if quality is None else quality.as_dict()),
    }
