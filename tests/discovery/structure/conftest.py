"""What the tests of structures share: one structure, and files that were changed with care."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.structure_file import digest


@pytest.fixture(scope="session")
def law() -> cp.ForestLaw:
    return cp.families.build("random-forest", 256, 196)


@pytest.fixture(scope="session")
def structure(law: cp.ForestLaw) -> cp.Structure:
    return cp.discover(law.oracle(), cp.Streams(71, 72))


@pytest.fixture
def edited() -> Callable[..., Path]:
    """Return a function that changes a structure file so that its digest does not tell."""

    def edited(
        file: Path,
        *,
        header: dict[str, Any] | str | None = None,
        without: tuple[str, ...] = (),
        **arrays: Any,
    ) -> Path:
        with np.load(file) as archive:
            contents = dict(archive)
        text = str(contents.pop("header"))
        if isinstance(header, str):
            text = header
        elif header is not None:
            text = json.dumps(json.loads(text) | header)
        del contents["digest"]
        contents = {k: v for k, v in (contents | arrays).items() if k not in without}
        named = {name: np.asarray(array) for name, array in contents.items()}
        np.savez_compressed(
            file, header=np.array(text), digest=np.array(digest(text, named)), **named
        )
        return file

    return edited
