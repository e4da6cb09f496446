"""Soft structure on a real model: plans cheaper than chance, at the price that was measured."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import models, testing
from counterprobe.evaluation import run_kl


def test_the_price_before_covers_the_price_after():
    rng = np.random.default_rng(4)
    length = 24
    edges = [(i, (i + 1) % length) for i in range(length - 1)]
    law = cp.ForestLaw(
        np.exp(rng.normal(0, 0.5, (length, 5))), edges, np.exp(rng.normal(size=(len(edges), 5, 5)))
    )
    oracle = testing.NoisyLogits.with_mean_error(law.oracle(), 0.04, 2).declaring(0.1)
    structure = cp.discover(oracle, mode="soft", probes=96)
    before = (
        cp.evaluation.price_plans(oracle, structure, (3,), samples=128, plans=16, seed=1)
        .of("planned")[0]
        .measured
    )
    drawn = cp.sample(oracle, structure, 128, seed=cp.Streams(5, 6), batches=3, orders=16)
    after = run_kl(oracle, drawn)
    error = np.hypot(before.standard_error, after.standard_error)
    assert abs(before.value - after.value) < 4.9 * error + 1e-9  # level 1e-6


@pytest.mark.slow
def test_ubiquitin_in_eight_batches():
    model = models.load("proteinmpnn", backbone="1ubi", device="cpu")
    oracle = model.oracle()
    structure = cp.discover(oracle, cp.Streams.from_seed(1), mode="soft", probes=256)
    assert structure.ledger.evaluations <= 300
    table = cp.evaluation.price_plans(oracle, structure, (8,), samples=48, terms=2)
    planned, random = (table.of(way)[0].measured for way in ("planned", "random"))
    assert planned.value + 3 * planned.standard_error < 0.2
    assert planned.value < random.value / 3
    drawn = cp.sample(oracle, structure, 32, seed=cp.Streams(7, 8), batches=8)
    after = run_kl(oracle, drawn, terms=2)
    error = np.hypot(planned.standard_error, after.standard_error)
    assert abs(planned.value - after.value) < 4.9 * error  # level 1e-6
    assert (drawn.sequences >= 0).all()
