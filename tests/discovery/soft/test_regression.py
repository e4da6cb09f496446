"""The regression estimator against the same thing done plainly: least squares, pair by pair."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from counterprobe.discovery.soft import SoftSettings, regression
from counterprobe.discovery.soft.movement import held_out_movement
from counterprobe.discovery.soft.readings import (
    Coordinates,
    Readings,
    Sources,
    draw_levels,
    shown_tokens,
)
from counterprobe.discovery.soft.regression import (
    NOISE_QUANTILE,
    Pairs,
    chances,
    discoveries,
    log_chance,
    regress,
    shuffles,
)
from counterprobe.discovery.soft.selection import (
    SPENT,
    Fit,
    fit_readout,
    indicators,
    is_rounding,
    mean_row,
    movement,
)
from counterprobe.discovery.soft.strengths import (
    Effects,
    directed_strengths,
    information,
    information_in_context,
    level_contrasts,
)
from counterprobe.rows import DenseRows

Floats = NDArray[np.float64]
# Sources of each readout in most tests; 4 is read by nobody and reads nobody.
ACTS = {0: [1, 2], 1: [0], 2: [0, 5], 3: [5], 5: [2, 3]}


def made(
    seed: int,
    batches: tuple[int, ...] = (24, 24),
    *,
    size: int = 6,
    acts: dict[int, list[int]] | None = None,
    noise: float = 0.1,
    shown: int = 2,
    width: int = 3,
    still: tuple[int, ...] = (),
) -> tuple[Readings, Sources]:
    """Return readings whose log-rows are sums of what each source's level adds, and noise.

    Positions of ``still`` never move; the last position is hardly ever anything but one token.
    """
    draw = np.random.default_rng(seed)
    masses = draw.dirichlet(np.full(width, 3.0), size=size)
    masses[-1] = np.eye(width)[0]
    rows = DenseRows(masses)
    sources = shown_tokens(rows, shown, 0.15)
    everywhere = np.arange(size)
    readings = Readings(Coordinates(rows, everywhere, size), everywhere, sources.num_levels)
    constant = np.log(draw.dirichlet(np.full(width, 3.0), size=size))
    neighbours = ACTS if acts is None else acts
    effects = {
        (j, i): draw.normal(0, 0.6, size=(sources.num_levels, width))
        for j, members in neighbours.items()
        for i in members
    }
    for count in batches:
        levels, masked = draw_levels(sources, count, 0.4, draw)
        readings.open(levels, masked)
    for j in range(size):
        levels = readings.levels[readings.probe[j]]
        logs = np.tile(constant[j], (len(levels), 1))
        for i in neighbours.get(j, []):
            logs += effects[j, i][levels[:, i]]
        if j not in still:
            logs += noise * draw.normal(size=logs.shape)
        readings.logs[j] = logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))
    return readings, sources


# ----- Plainly --------------------------------------------------------------------------------


def outside(columns: Floats, others: Floats) -> Floats:
    """What columns are apart from a constant and from others."""
    design = np.column_stack([np.ones(len(columns)), others])
    return columns - design @ np.linalg.lstsq(design, columns, rcond=None)[0]


def usable(columns: Floats) -> list[int]:
    """Columns that add something to those before them, one after the other."""
    kept: list[int] = []
    for k in range(columns.shape[1]):
        rest = outside(columns[:, [k]], columns[:, kept]) if kept else columns[:, [k]]
        if (rest**2).sum() > SPENT * len(columns):
            kept.append(k)
    return kept


def explained(columns: Floats, response: Floats) -> float:
    """Squares that a constant and some columns explain."""
    rest = outside(response, columns)
    return float((response**2).sum() - (rest**2).sum())


class PlainReadout:
    """What one readout says about all sources, each fitted by itself."""

    def __init__(
        self, j: int, readings: Readings, sources: Sources, settings: SoftSettings
    ) -> None:
        self.group = readings.num_levels - 1
        self.columns = indicators(readings.levels[readings.probe[j]], readings.num_levels)
        self.size = self.columns.shape[1] // self.group
        self.logs = readings.logs[j]
        self.weight = mean_row(self.logs)
        self.moved = movement(self.logs, self.weight)
        self.fit = fit_readout(
            self.columns, self.moved, self.group, settings.f_threshold, settings.max_sources
        )
        self.levels = readings.levels[readings.probe[j]]
        self.sources = sources

    def of(self, *which: int) -> Floats:
        """The columns of some sources."""
        blocks = [self.columns[:, i * self.group : (i + 1) * self.group] for i in which]
        return np.hstack([np.empty((len(self.columns), 0)), *blocks])

    def alone(self, columns: Floats, fit: Fit) -> tuple[Floats, Floats, float, int]:
        """Coefficients, their inverse, gain and rank of one source on top of those chosen."""
        response = outside(self.moved, self.of(*fit.sources))
        own = outside(columns, self.of(*fit.sources))
        kept = usable(own)
        coefficients = np.zeros((self.group, self.moved.shape[1]))
        inverse = np.zeros((self.group, self.group))
        if kept:
            coefficients[kept] = np.linalg.lstsq(own[:, kept], response, rcond=None)[0]
            inverse[np.ix_(kept, kept)] = np.linalg.inv(own[:, kept].T @ own[:, kept])
        return coefficients, inverse, explained(own[:, kept], response), len(kept)

    def estimates(self, orders: NDArray[np.int64]) -> dict[str, Floats]:
        """Everything that is noted of a readout."""
        fit, size = self.fit, self.size
        chosen = fit.sources.tolist()
        rest = outside(self.moved, self.of(*chosen))
        left = float((rest**2).sum())
        covariance = rest.T @ rest / fit.freedom
        coefficients = np.zeros((size, self.group, self.moved.shape[1]))
        inverse = np.zeros((size, self.group, self.group))
        share, rank, shrink = np.zeros(size), np.zeros(size, dtype=np.int64), np.ones(size)
        for i in range(size):
            if i in chosen:
                others = [s for s in chosen if s != i]
                coefficients[i], inverse[i], _, rank[i] = self.jointly(i, others)
                lost = explained(self.of(*chosen), self.moved)
                lost -= explained(self.of(*others), self.moved)
                k = chosen.index(i)
                share[i] = min(lost / (left + lost), fit.entry_shares[k])
                shrink[i] = min(1.0, fit.entry_gains[k] / lost)
            else:
                coefficients[i], inverse[i], gain, rank[i] = self.alone(self.of(i), fit)
                share[i] = gain / left
        effects = Effects(coefficients, inverse, covariance)
        strength, variance = self.strengths(effects, chosen)
        control = fit
        if is_rounding(rest):
            control = fit_readout(self.columns, self.moved, self.group, 0.0, 0)
            share[[i for i in range(size) if i not in chosen]] = 0.0
        gain = np.zeros((len(orders), size))
        gain_rank = np.zeros((len(orders), size), dtype=np.int64)
        by_chance = np.zeros(size)
        for m, order in enumerate(orders):
            # Every source shows at read ``order[r]`` what it showed at read ``r``.
            shuffled = np.empty_like(self.columns)
            shuffled[order] = self.columns
            found = [self.alone(shuffled.reshape(len(order), size, -1)[:, i], control)
                     for i in range(size)]  # fmt: skip
            gain[m] = [one[2] for one in found]
            gain_rank[m] = [one[3] for one in found]
            if m == 0:
                drawn = Effects(
                    np.array([one[0] for one in found]),
                    np.array([one[1] for one in found]),
                    covariance,
                )
                by_chance = self.strengths(drawn, [])[0]
        total = float((outside(self.moved, self.of(*control.sources)) ** 2).sum())
        evidence, null = log_chance(share * total, rank, gain, gain_rank)
        return {
            "strength": strength * shrink,
            "variance": variance,
            "is_selected": np.isin(np.arange(size), chosen),
            "log_chance": evidence,
            "shuffled_log_chance": null,
            "shuffled_strength": by_chance,
        }

    def jointly(self, i: int, others: list[int]) -> tuple[Floats, Floats, float, int]:
        """A chosen source beside the others that were chosen."""
        own = outside(self.of(i), self.of(*others))
        inverse = np.linalg.pinv(own.T @ own, rcond=1e-9, hermitian=True)
        return inverse @ (own.T @ self.moved), inverse, 0.0, np.linalg.matrix_rank(inverse)

    def strengths(self, effects: Effects, chosen: list[int]) -> tuple[Floats, Floats]:
        contrasts = level_contrasts(self.sources)
        p = self.sources.probability
        nats = information(effects.coefficients, contrasts, self.weight, p)
        for s in chosen:
            nats[s] = information_in_context(
                effects.coefficients[s], self.weight, p[s], self.levels[:, s], self.logs
            )
        return directed_strengths(effects, contrasts, nats, self.sources)


def regressed_plainly(
    readings: Readings, sources: Sources, settings: SoftSettings, seed: int
) -> Pairs:
    """Do what ``regress`` does, readout by readout and pair by pair."""
    orders = shuffles(readings, np.random.default_rng(seed))
    size, half = len(sources.tokens), len(orders) // 2
    blank = {
        "strength": np.zeros(size),
        "variance": np.zeros(size),
        "is_selected": np.zeros(size, dtype=np.bool_),
        "log_chance": np.zeros(size),
        "shuffled_log_chance": np.zeros((half, size)),
        "shuffled_strength": np.zeros(size),
    }
    said = []
    for j in range(size):
        plain = PlainReadout(j, readings, sources, settings)
        said.append(plain.estimates(orders[:, j]) if plain.moved.any() else blank)
    strength, error, floor = np.zeros((size, size)), np.zeros((size, size)), []
    pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
    evidence = [-said[i]["log_chance"][j] - said[j]["log_chance"][i] for i, j in pairs]
    null = [
        -said[i]["shuffled_log_chance"][m, j] - said[j]["shuffled_log_chance"][m, i]
        for m in range(half)
        for i, j in pairs
    ]
    found, rate = discoveries(
        chances(np.array(evidence), np.array(null)), settings.false_discovery_rate
    )
    is_edge = np.zeros((size, size), dtype=np.bool_)
    for (i, j), is_found in zip(pairs, found, strict=True):
        mean = (said[i]["strength"][j] + said[j]["strength"][i]) / 2
        is_edge[i, j] = is_edge[j, i] = is_found and mean > 0
        if is_edge[i, j] or said[i]["is_selected"][j] or said[j]["is_selected"][i]:
            strength[i, j] = strength[j, i] = max(mean, 0.0)
        spread = said[i]["variance"][j] + said[j]["variance"][i]
        error[i, j] = error[j, i] = np.sqrt(spread) / 2
        chance = said[i]["shuffled_strength"][j] + said[j]["shuffled_strength"][i]
        floor.append(max(chance / 2, 0.0))
    level = float(np.quantile(floor, NOISE_QUANTILE)) if floor else 0.0
    return Pairs(strength, error, is_edge, rate if found.any() else 0.0, level)


def assert_same_pairs(got: Pairs, wanted: Pairs) -> None:
    np.testing.assert_allclose(got.strength, wanted.strength, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(got.strength_se, wanted.strength_se, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(got.is_edge, wanted.is_edge)
    assert got.is_edge.dtype == np.bool_
    assert got.false_discovery_rate == pytest.approx(wanted.false_discovery_rate, rel=1e-6)
    assert got.noise_floor == pytest.approx(wanted.noise_floor, rel=1e-6, abs=1e-12)


# ----- All pairs ------------------------------------------------------------------------------

CASES: dict[str, dict] = {
    "two batches": {},
    "one batch, three tokens": {"batches": (60,), "shown": 3, "width": 4},
    "no noise": {"noise": 0.0},
    "little noise": {"noise": 0.002, "batches": (40,)},
    "crowded": {"noise": 0.02, "batches": (40,), "acts": {j: [1, 2, 3, 4] for j in (0, 5)}},
    "noise alone": {"acts": {}, "noise": 0.5},
    "some never move": {"still": (4,), "acts": {0: [1], 1: [0]}},
    "few reads": {"batches": (9,)},
    "next to no reads": {"batches": (2,)},
    "one read": {"batches": (1,)},
    "two positions": {"size": 2, "acts": {0: [1]}, "batches": (30,)},
    "uneven batches": {"batches": (6, 20, 31)},
}


@pytest.mark.parametrize("case", list(CASES))
def test_pairs_are_those_of_fitting_each_by_itself(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SoftSettings()
    for seed in range(3):
        readings, sources = made(seed, **CASES[case])
        pairs = len(sources.tokens) * (len(sources.tokens) - 1) // 2
        monkeypatch.setattr(regression, "SHUFFLED_PAIRS", 2 * pairs)
        got = regress(readings, sources, settings, np.random.default_rng(seed))
        assert_same_pairs(got, regressed_plainly(readings, sources, settings, seed))
        settings = SoftSettings(max_sources=seed + 1, false_discovery_rate=0.4)


def test_cases_have_pairs_that_are_found_and_pairs_that_are_not() -> None:
    readings, sources = made(0, (60, 60))
    found = regress(readings, sources, SoftSettings(), np.random.default_rng(0))
    for j, members in ACTS.items():
        for i in members:
            if 5 not in (i, j):  # which shows one token only
                assert found.is_edge[i, j] and found.strength[i, j] > found.noise_floor
    assert not found.is_edge[4].any()
    assert 0 < found.false_discovery_rate < 0.05


def test_nothing_is_moved_by_nothing() -> None:
    readings, sources = made(1, acts={}, noise=0.0)
    found = regress(readings, sources, SoftSettings(), np.random.default_rng(0))
    for matrix in (found.strength, found.strength_se, found.is_edge):
        assert not matrix.any()
    assert (found.false_discovery_rate, found.noise_floor) == (0.0, 0.0)


def test_one_position_has_no_pairs() -> None:
    readings, sources = made(2, size=1, acts={})
    found = regress(readings, sources, SoftSettings(), np.random.default_rng(0))
    assert found.strength.tolist() == found.strength_se.tolist() == [[0.0]]
    assert (found.false_discovery_rate, found.noise_floor) == (0.0, 0.0)


# ----- Shuffles -------------------------------------------------------------------------------


def test_shuffles_keep_reads_in_their_batch_and_move_them_there() -> None:
    readings, _ = made(3, (10, 25, 15))
    orders = shuffles(readings, np.random.default_rng(1))
    batch = readings.batch[readings.probe]
    everywhere = np.arange(readings.probe.shape[1])
    whole = np.broadcast_to(everywhere, orders.shape)
    np.testing.assert_array_equal(np.sort(orders, axis=2), whole)
    for j in range(len(readings.probe)):
        np.testing.assert_array_equal(
            batch[j][orders[:, j]], np.broadcast_to(batch[j], orders[:, j].shape)
        )
    # Four reads of the first batch: each comes first about equally often.
    firsts = np.bincount(orders[:, :, 0].ravel(), minlength=4)
    assert len(firsts) == 4 and firsts.min() > 0.2 * firsts.sum()
    # Readouts and shuffles have orders of their own.
    assert len({tuple(order) for order in orders[:50].reshape(-1, orders.shape[2])}) == 300


# ----- What is explained ----------------------------------------------------------------------


def movement_plainly(
    readings: Readings, settings: SoftSettings, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Fit on the probes of all folds but one, and predict those of that one, fold after fold."""
    total = readings.num_probes
    num_folds = min(max(2, round(1 / settings.held_out)), total)
    fold = np.random.default_rng(seed).permutation(total) % num_folds
    mean, most, shares = np.full((3, len(readings.probe)), np.nan)
    group = readings.num_levels - 1
    for j, probes in enumerate(readings.probe):
        moved, missed = [], []
        for k in range(num_folds):
            held = fold[probes] == k
            if not held.any() or held.all():
                continue
            logs = readings.logs[j].astype(np.float64)
            weight = np.exp(logs[~held]).mean(axis=0)
            weight /= weight.sum()
            rows = np.sqrt(weight) * (logs - (logs * weight).sum(axis=1, keepdims=True))
            columns = indicators(readings.levels[probes], readings.num_levels)
            fit = fit_readout(
                columns[~held],
                movement(readings.logs[j][~held], weight),
                group,
                settings.f_threshold,
                settings.max_sources,
            )
            chosen = [columns[:, i * group : (i + 1) * group] for i in fit.sources]
            design = np.column_stack([np.ones(len(columns)), *chosen])
            solution = np.linalg.lstsq(design[~held], rows[~held], rcond=None)[0]
            moved += (((rows - rows[~held].mean(axis=0))[held] ** 2).sum(axis=1) / 2).tolist()
            missed += (((rows - design @ solution)[held] ** 2).sum(axis=1) / 2).tolist()
        if moved:
            mean[j], most[j] = np.mean(moved), max(moved)
            shares[j] = max(0.0, 1 - sum(missed) / sum(moved)) if sum(moved) > 1e-9 else 0.0
    return mean, most, shares


