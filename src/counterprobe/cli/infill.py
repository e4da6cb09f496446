"""``counterprobe infill``: finished sequences from a model and a text with masks."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.console import Console
from rich.text import Text

from counterprobe.arguments import whole_number
from counterprobe.cli import designs, options, output, reporting, runs
from counterprobe.cli.inputs import Input, Tasks, inputs_of
from counterprobe.discovery import Structure
from counterprobe.infilling import Completions, fill_mask
from counterprobe.infilling import infill as fill_in
from counterprobe.infilling.results import Infilled
from counterprobe.infilling.task import Task
from counterprobe.infilling.terms import DEFAULT_SAMPLER, design_terms, rule_of
from counterprobe.infilling.writing import KINDS, Design, DesignFile, designs_of
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.run.events import Finished, Listener, tell_all
from counterprobe.samplers import Sampler
from counterprobe.samplers.registry import default_orders, read_settings, structure_settings
from counterprobe.sampling import AT_ONCE

__all__ = ["infill"]

# What has no meaning where completions are listed and nothing is drawn.
DRAWING = (
    "sampler", "settings", "structure", "batches", "count", "temperature", "max_evaluations",
    "likelihood_orders", "out", "force", "append", "trace", "cache", "retries", "timeout",
    "recheck",
)  # fmt: skip


@output.command
def infill(
    *,
    model: options.Model,
    text: options.Text,
    order: options.Order = None,
    sampler: Annotated[
        str | None,
        options.in_sampler(help="See 'counterprobe samplers'.", show_default=DEFAULT_SAMPLER),
    ] = None,
    settings: options.Settings = None,
    structure: Annotated[
        str | None,
        options.in_sampler(
            metavar="FILE",
            help="Commit by what 'counterprobe discover' wrote for this model and backbone; "
            "priced anew where other residues are fixed.",
        ),
    ] = None,
    batches: Annotated[
        int | None,
        options.in_sampler(
            help="Batches of a plan, with --structure.", show_default="as few as break 0.1 nats"
        ),
    ] = None,
    count: Annotated[int, options.in_sampler(help="Sequences to draw.")] = 1,
    seed: options.Seed = 1,
    max_evaluations: options.MaxEvaluations = None,
    top_k: Annotated[
        int | None,
        options.in_sampler(help="Do not draw: list this many likeliest joint completions."),
    ] = None,
    likelihood_orders: Annotated[
        int,
        options.in_output(
            help="Score finished sequences by the chain rule in this many random orders; the "
            "evaluations are counted apart."
        ),
    ] = 0,
    out: Annotated[
        str | None,
        options.in_output(
            metavar="FILE",
            help=f"Write designs as they are made, by the name's ending: {', '.join(KINDS)}.",
        ),
    ] = None,
    force: Annotated[
        bool, options.in_output("--force", help="Replace FILE if it is there.")
    ] = False,
    append: Annotated[
        bool,
        options.in_output(
            "--append",
            help="Go on with FILE: an input whose designs are all there is not drawn again.",
        ),
    ] = False,
    trace_sequence: Annotated[
        int,
        options.in_output(metavar="K", help="Which of --count sequences the trace shows, from 1."),
    ] = 1,
    json: options.JsonFile = None,
    report: reporting.ReportFile = None,
    trace: runs.Trace,
    executor: options.Executor,
    faults: runs.Faults,
) -> None:
    """Fill in the masks of a text, jointly, any number of times, and say what it cost.

    Without --sampler it chooses for itself, never takes more evaluations than one mask at a time,
    and says why; --set target_kl=0.05 lets a design break less.

    For example:

    counterprobe infill --model sapiens-heavy --sequence EVQLVESGGGLVQPGGSLRLSCXXSGFXXS --count 5

    counterprobe infill --model proteinmpnn --backbone 1ake --order commit --sampler spread --set
    batches=16 --count 100 --out designs.fasta

    counterprobe infill --model sapiens-heavy --sequence EVQLVESGXGLVQPGGSLRXSC --top-k 5

    counterprobe infill --model proteinmpnn --backbone dimer.pdb --symmetric A,B --design A10-25

    counterprobe infill --model proteinmpnn --backbone 1ake --count 1000 --cache replies.sqlite
    --out designs.fasta
    """
    output.check_writable(json)
    reporting.report_to(report, f"Sequences drawn from {model}", json)
    console = output.console_for(json)
    inputs = inputs_of(text)
    if top_k is not None:
        _refuse_beside_top_k()
        found = fill_mask(text.task(model, executor.open(text.device), order=order), top_k=top_k)
        _show_completions(console, model, found)
        output.write_result(json, _completions_record(model, found))
        return
    whole_number("--count", count, at_least=1)
    whole_number("--likelihood-orders", likelihood_orders)
    _check_traced(trace.trace, trace_sequence, count)
    _check_files(len(inputs), json, out, append)
    _check_distinct(json, out, report, trace.trace, faults.cache)
    known = None if structure is None else Structure.load(structure)
    named = _checked_settings(known, read_settings(settings), batches)
    rule = rule_of(sampler, known, named)
    where = executor.open(text.device)
    asking: dict[str, Any] = {
        "structure": known,
        "count": count,
        "seed": seed,
        "orders": default_orders(known, rule),
        "max_evaluations": max_evaluations,
        "at_once": AT_ONCE,
        "likelihood_orders": likelihood_orders,
        "trace_sequence": trace_sequence - 1,
    }
    has_replies = faults.cache is not None and Path(faults.cache).exists()
    goes_on = append or (has_replies and not force)
    finished: list[Design] = []
    with _opened(out, force, goes_on) as file, _saying_where(file, finished):
        if file is not None and file.cut_off:
            output.complain(f"{out}: the last record was cut off and is left out")
        terms = partial(_terms, rule, text.temperature, asking)
        made: list[designs.Drawn] = []
        tasks = Tasks(
            model,
            where,
            faults.timeout,
            order,
            file,
            count if append else None,
            terms,
            faults.cache,
        )
        for name, one in inputs:
            started = time.perf_counter()
            with _naming(name if len(inputs) > 1 else None):
                to_draw = tasks.of(name, one)
            if to_draw is None:
                continue
            called, task = to_draw
            if not made:
                _check_all(task, inputs)
            keep = partial(_keep, file, finished, task, called, text.temperature, seed)
            with (
                output.run_progress(rule.name) as progress,
                runs.oracle_chain(task.oracle, faults, where) as chain,
            ):
                drawn = fill_in(
                    replace(task, oracle=chain.oracle),
                    sampler=sampler,
                    on_event=tell_all(progress, Listener(keep, Finished)),
                    progress=False,
                    trace=trace.trace,
                    trace_bytes=trace.trace_bytes,
                    trace_command=runs.this_command(),
                    **asking,
                    **named,
                )
            seconds = time.perf_counter() - started
            made.append(designs.Drawn(called, one, task, drawn, chain, seconds))
    if not made:
        console.print(Text(f"Nothing to draw: {out} has every design."), soft_wrap=True)
        return
    if len(made) < len(inputs):
        there = len(inputs) - len(made)
        output.complain(f"{out} has all designs of {there} of {len(inputs)} inputs already")
    designs.show_all(console, model, made, seed, is_many=len(inputs) > 1)
    output.say_written(console, trace.trace, out if file and file.num_written else None)
    output.write_result(json, designs.record(model, made, len(inputs) > 1))
    designs.require_complete(made, out)


# ----- Around one input -------------------------------------------------------------------------


def _opened(
    out: str | None, force: bool, append: bool
) -> AbstractContextManager[DesignFile | None]:
    """Open the file of designs, where one is wanted; before anything is computed."""
    return nullcontext() if out is None else DesignFile(out, force=force, append=append)


def _terms(
    rule: Sampler, temperature: float, asking: dict[str, Any], task: Task
) -> dict[str, str]:
    """Return what determines the designs of a task."""
    names = "structure", "seed", "orders", "likelihood_orders"
    chosen = {name: asking[name] for name in names}
    return design_terms(task, rule, temperature=temperature, **chosen)


def _keep(
    file: DesignFile | None,
    finished: list[Design],
    task: Task,
    name: str,
    temperature: float,
    seed: int,
    told: Finished,
) -> None:
    """Write finished sequences, and keep them for the report of a command that is stopped."""
    drawn = told.batch
    assert isinstance(drawn, Infilled)
    if file is None and (drawn.texts is None or not output.is_reported()):
        return
    new = designs_of(drawn, task, name, temperature=temperature, seed=seed)
    if file is not None:
        file.write(new)
    if output.is_reported():
        finished += new


@contextmanager
def _naming(name: str | None) -> Iterator[None]:
    """Say which of several inputs is wrong."""
    try:
        yield
    except ValueError as problem:
        raise problem if name is None else ValueError(f"{name}: {problem}") from None


def _check_all(task: Task, inputs: Sequence[Input]) -> None:
    """Read every further text before the first is filled in: a wrong one is said at once."""
    for name, one in inputs[1:]:
        with _naming(name):
            if one.sequence is not None and task.model is not None:
                one.template(task.model)
            elif one.backbone is not None:
                Backbone.named(one.backbone, one.chains)


@contextmanager
def _saying_where(file: DesignFile | None, finished: list[Design]) -> Iterator[None]:
    """Say on Ctrl-C what is kept, and how to go on; a report has what was finished."""
    try:
        yield
    except KeyboardInterrupt as stop:
        designs.report_designs(finished)
        said = str(stop) or "interrupted"
        if file is not None and file.names:
            are = "design is" if len(file.names) == 1 else "designs are"
            said = (
                f"{said.removesuffix(': to go on, repeat the command')}; {len(file.names)} "
                f"finished {are} in {file.path}: to go on, repeat the command with --append"
            )
        raise KeyboardInterrupt(said) from None


# ----- What is refused ------------------------------------------------------------------------


def _refuse_beside_top_k() -> None:
    """Refuse what has no meaning where completions are listed and nothing is drawn."""
    given = [name for name in DRAWING if name in output.changed_options()]
    if given:
        options = ["--set" if one == "settings" else f"--{one.replace('_', '-')}" for one in given]
        raise ValueError(f"--top-k lists completions: leave out {', '.join(options)}")


def _check_traced(trace: str | None, sequence: int, count: int) -> None:
    """Refuse to trace a sequence that is not drawn."""
    if not 1 <= sequence <= count:
        raise ValueError(f"--trace-sequence must be one of 1 to --count, {count}; got {sequence}")
    if trace is None and sequence != 1:
        raise ValueError(f"--trace-sequence {sequence} goes with --trace FILE")


def _checked_settings(
    structure: Structure | None, named: dict[str, Any], batches: int | None
) -> dict[str, Any]:
    """Return the settings of the sampler; refuse those that it does not have."""
    if batches is not None:
        if structure is None or structure.strengths is None:
            raise ValueError(
                "--batches goes with --structure and a soft structure; samplers take theirs as "
                f"--set batches={batches}"
            )
        named = {**named, "batches": batches}
    if structure is not None:
        known = structure_settings(structure)
        for name in named:
            if name not in known:
                raise ValueError(
                    f"this structure's sampler has no setting {name!r}; its settings: "
                    f"{', '.join(known) or 'none'}"
                )
    taken = [name for name in named if name in inspect.signature(fill_in).parameters]
    if taken:
        raise ValueError(
            f"--set is for settings of the sampler; {taken[0]} is an option of the command: "
            f"--{taken[0].replace('_', '-')}"
        )
    return named


def _check_files(num_inputs: int, json: str | None, out: str | None, append: bool) -> None:
    """Refuse what does not go with many inputs, and what has no file to be about."""
    changed = output.changed_options()
    if append and json is not None:
        raise ValueError("--json holds all that is drawn: leave it out with --append")
    if append and "force" in changed:
        raise ValueError("--append goes on with FILE, --force replaces it: leave one of them out")
    if out is None:
        without = [f"--{name}" for name in ("force", "append") if name in changed]
        if without:
            raise ValueError(f"{without[0]} goes with --out FILE")
    single = [f"--{name}" for name in ("trace", "cache", "workers", "cluster") if name in changed]
    if num_inputs > 1 and single:
        raise ValueError(f"{single[0]} must come with one input, got {num_inputs}")


def _check_distinct(*files: str | None) -> None:
    """Refuse one file for two purposes: what is written last would take the place of the first."""
    named = [file for file in files if file is not None and file != "-"]
    for k, file in enumerate(named):
        if os.path.realpath(file) in map(os.path.realpath, named[:k]):
            raise ValueError(f"{file} is named for two outputs; give each a file of its own")


# ----- Completions ------------------------------------------------------------------------------


def _show_completions(console: Console, model: str, found: Completions) -> None:
    """Print completions by joint probability, and what independent masks would have said."""
    for title, entries in (
        (f"{model}: likeliest together ({found.ledger.evaluations} evaluations)", found.ranked),
        ("what independent masks would have said", found.independent),
    ):
        rows = [
            [
                one.text or str(one.tokens),
                f"{np.exp(one.log_joint):.3g}",
                f"{np.exp(one.log_independent):.3g}",
            ]
            for one in entries
        ]
        output.print_table(console, title, ["completion", "joint", "independent"], rows)
    if not found.is_exhaustive:
        output.tell(console, "A beam was searched: a likelier completion may exist.")


def _completions_record(model: str, found: Completions) -> dict[str, Any]:
    names = ("text", "tokens", "log_joint", "log_independent")
    return {
        "model": model,
        "positions": found.positions,
        "order": found.order,
        "exhaustive": found.is_exhaustive,
        "measuring": found.measuring.evaluations,
        **found.ledger.as_dict(),
        **{
            kind: [{name: getattr(one, name) for name in names} for one in getattr(found, kind)]
            for kind in ("ranked", "independent")
        },
    }
