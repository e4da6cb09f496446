"""A forest law on a torch device: exact samples, log-probabilities and rows, thousands at a time.

The library's ``ForestLaw`` answers one state after another in compiled code; here a whole batch
goes through every message at once, so that training samples and exact rows are made where the
network is. Positions are taken in breadth-first numbers, parents before children.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import counterprobe as cp
from counterprobe.graph import root_forest

__all__ = ["ForestTruth"]


class ForestTruth:
    """``P(x) = prod unary_i(x_i) prod pair_e(x_i, x_j) / Z`` on a forest.

    Parameters
    ----------
    unary : ndarray of float, shape (N, V)
        Positive weights.
    edges : ndarray of int, shape (E, 2)
    pair : ndarray of float, shape (E, V, V)
        ``pair[e, a, b]`` at ``x_i = a, x_j = b`` for ``edges[e] = (i, j)``.
    device : optional
    """

    def __init__(
        self, unary: np.ndarray, edges: np.ndarray, pair: np.ndarray, device: object = "cpu"
    ) -> None:
        self.edges = np.asarray(edges, dtype=np.int64)
        self._weights = (unary, self.edges, pair)
        self.length, self.vocab_size = unary.shape
        self.device = torch.device(device)
        forest = root_forest(self.length, self.edges)
        self._parent = forest.parent.tolist()
        self._number = torch.as_tensor(forest.index.copy(), device=self.device)
        self._position = torch.as_tensor(forest.order.copy(), device=self.device)
        self._unary = torch.as_tensor(unary, dtype=torch.float64, device=self.device)[
            self._position
        ]
        tables = np.ones((self.length, self.vocab_size, self.vocab_size))
        for number, (parent, edge) in enumerate(
            zip(self._parent, forest.parent_edge.tolist(), strict=True)
        ):
            if parent >= 0:
                is_turned = self.edges[edge, 0] == forest.order[number]
                tables[number] = pair[edge].T if is_turned else pair[edge]
        # Entry [number, value of its parent, own value]; ones at a root.
        self._tables = torch.as_tensor(tables, device=self.device)
        self._set_chain()

    def forest_law(self) -> cp.ForestLaw:
        """Return the law with its exact oracle."""
        return cp.ForestLaw(*self._weights)

    def _set_chain(self) -> None:
        """Write the law as one conditional table a position, given its parent."""
        nothing_known = torch.full((1, self.length), -1, device=self.device)
        belief, _, log_weight = self._upward(nothing_known)
        self._log_partition = float(log_weight[0])
        chain = self._tables * belief[0][:, None, :]
        chain /= chain.sum(dim=2, keepdim=True)
        self._log_chain = chain.log()
        self._cumulative = chain.cumsum(dim=2)
        # A root has the same row whatever stands at its "parent", which is itself.
        self._given = torch.tensor(
            [max(parent, 0) for parent in self._parent], device=self.device, dtype=torch.int64
        )

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw ``count`` sequences, root to leaf; int64, shape (count, N)."""
        uniforms = torch.rand(
            (self.length, count, 1), generator=generator, device=self.device, dtype=torch.float64
        )
        tokens = torch.zeros((self.length, count), dtype=torch.int64, device=self.device)
        for number, given in enumerate(self._given.tolist()):
            below = self._cumulative[number][tokens[given]] <= uniforms[number]
            tokens[number] = below.sum(dim=1).clamp_(max=self.vocab_size - 1)
        return tokens[self._number].T.contiguous()

    def log_prob(self, tokens: Tensor) -> Tensor:
        """Return the exact log-probability of complete sequences, shape (B,)."""
        x = tokens[:, self._position]
        every = torch.arange(self.length, device=self.device)
        return self._log_chain[every, x[:, self._given], x].sum(dim=1)

    def rows(self, states: Tensor) -> Tensor:
        """Return the exact conditional row of every position, shape (B, N, V); -1 is masked."""
        return self.rows_and_evidence(states)[0]

    def rows_and_evidence(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows, and the log-probability of what each state shows."""
        belief, upward, log_weight = self._upward(states)
        for number, parent in enumerate(self._parent):
            if parent >= 0:
                without = belief[:, parent] / upward[:, number]
                downward = without @ self._tables[number]
                belief[:, number] *= downward / downward.sum(dim=1, keepdim=True)
        belief /= belief.sum(dim=2, keepdim=True)
        return belief[:, self._number], log_weight - self._log_partition

    def _upward(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Send messages from leaf to root: beliefs, messages, and the log of the weights' sum."""
        shown = states[:, self._position, None]
        tokens = torch.arange(self.vocab_size, device=self.device)
        belief = self._unary * ((shown == tokens) | (shown < 0))
        upward = torch.ones_like(belief)
        log_weight = torch.zeros(len(states), dtype=torch.float64, device=self.device)
        for number in range(self.length - 1, -1, -1):
            parent = self._parent[number]
            if parent < 0:
                log_weight += belief[:, number].sum(dim=1).log()
                continue
            message = belief[:, number] @ self._tables[number].T
            # Each message sums to one: products over many leaves stay far from underflow.
            scale = message.sum(dim=1, keepdim=True)
            upward[:, number] = message / scale
            belief[:, parent] *= upward[:, number]
            log_weight += scale[:, 0].log()
        return belief, upward, log_weight
