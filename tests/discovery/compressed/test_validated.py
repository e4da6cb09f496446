"""Components are remembered as they were validated."""

import numpy as np

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings
from counterprobe.discovery.compressed.screen import _CompressedScreen


def test_what_was_validated_is_not_pending_until_it_is_forgotten() -> None:
    law = cp.families.path(30, target_seed=1)
    run = cp.Unmasking(law.oracle())
    screen = _CompressedScreen(run, cp.Streams.from_seed(1).decisions, CompressedSettings())
    screen.discover()
    validated = screen.validated
    assert len(validated.pending()) == 0
    assert validated.are_among(validated.keys()).all()
    validated.forget()
    np.testing.assert_array_equal(validated.pending(), np.arange(30))
