"""An attack with forests judges by what a structure misses, and counts what is wrong."""

import json
import sys

import attack_forests
import numpy as np
import pytest

import counterprobe as cp


def law_of_kind(kind: str, seed: int = 1) -> tuple:
    return attack_forests.law_of(seed, attack_forests.KINDS.index(kind))


@pytest.mark.parametrize("kind", attack_forests.KINDS)
def test_a_law_is_the_same_again(kind):
    hard, streams, assume = law_of_kind(kind)
    again, same_streams, same = law_of_kind(kind)
    assert hard.kind == kind and (streams, assume) == (same_streams, same)
    assert np.array_equal(hard.law.edges, again.law.edges)
    assert np.array_equal(hard.given, again.given)
    assert assume == "tested" or hard.is_generic
    assert kind != "sizes" or hard.law.length in attack_forests.EDGES_OF_BLOCKS


@pytest.mark.parametrize("kind", ["strong", "tied"])
def test_the_generic_assumption_is_asked_of_strong_tables(kind):
    drawn = [law_of_kind(kind, seed) for seed in range(12)]
    assert {assume for _, _, assume in drawn} == {"generic", "tested"}
    assert all(hard.law.pair.min() < 1e-2 for hard, _, _ in drawn)


def test_all_laws_keep_the_generic_assumption_where_it_is_asked_for():
    drawn = [attack_forests.law_of(1, k, "generic") for k in range(16)]
    assert {assume for _, _, assume in drawn} == {"generic"}
    assert {hard.kind for hard, _, _ in drawn} == set(attack_forests.GENERIC)
    assert all(hard.is_generic for hard, _, _ in drawn)
    assert {attack_forests.law_of(1, k, "tested")[2] for k in range(13)} == {"tested"}


@pytest.mark.parametrize("seed", [0, 9, 16])
def test_no_edge_of_a_tied_matching_is_missed(seed):
    hard, streams, assume = law_of_kind("tied", seed)
    told = attack_forests.attack(hard, streams, assume)
    assert assume == "generic" and len(hard.law.edges) == hard.law.length // 2
    assert (told["outcome"] == "refused") or (told["missed"] == 0 and not told["is_wrong"])


def test_the_information_of_an_edge_is_that_of_its_joint_law():
    joint = np.array([[0.2, 0.05, 0.1], [0.05, 0.05, 0.3], [0.05, 0.1, 0.1]])
    law = cp.ForestLaw(np.ones((2, 3)), [[0, 1]], joint[None])
    nothing = np.full(2, cp.MASK, dtype=np.int32)
    hard = attack_forests.Hard("tiny", law, law.oracle(), nothing, True)
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    expected = (joint * np.log(joint / apart)).sum()
    assert attack_forests.information(hard, 0, 1) == pytest.approx(expected)
    assert attack_forests.information(hard, 1, 0) == pytest.approx(expected)


def test_a_law_that_is_decoded_is_right():
    told = attack_forests.attack(*law_of_kind("tiny"))
    assert (told["outcome"], told["decoder"]) == ("certified", "peeling")
    assert (told["missed"], told["nats"], told["is_wrong"]) == (0, 0.0, False)


def independent(oracle, streams, *, given, **settings):
    """A discovery of uniform rows, in which nothing depends on anything."""
    size = oracle.vocab_size
    uniform = cp.CallableOracle(
        lambda states: np.full((*states.shape, size), 1 / size), oracle.length, size
    )
    return cp.discover(uniform, streams, given=given, **settings)


def test_a_structure_that_misses_every_edge_is_counted():
    hard, streams, assume = law_of_kind("hubs")
    told = attack_forests.attack(hard, streams, assume, independent)
    assert told["is_wrong"] and told["missed"] == len(hard.law.edges)
    assert told["missed_nats"] > attack_forests.WRONG
    counted = attack_forests.summary([told] * 3)
    assert (counted["laws"], counted["wrong"], counted["failed"]) == (3, 3, 0)


def test_refusals_and_failures_are_told_apart():
    hard, streams, assume = law_of_kind("tiny")
    for outcome, problem in {"refused": cp.Infeasible("no"), "failed": ValueError("oops")}.items():

        def raises(*_, problem=problem, **__):
            raise problem

        told = attack_forests.attack(hard, streams, assume, raises)
        assert told["outcome"] == outcome and str(problem) in told["said"]


def test_the_program_writes_what_it_counted_and_fails_when_much_is_wrong(
    monkeypatch, tmp_path, capsys
):
    file = tmp_path / "attack.json"
    monkeypatch.setattr(sys, "argv", ["attack_forests", "--laws", "2", "--json", str(file)])
    monkeypatch.setattr(attack_forests, "law_of", lambda seed, k, assume: attack_forests_law(seed))
    with pytest.raises(SystemExit) as end:
        attack_forests.main()
    written = json.loads(file.read_text())
    assert end.value.code == 0
    assert written["kinds"]["tiny"]["laws"] == written["kinds"]["all"]["certified"] == 2
    assert "all" in capsys.readouterr().out
    told = attack_forests.attack(*attack_forests_law(1), independent)
    monkeypatch.setattr(attack_forests, "attack", lambda *_: told)
    with pytest.raises(SystemExit) as end:
        attack_forests.main()
    assert end.value.code == 1 and json.loads(file.read_text())["kinds"]["all"]["wrong"] == 2


def attack_forests_law(seed: int) -> tuple:
    """A small law of a kind."""
    draw = np.random.default_rng(seed)
    return attack_forests.draw_forest(draw, "tiny"), cp.Streams(1, 2), "tested"
