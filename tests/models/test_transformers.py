"""Hugging Face models: tiny ones with random weights, built on the spot."""

import hashlib
import http.server
import json
import os
import pickle
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import counterprobe as cp
from counterprobe import MASK, testing
from counterprobe.models import load
from counterprobe.models.transformers import LanguageModel
from counterprobe.oracles import Readouts
from counterprobe.rows import to_numpy
from small_language import SMALL, WORDS, bert_tokenizer, causal_tokenizer


def bert() -> LanguageModel:
    config = transformers.BertConfig(vocab_size=17, max_position_embeddings=32, **SMALL)
    return LanguageModel(transformers.BertForMaskedLM(config).eval(), bert_tokenizer())


def roberta() -> LanguageModel:
    config = transformers.RobertaConfig(
        vocab_size=17, max_position_embeddings=34, pad_token_id=1, type_vocab_size=1, **SMALL
    )
    return LanguageModel(transformers.RobertaForMaskedLM(config).eval(), bert_tokenizer())


def esm() -> LanguageModel:
    config = transformers.EsmConfig(
        vocab_size=17,
        pad_token_id=0,
        mask_token_id=4,
        max_position_embeddings=34,
        position_embedding_type="rotary",
        token_dropout=True,
        **SMALL,
    )
    return LanguageModel(transformers.EsmForMaskedLM(config).eval(), bert_tokenizer())


def llada(*, is_causal: bool = False) -> LanguageModel:
    """A stand-in for LLaDA: a Llama without a causal mask, whose tokenizer has no mask."""
    config = transformers.LlamaConfig(
        vocab_size=20, num_key_value_heads=2, max_position_embeddings=64, **SMALL
    )
    config.is_causal = is_causal
    config.mask_token_id = 15
    model = transformers.LlamaForCausalLM(config).eval()
    return LanguageModel(model, causal_tokenizer())


def dream() -> LanguageModel:
    """A stand-in for Dream: a Qwen2 without a causal mask, with logits shifted by one place."""
    config = transformers.Qwen2Config(
        vocab_size=20, num_key_value_heads=2, max_position_embeddings=64, **SMALL
    )
    config.is_causal = False
    model = transformers.Qwen2ForCausalLM(config).eval()
    return LanguageModel(model, causal_tokenizer(mask_token="<hole>"), shift=True)


MODELS = {"bert": bert, "roberta": roberta, "esm": esm, "llada": llada, "dream": dream}


def build(name: str, **options) -> LanguageModel:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return MODELS[name](**options)


@pytest.fixture(params=list(MODELS))
def language_model(request) -> LanguageModel:
    return build(request.param)


TEXT = "paris is the [MASK] of [MASK] ."


# ----- What they are asked and what they answer ---------------------------------------------


def test_a_text_with_masks_becomes_a_template_and_comes_back(language_model):
    template = language_model.template(TEXT)
    assert (template.length, len(template.masked)) == (7, 2)
    assert template.masked.tolist() == [3, 5]
    assert template.text(template.given).replace(" ", "") == TEXT.replace(" ", "")
    word = {int(k): language_model.tokenizer.convert_ids_to_tokens(int(k))
            for k in template.vocabulary}  # fmt: skip
    assert set(WORDS) <= set(word.values())
    token = {name: t for t, name in enumerate(word.values())}
    filled = template.given.copy()
    filled[[3, 5]] = token["capital"], token["france"]
    assert template.text(filled) == "paris is the capital of france ."


def test_special_tokens_are_never_drawn(language_model):
    tokenizer = language_model.tokenizer
    names = {tokenizer.convert_ids_to_tokens(int(k)) for k in language_model.vocabulary}
    end = {"<end>"} if tokenizer.eos_token == "<end>" else set()
    assert names == set(WORDS) | end  # an answer of fixed length is filled up with its end
    assert language_model.mask_id not in language_model.vocabulary


