"""The decisions of a compressed screen, one by one: when it probes, what, and when it stops."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, compressed_screen
from counterprobe.discovery.compressed.design import code_length
from counterprobe.discovery.compressed.findings import default_max_probes, needed_evidence
from counterprobe.discovery.compressed.rehearsal import rehearsal_cost
from counterprobe.discovery.compressed.screen import _CompressedScreen


def fresh_screen(
    oracle: cp.Oracle | None = None, given: np.ndarray | None = None, **settings: object
) -> _CompressedScreen:
    """Return a screen that has read the all-mask rows and nothing else."""
    law = cp.families.build("path", 40, 196)
    run = cp.Unmasking(law.oracle() if oracle is None else oracle, given=given)
    decisions = cp.Streams.from_seed(1).decisions
    return _CompressedScreen(run, decisions, CompressedSettings(**settings))


class Script:
    """Takes the place of a method: notes how it was called, and answers in turn."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[tuple, dict]] = []

    def __call__(self, *arguments: object, **options: object) -> object:
        self.calls.append((arguments, options))
        answer = self.answers.pop(0) if self.answers else None
        return answer() if callable(answer) else answer


def test_a_screen_starts_from_the_public_formulas() -> None:
    running = fresh_screen(failure_budget=0.05)
    k = running.num_choices
    assert k == running.columns.num_choices.max() > 2
    assert running.needed == needed_evidence(40, k, 0.05)
    assert running.needed_at_random == needed_evidence(40, k, 0.05, reveal_rate=0.5)
    assert running.max_probes == default_max_probes(40, k, 0.05)
    assert fresh_screen(max_probes=77).max_probes == 77
    given = np.full(40, cp.MASK)
    given[[3, 9, 10]] = 1
    running = fresh_screen(given=given)
    assert running.needed == needed_evidence(37, running.num_choices, 0.01)
    assert np.flatnonzero(running.knowledge.is_settled).tolist() == [3, 9, 10]
    assert running.run.ledger.total == 1


@pytest.mark.parametrize(
    ("unresolved", "size"),
    [(40, 24), (21, 24), (20, 16), (5, 16), (4, 8), (1, 8), (0, 4)],
)
def test_batches_shrink_with_what_is_unresolved(unresolved: int, size: int) -> None:
    assert fresh_screen()._batch_size(unresolved) == size


def test_a_hundredth_unresolved_takes_the_smallest_batch() -> None:
    running = fresh_screen(cp.families.build("path", 200, 196).oracle())
    assert [running._batch_size(count) for count in (1, 2, 3, 20, 21)] == [4, 4, 8, 8, 16]


def test_missing_evidence_is_what_the_formula_leaves() -> None:
    running = fresh_screen()
    running.knowledge.resolve(np.arange(6))
    shown = running.found._shown
    shown[:5] = [[3, 3], [3, 9], [0, 5], [900, 900], [900, 901]]
    few, many = running.needed, running.needed_at_random
    assert running._missing_evidence().tolist()[:6] == [few - 3, many - 3, many, 0, 0, few]
    assert not running._missing_evidence()[6:].any()


def test_evidence_is_gathered_where_it_pays() -> None:
    running = fresh_screen()
    running.knowledge.resolve(np.arange(40))
    missing = np.zeros(40, dtype=np.int64)
    # At one clean probe each, two probes are spent for one that masks a position; four times the
    # evidence that is needed at random is paid for a single one.
    most = 2 * running.needed_at_random
    for count, pays in ((most, True), (most + 1, False)):
        missing[7] = count
        assert running._worthwhile(missing)[7] == pays
    # A dozen more pay for each other: eight probes each, from the cheapest on.
    missing[:] = 0
    running.found._shown[:] = 0, 0
    paid = 8 * 40 // 2
    assert paid > most
    for count, pays in ((paid, True), (paid + 1, False)):
        missing[:] = count
        assert running._worthwhile(missing).tolist() == [pays] * 40
    missing[:] = 2
    missing[11] = paid + 1
    assert np.flatnonzero(~running._worthwhile(missing)).tolist() == [11]


def test_components_have_keys_of_their_positions_and_edges(monkeypatch) -> None:
    running = fresh_screen()
    edges = [[0, 1], [1, 2], [4, 5]]

    def keys(of: list[list[int]]) -> dict[int, int]:
        monkeypatch.setattr(running.found, "edges", lambda: np.array(of).reshape(-1, 2))
        label, found = running.validated.components()
        assert len(found) == label.max() + 1 == 40 - len(of)
        return {i: found[label[i]] for i in range(40)}

    whole, cut, turned = keys(edges), keys(edges[:2]), keys([[0, 1], [0, 2], [4, 5]])
    assert len(set(whole.values())) == 37
    assert whole[0] == whole[1] == whole[2] != whole[3]
    assert {i for i in range(40) if whole[i] != cut[i]} == {4, 5}
    assert {i for i in range(40) if whole[i] != turned[i]} == {0, 1, 2}
    # Given up, an end takes its edges along.
    running.knowledge.resolve(np.delete(np.arange(40), 1))
    running.knowledge.give_up()
    monkeypatch.setattr(running.found, "edges", lambda: np.array(edges))
    assert running.validated.edges().tolist() == [[4, 5]]


