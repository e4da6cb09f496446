"""Driving a study: kills, Ctrl-C, full disks and neighbours leave the same table behind."""

import multiprocessing
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import study_jobs
from counterprobe.errors import CounterprobeError
from counterprobe.study import Store, Study, run_study
from counterprobe.study.config import config_from_dict
from counterprobe.study.export import rows_of
from counterprobe.study.table import lines_of, to_csv


def table_of(file: Path, name: str = "tiny") -> str:
    with Store(file) as store:
        return to_csv(lines_of(rows_of(Study(store.config(name), store.records()))))


def results_of(file: Path) -> dict[str, dict]:
    with Store(file) as store:
        return {key: record.result for key, record in store.records().items()}


def kill_and_resume(rounds: int, seed: int, program, tiny_file: Path, folder: Path) -> list[Path]:
    """Kill a study with SIGKILL at random moments, then let it finish; return the stores.

    A study that finishes before it is killed leaves its store, and the next one starts anew.
    """
    draw = np.random.default_rng(seed)
    stores = [folder / "study-0.db"]
    kills, while_working = 0, 0
    while kills < rounds:
        file = stores[-1]
        running = program("run", "--config", tiny_file, "--store", file, "--workers", 2)
        there = len(results_of(file)) if file.exists() and file.stat().st_size else 0
        if there or draw.random() < 0.5:
            # In the middle of its work, some milliseconds after some run was reported.
            running.wait_for_runs(file, there + int(draw.integers(1, 5)))
            time.sleep(float(draw.uniform(0, 0.05)))
        else:
            # While it starts, or makes the store.
            time.sleep(float(draw.uniform(0, 2.5)))
        was_running = running.process.poll() is None
        running.process.send_signal(signal.SIGKILL)
        running.process.communicate()
        assert running.orphans() == []
        if running.process.returncode == 0:
            stores.append(folder / f"study-{len(stores)}.db")
        elif was_running:
            kills += 1
            while_working += there > 0
    assert while_working > 0
    code, _, err = program("run", "--config", tiny_file, "--store", stores[-1]).wait()
    assert code == 0, err
    return stores


@pytest.mark.slow
def test_ten_kills_leave_the_table_of_an_undisturbed_study(
    program, tiny_file, finished_file, tmp_path
):
    for file in kill_and_resume(10, 9, program, tiny_file, tmp_path):
        assert table_of(file) == table_of(finished_file)
        assert results_of(file) == results_of(finished_file)


def test_ctrl_c_stops_cleanly_and_resume_finishes(program, tiny_file, finished_file, tmp_path):
    file = tmp_path / "study.db"
    running = program("run", "--config", tiny_file, "--store", file, "--workers", 2)
    assert running.wait_for_runs(file, 5)
    started = time.monotonic()
    running.process.send_signal(signal.SIGINT)
    code, out, err = running.wait()
    assert code == 130
    assert out == ""
    assert err.count("\n") == 1
    assert "finished runs are kept. Continue with: counterprobe study resume --store" in err
    assert time.monotonic() - started < 60
    assert running.orphans() == []
    with Store(file) as store:
        assert 5 <= len(store) < len(results_of(finished_file))
    code, out, err = program("resume", "--store", file, "--workers", 1).wait()
    assert code == 0, err
    assert "worker time" in out
    assert table_of(file) == table_of(finished_file)


def test_ctrl_c_in_a_terminal_reaches_workers_too(program, tiny_file, tmp_path):
    # A terminal sends it to the whole group, also to workers that are still importing.
    file = tmp_path / "study.db"
    running = program("run", "--config", tiny_file, "--store", file, "--workers", 2)
    while not file.exists() or not file.with_name("study.db-wal").exists():
        assert running.process.poll() is None
        time.sleep(0.01)
    time.sleep(0.3)
    os.killpg(running.process.pid, signal.SIGINT)
    code, out, err = running.wait()
    assert (code, out) == (130, "")
    assert err.count("\n") == 1
    assert running.orphans() == []


def deaths(count: int, seed: int, program, tiny_file: Path, file: Path) -> None:
    """Kill a worker of a study so often, at random moments, and let the study finish."""
    draw = np.random.default_rng(seed)
    running = program("run", "--config", tiny_file, "--store", file, "--workers", 2)
    for _ in range(count):
        assert running.wait_for_runs(file, len(results_so_far(file)) + int(draw.integers(1, 4)))
        time.sleep(float(draw.uniform(0, 0.05)))
        victims = running.workers()
        os.kill(victims[int(draw.integers(len(victims)))], signal.SIGKILL)
    code, out, err = running.wait()
    assert code == 0, err
    assert "worker time" in out
    # A second kill may hit a pool that the first broke already.
    lost = re.search(r"(\d+) workers? w\w+ lost, and what was begun there was done again", err)
    assert lost is not None and 1 <= int(lost[1]) <= count, err
    assert "a worker died: TerminatedWorkerError" in err and "SIGKILL(-9)" in err
    assert err.count("\n") == 1
    assert running.orphans() == []


def results_so_far(file: Path) -> dict[str, dict]:
    return results_of(file) if file.exists() and file.stat().st_size else {}


@pytest.mark.slow
def test_workers_that_die_leave_the_table_of_an_undisturbed_study(
    program, tiny_file, finished_file, tmp_path
):
    deaths(2, 3, program, tiny_file, tmp_path / "study.db")
    assert table_of(tmp_path / "study.db") == table_of(finished_file)
    assert results_of(tmp_path / "study.db") == results_of(finished_file)


