"""Backbones are chosen by length, each protein once, and fetched only as they were chosen."""

import gzip
import io
import json
import tarfile

import fetch_backbones as tool
import numpy as np
import pytest

from counterprobe.models.proteins.backbones import Backbone
from counterprobe.models.proteins.structures import STANDARD
from structure_files import pdb_of, residue

KINDS = sorted(STANDARD)


def structure(length, seed, *before, after=("END",), lacks=None):
    """Return a PDB file of random residues in a row; one of them may lack an atom."""
    chosen = np.random.default_rng(seed).choice(KINDS, length)
    lines = list(before)
    for k, kind in enumerate(chosen):
        missing = {"lacks": lacks} if lacks and k == 3 else {}
        lines += residue(str(kind), "A", k + 1, 1.5 * k, **missing)
    return "\n".join([*lines, *after, ""]).encode()


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """Put an archive where pip would have, with some files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tool, "ARCHIVES", {"Shelf": "1.0"})
    monkeypatch.setattr(tool, "LIST", tmp_path / "backbones.json")
    monkeypatch.setattr(tool, "COUNT", 2)
    folder = tmp_path / "counterprobe-sdists"
    folder.mkdir()

    def pack(**files):
        with tarfile.open(folder / "shelf-1.0.tar.gz", "w:gz") as packed:
            for name, content in files.items():
                member = tarfile.TarInfo(f"shelf-1.0/data/{name.replace('__', '.')}")
                member.size = len(content)
                packed.addfile(member, io.BytesIO(content))

    return pack


def test_the_nearest_length_is_taken_of_whole_files_and_no_protein_twice(archives, tmp_path):
    ubiquitin = pdb_of(Backbone.shipped("1ubi"), tmp_path).read_bytes()
    archives(
        **{
            "9aaa__pdb": structure(40, 1),
            "9bbb__pdb__gz": gzip.compress(structure(41, 1)),  # the same protein
            "9ccc__pdb": structure(70, 2),
            "9ddd__pdb": structure(36, 3, lacks="O"),
            "9eee__pdb": structure(37, 4, "HEADER    BROKEN OFF", after=()),
            "9fff__pdb": structure(35, 5),
            "1ubi__pdb": ubiquitin,  # shipped with the library
            "notes__txt": b"no structure",
            "9ggg__pdb": b"REMARK nothing\nEND\n",
        }
    )
    assert tool.main([str(tmp_path / "out"), "--choose"]) == 0
    listed = json.loads(tool.LIST.read_text())["backbones"]
    assert [(one["name"], one["residues"]) for one in listed] == [("9aaa", 40), ("9ccc", 70)]
    assert len(Backbone.load(tmp_path / "out" / "9ccc.npz")) == 70


def test_a_file_that_is_not_the_one_chosen_is_refused(archives, tmp_path, capsys):
    archives(**{"9aaa__pdb": structure(40, 1), "9ccc__pdb": structure(70, 2)})
    assert tool.main([str(tmp_path / "out"), "--choose"]) == 0
    archives(**{"9aaa__pdb": structure(40, 7), "9ccc__pdb": structure(70, 2)})
    assert tool.main([str(tmp_path / "out")]) == 0  # what is there stays
    assert tool.main([str(tmp_path / "elsewhere")]) == 2
    assert "it is another file than the one that was chosen" in capsys.readouterr().err
    archives(**{"9ccc__pdb": structure(70, 2)})
    assert tool.main([str(tmp_path / "elsewhere")]) == 2
    assert "does not hold data/9aaa.pdb" in capsys.readouterr().err


def test_too_few_proteins_are_an_error(archives, tmp_path, capsys):
    archives(**{"9aaa__pdb": structure(40, 1)})
    assert tool.main([str(tmp_path / "out"), "--choose"]) == 2
    assert "no more than 1 proteins, 2 are wanted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("data/pdb3enl.pdb", "3enl"),
        ("data/dssp/3a4rA.pdb.gz", "3a4r"),
        ("data/merge/2zmm/protein.pdb", "2zmm"),
        ("data/4E43.pdb", "4e43"),
        ("words/only.pdb", "only"),
    ],
)
def test_an_entry_is_called_by_its_code(path, code):
    assert tool.code_of(path) == code


def test_the_list_holds_twelve_proteins_of_all_lengths_and_a_complex():
    chosen = tool.read_list()
    sizes = [one.residues for one in chosen]
    assert len({one.name for one in chosen}) == 12 and sizes == sorted(sizes)
    assert sizes[0] >= tool.SHORTEST and sizes[-1] <= tool.LONGEST
    assert 436 in sizes and any(one.chains > 1 for one in chosen)