def test_components_are_pending_until_they_are_validated_as_they_are(monkeypatch) -> None:
    given = np.full(40, cp.MASK)
    given[39] = 0
    running = fresh_screen(given=given)
    monkeypatch.setattr(running.found, "edges", lambda: np.array([[0, 1], [1, 2]]))
    assert running.validated.pending().tolist() == []
    running.knowledge.resolve(np.array([0, 1, 2, 7, 8]))
    assert running.validated.pending().tolist() == [0, 1, 2, 7, 8]
    label, keys = running.validated.components()
    running.validated.note({keys[label[0]], keys[label[8]]})
    assert running.validated.pending().tolist() == [7]
    monkeypatch.setattr(running.found, "edges", lambda: np.array([[0, 1], [0, 2]]))
    assert running.validated.pending().tolist() == [0, 1, 2, 7]


@pytest.mark.parametrize(("num_edges", "blocks"), [(0, 9), (37, 6), (39, 6), (4, 9), (29, 7)])
def test_validation_costs_a_block_of_probes_for_each_letter(
    num_edges: int, blocks: int, monkeypatch
) -> None:
    running = fresh_screen()
    path = np.array([[i, i + 1] for i in range(num_edges)], dtype=np.int64).reshape(-1, 2)
    monkeypatch.setattr(running.found, "edges", lambda: path)
    assert blocks == max(6, code_length(40 - num_edges + 1))
    assert running._validation_cost() == blocks * running.num_choices + rehearsal_cost(40, 0.01)


def test_states_show_choices_beside_what_is_given() -> None:
    given = np.full(40, cp.MASK)
    given[[4, 5]] = 7, 1
    running = fresh_screen(given=given)
    rng = np.random.default_rng(0)
    masked = rng.random((9, 40)) < 0.4
    masked[:, [4, 5]] = False
    choices = rng.integers(running.columns.num_choices, size=(9, 40))
    wanted = choices.copy()
    uniforms = np.random.default_rng(5).random((9, 40))
    tokens = running.columns.show(choices, uniforms)
    states, shown = running._states(masked, choices, np.random.default_rng(5))
    assert states.dtype == np.int32
    for b, i in np.ndindex(9, 40):
        if i in (4, 5):
            assert (states[b, i], shown[b, i]) == (given[i], -1)
        elif masked[b, i]:
            assert (states[b, i], shown[b, i]) == (cp.MASK, -1)
        else:
            assert (states[b, i], shown[b, i]) == (tokens[b, i], wanted[b, i])


def test_searching_goes_on_while_it_is_worthwhile(monkeypatch) -> None:
    running = fresh_screen()

    def gains(*resolved: int) -> list[bool]:
        running.knowledge.reopen(np.arange(40))
        script, left = Script(), list(range(40))

        def improve(*, rank: bool) -> int:
            script(rank=rank)
            count = resolved[len(script.calls) - 1]
            for _ in range(count):
                running.knowledge.resolve(np.array([left.pop()]))
            return count

        monkeypatch.setattr(running.found, "improve", improve)
        running._improve()
        return [options["rank"] for _, options in script.calls]

    assert gains(2) == [True]  # a twentieth of forty is not worth another search
    assert gains(3, 1) == [True, False]
    assert gains(31, 0) == [True, True]  # nine are left, less than a quarter
    assert gains(30, 0) == [True, False]
    assert gains(40) == [True]
    assert gains(10, 10, 10, 5, 5) == [True, False, False, False]


def test_patience_ends_where_nothing_more_is_resolved(monkeypatch) -> None:
    running = fresh_screen(patience=3, max_probes=10_000)
    everyone = np.ones(40, dtype=np.bool_)
    progress = [2, 0, 0, 1, 0, 0, 0, 0]
    left = list(range(40))

    def submit(*_: object) -> None:
        for _ in range(progress.pop(0)):
            running.knowledge.resolve(np.array([left.pop()]))

    monkeypatch.setattr(running, "_submit", submit)
    given_up = []
    for _ in range(7):
        assert running._resolve(everyone)
        given_up.append(bool(running.knowledge.is_given_up.any()))
    # Two batches in vain, progress, then three in vain.
    assert given_up == [False] * 6 + [True]
    assert running.knowledge.is_given_up.sum() == 37 and running.idle == 0


