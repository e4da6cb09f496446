"""The page of every sampler: what it counts, and that it moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import counterprobe as cp
from counterprobe import trace
from counterprobe.samplers import SAMPLERS
from watched_pages import Watched, ledgers

pytestmark = pytest.mark.browser

# Seconds to the first paint at N = 16384. Two are the promise on a machine of its own
# (benchmarks/page.py measures); here other tests share the cores.
FIRST_PAINT = 2.0
SHARED = 3


def check_steps(watched: Watched, run: trace.Trace) -> None:
    """Walk through a page: each account is right, and the picture changes."""
    expected = ledgers(run)
    last = len(expected) - 1
    assert watched.last_step == last
    watched.go(0)  # a text opens at its first telling step
    assert watched.counters() == expected[0]
    nothing_drawn = watched.drawing(".positions")
    first = watched.picture()
    watched.press("ArrowRight")
    assert watched.step == 1
    assert watched.counters() == expected[1]
    assert watched.picture() != first
    for step in sorted({last // 3, 2 * last // 3, last}):
        watched.go(step)
        assert watched.counters() == expected[step]
    assert run.end is not None
    assert watched.counters()["total"] == run.end["ledger"]["evaluations"]
    has_drawn = run.end["stop"] == "completed"
    assert (watched.drawing(".positions") != nothing_drawn) == has_drawn


@pytest.mark.parametrize("length", [15, 200])
@pytest.mark.parametrize("name", sorted(SAMPLERS))
def test_page_of_every_sampler_counts_as_the_ledger_does(
    name: str,
    length: int,
    recorded: Callable[[str, int], trace.Trace],
    watch: Callable[..., Watched],
    tmp_path: Path,
) -> None:
    run = recorded(name, length)
    file = tmp_path / "run.html"
    trace.write_page(run, file)
    check_steps(watch(file), run)


@pytest.mark.parametrize("name", ["packed", "compressed", "random-balanced"])
def test_page_of_16384_positions_paints_soon_and_counts_as_the_ledger_does(
    name: str,
    recorded: Callable[[str, int], trace.Trace],
    watch: Callable[..., Watched],
    tmp_path: Path,
) -> None:
    run = recorded(name, 16_384)
    file = tmp_path / "run.html"
    trace.write_page(run, file)
    watched = watch(file)
    painted = watched.page.wait_for_function(
        "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    )
    milliseconds = painted.json_value()
    print(f"{name}: first paint after {milliseconds:.0f} ms")
    assert milliseconds < 1000 * FIRST_PAINT * SHARED
    check_steps(watched, run)


@pytest.mark.parametrize("name", trace.EXAMPLES)
def test_page_of_every_shipped_trace_plays_to_its_end(
    name: str, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    run = trace.load_example(name)
    file = tmp_path / "run.html"
    trace.write_page(run, file)
    check_steps(watch(file), run)


@pytest.mark.parametrize("mode", ["exact", "soft"])
def test_page_of_a_discovery_counts_as_the_ledger_does_and_draws_nothing(
    mode: str, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    law = cp.families.path(length=40, target_seed=196)
    file = tmp_path / "found.json"
    with trace.Recorder(file, trace.About(true_edges=law.edges)) as recorder:
        cp.discover(law.oracle(), mode=mode, on_event=recorder)
    run = trace.load_trace(file)
    trace.write_page(run, tmp_path / "found.html")
    watched = watch(tmp_path / "found.html")
    assert watched.headline == "Which of 40 positions depend on each other?"
    check_steps(watched, run)
    assert watched.headline.endswith("; nothing was drawn")
    expected = len(trace.replay(run).edges)
    assert watched.headline.startswith(f"{expected} edges found after ")
    if mode == "exact":
        assert "39 of 39 true ties found." in watched.page.locator(".caption").inner_text()
