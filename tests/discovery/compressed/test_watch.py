"""Rows of commits are compared with what a structure implies; a run that fails ends singly."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, compressed_screen
from counterprobe.discovery.compressed.certify import shown_sizes
from counterprobe.discovery.compressed.findings import ASSUMPTION
from counterprobe.discovery.compressed.watch import (
    IN_CONTEXT,
    CommitWatch,
    commit_in_order,
    left_singly,
)
from counterprobe.planning.layers import commit_order


def chain(length: int, strength: float) -> cp.ForestLaw:
    """A path whose neighbours agree."""
    pair = np.array([[strength, 1.0], [1.0, strength]])
    edges = [(i, i + 1) for i in range(length - 1)]
    return cp.ForestLaw(np.tile([0.6, 0.4], (length, 1)), edges, pair)


def watched_run(found_with: cp.ForestLaw, run_on: cp.ForestLaw) -> tuple[cp.run.Run, int | None]:
    """Find the structure of one law, and commit by it on the oracle of another."""
    length = found_with.length
    run = cp.run.Run(found_with.oracle())
    streams = cp.Streams.from_seed(1)
    findings = run.call(compressed_screen, streams.decisions, CompressedSettings())
    assert findings.is_resolved.all()
    order = commit_order(findings.edges, findings.is_resolved, np.arange(length))
    watch = CommitWatch(findings.terms, order.alone)
    run = cp.run.Run(run_on.oracle())
    run.begin(streams)
    return run, run.call(commit_in_order, order, watch, np.random.default_rng(0))


def test_a_run_on_its_own_law_commits_in_layers() -> None:
    law = chain(60, 3.0)
    run, num_left = watched_run(law, law)
    assert num_left is None
    assert run.is_complete
    assert run.ledger.commits == 6


def test_a_run_on_another_law_ends_singly_after_one_layer() -> None:
    run, num_left = watched_run(chain(60, 3.0), chain(60, 3.3))
    assert run.is_complete
    # The first layer is one centroid; its row disagrees, and the other 59 follow one by one.
    assert num_left == 59
    assert run.ledger.commits == 60


def test_without_terms_nothing_is_compared() -> None:
    law = chain(20, 3.0)
    run = cp.run.Run(law.oracle())
    run.begin(cp.Streams.from_seed(1))
    order = commit_order(law.edges, np.ones(20, dtype=np.bool_), np.arange(20))
    watch = CommitWatch(None, order.alone)
    assert run.call(commit_in_order, order, watch, np.random.default_rng(0)) is None
    assert run.ledger.commits == len(order.layers)


@pytest.mark.parametrize("as_classes", [False, True])
def test_positions_committed_singly_are_followed_by_a_rehearsal(as_classes: bool) -> None:
    # Position 0 is left unresolved; the rest is a path, certified, in its real context.
    length = 40
    law = chain(length, 3.0)
    if as_classes:
        classes = cp.classes.TokenClasses.build(length, [0, 1, 1, 0])
        law = cp.ForestLaw(law.unary, law.edges, law.pair, classes=classes)
    run = cp.run.Run(law.oracle())
    streams = cp.Streams.from_seed(1)
    findings = run.call(compressed_screen, streams.decisions, CompressedSettings())
    is_resolved = findings.is_resolved.copy()
    is_resolved[0] = False
    order = commit_order(findings.edges, is_resolved, np.arange(length))
    for other, num_left in ((law, None), (chain(length, 3.3) if not as_classes else None, 39)):
        if other is None:
            continue
        run = cp.run.Run(other.oracle())
        run.begin(streams)
        watch = CommitWatch(findings.terms, order.alone)
        assert run.call(commit_in_order, order, watch, np.random.default_rng(0)) == num_left
        # Both sides of one component, and a size an octave up to an eighth of the positions.
        assert run.ledger.probes == 2 + len(shown_sizes(39, IN_CONTEXT))
        assert run.is_complete


def test_sequences_that_disagree_leave_the_others_and_say_so() -> None:
    # The two laws differ only where position 0 has its second token.
    length = 40
    law = chain(length, 3.0)
    structure = cp.discover(law.oracle())
    pair = law.pair.copy()
    pair[0, 1] *= [2.0, 0.5]
    other = cp.ForestLaw(law.unary / [1.0, 1.0], law.edges, pair)
    streams = cp.Streams(3, 4)
    batch = cp.sample(
        other.oracle(), cp.samplers.as_sampler(structure), 12, seed=streams, given=structure.given
    )
    notes = [result.notes for result in batch.results]
    assert all("a row was read that the recovered structure does not imply" in n[0] for n in notes)
    same = cp.sample(law.oracle(), structure, 12, seed=streams)
    assert all(list(result.notes) == [ASSUMPTION] for result in same.results)
    # Stored replies, all-mask rows and a rehearsal come first.
    assert same.ledger.stages == len(structure.order.layers) + 3


def test_a_row_of_the_last_layer_that_disagrees_is_told_too() -> None:
    assert left_singly(None) == []
    assert "the 0 positions left" in left_singly(0)[0]
