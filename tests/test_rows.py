"""Rows: dense and classed against formulas written out token by token, and against each other."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from counterprobe.arrays import FloatArray
from counterprobe.classes import TokenClasses
from counterprobe.rows import ClassedRows, DenseRows, Rows, concatenate, to_numpy


def random_classes(draw: np.random.Generator, *, in_order: bool = False) -> TokenClasses:
    """Eight positions of three kinds, four classes among thirteen tokens, uneven within."""
    every = np.tile(np.arange(4), (3, 1))
    maps = np.concatenate([every, draw.integers(4, size=(3, 9))], axis=1)
    maps = np.sort(maps, axis=1) if in_order else draw.permuted(maps, axis=1)
    return TokenClasses.build(
        8,
        maps,
        within=draw.uniform(0.1, 2.0, size=maps.shape),
        kind=draw.integers(3, size=8),
    )


def random_masses(draw: np.random.Generator, count: int, num_classes: int = 4) -> FloatArray:
    """Sparse masses: about a third of them exactly zero."""
    masses = draw.dirichlet(np.ones(num_classes), size=count)
    masses *= draw.random(masses.shape) > 1 / 3
    masses[masses.sum(axis=1) == 0, 0] = 1
    return masses / masses.sum(axis=1, keepdims=True)


def classed_pair(seed: int, *, in_order: bool = False) -> tuple[ClassedRows, ClassedRows]:
    """Two batches of classed rows at the same twenty positions."""
    draw = np.random.default_rng(seed)
    classes = random_classes(draw, in_order=in_order)
    positions = draw.integers(8, size=20)
    return (
        ClassedRows(random_masses(draw, 20), classes, positions),
        ClassedRows(random_masses(draw, 20), classes, positions),
    )


def with_one_class() -> tuple[ClassedRows, ClassedRows]:
    classes = TokenClasses.build(2, [0, 0, 0], within=[1.0, 2.0, 1.0])
    rows = ClassedRows(np.ones((2, 1)), classes, np.array([0, 1]))
    return rows, rows


def with_one_token() -> tuple[ClassedRows, ClassedRows]:
    rows = ClassedRows(np.ones((3, 1)), TokenClasses.identity(3, 1), np.arange(3))
    return rows, rows


def with_certain_rows() -> tuple[ClassedRows, ClassedRows]:
    classes = TokenClasses.build(3, [2, 0, 1, 0])
    certain = ClassedRows(np.eye(3), classes, np.arange(3))
    return certain, certain.with_masses(np.roll(np.eye(3), 1, axis=0))


def without_rows() -> tuple[ClassedRows, ClassedRows]:
    none = ClassedRows(np.empty((0, 2)), TokenClasses.identity(3, 2), np.empty(0, dtype=int))
    return none, none


Pair = tuple[ClassedRows, ClassedRows]
CASES: dict[str, Callable[[], Pair]] = {
    **{f"random {seed}": lambda seed=seed: classed_pair(seed) for seed in range(4)},
    "in token order": lambda: classed_pair(5, in_order=True),
    "one class": with_one_class,
    "one token": with_one_token,
    "certain": with_certain_rows,
    "no rows": without_rows,
}
REPRESENTATIONS: dict[str, Callable[[ClassedRows], Rows]] = {
    "classed": lambda rows: rows,
    "dense": lambda rows: DenseRows(rows.dense()),
    "torch": lambda rows: DenseRows(torch.from_numpy(rows.dense())),
}


@pytest.fixture(params=list(CASES))
def pair(request: pytest.FixtureRequest) -> Pair:
    return CASES[request.param]()


@pytest.fixture(params=list(REPRESENTATIONS))
def represent(request: pytest.FixtureRequest) -> Callable[[ClassedRows], Rows]:
    return REPRESENTATIONS[request.param]


def tables(pair: Pair) -> list[tuple[list[float], list[float]]]:
    """Both rows as plain lists, each token's probability from the definition."""

    def plain(rows: ClassedRows, r: int) -> list[float]:
        c = rows.classes
        k = c.kind[rows.positions[r]]
        return [
            float(rows.class_masses[r, c.token_class[k, v]] * c.within[k, v])
            for v in range(c.vocab_size)
        ]

    return [(plain(pair[0], r), plain(pair[1], r)) for r in range(len(pair[0]))]


