"""Training of the masked models and of the left-to-right judge, for a stated number of seconds.

All are Llamas of transformers; a masked one attends to both sides. Its loss is the bound of masked
diffusion: each block has a share t of its tokens masked, t spread evenly over a batch, and the
cross-entropy of what is masked is weighed by 1 / t. The judge's is next-token cross-entropy; of
either the weights with the least held-out loss are kept, since small texts are learned by heart.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from languages.text import BLOCK, Corpus, blocks_of

__all__ = ["SIZES", "Size", "build", "held_out_loss", "save", "train"]

LEAST_SHARE = 0.02
HELD_BLOCKS = 128
# Over which the learning rate rises.
WARM_STEPS = 200


@dataclass(frozen=True)
class Size:
    """A network and how it is trained.

    Attributes
    ----------
    width, layers, heads, inner : int
        Of the network.
    batch : int
        Blocks a step.
    rate : float
        The largest learning rate.
    dropout : float
        Of attention.
    parts : tuple of str
        The texts it learns.
    share : float
        Of blocks from the first of them, which is the one it is judged by.
    is_judge : bool
        Whether it reads from left to right.
    """

    width: int
    layers: int
    heads: int
    inner: int
    batch: int
    rate: float
    parts: tuple[str, ...]
    share: float = 1.0
    dropout: float = 0.0
    is_judge: bool = False


SIZES = {
    "small": Size(176, 4, 4, 448, 256, 3e-3, ("python",)),
    "large": Size(384, 8, 6, 1024, 128, 1.5e-3, ("python", "linux"), 0.7),
    "judge": Size(384, 8, 6, 1024, 128, 1e-3, ("python", "linux"), 0.4, 0.1, True),
    "tiny": Size(32, 2, 2, 64, 8, 3e-3, ("python", "linux"), 0.5),
    "tiny-judge": Size(32, 2, 2, 64, 8, 3e-3, ("python",), 1.0, 0.1, True),
}


def build(size: Size, corpus: Corpus) -> Any:
    """Return a network with random weights."""
    config = transformers.LlamaConfig(
        vocab_size=len(corpus.tokenizer),
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=BLOCK,
        attention_dropout=size.dropout,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=corpus.tokenizer.eos_token_id,
        use_cache=False,
    )
    if not size.is_judge:
        config.is_causal = False
        config.mask_token_id = corpus.tokenizer.mask_token_id
    return transformers.LlamaForCausalLM(config)


def train(
    size: Size, corpus: Corpus, *, seconds: float, device: str, seed: int, least_steps: int = 0
) -> tuple[Any, dict[str, Any]]:
    """Train for some seconds, or longer until some steps are made.

    Returns
    -------
    network : LlamaForCausalLM
    record : dict
        What there is to say of it.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    network = build(size, corpus).to(device)
    texts = [corpus.parts[part] for part in size.parts]
    first = len(texts[0])
    tokens = torch.as_tensor(np.concatenate(texts).astype(np.int64), device=device)
    held = torch.as_tensor(blocks_of(corpus.parts["held"], HELD_BLOCKS, 1), device=device)
    decayed = [p for p in network.parameters() if p.ndim > 1]
    others = [p for p in network.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=size.rate,
        betas=(0.9, 0.95),
        fused=device.startswith("cuda"),
    )
    best, kept, curve = math.inf, None, []
    started, step, looked = time.perf_counter(), 0, 0.0
    reach = torch.arange(BLOCK, device=device)
    network.train()
    while True:
        share = (time.perf_counter() - started) / seconds
        if least_steps:
            share = min(share, step / least_steps)
        if share >= 1:
            break
        warm = min(1.0, (step + 1) / (least_steps // 4 or WARM_STEPS))
        for group in optimizer.param_groups:
            group["lr"] = size.rate * warm * max(0.02, 0.5 * (1 + math.cos(math.pi * share)))
        starts = torch.as_tensor(_starts(rng, first, len(tokens), size), device=device)
        loss = _loss(network, tokens[starts[:, None] + reach], size, corpus, device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        step += 1
        if share - looked > 0.1:
            looked = share
            found = held_out_loss(network, held, size, corpus, device)
            curve.append((step, round(found, 4)))
            if size.is_judge and found < best:
                best = found
                kept = {k: v.detach().clone() for k, v in network.state_dict().items()}
    found = held_out_loss(network, held, size, corpus, device)
    if kept is not None and best < found:
        network.load_state_dict(kept)
        found = best
    return network.eval(), {
        "parameters": sum(p.numel() for p in network.parameters()),
        "steps": step,
        "tokens_seen": step * size.batch * BLOCK,
        "tokens_of_text": len(tokens),
        "seconds": round(time.perf_counter() - started, 1),
        "held_out_nats": round(found, 4),
        "curve": curve,
    }


def _starts(rng: np.random.Generator, first: int, total: int, size: Size) -> np.ndarray:
    """Return where the blocks of a batch begin: in the first text with the share that is asked."""
    in_first = rng.integers(0, first - BLOCK, size.batch)
    if total == first:
        return in_first
    beyond = rng.integers(first, total - BLOCK, size.batch)
    return np.where(rng.random(size.batch) < size.share, in_first, beyond)


def _loss(network: Any, blocks: torch.Tensor, size: Size, corpus: Corpus, device: str) -> Any:
    """Return the loss of one batch, in nats a token."""
    with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
        if size.is_judge:
            logits = network(blocks[:, :-1]).logits
            flat = logits.float().reshape(-1, logits.shape[-1])
            return torch.nn.functional.cross_entropy(flat, blocks[:, 1:].reshape(-1))
        shares = (torch.rand(1, device=device) + torch.arange(len(blocks), device=device)) % len(
            blocks
        )
        shares = LEAST_SHARE + (1 - LEAST_SHARE) * shares / len(blocks)
        masked = torch.rand(blocks.shape, device=device) < shares[:, None]
        shown = torch.where(masked, corpus.tokenizer.mask_token_id, blocks)
        logits = network(shown).logits
        flat = logits.float().reshape(-1, logits.shape[-1])
        # Of every place, weighed by nothing where it is shown: the host never waits for a count.
        losses = torch.nn.functional.cross_entropy(flat, blocks.reshape(-1), reduction="none")
        weights = (masked / shares[:, None]).reshape(-1)
        return (losses * weights).sum() / blocks.numel()


@torch.no_grad()
def held_out_loss(
    network: Any, held: torch.Tensor, size: Size, corpus: Corpus, device: str
) -> float:
    """Return the loss of held-out blocks, in nats a token; always with the same masks."""
    was = network.training
    network.eval()
    state = torch.random.get_rng_state()
    on_device = torch.cuda.get_rng_state() if device.startswith("cuda") else None
    torch.manual_seed(7)
    pieces = [_loss(network, part, size, corpus, device).item() for part in held.split(64)]
    torch.random.set_rng_state(state)
    if on_device is not None:
        torch.cuda.set_rng_state(on_device)
    network.train(was)
    return float(np.mean(pieces))


def save(network: Any, corpus: Corpus, folder: Path) -> None:
    """Write a folder that ``counterprobe`` and transformers load, weights in half precision."""
    network.half().save_pretrained(folder)
    corpus.tokenizer.save_pretrained(folder)
    network.float()
