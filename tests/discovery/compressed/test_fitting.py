"""Fits against numpy's least squares, and their judgement in total variation."""

import numpy as np
import pytest
from scipy.special import softmax

from counterprobe.discovery.compressed.data import Data, Known
from counterprobe.discovery.compressed.fitting import (
    CLEAN,
    MAX_PARAMETERS,
    RANK,
    SQUARES,
    WORST,
    Scratch,
    check_fits,
    fit,
    list_probes,
    new_scratch,
)


def no_terms(data: Data) -> np.ndarray:
    return np.empty((0, int(data.num_choices.max(initial=1)), data.logs.shape[2]))


def run_fit(
    data: Data, j: int, members=(), *, required=(), known=(), terms=None, judge=True
) -> Scratch:
    """Call the compiled fit."""
    scratch = new_scratch(data.num_probes, data.logs.shape[2])
    list_probes(data, j, scratch)
    fit(
        data,
        j,
        np.array(members, dtype=np.int64),
        np.array(required, dtype=np.int64),
        np.array(known, dtype=np.int64),
        no_terms(data) if terms is None else terms,
        judge,
        scratch,
    )
    return scratch


class PlainFit:
    """The same fit by ``numpy.linalg.lstsq``, one coordinate at a time."""

    def __init__(self, data: Data, j: int, members=(), *, required=(), known=(), terms=None):
        choices = data.choices[:, : data.num_probes]
        involved = [*members, *required, *known]
        shown = (choices[involved] >= 0).all(axis=0)
        weight = data.weight[j, : data.num_probes].astype(np.float64)
        self.is_clean = shown & (weight > 0)
        probes = np.flatnonzero(self.is_clean)
        logs = data.logs[j, probes]
        left = logs.copy()
        for k, i in enumerate(known):
            left -= terms[k, choices[i, probes]]
        parameters = [np.ones(len(probes))]
        for i in members:
            for a in range(1, data.num_choices[i]):
                parameters.append((choices[i, probes] == a).astype(np.float64))
        self.design = np.stack(parameters, axis=1)
        weights = np.repeat(weight[probes, None], logs.shape[1], axis=1)
        precision = np.ones_like(weights)
        self.has_precision = data.precision.shape[2] > 0
        if self.has_precision:
            precision = data.precision[j, probes].astype(np.float64)
        root = np.sqrt(weights * precision)
        self.solution = np.zeros((self.design.shape[1], logs.shape[1]))
        self.rank = 0
        for c in range(logs.shape[1] if len(probes) else 0):
            weighted = root[:, c, None] * self.design
            solved = np.linalg.lstsq(weighted, root[:, c] * left[:, c])
            self.solution[:, c], self.rank = solved[0], int(solved[2])
        self.residual = left - self.design @ self.solution
        self.clean = int((weight[probes] >= data.least_weight).sum())
        squares = precision * data.importance[j] * self.residual**2
        self.squares = float((weights * squares).sum())
        if data.is_sketch:
            distance = 0.5 * np.sqrt(squares.sum(axis=1))
        else:
            rebuilt = softmax(logs - self.residual, axis=1)
            distance = 0.5 * np.abs(softmax(logs, axis=1) - rebuilt).sum(axis=1)
        self.worst = float(distance.max(initial=0.0))

    @property
    def is_determined(self) -> bool:
        return self.rank == self.design.shape[1]


def assert_same(scratch: Scratch, plain: PlainFit) -> None:
    """Compare outcome, fitted values and, where probes determine them, parameters."""
    assert scratch.outcome[CLEAN] == plain.clean
    assert scratch.outcome[RANK] == plain.rank
    # Weights are kept in single precision, and so is the product of two of them.
    close = 1e-6 if plain.has_precision else 1e-9
    np.testing.assert_allclose(scratch.outcome[SQUARES], plain.squares, rtol=close, atol=1e-15)
    np.testing.assert_allclose(scratch.outcome[WORST], plain.worst, rtol=close, atol=1e-10)
    probes = np.flatnonzero(plain.is_clean)
    np.testing.assert_allclose(scratch.residual[probes], plain.residual, atol=10 * close)
    size = plain.design.shape[1]
    if plain.is_determined:
        assert scratch.determined[:size].all()
        np.testing.assert_allclose(scratch.solution[:size], plain.solution, atol=10 * close)
    else:
        undetermined = np.flatnonzero(~scratch.determined[:size])
        assert len(undetermined) == size - plain.rank
        assert (scratch.solution[undetermined] == 0).all()


