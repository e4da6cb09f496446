"""Small language models with random weights, and what counts their forwards."""

from __future__ import annotations

from typing import Any, Self

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["paris", "is", "the", "capital", "of", "france", "a", "cat", "sat", "on", "mat", "."]

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.6,
}


def bert_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Special tokens first and a mask among them, as BERT has it."""
    vocabulary = {
        word: k for k, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def causal_tokenizer(**special: str) -> transformers.PreTrainedTokenizerFast:
    """Words first, special tokens last, as models made from left-to-right ones have it."""
    vocabulary = {word: k for k, word in enumerate([*WORDS, "<unk>", "<end>", "<turn>", "<hole>"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        eos_token="<end>",
        additional_special_tokens=["<turn>"],
        **special,
    )


class GeneratingBert(transformers.BertForMaskedLM, transformers.GenerationMixin):
    """BERT, which has no ``generate`` of its own."""


def generating_bert(seed: int, vocab_size: int = 17) -> GeneratingBert:
    """Make a tiny BERT that has ``generate``."""
    config = transformers.BertConfig(vocab_size=vocab_size, max_position_embeddings=64, **SMALL)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return GeneratingBert(config).eval()


def generating_llada(seed: int) -> tuple[Any, transformers.PreTrainedTokenizerFast]:
    """Make a stand-in for LLaDA: a Llama without a causal mask, whose tokenizer has no mask."""
    config = transformers.LlamaConfig(
        vocab_size=20, num_key_value_heads=2, max_position_embeddings=64, **SMALL
    )
    config.is_causal = False
    config.mask_token_id = 15
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config).eval()
    return model, causal_tokenizer()


class Counted:
    """Counts what goes through a model while it is entered: forwards, and states in them."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self.calls = 0
        self.states = 0

    def __enter__(self) -> Self:
        def count(module: Any, args: Any, kwargs: Any, _: Any) -> None:
            ids = args[0] if args else kwargs["input_ids"]
            self.calls += 1
            self.states += len(ids)

        self._hook = self._model.register_forward_hook(count, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()
