"""Structure files: from PDB and mmCIF to a backbone, read by gemmi.

What a file can say of a residue is more than where it is: that it has two places, that it was
modified, that it stands between others with a letter behind its number, that an atom of it was not
seen, or that it is part of the chain and none of it was. gemmi (Wojdyr, JOSS 2022) reads both
formats; here it is decided what becomes a position, and what is said about the rest.

- Every residue of a protein chain with at least one atom is a position. One that lacks N, CA, C or
  O is unmodelled: its letter is known, its place is not.
- Of alternative places, and of alternative residues at one place, those of the highest occupancy
  count, all atoms of a residue from the same alternative.
- A modified residue has the letter of the amino acid that it was made from: selenomethionine is M.
- Residues without any atom are no positions unless gaps are filled; they leave a gap in
  ``residue_index``, and the break is noted.
- Waters, ligands, nucleic acids and caps of a chain (ACE, NH2) are left out.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from counterprobe.extras import load_extra
from counterprobe.files import read_bytes
from counterprobe.models.letters import AMINO_ACIDS
from counterprobe.models.proteins import backbones
from counterprobe.models.proteins.backbones import ATOMS, LONGEST_BOND, Backbone, listed

__all__ = ["read_backbone"]

# Residue numbers of two chains are this far apart, so that no chain looks like a continuation.
CHAIN_GAP = 100
# Numbers that may be filled in between two residues: more are no loop that was not seen.
LONGEST_GAP = 1000
# Angstroms from the origin beyond which there is no atom, but damage.
FARTHEST = 1e6
# How packed files begin, what unpacks them, and what is raised for damage in them.
PACKED: Mapping[bytes, Callable[[io.BytesIO], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
SPOILED = zlib.error, lzma.LZMAError
NOWHERE = (float("nan"),) * 3
STANDARD = frozenset(
    "ALA CYS ASP GLU PHE GLY HIS ILE LYS LEU MET ASN PRO GLN ARG SER THR VAL TRP TYR".split()
)


@dataclass(frozen=True, slots=True)
class Residue:
    """What a file says of one residue.

    Attributes
    ----------
    number : int
    insertion : str
        A letter, or a space.
    kind : str
        Of three letters; empty for a residue that only the file's sequence names.
    letter : str
    places : tuple of tuple of float
        Of N, CA, C and O; NaN where there is none.
    label : int or None
        Where it stands in the file's own sequence, from 1.
    has_alternatives : bool
    """

    number: int
    insertion: str
    kind: str
    letter: str
    places: tuple[tuple[float, ...], ...]
    label: int | None
    has_alternatives: bool = False

    @property
    def code(self) -> str:
        """Its number and insertion code."""
        return f"{self.number}{self.insertion}".strip()


def read_backbone(
    file: str | Path,
    chains: str | Sequence[str] | None = None,
    *,
    fill_gaps: bool = False,
    name: str | None = None,
) -> Backbone:
    """Read the backbone of some chains; see :meth:`Backbone.from_file`."""
    gemmi = load_extra("gemmi", "structures", "reading a structure file")
    path = Path(file)
    structure = _parse(gemmi, path)
    found, sequences, left_out = {}, {}, []
    for chain in structure[0] if len(structure) else ():
        polymer = chain.get_polymer()
        residues = list(_residues(gemmi, chain, path))
        if residues:
            found[chain.name] = residues
            entity = structure.get_entity_of(polymer)
            sequences[chain.name] = _letters(gemmi, entity.full_sequence if entity else [])
        elif len(polymer):
            left_out.append(chain.name)
    wanted = _wanted(chains, list(found), path)
    remarks = _remarks(len(structure), {one: found[one] for one in wanted}, left_out, sequences)
    if fill_gaps:
        found = {one: _filled(one, found[one], sequences[one]) for one in wanted}
    return _joined({one: found[one] for one in wanted}, name or _stem(path), remarks)


def _stem(path: Path) -> str:
    """Return the name of a file without its endings: ``1ubi`` for ``1ubi.cif.gz``."""
    return Path(path.stem).stem if path.suffix in (".gz", ".bz2", ".xz") else path.stem


def _parse(gemmi: Any, path: Path) -> Any:
    """Let gemmi read a file of either format."""
    try:
        content = read_bytes(path, backbones.MOST_BYTES)
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from problem
    try:
        content = _unpacked(content)
        structure = gemmi.read_structure_string(content, format=gemmi.CoorFormat.Detect)
        structure.setup_entities()
        structure.assign_label_seq_id()
    except (RuntimeError, ValueError, OSError, EOFError, IndexError, *SPOILED) as problem:
        said = " ".join(str(problem).split())
        raise ValueError(f"{path} cannot be read as a PDB or mmCIF file: {said:.200}") from problem
    return structure


def _unpacked(content: bytes) -> bytes:
    """Unpack what gzip, bzip2 or xz made, as far as a file may be large."""
    for begins, unpack in PACKED.items():
        if content.startswith(begins):
            with unpack(io.BytesIO(content)) as stream:
                content = stream.read(backbones.MOST_BYTES + 1)
            if len(content) > backbones.MOST_BYTES:
                raise ValueError(f"it unpacks to more than {backbones.MOST_BYTES:,} bytes")
            break
    return content


def _wanted(chains: str | Sequence[str] | None, known: list[str], path: Path) -> list[str]:
    """Return the names of the chains to keep, in the order asked for."""
    had = ", ".join(known)
    if not known:
        raise ValueError(
            f"{path} has no residue of a protein; it must be a PDB or mmCIF file of one"
        )
    if chains is None:
        return known
    names = chains.split(",") if isinstance(chains, str) else list(chains)
    names = [name.strip() for name in names]
    if not names:
        raise ValueError(f"chains must name at least one chain, got none; {path} has {had}")
    for name in names:
        if name not in known:
            letters = ",".join(name)
            hint = f"; separate names by commas, {letters}" if set(name) <= set(known) else ""
            raise ValueError(f"{path} has no protein chain {name!r}; it has {had}{hint}")
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"chains must be named once each, got {repeated[0]!r} twice")
    return names


# ----- Residues -----------------------------------------------------------------------------


def _residues(gemmi: Any, chain: Any, path: Path) -> Iterator[Residue]:
    """Yield the residues of a chain, in the order of the file."""
    acids = [one for one in chain if _is_of_protein(gemmi, one)]
    kept = []
    for k, one in enumerate(acids):
        # A chain that a file ends too early goes on; an amino acid that is a ligand has no bond.
        if one.entity_type == gemmi.EntityType.Polymer or one.het_flag == "A":
            kept.append(one)
        elif any(_are_joined(*pair) for pair in pairwise(acids[max(0, k - 1) : k + 2])):
            kept.append(one)
    for _, group in groupby(kept, key=lambda one: str(one.seqid)):
        ways = [way for residue in group for way in _ways(residue)]
        # The first of the likeliest, so that a file without occupancies is read as it stands.
        residue, atoms, _ = max(ways, key=lambda way: way[2])
        places = tuple(tuple(atoms[one]) if one in atoms else NOWHERE for one in ATOMS)
        is_somewhere = all(abs(x) < FARTHEST for one in atoms.values() for x in one)
        if residue.seqid.num is None or not is_somewhere:
            what = "an atom that is nowhere" if residue.seqid.num is not None else "no number"
            raise ValueError(f"{path} is damaged: residue {str(residue)!r} has {what}")
        yield Residue(
            residue.seqid.num,
            residue.seqid.icode,
            residue.name,
            _letters(gemmi, [residue.name]),
            places,
            residue.label_seq,
            has_alternatives=len(ways) > 1,
        )


def _is_of_protein(gemmi: Any, residue: Any) -> bool:
    """Whether a part of a chain is an amino acid; one that nobody knows has an alpha carbon."""
    known = gemmi.find_tabulated_residue(residue.name)
    if known.found():
        return bool(known.is_amino_acid())
    return any(atom.name == "CA" for atom in residue)


def _are_joined(before: Any, after: Any) -> bool:
    """Whether some place of a residue's carbon is bonded to some place of another's nitrogen."""
    return any(
        carbon.pos.dist(nitrogen.pos) <= LONGEST_BOND
        for carbon in before
        if carbon.name == "C"
        for nitrogen in after
        if nitrogen.name == "N"
    )


def _ways(residue: Any) -> Iterator[tuple[Any, dict[str, Any], float]]:
    """Yield every alternative of a residue: its backbone atoms, and their occupancy together."""
    mine = [atom for atom in residue if atom.name in ATOMS]
    names = list(dict.fromkeys(atom.altloc for atom in mine if atom.altloc != "\0"))
    for name in names or ["\0"]:
        atoms: dict[str, Any] = {}
        occupancy = 0.0
        for atom in sorted(mine, key=lambda one: one.altloc == "\0"):
            if atom.altloc in (name, "\0") and atom.name not in atoms:
                atoms[atom.name] = atom.pos.tolist()
                occupancy += atom.occ
        yield residue, atoms, occupancy


def _letters(gemmi: Any, kinds: Sequence[str]) -> str:
    """Return the letters of residues by their longer names, ``X`` where there is none."""
    # Where a sequence has alternatives they are joined by commas.
    names = (kind.partition(",")[0] for kind in kinds)
    letters = (gemmi.find_tabulated_residue(name).one_letter_code.upper() for name in names)
    return "".join(one if one and one in AMINO_ACIDS else "X" for one in letters)


def _filled(chain: str, residues: Sequence[Residue], sequence: str) -> list[Residue]:
    """Put unmodelled residues where numbers of a broken chain are left out."""
    filled = [residues[0]]
    for before, after in pairwise(residues):
        count = after.number - before.number - 1
        if count > 0 and not _are_bonded(before, after):
            if count > LONGEST_GAP:
                raise ValueError(
                    f"the gap between {chain}{before.code} and {chain}{after.code} is too long to "
                    f"be filled, {count} numbers and not at most {LONGEST_GAP}; leave gaps as "
                    "they are"
                )
            letters = _between(before, after, sequence, count)
            filled.extend(
                Residue(before.number + 1 + k, " ", "", letter, (NOWHERE,) * len(ATOMS), None)
                for k, letter in enumerate(letters)
            )
        filled.append(after)
    return filled


def _are_bonded(before: Residue, after: Residue) -> bool:
    """Whether two residues are known to be joined by a peptide bond."""
    return math.dist(before.places[2], after.places[0]) <= LONGEST_BOND


def _between(before: Residue, after: Residue, sequence: str, count: int) -> str:
    """Return the letters of a gap, where the file's sequence has as many of them."""
    if before.label is not None and after.label is not None:
        letters = sequence[before.label : after.label - 1]
        if len(letters) == count:
            return letters
    return "X" * count


