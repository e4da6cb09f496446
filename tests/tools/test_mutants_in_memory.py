"""Faults that stand in memory are judged by the tests that call them, nearest first."""

import json
import subprocess
import sys

import mutants
import mutants_in_memory
import pytest
from mutants_in_memory import Fault, Report

CHOSEN = "graph/neighbours.py"


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


@pytest.mark.parametrize("kernels", [False, True])
def test_kernels_are_chosen_alone_or_not_at_all(kernels):
    file = "graph/cycles.py"
    text = (mutants.ROOT / mutants.PACKAGE / file).read_text()
    chosen, left_out = mutants_in_memory.chosen_faults(file, None, 1, 5, kernels=kernels)
    assert len(chosen) == 5 and left_out >= 0
    assert all((fault.functions == {"_search_bridges"}) == kernels for fault in chosen)
    assert all(fault.file == file and fault.source != text for fault in chosen)
    numbers = [fault.number for fault in chosen]
    same, _ = mutants_in_memory.chosen_faults(file, numbers[::-1], 7, 3, kernels=kernels)
    assert same == chosen[:1:-1], "numbers that are given are taken in their order"


def test_wider_tests_hold_the_nearest_and_those_of_the_folder():
    for file in mutants.core_files():
        wider = mutants_in_memory.wider_tests(file)
        assert set(mutants_in_memory.nearest_tests(file)) <= set(wider), file
        assert all((mutants.ROOT / path).exists() for path in wider), file
    assert "tests/graph" in mutants_in_memory.wider_tests(CHOSEN)


def test_a_fault_is_caught_by_a_test_that_calls_it_and_survives_without_one():
    text = (mutants.ROOT / mutants.PACKAGE / CHOSEN).read_text()
    name = "independent_set"
    wrong = text.replace("    return ", "    return 1 + ")
    assert wrong != text
    faults = [
        Fault(CHOSEN, 0, 1, "", wrong, frozenset({name})),
        Fault(CHOSEN, 1, 1, "", text, frozenset({name})),
        Fault(CHOSEN, 2, 1, "", wrong, frozenset({"a_function_that_nothing_calls"})),
    ]
    found = mutants_in_memory.judge(faults, ["tests/graph/test_independent.py"], plain=False)
    outcomes = [mutants.CAUGHT, mutants.SURVIVED, mutants.SURVIVED]
    assert found == {"outcomes": outcomes, "set_aside": []}


def test_the_table_counts_by_folder_and_wider_tests_correct_it(tmp_path, capsys):
    faults = [Fault("run/a.py", k, k, "", "", frozenset()) for k in range(3)]
    other = [Fault("rows.py", 0, 1, "", "", frozenset())]
    report = Report(tmp_path / "new" / "report")
    report.add(faults, [mutants.CAUGHT, mutants.SURVIVED, mutants.SURVIVED], 2)
    report.add(other, [mutants.HUNG], 0)
    assert mutants_in_memory.survivors_of(tmp_path / "new" / "report") == {"run/a.py": [1, 2]}
    assert "run/a.py: 1 of 3 caught, 2 left out" in capsys.readouterr().out
    report.correct(faults[1:], [mutants.CAUGHT, mutants.SURVIVED])
    assert mutants_in_memory.survivors_of(tmp_path / "new" / "report") == {"run/a.py": [2]}
    table, share = report.table()
    _, run, rows, together = (line.split() for line in table.splitlines())
    assert run == ["run", "(1)", "3", "2", "67%", "1", "0", "0", "2"]
    assert rows == ["rows.py", "(1)", "1", "1", "100%", "0", "1", "0", "0"]
    assert together == ["together", "(2)", "4", "3", "75%", "1", "1", "0", "2"]
    assert share == 0.75
    report.add(other, [mutants_in_memory.BY_INDEX], 0)
    assert report.table()[0].splitlines()[2].split()[3:] == ["1", "100%", "0", "0", "1", "0"]


@pytest.mark.slow
def test_faults_of_kernels_are_judged_without_compiling(tmp_path):
    words = "--kernels --wider --only graph/rooted.py --most 2 --json".split()
    command = [sys.executable, "tools/mutants_in_memory.py", *words, str(tmp_path / "report")]
    subprocess.run(command, cwd=mutants.ROOT, check=False, capture_output=True)
    (record,) = map(json.loads, (tmp_path / "report").read_text().splitlines())
    assert record["file"] == "graph/rooted.py" and len(record["verdicts"]) == 2