@pytest.mark.slow
def test_a_run_that_kills_every_worker_ends_the_study_with_a_word(
    program, tiny_file, finished_file, tmp_path
):
    file = tmp_path / "study.db"
    support = str(Path(study_jobs.__file__).parent)
    deadly = (
        f"import sys; sys.path.append({support!r}); import study_jobs; "
        "from counterprobe.study import execute; execute._build = study_jobs.make_deadly; "
    )
    running = program(
        "run", "--config", tiny_file, "--store", file, "--workers", 2, prelude=deadly
    )
    code, out, err = running.wait()
    assert (code, out) == (1, "")
    assert "a worker died: TerminatedWorkerError" in err and "EXIT(3)" in err
    assert "(3 times for one piece)" in err
    assert "(evaluation of path, N = 48); finished runs are in the store" in err
    assert err.count("\n") == 1
    assert running.orphans() == []
    kept = results_of(file)
    assert 0 < len(kept) < len(results_of(finished_file))
    assert kept.items() <= results_of(finished_file).items()


def test_other_processes_of_the_caller_are_left_alone(tiny, tmp_path):
    small = config_from_dict({**tiny.as_dict(), "sizes": [48], "random": False}, "x")
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    other.start()
    try:
        with Store(tmp_path / "study.db", create=True) as store:
            store.register(small)
            run_study(store, small, workers=1)
        assert other.is_alive()
    finally:
        other.terminate()
        other.join()


@pytest.mark.slow
def test_a_full_disk_loses_nothing_that_was_reported(program, tiny_file, finished_file, tmp_path):
    file = tmp_path / "study.db"
    # No file may pass 60,000 bytes: the store's log hits that after some runs.
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000));"
    full = program("run", "--config", tiny_file, "--store", file, "--workers", 1, prelude=limit)
    code, _, err = full.wait()
    assert code == 1
    assert "Runs reported so far are safe" in err
    assert err.count("\n") == 1
    assert full.orphans() == []
    kept = results_of(file)
    assert 0 < len(kept) < len(results_of(finished_file))
    code, _, err = program("resume", "--store", file).wait()
    assert code == 0, err
    assert table_of(file) == table_of(finished_file)
    assert kept.items() <= results_of(file).items()


@pytest.mark.slow
def test_two_studies_on_one_store_share_their_runs(program, tiny_file, finished_file, tmp_path):
    file = tmp_path / "study.db"
    smaller = tmp_path / "smaller.toml"
    smaller.write_text(
        tiny_file.read_text().replace('"tiny"', '"smaller"').replace("[48, 64]", "[48]")
    )
    arguments = "--store", file, "--workers", 1
    both = [
        program("run", "--config", tiny_file, *arguments),
        program("run", "--config", smaller, *arguments),
        program("run", "--config", tiny_file, *arguments),
    ]
    for running in both:
        code, _, err = running.wait()
        assert code == 0, err
    # Never duplicated: exactly the runs that one study alone makes, each once.
    assert results_of(file) == results_of(finished_file)
    assert table_of(file) == table_of(finished_file)
    with Store(file) as store:
        assert sorted(store.studies()) == ["smaller", "tiny"]
    lines = set(table_of(file, "smaller").splitlines())
    assert lines <= set(table_of(file).splitlines())


def test_a_finished_study_runs_nothing(finished_file, tiny):
    seen = []
    with Store(finished_file) as store:
        before = store.records()
        study = run_study(store, tiny, progress=seen.append)
        assert store.records() == before
    assert seen == []
    assert all(study.is_done(cell) for cell in study.cells)


def test_workers_change_no_result_and_progress_counts_up_to_what_was_expected(
    finished_file, tiny, tmp_path
):
    small = config_from_dict({**tiny.as_dict(), "name": "one", "sizes": [48]}, "x")
    seen = []
    with Store(tmp_path / "study.db", create=True) as store:
        store.register(small)
        run_study(store, small, workers=2, progress=seen.append)
        assert seen[-1].done == seen[-1].expected == len(store)
    assert [s.done for s in seen] == sorted(s.done for s in seen)
    assert seen[0].remaining_seconds is None
    assert seen[-1].remaining_seconds == 0
    assert (seen[-1].cells_done, seen[-1].num_cells) == (2, 2)
    assert all(1 <= len(s.running) <= 2 for s in seen[:-1])
    assert results_of(tmp_path / "study.db").items() <= results_of(finished_file).items()


def test_a_failing_run_names_its_cell_and_keeps_the_rest(tiny, tmp_path):
    # The theory mode refuses to run outside its hypotheses: an error, not an outcome.
    broken = {
        **tiny.as_dict(),
        "sampler": "packed-theory",
        "differ_in": ["degree_cutoff"],
        "grid": {"packed-theory": [{"tail_tolerance": 0.5, "edge_signal": 0.1}]},
        "random": False,
    }
    config = config_from_dict(broken, "x")
    with Store(tmp_path / "study.db", create=True) as store:
        store.register(config)
        with pytest.raises(CounterprobeError, match=r"a run failed \(screening of .*N = 64\)"):
            run_study(store, config, workers=1)
        assert len(store) == 4  # the references
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        with Store(tmp_path / "study.db") as store:
            run_study(store, config, workers=0)
