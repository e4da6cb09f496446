"""Commands in tests may be the first to compile something; what they say of it is left out."""

from collections.abc import Iterator

import pytest

from counterprobe.cli import warmup


@pytest.fixture(autouse=True)
def compiling_goes_unsaid(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep quiet about compilation, except where that is what is tested."""
    if request.module.__name__.endswith("test_warmup"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmup._Announcer, "on_start", lambda *_: None)
        yield
