"""Rules that verify: exact on an enumerated law, with controls that are wrong on purpose."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import Noise, Verify
from counterprobe.samplers import (
    ASSD,
    Autospeculation,
    FreeDave,
    Sampler,
    Sequential,
    UniversalCoupling,
)
from counterprobe.samplers.peers import assd, autospeculation, universal_coupling
from counterprobe.samplers.peers.universal_coupling import race
from counterprobe.samplers.rules.waves import waves

pytestmark = pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")

MAIN = {
    "coupling": UniversalCoupling(3),
    "autospeculation": Autospeculation(),
    "assd": ASSD(3),
}
# Its tree of proposals takes longest.
QUICK = [
    pytest.param(rule, id=name, marks=[pytest.mark.slow] if name == "autospeculation" else [])
    for name, rule in MAIN.items()
]
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
# 600 draws over 5 possible sequences, at the level of the 1,500: a chi-square distance of 0.07.
ZEROS_COUNT = 600


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
    def unmask(self, view, rng):
        tree = UntestedTree((yield Noise()), self.max_copies)
        order = view.residual
        drawn = yield from waves(view, tree.draw(view.state, order, ()))
        yield Verify(order, drawn.tokens, drawn.log_probs)


WRONG = {
    "redraws the noise after a mismatch": Redrawn(4, order="index"),
    "corrects from the whole row": PlainlyCorrected(4),
    "falls back to the plain law": Untested(),
}


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", QUICK)
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
    result = sampler(cp.run.Run(law.oracle()), cp.Streams(1, 2))
    assert sampler.exact_for(law.length)
    assert result.used == cp.Need.VERIFY
    assert np.isnan(cp.evaluation.batch_kl(law, result).value)


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_scores_are_the_chain_rule_of_the_law(sampler, law):
    batch = cp.sample(law.oracle(), sampler, 4, seed=6, log_probs=True, progress=False)
    expected = law.log_prob(batch.sequences)
    assert batch.token_log_probs.sum(axis=1) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_temperature_zero_is_the_greedy_chain(sampler: Sampler, law):
    result = sampler(cp.run.Run(law.oracle(), temperature=0), cp.Streams(1, 2))
    order = getattr(sampler, "order", "index")
    greedy = Sequential(order)(cp.run.Run(law.oracle(), temperature=0), cp.Streams(1, 2))
    assert result.tokens.tolist() == greedy.tokens.tolist()


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_a_budget_stops_before_it_is_passed(sampler):
    law = cp.families.path(30, target_seed=1)
    run = cp.run.Run(law.oracle(), max_evaluations=7)
    result = sampler(run, cp.Streams(1, 2))
    assert result.stop is cp.StopReason.BUDGET_SPENT
    assert result.ledger.evaluations <= 7
    assert result.tokens is None


# ----- Laws with zeros: drafts that cannot occur together ------------------------------------


@pytest.fixture(scope="module")
def copied_bits() -> cp.TableLaw:
    """Four bits of which five sequences are possible, and no 1 is followed by 0 at the start."""
    table = np.zeros((2,) * 4)
    table[0, 0, 0, 0], table[1, 1, 1, 1], table[0, 1, 1, 0] = 4, 3, 2
    table[1, 1, 0, 1], table[0, 0, 1, 1] = 1, 2
    return cp.TableLaw(table)


class Remembering(cp.testing.CountingOracle):
    """Asks for a state once, and remembers its row or that it was refused."""

    def __init__(self, oracle):
        super().__init__(oracle)
        self.known = {}

    def ask(self, query):
        states, readouts, found = query.states, query.readouts, []
        for b, position in zip(readouts.state_index, readouts.position, strict=True):
            key = (states[b].tobytes(), int(position))
            if key not in self.known:
                where = cp.Readouts.same(1, [int(position)])
                try:
                    alone = cp.Query(states[b][None, :], where)
                    self.known[key] = super().ask(alone).rows.dense()[0]
                except cp.errors.ImpossibleState as refusal:
                    self.known[key] = refusal
            if isinstance(self.known[key], cp.errors.ImpossibleState):
                raise self.known[key]
            found.append(self.known[key])
        return cp.Reply(cp.rows.DenseRows(np.stack(found)))


@pytest.mark.statistical
@pytest.mark.parametrize("sampler", QUICK)
def test_a_law_with_zeros_is_drawn_exactly(
    sampler, copied_bits, histogram, chi_square, false_alarms, seed_of
):
    oracle = Remembering(copied_bits.oracle())
    counts = histogram(sampler, oracle, ZEROS_COUNT, seed_of(54))
    assert any(isinstance(known, cp.errors.ImpossibleState) for known in oracle.known.values())
    assert chi_square(counts, copied_bits.table) > false_alarms / len(MAIN)


@pytest.mark.parametrize("order", ["index", "random", "confidence", "entropy"])
def test_freedave_is_sequential_on_a_law_with_zeros(order, copied_bits):
    oracle = Remembering(copied_bits.oracle())
    for seed in range(60):
        streams = cp.Streams(seed, seed)
        drawn = FreeDave(3, order)(cp.run.Run(oracle), streams)
        expected = Sequential(order)(cp.run.Run(oracle), streams)
        assert drawn.tokens.tolist() == expected.tokens.tolist()


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_sequences_side_by_side_are_those_drawn_alone_on_a_law_with_zeros(sampler, copied_bits):
    oracle = Remembering(copied_bits.oracle())
    batch = cp.sample(oracle, sampler, 40, seed=3, log_probs=True, progress=False)
    logs = copied_bits.log_prob(batch.sequences)
    assert batch.token_log_probs.sum(axis=1) == pytest.approx(logs, abs=1e-9)
    for k in range(0, 40, 8):
        run = cp.run.Run(oracle, sequence=k)
        alone = sampler(run, cp.Streams.from_seed(3))
        assert alone.tokens.tolist() == batch.sequences[k].tolist()
        assert run.ledger == batch.ledgers[k]
        assert run.transcript.replay() == run.ledger


def test_a_request_of_refused_states_alone_is_no_error(copied_bits, monkeypatch):
    oracle = Remembering(copied_bits.oracle())
    whole = cp.sample(oracle, "autospeculation", 20, seed=3, progress=False)
    monkeypatch.setattr("counterprobe.samplers.rules.waves.MOST_NUMBERS", 4)  # one state each
    cut = cp.sample(oracle, "autospeculation", 20, seed=3, progress=False)
    assert np.array_equal(cut.sequences, whole.sequences)
    assert list(cut.ledgers) == list(whole.ledgers)


class RefusesTheLikely(cp.testing.CountingOracle):
    """Calls states impossible that its own rows call possible."""

    def ask(self, query):
        if ((query.states != cp.MASK).sum(axis=1) == 2).any():
            raise cp.errors.ImpossibleState("two values never occur together")
        return super().ask(query)


@pytest.mark.parametrize("sampler", EXACT.values(), ids=list(EXACT))
def test_a_refusal_that_no_row_explains_is_an_error(sampler, table_law):
    with pytest.raises(cp.errors.ImpossibleState, match="two values never occur together"):
        for seed in range(40):
            run = cp.run.Run(RefusesTheLikely(table_law.oracle()))
            sampler(run, cp.Streams(seed, seed))
