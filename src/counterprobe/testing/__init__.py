"""Conformance checks for samplers and oracles, ours and anybody's.

Each check is a function of one sampler (or one oracle) that raises ``ConformanceError`` and says
what was broken. Under pytest::

    import pytest
    from counterprobe import testing


    @pytest.mark.parametrize("check", testing.SAMPLER_CHECKS, ids=lambda check: check.__name__)
    def test_my_sampler(check):
        check(MySampler())

``testing.check_sampler(MySampler())`` runs them all. A sampler that cannot work on the small laws
used by default (it may say so by raising ``Infeasible``) gets laws of its own: ``laws=[...]``.
"""

from counterprobe.testing.cases import ConformanceError as ConformanceError
from counterprobe.testing.cases import small_forest as small_forest
from counterprobe.testing.cases import small_laws as small_laws
from counterprobe.testing.cases import small_table as small_table
from counterprobe.testing.noisy_logits import NoisyLogits as NoisyLogits
from counterprobe.testing.oracle_checks import ORACLE_CHECKS as ORACLE_CHECKS
from counterprobe.testing.oracle_checks import check_oracle as check_oracle
from counterprobe.testing.sampler_checks import SAMPLER_CHECKS as SAMPLER_CHECKS
from counterprobe.testing.sampler_checks import check_sampler as check_sampler
from counterprobe.testing.sampler_checks import check_stages as check_stages
from counterprobe.testing.wrappers import CountingOracle as CountingOracle
from counterprobe.testing.wrappers import ListingRun as ListingRun
from counterprobe.testing.wrappers import PiecewiseOracle as PiecewiseOracle
from counterprobe.testing.zoo import SEEN_BY as SEEN_BY
from counterprobe.testing.zoo import BadOracle as BadOracle
from counterprobe.testing.zoo import bad_oracles as bad_oracles
