"""Split compiled work over threads: kernels release the interpreter lock, so plain threads serve.

Numba's own parallel backend is left alone on purpose: it does not survive a fork, and its pool is
hard to share with process-level parallelism. ``set_num_threads(1)`` is what a worker of a process
pool calls.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import lru_cache

__all__ = [
    "num_threads",
    "run_in_parts",
    "run_watched",
    "set_num_threads",
]

# Seconds between two looks at work that another thread does.
LOOK = 0.5

_limit: list[int] = []


def num_threads() -> int:
    """Return how many threads compiled work uses: ``COUNTERPROBE_THREADS`` or every core."""
    if not _limit:
        fallback = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        _limit.append(int(os.environ.get("COUNTERPROBE_THREADS", 0)) or fallback or 1)
    return _limit[0]


def set_num_threads(count: int) -> None:
    """Use at most ``count`` threads from now on; results never depend on it."""
    if count < 1:
        raise ValueError(f"count must be at least 1, got {count!r}")
    _limit[:] = [count]


@lru_cache(maxsize=4)
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=count, thread_name_prefix="counterprobe")


if hasattr(os, "register_at_fork"):
    # Threads do not survive a fork: a child that kept the pool would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_in_parts(work: Callable[[int, int], None], num_items: int, *, least: int = 8) -> None:
    """Call ``work(low, high)`` on parts that cover ``range(num_items)``.

    Parameters
    ----------
    work : callable
        Writes its own part of a result; parts must not overlap in what they write.
    num_items : int
    least : int
        Parts smaller than this are not worth a thread.
    """
    parts = max(1, min(num_threads(), num_items // max(1, least)))
    if parts == 1:
        work(0, num_items)
        return
    bounds = [num_items * k // parts for k in range(parts + 1)]
    pool = _pool(num_threads())
    futures = [pool.submit(work, low, high) for low, high in itertools.pairwise(bounds[1:])]
    work(bounds[0], bounds[1])
    for future in futures:
        future.result()


def run_watched(
    work: Callable[[], None], look: Callable[[], None], stop: Callable[[], None]
) -> None:
    """Do long compiled work in another thread, while this one looks on and hears Ctrl-C.

    A kernel does not return to Python before it is done, so that a signal would wait for it.

    Parameters
    ----------
    work : callable
        Releases the interpreter lock most of the time.
    look : callable
        Called now and then, in this thread.
    stop : callable
        Asks the work to end early; called once, before a ``KeyboardInterrupt`` is passed on.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="counterprobe work") as pool:
        done = pool.submit(work)
        try:
            while not wait([done], timeout=LOOK).done:
                look()
        except KeyboardInterrupt:
            stop()
            raise
        done.result()
