"""Protein backbones: where the atoms N, CA, C and O of every residue are.

Inverse folding asks which sequences fold into a backbone. Backbones come from structure files
(``structures.py`` reads them); two small ones are shipped, ubiquitin (``1ubi``, 76 residues) and
adenylate kinase (``1ake``, chain A, 214 residues). Entries of the Protein Data Bank are in the
public domain (CC0).

Every residue is a position, also one of which the file lacks an atom: such a residue is
*unmodelled*, its letter is known, and networks are told that they do not know where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterprobe.archives import read_arrays
from counterprobe.arrays import BoolArray, IntArray
from counterprobe.files import whole_file

__all__ = ["ATOMS", "SHIPPED", "Backbone", "listed"]

FloatArray = NDArray[np.float32]

ATOMS = ("N", "CA", "C", "O")
SHIPPED = ("1ubi", "1ake")
# Bytes of a file that is read: the largest entries in the format of 1996 have a tenth of it.
MOST_BYTES = 1 << 27
# Angstroms between the carbon of a residue and the nitrogen of the next: half as much again as a
# peptide bond is long.
LONGEST_BOND = 2.0
_FOLDER = Path(__file__).parent / "data"

# Arrays of a file, and of what kind each is.
_ARRAYS = {
    "coordinates": "f",
    "residue_index": "i",
    "chain": "i",
    "numbers": "i",
    "sequence": "U",
    "insertions": "U",
    "chain_ids": "U",
    "name": "U",
    "remarks": "U",
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Backbone:
    """The backbone of a protein, of one chain or several.

    Attributes
    ----------
    coordinates : ndarray of float, shape (N, 4, 3)
        Positions of N, CA, C and O in angstroms; NaN where the file has none.
    residue_index : ndarray of int, shape (N,)
        Place along the chain: neighbours differ by one, and missing residues leave a gap.
    chain : ndarray of int, shape (N,)
        Which chain each residue belongs to, from 1.
    sequence : str
        The residues in the file, ``X`` where unknown.
    name : str
    numbers : ndarray of int, shape (N,)
        What the file calls each residue, together with its insertion code.
    insertions : str
        The insertion code of each residue, a space where there is none.
    chain_ids : tuple of str
        What the file calls each chain.
    remarks : tuple of str
        What reading the file had to decide, in sentences.

    Examples
    --------
    >>> backbone = Backbone.shipped("1ubi")
    >>> backbone
    Backbone('1ubi': 76 residues, 1 chain, MQIFVKTLTG...)
    >>> backbone.labels[:2]
    ('A1', 'A2')
    >>> print(backbone.part(range(9, 14)))
    1ubi: 5 residues, all modelled
    chain A, 10 to 14: GKTIT
    """

    coordinates: FloatArray
    residue_index: IntArray
    chain: IntArray
    sequence: str
    name: str
    numbers: IntArray
    insertions: str
    chain_ids: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the shapes and freeze the arrays."""
        count = len(self.sequence)
        if self.coordinates.shape != (count, 4, 3) or np.isinf(self.coordinates).any():
            raise ValueError(
                f"coordinates must be numbers, NaN for a missing atom, of shape ({count}, 4, 3) "
                f"for {count} residues; got shape {self.coordinates.shape}"
            )
        for label in ("residue_index", "chain", "numbers"):
            if getattr(self, label).shape != (count,):
                raise ValueError(
                    f"{label} must have shape ({count},), got {getattr(self, label).shape}"
                )
        if len(self.insertions) != count:
            raise ValueError(
                f"insertions must have one letter for each of {count} residues, got "
                f"{len(self.insertions)}"
            )
        if count == 0 or self.chain.min() < 1 or self.chain.max() > len(self.chain_ids):
            raise ValueError(
                f"chain must number the {len(self.chain_ids)} chains of chain_ids from 1, for at "
                f"least one residue; got {np.unique(self.chain)}"
            )
        for array in (self.coordinates, self.residue_index, self.chain, self.numbers):
            array.setflags(write=False)

    def __repr__(self) -> str:
        """Say how large it is."""
        start = self.sequence[:10] + ("..." if len(self) > 10 else "")
        return (
            f"Backbone({self.name!r}: {len(self)} residues, {len(self.chain_ids)} "
            f"chain{'s' if len(self.chain_ids) > 1 else ''}, {start})"
        )

    def __str__(self) -> str:
        """Say what it holds in a few lines: chains with their numbers, and what is missing."""
        missing = int((~self.is_modelled).sum())
        said = "all modelled" if missing == 0 else f"{missing} of them unmodelled"
        lines = [f"{self.name}: {len(self)} residue{'s' if len(self) > 1 else ''}, {said}"]
        for number, chain_id in enumerate(self.chain_ids, start=1):
            mine = np.flatnonzero(self.chain == number)
            low, high = (self._number(int(k)) for k in mine[[0, -1]])
            letters = "".join(self.sequence[k] for k in mine)
            lines.append(f"chain {chain_id}, {low} to {high}: {letters}")
        return "\n".join([*lines, *self.notes])

    def __len__(self) -> int:
        """Return the number of residues."""
        return len(self.sequence)

    # ----- What it says ----------------------------------------------------------------------

    @property
    def is_modelled(self) -> BoolArray:
        """Whether the file has all four atoms of each residue, shape ``(N,)``."""
        return self.has(slice(0, 4))

    def has(self, atoms: slice) -> BoolArray:
        """Return whether the file has some of the four atoms of each residue, shape ``(N,)``."""
        return np.asarray(np.isfinite(self.coordinates[:, atoms]).all(axis=(1, 2)))

    @property
    def labels(self) -> tuple[str, ...]:
        """Chain, number and insertion code of each residue, such as ``A52`` and ``A52B``."""
        ids = [self.chain_ids[k - 1] for k in self.chain]
        return tuple(one + code for one, code in zip(ids, self.codes, strict=True))

    @property
    def short_labels(self) -> tuple[str, ...]:
        """The same without the chain, where there is but one."""
        return self.labels if len(self.chain_ids) > 1 else self.codes

    @property
    def codes(self) -> tuple[str, ...]:
        """Number and insertion code of each residue."""
        return tuple(self._number(k) for k in range(len(self)))

    def _number(self, position: int) -> str:
        return f"{self.numbers[position]}{self.insertions[position].strip()}"

    @property
    def breaks(self) -> IntArray:
        """Positions whose residue is not bonded to the next one of its chain.

        Where an atom of the bond is missing, residue numbers that skip some count as a break.
        """
        carbon, nitrogen = self.coordinates[:-1, 2], self.coordinates[1:, 0]
        bond = np.linalg.norm(carbon.astype(np.float64) - nitrogen, axis=-1)
        is_apart = np.where(np.isnan(bond), np.diff(self.residue_index) > 1, bond > LONGEST_BOND)
        return np.flatnonzero(is_apart & (np.diff(self.chain) == 0))

    @property
    def stretches(self) -> tuple[tuple[int, str], ...]:
        """Where each unbroken piece of a chain begins, and what the file calls its chain."""
        ends = np.union1d(self.breaks, np.flatnonzero(np.diff(self.chain)))
        starts = [0, *(int(k) + 1 for k in ends)]
        return tuple((k, self.chain_ids[self.chain[k] - 1]) for k in starts)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a designer should know: unmodelled residues, breaks, what reading decided."""
        return self.notes_for(self.is_modelled)

    def notes_for(self, is_known: BoolArray) -> tuple[str, ...]:
        """Return the notes for a network that knows where these residues are, shape ``(N,)``."""
        labels, notes = self.labels, []
        unknown = self.lacking(is_known)
        if unknown is not None:
            notes.append(unknown)
        breaks = self.breaks
        if len(breaks):
            named = listed([f"between {labels[k]} and {labels[k + 1]}" for k in breaks])
            notes.append(f"a chain is broken {named}")
        return (*notes, *self.remarks)

    def lacking(self, is_known: BoolArray) -> str | None:
        """Name the residues that a network does not know the place of; None for none."""
        unknown = np.flatnonzero(~is_known)
        if not len(unknown):
            return None
        named, end = listed([self.labels[k] for k in unknown]), "s" if len(unknown) == 1 else ""
        return f"{named} lack{end} a backbone atom, so unmodelled: not designed unless named alone"

    @property
    def alpha_carbons(self) -> NDArray[np.float64]:
        """Where the alpha carbons are, shape ``(N, 3)``; a missing one lies between neighbours."""
        places = np.array(self.coordinates[:, 1], dtype=np.float64)
        is_known = np.isfinite(places).all(axis=1)
        centre = places[is_known].mean(axis=0) if is_known.any() else np.zeros(3)
        for number in np.unique(self.chain[~is_known]):
            known = np.flatnonzero(is_known & (self.chain == number))
            known = known[np.argsort(self.residue_index[known], kind="stable")]
            missing = ~is_known & (self.chain == number)
            places[missing] = centre
            for axis in range(3 if len(known) else 0):
                places[missing, axis] = np.interp(
                    self.residue_index[missing], self.residue_index[known], places[known, axis]
                )
        return places

    @property
    def distances(self) -> NDArray[np.float64]:
        """Distances between alpha carbons in angstroms, shape ``(N, N)``."""
        places = self.alpha_carbons
        apart: NDArray[np.float64] = np.linalg.norm(places[:, None] - places[None], axis=-1)
        return apart

    # ----- Making one ------------------------------------------------------------------------

    def part(self, positions: Sequence[int], name: str | None = None) -> Backbone:
        """Return the backbone of some residues, in the order given; remarks stay with the whole.

        Parameters
        ----------
        positions : sequence of int
        name : str, optional
            By default that of the whole.
        """
        chosen = np.asarray(positions, dtype=np.int64)
        kept, chain = np.unique(self.chain[chosen], return_inverse=True)
        return Backbone(
            self.coordinates[chosen],
            self.residue_index[chosen],
            chain.astype(np.int64) + 1,
            "".join(self.sequence[k] for k in chosen),
            name or self.name,
            self.numbers[chosen],
            "".join(self.insertions[k] for k in chosen),
            tuple(self.chain_ids[k - 1] for k in kept),
        )

    @classmethod
    def shipped(cls, name: str) -> Backbone:
        """Return one of the backbones that come with the library: ``1ubi`` or ``1ake``."""
        if name not in SHIPPED:
            raise ValueError(f"name must be one of {', '.join(SHIPPED)}, got {name!r}")
        return cls.load(_FOLDER / f"{name}.npz")

    @classmethod
    def named(
        cls,
        name: str | Path | None,
        chains: str | Sequence[str] | None = None,
        *,
        fill_gaps: bool = False,
    ) -> Backbone:
        """Return a shipped backbone by its name, or read a file: a structure, or a saved one."""
        if name is None:
            raise ValueError(
                "a backbone must be given: a PDB or mmCIF file, backbone='my.pdb' (--backbone "
                f"my.pdb), or one of the shipped examples by its name, {' or '.join(SHIPPED)}"
            )
        if str(name) in SHIPPED or Path(name).suffix == ".npz":
            if chains is not None or fill_gaps:
                raise ValueError(
                    "chains are chosen, and gaps filled, when a structure file is read; leave out "
                    f"{'chains' if chains is not None else 'fill_gaps'} for {str(name)!r}"
                )
            return cls.shipped(str(name)) if str(name) in SHIPPED else cls.load(name)
        return cls.from_file(name, chains, fill_gaps=fill_gaps)

    @classmethod
    def from_file(
        cls,
        file: str | Path,
        chains: str | Sequence[str] | None = None,
        *,
        fill_gaps: bool = False,
        name: str | None = None,
    ) -> Backbone:
        """Read a structure file, PDB or mmCIF, plain or packed (gzip, bzip2, xz); needs gemmi.

        Of several models the first is read, and of alternative places of a residue that of the
        highest occupancy. Every residue of a chain that the file has an atom of is a position.

        Parameters
        ----------
        file : path
        chains : str or sequence of str, optional
            Names of the chains to keep, in that order, such as ``"B,A"``; all of them by default.
        fill_gaps : bool
            Whether residues that the file leaves out within a chain, as its numbers tell, become
            unmodelled positions too. Their letters come from the file's own sequence (SEQRES)
            where it has one, and are ``X`` otherwise.
        name : str, optional
            By default the file's name without its ending.
        """
        from counterprobe.models.proteins.structures import read_backbone  # gemmi, when needed

        return read_backbone(file, chains, fill_gaps=fill_gaps, name=name)

    @classmethod
    def load(cls, file: str | Path) -> Backbone:
        """Read what :meth:`save` wrote."""
        try:
            found = read_arrays(file, _ARRAYS, MOST_BYTES)
            for name, kind in _ARRAYS.items():
                if found[name].dtype.kind != kind:
                    raise ValueError(f"{name} cannot be of type {found[name].dtype}")
            return cls(
                found["coordinates"],
                found["residue_index"],
                found["chain"],
                _text(found["sequence"]),
                _text(found["name"]),
                found["numbers"],
                _text(found["insertions"]),
                tuple(_text(found["chain_ids"]).split("\n")),
                tuple(line for line in _text(found["remarks"]).split("\n") if line),
            )
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
        values = {name: getattr(self, name) for name in _ARRAYS}
        # NumPy keeps the spaces at the end of a string that is alone, not of one among several.
        values |= {name: "\n".join(values[name]) for name in ("chain_ids", "remarks")}
        with whole_file(file) as stream:
            np.savez_compressed(stream, allow_pickle=False, **values)


def _text(array: NDArray[np.str_]) -> str:
    if array.shape != ():
        raise ValueError(f"a text cannot be of shape {array.shape}")
    return str(array)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Join names for a sentence; the last few of very many are counted."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
