"""``counterprobe demo``: a small learned model, drawn from in four ways and held to the truth."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np

from counterprobe.cli import options, output
from counterprobe.cli.output import Column
from counterprobe.discovery import discover
from counterprobe.run.batches import SampleBatch
from counterprobe.samplers.planned import PlannedReport
from counterprobe.sampling import sample
from counterprobe.streams import Streams
from counterprobe.targets.law import ForestLaw

__all__ = ["demo"]

# Of the search for structure, and of the plans that follow it.
PROBES, BATCHES = 128, 8
# What the others are, and the settings at which docs/learned.md has measured them.
RIVALS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("sequential", "one token at a time, random order", {"order": "random"}),
    ("entropy-bounded", "the closest of the peers here", {"gamma": 1.0}),
    ("spread", "batches that cost nothing to plan", {"batches": BATCHES}),
)
COLUMNS = (
    Column("sampler"), Column("how", 2), Column("evaluations each"), Column("seconds", 1),
    Column("nats from the truth"), Column("±"),
)  # fmt: skip


@output.command
def demo(
    *,
    count: Annotated[int, options.in_sampler(help="Sequences that each sampler draws.")] = 64,
    seed: Annotated[int, options.in_sampler(help="Sets the seeds of all samplers.")] = 1,
    json: options.JsonFile = None,
) -> None:
    """Draw from a small learned model that comes with the package: ours, others, and the truth.

    A transformer that was trained on 64 tokens with a hidden tree of dependences, in NumPy, about
    a minute. The law is known, so that each way of drawing is held against the truth: nats between
    what it draws and the law, the model's own error included.

    For example:

    counterprobe demo --count 16
    """
    from counterprobe.models.small import load_small_model

    output.check_writable(json)
    if count < 2:
        raise ValueError(f"--count must be at least 2, to know an error; got {count}")
    model = load_small_model()
    oracle = model.oracle()
    console = output.console_for(json)
    started = time.perf_counter()
    structure = discover(oracle, Streams.from_seed(seed), mode="soft", probes=PROBES)
    finding = time.perf_counter() - started
    found = structure.ledger.evaluations
    records: list[dict[str, Any]] = []

    def draw(name: str, how: str, sampler: Any, **settings: Any) -> SampleBatch:
        with output.run_progress(name) as progress:
            started = time.perf_counter()
            batch = sample(
                oracle, sampler, count, seed=seed, orders="fresh", log_probs=True,
                on_event=progress, progress=False, **settings,
            )  # fmt: skip
            seconds = time.perf_counter() - started
        told = {"sampler": name, "how": how, "settings": settings, "seconds": seconds}
        records.append(told | _against(model.law, batch))
        return batch

    ours = draw("planned", "ours: batches by what was found", structure, batches=BATCHES)
    for name, how, settings in RIVALS:
        draw(name, how, name, **settings)
    rows = [
        [one["sampler"], one["how"], f"{one['evaluations']:.1f}", f"{one['seconds']:.1f}",
         f"{one['kl']:.2f}", f"{one['kl_se']:.2f}"]
        for one in records
    ]  # fmt: skip
    one_by_one = records[1]
    saved = one_by_one["evaluations"] - records[0]["evaluations"]
    price = ours.results[0].diagnostics
    notes = [
        f"Finding the structure took {found:,} evaluations more, once, in {finding:.1f} seconds: "
        f"paid back after {int(np.ceil(found / saved)):,} sequences against one token at a time.",
        "Nats from the truth: KL between what is drawn and the law that the model was trained on. "
        "Its own error is in all of them, and differs by the order in which tokens are drawn.",
    ]
    if isinstance(price, PlannedReport):
        notes.append(f"The price of the plan, told beforehand: {'; '.join(price.notes)}.")
    notes.append("docs/learned.md has thirty samplers on five such models, with 4,096 sequences.")
    title = f"A learned model of {model.length} tokens, {count} sequences each"
    output.print_table(console, title, COLUMNS, rows, notes)
    output.write_result(
        json,
        {"count": count, "seed": seed, "finding": {"evaluations": found, "seconds": finding},
         "samplers": records},
    )  # fmt: skip


def _against(law: ForestLaw, batch: SampleBatch) -> dict[str, float]:
    """Return what sequences cost, and how far from a law they are drawn."""
    assert batch.token_log_probs is not None  # they were asked for
    gaps = batch.token_log_probs.sum(axis=1) - law.log_prob(batch.sequences)
    return {
        "evaluations": batch.ledger.evaluations / len(batch),
        "kl": float(gaps.mean()),
        "kl_se": float(gaps.std(ddof=1) / np.sqrt(len(batch))),
    }
