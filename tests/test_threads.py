"""Parts cover the work once, whatever the number of threads."""

import os
import signal
import threading
import warnings

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import threads


@pytest.mark.parametrize("count", [1, 2, 3, 8])
@pytest.mark.parametrize("num_items", [0, 1, 2, 3, 7, 8, 64, 101])
@pytest.mark.parametrize("least", [0, 1, 8])
def test_parts_cover_every_item_once(thread_limit, count, num_items, least):
    thread_limit(count)
    done = np.zeros(num_items, dtype=int)
    parts = []

    def work(low: int, high: int) -> None:
        parts.append((low, high))
        done[low:high] += 1

    threads.run_in_parts(work, num_items, least=least)
    assert (done == 1).all()
    assert len(parts) <= count
    assert all(high - low >= least for low, high in parts) or len(parts) == 1


def test_parts_run_on_several_threads(thread_limit):
    thread_limit(3)
    together = threading.Barrier(3, timeout=30)  # passed only if three threads arrive
    threads.run_in_parts(lambda low, high: together.wait() and None, 30)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_part_that_fails_is_heard(thread_limit, failing):
    thread_limit(3)

    def work(low: int, high: int) -> None:
        if low == 10 * failing:
            raise RuntimeError(f"part {failing} failed")

    with pytest.raises(RuntimeError, match=f"part {failing} failed"):
        threads.run_in_parts(work, 30)


def test_rows_do_not_depend_on_the_number_of_threads(thread_limit):
    law = cp.families.random_recursive_tree(60, target_seed=2)
    draw = np.random.default_rng(0)
    states = np.where(draw.random((50, 60)) < 0.5, -1, 3).astype(np.int32)
    readouts = cp.Readouts.every_masked(states)
    masses = []
    for count in (1, 2, 5):
        thread_limit(count)
        masses.append(law.oracle().rows(states, readouts).masses)
    assert np.array_equal(masses[0], masses[1])
    assert np.array_equal(masses[0], masses[2])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
def test_threads_work_again_in_a_forked_process(thread_limit):
    thread_limit(3)
    threads.run_in_parts(lambda low, high: None, 30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about this
        child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for its parent's threads ends here
        status = 1
        try:
            done = np.zeros(30)

            def work(low: int, high: int) -> None:
                done[low:high] += 1

            threads.run_in_parts(work, 30)
            status = int(not (done == 1).all())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0


def test_the_limit_comes_from_the_environment_or_the_machine(monkeypatch):
    monkeypatch.setattr(threads, "_limit", [])
    monkeypatch.setenv("COUNTERPROBE_THREADS", "3")
    assert threads.num_threads() == 3
    monkeypatch.setattr(threads, "_limit", [])
    monkeypatch.delenv("COUNTERPROBE_THREADS")
    assert threads.num_threads() >= 1


def test_the_limit_can_be_set(thread_limit):
    thread_limit(2)
    assert threads.num_threads() == 2
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"count must be at least 1, got {wrong}"):
            cp.threads.set_num_threads(wrong)
    assert threads.num_threads() == 2


def test_work_is_watched_and_ended_by_ctrl_c():
    begun, ended = threading.Event(), threading.Event()
    looks = []

    def work() -> None:
        begun.set()
        assert ended.wait(30)

    def look() -> None:
        looks.append(threading.current_thread())
        if len(looks) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.run_watched(work, look, ended.set)
    assert begun.is_set() and looks == [threading.current_thread()] * 2


def test_what_watched_work_raises_is_raised_here():
    def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        threads.run_watched(work, lambda: None, lambda: None)
