"""loky, a local Dask cluster, Ray and MPI for real, each with a worker that is killed midway.

Whatever happens to workers, tokens, ledgers and stores are those of one process.
"""

import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
import executor_jobs
from command_line import record_of
from counterprobe.evaluation.comparison import compare_on, compare_sampler
from counterprobe.executors import ExecutorError, Workers, cluster, local_processes
from counterprobe.study import Store, run_study
from counterprobe.study.config import config_from_dict

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Dask and Ray themselves

KINDS = ["loky", "dask", "ray"]
LAW = cp.families.path(64, 3)
STUDY = {
    "name": "small",
    "families": ["matching"],
    "sizes": [48],
    "candidates": 1,
    "random": False,
    "seeds": {
        "development_draws": [171],
        "development_streams": [271],
        "evaluation_draws": [196, 197],
        "proposal_streams": [292],
    },
    "reference": {"length": 48, "draws": [1, 2]},
    "grid": {
        "packed": [
            {
                "num_colors": [4, 5],
                "degree_cutoff": [8],
                "num_colorings": 40,
                "majority_fraction": 0.55,
            }
        ]
    },
}


@contextmanager
def dask_cluster():
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started:
        yield started.scheduler_address


@contextmanager
def ray_cluster():
    before = dict(os.environ)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    support = str(Path(executor_jobs.__file__).parent)  # workers find the tests' own modules
    os.environ["PYTHONPATH"] = os.pathsep.join([support, *filter(None, sys.path)])
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False,
             object_store_memory=80 * 2**20)  # fmt: skip
    try:
        yield "ray:auto"
    finally:
        ray.shutdown()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="module", params=KINDS)
def where(request):
    """An executor of each kind, with two workers; and words for the command line."""
    with ExitStack() as stack:
        if request.param == "loky":
            yield stack.enter_context(local_processes(2)), ("--workers", 2)
            return
        started = dask_cluster if request.param == "dask" else ray_cluster
        address = stack.enter_context(started())
        yield stack.enter_context(cluster(address)), ("--cluster", address)


def test_a_worker_killed_in_the_middle_of_a_stage_changes_nothing(where, tmp_path):
    sampler = cp.samplers.Packed(num_colorings=6, num_colors=4)
    killed = tmp_path / "killed"
    oracle = LAW.oracle().sharded(
        where[0], build=partial(executor_jobs.KilledMidway, LAW, str(killed)), piece=8
    )
    result = sampler(cp.run.Run(oracle), cp.Streams(3, 4))
    alone = sampler(cp.run.Run(LAW.oracle()), cp.Streams(3, 4))
    assert killed.exists()
    np.testing.assert_array_equal(result.tokens, alone.tokens)
    assert result.ledger == alone.ledger


def results_of(file, executor):
    config = config_from_dict(STUDY, "the test's study")
    with Store(file, create=True) as store:
        store.register(config)
        study = run_study(store, config, executor=executor)
        assert all(study.is_done(cell) for cell in study.cells)
        return {key: record.result for key, record in store.records().items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The results of the study in this process."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as executor:
        return results_of(tmp_path_factory.mktemp("study") / "alone.db", executor)


def test_a_study_and_a_comparison_are_those_of_one_process(where, alone, tmp_path):
    assert results_of(tmp_path / "spread.db", where[0]) == alone
    rules = [cp.samplers.OneBatch(), cp.samplers.MaskGIT(steps=4)]
    found = compare_on(where[0], [LAW], rules, [1, 2], draws=None)
    for entry, rule in zip(found, rules, strict=True):
        expected = compare_sampler(LAW, rule, [1, 2], draws=None)
        assert [t.result.tokens.tolist() for t in entry.trials] == [
            t.result.tokens.tolist() for t in expected.trials
        ]


def test_a_command_gives_the_same_answer(where):
    words = "discover", "--family", "path", "--n", 48
    found, expected = record_of(*words, *where[1]), record_of(*words)
    assert {**found, "seconds": 0} == {**expected, "seconds": 0}


def test_errors_arrive_and_functions_of_no_module_travel(where):
    factor = 3
    workers = Workers(where[0], lambda: lambda task: factor * task)
    pieces = [workers.submit(k) for k in range(8)]
    assert [workers.result(piece) for piece in pieces] == [3 * k for k in range(8)]
    telling = Workers(where[0], executor_jobs.build_doubling)
    with pytest.raises(cp.OracleError, match="no answer"):
        telling.result(telling.submit(("raise", "no answer")))
    with pytest.raises(ValueError, match="there is no such model"):
        refused = Workers(where[0], executor_jobs.build_nothing)
        refused.result(refused.submit(1))


def test_a_piece_that_always_kills_is_an_error(where):
    workers = Workers(where[0], executor_jobs.build_doubling)
    with pytest.raises(ExecutorError, match=r"3 times|KilledWorker|WorkerCrashed"):
        workers.result(workers.submit(("die", None, 1)))
    assert workers.result(workers.submit(4)) == 8


def test_a_worker_that_hangs_is_an_error(where):
    warm = Workers(where[0], executor_jobs.build_doubling)
    warm.result(warm.submit(1))
    workers = Workers(where[0], executor_jobs.build_doubling, timeout=2.0)
    with pytest.raises(ExecutorError, match="no worker has answered for 2 seconds"):
        workers.result(workers.submit(("hang",)))


def mpi(*arguments):
    """Run the program of three ranks, two of them workers."""
    folder = Path(executor_jobs.__file__).parent
    return subprocess.run(
        [Path(sys.executable).parent / "mpiexec", "-n", "3", sys.executable, "-m",
         "mpi4py.futures", folder / "mpi_program.py", *arguments],
        capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
    )  # fmt: skip


def test_ranks_of_mpi_give_the_same_and_end_together(tmp_path):
    done = mpi()
    assert done.stdout.split() == ["True"], done.stderr
    assert mpi(tmp_path / "killed").returncode != 0
    assert (tmp_path / "killed").exists()
