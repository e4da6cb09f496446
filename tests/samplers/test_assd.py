"""Any-subset speculative decoding: what it keeps, what it costs, and one round by hand."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.samplers import ASSD, Sequential


def two_bits() -> cp.TableLaw:
    return cp.TableLaw([[0.1, 0.4], [0.45, 0.05]])


def test_one_round_by_hand():
    law = two_bits()
    alone = law.table.sum(axis=0)
    seen = {"kept": 0, "corrected": 0}
    for seed in range(40):
        streams = cp.Streams(0, seed)
        result = ASSD(2)(cp.Unmasking(law.oracle()), streams)
        noise = streams.commit_noise(2)
        draft, decide, correct = (noise.uniforms(np.arange(2), k) for k in range(3))
        first = int(draft[0] >= law.table[0].sum())
        beside = law.table[first] / law.table[first].sum()
        second = int(draft[1] >= alone[0])
        is_kept = decide[1] * alone[second] < beside[second]
        if not is_kept:
            left = np.maximum(beside - alone, 0)
            second = int(correct[1] >= left[0] / left.sum())
        seen["kept" if is_kept else "corrected"] += 1
        assert result.tokens.tolist() == [first, second]
        assert (result.ledger.total, result.ledger.depth, result.ledger.commits) == (2, 2, 1)
        assert result.diagnostics.kept == (2 if is_kept else 1,)
    assert min(seen.values()) > 0


def test_a_window_of_one_is_the_chain_rule():
    law = cp.families.path(9, target_seed=1)
    streams = cp.Streams(1, 2)
    for order in ("index", "random"):
        result = ASSD(1, order=order)(cp.Unmasking(law.oracle()), streams)
        alone = Sequential(order)(cp.Unmasking(law.oracle()), streams)
        assert result.tokens.tolist() == alone.tokens.tolist()
        assert result.ledger.total == result.ledger.depth == result.ledger.commits == 9


def test_the_last_token_alone_is_not_verified(counted):
    law = cp.families.path(5, target_seed=1)
    given = np.full(5, cp.MASK)
    given[:4] = 0
    oracle = counted(law.oracle())
    result = ASSD(3)(cp.Unmasking(oracle, given=given), cp.Streams(1, 2))
    assert result.ledger.total == result.ledger.depth == oracle.states == 1


def test_identical_rows_are_always_kept():
    # Uniform rows everywhere: no draft may be rejected, whatever the noise.
    law = cp.ForestLaw(np.ones((30, 4)), [], np.ones((4, 4)))
    for seed in range(20):
        result = ASSD(30)(cp.Unmasking(law.oracle()), cp.Streams(0, seed))
        assert result.diagnostics.kept == (30,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"order": "entropy"}, "order must be one of random, index; got 'entropy'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ASSD(**settings)
