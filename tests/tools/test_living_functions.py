"""Functions that stand in memory are given other code; kernels and default values are not."""

import importlib.util
import sys
from pathlib import Path

import living_functions
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
    living = living_functions.Living(Path(module.__file__))
    assert living.changed(SOURCE) == []
    changed = living.changed(SOURCE.replace(before, after))
    assert use(module) == outcomes[0]
    living.exchange(changed)
    assert use(module) == outcomes[1], "what was remembered is forgotten"


@pytest.mark.parametrize(("before", "after"), [("= 7", "= 8"), ("value=3", "value=4")])
def test_kernels_and_default_values_are_left_out(module, before, after):
    living = living_functions.Living(Path(module.__file__))
    assert living.changed(SOURCE.replace(before, after)) == []


def test_functions_note_their_names_while_it_is_asked_for_and_do_what_they_did(module):
    living = living_functions.Living(Path(module.__file__))
    called: set[str] = set()
    assert module.cached(5) == 6
    with living.noting(called):
        assert module.cached(5) == 6, "what was remembered would hide the call"
        assert called == {"cached"}
        called.clear()
        assert module.Counter().twice == [0, 2, 4] and module.chosen() == 3
        assert called == {"Counter.twice", "chosen"}
        called.clear()
    assert module.cached(5) == 6 and module.chosen() == 3
    assert called == set()


def test_changed_functions_are_named_with_their_classes():
    names = living_functions.names_changed
    assert names(SOURCE, SOURCE) == set()
    assert names(SOURCE, SOURCE.replace("2 * k", "3 * k")) == {"Counter.twice"}
    assert names(SOURCE, SOURCE.replace("= 7", "= 8")) == {"compiled"}
    assert names(SOURCE, SOURCE.replace("value=3", "value=4")) == set()


@pytest.mark.parametrize("more", ["LIMIT = 3\n", "\n\n"])
def test_functions_that_only_stand_on_other_lines_are_the_same(module, more):
    living = living_functions.Living(Path(module.__file__))
    moved = SOURCE.replace("@lru_cache\n", f"{more}@lru_cache\n")
    assert living.changed(moved) == []
    assert len(living.changed(moved.replace("2 * k", "3 * k"))) == 1
