"""What the tests share: small laws, a counting fake, every sampler, and one false-alarm budget."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

import counterprobe as cp
from counterprobe import threads
from counterprobe.samplers import SAMPLERS, RandomBalanced, Sampler, Sequential

# Chance that one statistical test, all its parameters together, rejects a library that is right.
# A parametrised test divides it by the number of its parameters.
FALSE_ALARMS_PER_TEST = 1e-4
# Chance that the whole suite raises a false alarm on a fresh seed; collection checks the sum.
FALSE_ALARMS = 1e-2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse more statistical tests than the budget allows."""
    names = {item.nodeid.split("[")[0] for item in items if item.get_closest_marker("statistical")}
    assert len(names) * FALSE_ALARMS_PER_TEST <= FALSE_ALARMS, "raise FALSE_ALARMS knowingly"


@pytest.fixture
def false_alarms() -> float:
    """Chance of a false alarm that a statistical test may spend."""
    return FALSE_ALARMS_PER_TEST


@pytest.fixture
def seed_of() -> Callable[[int], int]:
    """Return a test's fixed seed, or one derived from it and COUNTERPROBE_FRESH_SEED."""

    def seed_of(fixed: int) -> int:
        fresh = os.environ.get("COUNTERPROBE_FRESH_SEED")
        if fresh is None:
            return fixed
        return int(np.random.SeedSequence([int(fresh), fixed]).generate_state(1)[0])

    return seed_of


@pytest.fixture
def chi_square() -> Callable[[ArrayLike, ArrayLike], float]:
    """Return the p-value of counts against a law, cells pooled to expected counts of 5."""

    def chi_square(counts: ArrayLike, law: ArrayLike) -> float:
        observed = np.asarray(counts, dtype=np.float64).ravel()
        probability = np.asarray(law, dtype=np.float64).ravel()
        if observed[probability == 0].any():
            return 0.0  # an impossible outcome was seen
        expected = observed.sum() * probability
        order = np.argsort(expected, kind="stable")
        cells: list[list[float]] = [[0.0, 0.0]]
        for k in order:
            if cells[-1][1] >= 5:
                cells.append([0.0, 0.0])
            cells[-1][0] += observed[k]
            cells[-1][1] += expected[k]
        if len(cells) > 1 and cells[-1][1] < 5:
            last = cells.pop()
            cells[-1] = [cells[-1][0] + last[0], cells[-1][1] + last[1]]
        seen, wanted = np.array(cells).T
        return float(stats.chi2.sf(((seen - wanted) ** 2 / wanted).sum(), df=len(cells) - 1))

    return chi_square


# ----- Oracles around oracles ---------------------------------------------------------------


@dataclass
class CountingOracle:
    """Counts what reaches another oracle, and hides the session it may offer."""

    inner: cp.Oracle
    trusted: bool = False
    calls: int = 0
    states: int = 0
    rows_read: int = 0
    seen: list[NDArray[np.int32]] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.inner.length

    @property
    def vocab_size(self) -> int:
        return self.inner.vocab_size

    @property
    def row_error(self) -> float:
        return self.inner.row_error

    @property
    def name(self) -> str:
        return "counted"

    def rows(self, states: NDArray[np.int32], readouts: cp.Readouts) -> cp.Rows:
        self.calls += 1
        self.states += len(states)
        self.rows_read += len(readouts)
        self.seen.append(states.copy())
        return self.inner.rows(states, readouts)


@pytest.fixture
def counted() -> type[CountingOracle]:
    """Return the class that wraps an oracle, counts what reaches it and offers no session."""
    return CountingOracle


# ----- Laws ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def table_law() -> cp.TableLaw:
    """Four coupled positions over three tokens: 81 sequences, all of positive probability."""
    return cp.TableLaw(np.random.default_rng(11).dirichlet(np.full(81, 0.4)).reshape((3,) * 4))


@pytest.fixture(scope="session")
def forest_law() -> cp.ForestLaw:
    """A star and an isolated pair over seven tokens, two class maps, uneven within classes."""
    draw = np.random.default_rng(12)
    edges = [[2, 0], [2, 1], [2, 4], [5, 6], [3, 2]]
    classes = cp.TokenClasses.build(
        8,
        [[0, 0, 1, 1, 1, 2, 2], [2, 1, 0, 1, 2, 0, 1]],
        within=draw.uniform(0.2, 1.0, size=(2, 7)),
        kind=[0, 1, 1, 0, 0, 1, 0, 1],
    )
    return cp.ForestLaw(
        draw.uniform(0.3, 1.0, size=(8, 3)),
        edges,
        draw.uniform(0.1, 1.0, size=(len(edges), 3, 3)),
        classes=classes,
    )


@pytest.fixture(scope="session", params=["table", "forest"])
def law(request: pytest.FixtureRequest) -> cp.TableLaw | cp.ForestLaw:
    """Dense rows without a session, then classed rows with one."""
    return request.getfixturevalue(f"{request.param}_law")


@pytest.fixture
def uniform_oracle() -> Callable[..., cp.CallableOracle]:
    """Return a factory of oracles that give every token the same probability."""

    def uniform_oracle(length: int = 3, vocab_size: int = 4, **options) -> cp.CallableOracle:
        def function(states: NDArray[np.int32]) -> NDArray[np.float64]:
            return np.full((*states.shape, vocab_size), 1 / vocab_size)

        return cp.CallableOracle(function, length, vocab_size, **options)

    return uniform_oracle


# ----- Samplers -----------------------------------------------------------------------------

# Samplers that cannot complete on the small laws above have tests of their own.
TESTED_ELSEWHERE = {"packed-theory"}
# Every other registered sampler as it comes, and the variants that take another path.
VARIANTS: dict[str, Sampler] = {
    **{name: cls() for name, cls in SAMPLERS.items() if name not in TESTED_ELSEWHERE},
    "sequential random": Sequential("random"),
    "sequential confidence": Sequential("confidence"),
    "sequential entropy": Sequential("entropy"),
    "random-balanced 3": RandomBalanced(3),
}


SCHEDULED = [
    name
    for name, sampler in VARIANTS.items()
    if sampler.schedule(np.arange(2), cp.Streams(0, 0).decisions) is not None
]


@pytest.fixture(params=list(VARIANTS))
def sampler(request: pytest.FixtureRequest) -> Sampler:
    """Every sampler."""
    return VARIANTS[request.param]


@pytest.fixture(params=SCHEDULED)
def scheduled_sampler(request: pytest.FixtureRequest) -> Sampler:
    """Every sampler whose batches do not depend on replies."""
    return VARIANTS[request.param]


@pytest.fixture
def thread_limit() -> Iterator[Callable[[int], None]]:
    """Return ``set_num_threads``, and put the old limit back afterwards."""
    before = threads.num_threads()
    yield threads.set_num_threads
    threads.set_num_threads(before)
