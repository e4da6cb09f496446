"""Ray: a real cluster of two nodes, one of which is killed while it works.

Every start of a cluster is slow; kills of processes are among the quick tests.
"""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import counterprobe as cp
import engine_jobs
from counterprobe.cli.main import app
from counterprobe.engines import EngineError, InProcess, RayCluster, ShardedOracle, WorkerPool
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
    """A cluster of two nodes; the second can be killed and put back.

    Each has one CPU; GPUs, one and two, are numbers that Ray gives out, on a machine without any.
    """

    def __init__(self):
        from ray.cluster_utils import Cluster

        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "num_gpus": 1,
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
        """Kill the second node as a power cut would: its workers at once, not when they notice."""
        if self.second is not None:
            second, self.second = self.second, None
            raylet = second.all_processes["raylet"][0].process.pid
            workers = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
            for worker in workers:
                os.kill(int(worker), signal.SIGKILL)
            self.cluster.remove_node(second, allow_graceful=False)

    def restore(self):
        if self.second is None:
            self.second = self.cluster.add_node(
                num_cpus=1, num_gpus=2, object_store_memory=80 * 2**20
            )


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
    result = sampler(cp.run.Run(oracle, on_event=watch), cp.Streams(3, 4))
    assert result.tokens is not None
    return result


def killed_in_a_stage(nodes):
    """Run a sampler on two nodes and kill one in the middle of its screen."""
    seen = []

    def watch(progress):
        seen.append(progress.ledger.evaluations)
        if progress.ledger.probes > 40:
            nodes.kill()

    with RayCluster(nodes.address, workers=2) as engine:
        with ShardedOracle.copies_of(LAW.oracle(), engine, batch_size=8) as oracle:
            result = screened(oracle, cp.run.Listener(watch, cp.run.Progress))
            assert nodes.second is None
            assert oracle.num_lost >= 1
            assert oracle.num_evaluated == result.ledger.evaluations
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


@pytest.mark.slow
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


# ----- Slow: more of one cluster ----------------------------------------------------------------


@pytest.fixture
def whole(nodes):
    """The cluster with both its nodes, and the address of it."""
    nodes.restore()
    return nodes.address


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_samplers_draw_the_same_on_a_cluster_whatever_the_workers(whole, workers):
    with RayCluster(whole, workers=workers) as engine:
        with ShardedOracle.copies_of(LAW.oracle(), engine, batch_size=5) as oracle:
            result = screened(oracle)
            assert (oracle.num_lost, oracle.num_replicas) == (0, workers)
    alone = screened(LAW.oracle())
    np.testing.assert_array_equal(result.tokens, alone.tokens)
    assert result.ledger == alone.ledger


@pytest.mark.slow
def test_an_exception_inside_an_actor_has_the_oracles_own_message(whole):
    make = partial(engine_jobs.Refusing, LAW.oracle(), None, 1)
    states = np.full((3, LAW.length), cp.MASK, dtype=np.int32)
    states[:, 0] = 1
    with RayCluster(whole, workers=1) as engine, ShardedOracle(engine, make) as oracle:
        with pytest.raises(cp.OracleError, match="has no answer for token 1"):
            cp.run.Run(oracle).do(cp.run.Probe(states, [4]))
    with RayCluster(whole, workers=1) as engine:
        with pytest.raises(ValueError, match="there is no such model, got 'nothing'"):
            ShardedOracle(engine, engine_jobs.make_nothing)


@pytest.mark.slow
def test_functions_that_no_module_has_travel_by_value(whole):
    factor = 3

    def make():
        return lambda task: factor * task

    with RayCluster(whole, workers=2) as engine, WorkerPool(engine, make) as pool:
        tickets = {pool.submit(k): k for k in range(8)}
        found = {}
        while len(found) < 8:
            found |= {done.ticket: done.result() for done in pool.wait()}
    assert found == {ticket: 3 * k for ticket, k in tickets.items()}


@pytest.mark.slow
def test_an_actor_that_dies_is_replaced_and_one_that_always_dies_is_an_error(whole, tmp_path):
    with RayCluster(whole, workers=2, attempts=2) as engine:
        with WorkerPool(engine, engine_jobs.make_doubling) as pool:
            pool.submit(("die once", str(tmp_path / "dead"), 21))
            (done,) = pool.wait()
            assert (done.result(), pool.num_lost) == (42, 1)
            pool.submit(("die",))
            with pytest.raises(EngineError, match=r"a Ray worker was lost.*2 times for one task"):
                pool.wait()


@pytest.mark.slow
def test_an_actor_that_hangs_is_killed_and_one_that_always_hangs_is_an_error(whole, tmp_path):
    with RayCluster(whole, workers=1, attempts=2, task_seconds=5.0) as engine:
        with WorkerPool(engine, engine_jobs.make_doubling) as pool:
            pool.submit(("hang once", str(tmp_path / "hung"), 21))
            (done,) = pool.wait()
            assert (done.result(), pool.num_lost) == (42, 1)
            pool.submit(("hang",))
            with pytest.raises(EngineError, match=r"not answered after 5 seconds.*, 2 times"):
                pool.wait()
            pool.submit(4)
            assert pool.wait()[0].result() == 8


