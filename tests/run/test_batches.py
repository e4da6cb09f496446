"""Many sequences with what they cost, and the files they are kept in."""

import json
import math
import os
import pickle
from dataclasses import replace

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.run import batches

MASK = cp.MASK


@pytest.fixture(params=["one-batch", "punt", "stopped"])
def batch(request: pytest.FixtureRequest, law) -> cp.SampleBatch:
    """Sequences in lockstep, gathered, and stopped by a budget."""
    given = np.full((4, law.length), MASK)
    given[:, 1] = [0, 1, 0, 1]
    name = "sequential" if request.param == "stopped" else request.param
    most = 2 if request.param == "stopped" else None
    return cp.sample(
        law.oracle(), name, 4, given=given, seed=3, max_submissions=most, progress=False
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".npz"])
def test_a_file_gives_back_what_was_saved(batch, suffix, tmp_path):
    path = tmp_path / f"samples{suffix}"
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
        assert mine.rights == other.rights
        assert (mine.tokens is None) == (other.tokens is None)
        assert mine.state.tolist() == other.state.tolist()
        assert mine.given.tolist() == other.given.tolist()
        assert mine.round_of_position.tolist() == other.round_of_position.tolist()
        assert [b.tolist() for b in mine.batches] == [b.tolist() for b in other.batches]
        assert mine.transcript.entries == []


@pytest.mark.parametrize("suffix", [".jsonl", ".npz"])
@pytest.mark.parametrize("measured", [(), ("token_log_probs",), ("log_likelihoods",)])
def test_a_file_gives_back_what_was_measured_and_nothing_else(law, suffix, measured, tmp_path):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    arrays = {
        "token_log_probs": -np.arange(3.0 * law.length).reshape(3, law.length) / 7,
        "log_likelihoods": -np.arange(6.0).reshape(3, 2) / 7,
    }
    batch = replace(drawn, **{name: arrays[name] for name in measured})
    batch.save(tmp_path / f"samples{suffix}")
    back = cp.SampleBatch.load(tmp_path / f"samples{suffix}")
    for name, array in arrays.items():
        found = getattr(back, name)
        assert (found is not None) == (name in measured)
        assert found is None or found.tolist() == array.tolist()


def test_settings_become_what_json_has():
    settings = {1: np.array([1.5, np.inf]), "size": np.int64(3), "pair": (None, True), "of": MASK}
    assert batches._plain(settings) == {
        "1": [1.5, "inf"], "size": 3, "pair": [None, True], "of": MASK,
    }  # fmt: skip
    assert batches._plain(cp.Right.VERIFY) == str(cp.Right.VERIFY)


def test_lines_are_json_that_others_can_read(batch, tmp_path):
    batch.save(tmp_path / "samples.jsonl")
    header, *lines = (tmp_path / "samples.jsonl").read_text().splitlines()
    assert json.loads(header)["format"] == "counterprobe samples 1"
    assert json.loads(header)["sampler"] == batch.results[0].sampler
    tokens = [json.loads(line)["tokens"] for line in lines]
    assert tokens == batch.sequences.tolist()


@pytest.mark.parametrize("suffix", [".jsonl", ".npz"])
def test_settings_that_json_does_not_have_build_an_equal_sampler(law, suffix, tmp_path):
    rule = cp.samplers.PUNT(math.inf)
    cp.sample(law.oracle(), rule, 2, progress=False).save(tmp_path / f"a{suffix}")
    back = cp.SampleBatch.load(tmp_path / f"a{suffix}")
    assert cp.samplers.build_sampler(back.results[0].sampler, back.results[0].settings) == rule


def test_a_file_is_written_whole_or_not_at_all(batch, tmp_path, monkeypatch):
    path = tmp_path / "samples.npz"
    batch.save(path)
    before = path.read_bytes()

    def fail(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="no space left"):
        batch.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["samples.npz"]


