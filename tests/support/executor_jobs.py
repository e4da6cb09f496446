"""Jobs and oracles for the tests of executors, importable in other processes too."""

import os
import signal
import time
from pathlib import Path
from typing import ClassVar

import numpy as np

import counterprobe as cp
from counterprobe.oracles import RowOracle

# Longer than any test may take, and short enough for threads that outlive theirs.
HANGS = 20.0


def is_first(file):
    """Whether a file is asked about for the first time, by any process; None always is."""
    if file is None:
        return True
    try:
        Path(file).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def build_doubling(built=None):
    """Doubles numbers, and does as it is told; every building is noted in a folder."""
    if built is not None:
        Path(built, f"{os.getpid()}-{time.monotonic_ns()}").touch()
    return double


def double(task):
    match task:
        case ("die", file, value):
            if is_first(file):
                die()
            return 2 * value
        case ("hang",):
            time.sleep(HANGS)
        case ("raise", text):
            raise cp.OracleError(text)
        case ("odd error",):
            raise OddError(1, 2)
        case ("unpicklable",):
            return lambda: None
        case ("process",):
            time.sleep(0.2)
            return os.getpid(), cp.threads.num_threads(), os.environ.get("OMP_NUM_THREADS")
        case value:
            return 2 * value


class OddError(Exception):
    """An error that cannot be rebuilt from its words."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def build_nothing():
    raise ValueError("there is no such model, got 'nothing'")


class Fragile:
    """A law's oracle whose process is killed when it is asked about a marked state."""

    def __init__(self, law, file=None, mark=1):
        self.inner, self.file, self.mark = law.oracle(), file, mark
        self.name, self.trusted = self.inner.name, True
        self.length, self.vocab_size, self.row_error = law.length, law.vocab_size, 0.0

    def rows(self, states, readouts):
        if self.is_marked(states):
            self.fail()
        return self.inner.rows(states, readouts)

    def is_marked(self, states):
        return (states[:, 0] == self.mark).any()

    def fail(self):
        if is_first(self.file):
            die()


class KilledMidway(Fragile):
    """A law's oracle whose process is killed once, when it has answered some queries."""

    answered = 0

    def is_marked(self, states):
        self.answered += 1
        return self.answered > 4


class Hanging(Fragile):
    """A law's oracle that hangs when it is asked about a marked state."""

    def fail(self):
        time.sleep(HANGS)


class Refusing(Fragile):
    """A law's oracle that raises when it is asked about a marked state."""

    def fail(self):
        raise cp.OracleError(f"oracle {self.name!r} has no answer for token {self.mark}")


def smoothed(states):
    """Rows of a function: counts of the tokens shown, plus one."""
    counts = (states[:, None, :, None] == np.arange(4)).sum(axis=2) + 1.0
    rows = counts / counts.sum(axis=-1, keepdims=True)
    return np.broadcast_to(rows, (*states.shape, 4)).copy()


class Noting(RowOracle):
    """Notes how many states it is asked for at once, in threads."""

    sizes: ClassVar[list[int]] = []

    def __init__(self, inner):
        self.inner = inner

    @property
    def info(self):
        return self.inner.info

    @property
    def digest(self):
        return self.inner.digest

    def rows(self, states, readouts):
        self.sizes.append(len(states))
        return self.inner.rows(states, readouts)
