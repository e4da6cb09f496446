"""What peers have in common: the identities and counts that hold across their files."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import samplers as s
from counterprobe.evaluation import (
    batch_kl,
    draw_tree_law,
    exact_output_law,
    information_curve,
)
from counterprobe.run import CommitAll
from counterprobe.targets.curves import subset_entropies
from curve_cost import curve_cost
from fixed import batches_of

STREAMS = cp.Streams(61, 62)
FIVE_BITS = cp.TableLaw(np.random.default_rng(9).dirichlet(np.full(32, 0.5)).reshape((2,) * 5))
FOUR = cp.TableLaw(np.random.default_rng(4).dirichlet(np.full(81, 0.3)).reshape((3,) * 4))


class Ordered:
    """Decisions whose random order is a given one."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self.order = list(order)

    def __call__(self, purpose: str, *index: int) -> object:
        if purpose == "order":
            return SimpleNamespace(permutation=lambda x: np.asarray(x)[self.order])
        return np.random.default_rng(7)


class Fixed(s.Sampler):
    """Given batches."""

    name, summary, source = "fixed", "given batches", "tests"

    def __init__(self, batches: list[np.ndarray]) -> None:
        object.__setattr__(self, "batches", batches)

    def unmask(self, view, rng):
        yield CommitAll(self.batches)


def forced_run(oracle: cp.Oracle, tokens: np.ndarray) -> cp.run.Run:
    """A run that draws a given sequence."""
    forced = np.asarray(tokens)
    return cp.run.Run(oracle, draw=lambda state, positions, rows, index: forced[positions])


def kl_of_batches(entropy: np.ndarray, batches: list[np.ndarray]) -> float:
    """Sum of ``TC(X_B | X_G)`` from subset entropies."""
    total, given = 0.0, 0
    for batch in batches:
        joint = given | sum(1 << int(i) for i in batch)
        total += sum(entropy[given | 1 << int(i)] - entropy[given] for i in batch)
        total -= entropy[joint] - entropy[given]
        given = joint
    return total


NON_ADAPTIVE = {
    "one batch in random order": s.RandomBalanced(1),
    "balanced 2": s.RandomBalanced(2),
    "balanced 3": s.RandomBalanced(3),
    "balanced 5": s.RandomBalanced(5),
    "ancestral": s.Ancestral(3),
    "ancestral quota": s.Ancestral(3, reveal="quota"),
    "li-cai": s.LiCai(0.3),
    "chen tc": s.ChenCongLi("tc", 0.5),
    "chen dtc": s.ChenCongLi("dtc", 0.5),
    "chen both": s.ChenCongLi("both", 1.0),
    "information curve": s.InformationCurve(3),
}


@pytest.mark.parametrize("name", list(NON_ADAPTIVE))
def test_the_information_curve_gives_the_expected_kl_of_every_random_order(name):
    sampler = NON_ADAPTIVE[name].informed_by(FIVE_BITS)
    entropy = subset_entropies(FIVE_BITS)
    divergences, sizes = [], set()
    for order in itertools.permutations(range(5)):
        batches = batches_of(sampler, np.arange(5), Ordered(order))
        sizes.add(tuple(len(batch) for batch in batches))
        divergences.append(kl_of_batches(entropy, batches))
    (only,) = sizes
    expected = curve_cost(information_curve(FIVE_BITS), only)
    assert math.fsum(divergences) / 120 == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 2, 0, 3, 1), (3, 1, 4, 0, 2)])
def test_the_kl_of_batches_is_that_of_the_enumerated_output(order):
    entropy = subset_entropies(FIVE_BITS)
    for sampler in NON_ADAPTIVE.values():
        told = sampler.informed_by(FIVE_BITS)
        batches = batches_of(told, np.arange(5), Ordered(order))
        law = exact_output_law(FIVE_BITS, Fixed(batches))
        assert law.kl == pytest.approx(kl_of_batches(entropy, batches), abs=1e-12)


