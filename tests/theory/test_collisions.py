"""The lower bound's lemmas on instances small enough to list, and where they are tight."""

import itertools
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation.output_law import exact_output_law
from counterprobe.run import Commit
from counterprobe.theory.collisions import (
    collision_loss,
    collision_tail_bound,
    disclosure_bound,
    edge_loss,
    follow_edges,
    internal_edge_law,
    laplace_bound,
)


def matchings(positions: tuple[int, ...]) -> list[list[tuple[int, int]]]:
    """List all perfect matchings."""
    if not positions:
        return [[]]
    first, *rest = positions
    return [
        [(first, other), *more]
        for other in rest
        for more in matchings(tuple(p for p in rest if p != other))
    ]


def mates(length: int) -> list[np.ndarray]:
    """List all perfect matchings of a length, as the mate of each position."""
    found = []
    for edges in matchings(tuple(range(length))):
        mate = np.empty(length, dtype=int)
        for i, j in edges:
            mate[i], mate[j] = j, i
        found.append(mate)
    return found


# ----- Survivors and disclosure ---------------------------------------------------------------


def replies(mate, trigger, shown, length) -> tuple[bool, ...]:
    """Return whether each masked position's row moves: its mate shows its trigger."""
    return tuple(
        i not in shown and shown.get(int(mate[i])) == trigger[mate[i]] for i in range(length)
    )


def adaptive_run(mate, trigger, bank) -> tuple[tuple, list]:
    """Probe, look, probe what the reply suggests, commit two silent positions, probe again."""
    length = len(mate)
    first = {0: 0, 1: 1 % bank, 2: 0}
    seen = [replies(mate, trigger, first, length)]
    shown = {0: 1 % bank, 3: 0} if any(seen[0]) else {1: 0, 2: 1 % bank, length - 1: 0}
    seen.append(replies(mate, trigger, shown, length))
    silent = [i for i in range(length) if not any(reply[i] for reply in seen)]
    operations = [("probe", first), ("probe", shown), ("commit", silent[:2])]
    last = {i: 1 % bank for i in range(length) if i not in silent[:2] and i % 2}
    seen.append(replies(mate, trigger, last, length))
    return tuple(seen), [*operations, ("probe", last)]


@pytest.mark.parametrize(("length", "bank"), [(4, 3), (6, 3)])
def test_survivors_stay_uniform_given_all_that_was_seen(length, bank):
    """Lemma "Unresolved-matching invariant", over every instance; committed tokens aside."""
    groups = defaultdict(Counter)
    for mate in mates(length):
        for trigger in itertools.product(range(bank), repeat=length):
            seen, operations = adaptive_run(mate, trigger, bank)
            record = follow_edges(mate, trigger, bank, operations)
            alive = sorted(record.remaining)
            retired = tuple((i, int(mate[i]), trigger[i]) for i in range(length) if i not in alive)
            survivor = record.unresolved, tuple(trigger[i] for i in alive)
            left = tuple(sorted((i, *sorted(c)) for i, c in record.remaining.items()))
            groups[seen, retired, left][survivor] += 1
    several = 0
    for (_, _, left), survivors in groups.items():
        alive = [i for i, *_ in left]
        everything = math.prod(range(1, len(alive), 2)) * math.prod(len(c) - 1 for c in left)
        assert len(survivors) == everything  # every matching and untested trigger is possible ...
        assert len(set(survivors.values())) == 1  # ... and equally so
        several += len(alive) >= 4
    assert length == 4 or several > 0


@pytest.mark.parametrize(("length", "bank"), [(4, 3), (6, 2)])
def test_edges_are_counted_once_and_probes_reveal_few(length, bank):
    revealed, count = 0, 0
    for mate in mates(length):
        for trigger in itertools.product(range(bank), repeat=length):
            _, operations = adaptive_run(mate, trigger, bank)
            committed = set(operations[2][1])
            rest = [i for i in range(length) if i not in committed]
            record = follow_edges(mate, trigger, bank, [*operations, ("commit", rest)])
            assert not record.unresolved
            touched = sum(record.active) - sum(record.collisions)
            assert record.num_probed + touched == length / 2
            revealed, count = revealed + record.num_probed, count + 1
    assert 0 < revealed / count <= disclosure_bound(length, 3, bank)


