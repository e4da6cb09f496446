"""Hugging Face models from a folder, from copies on this machine, or from the hub when asked.

Weights are read from safetensors or from a pickle of nothing but tensors, and every one of them
must be there: a head that stayed random would draw noise. Code that comes with a model is run only
when it is trusted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from counterprobe.extras import load_extra

__all__ = ["is_folder", "is_hub_name", "load_pretrained"]

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_folder(source: Any) -> bool:
    """Whether there is a folder with a Hugging Face model."""
    return isinstance(source, (str, Path)) and (Path(source) / "config.json").is_file()


def is_hub_name(source: Any) -> bool:
    """Whether a name is one of the hub: owner and model, and no folder that is there."""
    is_name = isinstance(source, str) and _HUB_NAME.fullmatch(source) is not None
    return is_name and not Path(source).exists()


def load_pretrained(
    source: str | Path,
    *,
    download: bool = False,
    dtype: Any = "auto",
    cache_dir: str | Path | None = None,
    trust_remote_code: bool = False,
) -> tuple[Any, Any]:
    """Return a model in evaluation mode, and its tokenizer.

    Parameters
    ----------
    source, download, dtype, cache_dir, trust_remote_code
        As for :meth:`counterprobe.models.transformers.LanguageModel.from_pretrained`.
    """
    transformers = load_extra("transformers", "transformers", "LanguageModel.from_pretrained")
    if not is_folder(source) and not is_hub_name(source):
        raise ValueError(
            "source must be the folder of a Hugging Face model, with config.json, or a name on "
            f"the hub such as 'facebook/esm2_t6_8M_UR50D'; got {str(source)!r}"
        )
    where = str(source)
    common = {
        "local_files_only": not download or is_folder(source),
        "trust_remote_code": trust_remote_code,
        "cache_dir": cache_dir,
    }
    try:
        with _quiet(transformers, download):
            config = transformers.AutoConfig.from_pretrained(where, **common)
            loader = _loader_for(transformers, config)
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, **common)
            model, found = loader.from_pretrained(
                where, dtype=dtype, output_loading_info=True, weights_only=True, **common
            )
    except Exception as problem:  # every kind of file error comes as an exception of its own
        raise ValueError(_said(problem, where, download, trust_remote_code)) from problem
    _check_loaded(found, where)
    return model.eval(), tokenizer


@contextmanager
def _quiet(transformers: Any, download: bool) -> Iterator[None]:
    """Show no bar unless something is fetched: reading a file is no work to watch."""
    bars = transformers.utils.logging
    was_shown = bars.is_progress_bar_enabled() and not download
    if was_shown:
        bars.disable_progress_bar()
    try:
        yield
    finally:
        if was_shown:
            bars.enable_progress_bar()


def _loader_for(transformers: Any, config: Any) -> Any:
    """Return the class that builds the model with its language-model head."""
    names = [str(name) for name in getattr(config, "architectures", None) or []]
    if any(name.endswith("ForMaskedLM") for name in names):
        return transformers.AutoModelForMaskedLM
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        return transformers.AutoModelForCausalLM
    return transformers.AutoModel


def _check_loaded(found: Any, source: str) -> None:
    """Refuse a model some of whose weights stayed random."""
    for what, key in (("lack", "missing_keys"), ("have another shape for", "mismatched_keys")):
        names = sorted(str(name) for name in found.get(key, ()))
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ValueError(
                f"the weights in {source!r} do not match the model: they {what} {names[0]}{more}"
            )


def _said(problem: Exception, source: str, download: bool, trusted: bool) -> str:
    """Say in one line why a model could not be loaded."""
    said = " ".join(str(problem).split())
    if not trusted and "trust_remote_code" in said:
        return (
            f"the model in {source!r} needs code that comes with it; if you trust that code, pass "
            "trust_remote_code=True"
        )
    if is_hub_name(source) and not download and isinstance(problem, OSError):
        return (
            f"no whole copy of {source!r} is on this machine, and nothing is fetched unless it "
            "is asked for: pass download=True (--download on the command line)"
        )
    return f"the model in {source!r} cannot be loaded: {said[:300]}"
