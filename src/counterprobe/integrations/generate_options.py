"""Options of transformers' ``generate``: what the caller asks for is honoured or raises.

The caller asks for every keyword, and for every field of a ``GenerationConfig`` that differs from
both the default and the model's own settings.
"""

from __future__ import annotations

import inspect
import reprlib
import warnings
from collections.abc import Collection
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray
from counterprobe.extras import load_extra

if TYPE_CHECKING:
    import torch
    from transformers import GenerationMixin
else:
    torch = load_extra("torch", "transformers", "generate", package="PyTorch")
    GenerationMixin = load_extra("transformers", "transformers", "generate").GenerationMixin

__all__ = ["HONOURED", "REASON_OF", "Options", "call_of", "pad_after"]

# Options of transformers that are honoured, by keyword or in a GenerationConfig. Three of them
# always hold: rows are normalized, nothing is compiled, and there is no cache to use.
HONOURED = {
    "disable_compile",
    "do_sample",
    "eos_token_id",
    "max_length",
    "max_new_tokens",
    "num_return_sequences",
    "pad_token_id",
    "renormalize_logits",
    "return_dict_in_generate",
    "temperature",
    "use_cache",
}
# Arguments of ``model.generate`` that are no options of decoding.
INPUTS = {
    "attention_mask",
    "custom_generate",
    "generation_config",
    "input_ids",
    "inputs",
    "tokenizer",
    "trust_remote_code",
}
# Values, beside None and False, with which an option that is not honoured asks for nothing.
WITHOUT_EFFECT: dict[str, Any] = {
    "diversity_penalty": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "guidance_scale": 1,
    "length_penalty": 1,
    "logits_processor": [],
    "min_length": 0,
    "min_new_tokens": 0,
    "min_p": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "repetition_penalty": 1,
    "stopping_criteria": [],
    "top_k": 0,
    "top_p": 1,
    "typical_p": 1,
}
# Why options that would change a text are refused, and what to do instead.
REASONS = {
    "bad_words_ids begin_suppress_tokens encoder_no_repeat_ngram_size encoder_repetition_penalty "
    "epsilon_cutoff eta_cutoff exponential_decay_length_penalty forced_bos_token_id "
    "forced_eos_token_id guidance_scale logits_processor min_length min_new_tokens min_p "
    "no_repeat_ngram_size prefix_allowed_tokens_fn repetition_penalty sequence_bias "
    "suppress_tokens top_h top_k top_p typical_p watermarking_config": (
        "rows are drawn from as they are; allowed= restricts tokens by position"
    ),
    "constraints diversity_penalty dola_layers early_stopping force_words_ids length_penalty "
    "num_beam_groups num_beams penalty_alpha": (
        "sequences are drawn, not searched for; num_return_sequences= draws several"
    ),
    "max_time stop_strings stopping_criteria token_healing": (
        "texts do not grow at their end; max_evaluations= bounds the evaluations of a sequence"
    ),
    "streamer": (
        "positions are not filled in from left to right; on_event= of counterprobe.infill is told "
        "of every round"
    ),
    "output_attentions output_hidden_states output_logits output_scores": (
        "no forward is kept; return_dict_in_generate=True returns ledgers and log-probabilities"
    ),
}
REASON_OF = {name: reason for names, reason in REASONS.items() for name in names.split()}