ROW_SELECTED = {
    "threshold": s.Threshold(0.5),
    "factor": s.Factor(1.5),
    "klass": s.KLASS(0.3, 0.5, history_length=1),
    "eb": s.EntropyBounded(0.5),
    "eb margin": s.EntropyBounded(0.8, proxy="margin"),
    "mean-field": s.MeanField(0.4, coupling=0.5),
    "llada": s.LLaDA(2),
    "dream": s.Dream(3, score="margin"),
    "dream tempered": s.Dream(3, position_temperature=1.0),
    "maskgit": s.MaskGIT(2, confidence="row"),
}


@pytest.mark.parametrize("name", list(ROW_SELECTED))
def test_row_selection_costs_the_total_correlation_of_its_batches(name):
    # Fact A: the batch follows from rows and seed, the draws are at temperature 1.
    for seed in range(3):
        law = exact_output_law(FOUR, ROW_SELECTED[name], decision_seed=seed)
        assert law.row_kl == pytest.approx(0, abs=1e-12)
        assert law.kl == pytest.approx(law.total_correlation, abs=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("proxy", ["entropy", "confidence", "margin"])
def test_the_entropy_bound_holds_by_enumeration(gamma, proxy):
    sampler = s.EntropyBounded(gamma, proxy=proxy)
    for law in (FOUR, FIVE_BITS):
        steps = multiple = 0.0
        for x in itertools.product(range(law.vocab_size), repeat=law.length):
            result = sampler(forced_run(law.oracle(), np.array(x)), STREAMS)
            steps += law.table[x] * len(result.batches)
            multiple += law.table[x] * sum(len(batch) > 1 for batch in result.batches)
        kl = exact_output_law(law, sampler).kl
        assert kl <= gamma * multiple + 1e-12
        assert multiple <= steps
        if gamma == 0:
            assert steps == pytest.approx(law.length)


def test_one_batch_costs_the_total_correlation():
    for law in (FOUR, FIVE_BITS):
        expected = pytest.approx(law.total_correlation(), abs=1e-12)
        assert exact_output_law(law, s.OneBatch()).kl == expected


def test_a_batch_costs_at_most_its_entropies_less_the_largest():
    # Fact C, for every batch of every law.
    for law in (FOUR, FIVE_BITS):
        entropy = subset_entropies(law)
        for bits in range(1, 1 << law.length):
            single = [entropy[1 << i] for i in range(law.length) if bits >> i & 1]
            assert sum(single) - entropy[bits] <= sum(single) - max(single) + 1e-12


def test_sure_rows_that_pass_the_factor_rule_hold_the_joint_mode():
    # The greedy guarantee: (n + 1)(1 - conf) <= 1 for all n rows of the batch.
    draw = np.random.default_rng(5)
    sizes = set()
    for _ in range(200):
        law = cp.TableLaw(draw.dirichlet(np.full(16, 0.05)).reshape((2,) * 4) + 1e-9)
        batch = s.Factor(0.999)(cp.run.Run(law.oracle()), STREAMS).batches[0]
        if len(batch) == 1:
            continue
        sizes.add(len(batch))
        state = np.full(4, cp.MASK, dtype=np.int32)
        joint = law.conditional(state, batch)
        tokens = law.oracle().rows(state[None], cp.Readouts.same(1, batch)).top()[0]
        assert np.unravel_index(joint.argmax(), joint.shape) == tuple(tokens)
    assert sizes == {2, 3, 4}


# ----- Values decide: the bias of candidates --------------------------------------------------

TWO_COINS = cp.TableLaw(np.multiply.outer([0.1, 0.9], [0.1, 0.9]))
ONE_AT_A_TIME = {
    "threshold": s.Threshold(2.0, confidence="candidate"),
    "factor": s.Factor(0.0, confidence="candidate"),
    "llada": s.LLaDA(2, confidence="candidate"),
    "klass": s.KLASS(1.0, confidence="candidate"),
    "maskgit": s.MaskGIT(2, choice_temperature=0.0),
}


@pytest.mark.parametrize("name", list(ONE_AT_A_TIME))
def test_scoring_candidates_is_biased_and_scoring_rows_is_not(name):
    candidate = ONE_AT_A_TIME[name]
    assert draw_tree_law(TWO_COINS, candidate)[0].sum() == pytest.approx(0.019, abs=1e-15)
    row = s.build_sampler(candidate.name, {**candidate.settings, "confidence": "row"})
    assert draw_tree_law(TWO_COINS, row)[0].sum() == pytest.approx(0.1, abs=1e-15)
    assert exact_output_law(TWO_COINS, row).total_variation < 1e-15


def test_at_temperature_zero_both_confidences_agree():
    law = cp.families.path(30, target_seed=2)
    for name in ("threshold", "factor", "llada", "klass", "maskgit"):
        drawn = [
            s.build_sampler(name, {"confidence": kind})(
                cp.run.Run(law.oracle(), temperature=0), STREAMS
            )
            for kind in ("row", "candidate")
        ]
        assert drawn[0].tokens.tolist() == drawn[1].tokens.tolist()
        assert drawn[0].round_of_position.tolist() == drawn[1].round_of_position.tolist()


# ----- Product laws ---------------------------------------------------------------------------

NUM = 64
PRODUCT = cp.ForestLaw(
    np.random.default_rng(8).uniform(0.5, 1.5, size=(NUM, 3)), [], np.ones((3, 3))
)
COSTS = {
    "sequential": (s.Sequential(), NUM),
    "one-batch": (s.OneBatch(), 1),
    "random-balanced": (s.RandomBalanced(7), 7),
    "spread": (s.Spread(7), 7),
    "maskgit": (s.MaskGIT(8), 8),
    "maskgit row": (s.MaskGIT(12, confidence="row"), 12),
    "llada": (s.LLaDA(16), 16),
    "llada blocks": (s.LLaDA(16, block_length=16), 16),
    "dream": (s.Dream(8), 8),
    "threshold": (s.Threshold(0.0), 1),
    "threshold blocks": (s.Threshold(0.0, block_length=16), 4),
    "threshold 2": (s.Threshold(2.0), NUM),
    "factor": (s.Factor(0.0), NUM),
    "factor all": (s.Factor(100.0), 1),
    "klass": (s.KLASS(1.0), NUM),
    "klass stable": (s.KLASS(0.0, 1e-3), 3),
    "eb": (s.EntropyBounded(0.1), NUM),
    "eb all": (s.EntropyBounded(100.0), 1),
    "punt": (s.PUNT(1e-12), 1 + 6),
    "punt one": (s.PUNT(-1.0), sum(1 + math.ceil(math.log2(m)) for m in range(1, NUM + 1))),
    "li-cai": (s.LiCai(), 1),
    "chen": (s.ChenCongLi(), 1),
    "information-curve": (s.InformationCurve(8), 1),
    "information-profile": (s.InformationProfile(8), 1),
    "mean-field": (s.MeanField(2.0), NUM),
    "info-gain one": (s.InfoGain(1, threshold=2.0), NUM),
    "lookum one": (s.LookUM(1), NUM),
    "centroid-layers": (s.CentroidLayers(), 1),
}


@pytest.mark.parametrize("name", list(COSTS))
def test_evaluations_stages_and_zero_kl_on_a_product_law(name):
    sampler, expected = COSTS[name]
    result = sampler.informed_by(PRODUCT)(cp.run.Run(PRODUCT.oracle()), STREAMS)
    assert (result.ledger.evaluations, result.ledger.stages) == (expected, expected)
    assert batch_kl(PRODUCT, result).value == 0.0


# ----- Copied pairs ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
def test_one_batch_of_copied_bits_costs_log_two_a_pair():
    pair = np.eye(2)
    copied = cp.TableLaw(np.multiply.outer(pair, pair))
    assert exact_output_law(copied, s.OneBatch()).kl == pytest.approx(2 * math.log(2))


def test_the_entropy_bound_serialises_copied_and_independent_bits():
    pairs = cp.ForestLaw(
        np.ones((8, 2)), [[i, i + 1] for i in range(0, 8, 2)], [[1, 1e-14], [1e-14, 1]]
    )
    run = cp.run.Run(pairs.oracle())
    # Each step reveals one bit, and with it the certain copy of the one before.
    assert s.EntropyBounded(0.6)(run, STREAMS).ledger.evaluations == 8 // 2 + 1
    coins = cp.ForestLaw(np.ones((8, 2)), [], np.ones((2, 2)))
    assert s.EntropyBounded(0.69)(cp.run.Run(coins.oracle()), STREAMS).ledger.evaluations == 8
    assert s.EntropyBounded(0.70)(cp.run.Run(coins.oracle()), STREAMS).ledger.evaluations == 4


# ----- Progress at the edge of every knob -----------------------------------------------------


@pytest.mark.parametrize(
    "sampler",
    [
        s.Threshold(1.5), s.Factor(0.0), s.EntropyBounded(0.0), s.PUNT(-1.0), s.KLASS(1.0),
        s.MeanField(1.5),
    ],
    ids=lambda sampler: sampler.name,
)  # fmt: skip
def test_the_strictest_knob_commits_one_position_a_step(sampler):
    law = cp.families.path(20, target_seed=1)
    result = sampler(cp.run.Run(law.oracle()), STREAMS)
    assert [len(batch) for batch in result.batches] == [1] * 20


@pytest.mark.parametrize(
    "sampler",
    [
        s.Threshold(2.0), s.Factor(0.0), s.EntropyBounded(0.0), s.LLaDA(5), s.KLASS(1.0),
        s.PUNT(-1.0), s.InfoGain(1, threshold=2.0), s.MaskGIT(5, 0.0, confidence="row"),
    ],
    ids=lambda sampler: sampler.name,
)  # fmt: skip
def test_ties_are_broken_by_index(sampler, uniform_oracle):
    result = sampler(cp.run.Run(uniform_oracle(5, 4)), STREAMS)
    assert result.round_of_position.tolist() == [0, 1, 2, 3, 4]


def test_token_temperature_leaves_the_scores_alone():
    # At a low temperature rows saturate; scored raw, the order does not collapse to the left.
    law = cp.families.path(40, target_seed=3)
    for name in ("llada", "dream", "threshold", "entropy-bounded"):
        sampler = s.build_sampler(name)
        first = [
            sampler(cp.run.Run(law.oracle(), temperature=temperature), STREAMS).batches[0]
            for temperature in (1.0, 0.1, 0.0)
        ]
        assert first[0].tolist() == first[1].tolist() == first[2].tolist()
        assert first[0].tolist() != list(range(len(first[0])))


# ----- Bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(s.SAMPLERS))
def test_unknown_knobs_fail_and_list_the_valid_ones(name):
    with pytest.raises(ValueError, match=f"{name!r} has no setting 'knob'; its settings: ") as e:
        s.build_sampler(name, {"knob": 1})
    for setting in s.SAMPLERS[name]().settings:
        assert setting in str(e.value)


@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        (s.LiCai(), r"needs dependence, TC \+ DTC .*evaluation.dependence\(law\).sum computes"),
        (s.ChenCongLi("tc"), r"needs dependence, TC of .*evaluation.dependence\(law\).total"),
        (s.ChenCongLi("dtc"), r"needs dependence, DTC of .*evaluation.dependence\(law\).dual"),
        (s.ChenCongLi("both"), r"the smaller of TC and DTC .*dependence\(law\).smaller"),
        (s.InformationCurve(2), r"needs curve, .*evaluation.information_curve\(law\) computes"),
        (s.CentroidLayers(), r"needs edges, the law's forest: pass edges=law.edges"),
    ],
)
def test_a_missing_bound_names_the_function_that_computes_it(sampler, message, counted):
    oracle = counted(PRODUCT.oracle())
    with pytest.raises(ValueError, match=message):
        sampler(cp.run.Run(oracle), STREAMS)
    assert oracle.calls == 0