def close(found: object, expected: list[float]) -> bool:
    return to_numpy(found) == pytest.approx(np.array(expected), abs=1e-12)


# ----- Every operation, every representation ------------------------------------------------


def test_dense_and_sizes(pair, represent):
    rows = represent(pair[0])
    assert len(rows) == len(pair[0])
    assert rows.vocab_size == pair[0].classes.vocab_size
    assert tuple(rows.dense().shape) == (len(rows), rows.vocab_size)
    for found, (p, _) in zip(to_numpy(rows.dense()), tables(pair), strict=True):
        assert close(found, p)


def test_total_variation(pair, represent):
    found = represent(pair[0]).total_variation(represent(pair[1]))
    expected = [sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2 for p, q in tables(pair)]
    assert close(found, expected)


def test_squared_hellinger(pair, represent):
    found = represent(pair[0]).squared_hellinger(represent(pair[1]))
    expected = [
        1 - sum(math.sqrt(a * b) for a, b in zip(p, q, strict=True)) for p, q in tables(pair)
    ]
    assert close(found, expected)


def test_kl_is_infinite_where_mass_is_missed(pair, represent):
    found = to_numpy(represent(pair[0]).kl(represent(pair[1])))
    expected = [
        math.inf
        if any(a > 0 and b == 0 for a, b in zip(p, q, strict=True))
        else sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
        for p, q in tables(pair)
    ]
    assert (np.isinf(found) == np.isinf(expected)).all()
    finite = np.isfinite(expected)
    assert found[finite] == pytest.approx(np.array(expected)[finite], abs=1e-12)


def test_excess_is_what_lies_above_normalised(pair, represent):
    left = represent(pair[0]).excess(represent(pair[1]))
    assert type(left) is type(represent(pair[0]))
    for found, (p, q) in zip(to_numpy(left.dense()), tables(pair), strict=True):
        above = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
        total = sum(above)
        if total > 1e-9:
            assert found == pytest.approx(np.array(above) / total, abs=1e-9)
        else:  # all of it may be rounding: still a law on the tokens of the row
            assert found.sum() == pytest.approx(1)
    same = represent(pair[0]).excess(represent(pair[0]))
    assert np.array_equal(to_numpy(same.dense()), to_numpy(represent(pair[0]).dense()))


def test_entropy(pair, represent):
    expected = [-sum(a * math.log(a) for a in p if a > 0) for p, _ in tables(pair)]
    assert close(represent(pair[0]).entropy(), expected)


def test_prob_and_log_prob(pair, represent):
    rows = represent(pair[0])
    for v in range(rows.vocab_size):
        tokens = np.full(len(rows), v)
        expected = [p[v] for p, _ in tables(pair)]
        assert close(rows.prob(tokens), expected)
        logs = [math.log(a) if a > 0 else -math.inf for a in expected]
        assert to_numpy(rows.log_prob(tokens)) == pytest.approx(np.array(logs), abs=1e-12)


def test_top_and_margin(pair, represent):
    tokens, best = represent(pair[0]).top()
    plain = [p for p, _ in tables(pair)]
    assert tokens.tolist() == [p.index(max(p)) for p in plain]
    assert close(best, [max(p) for p in plain])
    ranked = [sorted([0.0, *p]) for p in plain]
    assert close(represent(pair[0]).margin(), [p[-1] - p[-2] for p in ranked])


@pytest.mark.parametrize("threshold", [0.0, 1e-3, 0.05, 0.2, 0.5, 1.0, 1.5])
def test_above(pair, represent, threshold):
    start, tokens = represent(pair[0]).above(threshold)
    assert start.shape == (len(pair[0]) + 1,)
    for r, (p, _) in enumerate(tables(pair)):
        expected = [v for v, a in enumerate(p) if a >= threshold]
        assert tokens[start[r] : start[r + 1]].tolist() == expected
    assert start[-1] == len(tokens)


def test_take_reorders_and_repeats(pair, represent):
    rows = represent(pair[0])
    index = np.random.default_rng(0).integers(max(1, len(rows)), size=2 * len(rows))
    taken = rows.take(index)
    assert type(taken) is type(rows)
    assert (to_numpy(taken.dense()) == to_numpy(rows.dense())[index]).all()
    uniforms = np.random.default_rng(1).random(len(index))
    assert len(taken.draw(uniforms)) == len(index)


