"""The trace of an infill knows letters, labels and places; a plain oracle has none of them."""

import os

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.infilling.task import Task, about_task, make_task
from counterprobe.models.letters import Letters
from counterprobe.trace import load_trace, replay

LETTERS = Letters("AB<", (5, 6, 7), mask_id=9, prefix=(0,), suffix=(2,))


class Spelling:
    """A model of three letters that do not depend on each other."""

    name = "spelling"

    def template(self, text, *, allowed=None):
        return LETTERS.template(text, allowed=allowed)

    def oracle(self, template, **options):
        def function(states):
            return np.tile([0.5, 0.3, 0.2], (*states.shape, 1))

        oracle = cp.CallableOracle(function, template.length, 3)
        return oracle


def test_letters_and_the_model_are_named():
    about = about_task(make_task(Spelling(), "AXBX"), "counterprobe infill")
    assert list(about.tokens) == ["A", "B", "<"]
    assert (about.model, about.coordinates, about.stretches) == ("spelling", None, None)
    assert about.positions == ("1", "2", "3", "4")  # as people count
    assert about.command == "counterprobe infill"


def test_a_plain_oracle_has_numbers(table_law):
    about = about_task(make_task(table_law.oracle()))
    assert (about.model, about.tokens, about.positions) == (None, None, None)


def test_a_backbone_gives_residues_their_places_and_numbers():
    backbone = cp.models.Backbone.shipped("1ubi")

    class Folding:
        name = "folding"

    Folding.backbone = backbone
    task = Task(None, np.full(76, cp.MASK), None, 0, 1.0, Folding())
    about = about_task(task)
    assert about.positions[0] == str(backbone.residue_index[0] + 1)
    assert about.stretches == ((0, "A"),)
    assert (np.asarray(about.coordinates) == backbone.coordinates[:, 1]).all()


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_infill_writes_what_the_first_sequence_did(tmp_path, name):
    options = {"sampler": "sequential", "count": 3, "seed": 2, "progress": False}
    plain = cp.infill(Spelling(), "AXBX", **options)
    batch = cp.infill(Spelling(), "AXBX", trace=tmp_path / name, **options)
    trace = load_trace(tmp_path / name)
    followed = replay(trace)
    assert (plain.sequences == batch.sequences).all()
    assert followed.tokens.tolist() == batch.sequences[0].tolist()
    assert followed.round_of_position.tolist() == [-1, 0, -1, 1]
    assert "".join(trace.header["tokens"][k] for k in followed.tokens) == batch.texts[0]


def test_what_was_spent_beside_the_run_is_told(tmp_path):
    model, text = Spelling(), "AXBXX"
    structure = cp.discover(cp.infilling.task.make_task(model, text).oracle, mode="soft",
                            given=model.template(text).given, probes=8)  # fmt: skip
    whole = cp.infill(model, text, structure=structure, trace=tmp_path / "run.json",
                      progress=False)  # fmt: skip
    beside = load_trace(tmp_path / "run.json").header["beside"]
    assert beside == {
        "discovery": structure.ledger.evaluations,
        "recognition": whole.ledger.evaluations - whole.ledgers[0].evaluations,
    }
    cp.infill(model, text, trace=tmp_path / "plain.json", progress=False)
    assert load_trace(tmp_path / "plain.json").header["beside"] == {}


def test_a_plan_that_auto_priced_is_traced_with_what_it_was_measured_to_break(tmp_path):
    oracle = cp.families.matching(16, target_seed=1).oracle()
    options = {"count": 150, "trace": tmp_path / "run.json", "progress": False}
    choice = cp.infill(oracle, trace_sequence=100, **options).choice
    end = load_trace(tmp_path / "run.json").end
    assert choice.sampler == "planned" and choice.batch_kl < 0.1
    assert (end["batch_kl"], end["batch_kl_se"]) == (choice.batch_kl, choice.batch_kl_se)
    assert end["beside"] == {"discovery and pricing": choice.ledger.evaluations}
    # The first designs are drawn before anything is looked for.
    cp.infill(oracle, trace_sequence=0, **options)
    end = load_trace(tmp_path / "run.json").end
    assert end["batch_kl"] is None and "beside" not in end


def test_a_finished_text_leaves_a_trace_of_nothing_done(tmp_path):
    cp.infill(Spelling(), "AB", trace=tmp_path / "run.json", progress=False)
    trace = load_trace(tmp_path / "run.json")
    assert [event["type"] for event in trace.events] == ["end"]
    assert trace.end["ledger"]["evaluations"] == 0


def test_a_name_that_no_trace_has_is_refused_before_the_model_is_loaded(tmp_path):
    with pytest.raises(ValueError, match="must end in"):
        cp.infill("no such model", "AB", trace=tmp_path / "run.txt")
    assert os.listdir(tmp_path) == []


def test_a_resumed_infill_is_traced_again_and_so_is_another_sequence(tmp_path):
    options = {"sampler": "sequential", "count": 3, "seed": 2, "progress": False}
    options |= {"trace": tmp_path / "run.json"}

    def infill(sequence):
        template = LETTERS.template("AXBX")
        oracle = Spelling().oracle(template).cached(tmp_path / "replies")
        return cp.infill(oracle, template.given, trace_sequence=sequence, **options)

    batch = infill(2)
    trace = load_trace(tmp_path / "run.json")
    assert replay(trace).tokens.tolist() == batch.sequences[2].tolist()
    assert (trace.header["sequence"], trace.header["count"]) == (2, 3)
    infill(2)
    assert load_trace(tmp_path / "run.json").events[:-1] == trace.events[:-1]
    again = infill(1)
    assert again.sequences.tolist() == batch.sequences.tolist()
    trace = load_trace(tmp_path / "run.json")
    assert replay(trace).tokens.tolist() == batch.sequences[1].tolist()


@pytest.mark.parametrize("sequence", [2, -1, 0.5])
def test_a_sequence_to_trace_must_be_one_that_is_drawn(sequence):
    with pytest.raises(ValueError, match="trace_sequence must be"):
        cp.infill("no such model", "AX", count=2, trace_sequence=sequence)
