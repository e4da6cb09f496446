"""The decisions of a compressed screen, one by one: when it probes, what, and when it stops."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, compressed_screen
from screens import Screen


def fresh_screen(
    oracle: cp.Oracle | None = None, given: np.ndarray | None = None, **settings: object
) -> Screen:
    """Return a screen that has read the all-mask rows and nothing else."""
    law = cp.families.build("path", 40, 196)
    run = cp.run.Run(law.oracle() if oracle is None else oracle, given=given)
    return Screen(run, **settings)


class Script:
    """Takes the place of a method: notes how it was called, and answers in turn."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[tuple, dict]] = []

    def __call__(self, *arguments: object, **options: object) -> object:
        self.calls.append((arguments, options))
        answer = self.answers.pop(0) if self.answers else None
        return answer() if callable(answer) else answer


def test_requests_are_small_and_everything_is_reported(counted) -> None:
    oracle = counted(cp.families.build("path", 40, 196).oracle())
    run = cp.run.Run(oracle, keep_notes=True)
    decisions = cp.Streams.from_seed(1).decisions
    findings = run.call(
        compressed_screen, decisions, CompressedSettings(first_batch=35, method="regression")
    )
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
    run = cp.run.Run(cp.families.build("path", 40, 196).oracle())
    quiet = run.call(
        compressed_screen, decisions, CompressedSettings(first_batch=35, method="regression")
    )
    np.testing.assert_array_equal(quiet.edges, findings.edges)


def test_the_first_batch_masks_at_its_rate_and_given_positions_never(counted) -> None:
    given = np.full(40, cp.MASK)
    given[[3, 4]] = 1
    for rate in (0.1, 0.8):
        oracle = counted(cp.families.build("path", 40, 196).oracle())
        run = cp.run.Run(oracle, given=given)
        settings = CompressedSettings(
            first_batch=200, max_probes=200, mask_rate=rate, method="regression"
        )
        run.call(compressed_screen, cp.Streams.from_seed(1).decisions, settings)
        masked = np.concatenate(oracle.seen[1:]) == cp.MASK
        assert masked.shape == (200, 40) and not masked[:, [3, 4]].any()
        assert masked.sum() / (200 * 38) == pytest.approx(rate, abs=0.02)


def masks_of_validation(running: Screen, monkeypatch) -> np.ndarray:
    """Return what a validation of everything pending would mask."""
    submitted = Script()

    def submit(*args, **options):
        submitted(*args, **options)
        yield from ()

    monkeypatch.setattr(running, "_submit", submit)
    assert running.now(running._validate(running.validated.pending()))
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


def test_an_odd_cycle_is_validated_without_masking_two_neighbours(monkeypatch) -> None:
    running = fresh_screen()
    triangle = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    monkeypatch.setattr(running.found, "edges", lambda *, tentative=False: triangle)
    running.knowledge.resolve(np.arange(40))
    masked = masks_of_validation(running, monkeypatch)
    assert not (masked[:, triangle[:, 0]] & masked[:, triangle[:, 1]]).any()
    assert masked[:, [0, 2, 3]].any(axis=0).all()
