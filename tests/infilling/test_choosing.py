"""What auto chooses: never more than one at a time, in words, the same again."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.infilling import choosing
from counterprobe.states import MASK

COUNTS = (1, 3, 20, 200)
# Designs for which a structure of the matching below pays.
MANY = 150


def laws() -> dict[str, cp.ForestLaw]:
    rng = np.random.default_rng(4)
    copies = np.exp(4 * np.eye(3))[None].repeat(11, axis=0)
    return {
        "matching": cp.families.matching(16, target_seed=1),
        "path": cp.families.path(12, target_seed=2),
        "product": cp.ForestLaw(np.exp(rng.normal(size=(9, 4))), [], np.ones((0, 4, 4))),
        "copies": cp.ForestLaw(np.ones((12, 3)), [(0, k) for k in range(1, 12)], copies),
    }


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", laws())
def test_the_whole_never_takes_more_than_one_at_a_time(name, count, counted):
    law = laws()[name]
    oracle = counted(law.oracle())
    designs = cp.infill(oracle, count=count, progress=False)
    most = law.length * count
    assert oracle.states == designs.ledger.evaluations <= most
    assert designs.choice.one_at_a_time == most
    assert designs.num_completed == count and len(designs.results) == count
    assert [one.sequence for one in designs.results] == list(range(count))
    drawn = sum(ledger.evaluations for ledger in designs.ledgers)
    assert designs.ledger.evaluations == drawn + designs.choice.ledger.evaluations
    assert "\n" not in str(designs.choice) and str(designs.choice).startswith("auto chose ")


@pytest.fixture
def matching(counted):
    """Return an oracle of pairs that are far apart."""
    return counted(cp.families.matching(16, target_seed=1).oracle())


def test_many_designs_pay_for_a_structure_and_it_says_so(matching):
    designs = cp.infill(matching, count=MANY, progress=False)
    assert designs.choice.sampler == "planned"
    assert designs.ledger.evaluations < 0.45 * 16 * MANY
    assert "which pay from" in designs.choice.why and "measured on 16" in designs.choice.why
    assert designs.choice.ledger.evaluations > 64
    few = cp.infill(matching, count=3, progress=False)
    assert few.choice.sampler == "auto" and few.choice.ledger.evaluations == 0
    assert "a structure may pay from" in few.choice.why


def test_what_was_spent_in_vain_is_saved_elsewhere(monkeypatch, counted):
    """No price is good enough: what looking for one took still comes out of the same total."""
    monkeypatch.setattr(choosing, "PRICED", 9)
    law = cp.families.path(12, target_seed=2)
    monkeypatch.setattr(
        choosing.Pricing,
        "price",
        lambda self, *args, real=choosing.Pricing.price: _dear(real(self, *args)),
    )
    oracle = counted(law.oracle())
    designs = cp.infill(oracle, count=200, progress=False)
    assert designs.choice.sampler == "auto" and designs.choice.ledger.evaluations > 0
    assert "no plan by it was measured within 0.1 nats" in designs.choice.why
    assert oracle.states == designs.ledger.evaluations <= 12 * 200


def test_what_a_structure_cost_is_said_to_pay_only_where_it_did():
    account = choosing._Account(8, 200, cp.run.tell_all())
    account.measure(cp.Ledger(probes=120))
    law = cp.families.path(8, target_seed=2)
    structure = cp.discover(law.oracle(), mode="soft", probes=64)
    pricing = choosing.Pricing(structure, law.oracle(), terms=2, distances=None, seed=0)
    price = pricing.price("planned", 3, 4, 4)
    assert "which pay from 60 designs on" in choosing._why_planned(account, price, 5.0)
    assert "more than it saved here" in choosing._why_planned(account, price, 3.1)


def _dear(price):
    kl = price.measured
    terms = np.full((kl.samples, 1), 5.0)
    dear = type(kl).of(terms, kl.direction, kl.ledger, kl.group_of, kl.most)
    return type(price)(
        price.way, price.batches, price.evaluations, price.estimated, price.uncovered, dear
    )


@pytest.mark.parametrize("masked", [0, 1, 2, 3])
def test_few_masks_leave_nothing_to_save(masked, counted):
    law = cp.families.path(12, target_seed=2)
    given = np.zeros(12, dtype=np.int64)
    given[:masked] = MASK
    oracle = counted(law.oracle())
    designs = cp.infill(oracle, given, count=20, progress=False)
    assert designs.ledger.evaluations == 20 * masked
    said = "one at a time" if masked else "nothing is masked"
    assert designs.choice.why.startswith(said)


def test_rows_that_all_move_are_taken_one_at_a_time_and_it_says_so():
    """A hidden topic: whatever is known, every position tells about every other."""
    coins = np.array([[0.8, 0.2], [0.3, 0.7]])
    topics = [np.ones(1), np.ones(1)]
    for _ in range(8):
        topics = [np.multiply.outer(t, coin) for t, coin in zip(topics, coins, strict=True)]
    law = cp.TableLaw((topics[0] + topics[1])[0] / 2)
    designs = cp.infill(law.oracle(), count=2, target_kl=1e-6, progress=False)
    assert designs.ledger.evaluations == 16
    assert designs.choice.why.startswith("one at a time: rows moved too much")


def test_a_seed_says_everything_and_a_cache_resumes(matching, tmp_path):
    options = {"count": MANY, "seed": 0, "progress": False}
    first = cp.infill(matching, **options)
    assert first.choice.sampler == "planned"
    with matching.cached(tmp_path / "replies") as cached:
        stored = cp.infill(cached, **options)
        misses = cached.num_misses
        found = cp.infill(cached, **options)
        assert 0 < cached.num_misses == misses
        assert cached.num_hits + misses == 2 * first.ledger.evaluations
    for again in (stored, found):
        assert (again.sequences == first.sequences).all()
        assert (
            again.choice == first.choice and again.ledger.evaluations == first.ledger.evaluations
        )
    other = cp.infill(matching, count=MANY, seed=8, progress=False)
    assert (other.sequences != first.sequences).any()


def test_a_budget_that_ends_early_ends_the_question_too(matching):
    designs = cp.infill(matching, count=MANY, max_evaluations=2, progress=False)
    assert designs.num_completed == 0 and len(designs) == MANY
    assert designs.choice.ledger.evaluations == 0


def test_progress_of_all_parts_is_that_of_the_whole(matching):
    told: list[cp.run.Progress] = []
    listener = cp.run.Listener(told.append, cp.run.Progress)
    designs = cp.infill(matching, count=MANY, on_event=listener)
    assert {now.masked for now in told} == {16 * MANY}
    committed = [now.committed for now in told]
    assert committed[-1] == 16 * MANY and committed == sorted(committed)
    assert told[-1].ledger.evaluations == designs.ledger.evaluations
    assert "probe" in {now.operation for now in told}


def test_steps_and_traces_know_the_number_of_a_design(matching, tmp_path):
    seen: set[int] = set()

    def see(step: cp.run.Step) -> None:
        seen.update(step.sequences.tolist())

    cp.infill(
        matching,
        count=MANY,
        on_event=cp.run.Listener(see, cp.run.Step),
        trace=tmp_path / "run.json",
        trace_sequence=MANY - 10,
        progress=False,
    )
    assert seen == set(range(MANY))
    assert (tmp_path / "run.json").stat().st_size > 0


def test_the_choice_is_kept_in_summaries():
    law = cp.families.path(12, target_seed=2)
    designs = cp.infill(law.oracle(), count=3, progress=False)
    assert designs.summary()["choice"] == designs.choice.as_dict()
    named = cp.infill(law.oracle(), sampler="sequential", progress=False)
    assert named.choice is None and "choice" not in named.summary()


def test_parts_draw_what_one_call_would():
    law = cp.families.path(12, target_seed=2)
    whole = cp.sample(law.oracle(), "auto", 8, seed=3, log_probs=True, progress=False)
    parts = [
        cp.sample(law.oracle(), "auto", n, seed=3, log_probs=True, first=first, progress=False)
        for first, n in ((0, 3), (3, 5))
    ]
    joined = choosing._joined(parts)
    assert (joined.sequences == whole.sequences).all()
    assert joined.ledger.evaluations == whole.ledger.evaluations
    np.testing.assert_array_equal(joined.token_log_probs, whole.token_log_probs)


# ----- Learned models ---------------------------------------------------------------------------


def test_a_loop_of_an_antibody_is_drawn_in_fewer_evaluations_or_it_says_that_it_is_not():
    text = "EVQLVESGGGLVQPGGSLRLSCAASGFXXXXXXXXWVRQAPGKGLEWVAR"
    options = {"count": 20, "progress": False, "model_options": {"device": "cpu"}}
    designs = cp.infill("sapiens-heavy", text, **options)
    assert designs.num_completed == 20
    if designs.ledger.evaluations < 160:
        assert "in place of 8" in designs.choice.why
    else:
        assert designs.ledger.evaluations == 160
        assert designs.choice.why.startswith("one at a time")


@pytest.mark.parametrize("order", ["index", "commit"])
def test_a_backbone_spreads_batches_in_space_whatever_the_order_of_its_rows(order):
    model = cp.models.load("proteinmpnn", backbone="1ubi", device="cpu")
    text = model.backbone.sequence[:60] + "X" * 16
    designs = cp.infill(
        model, text, count=3, progress=False, oracle_options={"order": order, "row_error": 1e-4}
    )
    assert designs.ledger.evaluations < 48 and designs.num_completed == 3
    assert {one.settings["target_kl"] for one in designs.results} == {0.1}
    assert all(text[:60] in one for one in designs.texts)
