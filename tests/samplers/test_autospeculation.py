"""Autospeculation: what it draws and reports, what it costs, and what rows that are off do."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import Autospeculation
from counterprobe.samplers.peers.autospeculation import log_ratio


def product(length: int) -> cp.ForestLaw:
    unary = np.random.default_rng(1).uniform(0.1, 1.5, size=(length, 3))
    return cp.ForestLaw(unary, [], np.ones((3, 3)))


@pytest.mark.parametrize("length", [1, 2, 3, 16, 300])
def test_a_product_target_takes_n_evaluations_in_two_stages(length):
    for seed in range(5):
        result = Autospeculation()(cp.run.Run(product(length).oracle()), cp.Streams(seed, seed))
        assert result.ledger.evaluations == length
        assert result.ledger.stages == min(2, length)
        assert result.ledger.commits == 1
        assert result.diagnostics.rejections == 0


@pytest.mark.parametrize("max_copies", [1, 2, 1024])
@pytest.mark.parametrize("order", ["random", "index"])
def test_the_reported_log_probability_is_that_of_the_law(max_copies, order, law):
    rejections = 0
    for seed in range(12):
        run = cp.run.Run(law.oracle())
        sampler = Autospeculation(order, max_copies=max_copies)
        result = sampler(run, cp.Streams(seed, seed))
        expected = float(law.log_prob(result.tokens))
        assert result.diagnostics.log_prob == pytest.approx(expected, abs=1e-9)
        rejections += result.diagnostics.rejections
    assert rejections > 0


def test_halves_share_stages_and_a_rejected_block_takes_no_new_reading_of_its_start(law):
    # One rejection of the whole, nothing else: rows, wave, wave of the first half (its rows are
    # known), rows and wave of the second half.
    for seed in range(200):
        result = Autospeculation("index")(cp.run.Run(law.oracle()), cp.Streams(0, seed))
        ran = result.diagnostics
        if ran.rejections == 1 and ran.proposals == 1 and ran.drafts == 3:
            half = law.length // 2
            assert result.ledger.stages == 5
            assert result.ledger.evaluations == law.length + (half - 1) + (law.length - half)
            return
    pytest.fail("no run was rejected once and only once")


def test_proposals_side_by_side_cost_evaluations_not_stages():
    # Pairs nearly independent: a rejection is rare and then takes very many proposals.
    law = cp.TableLaw([[0.25 + 2e-3, 0.25 - 2e-3], [0.25 - 2e-3, 0.25 + 2e-3]])
    for seed in range(3000):
        result = Autospeculation()(cp.run.Run(law.oracle()), cp.Streams(0, seed))
        ran = result.diagnostics
        if ran.proposals > 30:
            waves = math.ceil(math.log2(ran.proposals + 1))
            assert result.ledger.stages <= 2 + waves
            assert result.ledger.evaluations >= ran.proposals
            return
    pytest.fail("no run needed many proposals")


def test_the_cap_bounds_the_width_and_keeps_testing(law):
    capped = 0
    for seed in range(60):
        run = cp.run.Run(law.oracle())
        result = Autospeculation(max_copies=1)(run, cp.Streams(seed, seed))
        ran = result.diagnostics
        capped += ran.capped
        # One proposal at a time: no wave is wider than a block's prefixes.
        assert result.ledger.widest_stage < law.length
        assert ran.proposals >= ran.rejections
    assert capped > 0


def test_rounding_is_no_difference():
    drafted = np.log([0.3, 0.2, 0.5])
    noise = np.array([4e-13, -9e-13, 5e-13])
    assert log_ratio(drafted + noise, drafted) == 0.0
    assert log_ratio(drafted + np.array([0.0, 0.5, 3e-13]), drafted) == pytest.approx(
        0.5, abs=1e-15
    )
    impossible = np.array([-0.5, -np.inf])
    assert log_ratio(impossible, np.array([-0.5, -0.5])) == -np.inf
    assert log_ratio(np.array([-0.5, -0.5]), impossible) == np.inf


def test_rounding_in_long_products_is_never_rejected():
    # Components that do not touch: rows of other states differ in their last digits only.
    pairs = np.arange(400).reshape(-1, 2)
    law = cp.ForestLaw(np.ones((400, 2)), pairs, [[1.0, 1.0 + 1e-15], [1.0, 1.0]])
    for seed in range(20):
        result = Autospeculation()(cp.run.Run(law.oracle()), cp.Streams(seed, seed))
        assert result.diagnostics.rejections == 0


# ----- Rows that are off ----------------------------------------------------------------------

TAU = 0.2


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("direction", ["random", "hide"])
def test_rows_within_the_tolerance_leave_the_output_within_tau(
    direction, coupled_bits, tabulated, histogram, chi_square, false_alarms, seed_of
):
    # e <= min(tau / N, N ** -1.5). The output is the chain rule of the noisy rows, which 800
    # draws confirm up to a chi-square distance of 0.1; its distance to the law is then enumerated.
    tolerance = min(TAU / 4, 4**-1.5)
    noisy = cp.FrozenNoise(coupled_bits.oracle(), radius=tolerance**2 / 2, direction=direction)
    assert noisy.row_error <= tolerance + 1e-9
    oracle = tabulated.of(noisy)
    chain = oracle.chain([0, 1, 2, 3])
    off = float(np.abs(chain - coupled_bits.table).sum() / 2)
    assert 1e-3 < off <= TAU
    counts = histogram(Autospeculation("index"), oracle, 800, seed_of(71))
    assert chi_square(counts, chain) > false_alarms / 2