# ----- All of them --------------------------------------------------------------------------


def _joined(
    chains: Mapping[str, Sequence[Residue]], name: str, remarks: tuple[str, ...]
) -> Backbone:
    """Make one backbone of chains."""
    index: list[int] = []
    for residues in chains.values():
        place = index[-1] + CHAIN_GAP if index else 0
        index.append(place)
        for before, after in pairwise(residues):
            # An inserted residue repeats a number, and still is one further along.
            place += max(1, after.number - before.number)
            index.append(place)
    every = [residue for residues in chains.values() for residue in residues]
    counts = [len(residues) for residues in chains.values()]
    return Backbone(
        np.array([residue.places for residue in every], dtype=np.float32),
        np.array(index, dtype=np.int64),
        np.repeat(np.arange(1, len(chains) + 1), counts),
        "".join(residue.letter for residue in every),
        name,
        np.array([residue.number for residue in every], dtype=np.int64),
        "".join(residue.insertion for residue in every),
        tuple(chains),
        remarks,
    )


def _remarks(
    num_models: int,
    chains: Mapping[str, Sequence[Residue]],
    left_out: Sequence[str],
    sequences: Mapping[str, str],
) -> tuple[str, ...]:
    """Say what reading a file had to decide."""
    every = [(chain, residue) for chain, residues in chains.items() for residue in residues]
    remarks = []
    if num_models > 1:
        remarks.append(f"the first of {num_models} models was read")
    if left_out:
        remarks.append(f"without a protein, and left out: chain {', '.join(left_out)}")
    several = [chain + one.code for chain, one in every if one.has_alternatives]
    if several:
        remarks.append(f"of alternative places that of the highest occupancy: {listed(several)}")
    modified = [
        f"{one.kind} at {chain}{one.code} as {one.letter}"
        for chain, one in every
        if one.kind not in STANDARD
    ]
    if modified:
        remarks.append(f"read for what they were made from: {listed(modified)}")
    for chain, residues in chains.items():
        labels = [one.label for one in residues if one.label is not None]
        before, after = (labels[0] - 1, len(sequences[chain]) - labels[-1]) if labels else (0, 0)
        for count, where, one in ((before, "before", residues[0]), (after, "after", residues[-1])):
            if count > 0:
                remarks.append(
                    f"the file names {count} residue{'s' if count > 1 else ''} {where} "
                    f"{chain}{one.code} that it has no atom of"
                )
    return tuple(remarks)
