"""Designs a second: the package's own sampler, a compiled rival and ours, in one run.

All of them are timed turn by turn after a round to warm up, so that a slow spell of the machine
hits them alike, and the best time of each counts. What is done once for any number of sequences
(reading the backbone, finding a structure, making plans, compiling) is reported beside.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count as numbers
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from _timing import alternate

import counterprobe as cp
from counterprobe.models.letters import AMINO_ACIDS
from counterprobe.models.memory import is_out_of_memory
from counterprobe.models.proteins.message_passing import HOST_RESIDUES
from counterprobe.models.proteins.proteinmpnn import InverseFolding
from counterprobe.planning import Plan
from counterprobe.rows import to_numpy
from designs.colab import ColabDesign
from designs.package import package_designs
from designs.pricing import Dealt

__all__ = [
    "agreement",
    "design_speed",
    "designs_on_disk",
    "held_at_once",
    "seconds_to_encode",
]

# Groups of sequences with a plan each.
GROUPS = 16
# Samplers that others are set against.
REFERENCES = ("package", "colabdesign")


def design_speed(
    model: InverseFolding,
    plans: Mapping[str, Sequence[Plan]],
    at_once: int,
    repeats: int,
    *,
    rival: ColabDesign | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """Time designs, so many sequences at once; the package's in parts where memory runs out.

    Parameters
    ----------
    model : InverseFolding
    plans : mapping of str to sequence of Plan
        By name, such as ``16`` for plans of a structure in 16 batches, ``distance 16`` for those
        by distance; dealt out to 16 groups of sequences.
    at_once : int
    repeats : int
    rival : ColabDesign, optional
    clock : callable
        See ``alternate``.

    Returns
    -------
    dict
        Sequences a second: ``package``, ``colabdesign``, ``sequential`` (one residue at a time
        with decoder states kept), ``cached 16`` and so on; and how many times the package's rate,
        the rival's, and that of one residue at a time each of them is. On a processor also
        ``arithmetic``: what :func:`arithmetic_alone` takes, which no way of drawing goes below.
    """
    kept = model.oracle(order="commit")
    seeds = numbers(1)
    works: dict[str, Callable[[], object]] = {}
    found: dict[str, Any] = {"at_once": at_once}
    if model.decoder.device.type == "cuda":
        torch.cuda.empty_cache()  # of what PyTorch keeps for later, a rival has no use
    if rival is not None:
        try:
            rival.designs(at_once, 0)  # compiled here, so that a refusal costs only itself
            works["colabdesign"] = lambda: rival.designs(at_once, next(seeds))
            if at_once in rival.seconds_to_compile:
                found["colabdesign seconds to compile"] = rival.seconds_to_compile[at_once]
        except Exception as problem:
            found["colabdesign refused"] = f"{type(problem).__name__}: {problem}"[:200]
    # After the rival, which keeps the memory it needs: the package takes all there is.
    size = found["package at once"] = most_of_package(model, at_once)
    works = {"package": lambda: package_designs(model, size), **works}

    def designs(rule: cp.samplers.Sampler) -> Callable[[], object]:
        return lambda: cp.sample(
            kept, rule, at_once, orders=GROUPS, at_once=at_once, progress=False
        )

    works["sequential"] = designs(cp.samplers.Sequential("random"))
    for name, mine in plans.items():
        works[f"cached {name}"] = designs(Dealt(tuple(mine)))
    if model.decoder.device.type == "cpu":
        works["arithmetic"] = arithmetic_alone(model, at_once)
    best = alternate(works, repeats=repeats, once=("package",), clock=clock)  # slow
    rates = {
        name: (size if name == "package" else at_once) / seconds for name, seconds in best.items()
    }
    found |= rates
    found |= {f"{n} ratio": rate / rates["package"] for n, rate in rates.items() if n != "package"}
    if "colabdesign" in rates:
        found |= {
            f"{name} to colabdesign ratio": rate / rates["colabdesign"]
            for name, rate in rates.items()
            if name not in REFERENCES
        }
    for name, rate in rates.items():
        if name.startswith("cached") or name == "arithmetic":
            found[f"{name} to sequential ratio"] = rate / rates["sequential"]
    return found


def arithmetic_alone(model: InverseFolding, count: int) -> Callable[[], None]:
    """Return the products and activations that so many designs need, on a processor, and no more.

    Every residue passes the decoder once, whatever the batches: messages of all layers but the
    first, which is looked up, and the maps of its own states. Nothing is gathered, drawn or kept.
    """
    decoder = model.decoder
    _, degree, width = decoder.parts[0].around.shape
    layers = list(zip(decoder.parts, decoder.network.decoder_layers, strict=True))
    message, mine = (
        torch.randn((HOST_RESIDUES, degree, width)),
        torch.randn((HOST_RESIDUES, width)),
    )

    def work() -> None:
        for low in range(0, count * decoder.length, HOST_RESIDUES):
            size = min(HOST_RESIDUES, count * decoder.length - low)
            for number, (parts, layer) in enumerate(layers):
                if number:
                    layer.act(layer.W2(layer.act(message[:size])))
                    for weight in (parts.own, parts.inner):
                        mine[:size] @ weight.T
                layer.dense(layer.W3(mine[:size]))

    return torch.no_grad()(work)


def most_of_package(model: InverseFolding, at_once: int) -> int:
    """Return how many sequences the package's sampler holds at once, after a first draw of them.

    It keeps the features of every pair of neighbours of every sequence: of the longest backbones
    a thousand do not fit, and half as many are tried.
    """
    size = at_once
    while True:
        try:
            package_designs(model, size)
            return size
        except RuntimeError as problem:
            if size == 1 or not is_out_of_memory(problem):
                raise
        torch.cuda.empty_cache()
        size //= 2


def designs_on_disk(
    model: InverseFolding, plans: Sequence[Plan], count: int, at_once: int
) -> dict[str, Any]:
    """Time designs from the model to a FASTA file with their scores, all in one go."""
    kept = model.oracle(order="commit")
    letters = np.frombuffer("".join(AMINO_ACIDS).encode(), dtype=np.uint8)
    rule = Dealt(tuple(plans))
    draw = partial(
        cp.sample, kept, rule, orders=GROUPS, at_once=at_once, progress=False, log_probs=True
    )
    draw(at_once)  # compiled and captured before
    with TemporaryDirectory() as folder:
        path = Path(folder) / "designs.fasta"
        started = time.perf_counter()
        with path.open("wb") as file:
            for first in range(0, count, at_once):
                drawn = draw(min(at_once, count - first), first=first)
                rows, scores = letters[drawn.sequences], drawn.scores
                assert scores is not None
                for k, (row, score) in enumerate(zip(rows, scores.tolist(), strict=True)):
                    file.write(b">%d score=%.4f\n%b\n" % (first + k + 1, score, row.tobytes()))
        seconds = time.perf_counter() - started
        size = path.stat().st_size
    return {
        "designs": count,
        "at_once": at_once,
        "bytes": size,
        "seconds": seconds,
        "designs a second": count / seconds,
        "seconds for a million": 1e6 * seconds / count,
    }


def held_at_once(
    model: InverseFolding, rule: cp.samplers.Sampler, count: int, parts: int = 16
) -> dict[str, Any]:
    """Draw many sequences at once: what they hold, how fast they come, and that they are theirs.

    Drawn again in parts, every sequence must be the same.
    """
    kept = model.oracle(order="commit", row_error=0.01)
    draw = partial(cp.sample, kept, orders=GROUPS, progress=False)
    is_on_gpu = model.decoder.device.type == "cuda"
    found: dict[str, Any] = {"at_once": count, "residues": len(model.backbone)}
    for name, one in (("planned", rule), ("sequential", cp.samplers.Sequential("random"))):
        draw(one, count, at_once=count)  # compiled and captured before
        if is_on_gpu:
            torch.cuda.reset_peak_memory_stats()
        started = time.perf_counter()
        whole = draw(one, count, at_once=count)
        found[f"{name} designs a second"] = count / (time.perf_counter() - started)
        if is_on_gpu:
            found[f"{name} bytes"] = torch.cuda.max_memory_allocated()
        again = draw(one, count, at_once=max(1, count // parts))
        found[f"{name} same in parts"] = bool((whole.sequences == again.sequences).all())
    return found


def seconds_to_encode(model: InverseFolding) -> float:
    """Return how long it takes to read the backbone, which is done once."""
    started = time.perf_counter()
    read = InverseFolding(model.decoder.network, model.backbone)
    to_numpy(read.decoder.nodes)  # wait for the device
    return time.perf_counter() - started


def agreement(model: InverseFolding, rival: ColabDesign, count: int = 4) -> dict[str, Any]:
    """Return how far the rival's rows are from ours on its designs: the weights are the same."""
    tokens, theirs, orders = rival.in_full(count, seed=0)
    oracle = model.oracle(order="commit", row_error=0.0)
    everywhere = cp.Readouts.same(count, np.arange(oracle.length))
    query = cp.oracles.HistoryQuery(
        tokens.astype(np.int32), everywhere, np.argsort(orders, axis=1)
    )
    ours = to_numpy(oracle.ask(query).rows.dense()).reshape(theirs.shape)
    apart = np.abs(ours - theirs).sum(axis=-1) / 2
    return {"designs": count, "row_tv_max": float(apart.max()), "device": rival.device}
