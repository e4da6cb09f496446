"""Jobs and oracles for the tests of engines, importable in other processes too."""

import os
import signal
import time
from pathlib import Path

import numpy as np

import counterprobe as cp

# Longer than any test may take.
HANGS = 3600.0


def make_doubling():
    """Doubles numbers; 'die' ends the process, 'die once FILE' at the first attempt only."""
    return _double


def _double(task):
    match task:
        case ("die",):
            os._exit(3)
        case ("die once", file, value):
            if not Path(file).exists():
                Path(file).touch()
                os._exit(3)
            return 2 * value
        case ("hang once", file, value):
            if not Path(file).exists():
                Path(file).touch()
                time.sleep(HANGS)
            return 2 * value
        case ("hang",):
            time.sleep(HANGS)
        case ("raise", text):
            raise cp.OracleError(text)
        case ("unpicklable",):
            return lambda: None
        case ("odd error",):
            raise OddError(1, 2)
        case ("slow", value):
            time.sleep(0.2)
            return 2 * value
        case ("gpus",):  # only where Ray is
            import ray

            return ray.get_runtime_context().get_node_id(), os.environ["CUDA_VISIBLE_DEVICES"]
        case ("threads",):
            return os.environ["OMP_NUM_THREADS"], cp.threads.num_threads()
        case ("holds ctrl-c",):
            return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        case value:
            return 2 * value


class OddError(Exception):
    """An error that cannot be rebuilt from its words."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def make_nothing():
    raise ValueError("there is no such model, got 'nothing'")


def make_dying():
    os._exit(4)


class Fragile:
    """A law's oracle that ends its process once, when it is asked about a marked state."""

    def __init__(self, inner, file=None, mark=None):
        self.inner, self.file, self.mark = inner, file, mark
        self.name, self.trusted, self.row_error = inner.name, inner.info.trusted, inner.row_error
        self.length, self.vocab_size = inner.length, inner.vocab_size

    def rows(self, states, readouts):
        if self.mark is not None and (states[:, 0] == self.mark).any():
            if self.file is None or not Path(self.file).exists():
                if self.file is not None:
                    Path(self.file).touch()
                os._exit(5)
        return self.inner.rows(states, readouts)


class Hanging(Fragile):
    """A law's oracle that hangs when it is asked about a marked state."""

    def rows(self, states, readouts):
        if (states[:, 0] == self.mark).any():
            if self.file is None or not Path(self.file).exists():
                if self.file is not None:
                    Path(self.file).touch()
                time.sleep(HANGS)
        return self.inner.rows(states, readouts)


class Refusing(Fragile):
    """A law's oracle that raises when it is asked about a marked state."""

    def rows(self, states, readouts):
        if (states[:, 0] == self.mark).any():
            raise cp.OracleError(f"oracle {self.name!r} has no answer for token {self.mark}")
        return self.inner.rows(states, readouts)


def smoothed(states):
    """Rows of a function: counts of the tokens shown, plus one."""
    counts = (states[:, None, :, None] == np.arange(4)).sum(axis=2) + 1.0
    rows = counts / counts.sum(axis=-1, keepdims=True)
    return np.broadcast_to(rows, (*states.shape, 4)).copy()


def growing_error(file):
    """A uniform oracle whose row error grows with every replica that is made."""
    made = len(Path(file).read_text()) if Path(file).exists() else 0
    Path(file).write_text("x" * (made + 1))
    return cp.CallableOracle(smoothed, length=5, vocab_size=4, row_error=0.1 * (made + 1))


def growing_length(file):
    """An oracle that is longer with every replica that is made."""
    made = len(Path(file).read_text()) if Path(file).exists() else 0
    Path(file).write_text("x" * (made + 1))
    return cp.CallableOracle(smoothed, length=5 + made, vocab_size=4)


def listening() -> list[str]:
    """Return the addresses that this process and its descendants listen on, in hexadecimal."""
    parents = {
        int(folder.name): int(folder.joinpath("stat").read_text().rpartition(")")[2].split()[1])
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and folder.joinpath("stat").exists()
    }
    mine = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in mine} - mine:
        mine |= more
    sockets = set()
    for process in mine:
        for descriptor in Path(f"/proc/{process}/fd").glob("*"):
            try:
                sockets.add(os.readlink(descriptor))
            except OSError:  # closed meanwhile
                continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.append(words[1].partition(":")[0])
    return found


def listening_of_an_own_cluster() -> list[str]:
    """Start a cluster without an address, work on it, and return what it listens on."""
    import ray

    from counterprobe.engines import RayCluster, WorkerPool

    assert not ray.is_initialized()
    with RayCluster(workers=1) as engine, WorkerPool(engine, make_doubling) as pool:
        pool.submit(21)
        assert pool.wait()[0].result() == 42
        return listening()
