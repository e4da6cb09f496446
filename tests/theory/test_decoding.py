"""Lower bounds on finding a matching, and the steps of the decoder's stopping rule, exactly."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest

from counterprobe.discovery.compressed.peeling.decoder import blind_chance, needed_reads
from counterprobe.discovery.compressed.peeling.design import MASK_RATE
from counterprobe.theory import decoding

MASK = 0


def matchings(positions: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """Every way to pair positions up."""
    if not positions:
        yield []
        return
    first, rest = positions[0], positions[1:]
    for k, other in enumerate(rest):
        for left in matchings(rest[:k] + rest[k + 1 :]):
            yield [(first, other), *left]


def reply(shown: np.ndarray, pairs: list[tuple[int, int]]) -> tuple[int, ...]:
    """What a probe says: of every masked position, what its partner displays."""
    partner = np.empty(len(shown), dtype=int)
    for i, j in pairs:
        partner[i], partner[j] = j, i
    return tuple(int(shown[partner[i]]) for i in np.flatnonzero(shown == MASK))


# ----- Lower bounds ---------------------------------------------------------------------------


@pytest.mark.parametrize("num_choices", [2, 3, 4])
def test_no_probe_has_more_replies_than_are_counted(num_choices):
    every, most = list(matchings(tuple(range(8)))), 0
    assert len(every) == 105
    for masked in range(9):
        choices = range(1, num_choices + 1)
        for shown in itertools.combinations_with_replacement(choices, 8 - masked):
            display = np.array([MASK] * masked + list(shown))
            most = max(most, len({reply(display, pairs) for pairs in every}))
    assert 2 < math.log2(most) <= decoding.reply_bits(8, num_choices)


def test_any_rule_needs_log_n_probes():
    found = [decoding.least_probes(2**k, 3, 0.01) for k in (6, 10, 14, 20)]
    assert found == sorted(found) and found[2] == 6
    # More coordinates say more, and errors help.
    assert decoding.least_probes(2**14, 8, 0.01) < 6
    assert decoding.least_probes(2**14, 3, 0.5) < 6
    assert decoding.least_probes(2, 3, 0.0) == 0


@pytest.mark.parametrize(("num_choices", "mask_rate"), [(2, 0.5), (3, 0.45)])
def test_exchanges_go_unnoticed_as_often_as_is_said(num_choices, mask_rate):
    chance = [mask_rate, *[(1 - mask_rate) / num_choices] * num_choices]
    one = same = shared = 0.0
    for shown in itertools.product(range(num_choices + 1), repeat=6):
        weight = math.prod(chance[d] for d in shown)
        display = np.array(shown)

        def is_same(other: list[tuple[int, int]], display: np.ndarray = display) -> bool:
            return reply(display, [(0, 1), (2, 3), (4, 5)]) == reply(display, other)

        first = is_same([(0, 3), (2, 1), (4, 5)])
        one += weight * first
        same += weight * (first and is_same([(0, 2), (1, 3), (4, 5)]))
        shared += weight * (first and is_same([(0, 5), (4, 1), (2, 3)]))
    assert decoding._unnoticed(num_choices, mask_rate) == pytest.approx((one, same, shared))


@pytest.mark.statistical
@pytest.mark.parametrize("num_probes", [1, 2, 3, 4])
def test_the_best_decoder_errs_at_least_as_often_as_is_said(num_probes):
    # Eight positions, 200 sets of random probes: the best decoder names one of the matchings that
    # reply alike. Seed fixed; four standard errors of the mean are a level of 3e-5 a case.
    rng = np.random.default_rng(num_probes)
    every = list(matchings(tuple(range(8))))
    errors = []
    for _ in range(200):
        shown = np.where(
            rng.random((num_probes, 8)) < 0.45, MASK, rng.integers(1, 4, (num_probes, 8))
        )
        truth = every[rng.integers(len(every))]
        said = [reply(one, truth) for one in shown]
        alike = sum(
            all(reply(one, pairs) == r for one, r in zip(shown, said, strict=True))
            for pairs in every
        )
        errors.append(1 - 1 / alike)
    floor = decoding.error_of_random_probes(8, 3, 0.45, num_probes)
    assert np.mean(errors) + 4 * np.std(errors) / math.sqrt(200) >= floor


def test_random_probes_need_more_than_any_rule_and_the_decoder_has_more():
    for length in (2**10, 2**14, 2**17):
        least = decoding.least_random_probes(length, 3, MASK_RATE)
        best = min(decoding.least_random_probes(length, 3, m / 100) for m in range(10, 90, 5))
        assert decoding.least_probes(length, 3, 0.25) < best <= least
        floors = [
            decoding.error_of_random_probes(length, 3, MASK_RATE, t) for t in range(least + 1)
        ]
        assert floors[-1] < 0.25 <= floors[-2]
    assert decoding.error_of_random_probes(2**14, 3, MASK_RATE, 10_000) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((7, 3, 0.1), "length must be even"), ((8, 1, 0.1), "num_choices"), ((8, 3, 1.0), "error")],
)
def test_what_cannot_be_bounded_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        decoding.least_probes(*arguments)


def test_masks_that_tell_nothing_are_refused():
    with pytest.raises(ValueError, match="tell nothing"):
        decoding.least_random_probes(64, 3, 0.0)


# ----- The stopping rule ----------------------------------------------------------------------


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Every way to split items into classes."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for k, part in enumerate(rest):
            yield [*rest[:k], [items[0], *part], *rest[k + 1 :]]


def can_act(classes: list[list[int]]) -> bool:
    """Whether displays can fall into these classes: the mask's message is a proper mixture."""
    shown = [part for part in classes if part != [MASK]]
    return len(shown) > 2 or (len(shown) == 2 and [MASK] in classes)


