"""Make the traces that come with the library, in src/counterprobe/trace/examples.

    .venv/bin/python tools/make_traces.py            # all of them
    .venv/bin/python tools/make_traces.py paper      # one of them

``paper`` is the 15-vertex example of the paper, run as it stands there: degree cutoff and chunk
count 9, 80 colors, banks ``{a, c}`` at vertex 1 and ``{b}`` elsewhere. ``antibody`` fills in the
three loops of a heavy chain with Sapiens. ``protein`` finds ubiquitin's soft structure with
ProteinMPNN and commits a plan of eight batches; both need the models installed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

import counterprobe as cp
from counterprobe.trace import EXAMPLES, About, Recorder, Trace, load_trace, write_trace

FOLDER = Path(cp.trace.__file__).resolve().parent / "examples"
COMMAND = "python tools/make_traces.py {}"
PAPER_EDGES = [(1, i) for i in range(2, 10)]
PAPER_EDGES += [(1, 10), (10, 11), (11, 12), (1, 13), (13, 14), (14, 15)]
# A heavy chain with its three loops masked.
CHAIN = (
    "EVQLVESGGGLVQPGGSLRLSCAASXXXXXXXXAMSWVRQAPGKGLEWVSXXXXXXXXYYADSVKGRFTISRDNSKNTLYLQMNSLRAED"
    "TAVYYCXXXXXXXXXXXWGQGTLVTVSS"
)


def paper_law() -> cp.ForestLaw:
    """Return a law on the paper's tree whose banks are those of its example.

    Tokens are a to h. Every edge has the table ``1 + f(x) g(y) / 2`` with f and g of mean zero, so
    that marginals are the weights below: a and c are likely at vertex 1, b alone elsewhere.
    """
    unary = np.tile([0.04, 0.72, *[0.04] * 6], (15, 1))
    unary[0] = [0.5, 0.025, 0.35, *[0.025] * 5]
    at_hub = np.array([1, 0, -10 / 7, *[0.0] * 5])
    elsewhere = np.array([1, -0.2, *[2.6 / 6] * 6])
    pair = [1 + np.outer(at_hub if i == 1 else elsewhere, elsewhere) / 2 for i, _ in PAPER_EDGES]
    return cp.ForestLaw(unary, np.array(PAPER_EDGES) - 1, pair, name="the paper's tree")


def make_paper(path: Path) -> None:
    """Screen, peel vertex 1, screen again, commit two centroid batches."""
    law = paper_law()
    sampler = cp.samplers.Packed(
        num_colors=80,
        num_colorings=9,
        degree_cutoff=9,
        chunk_count=9,
        majority_fraction=0.5,
        bank_threshold=0.25,
        skip_empty_colors=False,
    )
    about = About(
        tokens="abcdefgh",
        positions=[str(k) for k in range(1, 16)],
        true_edges=law.edges,
        command=COMMAND.format("paper"),
    )
    with Recorder(path, about) as recorder:
        result = sampler(cp.run.Run(law.oracle(), on_event=recorder), cp.Streams(51, 52))
        recorder.measured(cp.evaluation.batch_kl(law, result).value, 0.0)


def make_antibody(path: Path) -> None:
    """Fill in the loops of a heavy chain, tested by PUNT."""
    cp.infill(
        "sapiens-heavy",
        CHAIN,
        sampler="punt",
        epsilon=0.05,
        seed=1,
        progress=False,
        model_options={"device": "cpu"},
        trace=path,
        trace_command=COMMAND.format("antibody"),
    )


def make_protein(path: Path) -> None:
    """Find the soft structure of ubiquitin on its backbone, and commit by its plan."""
    model = cp.models.load("proteinmpnn", backbone="1ubi", device="cpu")
    structure = cp.discover(model.oracle(), cp.Streams(1, 1), mode="soft")
    cp.infill(
        model,
        structure=structure,
        batches=8,
        seed=1,
        progress=False,
        trace=path,
        trace_command=COMMAND.format("protein"),
    )


MAKERS = {"paper": make_paper, "antibody": make_antibody, "protein": make_protein}


def settled(trace: Trace, title: str) -> Trace:
    """Return a trace under its title that is the same whenever it is made."""
    *events, end = trace.events
    return Trace({**trace.header, "title": title}, [*events, {**end, "seconds": 0.0}])


def make(name: str, folder: Path = FOLDER) -> Path:
    """Write one example."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch) / "trace.json"
        MAKERS[name](fresh)
        target = folder / f"{name}.json.gz"
        title = EXAMPLES[name]
        write_trace(settled(load_trace(fresh), title[0].upper() + title[1:]), target)
    return target


def main() -> None:
    """Make what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=list(EXAMPLES), help="all, by default")
    chosen = parser.parse_args().name
    for name in [chosen] if chosen else EXAMPLES:
        file = make(name)
        print(f"{name}: {os.path.getsize(file):,} bytes")


if __name__ == "__main__":
    main()
