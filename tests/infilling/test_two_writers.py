"""Several processes write one file of designs: one of them does, the others are turned away."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from counterprobe.infilling.fasta import read_fasta
from counterprobe.infilling.writing import Design, DesignFile

DESIGNS = 300
# Opens a file when it is told to, at once with another process, and waits in the middle.
WRITER = """
import sys
from counterprobe.infilling.writing import Design, DesignFile

print("ready", flush=True)
for line in sys.stdin:
    path, how, letter, count = line.split()
    try:
        with DesignFile(path, force=how == "force", append=how == "append") as file:
            print("open", flush=True)
            file.begin("mine", {"seed": letter})
            for k in range(int(count)):
                file.write([Design(f"mine_{k + 1}", letter * 400, {"score": -1.25})])
                if k == int(count) // 2:
                    print("half", flush=True)
                    sys.stdin.readline()
        print("done", flush=True)
    except (OSError, ValueError) as problem:
        print(problem, flush=True)
"""


class Writer:
    """A process that writes designs of one letter, and does the next thing when it is told."""

    def __init__(self, letter):
        self.letter = letter
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def heard(self):
        return self.process.stdout.readline().strip()


@pytest.fixture(scope="module")
def both():
    writers = [Writer("A"), Writer("C")]
    assert [one.heard() for one in writers] == ["ready", "ready"]
    yield writers
    for one in writers:
        one.process.kill()
        one.process.communicate()


def letters(path):
    """The letters of every design in a file, each of which must be whole."""
    if path.suffix == ".fasta":
        return {one.name: {*one.sequence} for one in read_fasta(path)}
    with DesignFile(path, append=True) as file:
        assert not file.cut_off
        return {name: {*row["sequence"]} for name, row in file._stored.items()}


@pytest.mark.parametrize("kind", ["fasta", "csv", "jsonl"])
@pytest.mark.parametrize(
    ("ways", "num_before"),
    [
        (("force", "force"), 5), (("append", "append"), 0), (("append", "append"), 5),
        (("force", "append"), 5), (("append", "force"), 0), (("new", "new"), 0),
    ],
)  # fmt: skip
def test_of_two_processes_one_writes_and_the_other_says_why_not(
    both, tmp_path, ways, num_before, kind
):
    path = tmp_path / f"d.{kind}"
    with DesignFile(path) as file:
        file.write([Design(f"other_{k}", "DD", {"score": 1.0}) for k in range(num_before)])
    for one, way in zip(both, ways, strict=True):
        one.told(path, way, one.letter, DESIGNS)
    said = [one.heard() for one in both]
    in_use = f"{path} is in use by another run; wait for it, or name another file"
    assert Counter(said) == {"open": 1, in_use: 1}
    first = both[said.index("open")]
    assert first.heard() == "half"
    for way in ({"force": True}, {"append": True}, {}):
        with pytest.raises(BlockingIOError, match="is in use by another run"):
            DesignFile(path, **way)
    first.told("go on")
    assert first.heard() == "done"
    found = letters(path)
    mine = {name: letter for name, letter in found.items() if name.startswith("mine")}
    assert mine == {f"mine_{k + 1}": {first.letter} for k in range(DESIGNS)}
    is_replaced = ways[both.index(first)] == "force"
    assert len(found) - len(mine) == (0 if is_replaced else num_before)
    assert os.listdir(tmp_path) == [path.name]


def test_a_writer_that_is_killed_leaves_whole_records_and_no_lock(both, tmp_path):
    path, killed = tmp_path / "d.fasta", both[0]
    killed.told(path, "new", "A", DESIGNS)
    assert [killed.heard(), killed.heard()] == ["open", "half"]
    with pytest.raises(BlockingIOError):
        DesignFile(path, append=True)
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.wait(60)
    assert len(letters(path)) == DESIGNS // 2 + 1
    with DesignFile(path, append=True) as file:
        file.begin("mine", {"seed": "A"})
        assert len(file.names) == DESIGNS // 2 + 1 and not file.cut_off
