"""Lower bounds: values worked out by hand, hypotheses, and rules that must obey them."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Probe
from counterprobe.theory import bounds
from counterprobe.theory.collisions import (
    collision_loss,
    edge_loss,
    follow_edges,
    internal_edge_law,
)

# ----- The theorem --------------------------------------------------------------------------


def test_minimax_bound_by_hand_and_monotone() -> None:
    length = 4 * 98304
    assert bounds.minimax_risk_bound(length, 0.5, 1) == pytest.approx(0.25 * (1 - math.exp(-1)))
    values = [bounds.minimax_risk_bound(length, 0.5, r) for r in (1, 2, 4)]
    assert values == sorted(values, reverse=True)
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        bounds.minimax_risk_bound(10, 0.1, 0)


def test_minimax_bound_is_refused_beyond_its_rounds() -> None:
    assert bounds.minimax_risk_bound(2 * 16384, 0.1, 2) > 0
    for length, rounds in ((2 * 16384, 3), (2 * 16384 - 2, 2), (512, 1)):
        with pytest.raises(ValueError, match=r"rounds must be at most N / 16384 = .*nothing"):
            bounds.minimax_risk_bound(length, 0.1, rounds)


@pytest.mark.parametrize("coupling", [0.0, 0.51, math.nan])
def test_minimax_bound_needs_a_coupling_of_the_family(coupling) -> None:
    with pytest.raises(ValueError, match=r"coupling must lie in \(0, 1/2\]"):
        bounds.minimax_risk_bound(16384, coupling, 1)
    with pytest.raises(ValueError, match="length must be even, got 16385"):
        bounds.minimax_risk_bound(16385, 0.1, 1)


# ----- For a target error -------------------------------------------------------------------


@pytest.mark.parametrize("target", [1e-4, 0.03, 0.125])
def test_the_hard_family_s_trade_off_is_the_theorem_turned_round(target) -> None:
    """Below its rounds, and at no more probes, the theorem forbids the target error."""
    length, theta = 10**9, 0.2
    bound = bounds.hard_family_bound(length, bank_size=80, coupling=theta, target_error=target)
    assert bound.applies
    assert bound.probes == 10
    assert bound.rounds == min(length / 16384, length * theta**2 / (786432 * target))
    fewer = math.ceil(bound.rounds) - 1
    assert bounds.minimax_risk_bound(length, theta, fewer) > target


def test_the_lower_bound_takes_any_target_error_at_one_radius() -> None:
    settings = {"epsilon": 0.1, "rank_exponent": 1.5, "hellinger_radius": 0.3}
    length = 10**26
    signal = 0.5 * (0.3**2 / length) ** (1 / 3)
    for target in (1e-3, 0.075, 0.125):
        bound = bounds.lower_bound(length, 10**12, **settings, target_error=target)
        assert bound.applies
        assert bound.target_error == target
        # The class, hence the probes, depends on the radius alone.
        assert bound.probes == math.floor(signal ** (-1 / 1.5)) / 8
        assert bound.rounds == pytest.approx(length * signal**2 / (786432 * target))
    default = bounds.lower_bound(length, 10**12, epsilon=0.1, rank_exponent=1.5)
    same = bounds.lower_bound(
        length,
        10**12,
        epsilon=0.5,
        rank_exponent=1.5,
        target_error=0.1,
        hellinger_radius=0.05,
    )
    assert same == default


def test_a_bound_that_asks_for_several_rounds_is_not_vacuous() -> None:
    # N^(1/3) (1/20)^(4/3) / 314572.8 = 5.86 at N = 10^24; 0.00586 at N = 10^15.
    bound = bounds.lower_bound(10**24, 10**12, epsilon=0.1, rank_exponent=1.5)
    assert bound.applies
    assert bound.rounds == pytest.approx(5.856, rel=1e-3)
    assert not bound.is_vacuous
    assert bound.reason == ""
    small = bounds.lower_bound(10**15, 10**12, epsilon=0.1, rank_exponent=1.5)
    assert small.is_vacuous
    # One round exactly is what every run has.
    edge = bounds.hard_family_bound(16384, bank_size=8, coupling=0.5, target_error=1e-9)
    assert (edge.rounds, edge.is_vacuous) == (1.0, True)
    more = bounds.hard_family_bound(16386, bank_size=8, coupling=0.5, target_error=1e-9)
    assert not more.is_vacuous


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"target_error": 0.126}, "target error"),
        ({"target_error": 0.0}, "target error"),
        ({"hellinger_radius": 1.5}, "hellinger_radius"),
        ({"hellinger_radius": 0.0}, "edge_signal"),
        ({"edge_signal": 0.6}, "edge_signal"),
    ],
)
def test_a_target_or_radius_outside_the_domain_does_not_apply(changes, word) -> None:
    bound = bounds.lower_bound(10**6, 10**6, epsilon=0.1, rank_exponent=1.5, **changes)
    assert not bound.applies
    assert word in bound.reason


def test_calibrated_lower_bound_equals_its_direct_form() -> None:
    length, epsilon, s = 10**9, 0.1, 1.5
    radius = epsilon / 2
    bound = bounds.lower_bound(length, 10**6, epsilon=epsilon, rank_exponent=s)
    assert bound.applies
    expected = math.floor(2 ** (1 / s) * (length / radius**2) ** (1 / (3 * s))) / 8
    assert bound.probes == expected
    direct = length ** (1 / 3) * radius ** (4 / 3) / (3145728 * epsilon)
    assert bound.rounds == pytest.approx(min(length / 16384, direct))
    assert bound.is_vacuous
    assert "at least one" in bound.reason


def test_lower_bound_says_when_it_does_not_apply() -> None:
    reasons = {
        "even": bounds.lower_bound(11, 10**6, epsilon=0.1, rank_exponent=1.5),
        "epsilon": bounds.lower_bound(10, 10**6, epsilon=0.2, rank_exponent=1.5),
        "V edge_signal": bounds.lower_bound(10**6, 3, epsilon=0.1, rank_exponent=1.5),
        "radius": bounds.lower_bound(100, 10**6, epsilon=0.1, rank_exponent=1.5, edge_signal=0.4),
    }
    for word, bound in reasons.items():
        assert not bound.applies
        assert word in bound.reason


# ----- On the family itself -----------------------------------------------------------------


def test_one_batch_on_the_hard_family_errs_at_least_as_the_bound_says() -> None:
    """No probes and one round at N = 16384, theta = rho: 1/4 (1 - exp(-theta^2 / 6))."""
    length = 16384
    for bank, rho in ((1, 0.5), (3, 0.25), (15, 1 / 16)):
        law = cp.families.hard_matching(length, vocab_size=64, bank_size=bank, trigger_mass=rho)
        predicted = bounds.minimax_risk_bound(length, rho, rounds=1)
        # The product batch breaks all N/2 edges; TV >= 1 - affinity = 1 - (1 - h)^(N/2).
        joint = law.pair_marginals[0]
        product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        one_edge = 1 - np.sqrt(joint * product).sum()
        assert rho**2 / 12 <= one_edge <= rho**2 / 2
        assert 1 - (1 - one_edge) ** (length / 2) >= predicted


@pytest.mark.parametrize("rho", [0.5, 0.1, 0.01])
def test_two_batches_on_the_hard_family_by_the_exact_law_of_their_collisions(rho) -> None:
    """Halves of N = 32768 hold z edges each, and z has a known law over the matchings."""
    length = 2 * 16384
    chances = internal_edge_law(length, length // 2)
    losses = [collision_loss(rho, rho, 2 * z) for z in range(len(chances))]
    risk = float(chances @ losses)  # at most the mean of H^2 over instances, hence of TV
    predicted = bounds.minimax_risk_bound(length, rho, rounds=2)
    assert 0 < predicted <= risk
    # An uneven cut leaves more collisions: the even one is the harder test of the bound.
    uneven = internal_edge_law(length, length // 4)
    inside = np.arange(len(uneven)) + (length // 2 - length // 4 + np.arange(len(uneven)))
    assert uneven @ [collision_loss(rho, rho, z) for z in inside] > risk * (1 - 1e-12)


@pytest.mark.parametrize(
    ("rounds", "rho", "probes"),
    [
        (2, 1 / 32, 0), (3, 1 / 32, 2),
        *(pytest.param(*case, marks=pytest.mark.slow)
          for case in ((4, 1 / 64, 0), (4, 1 / 64, 2), (8, 1 / 64, 0), (8, 1 / 64, 2))),
    ],
)  # fmt: skip
def test_several_batches_and_permitted_probes_err_at_least_as_the_bound_says(
    rounds, rho, probes
) -> None:
    """A rule of R batches at N = 16384 R: odd positions that answered to a candidate go last.

    Its batches depend on replies to probes alone, so the output factors over the matching, and
    every edge inside a batch that no probe touched costs a factor ``1 - edge_loss``.
    """
    length, bank = 16384 * rounds, 16
    law = cp.families.hard_matching(
        length, target_seed=rounds, vocab_size=64, bank_size=bank, trigger_mass=rho
    )
    assert probes <= bank / 8
    run = cp.run.Run(law.frozen_oracle())
    operations, answered = [], np.zeros(length, dtype=bool)
    odd = np.arange(1, length, 2)
    for candidate in range(probes):
        state = np.full(length, candidate)
        state[odd] = cp.MASK
        rows = run.do(Probe(state[None, :], odd)).rows.class_masses
        answered[odd] |= rows[:, 0] != rho
        operations.append(("probe", dict.fromkeys(range(0, length, 2), candidate)))
    others = np.flatnonzero(~answered)
    batches = np.array_split(others, rounds - 1 if answered.any() else rounds)
    if answered.any():
        batches.append(np.flatnonzero(answered))
        assert answered.sum() > length / 100
    assert len(batches) == rounds
    assert run.ledger.probes == probes
    record = follow_edges(
        law.mate, law.trigger, bank, [*operations, *(("commit", b.tolist()) for b in batches)]
    )
    assert (record.num_probed > 0) == (probes > 0)
    risk = collision_loss(rho, rho, sum(record.collisions))
    assert 0 < bounds.minimax_risk_bound(length, rho, rounds) <= risk < 1


def test_the_loss_of_an_edge_is_that_of_the_family() -> None:
    for rho, theta in ((0.5, 0.5), (0.25, 0.1), (1 / 16, 1 / 16)):
        law = cp.families.hard_matching(
            4, vocab_size=64, bank_size=1, trigger_mass=rho, coupling=theta
        )
        joint = law.pair_marginals[0]
        product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
        loss = edge_loss(rho, theta)
        assert loss == pytest.approx(1 - np.sqrt(joint * product).sum(), abs=1e-14)
        assert theta**2 / 12 <= loss <= theta**2 / 2


def test_too_few_columns_leave_hard_edges_broken_and_enough_find_them() -> None:
    """Below ``bank_size / 8`` guesses a source, most triggers stay unseen."""
    law = cp.families.hard_matching(
        64, target_seed=5, vocab_size=256, bank_size=16, trigger_mass=1 / 32
    )
    oracle = law.frozen_oracle()
    blind = cp.samplers.Packed(bank_threshold=0.5, num_colors=4, num_colorings=20)
    seeing = cp.samplers.Packed(
        bank_threshold=1 / 64, num_colors=4, num_colorings=40, majority_fraction=0.5
    )
    broken = {}
    for sampler in (blind, seeing):
        result = sampler(cp.run.Run(oracle), cp.Streams(1, 2))
        kl = cp.evaluation.batch_kl(law, result, oracle=oracle)
        broken[sampler] = kl.dependence_part
    assert broken[seeing] == 0.0
    assert broken[blind] > 0.0
