"""The command line in a process of its own, which tallies what reaches the oracle in a file."""

import subprocess
import sys
import time
from pathlib import Path


def start(program: str, folder: Path, *arguments: object) -> subprocess.Popen:
    """Start a program that is told where its tally lies, and then the words of a command."""
    words = [str(argument) for argument in arguments]
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder / "tally"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_tally(running: subprocess.Popen, folder: Path, growth: int) -> None:
    """Wait until so many more states were tallied, or the run is over."""
    tally = folder / "tally"
    before = tally.stat().st_size if tally.exists() else 0
    while running.poll() is None:
        if tally.exists() and tally.stat().st_size >= before + growth:
            return
        time.sleep(0.002)
