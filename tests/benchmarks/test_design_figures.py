from __future__ import annotations

import pytest
from designs.drawing import draw_antibodies, draw_backbones, draw_proteins
from designs.judged_drawing import draw_judged


def price(way: str, batches: int) -> dict:
    return {"way": way, "batches": batches, "direction": "product", "kl": 0.1, "kl_se": 0.01}


def sampler(name: str, **changed) -> dict:
    entry = {"sampler": name, "evaluations": 8, "kl": 0.0, "kl_se": 0.0}
    return {**entry, "log_likelihood": -1.5, "log_likelihood_se": None, **changed}


def is_png(file) -> bool:
    return file.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "parts",
    [
        {"prices": {"a": price("planned", 8), "b": {"error": "no"}}},
        {"speed": {"1": {"at_once": 1, "package": 1.0, "cached 16": 15.0}}},
        {
            "prices": {"a": price("random", 4)},
            "speed": {"1": {"at_once": 1, "package": 1.0, "colabdesign": 2.0}},
        },
    ],
)
def test_proteins_are_drawn_with_what_there_is(tmp_path, parts):
    draw_proteins({"1ubi": parts, "1ake": {"prices": {}}}, tmp_path / "figure.png")
    assert is_png(tmp_path / "figure.png")


def test_antibodies_are_drawn_without_a_batch_kl_or_a_reference(tmp_path):
    samplers = {"a": sampler("planned"), "b": sampler("punt", kl=None), "c": {"error": "no"}}
    draw_antibodies({"antiberty loops": {"samplers": samplers}}, tmp_path / "figure.png")
    assert is_png(tmp_path / "figure.png")


def test_backbones_are_drawn_with_what_there_is(tmp_path):
    known = {"structure": {"planned": {"residues": 76}}}
    priced = {"commit 1": {"planned 16": price("planned", 16), "random 16": {"error": "no"}}}
    timed = {"speed": {"1024": {"at_once": 1024, "package": 1.0, "cached 16": 15.0}}}
    tasks = {"a": known | priced | timed, "b": {"task": {"begun": {"error": "no"}}}}
    draw_backbones(tasks, tmp_path / "figure.png")
    assert is_png(tmp_path / "figure.png")


def judged(evaluations: float, **changed) -> dict:
    entry = {"evaluations": evaluations, "kl": 1.0, "kl_se": 0.1, "judge": -50.0, "judge_se": 1.0}
    return {**entry, "variety": 0.5, **changed}


def test_judged_designs_are_drawn_with_what_every_backbone_has(tmp_path):
    ways = {
        "one-batch": judged(1),
        "planned 4": judged(4),
        "random 4": {"error": "no"},
        "sequential": judged(76, kl=0.0, kl_se=0.0),
        "punt epsilon=0.1": judged(20, kl=None, kl_se=None),
        "entropy-bounded gamma=10": judged(12),
    }
    tasks = {"1ubi T=1": {"ways": ways}, "1ake T=1": {"ways": {**ways, "planned 8": judged(8)}},
             "1ake T=0.3": {"ways": {"planned 8": judged(8, kl=None)}}}  # fmt: skip
    draw_judged(tasks, tmp_path / "figure.png")
    assert is_png(tmp_path / "figure.png")


@pytest.mark.parametrize("draw", [draw_proteins, draw_antibodies, draw_backbones, draw_judged])
def test_nothing_to_draw_is_said(tmp_path, draw):
    with pytest.raises(ValueError, match="nothing to draw"):
        draw({"1ubi": {"prices": {"a": {"error": "no"}}}}, tmp_path / "figure.png")
