"""Processes: real ones, which die, raise and answer what cannot be sent."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import counterprobe as cp
import engine_jobs
from counterprobe.engines import EngineError, Processes, WorkerPool, processes


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(Processes(2), engine_jobs.make_doubling) as pool:
        pool.start()
        yield pool


def outcome(pool, task):
    pool.submit(task)
    (done,) = pool.wait()
    return done


def test_tasks_are_done_in_other_processes_with_one_thread_each(pool):
    tickets = {pool.submit(k): k for k in range(10)}
    found = {}
    while len(found) < 10:
        found |= {done.ticket: done.result() for done in pool.wait()}
    assert found == {ticket: 2 * k for ticket, k in tickets.items()}
    assert outcome(pool, ("threads",)).result() == ("1", 1)


def test_an_error_arrives_with_its_kind_and_its_words(pool):
    with pytest.raises(cp.OracleError, match=r"^no row for state 7$"):
        outcome(pool, ("raise", "no row for state 7")).result()
    with pytest.raises(cp.CounterprobeError, match=r"^OddError: 1 and 2$"):
        outcome(pool, ("odd error",)).result()


def test_an_answer_that_cannot_be_sent_is_an_error_and_not_a_death(pool):
    before = pool.num_lost
    assert "pickle" in str(outcome(pool, ("unpicklable",)).error)
    assert outcome(pool, 4).result() == 8
    assert pool.num_lost == before


def test_a_process_that_dies_costs_one_attempt_of_one_task(pool, tmp_path):
    before = pool.num_lost
    tickets = [pool.submit(("slow", 1)), pool.submit(("die once", str(tmp_path / "dead"), 21))]
    found = {}
    while len(found) < 2:
        found |= {done.ticket: done.result() for done in pool.wait()}
    assert [found[ticket] for ticket in tickets] == [2, 42]
    assert pool.num_lost == before + 1


def test_a_task_that_kills_every_process_ends_with_a_word_and_no_process_stays():
    before = set(multiprocessing.active_children())
    with WorkerPool(Processes(1, attempts=2), engine_jobs.make_doubling) as pool:
        pool.submit(("die",))
        with pytest.raises(EngineError, match=r"exit code 3\), 2 times for one task"):
            pool.wait()
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_a_process_that_hangs_is_killed_and_its_task_done_by_another(tmp_path):
    before = set(multiprocessing.active_children())
    with WorkerPool(Processes(1, task_seconds=5.0), engine_jobs.make_doubling) as pool:
        pool.submit(("hang once", str(tmp_path / "hung"), 21))
        (done,) = pool.wait()
        assert (done.result(), pool.num_lost) == (42, 1)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
def test_a_task_that_always_hangs_ends_with_its_limit_and_no_process_stays():
    before = set(multiprocessing.active_children())
    with WorkerPool(Processes(1, attempts=2, task_seconds=0.2), engine_jobs.make_doubling) as pool:
        pool.submit(("hang",))
        with pytest.raises(EngineError, match=r"not answered after 0.2 seconds.*, 2 times"):
            pool.wait()
    assert set(multiprocessing.active_children()) <= before


def test_a_job_that_cannot_be_made_says_why():
    with WorkerPool(Processes(1), engine_jobs.make_nothing) as pool:
        with pytest.raises(ValueError, match="there is no such model, got 'nothing'"):
            pool.start()


@pytest.mark.slow
def test_processes_that_die_before_they_start_leave_a_clear_error():
    with WorkerPool(Processes(1), engine_jobs.make_dying) as pool:
        with pytest.raises(EngineError, match=r"no worker is left: .* \(exit code 4\)"):
            pool.start()


def test_what_cannot_be_pickled_is_refused_before_anything_starts():
    with pytest.raises(ValueError, match="what makes a job must be picklable"):
        WorkerPool(Processes(1), lambda: None)


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": 1.5},
        {"attempts": 0},
        {"task_seconds": 0.0},
        {"task_seconds": float("inf")},
    ],
)
def test_numbers_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Processes(**options)


@pytest.fixture
def plain_ctrl_c():
    """As a program starts with it; test runners may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("plain_ctrl_c")
def test_ctrl_c_during_a_start_waits_until_the_process_has_begun():
    begun = []
    with pytest.raises(KeyboardInterrupt), processes._ctrl_c_held():
        # Another thread takes it: this one is told although it blocks the signal.
        thread = threading.Thread(target=_send_ctrl_c)
        thread.start()
        thread.join()
        time.sleep(0.05)
        begun.append(True)
    assert begun == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _send_ctrl_c():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.kill(os.getpid(), signal.SIGINT)


FIRST_CREW = """
import engine_jobs
from counterprobe.engines import WorkerPool, Processes
with WorkerPool(Processes(2), engine_jobs.make_doubling) as pool:
    pool.submit(("holds ctrl-c",)), pool.submit(("holds ctrl-c",))
    outcomes = [done.result() for done in pool.wait()]
    outcomes += [] if len(outcomes) == 2 else [done.result() for done in pool.wait()]
print(outcomes)
"""


def test_even_the_first_process_is_born_with_ctrl_c_held():
    # Only a program's first start begins the tracker of resources, which lets it through again.
    paths = os.pathsep.join(path for path in sys.path if path)
    finished = subprocess.run(
        [sys.executable, "-c", FIRST_CREW],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.stdout == "[True, True]\n", finished.stderr
