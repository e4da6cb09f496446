"""Ray: a real cluster of two nodes, one of which is killed while it works.

The quick suite starts one cluster, for one test; every other start is slow.
"""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
import engine_jobs
from counterprobe.engines import InProcess, RayCluster, ShardedOracle
from counterprobe.study import Store, run_study
from counterprobe.study.config import config_from_dict

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray's own subprocesses

LAW = cp.families.path(64, 3)
STUDY = {
    "name": "small",
    "families": ["matching"],
    "sizes": [48],
    "candidates": 2,
    "random": False,
    "seeds": {
        "development_draws": [171, 172],
        "development_streams": [271],
        "evaluation_draws": [196, 197],
        "proposal_streams": [292],
    },
    "reference": {"length": 48, "draws": [1, 2]},
    "grid": {
        "packed": [
            {
                "num_colors": [4, 5, 6],
                "degree_cutoff": [8],
                "num_colorings": 40,
                "majority_fraction": 0.55,
            }
        ]
    },
}


class TwoNodes:
    """A cluster of two nodes with one CPU each; the second can be killed and put back."""

    def __init__(self):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "include_dashboard": False,
                "object_store_memory": 80 * 2**20,
                # Deaths are noticed within a second or two, not half a minute.
                "_system_config": {
                    "health_check_initial_delay_ms": 500,
                    "health_check_period_ms": 500,
                    "health_check_failure_threshold": 3,
                },
            },
        )
        self.second = None
        self.restore()

    @property
    def address(self):
        return self.cluster.address

    def kill(self):
        """Kill the second node as a power cut would."""
        if self.second is not None:
            second, self.second = self.second, None
            self.cluster.remove_node(second, allow_graceful=False)

    def restore(self):
        if self.second is None:
            self.second = self.cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)


@pytest.fixture(scope="module")
def nodes():
    # What Ray reads from the environment when it starts; workers find the tests' own modules.
    before = dict(os.environ)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    support = str(Path(engine_jobs.__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([support, *filter(None, sys.path)])
    import ray

    nodes = TwoNodes()
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.cluster.shutdown()
        os.environ.clear()
        os.environ.update(before)


def screened(oracle, watch=None):
    """Run the packed sampler, whose first screen is one long stage."""
    sampler = cp.samplers.Packed(num_colorings=6, num_colors=4)
    result = sampler(cp.Unmasking(oracle, progress=watch), cp.Streams(3, 4))
    assert result.tokens is not None
    return result


def killed_in_a_stage(nodes):
    """Run a sampler on two nodes and kill one in the middle of its screen."""
    seen = []

    def watch(progress):
        seen.append(progress.ledger.total)
        if progress.ledger.probes > 40:
            nodes.kill()

    with RayCluster(nodes.address, workers=2) as engine:
        with ShardedOracle.copies_of(LAW.oracle(), engine, batch_size=8) as oracle:
            result = screened(oracle, watch)
            assert nodes.second is None
            assert oracle.num_lost >= 1
            assert oracle.num_evaluated == result.ledger.total
    return result


def results_of(file):
    with Store(file) as store:
        return {key: record.result for key, record in store.records().items()}


def study_results(file, engine, watch=None):
    """Run the small study and return every result by key."""
    config = config_from_dict(STUDY, "the test's study")
    with Store(file, create=True) as store:
        store.register(config)
        with engine:
            study = run_study(store, config, engine=engine, progress=watch)
    assert all(study.is_done(cell) for cell in study.cells)
    return results_of(file)


def test_a_node_killed_in_the_middle_of_a_stage_and_of_a_study_changes_nothing(nodes, tmp_path):
    result, alone = killed_in_a_stage(nodes), screened(LAW.oracle())
    np.testing.assert_array_equal(result.tokens, alone.tokens)
    assert result.ledger == alone.ledger

    nodes.restore()

    def watch(standing):
        if standing.done >= 4:
            nodes.kill()

    found = study_results(tmp_path / "ray.db", RayCluster(nodes.address, workers=2), watch)
    assert nodes.second is None
    assert found == study_results(tmp_path / "alone.db", InProcess())
