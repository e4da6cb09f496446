"""ReMDM: its chances, its limits, and its whole output law on a small target."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import Ancestral, ReMDM
from counterprobe.samplers.rules.quotas import reveal_chances

STRATEGIES = ["rescale", "cap", "confidence", "loop"]
BY_SCHEDULE = ["rescale", "cap", "loop"]


def same(one: cp.SampleResult, other: cp.SampleResult) -> bool:
    return (
        one.tokens.tolist() == other.tokens.tolist()
        and one.round_of_position.tolist() == other.round_of_position.tolist()
        and one.ledger == other.ledger
    )


# ----- Chances --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["rescale", "cap", "confidence"])
@pytest.mark.parametrize("steps", [1, 2, 7, 64])
def test_masking_nothing_again_is_ancestral_sampling_draw_for_draw(law, strategy, steps):
    reveal, again = ReMDM(steps, strategy, eta=0.0).chances()
    assert reveal.tolist() == reveal_chances(steps, 1e-3).tolist()
    assert not again.any()
    for seed in range(5):
        streams = cp.Streams(seed, seed + 1)
        plain = Ancestral(steps)(cp.run.Run(law.oracle()), streams)
        masking = ReMDM(steps, strategy, eta=0.0)(cp.run.Run(law.oracle()), streams)
        assert same(plain, masking)
        assert masking.used == cp.Need.NONE


@pytest.mark.parametrize("strategy", BY_SCHEDULE)
@pytest.mark.parametrize("eta", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 9, 200])
def test_the_share_of_masks_follows_the_schedule(strategy, eta, steps):
    sampler = ReMDM(steps, strategy, eta=eta)
    shares = sampler.masked_shares()
    masked = 1.0
    for reveal, again, expected in zip(*sampler.chances(), shares[1:], strict=True):
        assert 0 <= reveal <= 1
        assert 0 <= again <= 1
        masked = masked * (1 - reveal) + (1 - masked) * again
        assert masked == pytest.approx(expected, abs=1e-12)
    assert masked == 0


def test_sigma_is_the_published_one():
    times = np.linspace(1, 1e-3, 11)
    times[-1] = 0
    most = np.minimum(1, times[1:] / np.maximum(1 - times[:-1], 1e-300))
    assert ReMDM(10, "rescale", eta=0.3).chances()[1] == pytest.approx(0.3 * most)
    assert ReMDM(10, "cap", eta=0.3).chances()[1] == pytest.approx(np.minimum(0.3, most))
    reveal, shared = ReMDM(10, "confidence", eta=1.0).chances()
    assert shared == pytest.approx(most)
    assert reveal == pytest.approx(reveal_chances(10, 1e-3))


def test_the_loop_stays_at_its_share_and_masks_only_there():
    sampler = ReMDM(100, "loop", eta=0.02)
    times = np.linspace(1, 1e-3, 101)[:-1]
    shares = sampler.masked_shares()[:-1]
    reveal, again = sampler.chances()
    inside = (times <= 0.55) & (times > 0.05)
    assert shares[inside] == pytest.approx(0.1)
    assert again[inside] == pytest.approx(0.02)
    assert not again[~inside].any()
    # As many are revealed as are masked again: 0.1 u = 0.9 sigma.
    still = inside[:-1] & inside[1:]
    assert reveal[:-1][still] == pytest.approx(0.18)


# ----- Runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_run_ends_within_its_steps(law, strategy):
    for steps, seed in itertools.product((1, 3, 30), range(4)):
        sampler = ReMDM(steps, strategy, eta=1.0)
        result = sampler(cp.run.Run(law.oracle()), cp.Streams(seed, 1))
        assert result.stop is cp.StopReason.COMPLETED
        assert result.ledger.evaluations == result.ledger.commits <= steps


# ----- The whole output law -------------------------------------------------------------------


def output_law(law: cp.TableLaw, sampler: ReMDM) -> np.ndarray:
    """Multiply the published kernel over every partial state; masks are token 0 here."""
    length, tokens = law.length, law.vocab_size + 1
    states = np.indices((tokens,) * length).reshape(length, -1).T - 1
    rows = np.zeros((len(states), length, law.vocab_size))
    for rows_of, state in zip(rows, states, strict=True):
        masked = np.flatnonzero(state < 0)
        if len(masked):
            readouts = cp.Readouts.same(1, masked)
            rows_of[masked] = law.oracle().rows(state[None].astype(np.int32), readouts).dense()
    chance = np.eye(1, len(states))[0]
    for reveal, again in zip(*sampler.chances(), strict=True):
        kernel = np.ones((len(states), 1))
        for i in range(length):
            kept = np.eye(tokens)[states[:, i] + 1]
            drawn = np.concatenate([np.zeros((len(states), 1)), rows[:, i]], axis=1)
            to = np.where(
                states[:, [i]] < 0,
                (1 - reveal) * kept + reveal * drawn,
                (1 - again) * kept + again * np.eye(tokens)[0],
            )
            kernel = (kernel[:, :, None] * to[:, None, :]).reshape(len(states), -1)
        chance = chance @ kernel
    whole = chance.reshape((tokens,) * length)[(slice(1, None),) * length]
    assert whole.sum() == pytest.approx(1, abs=1e-9)
    return whole


def small_law(seed: int = 1) -> cp.TableLaw:
    return cp.TableLaw(np.random.default_rng(seed).dirichlet(np.full(8, 0.3)).reshape(2, 2, 2))


def distance(law: cp.TableLaw, sampler: ReMDM) -> float:
    target = np.exp(law.log_prob(np.indices((2,) * law.length).reshape(law.length, -1).T))
    return float(np.abs(output_law(law, sampler).ravel() - target).sum() / 2)


@pytest.mark.parametrize("strategy", ["rescale", "cap"])
@pytest.mark.parametrize("eta", [0.1, 1.0])
def test_with_exact_rows_the_law_tends_to_the_target_as_steps_grow(strategy, eta):
    far = [distance(small_law(), ReMDM(k, strategy, eta=eta)) for k in (4, 16, 64, 256, 1024)]
    assert far == sorted(far, reverse=True)
    assert far[-1] < 0.01 < 0.09 < far[0]


def test_a_loop_of_fixed_eta_keeps_a_bias_that_a_smaller_eta_does_not():
    held = [distance(small_law(), ReMDM(k, "loop", eta=0.1)) for k in (64, 1024)]
    assert min(held) > 0.009
    assert distance(small_law(), ReMDM(1024, "loop", eta=0.01)) < held[1] / 3


@pytest.mark.slow
@pytest.mark.statistical
def test_runs_follow_the_kernel_and_not_that_of_another_eta(chi_square, seed_of, false_alarms):
    # 2,000 runs of five steps, 7 degrees of freedom: against eta 0 the statistic is centred at
    # 7 + 124, with a deviation of 23, and the level is passed at 30.
    law, sampler = small_law(5), ReMDM(5, eta=1.0)
    streams = cp.Streams.from_seed(seed_of(5))
    results = [
        sampler(cp.run.Run(law.oracle(), sequence=k), streams.with_fresh_decisions(k))
        for k in range(2_000)
    ]
    counts = np.bincount([result.tokens @ [4, 2, 1] for result in results], minlength=8)
    assert chi_square(counts, output_law(law, sampler)) > false_alarms
    assert chi_square(counts, output_law(law, ReMDM(5, eta=0.0))) < false_alarms
    assert np.mean([result.undone for result in results]) > 1


# ----- The example of the documentation -------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    path = ROOT / "tools" / "remasking_example.py"
    spec = importlib.util.spec_from_file_location("remasking_example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("strategy", BY_SCHEDULE)
def test_the_example_steps_from_counts_to_counts_as_the_kernel_does(example, strategy):
    sampler = ReMDM(6, strategy, eta=0.4)
    ones = np.indices((2, 2, 2)).sum(axis=0)
    joint = (0.9**ones * 0.1 ** (3 - ones) + 0.1**ones * 0.9 ** (3 - ones)) / 2
    whole = output_law(cp.TableLaw(joint), sampler)
    by_count = [whole[ones == k].sum() for k in range(4)]
    assert example.output_counts(3, 0.9, sampler) == pytest.approx(by_count, abs=1e-12)
    assert example.target_counts(3, 0.9)[1] == pytest.approx(joint[ones == 1].sum())


def test_the_documentation_shows_what_the_example_computes(example):
    shown = (ROOT / "docs" / "samplers.md").read_text(encoding="utf-8")
    laws = {name: (length, agreement) for name, length, agreement in example.LAWS}
    rows = [line.strip("| ").split(" | ") for line in shown.splitlines()
            if line.startswith(("| copied bit |", "| topic |"))]  # fmt: skip
    assert [(law, int(steps)) for law, steps, *_ in rows] == list(
        itertools.product(laws, example.STEPS)
    )
    for law, steps, *cells in rows:
        if int(steps) <= 16:
            for eta, cell in zip(example.ETAS, cells, strict=True):
                found = example.distance(*laws[law], ReMDM(int(steps), eta=eta))
                assert float(cell) == pytest.approx(found, abs=5.1e-5)