def random_data(make_data, rng, *, with_precision=False, is_sketch=False, **options) -> Data:
    """Return data that no model explains: eight positions, the first one read more often."""
    length, num_probes, width = 8, int(rng.integers(1, 60)), int(rng.integers(1, 5))
    num_choices = rng.integers(1, 5, size=length)
    shape = (length, num_probes)
    choices = rng.integers(0, num_choices[:, None], size=shape)
    choices[rng.random(shape) < 0.15] = -1
    choices[0, rng.random(num_probes) < 0.8] = -1
    return make_data(
        choices,
        rng.normal(scale=2.0, size=(*shape, width)),
        num_choices,
        weight=rng.uniform(0.05, 1.0, size=shape),
        precision=rng.uniform(0.05, 1.0, size=(*shape, width)) if with_precision else None,
        importance=rng.uniform(0.1, 1.0, size=(length, width)),
        is_sketch=is_sketch,
        **options,
    )


# ----- Against least squares ------------------------------------------------------------------


@pytest.mark.parametrize("members", [[], [1], [1, 2], [5, 3, 1], [1, 2, 3, 4]])
@pytest.mark.parametrize("seed", range(8))
def test_fit_is_weighted_least_squares(make_data, members, seed):
    data = random_data(make_data, np.random.default_rng(seed))
    assert_same(run_fit(data, 0, members), PlainFit(data, 0, members))


@pytest.mark.parametrize("members", [[], [2], [4, 2, 1]])
@pytest.mark.parametrize("seed", range(6))
def test_each_coordinate_has_its_own_precision(make_data, members, seed):
    data = random_data(make_data, np.random.default_rng(100 + seed), with_precision=True)
    assert_same(run_fit(data, 0, members), PlainFit(data, 0, members))


@pytest.mark.parametrize("seed", range(6))
def test_known_terms_are_subtracted_and_their_positions_must_be_revealed(make_data, seed):
    rng = np.random.default_rng(200 + seed)
    data = random_data(make_data, rng)
    terms = rng.normal(size=(2, int(data.num_choices.max()), data.logs.shape[2]))
    options = {"known": [6, 3], "terms": terms}
    scratch, plain = run_fit(data, 0, [1], **options), PlainFit(data, 0, [1], **options)
    assert_same(scratch, plain)
    hidden = (data.choices[[6, 3]] < 0).any(axis=0)
    assert not (plain.is_clean & hidden).any()


@pytest.mark.parametrize("seed", range(6))
def test_required_positions_only_choose_the_probes(make_data, seed):
    data = random_data(make_data, np.random.default_rng(300 + seed))
    scratch, plain = (
        run_fit(data, 0, [1], required=[4, 5]),
        PlainFit(data, 0, [1], required=[4, 5]),
    )
    assert_same(scratch, plain)
    assert plain.design.shape[1] == data.num_choices[1]


def test_exact_terms_come_back(additive):
    made = additive(6, 80, {0: [2, 4]}, num_choices=[3, 3, 3, 3, 2, 3], seed=1)
    scratch = run_fit(made.data, 0, [2, 4])
    first, second = made.terms[0, 2], made.terms[0, 4]
    np.testing.assert_allclose(scratch.solution[0], made.constant[0] + first[0] + second[0])
    np.testing.assert_allclose(scratch.solution[1:3], first[1:] - first[0])
    np.testing.assert_allclose(scratch.solution[3:4], second[1:] - second[0])
    assert scratch.outcome[WORST] < 1e-12
    assert run_fit(made.data, 0, [2]).outcome[WORST] > 0.01


