"""``--workers``: the same answers wherever the work is done, and refusals that say what to do."""

import json

import pytest

from command_line import invoke as run
from command_line import record_of, refused
from counterprobe.cli.options import losses_told

TEXT = "EVQLVESGGGLVQPGGSLRLSCXXSGFXXS"


def answer(*words):
    """What a command writes as JSON, seconds aside."""
    return without_seconds(record_of(*words))


def without_seconds(found):
    if isinstance(found, dict):
        return {key: without_seconds(one) for key, one in found.items() if key != "seconds"}
    return [without_seconds(one) for one in found] if isinstance(found, list) else found


DISCOVER = "discover", "--family", "path", "--n", 48
COMPARE = (
    "compare", "--family", "path", "--n", 32, "--runs", 2, "--targets", 2,
    "--samplers", "one-batch,maskgit:steps=4,packed-theory",
)  # fmt: skip


def test_discover_finds_the_same_in_processes():
    spread = "--workers", 1, "--timeout", 300
    assert answer(*DISCOVER, *spread) == answer(*DISCOVER)


@pytest.mark.slow
def test_compare_gives_the_same_table_from_processes():
    alone = run(*COMPARE, "--json", "-")
    spread = run(*COMPARE, "--json", "-", "--workers", 2)
    assert alone.exit_code == spread.exit_code
    assert alone.stderr == spread.stderr
    found = [without_seconds(json.loads(one.stdout)) for one in (spread, alone)]
    assert found[0] == found[1]
    assert len(found[0]["records"]) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("discover", "--n", 8), "oracle 'exact path': {}"),
        (("compare", "--n", 8, "--samplers", "one-batch", "--runs", 1), "one-batch failed: {}"),
        (("study", "run", "--preset", "smoke"), "{} (reference of matching, N = 256); finished"),
    ],
)
def test_a_limit_that_no_worker_keeps_ends_with_a_word(words, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*words, "--workers", 1, "--timeout", 1e-6)
    told = "no worker has answered for 1e-06 seconds"
    assert result.exit_code == 1
    assert what.format(told) in result.stderr


@pytest.mark.slow
def test_infill_draws_the_same_texts_here_and_elsewhere():
    words = "infill", "--model", "sapiens-heavy", "--sequence", TEXT, "--device", "cpu"
    words = *words, "--count", 3, "--sampler", "maskgit", "--set", "steps=2"
    spread, alone = answer(*words, "--workers", 2), answer(*words)
    assert spread == alone
    assert alone["measuring"] > 0


@pytest.mark.slow
def test_completions_and_finished_texts_come_from_workers_too():
    words = "infill", "--model", "sapiens-heavy", "--device", "cpu", "--sequence"
    one = answer(*words, "EVQLVESGXGLVQPGGSLRXSC", "--top-k", 2, "--workers", 1)
    assert one["ranked"][0]["text"] == "EVQLVESGGGLVQPGGSLRLSC"
    whole = answer(*words, "EVQLVESGGGL", "--workers", 1)
    assert (whole["texts"], whole["evaluations"]) == (["EVQLVESGGGL"], 0)


@pytest.mark.slow
def test_temperature_zero_is_left_to_drawing():
    words = "infill", "--model", "sapiens-heavy", "--device", "cpu", "--sequence", TEXT
    words = *words, "--temperature", 0
    assert answer(*words, "--workers", 1)["texts"] == answer(*words)["texts"]


def test_lost_workers_are_counted_when_all_has_ended_well(capsys):
    with losses_told():
        pass
    assert capsys.readouterr().err == ""
    with losses_told() as told:
        told("the first one died")
    assert capsys.readouterr().err == (
        "counterprobe: 1 worker was lost, and what was begun there was done again elsewhere; the "
        "last time the first one died\n"
    )
    with losses_told() as told:
        told("one died"), told("another was late")
    said = capsys.readouterr().err
    assert said.startswith("counterprobe: 2 workers were lost") and "another was late" in said
    with pytest.raises(ValueError, match="wrong"), losses_told() as told:
        told("one died")
        raise ValueError("wrong")  # the error says what happened
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((*DISCOVER, "--workers", 0), "workers must be at least 1"),
        ((*DISCOVER, "--cluster", "cloud"), "address must be tcp://HOST:PORT or ray:HOST:PORT"),
        ((*DISCOVER, "--cluster", "ray:auto", "--workers", 2), "leave out --workers"),
        (
            ("infill", "--model", "proteinmpnn", "--order", "commit", "--workers", 1),
            "--order commit must run in this process",
        ),
        (("study", "run", "--preset", "smoke", "--cluster", "x"), "address must be tcp://"),
        ((*COMPARE, "--timeout", 5), "--timeout must come with --workers or --cluster"),
        ((*COMPARE, "--timeout", 0, "--workers", 1), "--timeout must be above 0 seconds"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert complaint in refused(*words)
