"""Compiled code kept on disk is used again, and never after a step inlined into it changed."""

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

from counterprobe.compiled import Waiting, kernel, on_compilation

STEPS = """
from counterprobe.compiled import inlined

@inlined
def step(x):
    return {body}
"""
BETWEEN = """
from counterprobe.compiled import inlined
from kept_steps import step

@inlined
def two_steps(x):
    return step(step(x))
"""
KERNELS = """
from counterprobe.compiled import kernel
from kept_between import two_steps

@kernel
def run(x):
    return two_steps(x)
"""
NAMES = ("kept_steps", "kept_between", "kept_kernels")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ModuleType]]:
    """Return a function that imports the kernels afresh, as another process would."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_between.py").write_text(BETWEEN)
    (tmp_path / "kept_kernels.py").write_text(KERNELS)

    def load() -> ModuleType:
        for name in NAMES:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("kept_kernels")

    yield load
    for name in NAMES:
        sys.modules.pop(name, None)


def write_step(folder: Path, body: str, age: int) -> None:
    """Write the innermost step, changed some seconds ago."""
    file = folder / "kept_steps.py"
    file.write_text(STEPS.format(body=body))
    changed = os.stat(folder / "kept_kernels.py").st_mtime - age
    os.utime(file, (changed, changed))


def test_a_changed_step_in_another_file_is_compiled_anew(load, tmp_path):
    write_step(tmp_path, "x + 1.0", age=20)
    assert load().run(0.0) == 2.0
    write_step(tmp_path, "x + 3.0", age=10)  # as long as before: only its date tells
    assert load().run(0.0) == 6.0


def test_unchanged_steps_are_loaded_from_disk(load, tmp_path):
    write_step(tmp_path, "x + 1.0", age=20)
    load().run(0.0)
    again = load().run
    assert again(0.0) == 2.0
    assert sum(again.stats.cache_hits.values()) == 1
    assert not again.stats.cache_misses


def test_what_is_kept_of_a_record_that_was_moved_is_compiled_anew(tmp_path, load):
    record = (
        "from typing import NamedTuple\n\nclass Pair(NamedTuple):\n    x: float\n    y: float\n"
    )
    (tmp_path / "kept_steps.py").write_text(record)
    (tmp_path / "kept_kernels.py").write_text(
        "from counterprobe.compiled import kernel\n\n"
        "@kernel\ndef total(p):\n    return p.x + p.y\n"
    )
    kernels = load()
    pair = importlib.import_module("kept_steps").Pair
    assert kernels.total(pair(1.0, 2.0)) == 3
    assert list((tmp_path / "__pycache__").glob("*.nbi"))
    (tmp_path / "kept_steps.py").rename(tmp_path / "kept_between.py")
    kernels = load()
    moved = importlib.import_module("kept_between").Pair
    assert kernels.total(moved(1.0, 2.0)) == 3


def test_compiling_is_told_once_and_only_when_something_is_compiled():
    @numba.njit
    def fresh(x):
        return x + 1

    told = []
    with on_compilation(lambda: told.append(1)):
        assert told == []
        assert fresh(1) == 2
        assert fresh(1.5) == 2.5  # another kernel, the same announcement
    assert told == [1]


def test_numba_waits_for_the_first_kernel_that_is_called():
    code = """
import sys, counterprobe as cp
assert "numba" not in sys.modules
law = cp.families.path(length=6, target_seed=1)
print(cp.sample(law.oracle(), "sequential", 1, seed=1, progress=False).sequences.shape)
assert "numba" in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "(1, 6)"


COMPREHENSION = """
from counterprobe.compiled import allocating_kernel, inlined

@inlined
def double(x):
    return 2.0 * x

@allocating_kernel
def doubled(xs):
    return sum([double(x) for x in xs])
"""


def test_a_waiting_kernel_is_compiled_once_whatever_asks_for_it_first(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_sums.py").write_text(COMPREHENSION)
    module = importlib.import_module("kept_sums")
    waiting = module.doubled
    assert isinstance(waiting, Waiting) and waiting.__name__ == "doubled"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: waiting(np.arange(4.0)), range(8)))
    assert found == [12.0] * 8
    # From then on the module has what Numba made, and who imported the name reaches the same.
    assert module.doubled is waiting.compiled
    assert not isinstance(module.double, Waiting)
    assert len(waiting.signatures) == 1
    with pytest.raises(AttributeError, match="no_such"):
        _ = waiting.no_such
    del sys.modules["kept_sums"]


def test_kernels_are_pickled_before_and_after_they_are_compiled(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kept_sums.py").write_text(COMPREHENSION)
    module = importlib.import_module("kept_sums")
    waiting = pickle.dumps({"rule": module.doubled})
    assert pickle.loads(waiting)["rule"] is module.doubled
    assert module.doubled(np.arange(4.0)) == 12.0
    assert pickle.loads(waiting)["rule"] is module.doubled  # what its module has by now
    code = (
        "import pickle, sys, numpy; print(*(pickle.loads(bytes.fromhex(one))['rule']("
        "numpy.arange(4.0)) for one in sys.argv[1:]))"
    )
    sent = [waiting.hex(), pickle.dumps({"rule": module.doubled}).hex()]
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    run = subprocess.run(
        [sys.executable, "-c", code, *sent], capture_output=True, text=True, check=True, env=where
    )
    assert run.stdout.split() == ["12.0", "12.0"]
    del sys.modules["kept_sums"]


def test_what_keeps_numba_from_compiling_is_told(monkeypatch):
    class Broken:
        def __getattr__(self, name):
            raise AttributeError(f"half a package without {name}")

    monkeypatch.setitem(sys.modules, "numba", Broken())
    with pytest.raises(RuntimeError, match="cannot compile abs_: half a package without njit"):
        kernel(abs_)(1.0)


def abs_(x):
    return abs(x)