def test_known_terms_leave_the_other_terms_as_they_are(additive):
    made = additive(6, 80, {0: [2, 4, 5]}, seed=2)
    terms = np.stack([made.terms[0, 5], made.terms[0, 2]])
    scratch = run_fit(made.data, 0, [4], known=[5, 2], terms=terms)
    wanted = made.terms[0, 4]
    np.testing.assert_allclose(scratch.solution[0], made.constant[0] + wanted[0])
    np.testing.assert_allclose(scratch.solution[1:3], wanted[1:] - wanted[0])
    assert scratch.outcome[RANK] == 3
    assert scratch.outcome[WORST] < 1e-12
    swapped = run_fit(made.data, 0, [4], known=[2, 5], terms=terms)
    assert swapped.outcome[WORST] > 0.01


def test_the_order_of_members_does_not_matter(make_data):
    data = random_data(make_data, np.random.default_rng(5))
    one, other = run_fit(data, 0, [1, 3, 6]), run_fit(data, 0, [6, 1, 3])
    np.testing.assert_allclose(one.outcome, other.outcome, rtol=1e-10)


# ----- What the probes do not determine -------------------------------------------------------


def two_choice_data(make_data, choices, logs, num_choices=3, **options) -> Data:
    """Return data in which position 0 is read and the others show what is given."""
    shown = np.vstack([np.full(np.shape(choices)[-1], -1), np.atleast_2d(choices)])
    values = np.zeros((*shown.shape, np.shape(logs)[-1]))
    values[0] = logs
    return make_data(shown, values, np.full(len(shown), num_choices), **options)


@pytest.mark.parametrize("missing", range(3))
def test_a_choice_never_shown_is_not_determined(make_data, missing):
    rng = np.random.default_rng(missing)
    shown = np.array([a for a in range(3) if a != missing] * 6)
    data = two_choice_data(make_data, shown, rng.normal(size=(12, 2)))
    scratch = run_fit(data, 0, [1])
    assert_same(scratch, PlainFit(data, 0, [1]))
    assert scratch.outcome[RANK] == 2
    assert scratch.determined[:3].sum() == 2


def test_two_members_that_always_agree_share_their_terms(make_data):
    shown = np.tile([0, 1, 2], 5)
    data = two_choice_data(
        make_data, [shown, shown], np.random.default_rng(1).normal(size=(15, 2))
    )
    scratch = run_fit(data, 0, [1, 2])
    assert_same(scratch, PlainFit(data, 0, [1, 2]))
    assert scratch.outcome[RANK] == 3


def test_a_member_with_one_choice_adds_no_parameter(make_data):
    data = two_choice_data(
        make_data, np.zeros((1, 6), int), np.random.default_rng(1).normal(size=(6, 2)), 1
    )
    assert_same(run_fit(data, 0, [1]), PlainFit(data, 0, [1]))
    assert run_fit(data, 0, [1]).outcome[RANK] == 1


@pytest.mark.parametrize("num_probes", [0, 4])
def test_without_a_clean_probe_nothing_is_determined(make_data, num_probes):
    shown = np.full((1, num_probes), -1)  # the supposed neighbour is always masked
    data = two_choice_data(make_data, shown, np.ones((num_probes, 2)))
    scratch = run_fit(data, 0, [1])
    assert scratch.outcome.tolist() == [0, 0, 0, 0]
    assert not scratch.determined[:3].any()
    assert (scratch.solution[:3] == 0).all()


def test_a_readout_is_never_its_own_member(make_data):
    data = random_data(make_data, np.random.default_rng(3))
    assert run_fit(data, 0).outcome[CLEAN] > 0
    assert run_fit(data, 0, [0]).outcome[CLEAN] == 0


def test_one_probe_is_explained_by_anything(make_data):
    data = two_choice_data(make_data, [[1]], [[3.0, -1.0]])
    scratch = run_fit(data, 0, [1])
    assert scratch.outcome[[CLEAN, RANK]].tolist() == [1, 1]
    assert scratch.outcome[WORST] < 1e-15


def test_as_many_parameters_as_there_is_room_for(make_data):
    rng = np.random.default_rng(4)
    shown = rng.permuted(np.tile(np.arange(MAX_PARAMETERS), 2))
    logs = rng.normal(size=(2 * MAX_PARAMETERS, 2))
    scratch = run_fit(two_choice_data(make_data, shown, logs, MAX_PARAMETERS), 0, [1])
    means = np.stack([logs[shown == a].mean(axis=0) for a in range(MAX_PARAMETERS)])
    assert scratch.outcome[RANK] == MAX_PARAMETERS
    np.testing.assert_allclose(scratch.solution[0], means[0], atol=1e-9)
    np.testing.assert_allclose(scratch.solution[1:], means[1:] - means[0], atol=1e-9)