def test_other_files_are_refused(batch, tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .jsonl or .npz, got 'samples.csv'"):
        batch.save("samples.csv")
    with pytest.raises(ValueError, match=r"path must end in .jsonl or .npz"):
        cp.SampleBatch.load("samples")
    with pytest.raises(FileNotFoundError):
        cp.SampleBatch.load(tmp_path / "none.npz")
    for name, content in {
        "empty.jsonl": b"",
        "text.jsonl": b"one two\n",
        "other.jsonl": b'{"format": "something else"}\n',
        "empty.npz": b"",
        "text.npz": b"one two",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is not a file of samples, or is damaged"):
            cp.SampleBatch.load(tmp_path / name)
    batch.save(tmp_path / "whole.npz")
    whole = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="is not a file of samples, or is damaged"):
        cp.SampleBatch.load(tmp_path / "cut.npz")


def test_a_batch_says_in_one_line_what_it_is():
    law = cp.families.path(2000, target_seed=1)
    batch = cp.sample(law.oracle(), "random-balanced", 3, batches=4, progress=False)
    text = repr(batch)
    assert len(text) < 300
    assert text.startswith("SampleBatch(3 x 2000 by random-balanced, all completed; 12 submi")
    stopped = cp.sample(law.oracle(), "sequential", 3, max_submissions=4, progress=False)
    assert "0 completed, budget-spent" in repr(stopped)
    assert "_ _ _" in repr(stopped)
    alone = cp.sample(law.oracle(), "one-batch", 1, progress=False)
    assert repr(alone).startswith("SampleBatch(1 x 2000 by one-batch, all completed; 1 submi")


def test_tokens_per_forward_counts_every_submission():
    law = cp.families.path(60, target_seed=1)
    given = np.full(60, MASK)
    given[:10] = 0
    batch = cp.sample(law.oracle(), "compressed", 5, given=given, progress=False)
    assert batch.tokens_per_forward == 5 * 50 / batch.ledger.total
    summary = batch.summary()
    assert summary["tokens_per_forward"] == batch.tokens_per_forward
    assert (summary["count"], summary["completed"], summary["sampler"]) == (5, 5, "compressed")
    assert summary["total"] == batch.ledger.total


def test_a_batch_cannot_be_edited_and_survives_pickling(batch):
    with pytest.raises(ValueError, match="read-only"):
        batch.sequences[0, 0] = 1
    with pytest.raises(AttributeError):
        batch.ledger = cp.Ledger()
    again = pickle.loads(pickle.dumps(batch))
    assert again.sequences.tolist() == batch.sequences.tolist()
    assert again.ledgers == batch.ledgers


def test_an_archive_that_unfolds_into_more_than_any_batch_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MOST_BYTES", 10**6)
    np.savez_compressed(tmp_path / "bomb.npz", sequences=np.zeros((2**10, 2**10)))
    with pytest.raises(ValueError, match="its arrays take 8,388,736 bytes, at most 1,000,000"):
        cp.SampleBatch.load(tmp_path / "bomb.npz")


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        (0, "settings", []), (0, "ledger", {"probes": -1}), (0, "temperature", "warm"),
        (1, "ledger", {"probes": 0.5}), (1, "sequence", None), (1, "reason", 3),
        (1, "text", 5), (1, "tokens", [1.5]), (1, "given", [[0]]), (1, "tokens", [-2]),
        (1, "seconds", None), (0, "format", "x\ny"),
    ],
)  # fmt: skip
def test_a_part_of_another_kind_is_refused_in_one_line(tmp_path, line, name, value):
    law = cp.TableLaw(np.full(2, 0.5))
    file = tmp_path / "a.jsonl"
    cp.sample(law.oracle(), cp.samplers.Sequential(), count=1, seed=1).save(file)
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    lines[line][name] = value
    file.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(ValueError, match="is not a file of samples, or is damaged") as problem:
        cp.SampleBatch.load(file)
    assert "\n" not in str(problem.value)


def test_log_probs_are_the_sums_over_what_was_drawn(law):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    assert drawn.log_probs is None
    scores = -np.arange(3.0 * law.length).reshape(3, law.length)
    scores[1, 0] = scores[2] = np.nan
    scored = replace(drawn, token_log_probs=scores)
    assert scored.log_probs.tolist() == [
        -sum(range(law.length)), -sum(range(law.length + 1, 2 * law.length)), 0.0,
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", [".jsonl", ".npz"])
def test_texts_are_kept_with_their_sequences_or_not_at_all(law, suffix, tmp_path):
    drawn = cp.sample(law.oracle(), "one-batch", 3, seed=3, progress=False)
    for texts in (None, ("one", "two", "three")):
        replace(drawn, texts=texts).save(tmp_path / f"a{suffix}")
        assert cp.SampleBatch.load(tmp_path / f"a{suffix}").texts == texts
