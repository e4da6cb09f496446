"""Frame2seq: states a second, on a processor or a GPU, against the package's own networks.

    .venv/bin/python tools/carry_weights.py carried-frame2seq frame2seq arrays
    PYTHONPATH=src:carried-frame2seq python benchmarks/masked_folding.py --device cuda --json FILE

For each backbone: states a second at several numbers of states at once, in single precision and,
on a GPU, in TF32, reading every residue or one of them; the package's own networks on as many
states, where its files are there (its requirements need not be: tests/support has stand-ins); how
far rows of the package, of TF32 and of the GPU are from ours in single precision on the host; and
the most memory that was taken. ``--quick`` takes the shortest backbone and few states.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _timing import report

from counterprobe.models.proteins.backbones import SHIPPED, Backbone
from counterprobe.models.proteins.frame2seq import Frame2Seq, load_frame2seq

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

STATES = (1, 8, 64, 256)
MASK_ID = 20


def some_ids(count: int, length: int) -> torch.Tensor:
    """Return states with all, then fewer residues masked."""
    draw = np.random.default_rng(5)
    ids = draw.integers(0, 20, (count, length))
    share = np.linspace(1, 0, count, endpoint=False)[:, None]
    ids[draw.random(ids.shape) < share] = MASK_ID
    return torch.from_numpy(ids)


def a_second(work: Callable[[], object], count: int, device: torch.device, repeats: int) -> float:
    """Return states a second, the best of several runs after one to warm up."""
    best = float("inf")
    for repeat in range(repeats + 1):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if repeat:
            best = min(best, time.perf_counter() - started)
    return count / best


def rows_of(logits: torch.Tensor) -> torch.Tensor:
    """Return rows over the amino acids, in double precision on the host."""
    return torch.softmax(logits[..., :20].cpu().double(), dim=-1)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest total-variation distance of two batches of rows."""
    return float((rows_of(one) - rows_of(other)).abs().sum(-1).max() / 2)


def package_on(backbone: Backbone, device: torch.device) -> Callable[[torch.Tensor], Any] | None:
    """Return the package's own networks, averaged; None where its files are not there."""
    try:
        from frame2seq_package import Package

        package = Package()
    except (ImportError, FileNotFoundError, AssertionError) as problem:
        print(f"without the package's own networks: {problem}")
        return None
    package.networks = [network.to(device) for network in package.networks]

    def logits(ids: torch.Tensor) -> torch.Tensor:
        return torch.stack(package.logits(backbone, ids)).mean(dim=0)

    return logits


@torch.no_grad()
def measure(name: str, device: torch.device, states: tuple[int, ...], repeats: int) -> Any:
    """Return the figures of one backbone."""
    backbone = Backbone.shipped(name)
    length = len(backbone)
    figures: dict[str, float] = {}
    kinds: dict[str, Frame2Seq] = {"single": load_frame2seq(backbone, device=device).network}
    if device.type == "cuda":
        kinds["tf32"] = load_frame2seq(backbone, device=device, tf32=True).network
    one = torch.tensor([length // 2], device=device)
    for count in states:
        ids = some_ids(count, length).to(device)
        for kind, network in kinds.items():
            fits = min(count, network.fitting_states())

            def work(network: Frame2Seq = network, ids: Any = ids, fits: int = fits,
                     places: Any = None) -> None:  # fmt: skip
                for part in ids.split(fits):
                    network(part, places=places)

            key = f"{name}.{kind}_{count}_at_once"
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
            figures[f"{key}_a_second"] = a_second(work, count, device, repeats)
            if device.type == "cuda":
                figures[f"{key}_gib"] = torch.cuda.max_memory_allocated(device) / 2**30
            figures[f"{key}_one_read_a_second"] = a_second(
                lambda work=work: work(places=one), count, device, repeats
            )
    package = package_on(backbone, device)
    few = some_ids(min(8, max(states)), length)
    if package is not None:
        count = len(few)
        figures[f"{name}.package_{count}_at_once_a_second"] = a_second(
            lambda: package(few.to(device)), count, device, repeats
        )
    here = load_frame2seq(backbone, device="cpu").network(few[:2])
    others = {kind: network(few[:2].to(device)) for kind, network in kinds.items()}
    if package is not None:
        others["package"] = package(few[:2].to(device))
    for kind, logits in others.items():
        figures[f"{name}.{kind}_rows_apart"] = apart(logits, here)
    return figures


def main() -> None:
    """Measure every backbone."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--quick", action="store_true", help="one backbone, few states")
    options = parser.parse_args()
    device = torch.device(options.device)
    states = STATES if device.type == "cuda" else (1, 4)
    states = states[:2] if options.quick else states
    figures: dict[str, float] = {}
    for name in SHIPPED[:1] if options.quick else SHIPPED:
        figures |= measure(name, device, states, repeats=1 if options.quick else 3)
    report(figures, options.json)


if __name__ == "__main__":
    main()
