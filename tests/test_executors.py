"""Pieces of work on executors: losses, limits, errors, and builders that travel once."""

import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import executor_jobs
from counterprobe.cli.main import app
from counterprobe.errors import OracleError
from counterprobe.executors import (
    AHEAD,
    ATTEMPTS,
    MOST_BYTES,
    ExecutorError,
    Workers,
    cluster,
    local_processes,
)
from counterprobe.oracles.sharding import PIECE

DOUBLING = executor_jobs.build_doubling


def spawned(workers=1):
    """Processes of the standard library; they survive no death, so tests make others."""
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))


class AtOnce(Executor):
    """Does work when it is submitted; ends like a broken pool where a task says so."""

    num_workers = 1

    def __init__(self, breaks=()):
        self.breaks, self.submitted = set(breaks), []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.submitted.append(args)
        if len(self.submitted) in self.breaks:
            future.set_exception(BrokenExecutor("gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def results(workers, tasks):
    pieces = [workers.submit(task) for task in tasks]
    return [workers.result(piece) for piece in pieces]


# ----- What comes back ----------------------------------------------------------------------


def test_results_come_in_the_order_they_are_asked_for():
    with ThreadPoolExecutor(3) as executor:
        assert results(Workers(executor, DOUBLING), range(20)) == list(range(0, 40, 2))


@pytest.mark.parametrize(
    ("task", "kind", "words"),
    [
        (("raise", "no answer"), OracleError, "no answer"),
        (("odd error",), Exception, "OddError: 1 and 2"),
        (("unpicklable",), Exception, "<lambda>"),
    ],
)
def test_an_error_keeps_its_words_and_the_others_their_results(task, kind, words):
    workers = Workers(AtOnce(), DOUBLING)
    with pytest.raises(kind, match=words):
        results(workers, [task])
    assert results(workers, [3]) == [6]


def test_an_error_of_the_builder_is_its_own():
    with pytest.raises(ValueError, match="there is no such model, got 'nothing'"):
        results(Workers(AtOnce(), executor_jobs.build_nothing), [1])


def test_pieces_that_are_forgotten_disturb_nobody():
    with ThreadPoolExecutor(1) as executor:
        workers = Workers(executor, DOUBLING)
        pieces = [workers.submit(("process",)) for _ in range(4)]
        workers.forget(pieces)
        assert not workers.num_open
        assert results(workers, [4]) == [8]


# ----- Builders -----------------------------------------------------------------------------


def test_a_builder_travels_only_to_workers_that_ask_for_it():
    executor = AtOnce()
    weight = b"w" * 100_000
    workers = Workers(executor, partial(_double_with, weight))
    assert results(workers, range(20)) == list(range(0, 40, 2))
    sizes = [sum(len(one or b"") for one in args[1:]) for _, *args in executor.submitted]
    heavy = [k for k, size in enumerate(sizes) if size > 1000]
    assert len(sizes) == 20 + len(heavy)
    # What was under way when the first of them asked, and nothing later.
    assert 1 <= len(heavy) <= AHEAD and max(heavy) < 2 * AHEAD


def _double_with(weight):
    return executor_jobs.double


def test_a_worker_builds_once_and_functions_of_no_module_travel(tmp_path):
    factor = 3
    with local_processes(2) as make:
        workers = Workers(make, partial(DOUBLING, str(tmp_path)))
        seen = results(workers, [("process",)] * 8)
        other = Workers(make, lambda: lambda task: factor * task)
        assert results(other, range(4)) == [0, 3, 6, 9]
    processes = {pid for pid, _, _ in seen}
    assert len(processes) == 2 and os.getpid() not in processes
    assert {one[1:] for one in seen} == {(1, "1")}  # a thread each
    assert sorted(int(file.name.partition("-")[0]) for file in tmp_path.iterdir()) == sorted(
        processes
    )


def test_a_builder_with_weights_and_one_that_cannot_travel_are_refused(monkeypatch):
    monkeypatch.setattr("counterprobe.executors.MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"build must not hold a model's weights, got .* bytes"):
        Workers(AtOnce(), partial(_double_with, np.zeros(1000)))
    with pytest.raises(TypeError, match="pickle"):
        Workers(AtOnce(), partial(_double_with, threading.Lock()))


# ----- Losses -------------------------------------------------------------------------------


def test_what_broke_is_begun_again_in_a_fresh_executor():
    made, told = [AtOnce({3}), AtOnce()], []
    workers = Workers(iter(made).__next__, DOUBLING, on_loss=told.append)
    assert results(workers, range(6)) == [0, 2, 4, 6, 8, 10]
    assert told == ["a worker died: BrokenExecutor: gone"]


def test_an_executor_that_is_given_once_ends_with_a_word():
    workers = Workers(AtOnce({3}), DOUBLING)
    with pytest.raises(ExecutorError, match=r"a worker died: .* a callable that makes"):
        results(workers, range(6))


def test_executors_that_always_break_end():
    workers = Workers(lambda: AtOnce(range(10)), DOUBLING)
    with pytest.raises(ExecutorError, match="3 times for one piece"):
        results(workers, [1])


def test_a_killed_worker_of_the_standard_librarys_pool_is_replaced(tmp_path):
    made = []

    def make():
        made.append(spawned())
        return made[-1]

    workers = Workers(make, DOUBLING)
    tasks = [1, ("die", str(tmp_path / "dead"), 2), 3, 4]
    try:
        assert results(workers, tasks) == [2, 4, 6, 8]
        assert len(made) == 2
    finally:
        for executor in made:
            executor.shutdown()


@pytest.mark.slow
def test_a_piece_that_always_kills_fails_alone():
    with local_processes(2) as make:
        workers = Workers(make, DOUBLING)
        pieces = [workers.submit(task) for task in [1, 2, ("die", None, 3), 4, 5, 6]]
        with pytest.raises(ExecutorError, match=r"SIGKILL.*\(3 times for one piece\)"):
            workers.result(pieces.pop(2))
        assert [workers.result(piece) for piece in pieces] == [2, 4, 8, 10, 12]


def test_a_worker_that_hangs_is_an_error_after_the_limit_and_leaves_nothing_behind():
    begun = time.monotonic()
    with local_processes(1) as make:
        workers = Workers(make, DOUBLING, timeout=60.0)
        ((process, *_),) = results(workers, [("process",)])
        late = Workers(make, DOUBLING, timeout=0.5)
        with pytest.raises(ExecutorError, match=r"has answered for 0\.5 seconds"):
            results(late, [("hang",)])
    assert time.monotonic() - begun < executor_jobs.HANGS
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX")
def test_workers_end_when_their_parent_is_killed():
    program = (
        "from counterprobe.executors import *\nimport executor_jobs, os, signal\n"
        "if __name__ == '__main__':\n"
        "    with local_processes(1) as make:\n"
        "        workers = Workers(make, executor_jobs.build_doubling)\n"
        "        print(workers.result(workers.submit(('process',)))[0], flush=True)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    folder = os.path.dirname(executor_jobs.__file__)
    path = os.pathsep.join([folder, *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    worker = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("a worker outlived its parent")


# ----- Executors ----------------------------------------------------------------------------


def test_the_number_of_workers_is_asked_for_where_nobody_says_it():
    class Silent(AtOnce):
        num_workers = None

    with pytest.raises(ValueError, match="workers must be given"):
        Workers(Silent(), DOUBLING)
    assert Workers(Silent(), DOUBLING, workers=3).size == 3
    with pytest.raises(ValueError, match="timeout must be a number of seconds above 0, got -1"):
        Workers(AtOnce(), DOUBLING, timeout=-1)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://x:1"])
def test_an_address_of_no_cluster_is_refused(address):
    with pytest.raises(ValueError, match="address must be tcp://HOST:PORT or ray:HOST:PORT"):
        with cluster(address):
            pass


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "ray:127.0.0.1:1", "tcp://x:y"])
def test_a_cluster_that_is_not_there_is_said_at_once(address):
    with pytest.raises(ExecutorError, match=f"no cluster at {address}: "):
        with cluster(address):
            pass


def test_importing_the_package_loads_no_executor():
    code = (
        "import sys, counterprobe, counterprobe.executors; "
        "print({'loky', 'dask', 'distributed', 'ray', 'cloudpickle', 'mpi4py'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ----- docs/executors.md --------------------------------------------------------------------

PAGE = (Path(__file__).parents[1] / "docs" / "executors.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^counterprobe (.+)$", PAGE, flags=re.MULTILINE)


def test_the_numbers_of_the_page_are_those_of_the_code():
    assert (PIECE, AHEAD, ATTEMPTS, MOST_BYTES) == (32, 3, 3, 64 << 20)
    for said in ("pieces of 32 states", "three pieces per worker", "up to three times", "64 MiB"):
        assert said in PAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_have_the_options_they_show(command):
    words = command.split()
    verbs = words[: next(k for k, word in enumerate(words) if word.startswith("--"))]
    shown = CliRunner().invoke(app, [*verbs, "--help"], terminal_width=200).stdout
    for option in re.findall(r"--[a-z-]+", command):
        assert option in shown
