"""An exact oracle that also says where it looked: attention that a test decides."""

from dataclasses import replace

import numpy as np

from counterprobe.oracles import Attends, AttentionQuery, Oracle, Query, Reply, Wrapper


class AttentiveLaw(Wrapper):
    """A law's oracle with attention ``weights`` of shape (N, N), alike for every state.

    Attributes
    ----------
    states : int
        States that were asked about so far.
    calls : list of int
        The layers of each call with attention.
    """

    def __init__(self, inner: Oracle, weights: np.ndarray, *, attends=True, **declared) -> None:
        super().__init__(inner)
        self.weights = weights
        self.declared = {"trusted": False, **declared}
        self.attends = attends
        self.states = 0
        self.calls: list[int] = []

    @property
    def info(self):
        return replace(self.inner.info, **self.declared)

    def ability(self, kind):
        return self if kind is Attends and self.attends else None

    def attend(self, states, readouts, layers):
        self.calls.append(layers)
        return self.inner.rows(states, readouts), self.attention_of(states)

    def attention_of(self, states: np.ndarray) -> np.ndarray:
        return np.tile(self.weights, (len(states), 1, 1))

    def ask(self, query: Query) -> Reply:
        self.states += len(query.states)
        return query.put_to(self) if isinstance(query, AttentionQuery) else self.inner.ask(query)
