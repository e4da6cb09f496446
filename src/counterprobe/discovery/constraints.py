"""What a screen does with a law that forbids some tokens together: it says so, and stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from counterprobe.errors import ImpossibleState, Infeasible

__all__ = ["arbitrary_tokens"]


@contextmanager
def arbitrary_tokens() -> Iterator[None]:
    """Turn an oracle's refusal of a probe as impossible into ``Infeasible``, with advice."""
    try:
        yield
    except ImpossibleState as error:
        raise Infeasible(
            f"a probe showed tokens that cannot stand together ({error}): probes show arbitrary "
            "tokens, and this law forbids some. What to try: a sampler that shows only what it "
            "drew, such as punt or entropy-bounded"
        ) from error
