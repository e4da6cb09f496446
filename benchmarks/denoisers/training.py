"""Training a denoiser: fresh samples of the law, random masks, cross-entropy at what is masked.

The share of masked positions is uniform over [0, 1], so that every number of masks is equally
likely: the rows of any order of unmasking are trained alike (Uria, Murray and Larochelle 2014;
Hoogeboom et al. 2022). Shares are spread evenly within a batch, which lowers the variance of the
loss (Kingma et al. 2021).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from denoisers.laws import Truth
from denoisers.network import Denoiser, Shape

__all__ = ["FULL", "TINY", "Progress", "Settings", "masked_loss", "train"]

# Batches drawn from the law in one go: a draw is one step a position whatever its size.
BATCHES_A_DRAW = 32


@dataclass(frozen=True, slots=True)
class Settings:
    """How a denoiser is trained.

    Parameters
    ----------
    steps, batch_size : int
    learning_rate : float
        Highest value: reached after ``warmup`` steps, then a cosine down to zero.
    warmup : int
    weight_decay, clip : float
        Of AdamW; the largest norm of a gradient.
    width, layers, heads : int
        Of the network.
    seed : int
        Of its first weights, the samples and the masks.
    """

    steps: int = 6_000
    batch_size: int = 2_048
    learning_rate: float = 2e-3
    warmup: int = 300
    weight_decay: float = 0.01
    clip: float = 1.0
    width: int = 128
    layers: int = 4
    heads: int = 4
    seed: int = 0

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.learning_rate * min(1.0, (step + 1) / self.warmup) * cosine


FULL = Settings()
# Seconds on a processor, for laws of 8 positions.
TINY = Settings(steps=300, batch_size=256, learning_rate=1e-2, warmup=20, width=32, layers=2)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where training stands: the step, its loss in nats a masked token, and seconds so far."""

    step: int
    loss: float
    seconds: float


def train(
    truth: Truth, settings: Settings, tell: Callable[[Progress], None] | None = None
) -> Denoiser:
    """Train a denoiser on samples of a law, on the law's device.

    Parameters
    ----------
    truth : Truth
    settings : Settings
    tell : callable, optional
        Called a dozen times on the way.
    """
    device = truth.device
    shape = Shape(truth.length, truth.vocab_size, settings.width, settings.layers, settings.heads)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        network = Denoiser(shape).to(device).train()
    optimizer = torch.optim.AdamW(
        network.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        betas=(0.9, 0.98),
        fused=device.type == "cuda",
    )
    generator = torch.Generator(device).manual_seed(settings.seed)
    started = time.perf_counter()
    for step, tokens in enumerate(fresh_batches(truth, settings, generator)):
        for group in optimizer.param_groups:
            group["lr"] = settings.rate_at(step)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            loss = masked_loss(network, tokens, generator)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
        optimizer.step()
        if tell is not None and (step + 1) % max(1, settings.steps // 12) == 0:
            tell(Progress(step + 1, loss.item(), time.perf_counter() - started))
    return network.eval()


def fresh_batches(
    truth: Truth, settings: Settings, generator: torch.Generator
) -> Iterator[Tensor]:
    """Yield one batch a step, none of them twice."""
    for first in range(0, settings.steps, BATCHES_A_DRAW):
        count = min(BATCHES_A_DRAW, settings.steps - first)
        yield from truth.sample(count * settings.batch_size, generator).split(settings.batch_size)


def masked_loss(network: Denoiser, tokens: Tensor, generator: torch.Generator) -> Tensor:
    """Mask at random and return the mean cross-entropy of what is masked."""
    count = len(tokens)
    offset = torch.rand(1, generator=generator, device=tokens.device)
    share = (torch.arange(count, device=tokens.device) / count + offset) % 1.0
    masked = torch.rand(tokens.shape, generator=generator, device=tokens.device) < share[:, None]
    logits = network(torch.where(masked, network.mask_id, tokens)).float()
    # Mapping what is shown to "ignore" keeps shapes fixed, which a boolean index would not.
    wanted = torch.where(masked, tokens, -100)
    return nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-100)
