"""One run of the compressed sampler: where its time goes, and how much memory it takes.

Whole runs (preprocess, probes, commits) on exact oracles: a path of 16,384 by the regression
screen and by the decoder, and a path and a matching of 65,536 by the decoder. Seconds of the
processor are what a run took on all cores, whoever else was waiting for them. The oracle's rows
are timed inside its own calls; decoding, or ranking (matrix products) and fitting, by the screen
itself, as shares of all seconds. Ratios set a run's evaluations against committing every position
singly, and the regression screen's processor seconds against the decoder's.
"""

from __future__ import annotations

import resource
import time

from _timing import TimedOracle, arguments, report

import counterprobe as cp
from counterprobe.discovery.compressed.findings import Method


def whole_run(family: str, length: int, method: Method = "auto") -> dict[str, float]:
    """Run once, check that the batches were exact, and say where the time went."""
    law = cp.families.build(family, length, 196)
    oracle = TimedOracle(law.oracle())
    started, busy = time.perf_counter(), time.process_time()
    sampler = cp.samplers.Compressed(method=method)
    result = sampler(cp.run.Run(oracle), cp.Streams.from_seed(292))
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    assert cp.evaluation.batch_kl_of_batches(law, result.tokens, result.batches).value == 0.0
    spent = result.diagnostics.findings.seconds
    return {
        "evaluations": result.ledger.evaluations,
        "evaluations_saved_ratio": length / result.ledger.evaluations,
        "total_seconds": seconds,
        "processor_seconds": busy,
        "oracle_share": oracle.seconds / seconds,
        **{f"{part}_share": taken / seconds for part, taken in spent.items() if part != "probing"},
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Measure."""
    options = arguments(__doc__)
    cases: list[tuple[str, int, Method]] = [
        ("path", 16_384, "regression"),
        ("path", 16_384, "auto"),
    ]
    if not options.quick:
        cases += [("path", 65_536, "auto"), ("matching", 65_536, "auto")]
    figures = {}
    for family, length, method in cases:
        whole_run(family, 1024, method)  # compiles
        name = f"{family}_{length}" + ("_regression" if method == "regression" else "")
        for key, value in whole_run(family, length, method).items():
            figures[f"{name}.{key}"] = value
        print(f"{name}: {figures[f'{name}.total_seconds']:.1f} s", flush=True)
    before, now = (f"path_16384{kind}.processor_seconds" for kind in ("_regression", ""))
    figures["path_16384.regression_ratio"] = figures[before] / figures[now]
    report(figures, options.json)


if __name__ == "__main__":
    main()
