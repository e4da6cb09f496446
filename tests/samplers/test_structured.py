"""Commits by a structure found before: the rule of a structure."""

import json
from pathlib import Path

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import testing
from counterprobe.evaluation import exact_output_law
from counterprobe.samplers import SAMPLERS, Structured, as_sampler
from counterprobe.trace.arrays import unpack

STREAMS = cp.Streams(131, 132)


def table_with_a_loop_and_a_parity() -> cp.TableLaw:
    """A 4-cycle, and three positions whose parity matters: repaired, and unresolved."""
    bits = np.indices((2,) * 7)
    table = np.ones((2,) * 7)
    for a, b in ((0, 1), (1, 2), (2, 3), (0, 3)):
        table = table * np.where(bits[a] == bits[b], 0.8, 0.2)
    odd = (bits[4] + bits[5] + bits[6]) % 2
    table = table * np.where(odd == 1, 0.1, 0.9)
    return cp.TableLaw(table / table.sum())


@pytest.fixture(scope="module", params=["forest", "given", "loop"])
def case(request: pytest.FixtureRequest) -> tuple[cp.Oracle, cp.Structure]:
    if request.param == "loop":
        oracle = table_with_a_loop_and_a_parity().oracle()
        return oracle, cp.discover(oracle, STREAMS)
    law = cp.families.build("random-forest", 80, 196)
    given = np.full(80, cp.MASK)
    if request.param == "given":
        given[10:30] = 1
    return law.oracle(), cp.discover(law.oracle(), STREAMS, given=given)


def test_it_draws_what_the_structure_draws(case: tuple[cp.Oracle, cp.Structure]) -> None:
    oracle, structure = case
    sampler = as_sampler(structure)
    expected = cp.sample(oracle, structure, 5, seed=STREAMS)
    many = cp.sample(oracle, sampler, 5, seed=STREAMS, given=structure.given)
    np.testing.assert_array_equal(many.sequences, expected.sequences)
    assert many.ledgers == expected.ledgers
    assert many.ledger + cp.discovery.check_oracle(structure, oracle) == expected.ledger
    for k in range(5):
        run = cp.run.Run(oracle, given=structure.given, sequence=k)
        result = sampler(run, STREAMS)
        np.testing.assert_array_equal(result.tokens, expected.sequences[k])
        assert result.ledger == expected.ledgers[k]
        assert [batch.tolist() for batch in result.batches] == [
            sorted(batch.tolist()) for batch in structure.order.batches
        ]


def test_a_listener_hears_the_graph_that_is_committed_by(
    case: tuple[cp.Oracle, cp.Structure], tmp_path: Path
) -> None:
    oracle, structure = case
    with cp.trace.Recorder(tmp_path / "run.json") as recorder:
        run = cp.run.Run(oracle, given=structure.given, on_event=recorder)
        as_sampler(structure)(run, STREAMS)
    trace = cp.trace.load_trace(tmp_path / "run.json")
    told = next(event for event in trace.events if event["type"] == "graph")
    assert told["purpose"] == "terminal"
    expected = sorted(np.sort(structure.edges, axis=1).tolist())
    assert sorted(cp.trace.replay(trace).edges.tolist()) == expected
    (standing,) = (event for event in trace.events if "standing" in event)
    given_up = np.flatnonzero(unpack(standing["standing"]) == 2)
    assert unpack(standing["positions"])[given_up].tolist() == structure.unresolved.tolist()


def test_a_longer_run_whose_end_is_given_is_listened_to() -> None:
    law = cp.families.path(length=6, target_seed=1)
    given = np.array([cp.MASK] * 4 + [0, 0])
    sampler = Structured(4, edges=((0, 1), (1, 2), (2, 3)))
    run = cp.run.Run(law.oracle(), given=given, keep_notes=True)
    (note,) = sampler(run, STREAMS).transcript.notes
    assert note.content["is_resolved"].tolist() == [True] * 6


def test_singles_and_repairs_keep_the_law() -> None:
    law = table_with_a_loop_and_a_parity()
    structure = cp.discover(law.oracle(), STREAMS)
    assert structure.unresolved.tolist() == [4, 5, 6]
    assert len(structure.order.repaired) == 1
    outcome = exact_output_law(law, as_sampler(structure), decision_seed=3)
    assert outcome is not None
    assert outcome.kl == pytest.approx(0.0, abs=1e-12)


def test_it_keeps_to_what_every_sampler_keeps_to() -> None:
    law = testing.small_forest()
    structure = cp.discover(law.oracle(), STREAMS)
    testing.check_sampler(as_sampler(structure), [law])


def test_another_context_is_refused() -> None:
    # The structure was found with the middle given: other values there may couple other positions.
    law = cp.families.build("path", 12, 196)
    given = np.full(12, cp.MASK)
    given[4] = 0
    structure = cp.discover(law.oracle(), STREAMS, given=given)
    other = given.copy()
    other[4] = 1
    with pytest.raises(ValueError, match="found with token 0 given at position 4, here it is 1"):
        as_sampler(structure)(cp.run.Run(law.oracle(), given=other), STREAMS)
    assert as_sampler(structure)(cp.run.Run(law.oracle(), given=given), STREAMS).tokens is not None


def test_settings_survive_json() -> None:
    sampler = Structured(5, edges=((0, 1), (3, 4)), unresolved=(2,), given=((3, 1),))
    assert Structured(**json.loads(json.dumps(sampler.settings))) == sampler
    assert sampler.needs == cp.Need.NONE
    assert "structured" not in SAMPLERS  # it cannot be built from a name: it has to be found


def test_positions_it_says_nothing_about_are_refused() -> None:
    law = cp.families.build("path", 12, 196)
    given = np.full(12, cp.MASK)
    given[4] = 0
    sampler = as_sampler(cp.discover(law.oracle(), STREAMS, given=given))
    with pytest.raises(ValueError, match="position 4 was not masked when this structure"):
        sampler(cp.run.Run(law.oracle()), STREAMS)
    with pytest.raises(ValueError, match="position 4 was not masked"):
        cp.sample(law.oracle(), sampler, 2, seed=STREAMS)
    longer = cp.families.build("path", 13, 196)
    extended = np.append(given, cp.MASK)
    with pytest.raises(ValueError, match="position 12 was not masked"):
        sampler(cp.run.Run(longer.oracle(), given=extended), STREAMS)
    # More context than at discovery only takes positions away.
    given[7] = 1
    result = sampler(cp.run.Run(law.oracle(), given=given), STREAMS)
    assert cp.evaluation.batch_kl(law, result).value == 0.0


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"length": 0}, "length must be at least 1"),
        ({"length": 3, "edges": ((0, 3),)}, "edges must join vertices"),
        ({"length": 3, "unresolved": (3,)}, r"unresolved must lie in 0..2, got \(3,\)"),
        ({"length": 3, "given": ((-1, 0),)}, r"given must lie in 0..2, got \(-1,\)"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Structured(**settings)
