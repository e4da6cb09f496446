"""One call from a model and a text to finished texts."""

import pickle

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import models, testing
from counterprobe.infilling.task import ModelOracle
from counterprobe.oracles import as_oracle
from counterprobe.samplers import SAMPLERS

MASKED = "X" * 5

CPU = {"device": "cpu"}


def test_texts_are_the_sequences_spelled_and_context_stays(forest_law, spelled):
    drawn = cp.infill(spelled(forest_law), "XXBXX", sampler="sequential", count=6, progress=False)
    assert len(drawn.texts) == 6
    for text, tokens in zip(drawn.texts, drawn.sequences, strict=True):
        assert text == "".join("ABC"[t] for t in tokens)
        assert text[2] == "B"
    plain = cp.sample(
        forest_law.oracle(), "sequential", 6, seed=drawn.results[0].streams,
        given=[-1, -1, 1, -1, -1], progress=False,
    )  # fmt: skip
    assert plain.sequences.tolist() == drawn.sequences.tolist()


@pytest.mark.parametrize("name", sorted(set(SAMPLERS) - {"packed-theory"}))
def test_every_sampler_fills_in_with_as_many_evaluations_as_it_is_charged(
    forest_law, spelled, name
):
    model = spelled(forest_law)
    rule = SAMPLERS[name]().informed_by(forest_law)
    before = model.network.states
    drawn = cp.infill(model, "XXBXX", sampler=rule, count=3, progress=False)
    asked = model.network.states - before
    assert asked == drawn.ledger.evaluations + drawn.measuring.evaluations
    for result in drawn.results:
        assert result.stop is not cp.StopReason.COMPLETED or (result.tokens >= 0).all()


def test_a_text_without_a_mask_comes_back_and_costs_nothing(forest_law, spelled):
    model = spelled(forest_law)
    drawn = cp.infill(model, "ABCAB", count=2, progress=False, likelihood_orders=0)
    assert drawn.texts == ("ABCAB", "ABCAB")
    assert drawn.ledger == drawn.measuring == cp.Ledger()
    assert model.network.states == 0
    assert drawn.log_probs.tolist() == [0.0, 0.0]


def test_a_step_has_its_texts(forest_law, spelled):
    steps = []
    drawn = cp.infill(
        spelled(forest_law), "XXBXX", sampler="random-balanced", batches=2, count=2,
        on_event=cp.run.Listener(steps.append, cp.run.Step), progress=False,
    )  # fmt: skip
    assert [step.round for step in steps] == [0, 1]
    assert steps[0].texts[0].count("X") == 2
    assert steps[1].texts == drawn.texts


def test_what_a_callback_raises_ends_the_call(forest_law, spelled):
    def stop(step):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        cp.infill(spelled(forest_law), "XXBXX", on_event=stop, progress=False)


def test_log_probs_of_a_sequential_draw_are_the_laws_own(forest_law, spelled):
    drawn = cp.infill(spelled(forest_law), MASKED, sampler="sequential", count=4, progress=False)
    exact = [float(forest_law.log_prob(tokens)) for tokens in drawn.sequences]
    assert drawn.log_probs == pytest.approx(exact)


def test_likelihoods_are_measured_and_charged_apart(forest_law, spelled):
    model = spelled(forest_law)
    drawn = cp.infill(model, MASKED, sampler="one-batch", count=3, likelihood_orders=2,
                      progress=False)  # fmt: skip
    exact = np.array([float(forest_law.log_prob(tokens)) for tokens in drawn.sequences])
    assert drawn.log_likelihoods == pytest.approx(np.stack([exact, exact], axis=1))
    assert drawn.ledger.evaluations == 3
    assert model.network.states == drawn.ledger.evaluations + drawn.measuring.evaluations


def test_temperature_is_that_of_the_models_law(forest_law, spelled):
    model = spelled(forest_law)
    cold = cp.infill(model, MASKED, sampler="sequential", count=3, temperature=0, progress=False)
    assert len(set(cold.texts)) == 1
    warm = cp.infill(model, MASKED, sampler="one-batch", count=300, temperature=3.0,
                     progress=False)  # fmt: skip
    rows = forest_law.oracle().rows(np.full((1, 5), -1, dtype=np.int32), cp.Readouts.same(1, [0]))
    tempered = rows.tempered(3.0)
    expected = tempered.log_prob(warm.sequences[:1, 0])
    assert warm.token_log_probs[0, 0] == pytest.approx(float(expected[0]))


