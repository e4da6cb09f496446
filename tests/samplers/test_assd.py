"""Any-subset speculative decoding: what it keeps, what it costs, and one round by hand."""

import numpy as np

import counterprobe as cp
from counterprobe.samplers import ASSD, Sequential


def test_a_window_of_one_is_the_chain_rule():
    law = cp.families.path(9, target_seed=1)
    streams = cp.Streams(1, 2)
    for order in ("index", "random"):
        result = ASSD(1, order=order)(cp.run.Run(law.oracle()), streams)
        alone = Sequential(order)(cp.run.Run(law.oracle()), streams)
        assert result.tokens.tolist() == alone.tokens.tolist()
        assert result.ledger.evaluations == result.ledger.stages == result.ledger.commits == 9


def test_the_last_token_alone_is_not_verified(counted):
    law = cp.families.path(5, target_seed=1)
    given = np.full(5, cp.MASK)
    given[:4] = 0
    oracle = counted(law.oracle())
    result = ASSD(3)(cp.run.Run(oracle, given=given), cp.Streams(1, 2))
    assert result.ledger.evaluations == result.ledger.stages == oracle.states == 1


def test_identical_rows_are_always_kept():
    # Uniform rows everywhere: no draft may be rejected, whatever the noise.
    law = cp.ForestLaw(np.ones((30, 4)), [], np.ones((4, 4)))
    for seed in range(20):
        result = ASSD(30)(cp.run.Run(law.oracle()), cp.Streams(0, seed))
        assert result.diagnostics.kept == (30,)
