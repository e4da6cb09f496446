"""``model.generate`` of transformers, drawn by any rule of this library.

>>> from counterprobe.integrations.transformers import generate

``model.generate(ids, custom_generate=generate, sampler="entropy-bounded")`` fills in the masks of
``ids``; ``max_new_tokens=64`` appends that many masks first, as diffusion language models want
it. Every prompt is drawn as ``infill`` draws it, by the same rule and seed to the same text, and
rules that probe and structures work, since the model is at hand. ``write_folder`` writes the
folder that ``custom_generate="folder"`` loads.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray
from counterprobe.discovery import Structure
from counterprobe.extras import load_extra
from counterprobe.files import whole_file
from counterprobe.infilling import infill
from counterprobe.infilling.results import Infilled
from counterprobe.infilling.terms import rule_of
from counterprobe.integrations.blocks import reads_rows_alone
from counterprobe.integrations.generate_options import (
    HONOURED,
    REASON_OF,
    Options,
    call_of,
    pad_after,
)
from counterprobe.models.template import Allowed
from counterprobe.models.transformers import LanguageModel
from counterprobe.run.results import StopReason
from counterprobe.samplers.auto import Auto
from counterprobe.samplers.base import Sampler
from counterprobe.streams import Streams

if TYPE_CHECKING:
    import torch
    from transformers.utils.generic import ModelOutput
else:
    torch = load_extra("torch", "transformers", "generate", package="PyTorch")
    ModelOutput = load_extra("transformers.utils.generic", "transformers", "generate").ModelOutput

__all__ = ["UnmaskingOutput", "generate", "generate_from_folder", "write_folder"]

FOLDER_FILE = '''"""Parallel unmasking by counterprobe: masked and diffusion language models."""

from counterprobe.integrations.transformers import generate_from_folder as generate

__all__ = ["generate"]
'''
FOLDER_PAGE = """---
tags:
- custom_generate
---

