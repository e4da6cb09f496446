"""One run of the compressed sampler: where its time goes, and how much memory it takes.

Whole runs (preprocess, probes, commits) on exact oracles, every core: a path of 16,384, and a path
and a matching of 65,536. The oracle's rows are timed inside its own calls; decoding, or ranking
(matrix products) and fitting where the regression screen took over, by the screen itself. The
ratio sets a run's submissions against committing every position singly.
"""

from __future__ import annotations

import resource
import time

from _timing import TimedOracle, arguments, report

import counterprobe as cp


def whole_run(family: str, length: int) -> dict[str, float]:
    """Run once, check that the batches were exact, and say where the time went."""
    law = cp.families.build(family, length, 196)
    oracle = TimedOracle(law.oracle())
    started = time.perf_counter()
    result = cp.samplers.Compressed()(cp.Unmasking(oracle), cp.Streams.from_seed(292))
    seconds = time.perf_counter() - started
    assert cp.evaluation.batch_kl_of_batches(law, result.tokens, result.batches).value == 0.0
    spent = result.diagnostics.findings.seconds
    return {
        "submissions": result.ledger.total,
        "submissions_saved_ratio": length / result.ledger.total,
        "total_seconds": seconds,
        "oracle_seconds": oracle.seconds,
        **{f"{part}_seconds": taken for part, taken in spent.items() if part != "probing"},
        "peak_memory_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Measure."""
    options = arguments(__doc__)
    whole_run("path", 1024)  # compiles
    cases = [("path", 16_384)]
    if not options.quick:
        cases += [("path", 65_536), ("matching", 65_536)]
    figures = {}
    for family, length in cases:
        for key, value in whole_run(family, length).items():
            figures[f"{family}_{length}.{key}"] = value
        print(
            f"{family} {length}: {figures[f'{family}_{length}.total_seconds']:.1f} s", flush=True
        )
    report(figures, options.json)


if __name__ == "__main__":
    main()
