"""Commands in tests may be the first to compile something; what they say of it is left out."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

import counterprobe as cp
from counterprobe.cli import runs


@pytest.fixture(autouse=True)
def compiling_goes_unsaid(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep quiet about compilation, except where that is what is tested."""
    if request.module.__name__.endswith("test_runs"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "on_compilation", lambda _: nullcontext())
        yield


@pytest.fixture(scope="session")
def soft_file(tmp_path_factory) -> Callable[[str, int], Path]:
    """Return what keeps the soft structure of an antibody with masks in a file."""

    def soft_file(sequence: str, probes: int) -> Path:
        model = cp.models.load("sapiens-heavy", device="cpu")
        template = model.template(sequence)
        found = cp.discover(
            model.oracle(template),
            cp.Streams.from_seed(1),
            mode="soft",
            given=template.given,
            probes=probes,
        )
        file = tmp_path_factory.mktemp("structures") / "soft.npz"
        found.save(file)
        return file

    return soft_file
