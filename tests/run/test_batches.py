"""Many sequences with what they cost, and the files they are kept in."""

import json
import math
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp

MASK = cp.MASK


@pytest.fixture(params=["one-batch", "punt", "stopped"])
def batch(request: pytest.FixtureRequest, law) -> cp.SampleBatch:
    """Sequences drawn together, side by side, and stopped by a budget."""
    given = np.full((4, law.length), MASK)
    given[:, 1] = [0, 1, 0, 1]
    name = "sequential" if request.param == "stopped" else request.param
    most = 2 if request.param == "stopped" else None
    return cp.sample(
        law.oracle(), name, 4, given=given, seed=3, max_evaluations=most, progress=False
    )


def test_a_file_gives_back_what_was_saved(batch, tmp_path):
    path = tmp_path / "samples.jsonl"
    batch.save(path)
    back = cp.SampleBatch.load(path)
    assert os.listdir(tmp_path) == [path.name]
    assert back.sequences.tolist() == batch.sequences.tolist()
    assert back.sequences.dtype == batch.sequences.dtype
    assert back.given.tolist() == batch.given.tolist()
    assert back.ledger == batch.ledger
    assert back.ledgers == batch.ledgers
    assert back.tokens_per_forward == batch.tokens_per_forward
    assert repr(back) == repr(batch)
    for mine, other in zip(back.results, batch.results, strict=True):
        assert mine.summary() == other.summary()
        assert mine.stop is other.stop
        assert mine.used == other.used
        assert (mine.tokens is None) == (other.tokens is None)
        assert mine.state.tolist() == other.state.tolist()
        assert mine.given.tolist() == other.given.tolist()
        assert mine.round_of_position.tolist() == other.round_of_position.tolist()
        assert [b.tolist() for b in mine.batches] == [b.tolist() for b in other.batches]
        assert mine.transcript.entries == []


@pytest.mark.parametrize("measured", [(), ("token_log_probs",), ("log_likelihoods",)])
def test_a_file_gives_back_what_was_measured_and_nothing_else(law, measured, tmp_path):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    arrays = {
        "token_log_probs": -np.arange(3.0 * law.length).reshape(3, law.length) / 7,
        "log_likelihoods": -np.arange(6.0).reshape(3, 2) / 7,
    }
    batch = replace(drawn, **{name: arrays[name] for name in measured})
    batch.save(tmp_path / "samples.jsonl")
    back = cp.SampleBatch.load(tmp_path / "samples.jsonl")
    for name, array in arrays.items():
        found = getattr(back, name)
        assert (found is not None) == (name in measured)
        assert found is None or found.tolist() == array.tolist()


def test_lines_are_json_that_others_can_read(batch, tmp_path):
    batch.save(tmp_path / "samples.jsonl")
    header, *lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert json.loads(header)["format"] == "counterprobe samples 1"
    assert json.loads(header)["sampler"] == batch.results[0].sampler
    tokens = [json.loads(line)["tokens"] for line in lines]
    assert tokens == batch.sequences.tolist()


def test_settings_that_json_does_not_have_build_an_equal_sampler(law, tmp_path):
    rule = cp.samplers.PUNT(math.inf)
    cp.sample(law.oracle(), rule, 2, progress=False).save(tmp_path / "a.jsonl")
    back = cp.SampleBatch.load(tmp_path / "a.jsonl")
    assert cp.samplers.build_sampler(back.results[0].sampler, back.results[0].settings) == rule


def test_a_file_is_written_whole_or_not_at_all(batch, tmp_path, monkeypatch):
    path = tmp_path / "samples.jsonl"
    batch.save(path)
    before = path.read_bytes()

    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(json, "dumps", fail)
    with pytest.raises(OSError, match="no space left"):
        batch.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["samples.jsonl"]


