"""A denoiser as the oracle that samplers ask: evaluated on its device, rows handed to the host.

Rules that adapt look at a few rows of one sequence at a time; with 16 tokens a row that is much
quicker in NumPy than as a stream of tiny kernels on a device.
"""

from __future__ import annotations

import numpy as np

from counterprobe.models import TorchOracle
from counterprobe.oracles import Readouts
from counterprobe.rows import DenseRows
from denoisers.files import Trained

__all__ = ["DenoiserOracle"]

# Generously what rounding does to rows in batches of another size; measuring it would cost calls.
ROUNDING = 1e-4


class DenoiserOracle:
    """The rows of a denoiser in double precision.

    Parameters
    ----------
    trained : Trained
    batch_size : int, optional
        The most states in one call.
    """

    trusted = True
    row_error = ROUNDING

    def __init__(self, trained: Trained, batch_size: int | None = None) -> None:
        self.name = f"denoiser of {trained.law}"
        self.inner = TorchOracle(
            trained.network,
            length=trained.truth.length,
            mask_id=trained.network.mask_id,
            batch_size=batch_size,
            row_error=ROUNDING,
            device=trained.truth.device,
            name=self.name,
        )
        self.length, self.vocab_size = trained.truth.length, trained.truth.vocab_size

    def rows(self, states: np.ndarray, readouts: Readouts) -> DenseRows:
        """Evaluate the states and return one row per readout."""
        rows = self.inner.rows(states, readouts).dense().double()
        return DenseRows((rows / rows.sum(dim=1, keepdim=True)).cpu().numpy())
