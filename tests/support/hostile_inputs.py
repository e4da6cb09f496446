"""Files that nobody should trust: how each kind is read, and what valid ones to spoil.

Reading must end in a valid object or in a documented error of one line: a ``ValueError`` or one of
the library's own. Whatever else is raised is a defect, and so are hangs and memory without bound.
"""

import gzip
import io
import json
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.cli.options import read_sequence
from counterprobe.cli.reproduce import read_result
from counterprobe.errors import CounterprobeError
from counterprobe.models.letters import AMINO_ACIDS, Letters
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.models.proteins.structures import read_backbone
from counterprobe.models.residues import choose_in_text
from counterprobe.oracles.cache import Cache
from counterprobe.plain import differences
from counterprobe.run import Probe
from counterprobe.study import Store, read_config
from counterprobe.study.config import config_from_dict
from counterprobe.study.export import COLUMNS, read_rows, write_rows
from counterprobe.trace import load_trace, replay, thin
from counterprobe.trace.document import Trace, write_trace
from counterprobe.trace.page import fill_page

DOCUMENTED = (ValueError, CounterprobeError)
TEMPLATE = '<script type="application/json" id="trace-data"></script>'
EDGES = b"# a forest\n0 1\n1 2 0.5\n3 4 -0.25\n"
STUDY = b"""
name = "mine"
families = ["path", "matching"]
sizes = [48, 64]
candidates = 2
[seeds]
development_draws = [171, 172]
[reference]
length = 64
draws = [1, 2]
[random]
width = 0.1
[[grid.packed]]
num_colors = [4, 5]
degree_cutoff = 8
votes = {degree = 2, miss = 0.1}
"""
ATOM = "ATOM  {0:5d}  {1:<3s} ALA A{2:4d}    {3:8.3f}{4:8.3f}{5:8.3f}  1.00  0.00"
PDB = "\n".join(
    ATOM.format(4 * k + j, name, k + 1, 3.8 * k, float(j), 0.5)
    for k in range(3)
    for j, name in enumerate(("N", "CA", "C", "O"))
).encode()
SITE = (
    "group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id label_seq_id "
    "Cartn_x Cartn_y Cartn_z occupancy auth_seq_id auth_asym_id"
)
MMCIF = (
    "data_x\nloop_\n"
    + "".join(f"_atom_site.{name}\n" for name in SITE.split())
    + "".join(
        f"ATOM {4 * k + j} {name[0]} {name} . ALA A {k + 1} {3.8 * k} {j} 0.5 1 {k + 1} A\n"
        for k in range(3)
        for j, name in enumerate(("N", "CA", "C", "O"))
    )
).encode()
HEADER = {"length": 3, "vocab_size": 2, "sampler": "hand", "title": "a <b> title"}
EVENTS = [
    {"type": "commit", "positions": [0], "tokens": [1], "ledger": [0, 0, 1, 1, 1]},
    {"type": "graph", "pairs": [[0, 1]], "status": [1]},
    {"type": "remask", "positions": [0], "ledger": [0, 0, 1, 1, 1]},
    {"type": "end", "stop": "completed"},
]
RECORD = {
    "family": "path", "n": 16, "seed": 1, "tokens": None, "settings": {}, "evaluations": 16,
    "made_by": {
        "command": "sample", "options": {"n": 16, "seed": 1, "settings": ["a=b"], "weight": 0.5},
        "versions": {"numpy": "2"},
    },
}  # fmt: skip


# ----- One reader a kind --------------------------------------------------------------------


def _read_edges(file: Path) -> None:
    law = cp.families.from_file(file)
    assert law.length >= 2


def _read_study(file: Path) -> None:
    config = read_config(file)
    assert config_from_dict(config.as_dict(), "again") == config


def _read_structure(file: Path) -> None:
    assert cp.Structure.load(file).length >= 1


def _read_trace(file: Path) -> None:
    trace = load_trace(file)
    replay(trace)
    assert fill_page(TEMPLATE, [trace]).count("<") == 2
    thin(trace, 10_000_000)


def _read_file(file: Path) -> None:
    backbone = read_backbone(file)
    assert np.isfinite(backbone.alpha_carbons).all() and len(str(backbone))
    read_backbone(file, fill_gaps=True)


def _read_backbone(file: Path) -> None:
    backbone = Backbone.load(file)
    assert len(repr(backbone)) and len(str(backbone))


def _read_rows(file: Path) -> None:
    for row in read_rows(file):
        for name, kind in COLUMNS.items():
            assert row[name] is None or isinstance(row[name], kind)


def _read_store(file: Path) -> None:
    with Store(file) as store:
        for name in store.studies():
            store.config(name)
            store.tuning(name)
        assert len(store.records()) == len(store)


def _read_fasta(file: Path) -> None:
    letters = Letters(AMINO_ACIDS, tuple(range(20)), mask_id=20)
    template = letters.template(read_sequence(f"@{file}") or "", max_length=10_000)
    assert len(template.given) >= 1


def _read_rules(file: Path) -> None:
    letters = Letters(AMINO_ACIDS, tuple(range(20)), mask_id=20)
    template = choose_in_text(letters.template("EVQLXXSX"), rules=file)
    assert template.permitted is None or template.permitted.any(axis=1).all()
    assert template.bias is None or np.isfinite(template.bias.astype(np.float32)).all()


def _read_record(file: Path) -> None:
    result = read_result(str(file))
    assert not dict(differences(result, result))


