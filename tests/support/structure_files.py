"""Structure files in the making: atoms, residues and whole files of two formats."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from counterprobe.models import Backbone
from counterprobe.models.proteins.structures import STANDARD

ATOMS = ("N", "CA", "C", "O", "CB")


def atom(
    name: str,
    kind: str,
    chain: str,
    number: int,
    x: float,
    *,
    record: str = "ATOM",
    alt: str = " ",
    insert: str = " ",
    occupancy: float = 1.0,
) -> str:
    """Return the line of one atom in a PDB file."""
    return (
        f"{record:6s}{1:5d}  {name:<3s}{alt}{kind:3s} {chain}{number:4d}{insert}   "
        f"{x:8.3f}{x + 1:8.3f}{x + 2:8.3f}  {occupancy:4.2f} 10.00"
    )


def residue(
    kind: str, chain: str, number: int, x: float, *, lacks: str = "", **options
) -> list[str]:
    """Return the lines of a residue, its atoms a tenth apart, without those that it lacks."""
    return [
        atom(name, kind, chain, number, x + 0.1 * k, **options)
        for k, name in enumerate(ATOMS)
        if name not in lacks.split()
    ]


def written(folder: Path, *lines: str, name: str = "small.pdb") -> Path:
    """Write a PDB file."""
    file = folder / name
    file.write_text("\n".join(["HEADER    A PROTEIN", *lines, "END"]) + "\n")
    return file


def pdb_of(
    backbone: Backbone, folder: Path, *, left_out: Collection[tuple[int, str]] = ()
) -> Path:
    """Write a backbone as a PDB file, without some atoms, each named by position and name."""
    kinds = dict(zip("ARNDCQEGHILKMFPSTWYV", sorted(STANDARD), strict=True))
    lines = [
        f"ATOM  {1:5d}  {name:<3s} {kinds[backbone.sequence[k]]:3s} "
        f"{backbone.chain_ids[backbone.chain[k] - 1]}{backbone.numbers[k]:4d}"
        f"{backbone.insertions[k]}   {x:8.3f}{y:8.3f}{z:8.3f}  1.00 10.00"
        for k in range(len(backbone))
        for name, (x, y, z) in zip(ATOMS, backbone.coordinates[k].tolist(), strict=False)
        if (k, name) not in left_out
    ]
    return written(folder, *lines, name=f"{backbone.name}.pdb")


def copies(
    backbone: Backbone, chains: str, apart: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> Backbone:
    """Return a homomer: a chain turned about the z axis, copy by copy, and moved along."""
    count, length = len(chains), len(backbone)
    turned = []
    for k in range(count):
        turn = 2 * np.pi * k / count
        cosine, sine = np.cos(turn), np.sin(turn)
        rotation = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
        turned.append(backbone.coordinates @ rotation.T + k * np.array(apart))
    return Backbone(
        np.concatenate(turned).astype(np.float32),
        np.concatenate([backbone.residue_index + k * (length + 100) for k in range(count)]),
        np.repeat(np.arange(1, count + 1), length),
        backbone.sequence * count,
        f"{backbone.name} {chains}",
        np.tile(backbone.numbers, count),
        backbone.insertions * count,
        tuple(chains),
    )
