"""One structure that the tests of this folder share."""

import pytest

import counterprobe as cp


@pytest.fixture(scope="session")
def law() -> cp.ForestLaw:
    return cp.families.build("random-forest", 256, 196)


@pytest.fixture(scope="session")
def structure(law: cp.ForestLaw) -> cp.Structure:
    return cp.discover(law.oracle(), cp.Streams(71, 72))
