"""The diffusion language model of our own: its text, training, kept weights and scores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from language import parse
from languages import contest, text, training
from languages.contest import Contestant

import counterprobe as cp
from counterprobe.evaluation import log_likelihoods
from counterprobe.models.transformers import LanguageModel

KEPT = Path(__file__).parents[2] / "benchmarks" / "data" / "language"
PAGE = """:mod:`colour` --- Names of colours
=================================

.. function:: lookup(name, default=None)

   Return the value of *name* if it is known, else *default*.  If *default* is not
   given, raise a :exc:`KeyError`.
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Two packages as dpkg would leave them, prepared without fetching anything."""
    packages = tmp_path_factory.mktemp("packages")
    for package in text.PACKAGES.values():
        folder = packages / package / "usr" / "share" / "doc" / "html" / "_sources" / "library"
        folder.mkdir(parents=True)
        for k in range(60):
            body = PAGE.replace("`colour`", f"`colour{k}`") * 3
            (folder / f"page{k:02}.rst.txt").write_text(body)
        (folder / "short.rst.txt").write_text("too short to be a document")
    out = tmp_path_factory.mktemp("text")
    sizes = text.prepare(packages, out)
    read = text.read(out)
    assert {name: len(part) for name, part in read.parts.items()} == sizes
    return read


@pytest.fixture
def short(monkeypatch):
    for module in (text, training, contest):
        monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(contest, "SPAN", slice(4, 12))


def test_what_is_held_out_is_not_trained_on(corpus):
    parts = {name: corpus.tokenizer.decode(part) for name, part in corpus.parts.items()}
    ends = {name: part.count(text.END) for name, part in parts.items()}
    assert ends == {"python": 57, "held": 3, "linux": 60}
    for k in range(0, 60, text.HELD_OUT):
        assert f"colour{k}`" in parts["held"] and f"colour{k}`" not in parts["python"]
    assert parts["held"].startswith(":mod:`colour0` --- Names of colours\n")
    assert "too short" not in "".join(parts.values())


def test_training_lowers_the_loss_and_keeps_what_transformers_loads(corpus, short, tmp_path):
    size = replace(training.SIZES["tiny"], width=48, rate=1e-2)
    torch.manual_seed(0)
    held = torch.as_tensor(text.blocks_of(corpus.parts["held"], 8, 1))
    fresh = training.held_out_loss(training.build(size, corpus), held, size, corpus, "cpu")
    network, record = training.train(
        size, corpus, seconds=1e-9, device="cpu", seed=3, least_steps=12
    )
    assert record["steps"] == 12 and record["tokens_seen"] == 12 * size.batch * 16
    assert record["held_out_nats"] < fresh - 0.5
    training.save(network, corpus, tmp_path)
    known = LanguageModel.from_pretrained(tmp_path, device="cpu")
    assert known.mask_id == corpus.tokenizer.mask_token_id and known.max_length == 16
    assert len(known.vocabulary) == len(corpus.tokenizer) - 1


def test_the_judge_reads_from_left_to_right(corpus):
    judge = training.build(training.SIZES["tiny-judge"], corpus).eval()
    ids = text.blocks_of(corpus.parts["held"], 2, 1)
    other = ids.copy()
    other[:, -1] = (other[:, -1] + 1) % len(corpus.tokenizer)
    nats, changed = contest.judge_nats(judge, ids), contest.judge_nats(judge, other)
    assert nats[:, :-1] == pytest.approx(changed[:, :-1], abs=1e-5)
    assert (nats[:, 0] == 0).all() and (nats[:, 1:] > 0).all()


def test_distinct_counts_runs_of_four():
    assert contest.distinct(np.array([[1, 2, 3, 4, 5]])) == 1.0
    assert contest.distinct(np.array([[1, 1, 1, 1, 1]])) == 0.5
    assert contest.distinct(np.array([[1, 2, 3, 4], [1, 2, 3, 4]])) == 0.5


# ----- The weights that are kept ---------------------------------------------------------------


@pytest.fixture(scope="module")
def kept():
    known = LanguageModel.from_pretrained(KEPT, device="cpu", dtype=torch.float32)
    return known


def test_the_kept_model_is_small_and_has_learned_its_text(kept):
    assert (KEPT / "model.safetensors").stat().st_size < 4 << 20
    sentence = "Return the value of *name* if it is known, else *default*."
    ids = np.array(kept.tokenizer.encode(sentence))
    shuffled = np.random.default_rng(1).permutation(ids)
    oracle = kept.oracle(np.full(len(ids), kept.mask_id), row_error=0.0)
    tokens = np.searchsorted(kept.vocabulary, np.stack([ids, shuffled]))
    written, mixed = -log_likelihoods(oracle, tokens, orders=2).per_token
    # One in 2,047 by chance is 7.6 nats a token; it was not shown this sentence's page.
    assert written < 4.5 and mixed > written + 2


def test_a_token_a_forward_and_several_draw_from_it(kept):
    masked = "Return the [MASK][MASK] of *x*, or raise :exc:`[MASK][MASK]`.\n"
    one = cp.infill(kept, masked, sampler="sequential", seed=2, progress=False)
    several = cp.infill(kept, masked, sampler="spread", batches=2, seed=2, progress=False)
    assert (one.ledger.evaluations, several.ledger.evaluations) == (4, 2)
    assert one.texts[0].startswith("Return the") and "[MASK]" not in several.texts[0]


# ----- The contest -----------------------------------------------------------------------------


def test_the_contest_scores_every_rule_and_says_what_it_left_out(corpus, short):
    known = LanguageModel(training.build(training.SIZES["tiny"], corpus).eval(), corpus.tokenizer)
    judge = training.build(training.SIZES["tiny-judge"], corpus).eval()
    kept: list[dict] = []
    found = contest.contest(
        known, judge, corpus, count=3, deadline=float("inf"),
        contestants=[
            [Contestant("spread", {"batches": 4}), Contestant("one-batch")],
            [Contestant("entropy-bounded", {"gamma": 1.0})],
            [Contestant("information-profile", {"batches": 4})],
            [Contestant("spread", {"batch": 4})],
        ],
        keep=lambda found: kept.append(dict(found)),
    )  # fmt: skip
    assert found["free"]["spread batches=4"]["tokens_per_forward"] == 4
    assert found["infill"]["spread batches=4"]["tokens_per_forward"] == 2
    assert found["infill"]["one-batch"]["forwards"] == 1
    assert found["free"]["information-profile batches=4"]["shared_forwards"] > 0
    assert found["left_out"] == [
        f"{task}: spread batch=4: sampler 'spread' has no setting 'batch'; its settings: batches, "
        "distances"
        for task in ("free", "infill")
    ]
    assert len(kept) == 8
    row = found["infill"]["entropy-bounded gamma=1.0"]
    assert set(row) >= {"own", "judge", "judge_after", "recovered", "distinct", "seconds"}
    # Rows that nobody trained are nearly flat: every token has about log V nats.
    assert row["own"] == pytest.approx(np.log(known.oracle(np.full(16, 1)).vocab_size), rel=0.1)
    true = contest.reference(known, judge, corpus, 3)
    assert true["infill"]["recovered"] == 1


@pytest.mark.slow
def test_a_structure_is_found_once_and_charged_to_all(corpus, short):
    known = LanguageModel(training.build(training.SIZES["tiny"], corpus).eval(), corpus.tokenizer)
    judge = training.build(training.SIZES["tiny-judge"], corpus).eval()
    rules = [[Contestant("planned", {"batches": 4}), Contestant("planned", {"batches": 8})]]
    found = contest.contest(
        known, judge, corpus, count=3, deadline=float("inf"), contestants=rules,
        keep=lambda _: None,
    )  # fmt: skip
    shared = {row["shared_forwards"] for row in found["free"].values()}
    assert len(found["free"]) == 2 and len(shared) == 1 and min(shared) > 16
    assert not found["infill"]


def test_after_the_deadline_nothing_is_drawn(corpus, short):
    known = LanguageModel(training.build(training.SIZES["tiny"], corpus).eval(), corpus.tokenizer)
    found = contest.contest(
        known, None, corpus, count=2, deadline=0.0, contestants=[[Contestant("one-batch")]],
        keep=lambda _: None,
    )  # fmt: skip
    assert found == {
        "free": {},
        "infill": {},
        "left_out": ["free: one-batch", "infill: one-batch"],
    }


def test_the_command_line_names_its_programs():
    options = parse(["all", "--text", "t", "--out", "o", "--tiny"])
    assert options.tiny and options.text == Path("t") and options.small is None
