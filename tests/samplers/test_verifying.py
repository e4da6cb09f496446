"""Rules that verify: exact on an enumerated law, with controls that are wrong on purpose."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import (
    ASSD,
    Autospeculation,
    FreeDave,
    Sampler,
    Sequential,
    UniversalCoupling,
    assd,
    autospeculation,
    universal_coupling,
)
from counterprobe.samplers.couplings import race

MAIN = {
    "coupling": UniversalCoupling(3),
    "autospeculation": Autospeculation(),
    "assd": ASSD(3),
}
# FreeDave is held to the tokens of sequential in its own tests.
EXACT = MAIN | {
    "freedave": FreeDave(3),
    "coupling ahead": UniversalCoupling(2, full_prefix=True, order="index"),
    "autospeculation capped": Autospeculation("index", max_copies=1),
    "assd random": ASSD(4, order="random"),
}

# 1,500 draws over 16 sequences: at level 1e-4 / 3 a law at chi-square distance 0.05 is rejected
# with probability 0.99. The controls lie at 0.06 and more.
COUNT = 1_500
# 20,000 draws over 81 sequences, the rare ones pooled: a chi-square distance of 0.007.
LONG_COUNT = 20_000


class RedrawnRaces(universal_coupling._Races):
    """Draws the noise of a position again after a mismatch."""

    def verify(self, block, tokens, drafted_from, rows):
        kept, correction = super().verify(block, tokens, drafted_from, rows)
        if kept < len(block):
            where = block[[kept]]
            other = replace(self.noise, seed=self.noise.seed + 1, _drawn={})
            correction = int(race(rows.take(np.array([kept - 1])), where, other)[0])
        return kept, correction


@dataclass(frozen=True)
class Redrawn(UniversalCoupling):
    def coupler(self, noise):
        return RedrawnRaces(noise)


class PlainCorrection(assd._Maximal):
    """Draws from the right row after a rejection, not from what is left of it."""

    def verify(self, block, tokens, drafted_from, rows):
        kept, correction = super().verify(block, tokens, drafted_from, rows)
        if kept < len(block):
            plain = rows.take(np.array([kept - 1]))
            correction = int(plain.draw(self.correcting[block[[kept]]])[0])
        return kept, correction


@dataclass(frozen=True)
class PlainlyCorrected(ASSD):
    def coupler(self, noise):
        every = np.arange(noise.length)
        return PlainCorrection(*(noise.uniforms(every, draw) for draw in range(3)))


class UntestedTree(autospeculation._Tree):
    """Keeps whatever the chain rule proposes for a rejected block."""

    def _tested(self, proposal, path, rows):
        return (yield from proposal)


@dataclass(frozen=True)
class Untested(Autospeculation):
    def unmask(self, run, decisions):
        tree = UntestedTree(run.commit_noise(), self.max_copies)
        order = run.residual
        drawn = autospeculation.run_waves(run, tree.draw(run.state, order, ()))
        run.commit_verified(order, drawn.tokens, drawn.log_probs)


WRONG = {
    "redraws the noise after a mismatch": Redrawn(4, order="index"),
    "corrects from the whole row": PlainlyCorrected(4),
    "falls back to the plain law": Untested(),
}


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", MAIN.values(), ids=list(MAIN))
def test_the_enumerated_law_is_drawn_exactly(
    sampler, coupled_bits, tabulated, histogram, chi_square, false_alarms, seed_of
):
    counts = histogram(sampler, tabulated.of(coupled_bits.oracle()), COUNT, seed_of(51))
    assert chi_square(counts, coupled_bits.table) > false_alarms / len(MAIN)


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", WRONG.values(), ids=list(WRONG))
def test_the_same_check_rejects_rules_that_are_wrong_on_purpose(
    sampler, coupled_bits, tabulated, histogram, chi_square, false_alarms, seed_of
):
    counts = histogram(sampler, tabulated.of(coupled_bits.oracle()), COUNT, seed_of(52))
    assert chi_square(counts, coupled_bits.table) < false_alarms / len(MAIN)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_a_larger_law_is_drawn_exactly_in_many_draws(
    sampler, table_law, tabulated, histogram, chi_square, false_alarms, seed_of
):
    counts = histogram(sampler, tabulated.of(table_law.oracle()), LONG_COUNT, seed_of(53))
    assert chi_square(counts, table_law.table) > false_alarms / len(EXACT)


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_exactness_is_claimed_and_no_batch_price_is_put_on_it(sampler, law):
    result = sampler(cp.Unmasking(law.oracle()), cp.Streams(1, 2))
    assert sampler.exact_for(law.length)
    assert result.rights == cp.Right.VERIFY
    assert np.isnan(cp.evaluation.batch_kl(law, result).value)


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_scores_are_the_chain_rule_of_the_law(sampler, law):
    batch = cp.sample(law.oracle(), sampler, 4, seed=6, log_probs=True, progress=False)
    expected = law.log_prob(batch.sequences)
    assert batch.token_log_probs.sum(axis=1) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_temperature_zero_is_the_greedy_chain(sampler: Sampler, law):
    result = sampler(cp.Unmasking(law.oracle(), temperature=0), cp.Streams(1, 2))
    order = getattr(sampler, "order", "index")
    greedy = Sequential(order)(cp.Unmasking(law.oracle(), temperature=0), cp.Streams(1, 2))
    assert result.tokens.tolist() == greedy.tokens.tolist()


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_a_budget_stops_before_it_is_passed(sampler):
    law = cp.families.path(30, target_seed=1)
    run = cp.Unmasking(law.oracle(), max_submissions=7)
    result = sampler(run, cp.Streams(1, 2))
    assert result.stop is cp.StopReason.BUDGET_SPENT
    assert result.ledger.total <= 7
    assert result.tokens is None


@pytest.mark.filterwarnings("ignore::counterprobe.ZeroProbabilityWarning")
@pytest.mark.parametrize("sampler", MAIN.values(), ids=list(MAIN))
def test_drafts_that_are_impossible_together_are_refused_in_one_line(sampler):
    copied = np.zeros((2,) * 4)
    copied[0, 0, 0, 0] = copied[1, 1, 1, 1] = 1
    with pytest.raises(cp.OracleError, match="conditioned on an impossible event") as refusal:
        for seed in range(40):
            sampler(cp.Unmasking(cp.TableLaw(copied).oracle()), cp.Streams(seed, seed))
    assert len(str(refusal.value).splitlines()) == 1
