"""What stands around a run: nothing unasked, warm kernels, and a word about what it will cost."""

import pytest

import counterprobe as cp
from command_line import invoke, refused
from counterprobe.cli import runs
from counterprobe.cli.options import Law
from counterprobe.samplers import SAMPLERS, Compressed, Packed, PackedTheory, Sequential


def test_nothing_is_put_around_an_oracle_unasked(table_law):
    oracle = table_law.oracle()
    with runs.oracle_chain(oracle, runs.Faults()) as chain:
        assert chain.oracle is oracle and chain.record() == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--retries", -1), "--retries must be 0 or more, got -1"),
        (("--timeout", 0), "--timeout must be above 0 seconds, got 0.0"),
        (("--recheck", 2), "--recheck must lie in [0, 1], got 2.0"),
        (("--cache", "none/replies"), "does not exist"),
        (("--cache", "."), "it is a folder"),
    ],
)
def test_fault_options_are_checked_first(words, message):
    assert message in refused("discover", "--n", 20, *words)
    assert message in refused("infill", "--model", "sapiens-heavy", *words)


def test_a_small_run_of_each_rule_goes_first_and_once(monkeypatch):
    warmed = []
    monkeypatch.setattr(runs, "_warm", set())
    monkeypatch.setattr(
        runs, "run_trial", lambda law, rule, *_, **__: warmed.append((law.length, rule.name))
    )
    words = ("compare", "--n", 20, "--samplers", "punt,one-batch,punt", "--runs", 3)
    assert invoke(*words).exit_code == 0
    assert warmed == [(64, "punt"), (64, "one-batch")]
    runs.warm_up(Law(edges="missing.txt"), Sequential())
    assert warmed[-1] == (64, "sequential"), "an edge list is stood in for"


def test_a_small_run_ends_when_it_has_warmed_enough(monkeypatch):
    monkeypatch.setattr(runs, "_warm", set())
    monkeypatch.setattr(runs, "ENOUGH", 5)
    runs.warm_up(Law(), Sequential())
    runs.warm_up(Law(), PackedTheory(degree_cutoff=1000))  # refused: said by the real run


# ----- Costs ------------------------------------------------------------------------------------


def test_a_run_that_costs_more_than_its_positions_says_so_before():
    result = invoke("sample", "--n", 29, "--sampler", "lookum")
    assert result.exit_code == 0
    assert "counterprobe: note: lookum will make about " in result.stderr
    assert " evaluations or more for 29 positions; one at a time would take 29\n" in result.stderr


def test_a_run_that_will_not_screen_says_so_once():
    result = invoke("sample", "--n", 29, "--sampler", "packed")
    assert result.exit_code == 0
    (line,) = [line for line in result.stderr.splitlines() if "packed" in line]
    assert line.startswith("counterprobe: note: packed would take about ")
    assert "for 29 positions, more than one at a time, and so decodes one position at a" in line


@pytest.mark.parametrize(
    ("name", "length"),
    [("lookum", 40), ("info-gain", 40), ("remdm", 40)],
)
def test_what_is_foreseen_is_about_what_is_charged(name, length):
    law = cp.families.path(length, target_seed=196)
    sampler = SAMPLERS[name]()
    foreseen = sampler.foreseen_evaluations(length, law.vocab_size)
    total = sampler(cp.run.Run(law.oracle()), cp.Streams.from_seed(1)).ledger.evaluations
    assert foreseen / 3 < total < 3 * foreseen


def test_discovery_is_foreseen_from_below_and_a_refusal_not_at_all():
    law = cp.families.path(60, target_seed=196)
    for screen in (Compressed(), Compressed(assume="generic"), Compressed(method="regression")):
        total = screen(cp.run.Run(law.oracle()), cp.Streams.from_seed(1)).ledger.evaluations
        assert total / 3 < screen.foreseen_evaluations(60, 2048) < total
    assert Compressed(method="regression").foreseen_evaluations(60, 2048) > 60
    assert PackedTheory().foreseen_evaluations(64, 2048) is None
    assert Packed(num_colors=2).foreseen_evaluations(64, 2048) is None
    assert Packed().foreseen_evaluations(512, 2048) is None  # one at a time in place of a screen
    shared = Packed(shared_by=100)
    total = shared(cp.run.Run(law.oracle()), cp.Streams.from_seed(1)).ledger.evaluations
    assert total / 3 < shared.foreseen_evaluations(60, 2048) < 3 * total
    feasible = PackedTheory(epsilon=0.9, edge_signal=0.9, tail_tolerance=0.5)
    assert feasible.foreseen_evaluations(100, 2048) > 10**5


def test_what_saves_evaluations_is_not_commented_on(capsys):
    quiet = set(SAMPLERS) - {"packed", "compressed", "packed-theory", "lookum", "info-gain"}
    law = cp.families.path(40, target_seed=196)
    runs.say_costs([SAMPLERS[name]() for name in quiet - {"remdm"}], law)
    runs.say_costs([Packed(), Compressed()], cp.families.path(65_536, target_seed=196))
    assert capsys.readouterr().err == ""