def test_rows_are_the_softmax_of_the_model_s_own_logits(language_model):
    template = language_model.template(TEXT)
    oracle = language_model.oracle(template)
    rows = oracle.rows(template.given[None], Readouts.same(1, template.masked))
    ids = torch.from_numpy(template.fill(template.given))
    with torch.no_grad():
        logits = language_model.model(ids, attention_mask=torch.ones_like(ids)).logits[0]
    if language_model.is_shifted:
        logits = torch.cat([logits[:1], logits[:-1]])
    logits = logits.double()[template.slots[template.masked]][:, template.vocabulary.copy()]
    np.testing.assert_allclose(
        to_numpy(rows.dense()), torch.softmax(logits, dim=1).numpy(), atol=1e-5
    )


def test_they_pass_the_conformance_suite_of_oracles(language_model):
    testing.check_oracle(language_model.oracle(TEXT))


def test_rows_depend_on_both_sides_of_a_mask(language_model):
    template = language_model.template("[MASK] cat sat on [MASK] mat")
    oracle = language_model.oracle(template, row_error=0.0)
    states = np.tile(template.given, (3, 1))
    states[1, 1], states[2, 5] = 3, 3
    rows = oracle.rows(states, Readouts.same(3, [4]))
    distance = to_numpy(rows.take(np.array([1, 2])).total_variation(rows.take(np.array([0, 0]))))
    assert (distance > 1e-4).all()


# About the law, or that there are at least ten positions.
MUST_BE_TOLD = {
    "centroid-layers",
    "chen-cong-li",
    "information-curve",
    "li-cai",
    "packed-theory",
    "planned",
}


def test_every_sampler_fills_a_template(language_model):
    template = language_model.template("the [MASK] [MASK] on [MASK] [MASK] [MASK]")
    oracle = language_model.oracle(template)
    for name, sampler in cp.samplers.SAMPLERS.items():
        before = oracle.num_evaluated
        run = cp.run.Run(oracle, given=template.given)
        try:
            result = sampler()(run, cp.Streams.from_seed(4))
        except ValueError as refusal:
            assert name in MUST_BE_TOLD, refusal
            continue
        assert oracle.num_evaluated - before == result.ledger.evaluations, name
        if result.tokens is None:
            assert name == "compressed", (name, result.reason)
            continue
        known = template.given != MASK
        assert np.array_equal(result.tokens[known], template.given[known]), name


# ----- Where they come from -----------------------------------------------------------------


def saved(model: LanguageModel, folder: Path, **options) -> Path:
    model.model.save_pretrained(folder, **options)
    model.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["bert", "roberta", "esm", "llada"])
def test_a_folder_gives_the_same_rows_as_the_live_model(name, tmp_path):
    live = build(name)
    loaded = LanguageModel.from_pretrained(saved(live, tmp_path / name), device="cpu")
    assert loaded.name == name
    template = live.template(TEXT)
    assert np.array_equal(loaded.template(TEXT).frame, template.frame)
    readouts = Readouts.same(1, template.masked)
    one = live.oracle(template).rows(template.given[None], readouts)
    other = loaded.oracle(template).rows(template.given[None], readouts)
    np.testing.assert_allclose(to_numpy(one.dense()), to_numpy(other.dense()), atol=1e-6)


def test_half_precision_is_kept_and_declared(tmp_path):
    folder = saved(build("bert"), tmp_path)
    loaded = LanguageModel.from_pretrained(folder, device="cpu", dtype=torch.bfloat16)
    oracle = loaded.oracle(TEXT)
    assert next(loaded.model.parameters()).dtype == torch.bfloat16
    rows = oracle.rows(oracle.template.given[None], Readouts.same(1, [3]))
    assert rows.dense().dtype == torch.float32


# ----- Copies on this machine, and the hub --------------------------------------------------


def copied(model: LanguageModel, cache: Path, commit: str = "a" * 40) -> None:
    """Leave a model where Hugging Face's library keeps what it downloaded as ``acme/tiny``."""
    home = cache / "models--acme--tiny"
    saved(model, home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)


@pytest.fixture
def no_network(monkeypatch):
    """Let every attempt to reach another machine fail the test."""

    def connect(*arguments):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", connect)
    monkeypatch.setattr(socket.socket, "connect", connect)


