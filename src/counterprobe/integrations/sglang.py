"""An algorithm for SGLang's diffusion language models that draws by the rules of this library.

Untested on the real server, whose stack needs CUDA and was not to be had: written by the published
signatures of 0.5.23 (``DllmAlgorithm.step(forward_batch, logits, states)`` edits ``input_ids`` in
place and says which blocks were done before it) and tested with a stand-in of them.

SGLang calls :func:`register` through the entry-point group ``sglang.srt.plugins`` that the package
declares; then ``--dllm-algorithm Counterprobe`` names it, and the file of
``--dllm-algorithm-config`` holds ``sampler``, ``settings``, ``temperature``, ``seed`` and
``never_drawn``. It hands over the logits of its own forwards, so that rules which probe are
refused when the server starts. Without a ``temperature`` there, that of each request holds; a
request that asks for top-k, a penalty, a grammar or anything else that rows would have to be
changed for is refused.
"""

from __future__ import annotations

import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.extras import load_extra
from counterprobe.integrations.blocks import DrawnIds, SteppedBlock, require_rows_alone
from counterprobe.samplers.registry import build_sampler
from counterprobe.streams import Streams

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "an algorithm of SGLang", package="PyTorch")

__all__ = ["NAME", "algorithm", "register"]

NAME = "Counterprobe"
KNOWN = ("sampler", "settings", "temperature", "seed", "never_drawn")
# Parameters of a request that are not honoured, with the values that ask for nothing. A top-k of 1
# is how SGLang writes temperature 0.
REQUESTS: dict[str, tuple[Any, ...]] = {
    "top_k": (-1, 1, 1 << 30),
    "top_p": (1,),
    "min_p": (0,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "min_new_tokens": (0,),
    "sampling_seed": (),
    "logit_bias": ({},),
    "json_schema": (),
    "regex": (),
    "ebnf": (),
    "structural_tag": (),
}


def register() -> None:
    """Make the algorithm known to SGLang; its plugins' entry point."""
    package = importlib.import_module("sglang.srt.dllm.algorithm")
    base = importlib.import_module("sglang.srt.dllm.algorithm.base").DllmAlgorithm
    package.algo_name_to_cls[NAME] = algorithm(base)


def algorithm(base: Any) -> Any:
    """Return the algorithm as a subclass of SGLang's own.

    Parameters
    ----------
    base : type
        ``sglang.srt.dllm.algorithm.base.DllmAlgorithm``.
    """

    class Counterprobe(base):  # type: ignore[misc]
        """Fill in blocks by a rule of counterprobe."""

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            told = dict(config.algorithm_config or {})
            unknown = sorted(set(told) - set(KNOWN))
            if unknown:
                raise ValueError(
                    f"the algorithm's settings are {', '.join(KNOWN)}; got {unknown[0]!r}"
                )
            self._rule = build_sampler(
                told.get("sampler", "entropy-bounded"), told.get("settings")
            )
            require_rows_alone(self._rule, "SGLang")
            given = told.get("temperature")
            self._temperature = None if given is None else float(given)
            if not 0 <= (self._temperature or 0) < math.inf:
                raise ValueError(f"temperature must be at least 0 and finite, got {given!r}")
            self._never_drawn = [int(one) for one in told.get("never_drawn", ())]
            self._seed = int(told.get("seed", 0))
            self._num_blocks = 0
            self._drawn: DrawnIds | None = None

        @classmethod
        def validate_request(cls, req: Any) -> str | None:
            """Return why a request is refused; None for one that is served."""
            for name, without in REQUESTS.items():
                value = getattr(req.sampling_params, name, None)
                if value not in (None, *without):
                    return (
                        f"{name} must be left out, got {value!r}: {NAME} draws from rows as they "
                        "are; where the checkpoint sets it, start the server with "
                        "--sampling-defaults openai"
                    )
            return None

        def step(self, forward_batch: Any, logits_output: Any, states: list[Any]) -> list[bool]:
            """Fill in what the rule chooses; return which blocks had no mask before that.

            A block is done a forward after its last mask was filled in: that forward has seen
            every id, and what attention keeps of the block is of the finished text.
            """
            logits = getattr(logits_output, "full_logits", logits_output)
            count = forward_batch.batch_size
            blocks = forward_batch.input_ids.view(count, self.block_size)
            logits = logits.view(count, self.block_size, logits.shape[-1])
            if self._drawn is None:
                self._drawn = DrawnIds(int(logits.shape[-1]), self.mask_id, self._never_drawn)
            is_done = (~(blocks == self.mask_id).any(dim=1)).tolist()
            for k in range(count):
                if is_done[k]:
                    continue
                if states[k] is None:
                    states[k] = self._begin(blocks[k], self._temperature_of(forward_batch, k))
                places, ids, _ = states[k].step(logits[k])
                # In place: graphs that were captured read this very tensor.
                here = torch.as_tensor(places, device=blocks.device)
                blocks[k, here] = torch.as_tensor(ids, device=blocks.device, dtype=blocks.dtype)
            return list(is_done)

        def _temperature_of(self, forward_batch: Any, k: int) -> float:
            """Return the server's temperature, or that of the k-th request where it has none."""
            info = getattr(forward_batch, "sampling_info", None)
            if self._temperature is not None or info is None:
                return 1.0 if self._temperature is None else self._temperature
            return 0.0 if int(info.top_ks[k]) == 1 else float(info.temperatures[k])

        def _begin(self, block: Any, temperature: float) -> SteppedBlock:
            """Start the run of a block, with seeds of its own."""
            source = np.random.SeedSequence(self._seed, spawn_key=(self._num_blocks,))
            decision, commit = source.generate_state(2, np.uint32)
            self._num_blocks += 1
            assert self._drawn is not None
            return SteppedBlock(
                self._rule,
                block.detach().cpu().numpy().astype(np.int64),
                self._drawn,
                Streams(int(decision), int(commit)),
                temperature=temperature,
                name="SGLang",
            )

    return Counterprobe
