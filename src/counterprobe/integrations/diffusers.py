"""A scheduler of diffusers that draws by the rules of this library.

``LLaDA2Pipeline(model, UnmaskingScheduler("entropy-bounded"), tokenizer)`` runs the pipeline's
own loop, block by block; after each of its forwards the scheduler is handed the logits of one
block and says what to fill in. So every rule that reads rows fits, and every plan; rules that
would ask the model about other states are refused when the scheduler is made.

Each block is a run of its own with seeds drawn from the pipeline's ``generator``: the text is the
one that ``sample`` draws with those seeds, the same rule and that block masked, and row k of a
batch is sequence k. A scheduler sees no prompts, so that noise depends on seeds and rows alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.extras import load_extra
from counterprobe.integrations.blocks import DrawnIds, SteppedBlock, require_rows_alone
from counterprobe.models.template import Template
from counterprobe.run.ledger import Ledger
from counterprobe.samplers.base import Sampler
from counterprobe.samplers.registry import build_sampler
from counterprobe.streams import Streams

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "diffusers", "UnmaskingScheduler", package="PyTorch")
_diffusers = load_extra("diffusers", "diffusers", "UnmaskingScheduler")
_scheduling = load_extra(
    "diffusers.schedulers.scheduling_block_refinement", "diffusers", "UnmaskingScheduler"
)
_Scheduler: Any = _scheduling.BlockRefinementScheduler

__all__ = ["BlockRecord", "UnmaskingScheduler"]

# What the pipeline passes where its caller says nothing.
PIPELINE_DEFAULTS = {"threshold": 0.7, "minimal_topk": 1}


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """What was done for one block of every sequence.

    Attributes
    ----------
    streams : Streams
        Its seeds.
    template : Template
        The block of the first sequence as the rule saw it: tokens are those that may be drawn.
    ledgers : tuple of Ledger
        One a sequence, each with a commit for every round it took part in.
    """

    streams: Streams
    template: Template
    ledgers: tuple[Ledger, ...]


class UnmaskingScheduler(_Scheduler):  # type: ignore[misc]
    """Fill in blocks by a rule of this library.

    Parameters
    ----------
    sampler : str
        ``counterprobe samplers`` lists them; those that read rows or plan.
    settings : mapping, optional
        Of the sampler: ``{"gamma": 0.3}``.
    never_drawn : list of int, optional
        Ids that are never drawn, beside the mask: ``tokenizer.all_special_ids``, without the end
        of text where answers may end early.
    seed : int
        Where a pipeline is called without a ``generator``.
    rule : Sampler, optional
        In place of a name: a plan such as ``samplers.Planned.of(structure, batches=8)``, whose
        positions are those of a block. It is not saved with the scheduler's settings.
    block_length : int
        As in ``BlockRefinementScheduler``.

    Attributes
    ----------
    evaluations : int
        States that the model was called on since ``set_timesteps``, which pipelines call first.
    blocks : list of BlockRecord
        What was done since then.
    """

    # What cannot be written to a file of settings.
    ignore_for_config = ["rule"]  # noqa: RUF012

    @_diffusers.configuration_utils.register_to_config  # type: ignore[untyped-decorator]
    def __init__(
        self,
        sampler: str = "entropy-bounded",
        settings: Mapping[str, Any] | None = None,
        never_drawn: list[int] | None = None,
        seed: int = 0,
        block_length: int = 32,
        rule: Sampler | None = None,
    ) -> None:
        super().__init__(block_length=block_length)
        if rule is not None and settings:
            raise ValueError("settings go with a sampler's name; the rule has its own")
        self._rule = rule or build_sampler(sampler, settings)
        require_rows_alone(self._rule, "a pipeline of diffusers")
        self._never_drawn = frozenset(int(one) for one in never_drawn or ())
        self._seed = seed
        self._generator: Any = None
        self._block: _Block | None = None
        self._drawn: tuple[tuple[int, int], DrawnIds] | None = None
        self.evaluations = 0
        self._done: list[BlockRecord] = []

    @property
    def rule(self) -> Sampler:
        """What chooses positions."""
        return self._rule

    @property
    def blocks(self) -> list[BlockRecord]:
        """What was done for every block so far."""
        return [*self._done, *([] if self._block is None else [self._block.record])]

    def set_timesteps(
        self, num_inference_steps: int, device: Any = None, block_length: int | None = None
    ) -> None:
        """Start anew; pipelines call it before the first forward.

        The steps are no limit: a rule ends when nothing is masked, and no forward is made after
        that. A block that takes more of them warns.
        """
        super().set_timesteps(num_inference_steps, device=device, block_length=block_length)
        self._generator = torch.Generator().manual_seed(self._seed)
        self._block, self._done, self.evaluations = None, [], 0

    def step(
        self,
        model_output: torch.Tensor,
        timestep: int | torch.Tensor,
        sample: torch.Tensor,
        *,
        mask_token_id: int | None = None,
        temperature: float = 0.0,
        top_p: float | None = None,
        top_k: int | None = None,
        sampling_method: str = "auto",
        threshold: float | None = None,
        editing_threshold: float | None = None,
        minimal_topk: int | None = None,
        prompt_mask: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
        return_dict: bool = True,
    ) -> Any:
        """Fill in what the rule chooses.

        Parameters
        ----------
        model_output : Tensor, shape (B, block_length, W)
            Logits of one block.
        timestep : int or Tensor
            0 begins a block.
        sample : LongTensor, shape (B, block_length)
            Its ids, with masks where a block begins.
        mask_token_id : int
        temperature : float
            Logits are divided by it; 0 takes the likeliest tokens, as ``sampling_method="greedy"``
            does.
        top_p, top_k, editing_threshold
            Refused where they would change something: rows are drawn from as they are, and what
            was filled in stays.
        threshold, minimal_topk
            Of the rule that this one replaces: refused unless they are the pipeline's defaults.
        prompt_mask
            Of use for editing only; not read.
        generator : Generator, optional
            Gives each block its seeds, one number a block.
        return_dict : bool
        """
        if mask_token_id is None:
            raise ValueError("mask_token_id must be given: this rule fills in masks")
        _refuse(top_p, top_k, editing_threshold, self.config.editing_threshold)
        _refuse_pace(threshold=threshold, minimal_topk=minimal_topk)
        if sampling_method not in ("auto", "greedy", "multinomial"):
            raise ValueError(
                "sampling_method must be 'auto', 'greedy' or 'multinomial', got "
                f"{sampling_method!r}"
            )
        if sampling_method == "greedy":
            temperature = 0.0
        self.evaluations += len(sample)
        if int(timestep) == 0 or self._block is None:
            self._begin(sample, mask_token_id, temperature, generator, model_output.shape[-1])
        assert self._block is not None
        filled, transfer, chances = self._block.step(model_output, sample)
        edited = torch.zeros_like(transfer)
        if not return_dict:
            return filled, transfer, edited, filled, chances, model_output
        return _scheduling.BlockRefinementSchedulerOutput(
            prev_sample=filled,
            transfer_index=transfer,
            editing_transfer_index=edited,
            sampled_tokens=filled,
            sampled_probs=chances,
            pred_logits=model_output,
        )

    def check_block_should_continue(
        self,
        step_idx: int,
        masks_remaining: bool,
        editing_enabled: bool,
        editing_transfer_index: Any,
        post_steps: int,
        max_post_steps: int,
        finished: Any,
    ) -> bool:
        """Whether another forward is needed: while a sequence that goes on has masks."""
        if self._block is None:
            return False
        goes_on = self._block.goes_on(finished)
        if goes_on and step_idx == self.num_inference_steps:
            warnings.warn(
                f"a block takes more forwards than num_inference_steps={step_idx}, which is no "
                f"limit for sampler {self._rule.name!r}: its settings say how many it takes",
                stacklevel=2,
            )
        return goes_on

    def _begin(
        self, sample: Any, mask_id: int, temperature: float, generator: Any, width: int
    ) -> None:
        """Start the runs of a block."""
        if not bool((sample == mask_id).any()):
            raise ValueError(
                f"sample must hold masks where a block begins, got none of mask_token_id={mask_id}"
            )
        if self._block is not None:
            self._done.append(self._block.record)
        source = self._generator if generator is None else generator
        where = getattr(source, "device", "cpu")
        number = torch.randint(2**31 - 1, (1,), generator=source, device=where)
        key = (width, mask_id)
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = key, DrawnIds(width, mask_id, self._never_drawn)
        streams = Streams.from_seed(int(number))
        self._block = _Block(self._rule, sample, self._drawn[1], temperature, streams)


class _Block:
    """One block of every sequence."""

    def __init__(
        self, rule: Sampler, sample: Any, drawn: DrawnIds, temperature: float, streams: Streams
    ) -> None:
        self._streams = streams
        ids = np.asarray(sample.detach().cpu().numpy(), dtype=np.int64)
        self._blocks = [
            SteppedBlock(
                rule, row, drawn, streams, sequence=k, temperature=temperature, name="diffusers"
            )
            for k, row in enumerate(ids)
        ]
        self._finished = np.zeros(len(ids), dtype=bool)

    @property
    def record(self) -> BlockRecord:
        """What was done so far."""
        ledgers = tuple(one.ledger for one in self._blocks)
        return BlockRecord(self._streams, self._blocks[0].template, ledgers)

    def goes_on(self, finished: Any) -> bool:
        """Note which sequences have ended; whether any other has masks."""
        self._finished = np.asarray(finished.cpu().numpy(), dtype=bool)
        return any(
            not one.is_complete and not self._finished[k] for k, one in enumerate(self._blocks)
        )

    def step(self, logits: Any, sample: Any) -> tuple[Any, Any, Any]:
        """Return the block with more filled in, where, and how probable that was."""
        filled = sample.clone()
        transfer = torch.zeros_like(sample, dtype=torch.bool)
        chances = torch.zeros(sample.shape, dtype=torch.float32, device=sample.device)
        for k, block in enumerate(self._blocks):
            if block.is_complete or self._finished[k]:
                continue
            places, ids, drawn = block.step(logits[k])
            here = torch.as_tensor(places, device=sample.device)
            filled[k, here] = torch.as_tensor(ids, device=sample.device, dtype=sample.dtype)
            transfer[k, here] = True
            chances[k, here] = torch.as_tensor(drawn).to(chances)
        return filled, transfer, chances


def _refuse_pace(**options: Any) -> None:
    """Refuse what the caller set for the rule that this one replaces."""
    for name, value in options.items():
        if value not in (None, PIPELINE_DEFAULTS[name]):
            raise ValueError(
                f"{name} must be left out, got {value!r}: the scheduler's sampler chooses "
                "positions, such as UnmaskingScheduler('threshold', {'threshold': 0.9})"
            )


def _refuse(top_p: Any, top_k: Any, editing: Any, configured: Any) -> None:
    """Refuse what the rule would not do."""
    if top_p is not None and top_p < 1:
        raise ValueError(f"top_p must be left out, got {top_p!r}: rows are drawn from as they are")
    if top_k is not None and top_k > 0:
        raise ValueError(f"top_k must be left out, got {top_k!r}: rows are drawn from as they are")
    editing = configured if editing is None else editing
    if editing is not None and editing > 0:
        raise ValueError(
            f"editing_threshold must be None, got {editing!r}: what was filled in stays; pass "
            "editing_threshold=None to the pipeline"
        )
