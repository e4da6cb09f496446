"""What the study's tests share: a tiny configuration, and one study of it, finished once."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from counterprobe.study import Store, Study, StudyConfig, read_config, run_study

# The pages that compare studies are made by a tool.
sys.path.append(str(Path(__file__).parents[2] / "tools"))

# A background shell may have left SIGINT ignored, hence the first statement.
PROGRAM = (
    "import signal; signal.signal(2, signal.default_int_handler); "
    "import sys; from counterprobe.cli.main import main; sys.exit(main())"
)

# Real samplers and the whole protocol; a run takes some milliseconds.
TINY = """
name = "tiny"
families = ["matching", "path"]
sizes = [48, 64]
candidates = 2
[seeds]
development_draws = [171, 172]
development_streams = [271]
evaluation_draws = [196, 197]
proposal_streams = [292]
random_streams = [294]
[reference]
length = 64
draws = [1, 2]
[[grid.packed]]
num_colors = [4, 5, 6]
degree_cutoff = [8, 9]
num_colorings = 40
majority_fraction = 0.55
"""


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory) -> Path:
    """The tiny study's TOML file."""
    file = tmp_path_factory.mktemp("tiny") / "tiny.toml"
    file.write_text(TINY)
    return file


@pytest.fixture(scope="session")
def tiny(tiny_file) -> StudyConfig:
    """The tiny study's configuration."""
    return read_config(tiny_file)


@pytest.fixture(scope="session")
def finished_file(tiny, tmp_path_factory) -> Path:
    """A store that holds the tiny study, finished without a disturbance."""
    file = tmp_path_factory.mktemp("finished") / "study.db"
    with Store(file, create=True) as store:
        store.register(tiny)
        run_study(store, tiny, workers=1)
    return file


@pytest.fixture
def finished(finished_file, tiny) -> Study:
    """The finished tiny study."""
    with Store(finished_file) as store:
        return Study(tiny, store.records())


class Program:
    """The command line in a process of its own, with a mark that its workers inherit."""

    def __init__(self, mark: str, *arguments: object, prelude: str = "") -> None:
        self.mark = mark
        self.process = subprocess.Popen(
            [sys.executable, "-c", prelude + PROGRAM, "study", *map(str, arguments)],
            env={**os.environ, "COUNTERPROBE_TEST_MARK": mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait(self) -> tuple[int, str, str]:
        """Return exit code, output and complaints."""
        out, err = self.process.communicate(timeout=300)
        return self.process.returncode, out, err

    def wait_for_runs(self, file: Path, count: int) -> bool:
        """Wait until the store holds so many runs; whether that came before the end."""
        while self.process.poll() is None:
            if runs_in(file) >= count:
                return True
            time.sleep(0.01)
        return False

    def alive(self) -> list[int]:
        """Return the processes with this mark: the program, its workers, and what they started."""
        return [int(p.name) for p in Path("/proc").glob("[0-9]*") if self._is_mine(p)]

    def workers(self) -> list[int]:
        """Return the worker processes."""
        return [pid for pid in self.alive() if b"popen_loky" in _command_of(pid)]

    def orphans(self) -> list[int]:
        """Return the processes with this mark that are still alive, after a fair wait."""
        for _ in range(200):
            found = self.alive()
            if not found:
                break
            time.sleep(0.1)
        return found

    def _is_mine(self, folder: Path) -> bool:
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            return False
        return f"COUNTERPROBE_TEST_MARK={self.mark}".encode() in environment


def _command_of(pid: int) -> bytes:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def runs_in(file: Path) -> int:
    """Count the runs of a store that another process may be making just now."""
    try:
        with Store(file) as store:
            return len(store)
    except Exception:
        return 0


@pytest.fixture
def program(tmp_path) -> Callable[..., Program]:
    """Start the command line; the mark is this test's own."""
    return lambda *arguments, **options: Program(str(tmp_path), *arguments, **options)