@pytest.mark.parametrize("sampler", ["sequential", "entropy-bounded", "one-batch"])
@pytest.mark.parametrize("temperature", [0, 0.01, 0.2, 1.0, 4.0])
def test_scores_are_of_temperature_one(forest_law, spelled, sampler, temperature):
    model = spelled(forest_law)
    drawn = cp.infill(model, MASKED, sampler=sampler, count=4, temperature=temperature,
                      likelihood_orders=1, progress=False)  # fmt: skip
    exact = np.array([float(forest_law.log_prob(tokens)) for tokens in drawn.sequences])
    assert drawn.log_likelihoods[:, 0] == pytest.approx(exact)
    assert drawn.ledger.evaluations == model.network.states - drawn.measuring.evaluations, (
        "they are free"
    )
    if sampler == "sequential":
        assert drawn.scores == pytest.approx(-exact / len(MASKED))
    if sampler == "one-batch":
        rows = forest_law.oracle().rows(np.full((1, 5), -1, np.int32), cp.Readouts.same(1, [3]))
        expected = -np.log(rows.dense()[0, drawn.sequences[:, 3]])
        assert drawn.token_scores[:, 3] == pytest.approx(expected)


def test_values_that_were_verified_at_another_temperature_have_no_score(forest_law, spelled):
    model = spelled(forest_law)
    cold, plain = (
        cp.infill(model, MASKED, sampler="assd", count=2, temperature=t, progress=False)
        for t in (0.5, 1.0)
    )
    assert np.isnan(cold.scores).all() and np.isfinite(plain.scores).all()


def test_oracles_and_networks_are_taken_too(forest_law, spelled):
    model = spelled(forest_law)
    oracle = model.oracle("XXBXX")
    by_oracle = cp.infill(oracle, count=2, progress=False)
    by_model = cp.infill(model, "XXBXX", count=2, progress=False)
    assert by_oracle.texts == by_model.texts
    again = cp.infill(oracle, model.template("XXBXA"), progress=False)
    assert again.texts[0].endswith("A")
    plain = cp.infill(forest_law.oracle(), [-1, -1, 1, -1, -1], count=2, progress=False)
    assert plain.texts is None
    seed = cp.Streams(cp.Streams.from_seed(0).decision_seed, plain.results[0].streams.commit_seed)
    same = cp.sample(
        forest_law.oracle(), "auto", 2, seed=seed, given=[-1, -1, 1, -1, -1], progress=False
    )
    assert plain.sequences.tolist() == same.sequences.tolist()