def test_evidence_is_planned_until_everything_would_have_what_it_lacks(monkeypatch) -> None:
    law = cp.families.build("path", 40, 196)
    running = fresh_screen(law.oracle())
    edges = np.unique(np.sort(law.edges, axis=1), axis=0)
    monkeypatch.setattr(running.found, "edges", lambda *, tentative=False: edges)
    running.knowledge.resolve(np.arange(40))
    submitted = Script()
    monkeypatch.setattr(running, "_submit", submitted)
    missing = np.where(np.arange(40) < 30, 7, 2)
    assert running._gather_evidence(missing)
    (purpose, masked, _), _ = submitted.calls[0]
    assert purpose == "evidence"
    assert (masked.sum(axis=0) >= missing).all()
    assert not (masked[:, edges[:, 0]] & masked[:, edges[:, 1]]).any()
    assert len(masked) <= 20  # of two neighbours only one is masked: fourteen at least
    # Nothing is spent beyond what rehearsals need.
    running.readings.num_probes = running.max_probes - rehearsal_cost(40, 0.01) - 3
    assert running._gather_evidence(missing)
    assert len(submitted.calls[-1][0][1]) == 3
    running.readings.num_probes += 3
    assert not running._gather_evidence(missing)
    assert running.is_spent


def test_what_a_rehearsal_happens_to_resolve_stays_open(monkeypatch) -> None:
    running = fresh_screen()
    running.knowledge.resolve(np.arange(12))
    monkeypatch.setattr(
        running, "_submit", lambda *_, **__: running.knowledge.resolve(np.arange(20))
    )
    running._rehearse()
    assert np.flatnonzero(running.knowledge.is_resolved).tolist() == list(range(12))


def test_without_probes_left_for_a_rehearsal_nothing_is_certified() -> None:
    running = fresh_screen(max_probes=50)
    running.knowledge.resolve(np.arange(12))
    running.readings.num_probes = 49
    assert running._rehearse() is None
    assert running.is_spent and not running.knowledge.is_resolved.any()


@pytest.mark.parametrize("is_spent", [False, True])
def test_what_the_same_edges_explain_again_is_refuted(is_spent: bool, monkeypatch) -> None:
    running = fresh_screen()
    running.knowledge.resolve(np.arange(40))
    running.is_spent = is_spent  # the search may have ended before
    refuted = np.isin(np.arange(40), [3, 7])
    again = Script(lambda: running.knowledge.resolve(np.arange(40)))
    monkeypatch.setattr(running, "_rehearse", Script(refuted, np.zeros(40, dtype=np.bool_)))
    monkeypatch.setattr(running, "_run_batches", again)
    running._certify()
    assert np.flatnonzero(running.knowledge.is_refuted).tolist() == [3, 7]
    assert np.flatnonzero(~running.knowledge.is_resolved).tolist() == [3, 7]


def test_requests_are_small_and_everything_is_reported(counted) -> None:
    oracle = counted(cp.families.build("path", 40, 196).oracle())
    run = cp.Unmasking(oracle, record=cp.Level.STRUCTURE)
    decisions = cp.Streams.from_seed(1).decisions
    findings = compressed_screen(run, decisions, CompressedSettings(first_batch=35))
    sizes = [len(states) for states in oracle.seen[1:]]
    assert sizes[:3] == [16, 16, 3] and max(sizes) == 16
    purposes = [batch.purpose for batch in findings.batches]
    assert purposes[0] == "first" and purposes[-1] == "rehearse" and "validate" in purposes
    last = findings.batches[-1]
    assert (last.num_resolved, last.num_edges, last.num_reopened) == (40, 39, 0)
    notes = [note.content for note in run.transcript.notes if note.name == "compressed"]
    assert [(note["purpose"], note["probes"]) for note in notes] == [
        (batch.purpose, batch.probes) for batch in findings.batches
    ]
    np.testing.assert_array_equal(notes[-1]["edges"], findings.edges)
    assert notes[-1]["is_resolved"].all() and not notes[-1]["is_given_up"].any()
    assert set(findings.seconds) == {"probing", "ranking", "fitting"}
    assert min(findings.seconds.values()) > 0
    assert findings.num_choices == 3 and findings.num_compared == 40
    run = cp.Unmasking(cp.families.build("path", 40, 196).oracle())
    quiet = compressed_screen(run, decisions, CompressedSettings(first_batch=35))
    np.testing.assert_array_equal(quiet.edges, findings.edges)


def test_the_first_batch_masks_at_its_rate_and_given_positions_never(counted) -> None:
    given = np.full(40, cp.MASK)
    given[[3, 4]] = 1
    for rate in (0.1, 0.8):
        oracle = counted(cp.families.build("path", 40, 196).oracle())
        run = cp.Unmasking(oracle, given=given)
        settings = CompressedSettings(first_batch=200, max_probes=200, mask_rate=rate)
        compressed_screen(run, cp.Streams.from_seed(1).decisions, settings)
        masked = np.concatenate(oracle.seen[1:]) == cp.MASK
        assert masked.shape == (200, 40) and not masked[:, [3, 4]].any()
        assert masked.sum() / (200 * 38) == pytest.approx(rate, abs=0.02)


