"""What is filled in: antibodies of the clinic with some of their residues masked.

Trastuzumab and pembrolizumab are humanised antibodies whose sequences are public (INN lists).
Loops are the CDRs of trastuzumab's heavy chain, and those of its light chain by Kabat's numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

__all__ = ["MASK", "TASKS", "Task", "masked_at", "tasks_named"]

MASK = "X"

TRASTUZUMAB_HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLR"
    "AEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
TRASTUZUMAB_LIGHT = (
    "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYY"
    "CQQHYTTPPTFGQGTKVEIK"
)
PEMBROLIZUMAB_HEAVY = (
    "QVQLVQSGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQ"
    "FDDTAVYYCARRDYRFDMGFDYWGQGTTVTVSS"
)
HEAVY_LOOPS = (*range(25, 33), *range(50, 58), *range(96, 109))
LIGHT_LOOPS = (*range(23, 34), *range(49, 56), *range(88, 97))


@dataclass(frozen=True, slots=True)
class Task:
    """A model and a text with masks.

    Attributes
    ----------
    name, model, text : str
    is_claimed : bool
        Whether claims rest on its samplers, which are then measured with more sequences.
    is_contested : bool
        Whether samplers are measured, or batches priced only.
    """

    name: str
    model: str
    text: str
    is_claimed: bool = False
    is_contested: bool = True


def masked_at(sequence: str, positions: Iterable[int]) -> str:
    """Return a sequence with masks at some positions, counted from 0."""
    letters = list(sequence)
    for position in positions:
        if not 0 <= position < len(letters):
            raise ValueError(
                f"positions must lie in 0..{len(letters) - 1} of the sequence, got {position}"
            )
        letters[position] = MASK
    return "".join(letters)


def _random_half(sequence: str, seed: int = 0) -> str:
    """Mask a random half: the same one always for a seed."""
    count = len(sequence) // 2
    chosen = np.random.default_rng(seed).permutation(len(sequence))[:count]
    return masked_at(sequence, chosen.tolist())


def _tasks() -> Iterable[Task]:
    loops = masked_at(TRASTUZUMAB_HEAVY, HEAVY_LOOPS)
    light = masked_at(TRASTUZUMAB_LIGHT, LIGHT_LOOPS)
    half = _random_half(PEMBROLIZUMAB_HEAVY)
    yield Task("antiberty loops", "antiberty", loops, is_claimed=True)
    yield Task("antiberty random half", "antiberty", half)
    yield Task("antiberty light loops", "antiberty", light)
    yield Task("sapiens heavy loops", "sapiens-heavy", loops)
    yield Task("sapiens heavy random half", "sapiens-heavy", half)
    yield Task("sapiens light loops", "sapiens-light", light)
    for seed in (1, 2):
        another = _random_half(PEMBROLIZUMAB_HEAVY, seed)
        name = f"antiberty random half {seed + 1}"
        yield Task(name, "antiberty", another, is_contested=False)
    nothing = MASK * len(TRASTUZUMAB_HEAVY)
    yield Task("antiberty everything", "antiberty", nothing, is_contested=False)


TASKS: dict[str, Task] = {task.name: task for task in _tasks()}


def tasks_named(names: str) -> list[Task]:
    """Return tasks by their names, separated by commas; ``all`` means all."""
    if names == "all":
        return list(TASKS.values())
    unknown = [name for name in names.split(",") if name not in TASKS]
    if unknown:
        raise ValueError(f"tasks must be among {', '.join(TASKS)}; got {unknown[0]!r}")
    return [TASKS[name] for name in names.split(",")]
