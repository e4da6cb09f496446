"""Soft structure: strengths that are found once, kept in files, and turned into plans."""

from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing

STREAMS = cp.Streams(3, 4)


def with_strengths(structure: cp.Structure, **values) -> cp.Structure:
    """Return a structure of which some strengths are others."""
    return replace(structure, strengths=replace(structure.strengths, **values))


def small_law(kind: str = "path", length: int = 16, seed: int = 0) -> cp.ForestLaw:
    rng = np.random.default_rng(seed)
    edges = {
        "path": [(i, i + 1) for i in range(length - 1)],
        "stars": [(4 * (i // 4), i) for i in range(length) if i % 4],
    }[kind]
    unary = np.exp(rng.normal(0, 0.5, (length, 5)))
    return cp.ForestLaw(unary, edges, np.exp(rng.normal(size=(len(edges), 5, 5))))


@pytest.fixture(scope="module")
def law() -> cp.ForestLaw:
    return small_law()


@pytest.fixture(scope="module")
def oracle(law):
    noisy = testing.NoisyLogits.with_mean_error(law.oracle(), 0.03, 1)
    return noisy.declaring(0.05)


@pytest.fixture(scope="module")
def found(oracle) -> cp.Structure:
    return cp.discover(oracle, STREAMS, mode="soft", probes=96)


def test_true_edges_are_the_strongest_pairs(found, law):
    upper = np.triu(found.strength)
    order = np.argsort(-upper, axis=None)[: len(law.edges)]
    strongest = {tuple(map(int, np.unravel_index(k, upper.shape))) for k in order}
    assert strongest == {tuple(sorted(edge)) for edge in law.edges.tolist()}
    assert found.ledger.evaluations == 97
    assert found.strengths.num_probes == 96
    assert (found.strength == found.strength.T).all()
    assert found.strength_se.shape == (16, 16)


def test_the_mode_follows_the_rows(oracle, law):
    assert cp.discover(oracle, STREAMS, probes=64).strengths is not None
    assert cp.discover(oracle, STREAMS).strengths is not None  # it declares an error of 0.05
    exact = cp.discover(law.oracle(), STREAMS)
    assert exact.certificate is not None and exact.strengths is None
    assert cp.discover(law.oracle(), STREAMS, mode="soft").certificate is None


def test_auto_turns_soft_when_nothing_is_certified_and_charges_both(law):
    lying = testing.NoisyLogits.with_mean_error(law.oracle(), 0.03, 1).declaring(1e-9)
    with pytest.raises(cp.Infeasible):
        cp.discover(lying, STREAMS, mode="exact")
    found = cp.discover(lying, STREAMS)
    assert found.strengths is not None
    alone = cp.discover(lying, STREAMS, mode="soft")
    assert found.ledger.evaluations > alone.ledger.evaluations
    assert found.strength.tolist() == alone.strength.tolist()


def test_probes_stop_when_plans_no_longer_get_cheaper(law):
    found = cp.discover(law.oracle(), STREAMS, mode="soft")
    assert found.strengths.num_probes < 512
    assert cp.discover(law.oracle(), STREAMS, mode="soft", probes=512).strengths.num_probes == 512


def test_given_positions_have_no_strength_and_stay_given(oracle):
    given = np.full(16, cp.MASK)
    given[[0, 7]] = 1
    found = cp.discover(oracle, STREAMS, mode="soft", given=given, probes=64)
    assert np.isnan(found.strength[0]).all()
    assert not np.isnan(found.strength[np.ix_(found.residual, found.residual)]).any()
    drawn = cp.sample(oracle, found, 6, seed=STREAMS, batches=4)
    assert (drawn.sequences[:, [0, 7]] == 1).all()
    with pytest.raises(cp.StructureError, match=r"at 2 of 16 .* 0: token 1 there, masked here"):
        cp.sample(oracle, cp.samplers.as_sampler(found, {"batches": 4}), 2, progress=False)


def test_samples_follow_plans_of_their_groups_and_are_charged(found, oracle, counted):
    asked = counted(oracle)
    drawn = cp.sample(asked, found, 10, seed=STREAMS, batches=4, orders=3)
    checked = cp.discovery.check_oracle(found, oracle)
    assert drawn.ledger.evaluations == asked.states == checked.evaluations + 10 * 4
    seeds = {result.streams.decision_seed for result in drawn.results}
    assert len(seeds) == 3
    for result in (drawn.results[0], drawn.results[9]):
        plan = cp.planning.plan_for(found, batches=4, seed=result.streams)
        assert sorted(b.tolist() for b in result.batches) == sorted(
            b.tolist() for b in plan.batches
        )


def test_a_plan_may_be_asked_for_by_its_price(found):
    cheap, dear = (
        cp.planning.plan_for(found, target_kl=0.05),
        cp.planning.plan_for(found, target_kl=2.0),
    )
    assert cheap.estimated_kl <= 0.05
    assert len(dear) < len(cheap)
    assert len(cp.planning.plan_for(found, information_budget=0.5)) <= len(cheap)
    assert cp.samplers.as_sampler(found).target_kl == 0.1


def test_a_file_gives_the_structure_back(found, oracle, tmp_path):
    path = tmp_path / "soft.npz"
    found.save(path)
    again = cp.Structure.load(path)
    assert again.strengths is not None and again.certificate is None
    assert np.array_equal(again.strength, found.strength)
    assert np.array_equal(again.strength_se, found.strength_se)
    assert again.summary() == found.summary() and again.digest == found.digest
    assert cp.discovery.check_oracle(again, oracle).evaluations == len(found.sample_states)


class InSpace(cp.oracles.Wrapper):
    """An oracle that knows how far its positions are from each other."""

    @property
    def distances(self):
        return np.abs(np.subtract.outer(np.arange(self.length), np.arange(self.length))) + 0.0


def test_what_is_near_is_known_where_the_oracle_knows_distances(law, found, tmp_path):
    assert found.nearness.shape == (0, 0) and found.coverage.nearness is None
    given = np.full(law.length, cp.MASK)
    given[2] = 0
    near = cp.discover(InSpace(law.oracle()), STREAMS, mode="soft", given=given, probes=64)
    share = near.coverage.nearness
    assert share is not None and share.shape == (law.length, law.length)
    assert share.sum(axis=1) == pytest.approx((given == cp.MASK).astype(float), abs=1e-6)
    near.save(tmp_path / "near.npz")
    assert np.array_equal(cp.Structure.load(tmp_path / "near.npz").nearness, near.nearness)
    # Where more is given, what is left keeps its share.
    given[4] = 0
    there = near.in_context(given)
    kept = np.flatnonzero(given == cp.MASK)
    assert np.array_equal(there.nearness[np.ix_(kept, kept)], near.nearness[np.ix_(kept, kept)])
    assert not there.nearness[4].any() and not there.nearness[:, 4].any()


def test_a_damaged_nearness_is_refused(found, tmp_path):
    for shape, problem in (((3, 3), "be of 16"), ((found.length,) * 2, "at most 1")):
        wrong = replace(found, nearness=np.ones(shape, dtype=np.float32))
        with pytest.raises(cp.StructureError, match=f"nearness must .*{problem}"):
            wrong.save(tmp_path / "wrong.npz")


def test_a_structure_may_have_a_certificate_and_strengths(law, tmp_path):
    exact = cp.discover(law.oracle(), STREAMS)
    soft = cp.discover(law.oracle(), STREAMS, mode="soft", probes=64)
    both = replace(exact, strengths=soft.strengths)
    both.save(tmp_path / "both.npz")
    again = cp.Structure.load(tmp_path / "both.npz")
    assert again.summary()["kind"] == "soft" and again.digest == both.digest != exact.digest
    checked = cp.discovery.check_oracle(again, law.oracle())
    assert checked == cp.discovery.check_oracle(exact, law.oracle())
    drawn = cp.sample(law.oracle(), again, 3, seed=STREAMS, batches=4)
    assert drawn.ledger.evaluations == checked.evaluations + 3 * 4
    # Nothing is certified in another context.
    given = np.where(np.arange(16) == 5, 0, cp.MASK)
    assert again.in_context(given).certificate is None


def test_edges_alone_are_committed_singly_and_have_no_price(law, tmp_path):
    bare = replace(cp.discover(law.oracle(), STREAMS), certificate=None)
    bare.save(tmp_path / "bare.npz")
    again = cp.Structure.load(tmp_path / "bare.npz")
    assert "uncertified" in repr(again) and again.summary()["unresolved"] == 16
    assert cp.sample(law.oracle(), again, 1, seed=STREAMS).ledgers[0].commits == 16
    for use in (cp.planning.plan_for, lambda one: one.in_context(np.zeros(16, dtype=int))):
        with pytest.raises(cp.StructureError, match="has no strengths"):
            use(again)


def test_another_oracle_is_refused(found, law):
    other = small_law(seed=5).oracle()
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        cp.discovery.check_oracle(found, other)
    with pytest.raises(cp.StructureError, match="discover its own"):
        cp.discovery.check_oracle(found, small_law(length=12).oracle())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("nats", -0.5, "nats must lie in 0..inf"),
        ("nats_se", np.nan, "nats_se must lie in 0..inf"),
        ("pairs", 99, "pairs must lie in"),
        ("explained", np.inf, "explained must lie in 0..1"),
        ("explained", 1.5, "explained must lie in 0..1"),
        ("moved", -0.1, "moved must lie in 0..inf"),
        ("most_moved", np.nan, "most_moved must be a number wherever moved is"),
        ("given", 3, "agree with given"),
        ("edges", 99, "edges"),
    ],
)
def test_values_that_no_structure_has_are_not_saved(found, tmp_path, name, value, said):
    is_own = name in ("given", "edges")
    values = getattr(found if is_own else found.strengths, name).copy()
    values.flat[0] = value
    changed = (
        replace(found, **{name: values}) if is_own else with_strengths(found, **{name: values})
    )
    with pytest.raises(cp.StructureError, match=said):
        changed.save(tmp_path / "bad.npz")
    assert not list(tmp_path.iterdir())


def test_doubled_and_reversed_pairs_are_not_saved(found, tmp_path):
    pairs = found.strengths.pairs
    for wrong, said in (
        (pairs[:, ::-1].copy(), "smaller position first"),
        (np.repeat(pairs[:1], len(pairs), axis=0), "twice"),
    ):
        with pytest.raises(cp.StructureError, match=said):
            with_strengths(found, pairs=wrong).save(tmp_path / "bad.npz")


def test_bad_requests_are_refused(oracle, law):
    for arguments, said in (
        ({"mode": "hard"}, "mode must be one of auto, exact, soft"),
        ({"mode": "exact", "probes": 5}, "soft settings go with"),
        ({"mode": "soft", "fallback": True}, "needs no fallback"),
        ({"mode": "soft", "probs": 5}, "soft settings are"),
        ({"settings": cp.discovery.SoftSettings(), "probes": 5}, "put probes into the settings"),
        ({"mode": "soft", "probes": 0}, "probes must be"),
        ({"mode": "soft", "mask_rate": "half"}, "mask_rate must be a number"),
        ({"mode": "soft", "estimator": "contexts"}, "soft settings are probes, .*got estimator"),
    ):
        with pytest.raises(ValueError, match=said):
            cp.discover(oracle, STREAMS, **arguments)


def test_one_masked_position_needs_no_probe(oracle):
    given = np.ones(16, dtype=int)
    given[4] = cp.MASK
    found = cp.discover(oracle, STREAMS, mode="soft", given=given)
    assert found.ledger.evaluations == 0
    assert len(found.strengths.pairs) == 0
    assert cp.sample(oracle, found, 3, seed=STREAMS, batches=2).ledger.evaluations == 3


def test_where_pairs_explain_little_positions_go_alone_or_share_every_batch(found):
    poor = with_strengths(found, explained=np.full(16, 0.2))
    assert len(found.untrusted) <= 1 and poor.untrusted.tolist() == list(range(16))
    assert poor.summary()["untrusted"] == 16
    for request in ({}, {"target_kl": 0.1}, {"information_budget": 0.1}):
        assert cp.planning.plan_for(poor, **request).sizes == [1] * 16
    plan = cp.planning.plan_for(poor, batches=8)
    assert len(plan) == 8
    shared = np.concatenate([batch for batch in plan.batches if len(batch) > 1])
    assert plan.uncovered == pytest.approx(0.8 * found.strengths.moved[shared].sum())


def test_whole_settings_are_spent_as_they_are(law):
    found = cp.discover(law.oracle(), STREAMS, settings=cp.discovery.SoftSettings(probes=512))
    assert found.strengths.num_probes == 512
