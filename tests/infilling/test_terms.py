"""An infill that was interrupted resumes where it was: nothing is asked twice, nothing differs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.infilling.task import make_task
from counterprobe.infilling.terms import design_terms, rule_of
from counterprobe.models import Letters, SequenceModel
from counterprobe.oracles import Oracle

TEXT = "XXBXX"
OPTIONS: dict[str, Any] = {"seed": 3, "progress": False}


class Interrupted(BaseException):
    """Stands for whatever ends a process."""


class Network:
    """The logits of a law; tells how many states it was asked, and dies after so many calls."""

    def __init__(self, law: cp.ForestLaw, calls: int = -1) -> None:
        self.law, self.calls_left, self.states = law, calls, 0

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        if self.calls_left == 0:
            raise Interrupted
        self.calls_left -= 1
        self.states += len(ids)
        states = np.where(ids.numpy() == self.law.vocab_size, cp.MASK, ids.numpy())
        readouts = cp.Readouts.every_masked(states)
        logits = torch.zeros((*ids.shape, self.law.vocab_size), dtype=torch.float64)
        rows = self.law.oracle().rows(states.astype(np.int32), readouts).dense()
        logits[readouts.state_index, readouts.position] = torch.from_numpy(np.log(rows))
        return logits


@pytest.fixture
def model(forest_law) -> Callable[..., SequenceModel]:
    """Return what makes a model of letters that dies after so many calls; by default never."""
    letters = Letters("ABC", (0, 1, 2), 3)
    return lambda calls=-1: SequenceModel("letters", Network(forest_law, calls), letters, 5)


def infill(
    model: Any,
    template: str = TEXT,
    *,
    cache: Path | None = None,
    share: float = 0.0,
    wrap: Callable[[Oracle], Oracle] = lambda oracle: oracle,
    **options: Any,
) -> cp.SampleBatch:
    """Infill with the cached oracle of a model, of which a share is asked for twice."""
    task = make_task(
        model, template, allowed=options.pop("allowed", None),
        temperature=options.get("temperature", 1.0), oracle_options={"row_error": 1e-9},
    )  # fmt: skip
    oracle = wrap(task.oracle.rechecking(share) if share else task.oracle)
    if cache is None:
        return cp.infill(replace(task, oracle=oracle), **{**OPTIONS, **options})
    with oracle.cached(cache) as cached:
        return cp.infill(replace(task, oracle=cached), **{**OPTIONS, **options})


@pytest.fixture
def soft(model) -> cp.Structure:
    template = model().template(TEXT)
    oracle = model().oracle(template, row_error=1e-9)
    return cp.discover(oracle, cp.Streams(1, 1), mode="soft", given=template.given, probes=32)


def same(one: cp.SampleBatch, other: cp.SampleBatch) -> None:
    """Compare two batches in everything but the seconds they took."""
    assert one.sequences.tolist() == other.sequences.tolist() and one.texts == other.texts
    assert one.ledger == other.ledger and list(one.ledgers) == list(other.ledgers)
    assert one.measuring == other.measuring
    assert one.log_probs.tolist() == other.log_probs.tolist()
    scores = [batch.log_likelihoods for batch in (one, other)]
    assert (scores[0] is None) == (scores[1] is None)
    assert scores[0] is None or scores[0].tolist() == scores[1].tolist()


def lives_of(model, path, lasting: int, **options: Any) -> tuple[cp.SampleBatch, int, int]:
    """Call again until it ends; return what it returned, its lives and all that was asked."""
    lives = asked = 0
    while True:
        mortal = model(lasting + (lives > 0))  # a later life recognises the oracle first
        lives += 1
        try:
            drawn = infill(mortal, cache=path, **options)
            return drawn, lives, asked + mortal.network.states
        except Interrupted:
            asked += mortal.network.states


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("lasting", [1, 3])
@pytest.mark.parametrize("rule", ["sequential", "random-balanced", "punt", "auto"])
def test_an_infill_that_died_at_any_call_is_the_one_that_did_not(
    model, rule, count, lasting, tmp_path
):
    options = {"sampler": rule, "count": count, "likelihood_orders": 2}
    whole = model()
    undisturbed = infill(whole, **options)
    assert (
        whole.network.states == undisturbed.ledger.evaluations + undisturbed.measuring.evaluations
    )
    cached = model()
    same(infill(cached, cache=tmp_path / "whole", **options), undisturbed)
    assert cached.network.states <= whole.network.states
    resumed, lives, asked = lives_of(model, tmp_path / "run", lasting, **options)
    same(resumed, undisturbed)
    recognising = asked - cached.network.states
    assert lives > 1 and lives - 1 <= recognising <= 3 * (lives - 1)


def test_recognising_a_structure_is_paid_once_over_all_lives(model, soft, tmp_path):
    options = {"structure": soft, "batches": 2, "count": 5}
    whole = model()
    undisturbed = infill(whole, **options)
    assert undisturbed.ledger.probes > 0
    resumed, lives, asked = lives_of(model, tmp_path / "run", 1, **options)
    same(resumed, undisturbed)
    assert lives > 2 and asked <= whole.network.states + 3 * (lives - 1)


def test_a_finished_infill_asks_a_few_states_to_recognise_the_model(model, tmp_path):
    options = {**OPTIONS, "count": 4, "likelihood_orders": 1, "cache": tmp_path / "run"}
    drawn = infill(model(), **options)
    again = model()
    same(infill(again, **options), drawn)
    assert 0 < again.network.states <= 3


def test_retries_and_second_evaluations_go_with_a_cache(model, tmp_path):
    class Lost(Network):
        """A network that is lost where others die."""

        def __call__(self, ids):
            try:
                return super().__call__(ids)
            except Interrupted as problem:
                raise ConnectionError from problem

    def retrying(oracle):
        return oracle.retrying(2, backoff=0)

    lost = model(3)
    lost = replace(lost, network=Lost(lost.network.law, 3))
    options = {**OPTIONS, "sampler": "sequential", "count": 2, "share": 0.5}
    whole = model()
    undisturbed = infill(whole, **options)
    path = tmp_path / "run"
    with pytest.raises(cp.OracleError, match="failed 2 times in a row"):
        infill(lost, cache=path, wrap=retrying, **options)
    again = model()
    resumed = infill(again, cache=path, wrap=retrying, **options)
    same(resumed, undisturbed)
    assert again.network.states < whole.network.states


def test_a_text_without_a_mask_has_an_empty_cache(model, tmp_path):
    for _ in range(2):
        whole = model()
        drawn = infill(whole, "ABCAB", cache=tmp_path / "run")
        assert drawn.texts == ("ABCAB",) and whole.network.states == 0


# ----- Another run ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"template": "XXAXX"}, {"sampler": "sequential"}, {"batches": 3}, {"count": 3},
        {"seed": cp.Streams(4, 3)}, {"seed": cp.Streams(3, 4)}, {"orders": "fresh"},
        {"likelihood_orders": 1}, {"at_once": 1},
    ],
)  # fmt: skip
def test_another_infill_shares_the_cache_and_is_the_one_that_it_is_alone(model, change, tmp_path):
    options = {
        **OPTIONS, "seed": cp.Streams(3, 3), "template": TEXT, "sampler": "random-balanced",
        "batches": 2, "count": 2,
    }  # fmt: skip
    infill(model(), **options, cache=tmp_path / "run")
    if "sampler" in change:
        del options["batches"]
    alone, cached = model(), model()
    drawn = infill(alone, **{**options, **change})
    same(infill(cached, **{**options, **change}, cache=tmp_path / "run"), drawn)
    if "template" not in change:
        assert cached.network.states <= alone.network.states, "all begin with one state"


@pytest.mark.parametrize(
    "change", [{"allowed": "AB"}, {"allowed": {0: "AB"}}, {"temperature": 0.5}]
)
def test_the_cache_of_other_rows_is_refused(model, change, tmp_path):
    infill(model(), cache=tmp_path / "run")
    other = model()
    with pytest.raises(cp.CacheError, match=r"(cache|replies) of another model"):
        infill(other, **change, cache=tmp_path / "run")


@pytest.mark.parametrize("reason", [{}, {"count": 3, "at_once": 2}, {"likelihood_orders": 1}])
def test_a_budget_may_be_larger_when_a_run_is_resumed(model, reason, tmp_path):
    options = {**OPTIONS, "sampler": "sequential", **reason}
    stopped = infill(model(), max_evaluations=2, cache=tmp_path / "run", **options)
    assert stopped.results[0].stop is cp.StopReason.BUDGET_SPENT
    alone, rest = model(), model()
    same(infill(rest, cache=tmp_path / "run", **options), infill(alone, **options))
    assert rest.network.states <= alone.network.states


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("rule", ["random-balanced", "punt"])
def test_a_trace_may_be_asked_for_when_a_run_is_resumed(model, rule, which, tmp_path):
    options = {**OPTIONS, "sampler": rule, "count": 4, "at_once": 2, "cache": tmp_path / "run"}
    drawn = infill(model(), **options)
    again = model()
    trace = {"trace": tmp_path / "run.json", "trace_sequence": which}
    same(infill(again, **trace, **options), drawn)
    assert 0 < again.network.states <= 3 and (tmp_path / "run.json").exists()


def test_an_oracle_without_letters_is_resumed_too(forest_law, tmp_path):
    options = {"count": 2, "progress": False}
    given = [-1, -1, 1, -1, -1]
    with forest_law.oracle().cached(tmp_path / "run") as oracle:
        first = cp.infill(oracle, given, **options)
        misses = oracle.num_misses
        same(cp.infill(oracle, given, **options), first)
        assert oracle.num_misses == misses


# ----- What is meant ----------------------------------------------------------------------------


def test_a_structure_brings_its_sampler_and_groups(soft):
    assert rule_of(None, None, {}).name == "auto"
    assert rule_of("spread", None, {"batches": 3}).settings["batches"] == 3
    assert rule_of(None, soft, {"batches": 3}).name == "planned"
    with pytest.raises(ValueError, match="give a sampler or a structure"):
        rule_of("spread", soft, {})
    with pytest.raises(ValueError, match="settings go with a sampler's name"):
        rule_of(cp.samplers.Sequential(), None, {"batches": 3})


def test_a_design_is_told_by_what_changes_its_letters_and_by_nothing_else(model, soft):
    common: dict[str, Any] = {
        "structure": None, "seed": 1, "temperature": 1.0, "likelihood_orders": 0,
        "orders": "fresh",
    }  # fmt: skip

    def terms(text=TEXT, sampler="spread", settings=None, allowed=None, **changes):
        asked = {**common, **changes}
        structure = asked["structure"]
        rule = rule_of(None if structure else sampler, structure, settings or {"batches": 2})
        task = make_task(model(), text, allowed=allowed)
        return design_terms(task, rule, **asked)

    known = terms()
    assert known["text"].startswith("4_of_5_masked_") and known["letters"] == "any"
    assert (known["spread.batches"], known["orders"], known["seed"]) == ("2", "fresh", "1")
    for same in (
        {"allowed": "ABC"},
        {"allowed": {2: "B"}},  # nothing is drawn at a letter that is given
    ):  # fmt: skip
        assert terms(**same) == known, same
    others = {
        "text": [{"text": "XXAXX"}, {"text": "XXBXB"}, {"text": "XXXXX"}],
        "letters": [{"allowed": "AB"}, {"allowed": {0: "AB"}}, {"allowed": {1: "AB"}}],
        "sampler": [{"sampler": "random-balanced"}],
        "spread.batches": [{"settings": {"batches": 3}}],
        "temperature": [{"temperature": 0.0}, {"temperature": 0.5}],
        "seed": [{"seed": 2}],
        "orders": [{"orders": "shared"}, {"orders": 4}],
        "likelihood_orders": [{"likelihood_orders": 2}],
        "structure": [{"structure": soft}],
    }
    found = [known]
    for name, changes in others.items():
        for change in changes:
            other = terms(**change)
            assert other.get(name, "none") != known.get(name, "none"), change
            found.append(other)
    assert len({str(one) for one in found}) == len(found)
    assert terms(allowed="AB")["letters"] == "AB"
    assert all(not {*";: "} & {*value} for one in found for value in one.values())


# ----- Rows that depend on the order of commits ---------------------------------------------


@pytest.fixture(scope="module")
def folding():
    return cp.models.load("proteinmpnn", backbone="1ubi", device="cpu")


@pytest.fixture
def evaluated(folding, monkeypatch) -> Callable[[int], list[int]]:
    """Return what lets the decoder die after so many replies, and counts those it gave."""
    plain = type(folding.decoder).logits

    def install(lasting: int) -> list[int]:
        states: list[int] = []

        def logits(decoder, known, index, position):
            if len(states) == lasting:
                raise Interrupted
            states.append(len(torch.unique(index)))
            return plain(decoder, known, index, position)

        monkeypatch.setattr(type(folding.decoder), "logits", logits)
        return states

    return install


def test_designs_in_commit_order_are_resumed_with_their_order_and_scores(
    folding, evaluated, tmp_path
):
    native = folding.backbone.sequence
    template = folding.template("X" * 6 + native[6:])
    by_index = folding.oracle(template, row_error=1e-4)
    soft = cp.discover(by_index, cp.Streams(1, 1), mode="soft", given=template.given, probes=24)
    options = {
        "structure": soft, "batches": 3, "count": 2, "seed": 3, "likelihood_orders": 1,
        "progress": False,
    }  # fmt: skip
    oracle = folding.oracle(template, order="commit", row_error=1e-4)
    whole = evaluated(-1)
    undisturbed = cp.infill(oracle, **options)
    total = undisturbed.ledger.evaluations + undisturbed.measuring.evaluations
    assert sum(whole) == total and undisturbed.ledger.probes > 0
    lives = asked = 0
    while True:
        states = evaluated(1 + (lives > 0))
        lives += 1
        try:
            with oracle.cached(tmp_path / "run") as cached:
                resumed = cp.infill(cached, **options)
            break
        except Interrupted:
            asked += sum(states)
    same(resumed, undisturbed)
    assert lives > 3 and asked + sum(states) <= total + lives - 1
