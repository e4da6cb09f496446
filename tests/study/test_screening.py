"""Screening: what a candidate costs at least, and that leaving out the dear changes nothing."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import Packed
from counterprobe.study.screening import (
    cheapest_diverse,
    groups_needed,
    least_total,
)


@pytest.mark.parametrize("family", ["matching", "path", "growing-stars"])
@pytest.mark.parametrize("bank_threshold", [None, 0.5])
@pytest.mark.parametrize("chunk_count", [None, 2])
def test_no_run_costs_less_than_its_least_total(family, bank_threshold, chunk_count):
    law = cp.families.build(family, 200, 3)
    for colors, colorings in ((2, 1), (3, 4), (5, 9)):
        sampler = Packed(num_colors=colors, num_colorings=colorings, chunk_count=chunk_count,
                         bank_threshold=bank_threshold)  # fmt: skip
        ledger = sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(1)).ledger
        assert ledger.evaluations >= least_total(sampler, 200)
        if bank_threshold == 0.5 and chunk_count is None:  # two columns: nothing to spare
            screens = ledger.probes // (2 * colorings * colors * (colors - 1))
            assert ledger.probes == screens * (least_total(sampler, 200) - 2)


def record(total: int, is_good: bool) -> dict:
    return {"evaluations": total, "batch_kl": 0.0 if is_good else 9.0, "batch_kl_se": 0.0,
            "stop": "completed"}  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_leaving_out_what_must_cost_more_chooses_the_same_candidates(seed):
    draw = np.random.default_rng(seed)
    size, count = int(draw.integers(1, 60)), int(draw.integers(1, 7))
    settings = [{"color": int(draw.integers(6)), "other": k} for k in range(size)]
    least = draw.integers(1, 12, size=size) * 10
    outcomes = {
        k: record(int(least[k] + draw.integers(0, 40)), bool(draw.random() < 0.5))
        for k in range(size)
    }
    groups: dict[int, list[int]] = {}
    for k in range(size):
        groups.setdefault(int(least[k]), []).append(k)

    def choose(screened):
        return cheapest_diverse(settings, screened, 1.0, differ_in=["color"], count=count)

    finished: dict[int, dict] = {}
    while True:
        needed, is_over = groups_needed(sorted(groups.items()), finished.get, choose, count)
        if is_over:
            break
        missing = [k for k in needed if k not in finished]
        assert missing  # there is always something to run until it is over
        finished[missing[-1]] = outcomes[missing[-1]]
    assert set(needed) == set(finished)
    assert choose(finished) == choose(outcomes)
    left_out = set(outcomes) - set(finished)
    if left_out:
        dearest = max(finished[k]["evaluations"] for k in choose(finished))
        assert min(least[k] for k in left_out) > dearest


def test_without_a_threshold_only_the_first_level_is_known():
    groups = [(10, [1]), (20, [0, 2])]
    finished = {1: record(12, True)}
    assert groups_needed(groups, finished.get, None, 1) == ([1], False)
    assert groups_needed(groups[:1], finished.get, None, 1) == ([1], False)
