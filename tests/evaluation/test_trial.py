"""One trial: the run, its measure, and the plain values that every file holds of it."""

import json
import math

import numpy as np

import counterprobe as cp
from counterprobe.digests import token_digest
from counterprobe.evaluation.trial import run_trial
from counterprobe.samplers import SAMPLERS, LiCai, OneBatch, RandomBalanced
from counterprobe.testing import CountingOracle

LAW = cp.families.path(40, target_seed=2)
STREAMS = cp.Streams.from_seed(3)


def test_a_trial_is_the_run_and_its_batch_kl():
    trial = run_trial(LAW, RandomBalanced(5), STREAMS)
    alone = RandomBalanced(5)(cp.run.Run(LAW.oracle()), STREAMS)
    assert trial.result.tokens.tolist() == alone.tokens.tolist()
    assert trial.kl.value == cp.evaluation.batch_kl(LAW, alone).value
    assert run_trial(LAW, OneBatch(), STREAMS, draws=None).kl is None
    cold = run_trial(LAW, OneBatch(), STREAMS, temperature=0.0)
    assert cold.result.temperature == 0
    assert math.isnan(cold.kl.value)


def test_draws_and_seed_are_those_of_the_measure():
    # A hub that one of two batches leaves masked ties that batch's leaves together.
    law, sampler = cp.families.build("double-star", 60, 2), RandomBalanced(2)
    alone = sampler(cp.run.Run(law.oracle()), STREAMS)
    trial = run_trial(law, sampler, STREAMS, draws=16, seed=7)
    by_hand = cp.evaluation.batch_kl(law, alone, draws=16, seed=7)
    assert trial.kl.num_sampled > 0
    assert trial.kl.value == by_hand.value
    assert trial.kl.value != run_trial(law, sampler, STREAMS, draws=16).kl.value
    assert trial.draws == 16
    assert trial.kl_seconds > 0


def test_the_run_goes_through_the_oracle_that_is_given():
    oracle = CountingOracle(LAW.oracle())
    named = oracle.declaring(name=LAW.oracle().name)
    trial = run_trial(LAW, RandomBalanced(5), STREAMS, oracle=named)
    assert oracle.states == trial.result.ledger.evaluations == 5
    plain = run_trial(LAW, RandomBalanced(5), STREAMS)
    assert trial.result.tokens.tolist() == plain.result.tokens.tolist()
    assert trial.kl.value == plain.kl.value


def test_a_record_is_plain_values_with_the_settings_that_were_asked_for():
    asked = LiCai(accuracy=0.5)
    trial = run_trial(LAW, asked, STREAMS, draws=16)
    record = trial.record(asked)
    assert json.loads(json.dumps(record)) == record
    assert record["settings"] == {"accuracy": 0.5, "dependence": None}
    assert record["knows"] == "TC + DTC"
    assert trial.result.settings["dependence"] is not None
    assert record["evaluations"] == trial.result.ledger.evaluations
    assert (record["decision_seed"], record["commit_seed"]) == (
        STREAMS.decision_seed, STREAMS.commit_seed,
    )  # fmt: skip
    assert (record["batch_kl"], record["draws"]) == (trial.kl.value, 16)
    assert record["tokens_fingerprint"] == token_digest(trial.result.tokens)


def test_a_record_without_a_measure_or_tokens_has_none():
    unmeasured = run_trial(LAW, OneBatch(), STREAMS, draws=None).record(OneBatch())
    for name in ("batch_kl", "batch_kl_se", "num_sampled", "largest_arity", "draws"):
        assert unmeasured[name] is None
    theory = SAMPLERS["packed-theory"]()
    assert run_trial(LAW, theory, STREAMS).record(theory)["tokens_fingerprint"] is None


def test_a_digest_tells_sequences_apart_whatever_integers_hold_them():
    tokens = np.arange(5)
    assert token_digest(tokens) == token_digest(tokens.astype(np.int32)) == "5ba0aa5444ab2827"
    assert len({token_digest(tokens), token_digest(tokens[::-1]), token_digest(tokens[:4])}) == 3
