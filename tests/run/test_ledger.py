"""The sums of a ledger, and the names of needs."""

from counterprobe import Ledger


def test_sums():
    ledger = Ledger(preprocessing=1, probes=5, commits=3, selected_commits=2)
    assert ledger.noncommit == 6
    assert ledger.evaluations == 9
    assert ledger.evaluations_without_selection == 11
    assert ledger.stages_without_selection == 2


def test_a_ledger_as_plain_values():
    assert Ledger(1, 2, 3, 4, 5, 6, 7).as_dict() == {
        "preprocessing": 1,
        "probes": 2,
        "commits": 3,
        "stages": 4,
        "rows_read": 5,
        "widest_stage": 6,
        "selected_commits": 7,
        "noncommit": 3,
        "evaluations": 6,
        "evaluations_without_selection": 13,
    }


def test_ledgers_of_one_run_after_the_other_add_up_and_the_widest_stage_is_the_wider():
    one = Ledger(1, 2, 3, 4, 5, 6, 1)
    other = Ledger(10, 20, 30, 40, 50, 5, 10)
    assert one + other == other + one == Ledger(11, 22, 33, 44, 55, 6, 11)
    assert one + Ledger() == one