Parallel unmasking by [counterprobe](https://pypi.org/project/counterprobe/):
`model.generate(ids, custom_generate=<this folder>, trust_remote_code=True,
sampler="entropy-bounded", tokenizer=tokenizer)` fills in the masks of `ids`, several positions a
forward; `max_new_tokens=64` appends as many masks first.
"""


@dataclass
class UnmaskingOutput(ModelOutput):
    """What ``generate`` returns with ``return_dict_in_generate=True``.

    Attributes
    ----------
    sequences : LongTensor, shape (B, L)
        Ids, padding included; the mask where a budget ended a run too early. New tokens after the
        first end of text are padding; ``batches`` has what was drawn there.
    evaluations : int
        States that went through the model for all of them, whatever for.
    batches : tuple of Infilled
        One for each different prompt, in order, with ledgers, log-probabilities and texts.
    """

    sequences: torch.Tensor | None = None
    evaluations: int | None = None
    batches: tuple[Infilled, ...] | None = None


def generate(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any = None,
    stopping_criteria: Any = None,
    generation_config: Any = None,
    *,
    sampler: str | Sampler | None = None,
    settings: Mapping[str, Any] | None = None,
    structure: Structure | None = None,
    seed: int | Streams = 0,
    num_return_sequences: int | None = None,
    do_sample: bool | None = None,
    temperature: float | None = None,
    allowed: Allowed | None = None,
    processing_class: Any = None,
    model_options: Mapping[str, Any] | None = None,
    max_evaluations: int | None = None,
    stop_strings: None = None,
    token_healing: None = None,
    **model_kwargs: Any,
) -> torch.Tensor | UnmaskingOutput:
    """Fill in the masks of prompts; what ``model.generate(..., custom_generate=generate)`` calls.

    Options of transformers come by keyword or in ``generation_config``. The caller asks for every
    keyword, and for every field of ``generation_config`` that differs from both the default and
    the model's own settings. What the caller asks for is honoured or raises. The model's own
    settings, ``model.generation_config``, are read for the options below; others, such as the
    ``top_k`` of a checkpoint, are not used, with a warning where they would change a text.

    Parameters
    ----------
    model : PreTrainedModel
        A masked or diffusion language model in evaluation mode.
    input_ids : LongTensor, shape (B, L)
        Prompts with masks. Each draws with noise of its own, whatever stands beside it; equal
        ones are drawn together, as the sequences of one prompt.
    logits_processor, stopping_criteria
        Must be empty: they are written for texts that grow at their end.
    generation_config : GenerationConfig, optional
        ``max_new_tokens`` appends as many masks to every prompt. ``max_length`` appends masks up
        to that length, where the caller asks for it without ``max_new_tokens``; a checkpoint's own
        is not read. New tokens after the first ``eos_token_id`` among them become
        ``pad_token_id``, or the end of text where there is no padding; they are drawn all the
        same. ``num_return_sequences``, ``do_sample`` and ``temperature`` are as below, and
        ``return_dict_in_generate`` chooses what is returned.
    sampler, structure, seed, allowed, max_evaluations
        As in ``infill``.
    settings : mapping, optional
        Of a sampler given by name: ``{"gamma": 0.3}``.
    num_return_sequences : int, optional
        How often each prompt is drawn; once by default.
    do_sample : bool, optional
        False takes the most probable tokens, as temperature 0 does. Unlike in transformers, tokens
        are sampled where neither the caller nor the model's own settings say it.
    temperature : float, optional
        By default 1.
    processing_class : tokenizer, optional
        Says which ids are special and never drawn; ``tokenizer`` is another name of it. Without
        one every id may be drawn but the mask and those that the model's settings call special.
    model_options : mapping, optional
        For ``LanguageModel``: ``mask_id``, ``shift``, ``drawn_special``.
    stop_strings, token_healing : None
        Refused like other options; named here, since transformers acts on them otherwise.
    **model_kwargs
        Of them ``attention_mask`` is used, to take padding off.

    Returns
    -------
    LongTensor or UnmaskingOutput
        Ids of shape (B, L'); or, with ``return_dict_in_generate=True``, those with the count of
        evaluations and every ledger.
    """
    call = call_of(sys._getframe(1))
    if call is None:
        call = {
            "generation_config": generation_config,
            "logits_processor": logits_processor,
            "stopping_criteria": stopping_criteria,
            "num_return_sequences": num_return_sequences,
            "do_sample": do_sample,
            "temperature": temperature,
            "stop_strings": stop_strings,
            "token_healing": token_healing,
            **model_kwargs,
        }
        copies = 1
    else:  # which has repeated every prompt, for beams too
        beams, times = generation_config.num_beams, generation_config.num_return_sequences
        copies = max(beams or 1, times or 1)
    asked = Options.of(model, call, _ours())
    asked.warn_of_unused()
    if processing_class is not None and call.get("tokenizer") is not None:
        raise ValueError("processing_class and tokenizer mean the same: give one of them")
    processing_class = call.get("tokenizer") if processing_class is None else processing_class
    rule = rule_of(sampler, structure, dict(settings or {}))
    known = _language_model(model, processing_class, generation_config, dict(model_options or {}))
    looked = 0 if known is processing_class else known.num_evaluated
    length = input_ids.shape[1]
    num_new = asked.num_new(length)
    ends = asked.ends(num_new, known.vocabulary)
    attention_mask = model_kwargs.get("attention_mask")
    prompts = _Prompts.of(
        input_ids[::copies],
        None if attention_mask is None else attention_mask[::copies],
        num_new,
        whole_number("num_return_sequences", asked.get("num_return_sequences", 1), at_least=1),
        known,
    )
    # Rules that compare no probes have no use for a measured radius, which costs a dozen states.
    compares = structure is not None or isinstance(rule, Auto) or not reads_rows_alone(rule)
    options = {} if compares else {"row_error": 0.0}
    batches = []
    for ids, rows in prompts.groups:
        batches.append(
            infill(
                known,
                ids,
                sampler=None if structure is not None else rule,
                structure=structure,
                count=len(rows),
                seed=seed,
                allowed=allowed,
                temperature=asked.temperature,
                max_evaluations=max_evaluations,
                progress=False,
                oracle_options=options,
                **(dict(settings or {}) if structure is not None else {}),
            )
        )
    sequences = prompts.filled(batches, known, input_ids.device)
    if ends:
        pad_after(sequences[:, length:], ends, asked.get("pad_token_id", ends[0]))
    if not asked.get("return_dict_in_generate", False):
        return sequences
    evaluations = looked + sum(
        batch.ledger.evaluations + batch.measuring.evaluations for batch in batches
    )
    return UnmaskingOutput(sequences, evaluations, tuple(batches))


def generate_from_folder(model: Any, inputs: torch.Tensor | None = None, **options: Any) -> Any:
    """Do as ``generate`` of a model does with our function; what the folder's file exports.

    Parameters
    ----------
    model : PreTrainedModel
    inputs : LongTensor, optional
        Or ``input_ids``.
    **options
        Of ``model.generate`` and of :func:`generate`.
    """
    Options.of(model, options, _ours())  # before transformers acts on an option that is refused
    return model.generate(inputs, custom_generate=generate, **options)


def _ours() -> set[str]:
    """Return the names of what our function takes beside options of transformers."""
    parameters = inspect.signature(generate).parameters.values()
    ours = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    return ours - HONOURED - REASON_OF.keys()


def write_folder(path: str | Path) -> Path:
    """Write the folder that ``custom_generate="path"`` loads, or that the hub keeps.

    Parameters
    ----------
    path : path
        A folder, made where there is none; that of a saved model will do, whose own ``generate``
        is then this one.

    Returns
    -------
    Path
        The file ``custom_generate/generate.py`` in it.
    """
    folder = Path(path)
    code = folder / "custom_generate"
    code.mkdir(parents=True, exist_ok=True)
    files = {code / "generate.py": FOLDER_FILE, code / "requirements.txt": "counterprobe\n"}
    if not (folder / "README.md").exists():
        files[folder / "README.md"] = FOLDER_PAGE
    for file, text in files.items():
        with whole_file(file) as stream:
            stream.write(text.encode())
    return code / "generate.py"


# ----- Prompts --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Prompts without their padding, equal ones together.

    Attributes
    ----------
    ids : ndarray of int, shape (B, L')
        Padding and new masks included.
    real : list of ndarray of bool
        What is no padding, one a prompt.
    groups : list of (ndarray of int, list of int)
        Different prompts, by where they stand first, and the rows of each.
    """

    ids: IntArray
    real: list[Any]
    groups: list[tuple[IntArray, list[int]]]

    @classmethod
    def of(
        cls,
        input_ids: Any,
        attention_mask: Any,
        max_new_tokens: int | None,
        times: int,
        known: LanguageModel,
    ) -> _Prompts:
        ids = np.asarray(input_ids.detach().cpu().numpy(), dtype=np.int64)
        real = np.ones(ids.shape, dtype=bool)
        if attention_mask is not None:
            real = np.asarray(attention_mask.detach().cpu().numpy()) != 0
        if max_new_tokens is not None:
            if not real[:, -1].all():
                raise ValueError(
                    "prompts must be padded on their left where max_new_tokens appends masks: set "
                    "padding_side='left' on the tokenizer"
                )
            more = np.full((len(ids), max_new_tokens), known.mask_id)
            ids = np.concatenate([ids, more], axis=1)
            real = np.concatenate([real, np.ones(more.shape, dtype=bool)], axis=1)
        ids, real = np.repeat(ids, times, axis=0), np.repeat(real, times, axis=0)
        groups: dict[bytes, tuple[IntArray, list[int]]] = {}
        for k, (row, kept) in enumerate(zip(ids, real, strict=True)):
            inside = np.flatnonzero(kept)
            if len(inside) == 0 or not kept[inside[0] : inside[-1] + 1].all():
                raise ValueError(
                    f"attention_mask must hide the ends of a prompt only, see row {k}"
                )
            prompt = row[kept]
            if not (prompt == known.mask_id).any():
                raise ValueError(
                    f"input_ids must hold masks (id {known.mask_id}) in every row, got none in "
                    f"row {k}; max_new_tokens=64 appends as many"
                )
            groups.setdefault(prompt.tobytes(), (prompt, []))[1].append(k)
        return cls(ids, list(real), [*groups.values()])

    def filled(self, batches: list[Infilled], known: LanguageModel, device: Any) -> torch.Tensor:
        """Return the ids with everything drawn in its place."""
        out = self.ids.copy()
        for (prompt, rows), batch in zip(self.groups, batches, strict=True):
            template = known.template(prompt)
            if any(result.stop is StopReason.INFEASIBLE for result in batch.results):
                raise ValueError(f"nothing was drawn: {batch.results[0].reason}")
            for k, ids in zip(rows, template.fill(batch.sequences), strict=True):
                out[k, self.real[k]] = ids
        return torch.as_tensor(out, device=device)


# ----- The model ------------------------------------------------------------------------------


def _language_model(
    model: Any, tokenizer: Any, generation_config: Any, options: dict[str, Any]
) -> LanguageModel:
    """Join a model with its tokenizer, or with what its settings say of special ids."""
    if isinstance(tokenizer, LanguageModel):
        return tokenizer
    if tokenizer is None:
        tokenizer = _Settings.of(model, generation_config, options.get("mask_id"))
    return LanguageModel(model, tokenizer, **options)


class _Settings:
    """What the settings of a model say about ids, in the words of a tokenizer."""

    is_fast = False

    def __init__(self, num_ids: int, special: set[int], mask_id: int | None, end: int | None):
        self._num_ids = num_ids
        self.all_special_ids = sorted(special)
        self.mask_token_id = mask_id
        self.eos_token_id = end

    @classmethod
    def of(cls, model: Any, generation_config: Any, mask_id: int | None) -> _Settings:
        special: set[int] = set()
        named: dict[str, int] = {}
        for holder in (getattr(model, "config", None), generation_config):
            for name in ("pad", "bos", "eos", "sep", "cls", "unk", "mask"):
                value = getattr(holder, f"{name}_token_id", None)
                for one in value if isinstance(value, (list, tuple)) else [value]:
                    if one is not None:
                        special.add(int(one))
                        named.setdefault(name, int(one))
        width = int(model.get_input_embeddings().num_embeddings)
        return cls(width, special, named.get("mask", mask_id), named.get("eos"))

    def __len__(self) -> int:
        """Return how many ids the model reads."""
        return self._num_ids

    def get_vocab(self) -> dict[str, int]:
        """Return no word: nothing is known of any."""
        return {}

    def decode(self, ids: list[int], **_: Any) -> str:
        """Spell ids as numbers: nothing else is known."""
        return " ".join(str(one) for one in ids)

    def convert_tokens_to_ids(self, token: str) -> int:
        """Refuse: nothing here can spell."""
        raise ValueError(f"processing_class must be a tokenizer where tokens are named: {token!r}")

    def encode(self, text: str, **_: Any) -> list[int]:
        """Refuse: nothing here can spell."""
        raise ValueError(f"processing_class must be a tokenizer where words are named: {text!r}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m counterprobe.integrations.transformers FOLDER")
    print(write_folder(sys.argv[1]))