def test_concatenate_joins_in_order(pair, represent):
    first, second = represent(pair[0]), represent(pair[1])
    joined = concatenate([first, second, first])
    assert type(joined) is type(first)
    expected = np.concatenate([to_numpy(rows.dense()) for rows in (first, second, first)])
    assert (to_numpy(joined.dense()) == expected).all()
    assert concatenate([first]) is first


# ----- Drawing ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_classed_and_dense_draw_the_same_tokens_when_classes_are_in_token_order(seed):
    classed, _ = classed_pair(seed, in_order=True)
    draw = np.random.default_rng(seed)
    for _ in range(50):
        uniforms = draw.random(len(classed))
        expected = classed.draw(uniforms).tolist()
        assert DenseRows(classed.dense()).draw(uniforms).tolist() == expected
        assert DenseRows(torch.from_numpy(classed.dense())).draw(uniforms).tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_a_grid_of_uniforms_gives_each_token_its_exact_share(seed, represent):
    # Probabilities are multiples of 1/4096, so the midpoints of 4096 equal intervals fall in
    # each token's interval exactly as often as its probability says, with no boundary in doubt.
    draw = np.random.default_rng(seed)
    maps = draw.permuted(np.repeat([0, 1, 2, 2], [1, 2, 4, 4])[None, :].repeat(2, axis=0), axis=1)
    classes = TokenClasses.build(4, maps, kind=[0, 1, 1, 0])
    masses = draw.multinomial(512, [0.3, 0.3, 0.4], size=4) / 512
    masses[3] = [0.0, 1.0, 0.0]
    rows = represent(ClassedRows(masses, classes, np.arange(4)))
    grid = (np.arange(4096) + 0.5) / 4096
    for r in range(4):
        drawn = rows.take(np.full(4096, r)).draw(grid)
        shares = to_numpy(rows.dense())[r] * 4096
        assert np.bincount(drawn, minlength=11).tolist() == shares.tolist()
        order = [(maps[classes.kind[r], v], v) for v in drawn]
        if isinstance(rows, ClassedRows):
            assert order == sorted(order)  # class, then token
        else:
            assert (np.diff(drawn) >= 0).all()


def test_extreme_uniforms_stay_on_tokens_with_mass(represent):
    classes = TokenClasses.build(1, [1, 0, 3, 2, 1, 4])
    largest = np.nextafter(1.0, 0.0)
    for masses in ([0, 0.3, 0.7, 0, 0], [0, 0, 0, 1, 0], [0.1] * 3 + [0.7, 0], [1, 0, 0, 0, 0]):
        rows = represent(ClassedRows(np.array([masses], dtype=float), classes, np.array([0])))
        for u in (0.0, 5e-324, largest):
            token = rows.draw(np.array([u]))
            assert to_numpy(rows.prob(token))[0] > 0


@pytest.mark.parametrize("make", [np.asarray, torch.asarray], ids=["numpy", "torch"])
@pytest.mark.parametrize("trailing", [1, 3])
def test_a_float32_draw_stays_off_trailing_tokens_without_mass(make, trailing):
    # The largest uniform rounds to 1 in single precision: u * total is the total itself.
    masses = np.array([[0.25, 0.75] + [0.0] * trailing], dtype=np.float32)
    rows = DenseRows(make(masses))
    assert rows.draw(np.array([np.nextafter(1.0, 0.0)])).tolist() == [1]
    assert rows.draw(np.array([0.0])).tolist() == [0]


def test_drawing_is_in_proportion_whatever_a_row_sums_to(represent):
    grid = (np.arange(8) + 0.5) / 8
    classes = TokenClasses.identity(1, 4)
    for scale in (0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 2.0):
        masses = np.full((8, 4), 0.25 * scale)
        rows = represent(ClassedRows(masses, classes, np.zeros(8, dtype=int)))
        assert rows.draw(grid).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_row_without_mass_still_draws_a_token(represent):
    rows = represent(ClassedRows(np.zeros((1, 3)), TokenClasses.identity(1, 3), np.zeros(1, int)))
    assert 0 <= rows.draw(np.array([0.5]))[0] < 3


