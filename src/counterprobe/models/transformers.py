"""Hugging Face masked language models, and masked diffusion language models of the same kind.

``LanguageModel`` joins a model and its tokenizer, live or from a local folder, and knows what has
to be known about them: which id is the mask, which tokens are special and never drawn, whether
logits are shifted by one place, whether an attention mask is wanted, how long a text may be.
Masked diffusion models such as LLaDA and Dream bring code of their own, so that they are loaded
only when that code is trusted. Nothing is ever downloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arrays import IntArray
from counterprobe.extras import load_extra
from counterprobe.models.calling import Calling
from counterprobe.models.template import Allowed, Template
from counterprobe.models.torch import TorchOracle
from counterprobe.models.weights import default_device

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "transformers", "a language model", package="PyTorch")

__all__ = ["LanguageModel"]


# How templates spell the mask, whatever the tokenizer calls it.
MASK_MARK = "[MASK]"
# Model types whose logits at a place belong to the next one, as in the left-to-right models that
# they were made from.
SHIFTED = ("dream",)


class LanguageModel:
    """A masked language model with its tokenizer.

    Parameters
    ----------
    model : Module
        In evaluation mode; it takes ``input_ids`` and returns logits.
    tokenizer
        Of the same library; fast or not.
    mask_id : int, optional
        By default the tokenizer's mask, or the ``mask_token_id`` of the model's settings.
    shift : bool, optional
        Whether the logits of a place belong to the next one; by default for Dream only.
    drawn_special : iterable of int or str, optional
        Special tokens that may be drawn all the same. By default none for masked language models,
        and the end of text for others, which fill up short answers with it.
    attention_mask : bool, optional
        Whether to pass an attention mask of ones; by default for masked language models, where
        nothing else is taken to mean it.
    name : str, optional

    Examples
    --------
    ``LanguageModel(model, tokenizer).oracle("Paris is the [MASK] of [MASK].")`` is an oracle of
    the whole sentence with two positions masked.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        mask_id: int | None = None,
        shift: bool | None = None,
        drawn_special: Iterable[int | str] | None = None,
        attention_mask: bool | None = None,
        name: str | None = None,
    ) -> None:
        config = getattr(model, "config", None)
        model_type = str(getattr(config, "model_type", ""))
        self.model = model
        self.tokenizer = tokenizer
        self.name = name or model_type or type(model).__name__
        is_masked_lm = type(model).__name__.endswith("ForMaskedLM")
        self.is_shifted = model_type.lower() in SHIFTED if shift is None else bool(shift)
        self._passes_mask = is_masked_lm if attention_mask is None else bool(attention_mask)
        self.mask_id = _mask_id_of(tokenizer, config) if mask_id is None else int(mask_id)
        self._call = Calling(model, self.name, attention_mask=self._passes_mask)
        self._call.check_mask_id(self.mask_id)
        if drawn_special is None:
            end = getattr(tokenizer, "eos_token_id", None)
            drawn_special = [] if is_masked_lm or end is None else [end]
        self.vocabulary = self._drawn_ids(drawn_special)
        self.max_length = _longest_input(model, tokenizer)
        if not is_masked_lm and len(self.vocabulary) > 1:
            self._check_both_sides()

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        *,
        device: Any = None,
        dtype: Any = "auto",
        trust_remote_code: bool = False,
        **options: Any,
    ) -> LanguageModel:
        """Load a model and its tokenizer from a local folder, as ``save_pretrained`` writes it.

        Parameters
        ----------
        folder : path
            With ``config.json``, weights (safetensors, or a pickle of nothing but tensors) and a
            tokenizer.
        device : optional
            A GPU where there is one, by default.
        dtype : optional
            Precision of the weights; by default the one they were saved in.
        trust_remote_code : bool
            Whether code that lies in the folder may be run; LLaDA and Dream need it.
        **options
            As for :class:`LanguageModel`.
        """
        transformers = load_extra("transformers", "transformers", "LanguageModel.from_folder")
        path = Path(folder)
        if not (path / "config.json").is_file():
            raise ValueError(
                f"folder must hold a Hugging Face model, with config.json; got {str(folder)!r}"
            )
        common = {"local_files_only": True, "trust_remote_code": trust_remote_code}
        try:
            config = transformers.AutoConfig.from_pretrained(path, **common)
            loader = _loader_for(transformers, config)
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, **common)
            model, found = loader.from_pretrained(
                path, dtype=dtype, output_loading_info=True, weights_only=True, **common
            )
        except Exception as problem:  # every kind of file error comes as an exception of its own
            raise ValueError(_said(problem, str(folder), trust_remote_code)) from problem
        _check_loaded(found, str(folder))
        model = model.eval().to(default_device(device))
        return cls(model, tokenizer, **{"name": path.name, **options})

    # ----- Templates and oracles -----------------------------------------------------------

    def template(
        self,
        text: str | ArrayLike,
        *,
        allowed: Allowed | None = None,
        add_special_tokens: bool = True,
    ) -> Template:
        """Read a text with masks, spelled ``[MASK]`` or as the tokenizer spells them.

        Parameters
        ----------
        text : str or array_like of int
            The text, or the ids of a whole input with ``mask_id`` where something is missing.
        allowed
            See :meth:`Template.allow`; tokens are named by id, or by a word that is one token.
        add_special_tokens : bool
            Whether to frame a text as the tokenizer does; not for a prompt that is framed already.
        """
        ids = self._encode(text, add_special_tokens) if isinstance(text, str) else np.asarray(text)
        template = Template.from_ids(
            ids,
            self.mask_id,
            self.vocabulary,
            allowed=allowed,
            spell=self.spell,
            look_up=self.look_up,
        )
        if self.max_length is not None and len(template.frame) > self.max_length:
            raise ValueError(
                f"text must have at most {self.max_length} tokens, special ones included; got "
                f"{len(template.frame)}"
            )
        return template

    def oracle(self, template: Template | str, **options: Any) -> TorchOracle:
        """Return the oracle of one template; options as for :class:`TorchOracle`."""
        if not isinstance(template, Template):
            template = self.template(template)
        settings = {
            "shift": self.is_shifted,
            "attention_mask": self._passes_mask,
            "name": self.name,
        }
        return TorchOracle(self.model, template, **{**settings, **options})

    def spell(self, ids: IntArray) -> str:
        """Write ids as text, without special tokens; masks that are left stay visible."""
        pieces: list[str] = []
        start = 0
        for stop in [*np.flatnonzero(ids == self.mask_id), len(ids)]:
            part = [int(k) for k in ids[start:stop]]
            pieces.append(self.tokenizer.decode(part, skip_special_tokens=True) if part else "")
            start = int(stop) + 1
        return MASK_MARK.join(pieces)

    def look_up(self, word: str) -> Sequence[int]:
        """Return the ids of a word that is one token, with and without a space before it."""
        found = {
            ids[0]
            for spelled in (word, f" {word}")
            for ids in [self.tokenizer.encode(spelled, add_special_tokens=False)]
            if len(ids) == 1 and ids[0] != getattr(self.tokenizer, "unk_token_id", None)
        }
        if not found:
            raise ValueError(f"an allowed word must be one token of the tokenizer, got {word!r}")
        return sorted(found)

    # ----- Inside --------------------------------------------------------------------------

    def _encode(self, text: str, add_special_tokens: bool) -> IntArray:
        """Turn a text into ids; a tokenizer that has no mask is given the pieces between."""
        mark = getattr(self.tokenizer, "mask_token", None)
        if mark is not None and self.tokenizer.mask_token_id == self.mask_id:
            whole = text.replace(MASK_MARK, mark)
            ids = self.tokenizer.encode(whole, add_special_tokens=add_special_tokens)
            return np.array(ids, dtype=np.int64)
        frame = self.tokenizer.encode("", add_special_tokens=add_special_tokens)
        if any(k == getattr(self.tokenizer, "eos_token_id", None) for k in frame[1:]):
            prefix, suffix = frame[:1], frame[1:]
        else:
            prefix, suffix = frame, []
        ids = list(prefix)
        for k, piece in enumerate(text.split(MASK_MARK)):
            ids.extend([self.mask_id] if k else [])
            ids.extend(self.tokenizer.encode(piece, add_special_tokens=False) if piece else [])
        return np.array([*ids, *suffix], dtype=np.int64)

    def _drawn_ids(self, drawn_special: Iterable[int | str]) -> IntArray:
        """Return the ids that may be drawn: words, and no special token but those named."""
        tokenizer = self.tokenizer
        special = {int(k) for k in tokenizer.all_special_ids}
        for key, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
            if getattr(token, "special", False):
                special.add(int(key))
        for one in drawn_special:
            kept = tokenizer.convert_tokens_to_ids(one) if isinstance(one, str) else int(one)
            special.discard(kept)
        # Networks are often wider than their vocabulary, and rows beyond it mean nothing.
        width = len(tokenizer)
        outputs = getattr(self.model, "get_output_embeddings", lambda: None)()
        if outputs is not None and hasattr(outputs, "out_features"):
            width = min(width, int(outputs.out_features))
        special.add(self.mask_id)
        return np.setdiff1d(np.arange(width), np.fromiter(special, dtype=np.int64))

    def _check_both_sides(self) -> None:
        """Refuse a model that sees only what is to the left of a mask."""
        first, second = (int(k) for k in self.vocabulary[[0, -1]])
        ids = np.array([[first, self.mask_id, first], [first, self.mask_id, second]])
        place = 0 if self.is_shifted else 1
        one, other = self._call(ids)[:, place]
        if bool(torch.equal(one, other)):
            raise ValueError(
                f"model must see both sides of a mask, but {self.name!r} sees only the left: it "
                "is no masked model, or its attention is still causal (config.is_causal = False)"
            )


