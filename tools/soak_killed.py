"""Work of a soak that is killed: studies, their workers, and replicas of an oracle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from soak_cases import draw_case, require, tiny_model

import counterprobe as cp
from counterprobe.executors import Executors, local_processes
from counterprobe.infilling.task import make_task
from counterprobe.oracles import Oracle
from counterprobe.study import Store, read_config, run_study

STUDY = """
name = "soak"
families = ["matching"]
sizes = [32]
candidates = 1
[seeds]
development_draws = [171]
development_streams = [271]
evaluation_draws = [196, 197]
proposal_streams = [292]
random_streams = [294]
[reference]
length = 32
draws = [1, 2]
[[grid.packed]]
num_colors = [4, 5]
degree_cutoff = 8
num_colorings = 40
majority_fraction = 0.55
"""


class KilledStudies:
    """A small study that is killed at random moments, loses a worker, and is left to finish."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0
        self.file = folder / "soak.toml"
        self.file.write_text(STUDY)
        config = read_config(self.file)
        with Store(folder / "undisturbed.db", create=True) as store:
            store.register(config)
            run_study(store, config, workers=1)
            self.expected = results_of(store)

    def check(self, draw: np.random.Generator, seen: Counter[str]) -> None:
        """Kill a study once or twice, then one of its workers, let it finish, and compare."""
        self.count += 1
        store_file = self.folder / f"killed-{self.count}.db"
        for _ in range(int(draw.integers(1, 3))):
            seen["kills"] += self._killed(store_file, float(draw.uniform(0.5, 8.0)))
        process = self._start(store_file)
        seen["study workers killed"] += lose_worker(process, float(draw.uniform(0.0, 2.0)))
        _, err = process.communicate(timeout=300)
        require(process.returncode == 0, f"a study did not finish: {err.strip()[-300:]}")
        with Store(store_file) as store:
            require(results_of(store) == self.expected, "a killed study came to another store")
        seen["studies"] += 1

    def _start(self, store_file: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "counterprobe", "study", "run", "--config",
                   str(self.file), "--store", str(store_file), "--workers", "2"]  # fmt: skip
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def _killed(self, store_file: Path, after: float) -> bool:
        """Start a study and kill it with its workers; return whether it was still running."""
        process = self._start(store_file)
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        process.communicate()
        return False


def lose_worker(process: subprocess.Popen[str], after: float) -> bool:
    """Kill a worker of a study some time after it has some; return whether there was one."""
    while process.poll() is None and not workers_of(process.pid):
        time.sleep(0.05)
    time.sleep(after)
    for worker in workers_of(process.pid)[:1]:
        try:
            os.kill(worker, signal.SIGKILL)
        except ProcessLookupError:  # it has just ended by itself
            continue
        return process.poll() is None
    return False


def workers_of(pid: int) -> list[int]:
    """Return the workers that a process has started, where the system says."""
    found = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for child in children:
            if b"loky.backend.popen" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    except OSError:  # another system, or one that has just ended
        pass
    return found


def results_of(store: Store) -> dict[str, Any]:
    """Return every run's result by its key."""
    return {key: record.result for key, record in store.records().items()}


# ----- Replicas -----------------------------------------------------------------------------


def replicated(draw: np.random.Generator, seen: Counter[str]) -> None:
    """One run on two replicas that are killed now and then: it is the run of one process."""
    if draw.random() < 0.5 and tiny_model() is not None:
        letters = [*map(str, draw.choice(list("ABX"), size=int(draw.integers(4, 13)))), "X"]
        make: Any = partial(tiny_oracle, "".join(letters))
        seed = int(draw.integers(1000))

        def run(oracle: Oracle, watch: Any) -> tuple[Any, Any]:
            filled = cp.infill(oracle, sampler="maskgit", count=6, seed=seed, on_event=watch)
            return filled.texts, filled.ledger
    else:
        case = draw_case(draw)
        make = partial(oracle_of, case.law)

        def run(oracle: Oracle, watch: Any) -> tuple[Any, Any]:
            _, result = case.run(oracle, on_event=watch)
            return result.state.tolist(), result.ledger

    with ThreadPoolExecutor(1) as executor:
        expected, ledger = on_replicas(executor, make, run, None)
    moments = sorted(map(int, draw.integers(max(1, ledger.evaluations), size=2)))

    def watch(progress: cp.run.Progress) -> None:
        while moments and progress.ledger.evaluations >= moments[0]:
            moments.pop(0)
            victims = workers_of(os.getpid())
            if victims:
                os.kill(victims[int(draw.integers(len(victims)))], signal.SIGKILL)
                seen["replicas killed"] += 1

    with local_processes(2) as where:
        listener = cp.run.Listener(watch, cp.run.Progress)
        found, charged = on_replicas(where, make, run, listener)
    require(found == expected, "replicas that were killed gave another result")
    require(charged == ledger, f"with replicas {charged} was charged, without {ledger}")
    require(not workers_of(os.getpid()), "a replica outlived its run")
    seen["replicated"] += 1


def on_replicas(executor: Executors, make: Any, run: Any, watch: Any) -> tuple[Any, Any]:
    """Run on replicas; return the result and the ledger."""
    result, ledger = run(make().sharded(executor, build=make, piece=4), watch)
    return result, ledger


def oracle_of(law: Any) -> Oracle:
    """Return a law's oracle, in the worker that asks it."""
    oracle: Oracle = law.oracle()
    return oracle


def tiny_oracle(text: str) -> Oracle:
    """Return the oracle of a text and the tiny network."""
    return make_task(tiny_model(), text).oracle