# ----- Across representations ---------------------------------------------------------------


def test_classed_rows_compare_with_dense_rows_and_with_other_class_maps():
    first, second = classed_pair(0)
    other = random_classes(np.random.default_rng(77))
    elsewhere = ClassedRows(second.class_masses, other, second.positions)
    for rows in (DenseRows(second.dense()), elsewhere):
        expected = np.abs(first.dense() - rows.dense()).sum(axis=1) / 2
        assert first.total_variation(rows) == pytest.approx(expected, abs=1e-14)
        assert rows.total_variation(first) == pytest.approx(expected, abs=1e-14)


def test_positions_of_another_kind_do_not_cancel():
    classes = TokenClasses.build(2, [[0, 0, 1], [0, 1, 1]], kind=[0, 1])
    masses = np.array([[0.5, 0.5]])
    here, there = (ClassedRows(masses, classes, np.array([i])) for i in (0, 1))
    assert here.total_variation(there) == pytest.approx([0.25])


def test_hellinger_of_close_rows_does_not_cancel():
    p = np.array([[0.5, 0.5]])
    q = p + np.array([[1e-10, -1e-10]])
    # To second order: sum (p - q)^2 / (8 p) = 5e-21, far below the rounding of 1 - sum sqrt.
    found = DenseRows(p).squared_hellinger(DenseRows(q))
    assert found == pytest.approx([5e-21], rel=1e-4)


def test_ties_go_to_the_smallest_token(represent):
    classes = TokenClasses.build(1, [1, 0, 0, 1])
    rows = represent(ClassedRows(np.array([[0.5, 0.5]]), classes, np.array([0])))
    tokens, best = rows.top()
    assert tokens.tolist() == [0]
    assert float(best[0]) == 0.25
    assert float(rows.margin()[0]) == 0.0


# ----- Torch --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_rows_stay_torch_tensors(dtype):
    first, second = classed_pair(1)
    p, q = (DenseRows(torch.from_numpy(rows.dense()).to(dtype)) for rows in (first, second))
    results = {
        "dense": p.dense(),
        "entropy": p.entropy(),
        "prob": p.prob(np.zeros(20, dtype=int)),
        "log_prob": p.log_prob(np.zeros(20, dtype=int)),
        "best": p.top()[1],
        "margin": p.margin(),
        "total_variation": p.total_variation(q),
        "squared_hellinger": p.squared_hellinger(q),
        "kl": p.kl(q),
        "take": p.take(np.array([3, 1])).dense(),
        "concatenate": concatenate([p, q]).dense(),
    }
    for name, found in results.items():
        assert isinstance(found, torch.Tensor), name
        assert found.dtype == dtype, name
    for found in (p.top()[0], *p.above(0.1), p.draw(np.full(20, 0.5))):
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.int64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_rows_draw_from_their_whole_vocabulary(dtype):
    # A running sum in bfloat16 stops growing long before it has passed 4096 tokens.
    rows = DenseRows(torch.full((9, 4096), 2.0**-12, dtype=dtype))
    uniforms = np.arange(9) / 9
    assert rows.draw(uniforms).tolist() == np.floor(uniforms * 4096).astype(int).tolist()
    assert to_numpy(rows.entropy()) == pytest.approx(np.full(9, math.log(4096)), rel=1e-5)
    assert to_numpy(rows.top()[1]).tolist() == [2.0**-12] * 9


def test_integer_rows_draw_their_certain_token():
    rows = DenseRows(np.array([[0, 0, 1], [1, 0, 0]]))
    assert rows.draw(np.array([0.9, 0.9])).tolist() == [2, 0]


def test_rows_that_carry_a_gradient_can_be_used():
    logits = torch.zeros(2, 4, requires_grad=True)
    rows = DenseRows(torch.softmax(logits, dim=1))
    assert rows.draw(np.array([0.1, 0.9])).tolist() == [0, 3]
    assert to_numpy(rows.entropy()) == pytest.approx([math.log(4)] * 2, rel=1e-6)


