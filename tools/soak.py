"""Run thousands of mixed runs with faults for a stated time, and check what must be conserved.

    .venv/bin/python tools/soak.py --seconds 600 --seed 1

Every run draws a law, a sampler, a context and a fault from its own seed, which a failure names.
What must hold: every position is committed once and stays, unless it was taken back and counted;
the ledger is what an oracle outside counted; the same seeds give the same run, whatever failed
before; a run that is cut off and resumed from its cache pays for nothing twice; replicas
that are killed change nothing; a study that is killed, and one whose workers are, comes to the
same store; memory does not grow.
"""

from __future__ import annotations

import argparse
import logging
import sqlite3
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from soak_cases import (
    AnsweringOracle,
    Broken,
    Case,
    InjectedFault,
    check_result,
    draw_case,
    require,
    tiny_model,
)
from soak_killed import KilledStudies, replicated

import counterprobe as cp
from counterprobe.oracles import Oracle

# Processes take seconds to start: shorter soaks go without studies and replicas.
LEAST_FOR_PROCESSES = 45.0
# Growth of memory between the second and the last quarter of a soak, at most.
GROWTH_SHARE, GROWTH_BYTES = 0.10, 32 << 20
FEWEST_READINGS = 40
# After so many there is nothing more to learn.
MOST_FAILURES = 20


# ----- One run ------------------------------------------------------------------------------


def single(draw: np.random.Generator, seen: Counter[str]) -> None:
    """One run, perhaps with a fault; then the same run again, undisturbed."""
    case = draw_case(draw)
    oracle = AnsweringOracle(case.law.oracle())
    _, first = case.run(oracle)
    check_result(first, oracle, case.given)
    fault = str(draw.choice(["none", "raises", "budget", "retried"]))
    seen[fault] += 1
    calls, total = oracle.calls, first.ledger.evaluations
    again = AnsweringOracle(case.law.oracle())
    if fault == "raises" and calls:
        again.fails_at = int(draw.integers(calls))
        run = cp.run.Run(again, given=case.given)
        try:
            case.sampler(run, case.streams)
        except (InjectedFault, cp.CounterprobeError):
            pass
        else:
            raise Broken("an oracle raised, and the run went on")
        require(run.ledger.evaluations <= again.states, "charged for what was never answered")
        return
    if fault == "budget" and total > 1:
        most = int(draw.integers(1, total))
        _, second = case.run(again, max_evaluations=most)
        require(
            second.ledger.evaluations <= most,
            f"{second.ledger.evaluations} evaluations pass {most}",
        )
        check_result(second, again, case.given)
        return
    asked: Oracle = again
    if fault == "retried" and calls:
        again.fails_at = int(draw.integers(calls))
        asked = again.retrying(2, backoff=0.0)
    _, second = case.run(asked)
    check_result(second, again, case.given)
    same = np.array_equal(second.state, first.state) and second.ledger == first.ledger
    require(same, "the same seeds gave another run")


def resumed(draw: np.random.Generator, seen: Counter[str], path: Path) -> None:
    """Let a run fail once or twice and go on from its cache, which may lose replies."""
    case = draw_case(draw)
    oracle = AnsweringOracle(case.law.oracle())
    _, first = case.run(oracle)
    lives, is_cut, paid = int(draw.integers(2, 4)), False, 0
    path.unlink(missing_ok=True)
    for life in range(lives):
        again = AnsweringOracle(case.law.oracle())
        if life < lives - 1:  # not at once: the first call of a later life recognises the oracle
            again.fails_at = int(draw.integers(1, max(2, oracle.calls)))
        with again.cached(path) as cached:
            try:
                _, result = case.run(cached)
            except (InjectedFault, cp.CounterprobeError):
                require(again.fails_at is not None, "an oracle did not raise, and the run ended")
            else:
                check_resumed(result, first)
        paid += again.states - cached.num_recognising
        if life < lives - 1 and draw.random() < 0.4:
            with sqlite3.connect(path) as database:
                lost = "DELETE FROM replies WHERE abs(random()) % 2 = 0"
                is_cut |= database.execute(lost).rowcount > 0
            database.close()
    check_resumed(result, first)
    total = first.ledger.evaluations
    require(is_cut or paid <= total, f"charged {total}, paid {paid}")
    seen["resumed, replies lost" if is_cut else "resumed"] += 1


def check_resumed(result: cp.SampleResult, first: cp.SampleResult) -> None:
    """Check that a resumed run is the one that was never disturbed."""
    same = np.array_equal(result.state, first.state) and result.ledger == first.ledger
    require(same, "a resumed run is another, or costs something else")


def gathered(draw: np.random.Generator, seen: Counter[str]) -> None:
    """Several sequences side by side: one of them alone is the same, and all is charged once."""
    case = draw_case(draw)
    oracle = AnsweringOracle(case.law.oracle())
    count = int(draw.integers(2, 5))
    batch = cp.sample(
        oracle, case.sampler, count, seed=case.streams, given=case.given, progress=False,
        orders="shared", at_once=int(draw.integers(1, count + 1)),
    )  # fmt: skip
    require(batch.ledger.evaluations == oracle.states,
            f"charged {batch.ledger.evaluations}, answered {oracle.states}")  # fmt: skip
    k = int(draw.integers(count))
    _, alone = Case(case.law, case.sampler, case.given, case.streams, k).run(case.law.oracle())
    require(np.array_equal(alone.state, batch.sequences[k]), f"sequence {k} is another alone")
    require(alone.ledger == batch.results[k].ledger, f"sequence {k} costs something else alone")
    seen["gathered"] += 1