class _Mixed(AttentiveLaw):
    """A law that replies in every way: with attention, by classes, and token by token."""

    def ask(self, query):
        reply = super().ask(query)
        if len(query.readouts) != 2:
            return reply
        return cp.Reply(cp.rows.DenseRows(reply.rows.dense()), reply.attention)


def cached_run(file: Path) -> cp.SampleResult:
    """Run on a cache that has every kind of reply."""
    law = cp.ForestLaw([[1, 2], [2, 1], [1, 1]], [[0, 1]], [[[2, 1], [1, 2]]])
    mixed = _Mixed(law.oracle(), np.full((3, 3), 0.25))
    with Cache(mixed, file) as oracle:
        run = cp.run.Run(oracle)
        run.do(Probe([[0, cp.MASK, cp.MASK]], [1, 2]))
        return cp.samplers.DAPD()(run, cp.Streams(1, 2))


def _valid_cache(file: Path) -> None:
    cached_run(file)
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA journal_mode = DELETE")


def _read_replies(file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", cp.errors.ZeroProbabilityWarning
        )  # somebody may have put it there
        assert cached_run(file).tokens is not None


# ----- Valid files --------------------------------------------------------------------------


def _written(suffix: str, write: Callable[[Path], object], folder: Path) -> bytes:
    file = folder / f"valid{suffix}"
    write(file)
    return file.read_bytes()


def _valid_store(file: Path) -> None:
    config = config_from_dict({"name": "mine", "families": ["path"], "sizes": [64]}, "x")
    with Store(file, create=True) as store:
        store.register(config)
        store.add({"work": "trial", "n": 64}, {"evaluations": 3}, {"total": 0.5})
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA journal_mode = DELETE")


def valid_files(folder: Path) -> dict[str, bytes]:
    """Return a valid file of every kind that needs no search to make; by kind."""
    trace = Trace(HEADER, EVENTS)
    backbone = Backbone(
        np.zeros((2, 4, 3), dtype=np.float32), np.arange(2), np.ones(2, dtype=np.int64), "AC", "b",
        np.arange(5, 7), " A", ("H",), ("a remark",),
    )  # fmt: skip
    blank = {str: "a", int: 1, float: 0.5, bool: True}
    rows = [{name: blank[kind] for name, kind in COLUMNS.items()}]
    plain = json.dumps(RECORD).encode()
    return {
        "edges": EDGES,
        "study": STUDY,
        "trace": _written(".json", lambda file: write_trace(trace, file), folder),
        "trace gzip": gzip.compress("".join(trace.lines()).encode(), mtime=0),
        "pdb": PDB,
        "mmcif": MMCIF,
        "backbone": _written(".npz", backbone.save, folder),
        "rows csv": _written(".csv", lambda file: write_rows(rows, file), folder),
        "rows parquet": _written(".parquet", lambda file: write_rows(rows, file), folder),
        "store": _written(".db", _valid_store, folder),
        "rules": b"# where, what\n2-4 AVL # few\n5,7 -CP W:0.5\n*\tDE:-1e1\n",
        "fasta": b">a chain\nEVQLVESX\n[MASK]GG\n",
        "record": plain,
        "structure": _valid_structure(),
        "replies": _written(".sqlite", _valid_cache, folder),
    }


def _valid_structure() -> bytes:
    """Return the file of a structure of two positions, made from its fields."""
    from counterprobe.discovery import Certificate
    from counterprobe.discovery.structure_file import FORMAT, arrays_of, digest

    sizes = {"N": 2, "E": 1, "2": 2, "S": 1, "R": 1, "W": 3, "C": 0, "D": 0}
    layout = {**arrays_of(cp.Structure), **arrays_of(Certificate)}
    arrays = {
        name: np.zeros([sizes[letter] for letter in how.shape], dtype=how.dtype)
        for name, how in layout.items()
    }
    arrays["edges"][:] = [[0, 1]]
    arrays["given"][:] = arrays["sample_states"][:] = -1
    header = {
        "format": FORMAT, "vocab_size": 3, "needed": 1, "reason": "", "ledger": {"probes": 1},
        "row_width": 3, "row_error": 0.0, "precision": 0.0, "tolerance": 0.0, "about": {},
    }  # fmt: skip
    text = json.dumps(header, sort_keys=True)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, header=np.array(text), digest=np.array(digest(text, arrays)), **arrays
    )
    return buffer.getvalue()


READERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "edges": (".txt", _read_edges),
    "study": (".toml", _read_study),
    "structure": (".npz", _read_structure),
    "trace": (".json", _read_trace),
    "trace gzip": (".json.gz", _read_trace),
    "pdb": (".pdb", _read_file),
    "mmcif": (".cif", _read_file),
    "backbone": (".npz", _read_backbone),
    "rows csv": (".csv", _read_rows),
    "rows parquet": (".parquet", _read_rows),
    "store": (".db", _read_store),
    "rules": (".txt", _read_rules),
    "fasta": (".fa", _read_fasta),
    "record": (".json", _read_record),
    "replies": (".sqlite", _read_replies),
}


def read(kind: str, content: bytes, folder: Path) -> bool:
    """Read a file of a kind; return whether it was one, and let no undocumented error pass."""
    suffix, reader = READERS[kind]
    file = folder / f"input{suffix}"
    for old in folder.glob("input*"):
        old.unlink()
    file.write_bytes(content)
    try:
        reader(file)
    except DOCUMENTED as refused:
        assert str(refused) and "\n" not in str(refused), f"more than a line: {refused!r}"
        return False
    return True
