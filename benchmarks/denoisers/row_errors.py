"""How far a denoiser's rows are from the law's, at several shares of masked positions."""

from __future__ import annotations

import torch

from denoisers.laws import Truth
from denoisers.network import Denoiser

__all__ = ["MASK_RATES", "row_errors"]

MASK_RATES = (1.0, 0.9, 0.5, 0.2, 0.05)


def row_errors(
    network: Denoiser, truth: Truth, *, count: int = 2_000, seed: int = 1
) -> list[dict[str, float]]:
    """Compare rows on fresh samples of the law, masked at random.

    Returns
    -------
    list of dict
        One a mask rate: mean, 95th percentile and largest total variation, and mean
        ``KL(learned || exact)`` in nats, over all masked rows.
    """
    generator = torch.Generator(truth.device).manual_seed(seed)
    tokens = truth.sample(count, generator)
    found = []
    for rate in MASK_RATES:
        draws = torch.rand(tokens.shape, generator=generator, device=truth.device)
        masked = draws < rate
        states = torch.where(masked, -1, tokens)
        exact = truth.rows(states)[masked].cpu()
        learned = network.log_rows(states)[masked].cpu()
        variation = (exact - learned.exp()).abs().sum(dim=1) / 2
        divergence = (learned.exp() * (learned - exact.log())).sum(dim=1)
        found.append(
            {
                "mask_rate": rate,
                "tv_mean": float(variation.mean()),
                "tv_p95": float(variation.sort().values[int(0.95 * (len(variation) - 1))]),
                "tv_max": float(variation.max()),
                "kl_mean": float(divergence.mean()),
            }
        )
    return found
