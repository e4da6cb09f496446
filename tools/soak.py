"""Run thousands of mixed runs with faults for a stated time, and check what must be conserved.

    .venv/bin/python tools/soak.py --seconds 600 --seed 1

Every run draws a law, a sampler, a context and a fault from its own seed, which a failure names.
What must hold: every position is committed once and stays, unless it was taken back and counted;
the ledger is what an oracle outside counted; the same seeds give the same run, whatever failed
before; a study whose process is killed comes to the same store; memory does not grow.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
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

import counterprobe as cp
from counterprobe.oracle import Oracle, Readouts
from counterprobe.rows import Rows
from counterprobe.samplers import SAMPLERS, Sampler, build_sampler
from counterprobe.study import Store, read_config, run_study
from counterprobe.testing import CountingOracle, small_forest, small_table

# Needs laws of thousands of tokens; its tests have them.
LEFT_OUT = {"packed-theory"}
FAMILIES = ("matching", "path", "binary-tree", "growing-stars", "random-recursive-tree",
            "caterpillar", "double-star", "preferential-attachment", "random-forest")  # fmt: skip
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
# A study takes seconds to start: shorter soaks go without.
LEAST_FOR_STUDIES = 45.0
STUDY_EVERY = 120.0
# Growth of resident memory between the second and the last quarter of a soak, at most.
GROWTH_SHARE, GROWTH_BYTES = 0.10, 32 << 20
FEWEST_READINGS = 40
# After so many there is nothing more to learn.
MOST_FAILURES = 20


class InjectedFault(RuntimeError):
    """What a faulty oracle raises."""


class Broken(AssertionError):
    """Something that must be conserved was not."""


@dataclass
class AnsweringOracle(CountingOracle):
    """Counts what was answered, keeps none of it, and fails once when told to."""

    fails_at: int | None = None

    def rows(self, states: Any, readouts: Readouts) -> Rows:
        """Answer, unless this is the call that fails."""
        self.calls += 1
        if self.calls - 1 == self.fails_at:
            raise InjectedFault("injected")
        answer = self.inner.rows(states, readouts)
        self.states += len(states)
        self.rows_read += len(readouts)
        return answer


def require(holds: bool, what: str) -> None:
    """Raise ``Broken`` unless something holds."""
    if not holds:
        raise Broken(what)


# ----- One run ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A law, a sampler told of it, a context and the streams of one run."""

    law: Any
    sampler: Sampler
    given: Any
    streams: cp.Streams
    sequence: int = 0

    def run(self, oracle: Oracle, **options: Any) -> tuple[cp.Unmasking, cp.SampleResult]:
        """Run once."""
        run = cp.Unmasking(oracle, given=self.given, sequence=self.sequence, **options)
        return run, self.sampler(run, self.streams)


def draw_case(draw: np.random.Generator) -> Case:
    """Draw a case."""
    kind = int(draw.integers(4))
    law: Any
    if kind == 0:
        law = small_table()
    elif kind == 1:
        law = small_forest()
    else:
        family = str(draw.choice(FAMILIES))
        law = cp.families.build(family, int(draw.integers(3, 25)), int(draw.integers(1000)))
    names = sorted(set(SAMPLERS) - LEFT_OUT)
    sampler = None
    while sampler is None:
        try:
            sampler = build_sampler(str(draw.choice(names))).informed_by(law)
        except ValueError:  # it needs a forest, and this is a table
            continue
    whole = law.sample(1, draw)[0]
    given = np.where(draw.random(law.length) < draw.choice([0.0, 0.3, 1.0]), whole, cp.MASK)
    seeds = draw.integers(2**31, size=2)
    return Case(law, sampler, given, cp.Streams(int(seeds[0]), int(seeds[1])))


def check_result(result: cp.SampleResult, oracle: AnsweringOracle, given: Any) -> None:
    """Check one run against what the oracle outside has counted."""
    ledger = result.ledger
    require(ledger.total == oracle.states, f"charged {ledger.total}, answered {oracle.states}")
    require(ledger.rows_read == oracle.rows_read, "rows read are not those answered")
    require(bool((result.state[given != cp.MASK] == given[given != cp.MASK]).all()),
            "given context changed")  # fmt: skip
    events = [event for event in result.transcript.events if event.operation == "commit"]
    committed = sum(len(event.positions) for event in events)
    standing = int(((result.state != cp.MASK) & (given == cp.MASK)).sum())
    told = f"{committed} positions committed, {standing} stand, {result.undone} taken back"
    require(committed == standing + result.undone, told)
    require(cp.Right.REMASK in result.rights or result.undone == 0, "taken back without the right")
    if result.tokens is not None:
        require(bool((result.state != cp.MASK).all()), "a completed run has masks")


