from __future__ import annotations

import pytest
from designs.tasks import TASKS, masked_at, tasks_named
from designs.twelve import TWELVE, backbone_named, spelled_out

import counterprobe as cp
from counterprobe.models import Backbone


def test_masks_stand_where_they_were_put():
    assert masked_at("ACDEF", [0, 3]) == "XCDXF"
    with pytest.raises(ValueError, match=r"0\.\.4"):
        masked_at("ACDEF", [5])


def test_tasks_mask_as_many_residues_as_their_titles_say():
    counts = {name: task.text.count("X") for name, task in TASKS.items()}
    assert counts["antiberty loops"] == counts["sapiens heavy loops"] == 29
    assert counts["antiberty random half"] == 60
    assert counts["antiberty everything"] == 120


def test_light_loops_begin_after_a_cysteine_and_end_before_the_framework():
    text = TASKS["antiberty light loops"].text
    _, first, second, third = (part for part in text.split("X") if part)
    assert text.split("X")[0].endswith("C")
    assert first.startswith("WYQQ")
    assert second.startswith("GVPSRF") and second.endswith("YYC")
    assert third.startswith("FGQGT")


def test_every_model_reads_its_tasks():
    for task in TASKS.values():
        if task.model.startswith("sapiens"):
            template = cp.models.load(task.model, device="cpu").template(task.text)
            assert len(template.masked) == task.text.count("X")


def test_tasks_are_found_by_name_and_others_refused():
    assert tasks_named("all") == list(TASKS.values())
    assert [task.name for task in tasks_named("sapiens light loops,antiberty loops")] == [
        "sapiens light loops",
        "antiberty loops",
    ]
    with pytest.raises(ValueError, match="tasks must be among"):
        tasks_named("antiberty loop")


def test_the_twelve_are_named_and_one_that_was_not_fetched_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKBONES", str(tmp_path))
    assert len(TWELVE) == 12 and spelled_out("1ubi,twelve") == ("1ubi", *TWELVE)
    assert len(backbone_named("1ubi")) == 76
    with pytest.raises(ValueError, match=r"3enl must lie in .*python tools/fetch_backbones\.py"):
        backbone_named("3enl")
    Backbone.shipped("1ubi").save(tmp_path / "3enl.npz")
    assert len(backbone_named("3enl")) == 76
