"""A grid law, cycles included, exact by transfer matrices over a frontier of one column.

Sites are taken column by column, top to bottom. A new site touches the one above it and the one to
its left, which are the newest and the oldest of the last ``height`` sites: given those, it is
independent of everything before. So the law is a chain of order ``height`` (sampling and
log-probabilities are table lookups), and rows come from one forward and one backward pass over
tables of ``V ** height`` entries, a site at a time.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

__all__ = ["GridTruth"]

# States whose backward tables are held at once: 64 sites x 1,296 entries are 0.7 MB a state.
STATES_AT_ONCE = 256


class GridTruth:
    """``P(x) = prod unary_i(x_i) prod pair_e(x_i, x_j) / Z`` on a grid of some height.

    Parameters
    ----------
    unary : ndarray of float, shape (N, V)
        Positive weights by site, column by column; N is a multiple of the height.
    left, above : ndarray of float, shape (N, V, V)
        Tables of each site with its left and upper neighbour, ``left[s, neighbour, own]``; not
        read in the first column and the first row.
    height : int
        At least 2.
    position : ndarray of int, shape (N,)
        Where each site stands in a sequence.
    device : optional
    """

    def __init__(
        self,
        unary: np.ndarray,
        left: np.ndarray,
        above: np.ndarray,
        *,
        height: int,
        position: np.ndarray,
        device: object = "cpu",
    ) -> None:
        self.length, self.vocab_size = unary.shape
        if height < 2 or self.length % height:
            raise ValueError(
                f"height must be at least 2 and divide the {self.length} sites, got {height}"
            )
        self.height = height
        self.device = torch.device(device)
        sites = np.arange(self.length)
        has_left, has_above = sites >= height, sites % height > 0
        pairs = [
            *zip(sites[has_left] - height, sites[has_left], strict=True),
            *zip(sites[has_above] - 1, sites[has_above], strict=True),
        ]
        self.edges = np.sort(position[np.array(pairs, dtype=np.int64)], axis=1)
        self._site_at = torch.as_tensor(np.argsort(position), device=self.device)
        self._position = torch.as_tensor(position, device=self.device)

        def tables(given: np.ndarray, is_read: np.ndarray) -> Tensor:
            neutral = np.where(is_read[:, None, None], given, 1.0)
            return torch.as_tensor(neutral, dtype=torch.float64, device=self.device)

        self._unary = torch.as_tensor(unary, dtype=torch.float64, device=self.device)
        self._left, self._above = tables(left, has_left), tables(above, has_above)
        self._set_chain()

    def _set_chain(self) -> None:
        """Write the law as one table a site, given the frontier of the last ``height`` sites."""
        size = self.vocab_size
        beyond = self._backward(self._unary[None])
        chain = torch.empty(
            (self.length, size**self.height, size), dtype=torch.float64, device=self.device
        )
        for site in range(self.length):
            weight = self._weight(site, self._unary[None])  # (1, newest, own)
            ahead = beyond[site].view(1, -1, size, size) * weight[:, None]
            table = self._left[site][:, None, None, :] * ahead
            chain[site] = (table / table.sum(dim=3, keepdim=True)).view(-1, size)
        self._log_chain = chain.log()
        self._cumulative = chain.cumsum(dim=2)

    # ----- What is asked -------------------------------------------------------------------

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw ``count`` sequences, site by site; int64, shape (count, N)."""
        uniforms = torch.rand(
            (self.length, count, 1), generator=generator, device=self.device, dtype=torch.float64
        )
        tokens = torch.empty((self.length, count), dtype=torch.int64, device=self.device)
        frontier = torch.zeros(count, dtype=torch.int64, device=self.device)
        for site in range(self.length):
            below = self._cumulative[site][frontier] <= uniforms[site]
            tokens[site] = below.sum(dim=1).clamp_(max=self.vocab_size - 1)
            frontier = self._pushed(frontier, tokens[site])
        return tokens[self._site_at].T.contiguous()

    def log_prob(self, tokens: Tensor) -> Tensor:
        """Return the exact log-probability of complete sequences, shape (B,)."""
        by_site = tokens[:, self._position]
        total = torch.zeros(len(tokens), dtype=torch.float64, device=self.device)
        frontier = torch.zeros(len(tokens), dtype=torch.int64, device=self.device)
        for site in range(self.length):
            total += self._log_chain[site, frontier, by_site[:, site]]
            frontier = self._pushed(frontier, by_site[:, site])
        return total

    def rows(self, states: Tensor) -> Tensor:
        """Return the exact conditional row of every position, shape (B, N, V); -1 is masked."""
        return torch.cat([self._rows(part) for part in states.split(STATES_AT_ONCE)])

    # ----- Passes over the frontier --------------------------------------------------------

    def _rows(self, states: Tensor) -> Tensor:
        shown = states[:, self._position, None]
        tokens = torch.arange(self.vocab_size, device=self.device)
        weights = self._unary * ((shown == tokens) | (shown < 0))
        beyond = self._backward(weights)
        forward = torch.zeros_like(beyond[0])
        forward[:, 0] = 1.0  # before the first column: one made-up frontier
        rows = torch.empty_like(weights)
        size = self.vocab_size
        for site in range(self.length):
            old = forward.view(len(states), size, -1, size)
            new = torch.einsum("boma,on->bman", old, self._left[site])
            new = new * self._weight(site, weights)[:, None]
            forward = new.reshape(len(states), -1)
            forward = forward / forward.sum(dim=1, keepdim=True)
            rows[:, site] = (forward * beyond[site]).view(len(states), -1, size).sum(dim=1)
        rows /= rows.sum(dim=2, keepdim=True)
        return rows[:, self._site_at]

    def _backward(self, weights: Tensor) -> list[Tensor]:
        """Return for each site what follows it, by the frontier that ends with it.

        Entry s has shape (B, V ** height), the oldest of the frontier first, up to a factor.
        """
        count, size = len(weights), self.vocab_size
        after = torch.ones((count, size**self.height), dtype=torch.float64, device=self.device)
        beyond = [after]
        for site in range(self.length - 1, 0, -1):
            ahead = after.view(count, -1, size, size) * self._weight(site, weights)[:, None]
            after = torch.einsum("bman,on->boma", ahead, self._left[site]).reshape(count, -1)
            after = after / after.max(dim=1, keepdim=True).values
            beyond.append(after)
        return beyond[::-1]

    def _weight(self, site: int, weights: Tensor) -> Tensor:
        """Return a site's own weight times its table with the site above: (B, newest, own)."""
        return self._above[site] * weights[:, site, None, :]

    def _pushed(self, frontier: Tensor, token: Tensor) -> Tensor:
        """Drop the oldest token of each frontier and add the newest."""
        return (frontier * self.vocab_size + token) % self.vocab_size**self.height