def call_of(frame: FrameType) -> dict[str, Any] | None:
    """Return the arguments of the ``model.generate`` that runs in a frame; None for another.

    On the way to a function, ``generate`` drops ``streamer``, ``tokenizer`` and
    ``assistant_model``, and merges the caller's settings with the model's. So they are read where
    they came in: from the decorator around it.
    """
    outer = frame.f_back
    decorated = GenerationMixin.generate
    if (
        outer is None
        or frame.f_code is not inspect.unwrap(decorated).__code__
        or outer.f_code is not decorated.__code__
    ):
        return None
    bound = inspect.signature(decorated).bind(*outer.f_locals["args"], **outer.f_locals["kwargs"])
    more = bound.arguments.pop("kwargs", {})
    del bound.arguments["self"]
    return {**bound.arguments, **more}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one call.

    Attributes
    ----------
    asked : dict
        What the caller asks for.
    own : GenerationConfig or None
        The model's own settings.
    """

    asked: dict[str, Any]
    own: Any

    @classmethod
    def of(cls, model: Any, call: dict[str, Any], ours: Collection[str]) -> Options:
        """Read the options of a call; refuse those that are not honoured.

        Parameters
        ----------
        model : PreTrainedModel
        call : dict
            Arguments of ``model.generate``.
        ours : collection of str
            Arguments that are no options of transformers.
        """
        own, config = getattr(model, "generation_config", None), call.get("generation_config")
        default = None if config is None else type(config)()
        fields = {
            name: value
            for name, value in ({} if config is None else vars(config)).items()
            if not name.startswith("_")
            and name != "transformers_version"
            and value not in (getattr(default, name, None), getattr(own, name, None))
        }
        keywords = {
            name: value
            for name, value in call.items()
            if name not in INPUTS and name not in ours and value is not None
        }
        asked = {**fields, **keywords}
        for name, value in asked.items():
            if name in HONOURED or not _has_effect(name, value):
                continue
            reason = REASON_OF.get(name, "it has no meaning where masks are filled in")
            if name in ours:
                reason = "pass it to generate itself, not in generation_config"
            is_plain = isinstance(value, bool | int | float | str | list | tuple | dict)
            shown = reprlib.repr(value) if is_plain else type(value).__name__
            raise ValueError(f"{name} must be left out, got {shown}: {reason}")
        return cls(asked, own)

    def get(self, name: str, default: Any = None) -> Any:
        """Return what the caller asks for, or the model's own setting, or a default."""
        value = self.asked.get(name, getattr(self.own, name, None))
        return default if value is None else value

    def warn_of_unused(self) -> None:
        """Warn of the model's own settings that would change a text and are not used."""
        values = {k: getattr(self.own, k, None) for k in REASON_OF if k not in self.asked}
        unused = [f"{k}={value!r}" for k, value in values.items() if _has_effect(k, value)]
        if unused:
            warnings.warn(
                f"{', '.join(unused)} of model.generation_config is not used: it is written for "
                "decoding from left to right",
                stacklevel=3,
            )

    @property
    def temperature(self) -> float:
        """The temperature; 0 takes the most probable tokens."""
        if self.get("do_sample", True):
            return float(self.get("temperature", 1.0))
        if self.asked.get("temperature", 1) not in (0, 1):
            raise ValueError(
                "temperature must be left out where do_sample is False, got "
                f"{self.asked['temperature']!r}; do_sample=True samples"
            )
        return 0.0

    def num_new(self, length: int) -> int | None:
        """Return how many masks are appended to prompts of a length; None for none."""
        if "max_length" in self.asked and "max_new_tokens" not in self.asked:
            most = whole_number("max_length", self.asked["max_length"])
            if most < length:
                raise ValueError(
                    f"max_length must be at least the {length} ids of a prompt, got {most}; "
                    "max_new_tokens= counts new ones alone"
                )
            return most - length or None
        count = self.get("max_new_tokens")
        return None if count is None else whole_number("max_new_tokens", count, at_least=1)

    def ends(self, num_new: int | None, vocabulary: IntArray) -> list[int]:
        """Return the ids that end a text, where there are new tokens to end.

        Parameters
        ----------
        num_new : int, optional
        vocabulary : ndarray of int
            The ids that are drawn.
        """
        if "pad_token_id" in self.asked:
            whole_number("pad_token_id", self.asked["pad_token_id"])
        ends = [int(one) for one in np.ravel(self.get("eos_token_id", []))]
        if "eos_token_id" in self.asked:
            if num_new is None:
                raise ValueError(
                    f"eos_token_id must be left out, got {self.asked['eos_token_id']!r}: it ends "
                    "new tokens, and none are appended; max_new_tokens= appends some"
                )
            never = [one for one in ends if one not in vocabulary]
            if never:
                raise ValueError(
                    f"eos_token_id must be drawn to end a text, but id {never[0]} never is; "
                    f"model_options={{'drawn_special': [{never[0]}]}} draws it"
                )
        return [] if num_new is None else ends


def pad_after(new: torch.Tensor, ends: list[int], pad: int) -> None:
    """Write padding over what follows the first end of text in every row of new tokens."""
    is_end = torch.isin(new, torch.tensor(ends, device=new.device))
    new[is_end.cumsum(1) - is_end.long() > 0] = pad if pad >= 0 else ends[0]


def _has_effect(name: str, value: Any) -> bool:
    """Whether an option that is not honoured would have changed something."""
    if value is None or value is False:
        return False
    return name not in WITHOUT_EFFECT or bool(value != WITHOUT_EFFECT[name])