# ----- Temperature ----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.2, 0.5, 1.0, 3.0])
def test_tempered_rows_are_powers_of_the_probabilities(temperature):
    classed = classed_pair(8)[0]
    powers = classed.dense() ** (1 / temperature)
    expected = powers / powers.sum(axis=1, keepdims=True)
    for rows in (
        classed,
        DenseRows(classed.dense()),
        DenseRows(torch.from_numpy(classed.dense())),
    ):
        found = rows.tempered(temperature)
        assert to_numpy(found.dense()) == pytest.approx(expected, abs=1e-12)


def test_temperature_zero_is_the_top_token():
    classed = classed_pair(9)[0]
    for rows in (classed, DenseRows(torch.from_numpy(classed.dense()))):
        cold = to_numpy(rows.tempered(0).dense())
        assert (cold.sum(axis=1) == 1).all()
        assert cold.argmax(axis=1).tolist() == rows.top()[0].tolist()


def test_a_tiny_temperature_does_not_underflow_to_nothing():
    rows = DenseRows(np.array([[1e-4, 2e-4, 1 - 3e-4], [0.25, 0.25, 0.5], [0.5, 0.5, 0.0]]))
    cold = rows.tempered(1e-5).dense()
    assert cold == pytest.approx(np.array([[0, 0, 1], [0, 0, 1], [0.5, 0.5, 0]]))


# ----- Precision and kind -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_tempered_tensors_stay_tensors_in_single_precision_at_least(dtype, temperature):
    rows = DenseRows(torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=dtype))
    found = rows.tempered(temperature).dense()
    assert isinstance(found, torch.Tensor)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = [[0, 1], [1, 0]] if temperature == 0 else [[0.1, 0.9], [0.5, 0.5]]
    assert to_numpy(found) == pytest.approx(np.array(expected))


def test_a_kind_of_dense_rows_stays_what_it_is_where_rows_are_joined():
    class Counted(DenseRows):
        def with_masses(self, masses):
            return Counted(masses)

    part = Counted(np.array([[0.5, 0.5]]))
    joined = concatenate([part, DenseRows(np.array([[0.25, 0.75]]))])
    assert type(joined) is Counted
    assert joined.dense().tolist() == [[0.5, 0.5], [0.25, 0.75]]


def test_classed_rows_are_joined_as_classed_only_over_one_class_map():
    first, second = classed_pair(3)
    joined = concatenate([first, second])
    assert isinstance(joined, ClassedRows) and joined.classes is first.classes
    assert np.array_equal(joined.class_masses[20:], second.class_masses)
    assert np.array_equal(joined.positions, np.concatenate([first.positions, second.positions]))
    dense = DenseRows(second.dense())
    assert type(concatenate([first, dense])) is type(concatenate([dense, first])) is DenseRows


def test_zero_probabilities_are_silent_and_exact(represent):
    classes = TokenClasses.identity(1, 3)
    sure = represent(ClassedRows(np.array([[1.0, 0.0, 0.0]]), classes, np.zeros(1, int)))
    half = represent(ClassedRows(np.array([[0.5, 0.5, 0.0]]), classes, np.zeros(1, int)))
    assert to_numpy(sure.entropy()).tolist() == [0.0]
    assert to_numpy(sure.log_prob(np.array([1]))).tolist() == [-math.inf]
    assert to_numpy(sure.kl(half)) == pytest.approx([math.log(2)])
    assert to_numpy(half.kl(sure)).tolist() == [math.inf]
    assert to_numpy(half.excess(sure).dense()).tolist() == [[0.0, 1.0, 0.0]]
    assert to_numpy(sure.margin()).tolist() == [1.0]
    start, tokens = half.above(0.5)
    assert (start.tolist(), tokens.tolist()) == ([0, 2], [0, 1])
    assert (start.dtype, tokens.dtype) == (np.int64, np.int64)


@pytest.mark.parametrize("make", [np.asarray, torch.asarray], ids=["numpy", "torch"])
def test_a_uniform_is_rounded_to_the_precision_of_the_rows(make):
    just_below = np.array([0.25 - 1e-12])
    assert DenseRows(make(np.array([[0.25, 0.75]]))).draw(just_below).tolist() == [0]
    single = np.array([[0.25, 0.75]], dtype=np.float32)
    assert DenseRows(make(single)).draw(just_below).tolist() == [1]