@pytest.mark.parametrize("probes", [0, 1, 2, 3, 4])
def test_disclosure_is_tight_at_one_position_and_nearly_so_at_all(probes):
    """New candidates each time: N/2 (1 - (1 - Q/b)^2) edges, and Q/b at a single position."""
    bank, mate = 4, [1, 0, 3, 2]
    everywhere = [("probe", dict.fromkeys(range(4), c)) for c in range(probes)]
    alone = [("probe", {0: c}) for c in range(probes)]
    triggers = list(itertools.product(range(bank), repeat=4))
    mean = np.mean([follow_edges(mate, t, bank, everywhere).num_probed for t in triggers])
    assert mean == pytest.approx(2 * (1 - (1 - probes / bank) ** 2))
    assert mean <= disclosure_bound(4, probes, bank)
    single = np.mean([follow_edges(mate, t, bank, alone).num_probed for t in triggers])
    assert single == pytest.approx(disclosure_bound(4, probes, bank) / 4)


# ----- Collisions -----------------------------------------------------------------------------


@pytest.mark.parametrize("length", [2, 4, 6, 8])
def test_internal_edges_by_listing_every_matching(length):
    every = mates(length)
    for size in range(length + 1):
        counts = Counter(sum(i < mate[i] < size for i in range(size)) for mate in every)
        expected = [counts[z] / len(every) for z in range(size // 2 + 1)]
        assert internal_edge_law(length, size) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rate", [0.01, 1.0, 20.0])
def test_the_laplace_bound_holds_and_is_an_equality_only_for_one_position(rate):
    for length in (2, 4, 6, 8, 16, 64, 256):
        for size in range(length + 1):
            law = internal_edge_law(length, size)
            mean = float(law @ np.exp(-rate * np.arange(len(law))))
            bound = laplace_bound(length, size, rate)
            if size <= 1:
                assert mean == pytest.approx(1, abs=1e-12)
                assert bound == 1
            else:
                assert mean < bound


def test_the_collision_exponential_of_an_adaptive_rule_has_mean_at_most_one():
    """``E exp(-sum Z + sum A / 64) <= 1``: the second batch avoids the first's mates."""
    total, every = 0.0, mates(8)
    for mate in every:
        first = [0, 1, 2]
        # The record shows the mates of the first batch: avoid them, or take their neighbours.
        known = {*first, *(int(mate[i]) for i in first)}
        second = [i for i in range(8) if i not in known][: 2 + int(mate[0]) % 2]
        rest = [i for i in range(8) if i not in {*first, *second}]
        commits = [("commit", batch) for batch in (first, second, rest) if batch]
        exponent = 0.0
        for t in range(len(commits)):
            before = follow_edges(mate, [0] * 8, 1, commits[:t])
            after = follow_edges(mate, [0] * 8, 1, commits[: t + 1])
            pool = 2 * len(before.unresolved)
            push = max(after.active[-1] - 1, 0) ** 2 / pool if pool else 0.0
            exponent += push / 64 - after.collisions[-1]
        total += math.exp(exponent)
    assert total / len(every) <= 1
    # One position a round has neither collisions nor push: equality.
    singly = follow_edges(every[0], [0] * 8, 1, [("commit", [i]) for i in range(8)])
    assert max(singly.active) == 1
    assert sum(singly.collisions) == 0


@pytest.mark.parametrize("length", [5680 * 2, 16384 * 2, 16384 * 8])
def test_the_collision_tail_of_two_batches_by_its_exact_law(length):
    few, chance = collision_tail_bound(length, 2)
    law = internal_edge_law(length, length // 2)
    assert chance > 0
    assert law[math.ceil(few / 2) :].sum() >= chance
    if length >= 16384 * 2:
        assert chance >= 1 / 4


def test_the_collision_tail_says_when_it_says_nothing():
    few, chance = collision_tail_bound(16, 2)
    assert few == pytest.approx(16 / 16384)
    assert chance < 0
    with pytest.raises(ValueError, match=r"rounds must lie in 1\.\.N / 8 = 2, got 3"):
        collision_tail_bound(16, 3)


# ----- What collisions cost -------------------------------------------------------------------


@dataclass(frozen=True)
class Adaptive(cp.samplers.Sampler):
    """Batches that depend on the tokens committed so far."""

    name: ClassVar[str] = "adaptive-batches"
    summary: ClassVar[str] = "for tests"
    source: ClassVar[str] = "tests"

    rounds: int = 2

    def unmask(self, view, rng):
        done = 0
        while not view.is_complete:
            yield Commit(self.batch(view.state, done))
            done += 1

    def batch(self, state, done):
        residual = np.flatnonzero(state == cp.MASK)
        if done == self.rounds - 1:
            return residual
        size = 1 + int(state[state != cp.MASK].sum()) % 2 + (done == 0)
        return residual[::2][:size] if done % 2 else residual[:size]


@pytest.mark.parametrize(
    ("rounds", "rho"),
    [
        (1, 0.2),
        (2, 0.5),
        pytest.param(2, 0.2, marks=pytest.mark.slow),
        pytest.param(3, 0.5, marks=pytest.mark.slow),
        pytest.param(3, 0.2, marks=pytest.mark.slow),
    ],
)
def test_collisions_cost_what_the_affinity_lemma_says(rounds, rho):
    """All 15 matchings of six positions with one candidate each, and all values."""
    sampler = Adaptive(rounds)
    losses, floors = [], []
    for mate in mates(6):
        law = member(mate, rho)
        exact = exact_output_law(law, sampler, oracle=law.frozen_oracle())
        losses.append(exact.squared_hellinger)
        assert exact.squared_hellinger <= exact.total_variation + 1e-12
        floor = 0.0
        for x in itertools.product(range(2), repeat=6):
            record = follow_edges(mate, [0] * 6, 1, commits_along(sampler, np.array(x)))
            floor += exact.midpoint[x] * collision_loss(rho, rho, sum(record.collisions))
        floors.append(floor)
        assert exact.squared_hellinger >= floor - 1e-12
    assert np.mean(losses) >= np.mean(floors) - 1e-12 > 0
    if rounds == 1:  # every edge collides: equality
        assert losses == pytest.approx([1 - (1 - edge_loss(rho, rho)) ** 3] * 15)
        assert floors == pytest.approx(losses)


def member(mate, rho) -> cp.ForestLaw:
    """Return the member of the family with a given matching; some seed draws each of them."""
    for seed in itertools.count():
        law = cp.families.hard_matching(
            6, target_seed=seed, vocab_size=2, bank_size=1, trigger_mass=rho
        )
        if (law.mate == mate).all():
            return law


def commits_along(sampler, x) -> list:
    """Return the commits of the path on which the tokens x are drawn."""
    state, commits = np.full(6, cp.MASK), []
    while (state == cp.MASK).any():
        batch = sampler.batch(state, len(commits))
        commits.append(("commit", batch.tolist()))
        state[batch] = x[batch]
    return commits


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (
            lambda: follow_edges([1, 0], [0, 0], 1, [("look", [])]),
            "a probe or a commit, got 'look'",
        ),
        (lambda: disclosure_bound(4, -1, 2), "probes must not be negative"),
        (lambda: internal_edge_law(5, 2), "length must be even"),
        (lambda: internal_edge_law(4, 5), "batch_size lie in 0..length"),
        (lambda: laplace_bound(4, 2, 0.0), "rate must be positive"),
        (lambda: edge_loss(0.1, 0.2), "0 < coupling <= trigger_mass"),
    ],
)
def test_arguments_outside_the_lemmas_are_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()