def masks_of_validation(running: _CompressedScreen, monkeypatch) -> np.ndarray:
    """Return what a validation of everything pending would mask."""
    submitted = Script()
    monkeypatch.setattr(running, "_submit", submitted)
    assert running._validate(running.validated.pending())
    (purpose, masked, _), options = submitted.calls[0]
    assert (purpose, options) == ("validate", {"steered": False})
    assert len(submitted.calls) == 1
    return masked


def test_validation_reads_every_component_while_any_other_is_shown(monkeypatch) -> None:
    law = cp.families.build("matching", 40, 196)
    running = fresh_screen(law.oracle())
    edges = np.unique(np.sort(law.edges, axis=1), axis=0)
    monkeypatch.setattr(running.found, "edges", lambda *, tentative=False: edges)
    running.knowledge.resolve(np.arange(39))
    running.knowledge.give_up()  # 39 is not validated, nor masked
    masked = masks_of_validation(running, monkeypatch)
    k = running.num_choices
    blocks = masked.reshape(-1, k, 40)
    assert (blocks == blocks[:, :1]).all()  # one mask, every choice shown
    masks = blocks[:, 0]
    partner = int(edges[(edges == 39).any(axis=1)].sum()) - 39
    inside = edges[~(edges == 39).any(axis=1)]
    assert not masks[:, 39].any()
    # One end of each pair is masked in every block, never both.
    assert (masks[:, inside[:, 0]] ^ masks[:, inside[:, 1]]).all()
    # Any two positions of different components: the one masked while the other is not, both ways.
    label = np.arange(40)
    label[inside[:, 1]] = inside[:, 0]
    for i in range(39):
        for j in range(i):
            if label[i] != label[j]:
                assert (masks[:, i] & ~masks[:, j]).any() and (masks[:, j] & ~masks[:, i]).any()
    assert partner in np.flatnonzero(masks.any(axis=0))
    # Once validated, nothing is pending, and what changes is validated again.
    assert running.validated.pending().tolist() == []
    monkeypatch.setattr(running.found, "edges", lambda *, tentative=False: edges[1:])
    assert running.validated.pending().tolist() == sorted(set(edges[0].tolist()) - {39})
    masks_of_validation(running, monkeypatch)


def test_validation_has_at_least_six_blocks_and_keeps_to_the_budget(monkeypatch) -> None:
    law = cp.families.build("path", 40, 196)
    edges = np.unique(np.sort(law.edges, axis=1), axis=0)
    for short in (0, 1):
        running = fresh_screen(law.oracle())
        monkeypatch.setattr(running.found, "edges", lambda *, tentative=False: edges)
        running.knowledge.resolve(np.arange(40))
        running.readings.num_probes = (
            running.max_probes - 6 * running.num_choices - rehearsal_cost(40, 0.01) + short
        )
        if short:
            monkeypatch.setattr(running, "_submit", Script())
            assert not running._validate(running.validated.pending())
            assert running.is_spent and not running.knowledge.is_resolved.any()
        else:
            masked = masks_of_validation(running, monkeypatch)
            assert len(masked) == 6 * running.num_choices
            assert not (masked[:, edges[:, 0]] & masked[:, edges[:, 1]]).any()
            assert not running.is_spent


def test_an_odd_cycle_is_validated_without_masking_two_neighbours(monkeypatch) -> None:
    running = fresh_screen()
    triangle = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    monkeypatch.setattr(running.found, "edges", lambda *, tentative=False: triangle)
    running.knowledge.resolve(np.arange(40))
    masked = masks_of_validation(running, monkeypatch)
    assert not (masked[:, triangle[:, 0]] & masked[:, triangle[:, 1]]).any()
    assert masked[:, [0, 2, 3]].any(axis=0).all()


def test_hubs_that_would_saturate_are_validated_twice(monkeypatch) -> None:
    running = fresh_screen()
    running.knowledge.resolve(np.arange(40))
    monkeypatch.setattr(running.found, "edges", lambda *, tentative=False: np.empty((0, 2), int))
    submitted = Script()
    monkeypatch.setattr(running, "_submit", submitted)
    monkeypatch.setattr(running, "_steer", lambda *_: True)
    assert running._validate(np.arange(40))
    assert [options["steered"] for _, options in submitted.calls] == [False, True]
    once = len(submitted.calls[0][0][1])
    running.readings.num_probes = running.max_probes - 2 * once - rehearsal_cost(40, 0.01) + 1
    running.validated.forget()
    assert not running._validate(np.arange(40))
    assert running.is_spent
