"""docs/designs.md: its lines run as printed, from a PDB file to a ranked FASTA."""

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import command_line
import counterprobe as cp
from counterprobe.infilling.fasta import read_fasta
from counterprobe.models.proteins.antibody_numbering import positions_of
from structure_files import pdb_of

PAGE = (Path(__file__).parents[2] / "docs" / "designs.md").read_text(encoding="utf-8")
TRASTUZUMAB = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAV"
    "YYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
NAMES = ["trastuzumab", *(f"variant{k}" for k in range(1, 10))]


def antibodies() -> dict[str, str]:
    """Ten antibodies: one, and others that differ in a residue of the framework."""
    others = {name: TRASTUZUMAB[:k] + "A" + TRASTUZUMAB[k + 1 :] for k, name in enumerate(NAMES)}
    return {**others, "trastuzumab": TRASTUZUMAB}


@pytest.fixture(scope="module")
def walked(tmp_path_factory) -> Path:
    """The folder after the walk."""
    folder = tmp_path_factory.mktemp("walk")
    pdb_of(cp.models.Backbone.shipped("1ubi"), folder).rename(folder / "1ubi.pdb")
    records = "".join(f">{name}\n{sequence}\n" for name, sequence in antibodies().items())
    (folder / "antibodies.fasta").write_text(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL):
            for line in block.splitlines():
                program, *words = shlex.split(line)
                assert program == "counterprobe"
                result = command_line.invoke(*words)
                assert result.exit_code == 0, f"{line}\n{result.stderr}"
    return folder


def test_designs_of_two_temperatures_are_ranked_together(walked):
    records = read_fasta(walked / "ranked.fasta")
    told = [dict(word.split("=") for word in one.description.split()) for one in records]
    scores = [float(one["score"]) for one in told]
    assert len(records) == 16 and scores == sorted(scores)
    assert [int(one["rank"]) for one in told] == [*range(1, 17)]
    assert {one["temperature"] for one in told} == {"0.1", "0.3"}
    assert {one.name for one in records} == {
        f"{file}/1ubi_{k}" for file in ("cold", "warm") for k in range(1, 9)
    }
    cold = [float(one["score"]) for one in told if one["temperature"] == "0.1"]
    warm = [float(one["score"]) for one in told if one["temperature"] == "0.3"]
    assert np.mean(cold) < np.mean(warm), "what is drawn colder is what the model likes"
    assert all(len(one.sequence) == 76 for one in records)
    assert all(one["evaluations"] == "16" for one in told)


def test_only_the_loop_of_every_antibody_is_drawn(walked):
    given = antibodies()
    loop = positions_of("CDR-H3", TRASTUZUMAB)
    records = read_fasta(walked / "loops.fasta")
    # Antibody by antibody; of each, what is finished first.
    names = [one.name for one in records]
    for first, name in zip(range(0, len(names), 2), given, strict=True):
        assert sorted(names[first : first + 2]) == [f"{name}_1", f"{name}_2"]
    for one in records:
        native = given[one.name.rpartition("_")[0]]
        differs = [k for k in range(len(native)) if one.sequence[k] != native[k]]
        assert set(differs) <= set(loop.tolist())
        recovery = float(dict(w.split("=") for w in one.description.split())["recovery"])
        assert recovery == pytest.approx(1 - len(differs) / len(loop), rel=1e-4)
    with (walked / "ranked.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 and all(row["scored"] == "13" for row in rows)
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores)


def test_the_code_runs(capsys):
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(block, "docs/designs.md", "exec"), {"__name__": "page"})
    assert "lower is better" in capsys.readouterr().out


def test_every_column_and_method_is_explained():
    from counterprobe.infilling.scoring import METHODS
    from counterprobe.infilling.writing import COLUMNS

    for name in (*COLUMNS, *METHODS):
        assert f"`{name}`" in PAGE or f" {name}=" in PAGE, name
