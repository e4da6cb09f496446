"""Faults are made one at a time, in a fixed order, and judged by the tests of their module."""

import mutants
import pytest

SOURCE = '''"""A module."""

LIMIT = 3


@kernel
def first(values: list[int] = LIMIT) -> int:
    """Return the first of them."""
    if len(values) > 0:
        return values[0] + 1
    refuse(f"values must not be {values!r}")
    raise ValueError(f"values must not be empty, got {values!r}")
'''


def test_every_fault_changes_one_place_in_a_function_and_no_message():
    faults = mutants.Faults(SOURCE)
    assert len(faults) >= 4
    codes = []
    for number in range(len(faults)):
        line, change, code = faults[number]
        assert line in (9, 10)
        assert code != SOURCE and code.count("\n") == SOURCE.count("\n")
        assert change.startswith("-") and not {"raise", "refuse"} & {*change.split()}
        assert "refuse(f" in code
        compile(code, "fault.py", "exec")
        codes.append(code)
    assert any("> 1" in code for code in codes)
    assert any("values[0] - 1" in code for code in codes)


def test_faults_in_kernels_are_told_from_others_and_from_fields_of_records():
    source = f"""{SOURCE}

class Record:
    size: int = 1

    @property
    def twice(self) -> int:
        return 2 * self.size
"""
    faults = mutants.Faults(source)
    in_kernel = {faults[number][0]: faults.is_in_kernel(number) for number in range(len(faults))}
    assert in_kernel == {9: True, 10: True, 16: False, 20: False}


def test_the_order_is_fixed_by_the_seed_and_takes_files_in_turn():
    faults = {"a.py": mutants.Faults(SOURCE), "b.py": mutants.Faults(SOURCE)}
    one, two, other = (mutants.in_order(faults, seed) for seed in (1, 1, 2))
    assert one == two != other
    assert {file for file, _ in one[:2]} == {"a.py", "b.py"}
    assert len(set(one)) == len(one) == 2 * len(faults["a.py"])


def test_core_files_are_there_and_each_has_tests_to_judge_it():
    files = mutants.core_files()
    assert {"streams.py", "rows.py", "run/door.py", "planning/plan.py"} <= set(files)
    assert any(file.startswith("targets/inference/") for file in files)
    for file in files:
        assert mutants.tests_of(file), file
    stages = mutants.tests_of("run/door.py")
    assert stages[0] == ["tests/run/test_door.py"] and stages[-1] == ["tests/run"]


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("def test(): pass", mutants.SURVIVED),
        ("def test(): assert False", mutants.CAUGHT),
        ("import missing_module", mutants.CAUGHT),
        ("import time\ndef test(): time.sleep(600)", mutants.HUNG),
    ],
)
def test_a_fault_is_caught_when_a_test_fails_or_hangs(tmp_path, monkeypatch, test, outcome):
    monkeypatch.setattr(mutants, "TREE", tmp_path)
    (tmp_path / "test_it.py").write_text(test)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    seconds = 3.0 if outcome == mutants.HUNG else 120.0
    assert mutants.run_tests(["test_it.py"], seconds) == outcome
