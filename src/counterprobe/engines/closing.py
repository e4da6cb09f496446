"""What is closed when it is left."""

from __future__ import annotations

from types import TracebackType
from typing import Self

__all__ = ["Closing"]


class Closing:
    """A context manager: leaving it closes it."""

    __slots__ = ()

    def __enter__(self) -> Self:
        """Return the thing itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Give back what it holds; nothing unless a subclass says so."""