def test_a_name_of_the_hub_is_read_from_its_copy_and_nothing_is_fetched(tmp_path, no_network):
    copied(build("bert"), tmp_path)
    loaded = load("acme/tiny", cache_dir=tmp_path, device="cpu")
    assert isinstance(loaded, LanguageModel) and loaded.name == "acme/tiny"
    assert cp.infill((loaded.model, loaded.tokenizer), TEXT, progress=False).num_completed == 1
    # Nothing but words with a slash is a name, and a folder that is there is no name.
    with pytest.raises(ValueError, match=r"no whole copy of 'acme/other' .*pass download=True"):
        load("acme/other", cache_dir=tmp_path)
    with pytest.raises(ValueError, match=r"one of sapiens-heavy.* owner/model; got 'tiny'"):
        load("tiny", cache_dir=tmp_path)


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub of one folder: it answers as far as downloading asks, and notes what was asked."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        file = self.folder / self.path.rpartition("/")[2]
        is_there = "/acme/tiny/resolve/" in self.path and file.is_file()
        content = file.read_bytes() if is_there else b""
        self.send_response(200 if is_there else 404)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", hashlib.sha1(content).hexdigest())
        self.send_header("X-Repo-Commit" if is_there else "X-Error-Code", "a" * 40)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, *arguments) -> None:
        pass


@pytest.mark.slow
def test_a_model_is_fetched_when_asked_for_and_only_then(tmp_path):
    Hub.folder, Hub.asked = saved(build("bert"), tmp_path / "hub"), []
    code = (
        "import sys; from counterprobe import models\n"
        "for download in (False, True, False):\n"
        "    try:\n"
        "        load = lambda: models.load('acme/tiny', download=download, device='cpu')\n"
        "        print(type(load()).__name__, flush=True)\n"
        "    except ValueError as problem:\n"
        "        print(problem, flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub = f"http://127.0.0.1:{server.server_port}"
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path)},
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            for said, is_asked in (
                ("no whole copy of 'acme/tiny'", False),
                ("LanguageModel", True),
                ("LanguageModel", False),
            ):
                assert said in process.stdout.readline()
                assert any("resolve" in path for path in Hub.asked) == is_asked
                Hub.asked.clear()
                process.stdin.write("\n")
                process.stdin.flush()
        server.shutdown()


# ----- What is refused ----------------------------------------------------------------------


def test_a_left_to_right_model_is_refused():
    with pytest.raises(ValueError, match="both sides of a mask, but 'llama' sees only the left"):
        build("llada", is_causal=True)


def test_a_model_without_a_mask_is_refused():
    model = build("llada").model
    model.config.mask_token_id = None
    with pytest.raises(ValueError, match="mask_id must be given: neither"):
        LanguageModel(model, causal_tokenizer())
    assert LanguageModel(model, causal_tokenizer(), mask_id=15).mask_id == 15
    with pytest.raises(ValueError, match=r"an id that the model reads, 0..19; got 20"):
        LanguageModel(model, causal_tokenizer(), mask_id=20)


@pytest.mark.parametrize("name", ["bert", "esm", "llada", "dream"])
def test_a_mask_other_than_the_declared_one_is_refused(name):
    known = build(name)
    for mask_id in {0, 4, 7, 15, 16} - {known.mask_id}:
        with pytest.raises(ValueError, match=f"mask_id must be {known.mask_id}, .* got {mask_id}"):
            LanguageModel(known.model, known.tokenizer, mask_id=mask_id)
    again = LanguageModel(known.model, known.tokenizer, mask_id=known.mask_id)
    assert again.mask_id == known.mask_id


def test_where_no_mask_is_declared_another_special_token_is_none():
    model = build("llada").model
    model.config.mask_token_id = None
    for mask_id, said in ((12, "unk"), (13, "eos")):
        with pytest.raises(ValueError, match=f"got {mask_id}, which is the {said}_token_id"):
            LanguageModel(model, causal_tokenizer(), mask_id=mask_id)
    for mask_id in (-1, 1.5, True):
        with pytest.raises(ValueError, match="mask_id must be"):
            LanguageModel(model, causal_tokenizer(), mask_id=mask_id)