def infilled(draw: np.random.Generator, seen: Counter[str], model: Any) -> None:
    """Fill in the masks of a short text by a tiny network."""
    letters = draw.choice(list("ABX"), size=int(draw.integers(2, 9)))
    text = "".join(map(str, letters))
    sampler = str(draw.choice(["sequential", "entropy-bounded", "maskgit", "punt"]))
    options = {"sampler": sampler, "count": 2, "seed": int(draw.integers(1000)), "progress": False}
    one = cp.infill(model, text, **options)
    two = cp.infill(model, text, **options)
    require(one.texts is not None and one.texts == two.texts, "the same seed gave another text")
    for filled in one.texts or ():
        kept = all(a == b for a, b in zip(text, filled, strict=True) if a != "X")
        require(kept and "X" not in filled, f"{text} became {filled}")
    require(one.ledger == two.ledger, "the same seed cost something else")
    require((one.ledger.evaluations == 0) == ("X" not in text), "a finished text is not free")
    seen["infilled"] += 1


# ----- The soak -----------------------------------------------------------------------------


def held_bytes() -> int | None:
    """Return the memory that this process has filled, where the system says.

    Swapped out or not; pages of files are left out, which come and go with other processes.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = {line.split(":")[0]: line.split()[1] for line in lines if line.endswith(" kB")}
    return 1024 * sum(int(kilobytes.get(part, 0)) for part in ("RssAnon", "VmSwap"))


def growth_of(readings: list[int]) -> tuple[int, bool] | None:
    """Return how much memory grew after a warm-up, and whether that is too much."""
    if len(readings) < FEWEST_READINGS:
        return None
    quarter = len(readings) // 4
    early = float(np.median(readings[quarter : 2 * quarter]))
    late = float(np.median(readings[-quarter:]))
    return int(late - early), late - early > max(GROWTH_BYTES, GROWTH_SHARE * early)


@dataclass
class SlowWork:
    """Work that is done now and then: when first, how often, and when it is due again."""

    check: Callable[[np.random.Generator, Counter[str]], None]
    first: float
    every: float
    due: float = 0.0


def slow_work(folder: Path) -> list[SlowWork]:
    """Return what starts processes, and kills them."""
    studies = KilledStudies(folder)
    return [SlowWork(studies.check, 5.0, 120.0), SlowWork(replicated, 15.0, 20.0)]


def soak(
    seconds: float,
    seed: int,
    *,
    say: Callable[[str], object] = print,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Soak; return the number of failures."""
    say(f"soak: {seconds:g} seconds, seed {seed}")
    seen: Counter[str] = Counter()
    failures: list[str] = []
    readings: list[int] = []
    model = tiny_model()
    with tempfile.TemporaryDirectory(prefix="counterprobe-soak-") as folder:
        slow = slow_work(Path(folder)) if seconds >= LEAST_FOR_PROCESSES else []
        began, k = clock(), 0
        for one in slow:
            one.due = began + one.first
        while clock() - began < seconds and len(failures) < MOST_FAILURES:
            draw, started = np.random.default_rng([seed, k]), clock()
            due = next((one for one in slow if started >= one.due), None)
            try:
                if due is not None:
                    due.check(draw, seen)
                elif model is not None and k % 10 == 9:
                    infilled(draw, seen, model)
                elif k % 4 == 3:
                    gathered(draw, seen)
                elif k % 5 == 1:
                    resumed(draw, seen, Path(folder) / "replies")
                else:
                    single(draw, seen)
            except Exception as problem:  # whatever a run must not do
                failures.append(f"run {k} of seed {seed}: {type(problem).__name__}: {problem}")
                say(failures[-1])
            if due is not None:  # at most a quarter of the time goes into each of them
                due.due = clock() + max(due.every, 3 * (clock() - started))
            k += 1
            held = held_bytes() if k % 10 == 0 else None
            if held is not None:
                readings.append(held)
    grown = growth_of(readings)
    if grown is not None and grown[1]:
        failures.append(f"memory grew by {grown[0]:,} bytes")
    memory = "not judged, too few runs" if grown is None else f"grew by {grown[0] / 2**20:.1f} MiB"
    counts = ", ".join(f"{name} {count:,}" for name, count in sorted(seen.items()))
    say(f"soak: {k:,} runs in {clock() - began:.0f} s ({counts}); memory {memory}")
    say(f"soak: {len(failures)} failures" + "".join(f"\n  {failure}" for failure in failures))
    return len(failures)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    # Faults are injected and tables cannot be screened: that is no news here.
    logging.getLogger("counterprobe").setLevel(logging.ERROR)
    warnings.simplefilter("ignore", cp.errors.InfeasibleWarning)
    sys.exit(1 if soak(arguments.seconds, arguments.seed) else 0)


if __name__ == "__main__":
    main()