def test_other_files_are_refused(batch, tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .jsonl, got 'samples.csv'"):
        batch.save("samples.csv")
    with pytest.raises(ValueError, match=r"path must end in .jsonl"):
        cp.SampleBatch.load("samples")
    with pytest.raises(FileNotFoundError):
        cp.SampleBatch.load(tmp_path / "none.jsonl")
    for name, content in {
        "empty.jsonl": b"",
        "text.jsonl": b"one two\n",
        "other.jsonl": b'{"format": "something else"}\n',
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is not a file of samples, or is damaged"):
            cp.SampleBatch.load(tmp_path / name)
    batch.save(tmp_path / "whole.jsonl")
    whole = (tmp_path / "whole.jsonl").read_bytes()
    (tmp_path / "cut.jsonl").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a file of samples, or is damaged"):
        cp.SampleBatch.load(tmp_path / "cut.jsonl")


def test_a_batch_says_in_one_line_what_it_is():
    law = cp.families.path(2000, target_seed=1)
    batch = cp.sample(law.oracle(), "random-balanced", 3, batches=4, progress=False)
    text = repr(batch)
    assert len(text) < 300
    assert text.startswith("SampleBatch(3 x 2000 by random-balanced, all completed; 12 evalu")
    stopped = cp.sample(law.oracle(), "sequential", 3, max_evaluations=4, progress=False)
    assert "0 completed, budget-spent" in repr(stopped)
    assert "_ _ _" not in repr(stopped)  # nothing that looks like a result
    alone = cp.sample(law.oracle(), "one-batch", 1, progress=False)
    assert repr(alone).startswith("SampleBatch(1 x 2000 by one-batch, all completed; 1 evalu")


def test_a_batch_cannot_be_edited_and_survives_pickling(batch):
    with pytest.raises(ValueError, match="read-only"):
        batch.sequences[0, 0] = 1
    with pytest.raises(AttributeError):
        batch.ledger = cp.Ledger()
    again = pickle.loads(pickle.dumps(batch))
    assert again.sequences.tolist() == batch.sequences.tolist()
    assert again.ledgers == batch.ledgers


def test_log_probs_are_the_sums_over_what_was_drawn(law):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    assert drawn.log_probs is None
    scores = -np.arange(3.0 * law.length).reshape(3, law.length)
    scores[1, 0] = scores[2] = np.nan
    scored = replace(drawn, token_log_probs=scores)
    assert scored.log_probs.tolist() == [
        -sum(range(law.length)), -sum(range(law.length + 1, 2 * law.length)), 0.0,
    ]  # fmt: skip


def test_texts_are_kept_with_their_sequences_or_not_at_all(law, tmp_path):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    for texts in (None, ("one", "two", "three")):
        replace(drawn, texts=texts).save(tmp_path / "a.jsonl")
        assert cp.SampleBatch.load(tmp_path / "a.jsonl").texts == texts


# ----- Every part of a file -------------------------------------------------------------------


def saved_parts(path, law) -> tuple[dict, list[dict]]:
    """Save two measured sequences; return the header and the records of the file."""
    drawn = cp.sample(law.oracle(), "one-batch", 2, seed=3, progress=False)
    measured = {"token_log_probs": -np.ones((2, law.length)), "log_likelihoods": -np.ones((2, 3))}
    replace(drawn, texts=("a", "b"), **measured).save(path)
    header, *records = (json.loads(line) for line in path.read_text().splitlines())
    return header, records


def load_parts(path, header: dict, records: list[dict]) -> cp.SampleBatch:
    path.write_text("\n".join(json.dumps(line) for line in (header, *records)))
    return cp.SampleBatch.load(path)


BAD_PARTS = {
    "sampler": (lambda h, r: h.update(sampler=3), "sampler must be of type str"),
    "settings": (lambda h, r: h.update(settings=[]), "settings must be of type dict"),
    "oracle": (lambda h, r: h.update(oracle=None), "oracle must be of type str"),
    "versions": (lambda h, r: h.update(versions="1"), "versions must be of type dict"),
    "no records": (lambda h, r: r.clear(), "it has no sequences"),
    "ledger": (lambda h, r: h["ledger"].update(probes=True), "must hold whole numbers of at"),
    "measuring": (lambda h, r: h["measuring"].update(probes=-1), "must hold whole numbers of"),
    "own ledger": (lambda h, r: r[1]["ledger"].update(stages=1.0), "must hold whole numbers of"),
    "number": (lambda h, r: r[1].update(sequence=True), "must have its number and the reason"),
    "reason": (lambda h, r: r[0].update(reason=None), "must have its number and the reason"),
    "text": (lambda h, r: r[1].update(text=["b"]), "must be spelled as a text"),
    "temperature": (lambda h, r: h.update(temperature=True), "temperature and seconds must be"),
    "seconds": (lambda h, r: r[1].update(seconds="1"), "temperature and seconds must be numb"),
    "ragged": (lambda h, r: r[0]["tokens"].pop(), "is not a file of samples, or is damaged"),
    "flat": (lambda h, r: [one.update(tokens=1) for one in r], "sequences must have a row for"),
    "kind": (lambda h, r: r[0].update(given=[0.5] * len(r[0]["given"])), "given must be whole"),
    "narrow": (lambda h, r: [one["given"].pop() for one in r], "given must hold whole numbers"),
    "rounds": (
        lambda h, r: [one["rounds"].pop() for one in r],
        "round_of_position must hold whole",
    ),
    "scores": (lambda h, r: r[0].update(token_log_probs=None), "is not a file of samples, or is"),
    "token": (
        lambda h, r: r[0]["tokens"].__setitem__(0, -2),
        "must hold tokens, or -1 for a mask",
    ),
    "context": (lambda h, r: r[0]["given"].__setitem__(0, -2), "must hold tokens, or -1 for a"),
    "format": (lambda h, r: h.update(format="else"), "its format is 'else', not 'counterprobe"),
    "two lines": (lambda h, r: h.update(format="x\ny"), "is not a file of samples, or is damaged"),
}


@pytest.mark.parametrize(("spoil", "said"), BAD_PARTS.values(), ids=list(BAD_PARTS))
def test_a_part_that_no_samples_have_is_named(spoil, said, law, tmp_path):
    path = tmp_path / "a.jsonl"
    header, records = saved_parts(path, law)
    assert len(load_parts(path, header, records)) == 2
    spoil(header, records)
    with pytest.raises(ValueError, match=said) as problem:
        load_parts(path, header, records)
    assert str(problem.value).startswith(f"{path} is not a file of samples, or is damaged (")
    assert str(problem.value).endswith("; write one with SampleBatch.save")
    assert "\n" not in str(problem.value)


def test_what_older_files_do_not_have_is_what_it_was_then(law, tmp_path):
    path = tmp_path / "a.jsonl"
    header, records = saved_parts(path, law)
    del header["measuring"], records[0]["text"], records[0]["undone"]
    for record in records:
        del record["token_log_probs"], record["log_likelihoods"]
    loaded = load_parts(path, header, records)
    assert loaded.measuring == cp.Ledger()
    assert (loaded.texts, loaded.token_log_probs, loaded.log_likelihoods) == (None, None, None)
    assert [result.undone for result in loaded.results] == [0, 0]


def test_every_field_of_a_batch_and_of_its_results_comes_back(law, tmp_path):
    used = cp.Need.VERIFY | cp.Need.SELECT
    drawn = cp.sample(law.oracle(), "one-batch", 2, seed=5, temperature=0.5, progress=False)
    results = [
        replace(
            result, used=used, stop=stop, reason=f"because of {k}", settings={"a": [1, "inf"]},
            streams=cp.Streams(10 + k, 20 + k), seconds=1.5 + k, sequence=7 - k, undone=k,
            ledger=cp.Ledger(1, 2, 3, 4, 5, 6, 7 + k), oracle_name="mine", sampler="some",
        )
        for k, (result, stop) in enumerate(
            zip(drawn.results, (cp.StopReason.COMPLETED, cp.StopReason.INFEASIBLE), strict=True)
        )
    ]  # fmt: skip
    scores = np.full((2, law.length), -1.0)
    scores[0, :3] = [np.nan, -np.inf, -0.5]
    batch = replace(
        drawn, results=results, token_log_probs=scores, log_likelihoods=2 * scores,
        measuring=cp.Ledger(probes=9), ledger=cp.Ledger(commits=8),
    )  # fmt: skip
    batch.save(tmp_path / "a.jsonl")
    back = cp.SampleBatch.load(tmp_path / "a.jsonl")
    for name in ("sequences", "given", "token_log_probs", "log_likelihoods"):
        assert np.array_equal(getattr(back, name), getattr(batch, name), equal_nan=True), name
        assert getattr(back, name).dtype == getattr(batch, name).dtype
        assert not getattr(back, name).flags.writeable
    assert (back.ledger, back.measuring) == (batch.ledger, batch.measuring)
    for mine, other in zip(back.results, results, strict=True):
        for name in (
            "used", "stop", "reason", "settings", "streams", "seconds", "sequence", "undone",
            "ledger", "oracle_name", "sampler", "temperature", "versions",
        ):  # fmt: skip
            assert getattr(mine, name) == getattr(other, name), name
        for name in ("state", "given", "round_of_position"):
            assert getattr(mine, name).tolist() == getattr(other, name).tolist()
            assert getattr(mine, name).dtype == getattr(other, name).dtype
        assert mine.diagnostics is None and mine.transcript.entries == []
    assert back.results[0].tokens.tolist() == back.results[0].state.tolist()
    assert back.results[0].tokens.dtype == np.int64
    assert back.results[1].tokens is None


def test_a_batch_counts_what_it_completed_and_what_that_took(law):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    states = drawn.sequences.copy()
    states[1, 0] = MASK
    some = replace(drawn, sequences=states)
    assert (some.num_completed, drawn.num_completed, len(some)) == (2, 3, 3)
    assert some.tokens_per_forward == (3 * law.length - 1) / 3
    assert math.isnan(replace(some, ledger=cp.Ledger()).tokens_per_forward)
    assert some.summary() == {
        "sampler": "one-batch", "settings": drawn.results[0].settings, "count": 3, "completed": 2,
        "tokens_per_forward": some.tokens_per_forward, **drawn.ledger.as_dict(),
    }  # fmt: skip
    assert [h.tolist() for h in some.histories] == [r.history.tolist() for r in drawn.results]
