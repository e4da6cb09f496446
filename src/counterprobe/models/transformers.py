"""Hugging Face masked language models, and masked diffusion language models of the same kind.

``LanguageModel`` joins a model and its tokenizer, live or from a local folder, and knows what has
to be known about them: which id is the mask, which tokens are special and never drawn, whether
logits are shifted by one place, whether an attention mask is wanted, how long a text may be.
Masked diffusion models such as LLaDA and Dream bring code of their own, so that they are loaded
only when that code is trusted. Models come from a folder or from what was downloaded before;
nothing is fetched unless it is asked for.

No part of a text is lost without a word: what a tokenizer does not know is an error, and models of
proteins (ESM-2, ESM-C, ProtBERT) read sequences letter by letter, with the masks that every other
model of proteins has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from counterprobe.arguments import whole_number
from counterprobe.arrays import IntArray
from counterprobe.extras import load_extra
from counterprobe.models.calling import Calling
from counterprobe.models.described import Described, letter_facts, network_facts
from counterprobe.models.pretrained import is_hub_name, load_pretrained
from counterprobe.models.proteins.tokenizers import letters_of
from counterprobe.models.residues import Choices, choose_in_text
from counterprobe.models.template import Allowed, Template
from counterprobe.models.tied import TiedOracle
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


class LanguageModel(Described):
    """A masked language model with its tokenizer.

    Parameters
    ----------
    model : Module
        In evaluation mode; it takes ``input_ids`` and returns logits.
    tokenizer
        Of the same library; fast or not.
    mask_id : int, optional
        By default the tokenizer's mask, or the ``mask_token_id`` of the model's settings; only
        where neither names one may it be another.
    shift : bool, optional
        Whether the logits of a place belong to the next one; by default for Dream only.
    drawn_special : iterable of int or str, optional
        Special tokens that may be drawn all the same. By default none for masked language models,
        and the end of text for others, which fill up short answers with it. For proteins: letters
        to draw beside the 20 amino acids.
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
        # A class that adds something, such as `generate`, is one where its parent is.
        is_masked_lm = any(one.__name__.endswith("ForMaskedLM") for one in type(model).__mro__)
        self.is_shifted = model_type.lower() in SHIFTED if shift is None else bool(shift)
        self._passes_mask = is_masked_lm if attention_mask is None else bool(attention_mask)
        self.mask_id = _mask_id_of(tokenizer, config, mask_id)
        self._call = Calling(model, self.name, attention_mask=self._passes_mask)
        self._call.check_mask_id(self.mask_id)
        if drawn_special is None:
            end = getattr(tokenizer, "eos_token_id", None)
            drawn_special = [] if is_masked_lm or end is None else [end]
        special = _special_ids(tokenizer)
        # Where nobody says that it is a mask, its word in a text would be lost.
        self._mask_is_word = self.mask_id not in special | {getattr(config, "mask_token_id", None)}
        drawn, special = list(drawn_special), special | {self.mask_id}
        width = self._num_ids()
        # Of a protein; None for any other text.
        self.letters = letters_of(tokenizer, self.mask_id, special, width, drawn)
        self.vocabulary = (
            self._drawn_ids(special, width, drawn)
            if self.letters is None
            else np.array(self.letters.ids, dtype=np.int64)
        )
        self.max_length = _longest_input(model, tokenizer)
        if not is_masked_lm and len(self.vocabulary) > 1:
            self._check_both_sides()

    def facts(self) -> list[str]:
        """Return what it draws, and how large its network is."""
        if self.letters is not None:
            return [*letter_facts(self.letters, self.max_length), *network_facts(self.model)]
        longest = "" if self.max_length is None else f", up to {self.max_length:,} in a text"
        drawn = f"draws {len(self.vocabulary):,} tokens; a mask is spelled {MASK_MARK}{longest}"
        return [drawn, *network_facts(self.model)]

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        download: bool = False,
        device: Any = None,
        dtype: Any = "auto",
        cache_dir: str | Path | None = None,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> LanguageModel:
        """Load a model and its tokenizer from a folder, or by the name it has on the hub.

        Parameters
        ----------
        source : path or str
            A folder as ``save_pretrained`` writes it, with ``config.json``, weights (safetensors,
            or a pickle of nothing but tensors) and a tokenizer; or a name such as
            ``facebook/esm2_t6_8M_UR50D``, of which a copy was downloaded before.
        download : bool
            Whether a name of which there is no copy may be fetched; nothing is otherwise.
        device : optional
            A GPU where there is one, by default.
        dtype : optional
            Precision of the weights; by default the one they were saved in.
        cache_dir : path, optional
            Where copies are kept; by default where Hugging Face's own library keeps them.
        trust_remote_code : bool
            Whether code that comes with the model may be run; LLaDA and Dream need it.
        **options
            As for :class:`LanguageModel`.
        """
        model, tokenizer = load_pretrained(
            source,
            download=download,
            dtype=dtype,
            cache_dir=cache_dir,
            trust_remote_code=trust_remote_code,
        )
        name = str(source) if is_hub_name(source) else Path(source).name
        model = model.to(default_device(device))
        return cls(model, tokenizer, **{"name": name, **options})

    # ----- Templates and oracles -----------------------------------------------------------

    def template(
        self,
        text: str | ArrayLike,
        *,
        allowed: Allowed | None = None,
        add_special_tokens: bool = True,
        **choices: Unpack[Choices],
    ) -> Template:
        """Read a text with masks, spelled ``[MASK]`` or as the tokenizer spells them.

        Parameters
        ----------
        text : str or array_like of int
            The text, or the ids of a whole input with ``mask_id`` where something is missing. A
            protein is read letter by letter, where ``X``, ``_`` and ``*`` are masks too.
        allowed
            See :meth:`Template.allow`; tokens are named by id, by a word that is one token or, for
            proteins, by letters: ``"AVL"``.
        add_special_tokens : bool
            Whether to frame a text as the tokenizer does; not for a prompt that is framed already.
        **choices
            ``design``, ``fixed``, ``tied``, ``omit`` and ``rules``, see
            :class:`counterprobe.models.residues.Choices`; positions are numbered from 1.
        """
        template = self._read(text, allowed, add_special_tokens)
        if self.max_length is not None and len(template.frame) > self.max_length:
            raise ValueError(
                f"text must have at most {self.max_length} tokens, special ones included; got "
                f"{len(template.frame)}"
            )
        return choose_in_text(template, **choices)

    def oracle(self, template: Template | str, **options: Any) -> TorchOracle | TiedOracle:
        """Return the oracle of one template; options as for :class:`TorchOracle`."""
        if not isinstance(template, Template):
            template = self.template(template)
        if template.tied is not None:
            return TiedOracle.of(self.oracle, template, **options)
        settings = {
            "shift": self.is_shifted,
            "attention_mask": self._passes_mask,
            "name": self.name,
        }
        return TorchOracle(self.model, template, **{**settings, **options})

    @property
    def num_evaluated(self) -> int:
        """States that went through the model to look at it, apart from those of its oracles."""
        return self._call.num_evaluated

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

    def _read(self, text: Any, allowed: Allowed | None, add_special_tokens: bool) -> Template:
        """Turn a text or ids into a template; for proteins letter by letter."""
        if self.letters is not None:
            if not isinstance(text, str):
                return self.letters.of_ids(np.asarray(text).tolist(), allowed=allowed)
            bare = replace(self.letters, prefix=(), suffix=())
            reader = self.letters if add_special_tokens else bare
            return reader.template(text, allowed=allowed)
        ids = self._encode(text, add_special_tokens) if isinstance(text, str) else np.asarray(text)
        return Template.from_ids(
            ids,
            self.mask_id,
            self.vocabulary,
            allowed=allowed,
            spell=self.spell,
            look_up=self.look_up,
        )

    def _encode(self, text: str, add_special_tokens: bool) -> IntArray:
        """Turn a text into ids; a tokenizer that has no mask is given the pieces between."""
        mark = getattr(self.tokenizer, "mask_token", None)
        if mark is not None and self.tokenizer.mask_token_id == self.mask_id:
            whole = text.replace(MASK_MARK, mark)
            self._refuse_unknown(whole)
            ids = self.tokenizer.encode(whole, add_special_tokens=add_special_tokens)
            return np.array(ids, dtype=np.int64)
        frame = self.tokenizer.encode("", add_special_tokens=add_special_tokens)
        if any(k == getattr(self.tokenizer, "eos_token_id", None) for k in frame[1:]):
            prefix, suffix = frame[:1], frame[1:]
        else:
            prefix, suffix = frame, []
        ids = list(prefix)
        for k, piece in enumerate(text.split(MASK_MARK)):
            self._refuse_unknown(piece)
            ids.extend([self.mask_id] if k else [])
            words = self.tokenizer.encode(piece, add_special_tokens=False) if piece else []
            if self._mask_is_word and self.mask_id in words:
                raise ValueError(
                    f"mask_id must be no word of the text, got {self.mask_id}, which is "
                    f"{self.tokenizer.decode([self.mask_id])!r}; masks are spelled {MASK_MARK}"
                )
            ids.extend(words)
        return np.array([*ids, *suffix], dtype=np.int64)

    def _refuse_unknown(self, text: str) -> None:
        """Refuse what a tokenizer does not know: it would be no position, and be left out."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        if unknown is None:
            return
        pieces = self.tokenizer.tokenize(text)
        for place, one in enumerate(self.tokenizer.convert_tokens_to_ids(pieces), start=1):
            if one == unknown:
                raise ValueError(
                    "text must consist of what the tokenizer knows, or the design would lose it; "
                    f"got {self._unknown_piece(text, place - 1, pieces)!r} as token {place}"
                )

    def _unknown_piece(self, text: str, index: int, pieces: Sequence[str]) -> str:
        """Return what stands in a text where a tokenizer has an unknown token."""
        if getattr(self.tokenizer, "is_fast", False):
            found = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            low, high = found["offset_mapping"][index]
            return text[low:high]
        return pieces[index]

    def _drawn_ids(
        self, special: set[int], width: int, drawn_special: Iterable[int | str]
    ) -> IntArray:
        """Return the ids that may be drawn: words, and no special token but those named."""
        convert = self.tokenizer.convert_tokens_to_ids
        kept = {convert(one) if isinstance(one, str) else int(one) for one in drawn_special}
        left_out = special - kept | {self.mask_id}
        return np.setdiff1d(np.arange(width), np.fromiter(left_out, dtype=np.int64))

    def _num_ids(self) -> int:
        """Return how many ids mean something: networks are often wider than their vocabulary."""
        width = len(self.tokenizer)
        outputs = getattr(self.model, "get_output_embeddings", lambda: None)()
        if outputs is not None and hasattr(outputs, "out_features"):
            width = min(width, int(outputs.out_features))
        return width

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


def _mask_id_of(tokenizer: Any, config: Any, given: Any) -> int:
    """Return the mask that is declared, or the one given where none is."""
    if given is not None:
        given = whole_number("mask_id", given)
    for holder, name in ((tokenizer, "the tokenizer"), (config, "the model's config")):
        found = getattr(holder, "mask_token_id", None)
        if found is not None:
            if given not in (None, found):
                raise ValueError(
                    f"mask_id must be {found}, the mask_token_id of {name}, or masks would be "
                    f"lost; got {given}; set mask_token_id there if it is wrong"
                )
            return int(found)
    if given is None:
        raise ValueError(
            "mask_id must be given: neither the tokenizer nor the model's settings name a mask"
        )
    for role in ("pad", "unk", "bos", "eos", "cls", "sep"):
        if given == getattr(tokenizer, f"{role}_token_id", None):
            raise ValueError(
                f"mask_id must be the id of a mask, got {given}, which is the {role}_token_id of "
                "the tokenizer"
            )
    return int(given)


def _special_ids(tokenizer: Any) -> set[int]:
    """Return the ids of special tokens, those that were added by name included."""
    special = {int(one) for one in tokenizer.all_special_ids}
    for key, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
        if getattr(token, "special", False):
            special.add(int(key))
    return special


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
