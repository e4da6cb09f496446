"""Protein backbones: where the atoms N, CA, C and O of every residue are.

Inverse folding asks which sequences fold into a backbone. Backbones come from PDB files; two small
ones are shipped, ubiquitin (``1ubi``, 76 residues) and adenylate kinase (``1ake``, chain A, 214
residues). Entries of the Protein Data Bank are in the public domain (CC0).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterprobe.archives import read_arrays
from counterprobe.arrays import IntArray
from counterprobe.files import read_bytes, whole_file
from counterprobe.models.letters import AMINO_ACIDS

__all__ = ["SHIPPED", "Backbone"]

FloatArray = NDArray[np.float32]

ATOMS = ("N", "CA", "C", "O")
LETTER_OF = dict(
    zip(
        "ALA CYS ASP GLU PHE GLY HIS ILE LYS LEU MET ASN PRO GLN ARG SER THR VAL TRP TYR".split(),
        AMINO_ACIDS,
        strict=True,
    )
)
# Selenomethionine stands for methionine in crystals, and is filed among the other molecules.
LETTER_OF["MSE"] = "M"
# Residue numbers of two chains are this far apart, so that no chain looks like a continuation.
CHAIN_GAP = 100
SHIPPED = ("1ubi", "1ake")
# Bytes of a file that is read: the largest entries in the format of 1996 have a tenth of it.
MOST_BYTES = 1 << 27
_FOLDER = Path(__file__).parent / "data"


_ARRAYS = ("coordinates", "residue_index", "chain", "sequence", "name")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Backbone:
    """The backbone of a protein, of one chain or several.

    Attributes
    ----------
    coordinates : ndarray of float, shape (N, 4, 3)
        Positions of N, CA, C and O in angstroms.
    residue_index : ndarray of int, shape (N,)
        Place along the chain: neighbours differ by one, and missing residues leave a gap.
    chain : ndarray of int, shape (N,)
        Which chain each residue belongs to, from 1.
    sequence : str
        The residues in the file, ``X`` where unknown.
    name : str

    Examples
    --------
    >>> Backbone.shipped("1ubi")
    Backbone('1ubi': 76 residues, 1 chain, MQIFVKTLTG...)
    """

    coordinates: FloatArray
    residue_index: IntArray
    chain: IntArray
    sequence: str
    name: str

    def __post_init__(self) -> None:
        """Check the shapes and freeze the arrays."""
        count = len(self.sequence)
        if self.coordinates.shape != (count, 4, 3) or not np.isfinite(self.coordinates).all():
            raise ValueError(
                f"coordinates must be finite, of shape ({count}, 4, 3) for {count} residues; got "
                f"shape {self.coordinates.shape}"
            )
        for label in ("residue_index", "chain"):
            if getattr(self, label).shape != (count,):
                raise ValueError(
                    f"{label} must have shape ({count},), got {getattr(self, label).shape}"
                )
        for array in (self.coordinates, self.residue_index, self.chain):
            array.setflags(write=False)

    def __repr__(self) -> str:
        """Say how large it is."""
        chains = len(np.unique(self.chain))
        start = self.sequence[:10] + ("..." if len(self) > 10 else "")
        return (
            f"Backbone({self.name!r}: {len(self)} residues, {chains} "
            f"chain{'s' if chains > 1 else ''}, {start})"
        )

    def __len__(self) -> int:
        """Return the number of residues."""
        return len(self.sequence)

    @classmethod
    def shipped(cls, name: str) -> Backbone:
        """Return one of the backbones that come with the library: ``1ubi`` or ``1ake``."""
        if name not in SHIPPED:
            raise ValueError(f"name must be one of {', '.join(SHIPPED)}, got {name!r}")
        return cls.load(_FOLDER / f"{name}.npz")

    @classmethod
    def named(cls, name: str | Path, chains: str | None = None) -> Backbone:
        """Return a shipped backbone by its name, or read a PDB file."""
        return cls.shipped(str(name)) if str(name) in SHIPPED else cls.from_pdb(name, chains)

    @property
    def distances(self) -> FloatArray:
        """Distances between alpha carbons in angstroms, shape ``(N, N)``."""
        places = np.asarray(self.coordinates[:, 1], dtype=np.float64)
        apart: FloatArray = np.linalg.norm(places[:, None] - places[None], axis=-1)
        return apart

    @classmethod
    def load(cls, file: str | Path) -> Backbone:
        """Read what :meth:`save` wrote."""
        try:
            found = read_arrays(file, _ARRAYS, MOST_BYTES)
            for name, kind in zip(_ARRAYS, "fiiUU", strict=True):
                if found[name].dtype.kind != kind or (kind == "U" and found[name].shape != ()):
                    raise ValueError(f"{name} cannot be of type {found[name].dtype}")
            coordinates, places, chain, sequence, label = (found[name] for name in _ARRAYS)
            return cls(coordinates, places, chain, str(sequence), str(label))
        except OSError:
            raise
        except Exception as problem:  # whatever a damaged archive makes zipfile and NumPy raise
            said = " ".join(str(problem).split())
            raise ValueError(
                f"{file} is not a backbone, or is damaged ({said:.200}); write one with "
                "Backbone.save"
            ) from problem

    def save(self, file: str | Path) -> None:
        """Write coordinates, places, chains and sequence as NumPy arrays."""
        with whole_file(file) as partial, partial.open("wb") as stream:
            np.savez_compressed(
                stream, allow_pickle=False, **{name: getattr(self, name) for name in _ARRAYS}
            )

    @classmethod
    def from_pdb(
        cls, file: str | Path, chains: str | None = None, *, name: str | None = None
    ) -> Backbone:
        """Read a PDB file: its first model, and of alternative places the first.

        Residues that lack one of the four atoms are left out, and leave a gap.

        Parameters
        ----------
        file : path
        chains : str, optional
            Letters of the chains to keep, in that order; all of them by default.
        name : str, optional
            By default the file's name without its ending.
        """
        path = Path(file)
        found = _read_residues(path)
        wanted = list(found) if chains is None else list(chains)
        missing = [letter for letter in wanted if letter not in found]
        if missing:
            known = ", ".join(found) or "none"
            raise ValueError(f"{path} has no chain {missing[0]!r} of residues; it has {known}")
        coordinates: list[list[list[float]]] = []
        places: list[int] = []
        chain_of: list[int] = []
        letters = ""
        for number, letter in enumerate(wanted, start=1):
            place = places[-1] + CHAIN_GAP if places else 0
            previous: int | None = None
            for residue in found[letter]:
                # An inserted residue repeats a number, and still is one further along.
                step = 0 if previous is None else max(1, residue.number - previous)
                place, previous = place + step, residue.number
                if all(atom in residue.atoms for atom in ATOMS):
                    coordinates.append([residue.atoms[atom] for atom in ATOMS])
                    places.append(place)
                    chain_of.append(number)
                    letters += LETTER_OF.get(residue.kind, "X")
        if not letters:
            raise ValueError(
                f"{path} has no residue with the four backbone atoms N, CA, C and O"
                + (f" in chain {chains}" if chains else "")
                + "; it must be a PDB file of a protein"
            )
        return cls(
            np.array(coordinates, dtype=np.float32),
            np.array(places, dtype=np.int64),
            np.array(chain_of, dtype=np.int64),
            letters,
            name or path.stem,
        )


@dataclass(slots=True)
class _Residue:
    """What a PDB file says of one residue."""

    number: int
    kind: str
    atoms: dict[str, list[float]]


def _read_residues(path: Path) -> dict[str, list[_Residue]]:
    """Read the residues of the first model, chain by chain, in the order of the file."""
    try:
        lines = read_bytes(path, MOST_BYTES).decode("ascii", errors="replace").splitlines()
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from problem
    found: dict[str, list[_Residue]] = {}
    seen: dict[tuple[str, str], _Residue] = {}
    for count, line in enumerate(lines, start=1):
        if line.startswith("ENDMDL"):
            break
        kind = line[17:20].strip()
        is_residue = line.startswith("ATOM") or (line.startswith("HETATM") and kind in LETTER_OF)
        atom = line[12:16].strip()
        if not is_residue or atom not in ATOMS:
            continue
        try:
            number = int(line[22:26])
            place = [float(line[low : low + 8]) for low in (30, 38, 46)]
        except ValueError as problem:
            raise ValueError(
                f"{path} is damaged in line {count}: an atom needs its residue number in columns "
                f"23-26 and coordinates in columns 31-54, got {line[:54].rstrip()!r}"
            ) from problem
        key = line[21], line[22:27]  # the insertion code is part of a residue's name
        if key not in seen:
            seen[key] = _Residue(number, kind, {})
            found.setdefault(line[21], []).append(seen[key])
        # Alternative places of an atom follow each other: the first is kept.
        seen[key].atoms.setdefault(atom, place)
    return found
