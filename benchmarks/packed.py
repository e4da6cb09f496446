"""One packed screen: the oracle's rows, and the screen's own work beside them.

4 colors, 60 colorings, 3 columns (2,160 evaluations) on a matching, N = 16384 and 65536, two
threads. The oracle's part is timed inside its own calls; the rest (building states, the door's
checks, diameters, votes, selection) is the screen's. Voting is also compared with a matrix
product.
"""

from __future__ import annotations

import time

import numpy as np
from _timing import TimedOracle, alternate, arguments, report

import counterprobe as cp
from counterprobe.discovery import ScreenSettings, draw_colorings, packed_screen, read_banks
from counterprobe.discovery.packed.votes import VoteBook

COLORS, COLORINGS = 4, 60


def screen_once(length: int, repeats: int) -> dict[str, float]:
    """Run whole screens and keep the fastest."""
    law = cp.families.matching(length, target_seed=196)
    screen = ScreenSettings(COLORS, COLORINGS, degree_cutoff=8, chunk_size=length, tv_cut=2e-12)
    best = {"total": float("inf"), "oracle": 0.0}
    for attempt in range(repeats + 1):
        oracle = TimedOracle(law.oracle())
        run = cp.run.Run(oracle)
        banks = run.call(read_banks, 4 / law.vocab_size, 1e-12)
        draft = banks.most_likely
        colors = draw_colorings(COLORINGS, COLORS, length, np.random.default_rng(attempt))
        oracle.seconds = 0.0
        started = time.perf_counter()
        run.call(packed_screen, screen, banks.columns(draft), draft, colors)
        total = time.perf_counter() - started
        if attempt and total < best["total"]:  # the first attempt compiles
            best = {"total": total, "oracle": oracle.seconds}
    assert run.ledger.probes == 2160
    return {
        "screen_seconds": best["total"],
        "oracle_seconds": best["oracle"],
        "own_work_seconds": best["total"] - best["oracle"],
        "oracle_to_own_work_ratio": best["oracle"] / (best["total"] - best["oracle"]),
    }


def voting(length: int) -> dict[str, float]:
    """Count votes by bit-sliced counters and by a matrix product per coloring."""
    rng = np.random.default_rng(0)
    colors = draw_colorings(COLORINGS, COLORS, length, rng)
    response = rng.random((COLORINGS, COLORS, length)) < 0.3
    book = VoteBook(length, COLORS, COLORINGS)
    for t in range(COLORINGS):
        book.record(t, np.arange(COLORS), np.arange(length), response[t])

    def by_products() -> None:
        indicator = (colors[:, None, :] == np.arange(COLORS)[None, :, None]).reshape(-1, length)
        table = response.reshape(-1, length).astype(np.float32)
        for low in range(0, length, 2048):
            block = indicator[:, low : low + 2048].astype(np.float32).T @ table
            np.argwhere(block > COLORINGS / 2)

    best = alternate({"bits": lambda: book.count(colors), "product": by_products}, repeats=3)
    return {
        "vote_count_seconds": best["bits"],
        "vote_matrix_product_seconds": best["product"],
        "vote_speedup_ratio": best["product"] / best["bits"],
    }


def main() -> None:
    """Measure both sizes."""
    options = arguments(__doc__)
    repeats = 1 if options.quick else 4
    figures = {}
    for length in (16_384,) if options.quick else (16_384, 65_536):
        for key, value in screen_once(length, repeats).items():
            figures[f"n_{length}.{key}"] = value
    figures |= voting(16_384)
    report(figures, options.json)


if __name__ == "__main__":
    main()
