"""The fuzzer that coverage guides: a fixed budget finds nothing, and a planted defect is found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A reader that fails on what no valid file holds, and mutation finds soon.
PLANTED = """
import sys; sys.path.insert(0, {tools!r}); sys.argv = ["fuzz"] + {words!r}
import fuzz, hostile_inputs
def careless(file):
    if b"\\xff" in file.read_bytes():
        raise KeyError("planted")
hostile_inputs.READERS["edges"] = (".txt", careless)
fuzz.main()
"""


def run(command: list[str], folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_two_thousand_guided_inputs_are_read_or_refused(tmp_path):
    tool = str(ROOT / "tools" / "fuzz.py")
    words = ["--seconds", "0", "--runs", "2000", "--crashes", str(tmp_path)]
    code, said = run([tool, *words], tmp_path)
    assert code == 0, said[-3000:]
    assert "seed 1, crash inputs in" in said
    added = int(said.split("stat::new_units_added:")[1].split()[0])
    assert added > 20, "coverage guides nothing"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_planted_defect_is_found_kept_and_shown_again(tmp_path):
    words = ["--seconds", "0", "--runs", "20000", "--crashes", str(tmp_path)]
    code, said = run(["-c", PLANTED.format(tools=str(ROOT / "tools"), words=words)], tmp_path)
    assert code != 0
    assert "KeyError: 'planted'" in said
    (kept,) = tmp_path.iterdir()
    code, said = run([str(ROOT / "tools" / "fuzz.py"), "--again", str(kept)], tmp_path)
    assert code == 0 and "is read or refused as it should be" in said