# ----- Evidence and judgement -----------------------------------------------------------------


def test_saturated_rows_take_part_but_are_no_evidence(make_data):
    rng = np.random.default_rng(6)
    weight = np.ones((2, 10))
    weight[0, [2, 7, 8]] = 1e-6
    data = two_choice_data(
        make_data,
        rng.integers(0, 2, size=10),
        rng.normal(size=(10, 3)),
        num_choices=2,
        weight=weight,
        least_weight=1e-5,
    )
    scratch = run_fit(data, 0, [1])
    assert scratch.outcome[CLEAN] == 7
    assert_same(scratch, PlainFit(data, 0, [1]))


def test_a_saturated_row_counts_where_nothing_else_is_known(make_data):
    # Choice 1 was shown in one saturated probe only: its term is read off there.
    weight = np.ones((2, 5))
    weight[0, 4] = 1e-30
    logs = [[0.0, 0.0]] * 4 + [[7.0, -7.0]]
    data = two_choice_data(make_data, [0, 0, 0, 0, 1], logs, 2, weight=weight, least_weight=1e-4)
    scratch = run_fit(data, 0, [1])
    np.testing.assert_allclose(scratch.solution[:2], [[0, 0], [7, -7]], atol=1e-12)
    assert scratch.outcome[[CLEAN, RANK]].tolist() == [4, 2]
    # Where visible rows say something else, they win.
    alone = run_fit(data, 0)
    np.testing.assert_allclose(alone.solution[0], [0, 0], atol=1e-12)
    assert alone.outcome[WORST] == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("light", [1e-11, 1e-20])
def test_saturated_rows_tell_two_strong_neighbours_from_the_constant(make_data, light):
    # Where the neighbours differ they cancel; where they agree the row is saturated.
    shown = np.array([[0, 1, 0, 1] * 6, [1, 0, 0, 1] * 6])
    odds = 8.0 * (2 - shown.sum(axis=0) * 2)
    weight = np.ones((3, 24))
    weight[0, odds != 0] = light
    logs = np.stack([odds, np.zeros(24)], axis=1)
    data = two_choice_data(make_data, shown, logs, 2, weight=weight, least_weight=1e-15)
    scratch = run_fit(data, 0, [1, 2])
    assert scratch.outcome[RANK] == 3
    assert scratch.outcome[WORST] < 1e-12
    np.testing.assert_allclose(scratch.solution[:3, 0], [16.0, -16.0, -16.0], atol=1e-6)


def test_the_rank_is_that_of_the_coordinate_that_determines_most(make_data):
    # The last coordinate has no weight where choices 1 and 2 are shown.
    shown = np.tile([0, 1, 2], 6)
    precision = np.ones((2, 18, 3))
    precision[0, shown > 0, 2] = 0.0
    logs = np.random.default_rng(10).normal(size=(18, 3))
    data = two_choice_data(make_data, shown, logs, precision=precision)
    assert run_fit(data, 0, [1]).outcome[RANK] == 3
    weightless = two_choice_data(make_data, shown, logs, precision=precision[..., [2, 2, 2]])
    assert run_fit(weightless, 0, [1]).outcome[RANK] == 1


def test_the_worst_probe_is_judged_in_total_variation(make_data):
    rows = np.array([[0.9, 0.1], [0.5, 0.5]])
    data = two_choice_data(make_data, [0, 0], np.log(rows))
    scratch = run_fit(data, 0)
    # Log-odds log 9 and 0 have the mean log 3: the fit says (3/4, 1/4) of both probes.
    assert scratch.outcome[WORST] == pytest.approx(0.25)
    squares = 2 * (np.log(0.9 / 0.5) ** 2 / 4 + np.log(0.1 / 0.5) ** 2 / 4)
    assert scratch.outcome[SQUARES] == pytest.approx(squares)
    assert run_fit(data, 0, judge=False).outcome[WORST] == 0