@pytest.mark.parametrize(
    ("case", "held_out"),
    [
        ({"batches": (80, 40)}, 0.2),
        ({"batches": (80, 40)}, 0.7),
        ({"batches": (60,), "noise": 1.0}, 0.2),
        ({"batches": (60,), "noise": 0.0}, 0.3),
        ({"batches": (60,), "acts": {}}, 0.2),
        ({"batches": (12,)}, 0.01),
        ({"batches": (12,)}, 0.99),
        ({"batches": (2,)}, 0.5),
        ({"batches": (1,)}, 0.5),
    ],
)
def test_shares_are_those_of_predicting_what_was_held_out(case: dict, held_out: float) -> None:
    for seed in range(3):
        readings, _ = made(seed, **case)
        settings = SoftSettings(held_out=held_out)
        got = held_out_movement(readings, settings, np.random.default_rng(seed))
        mean, most, shares = movement_plainly(readings, settings, seed)
        np.testing.assert_allclose(got.moved, mean, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(got.most_moved, most, rtol=1e-5, atol=1e-7)
        moves = ~(mean <= 1e-7)
        np.testing.assert_allclose(got.explained[moves], shares[moves], atol=1e-5)


def test_neighbours_explain_what_they_cause_and_nothing_else() -> None:
    readings, _ = made(0, (120,), noise=0.05)
    shares = held_out_movement(readings, SoftSettings(), np.random.default_rng(0)).explained
    assert (shares[[0, 1, 2]] > 0.8).all() and shares[4] == 0.0
    readings, _ = made(0, (120,), noise=0.0)
    exact = held_out_movement(readings, SoftSettings(), np.random.default_rng(0)).explained
    assert (exact[[0, 1, 2]] > 1 - 1e-5).all()


# ----- Chances and discoveries -----------------------------------------------------------------


def test_chances_of_gains_follow_the_shuffled_ones() -> None:
    draw = np.random.default_rng(0)
    rank = draw.integers(1, 4, size=400)
    shuffled = draw.gamma(2.0 * rank, 0.3, size=(40, 400))
    ranks = np.broadcast_to(rank, shuffled.shape)
    gain = draw.gamma(2.0 * rank, 0.3)
    got, null = log_chance(gain, rank, shuffled, ranks)
    wanted = stats.gamma.logsf(gain, 2.0 * rank, scale=0.3)
    np.testing.assert_allclose(np.exp(got), np.exp(wanted), atol=0.02)
    assert null.shape == (20, 400)
    assert np.mean(null < np.log(0.01)) == pytest.approx(0.01, abs=0.004)


def test_chances_stay_finite_far_out_and_say_nothing_without_movement() -> None:
    shuffled = np.random.default_rng(1).gamma(2.0, 1.0, size=(4, 50))
    ranks = np.ones((4, 50), dtype=np.int64)
    gain = np.full(50, 1e5)
    gain[1] = 2e5
    got, _ = log_chance(gain, ranks[0], shuffled, ranks)
    assert np.isfinite(got).all() and got[0] < -1e4 and got[1] < got[0]
    still, null = log_chance(np.zeros(50), ranks[0], np.zeros((4, 50)), ranks)
    assert not still.any() and not null.any()
    # A source whose columns are spent is no evidence of anything.
    got, _ = log_chance(gain, np.zeros(50, dtype=np.int64), shuffled, ranks)
    assert not got.any()


def test_chances_of_pairs_are_counted_and_extended_by_an_exponential_tail() -> None:
    shuffled = np.random.default_rng(2).gamma(2.0, 1.0, size=20_000)
    evidence = np.array([0.0, 1.0, 3.0, 15.0, 30.0])
    got = chances(evidence, shuffled)
    wanted = stats.gamma.sf(evidence, 2.0)
    np.testing.assert_allclose(got[:3], wanted[:3], rtol=0.05)
    assert (np.diff(got) < 0).all()
    # Careful: beyond what was counted, never far below the true chance.
    assert (got[3:] > wanted[3:] / 3).all() and got[4] < 1e-9


def test_the_tail_goes_on_where_counting_ends() -> None:
    # A twentieth of 0 .. 99 begins at 95, and exceeds it by 2 on average.
    got = chances(np.array([10.0, 95.0, 95.0 + 1e-9, 97.0]), np.arange(100.0)[::-1])
    assert got == pytest.approx(np.array([91, 6, 6, 6 * np.exp(-1)]) / 101)
    # An excess below 1 counts as 1.
    narrow = chances(np.array([0.95 + 1.0]), np.arange(100.0) / 100)
    assert narrow == pytest.approx(6 * np.exp(-1) / 101)


def test_nothing_shuffled_is_no_evidence() -> None:
    assert chances(np.array([5.0, 50.0]), np.empty(0)).tolist() == [1.0, 1.0]


def test_discoveries_are_those_of_benjamini_and_hochberg() -> None:
    draw = np.random.default_rng(3)
    chance = np.concatenate([draw.random(200), draw.random(20) * 1e-4])
    found, estimate = discoveries(chance, 0.05)
    adjusted = stats.false_discovery_control(chance)
    np.testing.assert_array_equal(found, adjusted <= 0.05)
    assert estimate == pytest.approx(adjusted[found].max())
    found, estimate = discoveries(np.full(10, 0.6), 0.05)
    assert not found.any() and estimate == 0.0
    assert discoveries(np.empty(0), 0.05)[0].shape == (0,)