def _mask_id_of(tokenizer: Any, config: Any) -> int:
    for holder in (tokenizer, config):
        found = getattr(holder, "mask_token_id", None)
        if found is not None:
            return int(found)
    raise ValueError(
        "mask_id must be given: neither the tokenizer nor the model's settings name a mask"
    )


def _longest_input(model: Any, tokenizer: Any) -> int | None:
    """Return the most ids that a model takes, if it is known."""
    limits = []
    places = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    if isinstance(places, int) and places > 0:
        # RoBERTa and its kin count places from after the padding id.
        skipped = [
            part.padding_idx + 1
            for name, part in model.named_modules()
            if name.endswith("position_embeddings") and getattr(part, "padding_idx", None)
        ]
        limits.append(places - max(skipped, default=0))
    said = getattr(tokenizer, "model_max_length", None)
    if isinstance(said, int) and 0 < said < 1 << 30:  # unset is a huge number
        limits.append(said)
    return min(limits, default=None)


def _loader_for(transformers: Any, config: Any) -> Any:
    """Return the class that builds the model with its language-model head."""
    names = [str(name) for name in getattr(config, "architectures", None) or []]
    if any(name.endswith("ForMaskedLM") for name in names):
        return transformers.AutoModelForMaskedLM
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        return transformers.AutoModelForCausalLM
    return transformers.AutoModel


def _check_loaded(found: Any, folder: str) -> None:
    """Refuse a model some of whose weights stayed random."""
    for what, key in (("lack", "missing_keys"), ("have another shape for", "mismatched_keys")):
        names = sorted(str(name) for name in found.get(key, ()))
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(
                f"the weights in {folder!r} do not match the model: they {what} {names[0]}{more}"
            )


def _said(problem: Exception, folder: str, trusted: bool) -> str:
    """Say in one line why a folder could not be loaded."""
    said = " ".join(str(problem).split())
    if not trusted and "trust_remote_code" in said:
        return (
            f"the model in {folder!r} needs code that lies in its folder; if you trust that code, "
            "pass trust_remote_code=True"
        )
    return f"the model in {folder!r} cannot be loaded: {said[:300]}"