def seen_gpus(engine):
    """The node and the GPUs that each worker of an engine sees."""
    with engine, WorkerPool(engine, engine_jobs.make_doubling) as pool:
        pool.start()
        count, found = pool.size, []
        for _ in range(count):
            pool.submit(("gpus",))
        while len(found) < count:
            found += [done.result() for done in pool.wait()]
    return found


@pytest.mark.slow
def test_replicas_see_the_gpus_they_asked_for_and_no_others(whole):
    own = seen_gpus(RayCluster(whole, cpus=0.1, gpus=1, start_seconds=300))
    assert sorted(gpu for _, gpu in own) == ["0", "0", "1"]
    assert len(set(own)) == 3  # one each, on two nodes
    shared = Counter(seen_gpus(RayCluster(whole, cpus=0.1, gpus=0.5, start_seconds=300)))
    assert set(shared) == set(own)
    assert set(shared.values()) == {2}
    # A share is of one GPU: two of 0.6 do not fit on one, nor three on two.
    assert RayCluster(whole, cpus=0.1, gpus=0.6).num_workers == 3
    assert {gpus for _, gpus in seen_gpus(RayCluster(whole, start_seconds=300))} == {""}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no sockets to look at")
def test_a_cluster_of_its_own_listens_on_loopback_alone():
    # In a process of its own, where Ray has not been started yet.
    program = "import engine_jobs; print(*engine_jobs.listening_of_an_own_cluster())"
    found = Path(engine_jobs.__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=found, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    addresses = done.stdout.split()
    assert len(addresses) >= 3  # of the driver, the node and the actor at least
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "0" * 24 + "01000000"}
    assert set(addresses) <= loopback


def test_a_ray_that_listens_elsewhere_is_ended_and_refused(monkeypatch):
    ended = []
    util = SimpleNamespace(get_node_ip_address=lambda: "192.0.2.7")
    ray = SimpleNamespace(
        is_initialized=lambda: False, init=lambda **options: None, util=util,
        shutdown=lambda: ended.append(True),
    )  # fmt: skip
    monkeypatch.setattr("counterprobe.engines.cluster.load_extra", lambda *names: ray)
    with pytest.raises(EngineError, match=r"listens on 192\.0\.2\.7, which other machines"):
        RayCluster().prepare(engine_jobs.make_doubling)
    assert ended == [True]


@pytest.mark.slow
def test_a_cluster_without_room_says_so(whole):
    with RayCluster(whole, workers=3) as engine:
        with pytest.raises(ValueError, match=r"workers must be at most 2.*; got 3"):
            WorkerPool(engine, engine_jobs.make_doubling)
    with RayCluster(whole, gpus=3) as engine:
        with pytest.raises(EngineError, match="no room for a worker: each asks for 1 CPUs"):
            WorkerPool(engine, engine_jobs.make_doubling)
    with RayCluster(whole, cpus=0.1, gpus=1, workers=4) as engine:
        with pytest.raises(ValueError, match=r"workers must be at most 3.*1 GPUs\); got 4"):
            WorkerPool(engine, engine_jobs.make_doubling)
    with (
        RayCluster(whole, workers=2) as first,
        WorkerPool(first, engine_jobs.make_doubling) as pool,
    ):
        pool.start()
        # All places are taken: another pool waits for one, and not for ever.
        with RayCluster(whole, workers=1, start_seconds=2) as second:
            with WorkerPool(second, engine_jobs.make_doubling) as other:
                with pytest.raises(EngineError, match="no worker could be placed within 2 sec"):
                    other.start()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_wrong_address_is_said_at_once(address):
    with pytest.raises(EngineError, match=rf"no Ray cluster at {address}: .*check --address"):
        RayCluster(address).prepare(engine_jobs.make_doubling)


@pytest.mark.parametrize(
    "options", [{"workers": 0}, {"gpus": -1}, {"gpus": 1.5}, {"attempts": 0}, {"task_seconds": -1}]
)
def test_numbers_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        RayCluster(**options)


@pytest.mark.slow
def test_commands_give_the_same_answers_from_a_cluster(whole):
    for words in (
        ["discover", "--family", "path", "--n", "48"],
        ["compare", "--n", "32", "--samplers", "one-batch,punt", "--runs", "2"],
    ):
        answers = []
        for engine in ([], ["--engine", "ray", "--address", whole, "--workers", "2"]):
            result = CliRunner().invoke(app, [*words, *engine, "--json", "-"])
            assert result.exit_code == 0, result.output
            answers.append(re.sub(r'"seconds": [^,\n]*', "", result.stdout))
        assert answers[0] == answers[1]
