"""Either half of the probes alone: how probes are dealt out, and what sums of estimates say."""

from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.soft import SoftSettings, soft_screen
from counterprobe.errors import StructureError
from counterprobe.tempered import TemperedRows
from grouped_laws import GroupedLaw, chain, parity, weak_pairs

TEMPERATURE = 0.25


class CoolLaw(GroupedLaw):
    """The rows of a law at a low temperature, which keep those of temperature 1."""

    def rows(self, states, readouts):
        return TemperedRows.of(super().rows(states, readouts), TEMPERATURE)


def screened(law, probes=96, seed=0):
    decisions = cp.Streams.from_seed(seed).decisions
    return cp.run.Run(law).call(soft_screen, decisions, SoftSettings(probes=probes))


def test_halves_share_the_probes_and_agree_on_what_is_strong():
    found = screened(GroupedLaw([chain(5)] * 2, seed=1), probes=192)
    halves = found.halves
    assert halves.strength.shape == halves.variance.shape == (2, 45)
    one, other = (halves.searched(half) for half in (0, 1))
    assert not np.array_equal(one, other)
    strong = found.strength > 0.05
    assert strong.any()
    for half in (one, other):
        assert (half[strong] > 0.02).all()
        assert np.median(np.abs(half[strong] - found.strength[strong])) < 0.05
    again = screened(GroupedLaw([chain(5)] * 2, seed=1), probes=192).halves
    assert np.array_equal(again.strength, halves.strength)


@pytest.mark.statistical
def test_estimates_of_pairs_that_do_not_depend_are_noise_around_zero():
    """Level 1e-4 (four standard errors over eight screens); what is clipped at zero is above it.

    Parities move every row, which no pair explains: to positions of other groups that is noise.
    """
    law = GroupedLaw([parity(3)] * 4)
    i, j = np.triu_indices(12, 1)
    apart = i // 3 != j // 3
    screens = [screened(law, probes=96, seed=seed).halves.strength[:, apart] for seed in range(8)]
    means = np.array([values.mean() for values in screens])
    error = means.std(ddof=1) / np.sqrt(len(means))
    assert abs(means.mean()) < 4 * error
    clipped = np.array([np.maximum(values, 0).mean() for values in screens])
    assert clipped.mean() > 8 * error


def test_too_few_probes_are_not_dealt_out():
    law = GroupedLaw([weak_pairs(6, 0.3, seed=0)])
    assert screened(law, probes=12).halves is None
    assert screened(law, probes=64).halves is not None


def test_below_temperature_1_strengths_are_those_of_temperature_1_divided():
    plain = cp.discover(GroupedLaw([chain(5)] * 2), mode="soft", probes=96)
    cold = cp.discover(CoolLaw([chain(5)] * 2), mode="soft", probes=96)
    assert np.allclose(cold.strength, plain.strength / TEMPERATURE)
    assert np.allclose(cold.strength_se, plain.strength_se / TEMPERATURE)
    here, there = plain.strengths, cold.strengths
    assert np.allclose(there.moved, here.moved / TEMPERATURE)
    assert np.allclose(there.half_strength, here.half_strength / TEMPERATURE)
    assert np.allclose(there.half_variance, here.half_variance / TEMPERATURE**2)
    assert cold.about["temperature"] == TEMPERATURE and "temperature" not in plain.about
    # Plans are those of temperature 1, at another price.
    here, there = (cp.planning.plan_for(one, batches=3, seed=4) for one in (plain, cold))
    assert [b.tolist() for b in here.batches] == [b.tolist() for b in there.batches]
    assert there.estimated_kl == pytest.approx(here.estimated_kl / TEMPERATURE)
    assert there.uncovered == pytest.approx(here.uncovered / TEMPERATURE)
    # What the oracle is recognised by are its own rows.
    assert cp.discovery.check_oracle(cold, CoolLaw([chain(5)] * 2)).evaluations
    with pytest.raises(StructureError):
        cp.discovery.check_oracle(cold, GroupedLaw([chain(5)] * 2))


def test_files_keep_both_halves(tmp_path):
    law = GroupedLaw([weak_pairs(6, 0.3, seed=0)])
    found = cp.discover(law, mode="soft", probes=64)
    found.save(tmp_path / "new.npz")
    again = cp.Structure.load(tmp_path / "new.npz")
    plans = [cp.planning.plan_for(one, batches=2) for one in (found, again)]
    assert plans[0].as_dict() == plans[1].as_dict() and plans[0].is_held_out
    names = ("half_strength", "half_variance", "half_selected")
    short = {name: getattr(found.strengths, name)[:, :3] for name in names}
    broken = {"half_strength": np.full((2, 15), np.nan, dtype=np.float32)}
    for values, said in (
        (short, "15 pairs of 6 positions, got 3"),
        (broken, "half_strength must lie in"),
    ):
        wrong = replace(found, strengths=replace(found.strengths, **values))
        with pytest.raises(StructureError, match=said):
            wrong.save(tmp_path / "bad.npz")
