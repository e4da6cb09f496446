"""Compressed screens that a test takes apart, step by step."""

from collections.abc import Generator
from typing import Any, TypeVar

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings
from counterprobe.discovery.compressed.screen import _CompressedScreen
from counterprobe.run import Preprocess

T = TypeVar("T")


class Screen(_CompressedScreen):
    """A screen that has read the all-mask rows and nothing else, with the run that it asks."""

    def __init__(self, run: cp.run.Run, **settings: object) -> None:
        rng, rows = cp.Streams.from_seed(1).decisions, run.do(Preprocess())
        super().__init__(run, rng, CompressedSettings(**settings), rows)
        self.asks = run

    def now(self, requests: Generator[Any, Any, T]) -> T:
        """Take one of its steps to the end."""
        return self.asks.alone(self.asks.follow(requests))
