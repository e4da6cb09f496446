"""An exact oracle that also says where it looked: attention that a test decides."""

from dataclasses import dataclass, field

import numpy as np

from counterprobe.oracles import Oracle, Readouts


@dataclass
class AttentiveLaw:
    """A law's oracle with attention ``weights`` of shape (N, N), alike for every state.

    Attributes
    ----------
    states : int
        States that were asked about so far.
    calls : list of int
        The layers of each call with attention.
    """

    inner: Oracle
    weights: np.ndarray
    offers_attention: bool = True
    trusted: bool = False
    states: int = 0
    calls: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.length, self.vocab_size = self.inner.length, self.inner.vocab_size
        self.row_error, self.name = self.inner.row_error, self.inner.name

    def rows(self, states, readouts: Readouts):
        self.states += len(states)
        return self.inner.rows(states, readouts)

    def attended_rows(self, states, readouts: Readouts, num_layers: int):
        self.calls.append(num_layers)
        return self.rows(states, readouts), np.tile(self.weights, (len(states), 1, 1))
