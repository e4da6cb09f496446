"""A hidden topic: a mixture of forest laws, where rows follow from Bayes over the topics.

With much revealed the topic is settled and only the forest's edges are left to see; with
everything masked it joins all positions. That is what a dependence graph cannot say.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from denoisers.forest import ForestTruth

__all__ = ["TopicTruth"]


class TopicTruth:
    """Equally likely topics, a forest law each, all on the same edges.

    Parameters
    ----------
    topics : list of ForestTruth
    """

    def __init__(self, topics: list[ForestTruth]) -> None:
        self.topics = topics
        self.length, self.vocab_size = topics[0].length, topics[0].vocab_size
        self.edges, self.device = topics[0].edges, topics[0].device

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw ``count`` sequences: a topic each, then its law; int64, shape (count, N)."""
        chosen = torch.randint(len(self.topics), (count,), generator=generator, device=self.device)
        tokens = torch.empty((count, self.length), dtype=torch.int64, device=self.device)
        for k, topic in enumerate(self.topics):
            mine = (chosen == k).nonzero()[:, 0]
            tokens[mine] = topic.sample(len(mine), generator)
        return tokens

    def log_prob(self, tokens: Tensor) -> Tensor:
        """Return the exact log-probability of complete sequences, shape (B,)."""
        by_topic = torch.stack([topic.log_prob(tokens) for topic in self.topics])
        return by_topic.logsumexp(dim=0) - math.log(len(self.topics))

    def rows(self, states: Tensor) -> Tensor:
        """Return the exact conditional row of every position, shape (B, N, V); -1 is masked."""
        answers = [topic.rows_and_evidence(states) for topic in self.topics]
        rows = torch.stack([rows for rows, _ in answers])
        posterior = torch.stack([evidence for _, evidence in answers]).softmax(dim=0)
        return (posterior[:, :, None, None] * rows).sum(dim=0)