def test_a_word_of_a_text_is_not_lost_to_a_mask_that_nobody_declared():
    model = build("llada").model
    model.config.mask_token_id = None
    known = LanguageModel(model, causal_tokenizer(), mask_id=7)
    word = known.tokenizer.decode([7])
    template = known.template("paris [MASK] the")
    assert template.frame.tolist()[1] == 7 and len(template.masked) == 1
    with pytest.raises(ValueError, match=f"no word of the text, got 7, which is '{word}'"):
        known.template(f"paris [MASK] the {word}")


def test_a_model_in_training_mode_is_refused():
    model = build("bert")
    with pytest.raises(ValueError, match=r"evaluation mode.*model.eval\(\)"):
        LanguageModel(model.model.train(), model.tokenizer)


def test_a_text_that_is_too_long_is_refused():
    for name, most in (("bert", 32), ("roberta", 32)):
        model = build(name)
        assert model.max_length == most
        model.oracle("cat " * (most - 3) + "[MASK]")
        with pytest.raises(ValueError, match=f"at most {most} tokens, special ones included; got"):
            model.template("cat " * (most - 2) + "[MASK]")


def test_allowed_words_are_one_token_each():
    model = build("bert")
    template = model.template(TEXT, allowed={3: ["capital", "cat"], 5: "france"})
    result = cp.samplers.OneBatch()(
        cp.run.Run(model.oracle(template), given=template.given), cp.Streams.from_seed(1)
    )
    assert template.text(result.tokens) in (
        "paris is the capital of france .",
        "paris is the cat of france .",
    )
    with pytest.raises(ValueError, match="must be one token of the tokenizer, got 'elephant'"):
        model.template(TEXT, allowed={3: "elephant"})


def test_ids_can_stand_for_a_text():
    model = build("bert")
    template = model.template([2, 5, 4, 4, 3])
    assert template.masked.tolist() == [1, 2]
    assert template.text(template.given) == "paris[MASK][MASK]"


def test_a_folder_that_is_none_is_refused(tmp_path):
    for source in (tmp_path, "bert-base-uncased", "a/b/c"):
        with pytest.raises(ValueError, match=r"must be the folder of a Hugging Face model, with"):
            LanguageModel.from_pretrained(source)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("bert", "paris is the dog of [MASK]", "got 'dog' as token 4"),
        ("llada", "the cat [MASK] on dogs", "got 'dogs' as token 2"),
        ("bert", "[UNK] is the [MASK]", "got '.UNK.' as token 1"),
    ],
)
def test_a_word_that_the_tokenizer_does_not_know_is_refused(name, text, problem):
    with pytest.raises(ValueError, match=f"or the design would lose it; {problem}"):
        build(name).template(text)


def test_weights_that_do_not_match_are_refused(tmp_path):
    folder = saved(build("bert"), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(ValueError, match=r"do not match the model: they lack .*layer\.2.* more"):
        LanguageModel.from_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 48}))
    with pytest.raises(ValueError, match=r"cannot be loaded|have another shape") as error:
        LanguageModel.from_pretrained(folder)
    assert "\n" not in str(error.value)


def test_a_pickle_that_is_no_state_dict_is_refused(tmp_path):
    folder = saved(build("bert"), tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weights": Path("x")}, protocol=2))
    with pytest.raises(ValueError, match="cannot be loaded") as error:
        LanguageModel.from_pretrained(folder)
    assert "\n" not in str(error.value)


def test_code_in_a_folder_is_not_run_unless_it_is_trusted(tmp_path):
    folder = saved(build("bert"), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config.update(
        model_type="homemade",
        architectures=["Homemade"],
        auto_map={"AutoConfig": "code.Config", "AutoModel": "code.Homemade"},
    )
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ValueError, match="if you trust that code, pass trust_remote_code=True"):
        LanguageModel.from_pretrained(folder)
    assert not (tmp_path / "ran").exists()
