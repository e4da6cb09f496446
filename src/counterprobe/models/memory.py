"""How many states at a time: as many as fit, found by halving when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from counterprobe.errors import OracleError
from counterprobe.extras import load_extra

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["BatchSize", "is_out_of_memory"]

logger = logging.getLogger("counterprobe")
T = TypeVar("T")

# What PyTorch says when the host's memory is exhausted, which has no error class of its own.
_HOST_IS_FULL = ("not enough memory", "can't allocate memory", "out of memory")


def is_out_of_memory(problem: BaseException) -> bool:
    """Whether an error says that memory ran out, on a device or on the host."""
    if isinstance(problem, (torch.OutOfMemoryError, MemoryError)):
        return True
    said = str(problem).lower()
    return isinstance(problem, RuntimeError) and any(words in said for words in _HOST_IS_FULL)


@dataclass(slots=True)
class BatchSize:
    """The most states that go to a model at once; it shrinks when memory runs out.

    Attributes
    ----------
    value : int
        The current size.
    """

    value: int

    def __post_init__(self) -> None:
        """Check the size."""
        if self.value < 1:
            raise ValueError(f"batch_size must be at least 1, got {self.value!r}")

    def run(self, count: int, work: Callable[[int, int], T], *, name: str) -> list[T]:
        """Call ``work(low, high)`` for consecutive ranges of at most this size.

        A range that does not fit is tried again in halves, and the smaller size is kept. What was
        done before is not done again.

        Parameters
        ----------
        count : int
        work : callable
        name : str
            The oracle's name, for messages.
        """
        done: list[T] = []
        low = 0
        while low < count:
            high = min(count, low + self.value)
            problem: str | None = None
            try:
                done.append(work(low, high))
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                problem = str(error).partition("\n")[0]
            # Outside the handler: the error holds on to the tensors of the frames it passed.
            if problem is None:
                low = high
            else:
                self._shrink(high - low, name, problem)
        return done

    def _shrink(self, tried: int, name: str, problem: str) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if tried == 1:
            raise OracleError(
                f"oracle {name!r} ran out of memory with a single state ({problem}); load the "
                "model in half precision or on a larger device, shorten the template, or restrict "
                "the vocabulary"
            )
        self.value = max(1, tried // 2)
        logger.warning("%s: out of memory with %d states, now %d", name, tried, self.value)
