"""What the tests share: small laws, a counting fake, every sampler, and one false-alarm budget."""

import gc
import math
import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import stats

import counterprobe as cp
from counterprobe import samplers, testing, threads
from counterprobe.samplers import SAMPLERS, Sampler

# Chance that one statistical test, all its parameters together, rejects a library that is right.
# A parametrised test divides it by the number of its parameters.
FALSE_ALARMS_PER_TEST = 1e-4
# Chance that the whole suite raises a false alarm on a fresh seed; collection checks the sum.
FALSE_ALARMS = 1e-2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse more statistical tests than the budget allows."""
    names = {item.nodeid.split("[")[0] for item in items if item.get_closest_marker("statistical")}
    assert len(names) * FALSE_ALARMS_PER_TEST <= FALSE_ALARMS, "raise FALSE_ALARMS knowingly"


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what was imported: a million objects that stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000)


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


@pytest.fixture
def counted() -> type[testing.CountingOracle]:
    """Return the class that wraps an oracle, counts what reaches it and offers no session."""
    return testing.CountingOracle


# ----- Laws ---------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def table_law() -> cp.TableLaw:
    """Four coupled positions over three tokens."""
    return testing.small_table()


@pytest.fixture(scope="session")
def forest_law() -> cp.ForestLaw:
    """A star and an isolated pair over seven tokens in classes."""
    return testing.small_forest()


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
    "sequential random": samplers.Sequential("random"),
    "sequential confidence": samplers.Sequential("confidence"),
    "packed shared": samplers.Packed(shared_by=1000),  # screens where one run would not
    "packed 4": samplers.Packed(num_colors=4, num_colorings=9),
    "random-balanced 3": samplers.RandomBalanced(3),
    "ancestral quota": samplers.Ancestral(3, reveal="quota"),
    "spread 3": samplers.Spread(3),
    "maskgit 3": samplers.MaskGIT(3),
    "llada blocks": samplers.LLaDA(4, block_length=3),
    "llada random": samplers.LLaDA(3, remasking="random"),
    "dream candidate": samplers.Dream(3, score="confidence", confidence="candidate"),
    "dream tempered": samplers.Dream(3, score="margin", position_temperature=0.5),
    "threshold 2": samplers.Threshold(2.0),
    "threshold blocks": samplers.Threshold(0.4, block_length=3, confidence="candidate"),
    "factor 4": samplers.Factor(4.0, block_length=3, confidence="candidate"),
    "klass loose": samplers.KLASS(0.3, kl_threshold=1.0, history_length=1, quota=2),
    "entropy-bounded 0": samplers.EntropyBounded(0.0),
    "entropy-bounded margin": samplers.EntropyBounded(1.5, proxy="margin"),
    "punt all": samplers.PUNT(math.inf),
    "punt one": samplers.PUNT(-1.0, rank_by="entropy"),
    "punt parallel": samplers.PUNT(0.05, tests="parallel"),
    "chen-cong-li dtc": samplers.ChenCongLi("dtc"),
    "information-curve 3": samplers.InformationCurve(3),
    "info-gain blocks": samplers.InfoGain(3, 2, threshold=0.5, block_length=3),
    "lookum pairs": samplers.LookUM(2, 2, pool=3, sharpness=math.inf),
    "dawn loose": samplers.DAWN(0.3, 0.6, 0.4, 0.02),
    "dapd one": samplers.DAPD(-1.0),
    "dapd degree": samplers.DAPD(1e-6, "degree", pool=3),
    "demask one": samplers.DEMASK(-1.0),
    "demask three": samplers.DEMASK(0.3, 0.2, 3, pool=3),
    "universal-coupling 3": samplers.UniversalCoupling(3),
    "universal-coupling ahead": samplers.UniversalCoupling(2, full_prefix=True, order="index"),
    "autospeculation capped": samplers.Autospeculation("index", max_copies=1),
    "assd 3": samplers.ASSD(3, order="random"),
    "freedave random": samplers.FreeDave(2, order="random"),
    "remdm cap": samplers.ReMDM(20, "cap", eta=0.3),
    "remdm confidence": samplers.ReMDM(20, "confidence", eta=1.0),
    "remdm loop": samplers.ReMDM(20, "loop", eta=0.1),
    "wino wide": samplers.WINO(0.0, 1.0),
    "wino blocks": samplers.WINO(0.3, 0.6, block_length=3),
    "planned search": samplers.Planned(3, method="search"),
    "planned target": samplers.Planned(target_kl=0.05),
    "planned budget": samplers.Planned(information_budget=0.02),
}


@pytest.fixture(params=list(VARIANTS))
def sampler(request: pytest.FixtureRequest) -> Sampler:
    """Every sampler."""
    return VARIANTS[request.param]


@pytest.fixture
def thread_limit() -> Iterator[Callable[[int], None]]:
    """Return ``set_num_threads``, and put the old limit back afterwards."""
    before = threads.num_threads()
    yield threads.set_num_threads
    threads.set_num_threads(before)