def test_a_rare_token_weighs_little_however_far_its_log_moves(make_data):
    rows = np.array([[0.5, 0.5 - 1e-9, 1e-9], [0.5, 0.5 - 1e-5, 1e-5]])
    data = two_choice_data(make_data, [0, 0], np.log(rows))
    outcome = run_fit(data, 0).outcome
    assert outcome[SQUARES] > 40
    assert outcome[WORST] < 1e-5


def test_judgement_survives_logs_far_beyond_doubles(make_data):
    data = two_choice_data(make_data, [0, 0], [[900.0, -900.0], [-900.0, 900.0]])
    assert run_fit(data, 0).outcome[WORST] == pytest.approx(0.5)
    data = two_choice_data(make_data, [0, 0], [[900.0, -900.0], [900.0, -900.0]])
    assert run_fit(data, 0).outcome[WORST] == 0


def test_shifting_a_whole_log_row_changes_no_judgement(make_data):
    rng = np.random.default_rng(8)
    logs = rng.normal(size=(9, 3))
    shown = rng.integers(0, 3, size=9)
    worst = [
        run_fit(two_choice_data(make_data, shown, logs + shift), 0, [1]).outcome[WORST]
        for shift in (0.0, 5.0, -300.0)
    ]
    np.testing.assert_allclose(worst, worst[0], rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_sketches_are_judged_by_half_their_length(make_data, seed):
    data = random_data(make_data, np.random.default_rng(400 + seed), is_sketch=True)
    assert_same(run_fit(data, 0, [1]), PlainFit(data, 0, [1]))


def test_half_the_length_of_a_sketch_by_hand(make_data):
    importance = np.full((2, 2), 0.5)
    data = two_choice_data(
        make_data, [0, 0], [[3.0, 4.0], [-3.0, -4.0]], is_sketch=True, importance=importance
    )
    # Both probes are off by (3, 4): mean square 12.5.
    assert run_fit(data, 0).outcome[WORST] == pytest.approx(0.5 * np.sqrt(12.5))


def test_probes_that_read_a_position_are_listed_in_order(make_data):
    data = make_data([[-1, 0, -1, 1], [0, -1, 0, 0]], np.zeros((2, 4, 2)), [2, 2])
    scratch = new_scratch(4, 2)
    list_probes(data, 0, scratch)
    assert scratch.probes[[0, 1, 4]].tolist() == [0, 2, 2]
    list_probes(data, 1, scratch)
    assert scratch.probes[[0, 4]].tolist() == [1, 1]


# ----- Many readouts --------------------------------------------------------------------------


class Fits:
    """What ``check_fits`` leaves, with everything it was not asked to write set to -7."""

    def __init__(self, data: Data, readouts, members, count, known: Known, bounds=None, since=0):
        length, width = data.logs.shape[0], data.logs.shape[2]
        slots, most = members.shape[1], int(data.num_choices.max())
        self.constant = np.full((length, width), -7.0)
        self.terms = np.full((length, slots, most, width), -7.0)
        self.is_determined = np.zeros((length, slots, most), dtype=np.bool_)
        self.outcome = np.full((len(readouts), 4), -7.0)
        self.evidence = np.full((len(readouts), 2), -7)
        for low, high in bounds or [(0, len(readouts))]:
            check_fits(
                low,
                high,
                readouts,
                data,
                members,
                count,
                known,
                self.constant,
                self.terms,
                self.is_determined,
                np.full(length, since),
                self.outcome,
                self.evidence,
            )


@pytest.fixture
def neighbourhoods(additive):
    """Return additive data of seven positions and four readouts with 0, 1, 2 and 3 members."""
    made = additive(
        7,
        120,
        {4: [5], 0: [1, 2], 3: [1, 5, 6]},
        num_choices=[3, 2, 4, 3, 3, 2, 3],
        mask_rate=0.2,
        seed=3,
    )
    readouts = np.array([4, 0, 2, 3])
    members = np.zeros((7, 4), dtype=np.int64)
    count = np.zeros(7, dtype=np.int64)
    for j, i in ((4, [5]), (0, [2, 1]), (3, [6, 1, 5])):
        members[j, : len(i)] = i
        count[j] = len(i)
    return made, readouts, members, count


def test_check_fits_keeps_terms_relative_to_choice_zero(neighbourhoods, nothing_known):
    made, readouts, members, count = neighbourhoods
    fits = Fits(made.data, readouts, members, count, nothing_known(4, made.data))
    assert (fits.outcome[:, WORST] < 1e-12).all()
    for j in readouts:
        constant = made.constant[j].copy()
        for m in range(count[j]):
            i = members[j, m]
            table = made.terms[j, i]
            constant += table[0]
            size = made.data.num_choices[i]
            np.testing.assert_allclose(fits.terms[j, m, :size], table - table[0], atol=1e-12)
            assert fits.is_determined[j, m, :size].all()
        np.testing.assert_allclose(fits.constant[j], constant)


@pytest.mark.parametrize("since", [0, 7, 12])
def test_check_fits_counts_what_any_missed_neighbour_would_show_in(
    make_data, nothing_known, since
):
    rng = np.random.default_rng(13)
    shown = rng.integers(0, 2, size=12)
    seen = np.zeros((2, 12), dtype=np.int64)
    # Three coordinates: all seen, two, one, and a probe that is not clean.
    seen[0] = [0b111, 0b111, 0b011, 0b100, 0b101, 0b110] * 2
    shown[10] = -1
    data = two_choice_data(make_data, shown, np.zeros((12, 3)), 2, seen=seen)
    members = np.ones((2, 1), dtype=np.int64)
    fits = Fits(
        data, np.array([0]), members, np.array([1, 0]), nothing_known(1, data), since=since
    )
    clean = [t for t in range(since, 12) if t != 10]
    least = min(
        sum(1 for t in clean if seen[0, t] & c and seen[0, t] & (7 - c)) for c in (1, 2, 4)
    )
    assert fits.evidence[0].tolist() == [least, len(clean)]


def test_check_fits_in_parts_is_the_same(neighbourhoods, nothing_known):
    made, readouts, members, count = neighbourhoods
    known = nothing_known(4, made.data)
    whole = Fits(made.data, readouts, members, count, known)
    parts = Fits(made.data, readouts, members, count, known, [(3, 4), (0, 1), (1, 3)])
    np.testing.assert_array_equal(whole.outcome, parts.outcome)
    np.testing.assert_array_equal(whole.terms, parts.terms)


def test_check_fits_takes_the_known_terms_of_its_own_readout(neighbourhoods, nothing_known):
    made, readouts, members, count = neighbourhoods
    # Readout 0 knows both its members and readout 3 its first two; the others know nothing.
    count[0], count[3] = 0, 1
    members[3, 0] = 5
    padded = np.zeros((4, 4, 3))
    for k, pair in enumerate([(0, 1), (0, 2), (3, 6), (3, 1)]):
        padded[k, : len(made.terms[pair])] = made.terms[pair]
    known = Known(np.array([0, 0, 2, 2, 4]), np.array([1, 2, 6, 1]), padded)
    fits = Fits(made.data, readouts, members, count, known)
    assert (fits.outcome[:, WORST] < 1e-12).all()
    np.testing.assert_allclose(fits.constant[0], made.constant[0])
    table = made.terms[3, 5]
    np.testing.assert_allclose(fits.terms[3, 0, :2], table - table[0], atol=1e-12)
    shifted = known._replace(start=np.array([0, 2, 2, 2, 4]))
    assert Fits(made.data, readouts, members, count, shifted).outcome[:, WORST].max() > 0.01


@pytest.mark.parametrize("missing", range(3))
def test_terms_of_a_choice_never_shown_are_marked(make_data, nothing_known, missing):
    rng = np.random.default_rng(missing)
    shown = np.array([a for a in range(3) if a != missing] * 6)
    data = two_choice_data(make_data, shown, rng.normal(size=(12, 2)))
    members = np.ones((2, 1), dtype=np.int64)
    fits = Fits(data, np.array([0]), members, np.array([1, 0]), nothing_known(1, data))
    # Without choice 0 the last choice takes its place as the one others are relative to.
    assert fits.is_determined[0, 0].tolist().count(False) == 1
    assert fits.is_determined[0, 0, missing or 2] == np.False_
