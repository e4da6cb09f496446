"""An algorithm for SGLang's diffusion language models that draws by the rules of this library.

Untested on the real server, whose stack needs CUDA and was not to be had: written by the published
signatures of 0.5.23 (``DllmAlgorithm.step(forward_batch, logits, states)`` edits ``input_ids`` in
place and says which blocks were done before it) and tested with a stand-in of them.

SGLang calls :func:`register` through the entry-point group ``sglang.srt.plugins`` that the package
declares; then ``--dllm-algorithm Counterprobe`` names it, and the file of
``--dllm-algorithm-config`` holds ``sampler``, ``settings``, ``temperature``, ``seed`` and
``never_drawn``. It hands over the logits of its own forwards, so that rules which probe are
refused when the server starts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.extras import load_extra
from counterprobe.integrations.blocks import DrawnIds, SteppedBlock
from counterprobe.integrations.stepping import require_rows_alone
from counterprobe.samplers.registry import build_sampler
from counterprobe.streams import Streams

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "an algorithm of SGLang", package="PyTorch")

__all__ = ["NAME", "algorithm", "register"]

NAME = "Counterprobe"
KNOWN = ("sampler", "settings", "temperature", "seed", "never_drawn")


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
            self._temperature = float(told.get("temperature", 1.0))
            self._never_drawn = [int(one) for one in told.get("never_drawn", ())]
            self._seed = int(told.get("seed", 0))
            self._num_blocks = 0
            self._drawn: DrawnIds | None = None

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
                    states[k] = self._begin(blocks[k])
                places, ids, _ = states[k].step(logits[k])
                # In place: graphs that were captured read this very tensor.
                here = torch.as_tensor(places, device=blocks.device)
                blocks[k, here] = torch.as_tensor(ids, device=blocks.device, dtype=blocks.dtype)
            return list(is_done)

        def _begin(self, block: Any) -> SteppedBlock:
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
                temperature=self._temperature,
                name="SGLang",
            )

    return Counterprobe