def exactly_blind(num_probes: int, num_reads: int, num_choices: int, classes: list) -> float:
    """Enumerate masks of two ends and what each shows, all equally likely."""
    label = {display: k for k, part in enumerate(classes) for display in part}
    masks = list(itertools.combinations(range(num_probes), num_reads))
    blind = total = 0.0
    for mine in masks:
        for others in masks:
            ends = []
            for reads, hidden in ((mine, others), (others, mine)):
                free = [t for t in reads if t not in hidden]
                seen = [label[MASK]] * (num_reads - len(free))
                good = sum(
                    len({*seen, *(label[d] for d in shown)}) <= 1
                    for shown in itertools.product(range(1, num_choices + 1), repeat=len(free))
                )
                ends.append(good / num_choices ** len(free))
            blind += ends[0] * ends[1]
            total += 1
    return blind / total


@pytest.mark.parametrize(("num_probes", "num_reads"), [(4, 2), (5, 2), (6, 3), (7, 3)])
@pytest.mark.parametrize("num_choices", [2, 3])
def test_both_ends_are_blind_no_more_often_than_is_said(num_probes, num_reads, num_choices):
    apart = [[display] for display in range(num_choices + 1)]
    exact = exactly_blind(num_probes, num_reads, num_choices, apart)
    said = decoding.both_blind(num_probes, num_reads, num_choices, generic=True)
    assert said == pytest.approx(exact)
    said = decoding.both_blind(num_probes, num_reads, num_choices, generic=False)
    for classes in partitions(list(range(num_choices + 1))):
        if can_act(classes):
            assert exactly_blind(num_probes, num_reads, num_choices, classes) <= said + 1e-12


def test_ends_are_not_blind_apart_from_each_other():
    # Why the product of two ends is not a bound: masked in the same probes, both are blind.
    exact = decoding.both_blind(36, 16, 3, generic=True)
    assert exact > 2 * blind_chance(3, MASK_RATE, generic=True) ** (2 * 15)


@pytest.mark.parametrize("num_choices", [2, 3, 4, 5])
@pytest.mark.parametrize("mask_rate", [0.2, 0.45, 0.7])
def test_a_stranger_mimics_no_more_often_than_is_said(num_choices, mask_rate):
    chance = [mask_rate, *[(1 - mask_rate) / num_choices] * num_choices]
    agreeing = {
        tuple(map(tuple, classes)): sum(sum(chance[d] for d in part) ** 2 for part in classes)
        for classes in partitions(list(range(num_choices + 1)))
        if can_act(classes)
    }
    said = decoding.chance_of_mimicry(num_choices, mask_rate, generic=False)
    assert max(agreeing.values()) == pytest.approx(said)
    alone = sum(one**2 for one in chance)
    assert decoding.chance_of_mimicry(num_choices, mask_rate, generic=True) == pytest.approx(alone)


@pytest.mark.parametrize("power", range(9, 21))
def test_what_the_default_leaves_out_is_next_to_nothing(power):
    factors = {}
    for generic in (False, True):
        blind = blind_chance(3, MASK_RATE, generic=generic)
        spare = needed_reads(2**power, blind, 0.01)
        factors[generic] = decoding.left_out(2**power, spare, blind, 3, MASK_RATE, generic=generic)
    assert factors[False] < 1.1 < factors[True] < 10