def test_allowed_letters_are_the_only_ones_drawn(forest_law, spelled):
    drawn = cp.infill(
        spelled(forest_law), MASKED, sampler="one-batch", allowed={0: "C", 3: "AB"}, count=40,
        progress=False,
    )  # fmt: skip
    assert {text[0] for text in drawn.texts} == {"C"}
    assert {text[3] for text in drawn.texts} <= {"A", "B"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model": "sapiens-heavi", "template": "X"}, "did you mean 'sapiens-heavy'"),
        ({"model": "sapiens-heavy", "model_options": CPU}, "template must be a text with masks"),
        ({"model": print, "template": "X"}, "wrap a network in models.TorchOracle"),
        ({"model": 3, "template": "X"}, "oracle"),
        (
            {"model": "sapiens-heavy", "template": "EVQZ", "model_options": CPU},
            "'Z' as letter 4",
        ),
        (
            {"model": "sapiens-heavy", "template": "EVQX", "allowed": "", "model_options": CPU},
            "allowed must",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, said):
    with pytest.raises((ValueError, cp.CounterprobeError)) as refusal:
        cp.infill(**arguments, progress=False)
    assert said in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_what_contradicts_an_oracle_is_refused(forest_law, spelled):
    model = spelled(forest_law)
    oracle = model.oracle("XXBXX")
    for arguments, said in (
        ({"template": "XXBXX"}, "an oracle reads no text"),
        ({"allowed": "AB"}, "allowed must be settled where the oracle is made"),
        ({"template": model.template("XXBXX", allowed="AB")}, "the one that the oracle was made"),
        ({"template_options": {"design": "2"}}, "design must be settled where the oracle is made"),
        ({"oracle_options": {"row_error": 0.1}}, "row_error must be settled"),
        ({"model_options": {"device": "cpu"}}, "is loaded already"),
    ):
        with pytest.raises(ValueError, match=said):
            cp.infill(oracle, progress=False, **arguments)


def test_residues_are_chosen_where_a_model_is_told_so():
    told = {"template_options": {"design": "2-3", "tied": "2=5", "omit": None}}
    heavy = models.load("sapiens-heavy", device="cpu")
    drawn = cp.infill(heavy, "EVQLVES", sampler="sequential", progress=False, **told)
    assert drawn.ledger.evaluations == 2
    assert drawn.texts[0][1] == drawn.texts[0][4]
    with pytest.raises(ValueError, match="design, omit, tied must be settled where the template"):
        cp.infill(heavy, heavy.template("EVX"), progress=False, **told)

    class Plain:
        """A model that reads texts and nothing else."""

        name = "plain"

        def template(self, text, *, allowed=None):
            return heavy.template(text, allowed=allowed)

        def oracle(self, template):
            return heavy.oracle(template)

    with pytest.raises(ValueError, match="model 'plain' cannot be told design, omit, tied"):
        cp.infill(Plain(), "EVX", progress=False, **told)


def test_the_oracle_of_a_worker_is_tied_too():
    make = pickle.loads(
        pickle.dumps(
            ModelOracle(
                "sapiens-heavy",
                "EVXXXES",
                template_options={"tied": "3=5", "rules": {"3": "-C W:1"}},
                model_options=CPU,
            )
        )
    )
    template = pickle.loads(pickle.dumps(make().template))
    assert make().length == 6 and template.text(np.zeros(6, dtype=int)) == "AAAAAAA"


def test_real_antibodies_are_filled_in():
    heavy = models.load("sapiens-heavy", device="cpu")
    drawn = cp.infill(
        heavy, "EVQLVESGGGLVQPGGSLRLSCAASG____SYAMSWVRQ", sampler="spread", batches=2, count=4,
        likelihood_orders=1, progress=False,
    )  # fmt: skip
    sent = drawn.ledger.evaluations + drawn.measuring.evaluations
    assert drawn.ledger.evaluations == 8 and drawn.tokens_per_forward == 16 / sent
    assert all(text.startswith("EVQLVESGGGLVQPGGSLRLSCAASG") for text in drawn.texts)
    assert drawn.log_likelihoods.shape == (4, 1)


def test_a_structure_is_recognised_by_its_model_whatever_is_fixed(forest_law, spelled):
    model = spelled(forest_law)
    oracle = model.oracle(model.template("XXBXX"))
    soft = cp.discover(
        oracle, cp.Streams.from_seed(1), mode="soft", given=[-1, -1, 1, -1, -1], probes=8
    )
    drawn = cp.infill(model, "XXBXX", structure=soft, batches=2, progress=False)
    assert drawn.texts[0][2] == "B" and drawn.choice is None
    for text in ("XXAXX", "B____"):
        drawn = cp.infill(model, text, structure=soft, batches=2, progress=False)
        assert drawn.choice.by == "measured prices"
        assert all(a == b for a, b in zip(drawn.texts[0], text, strict=True) if b in "AB")
    other = spelled(cp.ForestLaw(np.ones((5, 3)), [(0, 4)], np.eye(3)[None] + 1))
    with pytest.raises(cp.StructureError, match="does not give the stored replies"):
        cp.infill(other, "B____", structure=soft, batches=2, progress=False)


def test_failed_calls_are_repeated_and_second_evaluations_are_counted():
    options = {"sampler": "sequential", "count": 2, "progress": False}
    raising = testing.bad_oracles()["raising"]
    with pytest.raises(ConnectionError):
        cp.infill(raising(), **options)
    drawn = cp.infill(as_oracle(raising()).retrying(2, timeout=30.0, backoff=0), **options)
    assert drawn.num_completed == 2
    oracle = as_oracle(raising()).retrying(2, backoff=0).rechecking(1.0)
    checked = cp.infill(oracle, **options)
    assert checked.sequences.tolist() == drawn.sequences.tolist()
    assert checked.ledger == drawn.ledger
    assert oracle.num_repeated >= drawn.ledger.evaluations
    with pytest.raises(cp.OracleError, match="is not frozen"):
        cp.infill(as_oracle(testing.bad_oracles()["random rows"]()).rechecking(1.0), **options)
