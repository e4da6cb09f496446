"""Faults are put into functions that stand in memory; what cannot be exchanged is left out."""

import importlib.util
import json
import sys
from pathlib import Path

import mutants
import mutants_in_memory
import pytest

SOURCE = '''"""A module."""

from functools import lru_cache

from counterprobe.compiled import kernel


@lru_cache
def cached(value):
    return value + 1


class Counter:
    @property
    def twice(self):
        return [2 * k for k in range(3)]


@kernel
def compiled(values):
    values[0] = 7


def chosen(value=3):
    return value
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    place = tmp_path / "counterprobe_example.py"
    place.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("counterprobe_example", place)
    made = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, made)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize(
    ("before", "after", "use", "outcomes"),
    [
        ("value + 1", "value - 1", lambda m: m.cached(5), (6, 4)),
        ("2 * k", "3 * k", lambda m: m.Counter().twice, ([0, 2, 4], [0, 3, 6])),
    ],
)
def test_a_function_has_the_fault_after_the_exchange_whoever_holds_it(
    module, before, after, use, outcomes
):
    living = mutants_in_memory.Living(Path(module.__file__))
    assert living.changed(SOURCE) == []
    changed = living.changed(SOURCE.replace(before, after))
    assert use(module) == outcomes[0]
    living.exchange(changed)
    assert use(module) == outcomes[1], "what was remembered is forgotten"


@pytest.mark.parametrize(("before", "after"), [("= 7", "= 8"), ("value=3", "value=4")])
def test_kernels_and_default_values_are_left_out(module, before, after):
    living = mutants_in_memory.Living(Path(module.__file__))
    assert living.changed(SOURCE.replace(before, after)) == []


def test_file_and_seed_decide_which_faults_come_first():
    one, again, other, elsewhere = (
        mutants_in_memory.shuffled(file, 50, seed)
        for file, seed in [("a.py", 1), ("a.py", 1), ("a.py", 2), ("b.py", 1)]
    )
    assert one == again and one != other and one != elsewhere
    assert sorted(one) == list(range(50))


def test_survivors_of_a_report_are_judged_again(tmp_path):
    outcomes = [mutants.CAUGHT, mutants.SURVIVED, mutants.HUNG, mutants.SURVIVED]
    verdicts = [{"number": k, "outcome": outcome} for k, outcome in enumerate(outcomes)]
    records = [{"file": "a.py", "verdicts": verdicts}, {"file": "b.py", "verdicts": verdicts[:1]}]
    (tmp_path / "report").write_text("\n".join(map(json.dumps, records)))
    assert mutants_in_memory.survivors_of(tmp_path / "report") == {"a.py": [1, 3]}