def single(draw: np.random.Generator, seen: Counter[str]) -> None:
    """One run, perhaps with a fault; then the same run again, undisturbed."""
    case = draw_case(draw)
    oracle = AnsweringOracle(case.law.oracle())
    _, first = case.run(oracle)
    check_result(first, oracle, case.given)
    fault = str(draw.choice(["none", "raises", "budget", "retried"]))
    seen[fault] += 1
    calls, total = oracle.calls, first.ledger.total
    again = AnsweringOracle(case.law.oracle())
    if fault == "raises" and calls:
        again.fails_at = int(draw.integers(calls))
        run = cp.Unmasking(again, given=case.given)
        try:
            case.sampler(run, case.streams)
        except (InjectedFault, cp.CounterprobeError):
            pass
        else:
            raise Broken("an oracle raised, and the run went on")
        require(run.ledger.total <= again.states, "charged for what was never answered")
        return
    if fault == "budget" and total > 1:
        most = int(draw.integers(1, total))
        _, second = case.run(again, max_submissions=most)
        require(second.ledger.total <= most, f"{second.ledger.total} submissions pass {most}")
        check_result(second, again, case.given)
        return
    asked: Oracle = again
    if fault == "retried" and calls:
        again.fails_at = int(draw.integers(calls))
        asked = cp.RetryingOracle(again, attempts=2, backoff=0.0)
    _, second = case.run(asked)
    check_result(second, again, case.given)
    same = np.array_equal(second.state, first.state) and second.ledger == first.ledger
    require(same, "the same seeds gave another run")


def gathered(draw: np.random.Generator, seen: Counter[str]) -> None:
    """Several sequences side by side: one of them alone is the same, and all is charged once."""
    case = draw_case(draw)
    oracle = AnsweringOracle(case.law.oracle())
    count = int(draw.integers(2, 5))
    batch = cp.sample(
        oracle, case.sampler, count, seed=case.streams, given=case.given, progress=False,
        at_once=int(draw.integers(1, count + 1)),
    )  # fmt: skip
    require(batch.ledger.total == oracle.states,
            f"charged {batch.ledger.total}, answered {oracle.states}")  # fmt: skip
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
    require((one.ledger.total == 0) == ("X" not in text), "a finished text is not free")
    seen["infilled"] += 1


def tiny_model() -> Any | None:
    """Return a small network over two letters, or None without torch."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    from counterprobe.models.letters import Letters
    from counterprobe.models.sequences import SequenceModel

    weight = torch.tensor([[0.4, -0.3], [-0.2, 0.5], [0.1, 0.2]], dtype=torch.float64)

    def network(ids: torch.Tensor) -> torch.Tensor:
        return weight[ids] + weight[ids].roll(1, dims=1) - weight[ids].sum(dim=1, keepdim=True)

    return SequenceModel("tiny", network, Letters("AB", (0, 1), mask_id=2), 64)


# ----- Studies ------------------------------------------------------------------------------


class KilledStudies:
    """A small study whose process is killed at random moments, and then left to finish."""

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
        """Kill a study once or twice, let it finish, and compare."""
        self.count += 1
        store_file = self.folder / f"killed-{self.count}.db"
        for _ in range(int(draw.integers(1, 3))):
            seen["kills"] += self._killed(store_file, float(draw.uniform(0.5, 8.0)))
        process = self._start(store_file)
        _, err = process.communicate(timeout=300)
        require(process.returncode == 0, f"a study did not finish: {err.strip()[-300:]}")
        with Store(store_file) as store:
            require(results_of(store) == self.expected, "a killed study came to another store")
        seen["studies"] += 1

    def _start(self, store_file: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "counterprobe", "study", "run", "--config",
                   str(self.file), "--store", str(store_file), "--workers", "1"]  # fmt: skip
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


def results_of(store: Store) -> dict[str, Any]:
    """Return every run's result by its key."""
    return {key: record.result for key, record in store.records().items()}


# ----- The soak -----------------------------------------------------------------------------


def resident_bytes() -> int | None:
    """Return the memory that this process holds, where the system says."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth_of(readings: list[int]) -> tuple[int, bool] | None:
    """Return how much memory grew after a warm-up, and whether that is too much."""
    if len(readings) < FEWEST_READINGS:
        return None
    quarter = len(readings) // 4
    early = float(np.median(readings[quarter : 2 * quarter]))
    late = float(np.median(readings[-quarter:]))
    return int(late - early), late - early > max(GROWTH_BYTES, GROWTH_SHARE * early)


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
    began = clock()
    with tempfile.TemporaryDirectory(prefix="counterprobe-soak-") as folder:
        studies = KilledStudies(Path(folder)) if seconds >= LEAST_FOR_STUDIES else None
        next_study, k = began, 0
        while clock() - began < seconds and len(failures) < MOST_FAILURES:
            draw = np.random.default_rng([seed, k])
            try:
                if studies is not None and clock() >= next_study:
                    studies.check(draw, seen)
                    next_study = clock() + STUDY_EVERY
                elif model is not None and k % 10 == 9:
                    infilled(draw, seen, model)
                elif k % 4 == 3:
                    gathered(draw, seen)
                else:
                    single(draw, seen)
            except Exception as problem:  # whatever a run must not do
                failures.append(f"run {k} of seed {seed}: {type(problem).__name__}: {problem}")
                say(failures[-1])
            k += 1
            held = resident_bytes() if k % 10 == 0 else None
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
    warnings.simplefilter("ignore", cp.InfeasibleWarning)
    sys.exit(1 if soak(arguments.seconds, arguments.seed) else 0)


if __name__ == "__main__":
    main()
