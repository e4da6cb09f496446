"""Row selectors: the two standard rules, rules of one's own, and every clause of the contract."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.packed.screen import draw_colorings
from counterprobe.discovery.packed.selectors import (
    SELECTORS,
    SeesTranscript,
    empty_on_overflow,
    mutual_rows,
    select_rows,
    top_votes,
)
from counterprobe.discovery.packed.votes import Nominees
from counterprobe.samplers.packed import Packed, run_packed

# Positions of the residual set in these tests: readout k of the candidates is RESIDUAL[k].
RESIDUAL = np.array([2, 3, 5, 8, 11, 12])


def candidates(*rows: dict[int, int]) -> Nominees:
    """Build candidate rows from {index into the residual: votes}, one dict a readout."""
    counts = [len(row) for row in rows]
    return Nominees(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.array([i for row in rows for i in sorted(row)], dtype=np.int64),
        np.array([row[i] for row in rows for i in sorted(row)], dtype=np.int64),
    )


def selected(found: Nominees, cutoff: int, selector) -> list[list[int]]:
    start, source = select_rows(found, RESIDUAL[: len(found.start) - 1], cutoff, selector)
    assert start.dtype == source.dtype == np.int64
    return [row.tolist() for row in np.split(source, start[1:-1])]


OVERFLOWED = candidates(
    {1: 7, 2: 9, 3: 7, 4: 7, 5: 8},  # five candidates
    {0: 6, 4: 9},
    {},
    {0: 5, 1: 5, 2: 5, 4: 5},  # four, all alike
    {5: 9},
    {2: 6, 3: 9, 4: 8},  # exactly three
)


# ----- The standard rules ---------------------------------------------------------------------


def test_top_votes_keeps_the_highest_totals_with_ties_to_the_smaller_position():
    assert selected(OVERFLOWED, 3, top_votes) == [
        [3, 5, 12],  # 9 and 8 votes, then the first of three with 7
        [2, 11],
        [],
        [2, 3, 5],
        [12],
        [5, 8, 11],
    ]


def test_empty_on_overflow_drops_a_row_that_does_not_fit():
    assert selected(OVERFLOWED, 3, empty_on_overflow) == [
        [], [2, 11], [], [], [12], [5, 8, 11],
    ]  # fmt: skip


@pytest.mark.parametrize("selector", SELECTORS.values(), ids=SELECTORS)
@pytest.mark.parametrize("cutoff", [1, 2, 3, 4, 5, 6])
def test_standard_rules_keep_the_contract_and_need_no_shortcut(selector, cutoff):
    # Wrapped, the rule is asked about every row and checked; as it is, only about overflow.
    quick = selected(OVERFLOWED, cutoff, selector)
    assert quick == selected(OVERFLOWED, cutoff, lambda *inputs: selector(*inputs))
    for k, row in enumerate(quick):
        whole = RESIDUAL[OVERFLOWED.row(k)[0]].tolist()
        assert row == whole if len(whole) <= cutoff else len(row) <= cutoff
        assert set(row) <= set(whole)


@pytest.mark.parametrize("seed", range(10))
def test_top_votes_by_sorting(seed):
    rng = np.random.default_rng(seed)
    rows = [
        {int(i): int(rng.integers(5, 9)) for i in np.flatnonzero(rng.random(6) < 0.6) if i != k}
        for k in range(6)
    ]
    for cutoff in range(1, 6):
        expected = [
            sorted(sorted(RESIDUAL[list(row)], key=lambda v, r=row: (-r[index(v)], v))[:cutoff])
            for row in rows
        ]
        assert selected(candidates(*rows), cutoff, top_votes) == expected


def index(position: int) -> int:
    return int(np.searchsorted(RESIDUAL, position))


# ----- Rules of one's own ---------------------------------------------------------------------


def test_a_rule_sees_positions_and_keeps_what_it_likes():
    asked = []

    def nearest(readout, row, votes, cutoff):
        asked.append((readout, row.tolist(), votes.tolist(), cutoff))
        order = np.argsort(np.abs(row - readout), kind="stable")
        return row[order[:cutoff]]

    assert selected(OVERFLOWED, 3, nearest) == [
        [3, 5, 8], [2, 11], [], [3, 5, 11], [12], [5, 8, 11],
    ]  # fmt: skip
    assert asked[0] == (2, [3, 5, 8, 11, 12], [7, 9, 7, 7, 8], 3)
    assert [readout for readout, *_ in asked] == [2, 3, 8, 11, 12]  # an empty row is not asked


def test_a_rule_may_keep_fewer_than_the_cutoff_of_a_row_that_overflows():
    def one(readout, row, votes, cutoff):
        return row if len(row) <= cutoff else [row[-1]]

    assert selected(OVERFLOWED, 3, one) == [[12], [2, 11], [], [11], [12], [5, 8, 11]]


def test_a_rule_may_return_a_list_in_any_order():
    assert selected(OVERFLOWED, 5, lambda j, row, votes, d: row[::-1].tolist()) == [
        [3, 5, 8, 11, 12], [2, 11], [], [2, 3, 5, 11], [12], [5, 8, 11],
    ]  # fmt: skip


def test_a_rule_that_overwrites_its_candidates_changes_only_its_copy():
    def overwrite(readout, row, votes, cutoff):
        kept = row[:cutoff].copy()
        row[:] = 0
        return kept

    assert selected(OVERFLOWED, 3, overwrite)[0] == [3, 5, 8]


# ----- The transcript -------------------------------------------------------------------------


def watched(seed: int) -> tuple[list, list, cp.run.Run]:
    """Run the box on a path of 24 with few colors, and note what its selector and filler see."""
    law = cp.families.path(24, target_seed=seed)
    streams = cp.Streams(seed, 1)
    run = cp.run.Run(law.oracle(), keep_notes=True)
    run.begin(streams)
    plan = Packed(num_colors=4, num_colorings=5, degree_cutoff=2).setup(24, law.vocab_size, 0.0)
    seen, fillers = [], []

    @SeesTranscript
    def look(readout, row, votes, cutoff, transcript):
        if not any(transcript is known for known in seen):
            seen.append(transcript)
        return row[:cutoff]

    def filler(context, rng):
        fillers.append(context)
        return context.banks.most_likely

    run.call(run_packed, streams.decisions, plan, filler=filler, selector=look)
    return seen, fillers, run


def test_a_selector_sees_the_past_and_this_screen_and_nothing_later():
    seen, fillers, run = watched(3)
    screens = [note.content for note in run.transcript.notes if note.name == "screen"]
    assert len(seen) == len(fillers) == len(screens) >= 3
    decisions = cp.Streams(3, 1).decisions
    for k, (transcript, context, noted) in enumerate(zip(seen, fillers, screens, strict=True)):
        # Earlier screens' rows, first to last, and no row of this screen.
        returned = [content["rows"] for content in screens[:k]]
        for earlier in (transcript.earlier, context.earlier):
            assert len(earlier) == k
            assert all(a is b for a, b in zip(earlier, returned, strict=True))
        # The history is that of the screen: what is residual was not drawn yet.
        assert (
            np.flatnonzero(transcript.state == cp.MASK).tolist() == noted["rows"].residual.tolist()
        )
        known = transcript.state != cp.MASK
        assert (transcript.state[known] == run.state[known]).all()
        assert transcript.residual is noted["rows"].residual
        assert transcript.candidates is noted["rows"].candidates
        # Colors are this screen's block; candidates are the majorities of its votes.
        assert (transcript.colors == draw_colorings(5, 4, 24, decisions("coloring", k))).all()
        again = transcript.votes.count(transcript.colors[:, transcript.residual], 0.65)
        assert again.source.tolist() == transcript.candidates.source.tolist()
        assert again.votes.tolist() == transcript.candidates.votes.tolist()


def test_a_selector_that_sees_the_transcript_is_held_to_the_contract():
    clique = cp.TableLaw(np.arange(1.0, 33).reshape((2,) * 5) ** 2)
    plan = Packed(num_colors=50, num_colorings=5, degree_cutoff=2, tv_cut=1e-9).setup(5, 2, 0.0)
    run = cp.run.Run(clique.oracle())
    run.begin(cp.Streams(1, 2))
    whole = SeesTranscript(lambda readout, row, votes, cutoff, transcript: row)
    with pytest.raises(ValueError, match="at most 2 candidates"):
        run.call(run_packed, cp.Streams(1, 2).decisions, plan, selector=whole)


# ----- The contract ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (lambda j, row, votes, d: row[:1], "keep a row of at most 3 candidates whole"),
        (lambda j, row, votes, d: [], "readout 3 it kept 0 of 2"),
    ],
)
def test_a_row_that_fits_must_stay_whole(rule, complaint):
    # Dropping a candidate here would destroy low-degree exactness.
    with pytest.raises(ValueError, match=complaint):
        selected(candidates({}, {0: 6, 2: 9}, {}), 3, rule)


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        (lambda j, row, votes, d: row, "at most 3 candidates; at readout 2 it returned 5"),
        (lambda j, row, votes, d: np.append(row[: d - 1], 99), "subset of its candidates"),
        (lambda j, row, votes, d: [j], r"returned \[2\] for \[3, 5, 8, 11, 12\]"),
        (lambda j, row, votes, d: [row[0], row[0]], r"returned \[3, 3\]"),
        # Indices into the row are not positions ...
        (lambda j, row, votes, d: np.arange(d), "subset of its candidates"),
        # ... and neither is a mask, although its booleans could be read as positions 0 and 1.
        (lambda j, row, votes, d: np.arange(len(row)) < d, r"positions; .* dtype bool"),
        (lambda j, row, votes, d: row[:d] + 0.0, "dtype float64"),
        (lambda j, row, votes, d: row[None, :d], r"shape \(1, 3\)"),
    ],
)
def test_an_overflowed_row_must_be_cut_to_some_of_its_candidates(rule, complaint):
    with pytest.raises(ValueError, match=complaint):
        selected(OVERFLOWED, 3, rule)


@pytest.mark.parametrize("seed", range(5))
def test_mutual_rows_hold_the_pairs_that_name_each_other(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 30))
    names = rng.random((count, count)) < rng.choice([0.0, 0.1, 0.5, 1.0])
    np.fill_diagonal(names, False)
    readout, source = np.nonzero(names)
    start = np.searchsorted(readout, np.arange(count + 1))
    nominees = Nominees(start, source, np.ones(len(source), dtype=np.int64))
    residual = np.sort(rng.choice(100, count, replace=False))
    kept_start, kept = mutual_rows(nominees, residual)
    for k in range(count):
        expected = residual[np.flatnonzero(names[k] & names[:, k])]
        assert kept[kept_start[k] : kept_start[k + 1]].tolist() == expected.tolist()
