"""An exact oracle that also says where it looked: attention that a test decides."""

from dataclasses import replace

import numpy as np

from counterprobe.oracles import Oracle, Query, Reply, Wrapper


class AttentiveLaw(Wrapper):
    """A law's oracle with attention ``weights`` of shape (N, N), alike for every state.

    Attributes
    ----------
    states : int
        States that were asked about so far.
    calls : list of int
        The layers of each call with attention.
    """

    def __init__(self, inner: Oracle, weights: np.ndarray, **declared) -> None:
        super().__init__(inner)
        self.weights = weights
        self.declared = {
            "offers_attention": True, "trusted": False, "keeps_work": False, **declared
        }  # fmt: skip
        self.states = 0
        self.calls: list[int] = []

    @property
    def info(self):
        return replace(self.inner.info, **self.declared)

    def attention_of(self, states: np.ndarray) -> np.ndarray:
        return np.tile(self.weights, (len(states), 1, 1))

    def ask(self, query: Query) -> Reply:
        self.states += len(query.states)
        rows = self.inner.ask(query).rows
        if query.attention_layers is None:
            return Reply(rows)
        self.calls.append(query.attention_layers)
        return Reply(rows, self.attention_of(query.states))
