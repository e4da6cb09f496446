"""The packed screen against the paper's examples, a plain reading of its formulas, and counts."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe.discovery.banks import Banks, read_banks
from counterprobe.discovery.packed import screen as packed
from counterprobe.discovery.packed.screen import (
    Chunk,
    ScreenRows,
    ScreenSettings,
    chunks_of,
    diameters_exceed,
    diameters_exceed_plain,
    draw_colorings,
    packed_screen,
    probe_states,
)
from counterprobe.discovery.packed.selectors import empty_on_overflow, top_votes
from counterprobe.discovery.packed.votes import Nominees
from counterprobe.states import MASK, fingerprint, mix64
from counterprobe.streams import keyed_generator

A, B, C = range(3)


# ----- Helpers --------------------------------------------------------------------------------


def nonsense(length: int, vocab_size: int, seed: int, wild: float = 1.0) -> cp.CallableOracle:
    """Return an oracle whose rows are a hash of the state, at a share ``wild`` of the readouts."""

    def function(states):
        marks = fingerprint(states)[:, None] ^ mix64(np.arange(length) + 1000 * seed)[None, :]
        # Where the hash says so, the row is the same whatever the state.
        calm = mix64(marks) % np.uint64(1000) >= np.uint64(1000 * wild)
        key = np.where(calm, np.uint64(seed), marks)[:, :, None]
        bits = mix64(key + np.arange(vocab_size, dtype=np.uint64)) % np.uint64(97)
        weights = bits.astype(np.float64) + 1
        return weights / weights.sum(axis=2, keepdims=True)

    return cp.CallableOracle(function, length, vocab_size)


def screen_of(**settings) -> ScreenSettings:
    return ScreenSettings(**{"degree_cutoff": 3, "chunk_size": 2, "tv_cut": 0.0, **settings})


def rows_by_position(rows: ScreenRows) -> dict[int, list[int]]:
    return {int(j): rows.row(int(j)).tolist() for j in rows.residual}


def plain_chunk(colors, residual, chunk_size: int, readout: int) -> list[int]:
    """Return the chunk that holds a readout: its color's residual positions, cut in order."""
    same = [j for j in residual if colors[j] == colors[readout]]
    place = same.index(readout) // chunk_size
    return same[place * chunk_size : (place + 1) * chunk_size]


def plain_state(history, filler, column, colors, source_color: int, chunk) -> np.ndarray:
    """Read the definition of a submitted state, position by position."""
    state = np.empty(len(history), dtype=np.int32)
    for k in range(len(history)):
        if history[k] != cp.MASK:
            state[k] = history[k]
        elif k in chunk:
            state[k] = cp.MASK
        elif colors[k] == source_color:
            state[k] = column[k]
        else:
            state[k] = filler[k]
    return state


def plain_votes(oracle, history, screen: ScreenSettings, columns, filler, colors) -> np.ndarray:
    """Count every vote of every ordered pair (source, readout) from the paper's formulas."""
    length = len(history)
    residual = [int(i) for i in np.flatnonzero(np.asarray(history) == cp.MASK)]
    votes = np.zeros((length, length), dtype=np.int64)
    for hue in colors:
        for j in residual:
            chunk = plain_chunk(hue, residual, screen.chunk_size, j)
            diameter: dict[int, float] = {}
            for color in set(range(screen.num_colors)) - {int(hue[j])}:
                states = [
                    plain_state(history, filler, column, hue, color, chunk) for column in columns
                ]
                replies = oracle.rows(np.array(states), cp.Readouts.same(len(states), [j]))
                dense = np.asarray(replies.dense())
                diameter[color] = max(
                    np.abs(p - q).sum() / 2 for p, q in itertools.product(dense, dense)
                )
            for i in residual:
                if hue[i] != hue[j]:
                    votes[i, j] += diameter[int(hue[i])] > screen.tv_cut
    return votes


# ----- The paper's examples -------------------------------------------------------------------


@pytest.fixture
def example() -> tuple[Banks, np.ndarray, ScreenSettings]:
    """Banks, coloring and settings of the paper's 15 positions; d = J = 9."""
    banks = Banks(
        0.3,
        start=np.array([0, *range(2, 17)]),
        tokens=np.array([A, C] + [B] * 14),
        tail=np.array([B] + [A] * 14),
        most_likely=np.array([A] + [B] * 14),
        vocab_size=2048,
    )
    # Positions 1, 4 have color 1, positions 10, 13 color 2, the rest color 3; from zero here.
    colors = np.full(15, 2, dtype=np.int32)
    colors[[0, 3]], colors[[9, 12]] = 0, 1
    public = cp.theory.calibrate(15, 2048, epsilon=0.5, degree_cutoff=9, chunk_count=9)
    screen = ScreenSettings(
        num_colors=public.num_colors,
        num_colorings=1,
        degree_cutoff=9,
        chunk_size=public.chunk_size,
        tv_cut=0.0,
    )
    return banks, colors, screen


def test_settings_of_the_example(example):
    _, _, screen = example
    assert screen.num_colors == 80
    assert screen.chunk_size == 2


def test_three_submitted_states_of_the_example(example):
    banks, colors, screen = example
    chunks = list(chunks_of(0, colors, np.arange(15), screen))
    (chunk,) = [chunk for chunk in chunks if (colors[chunk.readouts] == 1).any()]
    assert chunk.readouts.tolist() == [9, 12]
    assert chunk.sources.tolist() == [0, *range(2, 80)]
    filler = banks.most_likely
    one_source = Chunk(0, chunk.readouts, np.array([0]))
    states = probe_states(
        np.full(15, cp.MASK, dtype=np.int32), filler, banks.columns(filler), colors, one_source
    )
    assert states[:, [0, 3]].tolist() == [[A, B], [C, B], [B, A]]
    assert (states[:, [9, 12]] == cp.MASK).all()
    rest = np.setdiff1d(np.arange(15), [0, 3, 9, 12])
    assert (states[:, rest] == B).all()


def test_chunks_of_the_example(example):
    _, colors, screen = example
    chunks = [c.readouts.tolist() for c in chunks_of(0, colors, np.arange(15), screen)]
    # Eleven positions of the third color in twos, in order; 77 colors are empty and have none.
    assert chunks == [[0, 3], [9, 12], [1, 2], [4, 5], [6, 7], [8, 10], [11, 13], [14]]


def test_every_other_color_is_submitted_whether_occupied_or_not(example, counted):
    banks, colors, screen = example
    oracle = counted(nonsense(15, 4, 1))
    run = cp.run.Run(oracle)
    filler = banks.most_likely
    run.call(packed_screen, screen, banks.columns(filler), filler, colors[None, :])
    # Eight chunks, three columns, 79 source colors.
    assert oracle.states == run.ledger.probes == 8 * 3 * 79 == 1896
    assert run.ledger.stages == 1
    assert run.ledger.widest_stage == 1896
    assert oracle.rows_read == run.ledger.rows_read == 15 * 3 * 79
    # With two occupied colors beside the readout's own, 77 of 79 states of a column are alike.
    every = Counter(state.tobytes() for state in np.concatenate(oracle.seen))
    assert every.most_common(1)[0][1] >= 3 * 77


def test_skipping_empty_colors_submits_the_occupied_ones_only(example, counted):
    banks, colors, screen = example
    oracle = counted(nonsense(15, 4, 1))
    run = cp.run.Run(oracle)
    skipping = ScreenSettings(80, 1, 9, 2, 0.0, skip_empty_colors=True)
    filler = banks.most_likely
    rows = run.call(packed_screen, skipping, banks.columns(filler), filler, colors[None, :])
    assert oracle.states == run.ledger.probes == 8 * 3 * 2
    whole = cp.run.Run(nonsense(15, 4, 1)).call(
        packed_screen, screen, banks.columns(filler), filler, colors[None, :]
    )
    assert rows_by_position(rows) == rows_by_position(whole)  # an empty color has no votes


def test_claims_and_peel_set_of_the_65_vertex_survivor():
    # z = 0, hubs 1..6, nine leaves of each hub, four leaves of z.
    hub_of = {7 + 9 * i + j: 1 + i for i in range(6) for j in range(9)}
    named = {**hub_of, **dict.fromkeys(range(61, 65), 0)}
    sizes = [1 if v in named else 0 for v in range(65)]
    empty = Nominees(np.zeros(66, dtype=np.int64), *np.empty((2, 0), dtype=np.int64))
    rows = ScreenRows(
        residual=np.arange(65),
        start=np.concatenate([[0], np.cumsum(sizes)]),
        source=np.array([named[v] for v in range(65) if v in named]),
        candidates=empty,
    )
    claims = rows.claims(65)
    assert claims[0] == 4
    assert claims[1:7].tolist() == [9] * 6
    assert (claims[7:] == 0).all()
    assert np.flatnonzero(2 * claims > 9).tolist() == [1, 2, 3, 4, 5, 6]
    # Rows of z and of the hubs are empty, and still every edge that a leaf reports is there.
    assert rows.row(0).tolist() == rows.row(3).tolist() == []
    edges = {tuple(edge) for edge in rows.edges().tolist()}
    assert edges == {(h, leaf) for leaf, h in named.items()}
    degree = np.bincount(np.array(sorted(edges)).ravel(), minlength=65)
    assert degree[0] == 4  # what is left of z once the hubs are gone


# ----- Rows of a screen -----------------------------------------------------------------------


def test_either_end_reports_an_edge():
    empty = Nominees(np.zeros(5, dtype=np.int64), *np.empty((2, 0), dtype=np.int64))
    rows = ScreenRows(
        residual=np.array([1, 4, 6, 9]),
        start=np.array([0, 1, 1, 3, 3]),
        source=np.array([6, 1, 9]),  # 1 names 6; 6 names 1 and 9; 4 and 9 name nobody
        candidates=empty,
    )
    assert rows.edges().tolist() == [[1, 6], [6, 9]]
    assert rows.claims(10).tolist() == [0, 1, 0, 0, 0, 0, 1, 0, 0, 1]
    assert rows.row(6).tolist() == [1, 9]
    for absent in (0, 5, 10):
        with pytest.raises(ValueError, match=f"position {absent} was not screened"):
            rows.row(absent)


def test_no_rows_no_edges():
    empty = Nominees(np.zeros(3, dtype=np.int64), *np.empty((2, 0), dtype=np.int64))
    rows = ScreenRows(np.arange(2), np.zeros(3, dtype=np.int64), np.empty(0, dtype=int), empty)
    assert rows.edges().shape == (0, 2)
    assert rows.num_overflowed == 0


# ----- States and chunks ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_chunks_partition_every_color_in_order(seed):
    rng = np.random.default_rng(seed)
    length, num_colors, chunk_size = (int(k) for k in rng.integers((3, 1, 1), (30, 9, 8)))
    residual = np.flatnonzero(rng.random(length) < 0.7)
    colors = rng.integers(num_colors, size=length).astype(np.int32)
    for skip in (False, True):
        screen = screen_of(
            num_colors=num_colors, num_colorings=5, chunk_size=chunk_size, skip_empty_colors=skip
        )
        chunks = list(chunks_of(4, colors, residual, screen))
        assert sorted(int(j) for c in chunks for j in c.readouts) == residual.tolist()
        for chunk in chunks:
            assert chunk.coloring == 4
            assert 1 <= len(chunk.readouts) <= chunk_size
            for j in chunk.readouts:
                assert chunk.readouts.tolist() == plain_chunk(
                    colors, residual.tolist(), chunk_size, int(j)
                )
            others = set(range(num_colors)) - set(colors[chunk.readouts].tolist())
            if skip:
                others &= set(colors[residual].tolist())
            assert set(chunk.sources.tolist()) == others


@pytest.mark.parametrize("seed", range(20))
def test_submitted_states_follow_the_definition(seed):
    rng = np.random.default_rng(seed)
    length, num_colors, num_columns = (int(k) for k in rng.integers((2, 2, 1), (15, 7, 5)))
    history = np.where(rng.random(length) < 0.3, rng.integers(9, size=length), cp.MASK)
    residual = np.flatnonzero(history == cp.MASK)
    filler = np.where(history == cp.MASK, rng.integers(9, size=length), history)
    columns = rng.integers(9, size=(num_columns, length))
    colors = rng.integers(num_colors, size=length).astype(np.int32)
    screen = screen_of(num_colors=num_colors, num_colorings=1)
    for chunk in chunks_of(0, colors, residual, screen):
        states = probe_states(history.astype(np.int32), filler, columns, colors, chunk)
        expected = [
            plain_state(history, filler, column, colors, color, chunk.readouts.tolist())
            for column in columns
            for color in chunk.sources
        ]
        np.testing.assert_array_equal(states, np.array(expected).reshape(-1, length))


@pytest.mark.parametrize("skip", [False, True])
def test_a_whole_screen_submits_exactly_the_states_of_the_definition(skip, counted):
    rng = np.random.default_rng(8)
    history = np.array([cp.MASK, 2, cp.MASK, cp.MASK, cp.MASK, 0, cp.MASK, cp.MASK])
    residual = np.flatnonzero(history == cp.MASK)
    oracle = counted(nonsense(8, 3, 2))
    run = cp.run.Run(oracle, given=history)
    banks = run.call(read_banks, 0.3, 0.0)
    filler = np.where(history == cp.MASK, rng.integers(3, size=8), history)
    columns = banks.columns(filler)
    screen = screen_of(num_colors=5, num_colorings=4, skip_empty_colors=skip)
    colors = draw_colorings(4, 5, 8, rng)
    oracle.seen.clear()
    run.call(packed_screen, screen, columns, filler, colors)
    expected: Counter[bytes] = Counter()
    for hue in colors:
        sources = set(hue[residual].tolist()) if skip else set(range(5))
        for chunk in {tuple(plain_chunk(hue, residual.tolist(), 2, int(j))) for j in residual}:
            for color, column in itertools.product(sources - {int(hue[chunk[0]])}, columns):
                state = plain_state(history, filler, column, hue, color, chunk)
                expected[state.tobytes()] += 1
    assert Counter(state.tobytes() for state in np.concatenate(oracle.seen)) == expected
    assert run.ledger.probes == expected.total()
    assert run.ledger.stages == 2  # preprocessing and the screen
    assert run.state.tolist() == history.tolist()  # nothing is committed


def test_colors_are_drawn_for_every_position_and_reproducibly():
    colors = draw_colorings(7, 5, 30, keyed_generator(1, "coloring", 0))
    assert colors.shape == (7, 30)
    assert set(np.unique(colors).tolist()) == set(range(5))
    again = draw_colorings(7, 5, 30, keyed_generator(1, "coloring", 0))
    np.testing.assert_array_equal(colors, again)
    fresh = draw_colorings(7, 5, 30, keyed_generator(1, "coloring", 1))
    assert not np.array_equal(colors, fresh)


@pytest.mark.statistical
def test_colors_are_uniform_and_pairs_of_positions_independent(chi_square, false_alarms, seed_of):
    # Seed 41; 20,000 colorings show a cell that is off by a tenth of its mass.
    colors = draw_colorings(20_000, 4, 3, np.random.default_rng(seed_of(41)))
    cells = np.bincount(colors @ np.array([16, 4, 1]), minlength=64)
    assert chi_square(cells, np.full(64, 1 / 64)) > false_alarms
    # The same check rejects colors that avoid each other.
    avoiding = (colors + np.array([0, 1, 2])) % 4
    avoiding[:, 1] = np.where(avoiding[:, 1] == avoiding[:, 0], avoiding[:, 2], avoiding[:, 1])
    cells = np.bincount(avoiding @ np.array([16, 4, 1]), minlength=64)
    assert chi_square(cells, np.full(64, 1 / 64)) < false_alarms


# ----- Votes ----------------------------------------------------------------------------------


def check_against_plain(seed: int, **limits) -> int:
    """Compare one random screen with its definition; return how many candidates there were."""
    rng = np.random.default_rng([seed, 77])
    length, vocab_size = int(rng.integers(2, 9)), int(rng.integers(2, 5))
    oracle = nonsense(length, vocab_size, seed, wild=rng.choice([0.3, 0.7, 1.0]))
    history = np.where(
        rng.random(length) < 0.2, rng.integers(vocab_size, size=length), cp.MASK
    ).astype(np.int32)
    run = cp.run.Run(oracle, given=history)
    columns = rng.integers(vocab_size, size=(int(rng.integers(1, 4)), length))
    filler = np.where(history == cp.MASK, rng.integers(vocab_size, size=length), history)
    screen = ScreenSettings(
        num_colors=int(rng.integers(2, 6)),
        num_colorings=int(rng.integers(1, 6)),
        degree_cutoff=int(rng.integers(1, 4)),
        chunk_size=int(rng.integers(1, 4)),
        tv_cut=rng.choice([0.0, 0.1, 0.25]),
        majority_fraction=rng.choice([0.0, 0.5, 0.65]),
        skip_empty_colors=bool(rng.integers(2)),
    )
    colors = draw_colorings(screen.num_colorings, screen.num_colors, length, rng)
    rows = run.call(packed_screen, screen, columns, filler, colors)
    votes = plain_votes(oracle, history, screen, columns, filler, colors)
    for k, j in enumerate(rows.residual):
        wins = votes[:, j] > screen.majority_fraction * screen.num_colorings
        sources, totals = rows.candidates.row(k)
        assert rows.residual[sources].tolist() == np.flatnonzero(wins).tolist()
        assert totals.tolist() == votes[wins, j].tolist()
        ranked = sorted(np.flatnonzero(wins), key=lambda i, j=j: (-votes[i, j], i))
        assert rows.row(int(j)).tolist() == sorted(ranked[: screen.degree_cutoff])
    overflowed = (np.diff(rows.candidates.start) > screen.degree_cutoff).sum()
    assert rows.num_overflowed == overflowed
    return len(rows.candidates.source)


@pytest.mark.parametrize("seed", range(40))
def test_votes_follow_the_definition(seed):
    check_against_plain(seed)


@pytest.mark.slow
def test_votes_follow_the_definition_many_times():
    found = sum(check_against_plain(seed) for seed in range(100, 1100))
    assert found > 4000


def test_positions_of_one_color_never_vote_for_each_other(counted):
    # A coupled pair and two colorings: one gives both ends the same color, one tells them apart.
    law = cp.ForestLaw([[1, 1], [1, 1]], [[0, 1]], [[3, 1], [1, 3]])
    columns, filler = np.array([[0, 0], [1, 1]]), np.array([0, 0])

    def screen(colors, fraction=0.5):
        oracle = counted(law.oracle())
        settings = screen_of(
            num_colors=2, num_colorings=len(colors), majority_fraction=fraction, tv_cut=1e-9
        )
        rows = cp.run.Run(oracle).call(
            packed_screen, settings, columns, filler, np.array(colors, dtype=np.int32)
        )
        return rows_by_position(rows), oracle.states

    assert screen([[0, 1]]) == ({0: [1], 1: [0]}, 4)
    # The same color: the empty other color is still submitted, against the one chunk of both.
    assert screen([[0, 0]]) == ({0: [], 1: []}, 2)
    # One vote of two is no strict majority; two of three are.
    assert screen([[0, 0], [0, 1]])[0] == {0: [], 1: []}
    assert screen([[0, 0], [0, 1]], fraction=0.49)[0] == {0: [1], 1: [0]}
    assert screen([[0, 0], [0, 1], [1, 0]])[0] == {0: [1], 1: [0]}


def test_an_edge_needs_one_pair_of_columns_and_not_the_tail():
    # Position 1 answers 0.4, 0.6 or 0.5 as position 0 shows 0, 1 or the tail token 2: only the
    # two bank columns are further apart than the cut of 0.15, and neither is that far from the
    # tail.
    answer = np.array([[0.4, 0.6, 0.0], [0.6, 0.4, 0.0], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])

    def function(states):
        rows = np.tile([0.5, 0.5, 0.0], (len(states), 2, 1))
        rows[:, 1] = answer[states[:, 0]]  # MASK is the last row
        return rows

    oracle = cp.CallableOracle(function, 2, 3, trusted=True)
    columns, filler = np.array([[0, 0], [1, 1], [2, 2]]), np.array([0, 0])
    screen = screen_of(num_colors=2, num_colorings=1, tv_cut=0.15)
    colors = np.array([[0, 1]], dtype=np.int32)
    rows = cp.run.Run(oracle).call(packed_screen, screen, columns, filler, colors)
    assert rows_by_position(rows) == {0: [], 1: [0]}
    for missing in (0, 1):
        rows = cp.run.Run(oracle).call(
            packed_screen, screen, np.delete(columns, missing, axis=0), filler, colors
        )
        assert rows_by_position(rows) == {0: [], 1: []}


def test_overflowed_rows_and_the_selectors():
    # Position 0 answers to everyone else, and everyone has a color of its own.
    def function(states):
        rows = np.full((*states.shape, 2), 0.5)
        shift = 0.04 * (states[:, 1:] == 1).sum(axis=1)
        rows[:, 0, 0], rows[:, 0, 1] = 0.5 - shift, 0.5 + shift
        return rows

    oracle = cp.CallableOracle(function, 6, 2)
    columns, filler = np.array([[0] * 6, [1] * 6]), np.zeros(6, dtype=np.int64)
    colors = np.tile(np.arange(6, dtype=np.int32), (3, 1))
    colors[2] = [0, 1, 0, 3, 4, 0]  # the third coloring takes a vote from positions 2 and 5

    def row(selector, cutoff=3):
        screen = screen_of(num_colors=6, num_colorings=3, degree_cutoff=cutoff)
        rows = cp.run.Run(oracle).call(packed_screen, screen, columns, filler, colors, selector)
        assert rows.num_overflowed == (cutoff < 5)
        return rows.row(0).tolist()

    assert row(top_votes) == [1, 3, 4]
    assert row(top_votes, cutoff=4) == [1, 2, 3, 4]
    assert row(empty_on_overflow) == []
    assert row(empty_on_overflow, cutoff=5) == [1, 2, 3, 4, 5]
    last = lambda j, row, votes, d: row[-d:]  # noqa: E731
    assert row(last) == [3, 4, 5]


def test_a_selector_sees_positions_not_indices():
    law = cp.families.from_edges(6, [[5, i] for i in range(1, 5)], [0.5] * 4, 2, relabel=False)
    given = np.full(6, cp.MASK)
    given[[0, 2]] = 1
    asked = []

    def selector(readout, row, votes, cutoff):
        asked.append((readout, row.tolist()))
        return row[:cutoff]

    run = cp.run.Run(law.oracle(), given=given)
    banks = run.call(read_banks, 0.1, 0.0)
    colors = np.arange(6, dtype=np.int32)[None, :]
    screen = screen_of(num_colors=6, num_colorings=1, degree_cutoff=2, tv_cut=1e-9)
    filler = banks.most_likely
    rows = run.call(packed_screen, screen, banks.columns(filler), filler, colors, selector)
    assert asked == [(1, [5]), (3, [5]), (4, [5]), (5, [1, 3, 4])]
    assert rows.row(5).tolist() == [1, 3]


def test_without_columns_nothing_is_submitted(counted):
    oracle = counted(nonsense(5, 3, 1))
    run = cp.run.Run(oracle)
    filler = np.zeros(5, dtype=np.int64)
    screen = screen_of(num_colors=4, num_colorings=3)
    colors = draw_colorings(3, 4, 5, np.random.default_rng(1))
    rows = run.call(packed_screen, screen, np.empty((0, 5), dtype=np.int64), filler, colors)
    assert rows_by_position(rows) == {j: [] for j in range(5)}
    assert oracle.states == run.ledger.evaluations == run.ledger.stages == 0


def test_nothing_residual_nothing_submitted(counted):
    oracle = counted(nonsense(4, 3, 1))
    run = cp.run.Run(oracle, given=np.zeros(4, dtype=np.int64))
    screen = screen_of(num_colors=4, num_colorings=3)
    colors = draw_colorings(3, 4, 4, np.random.default_rng(1))
    columns, filler = np.ones((2, 4), dtype=np.int64), np.zeros(4, dtype=np.int64)
    rows = run.call(packed_screen, screen, columns, filler, colors)
    assert len(rows.residual) == len(rows.source) == oracle.states == 0


def test_how_states_are_grouped_changes_nothing(monkeypatch):
    law = cp.families.random_recursive_tree(40, 3)
    found = []
    for at_once in (1, 7, 64, 10_000):
        monkeypatch.setattr(packed, "STATES_AT_ONCE", at_once)
        run = cp.run.Run(law.oracle())
        banks = run.call(read_banks, 0.05, 0.0)
        colors = draw_colorings(9, 8, 40, np.random.default_rng(4))
        screen = screen_of(num_colors=8, num_colorings=9, chunk_size=3, tv_cut=1e-9)
        filler = banks.most_likely
        rows = run.call(packed_screen, screen, banks.columns(filler), filler, colors)
        found.append((rows_by_position(rows), rows.candidates.votes.tolist(), run.ledger))
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0][1]) > 40


# ----- Diameters ------------------------------------------------------------------------------


def random_rows(rng, shape, classed: bool, forest_law) -> cp.rows.Rows:
    """Rows of a screen's reply, ordered by column, source and readout."""
    num_columns, num_sources, num_readouts = shape
    count = num_columns * num_sources * num_readouts
    if classed:
        positions = np.tile(
            rng.integers(forest_law.length, size=num_readouts), num_columns * num_sources
        )
        masses = rng.dirichlet(np.ones(3), size=count)
        return cp.rows.ClassedRows(masses, forest_law.classes, positions)
    return cp.rows.DenseRows(rng.dirichlet(np.ones(4), size=count))


@pytest.mark.parametrize("classed", [False, True], ids=["dense", "classed"])
@pytest.mark.parametrize("seed", range(10))
def test_diameters_agree_with_the_plain_count(seed, classed, forest_law):
    rng = np.random.default_rng(seed)
    shape = tuple(int(k) for k in rng.integers(1, 6, size=3))
    rows = random_rows(rng, shape, classed, forest_law)
    for cut in (0.0, 0.1, 0.3, 0.5, 0.9):
        exceeds = diameters_exceed(rows, shape, cut)
        assert exceeds.shape == shape[1:]
        np.testing.assert_array_equal(exceeds, diameters_exceed_plain(rows, shape, cut))


def test_classed_and_dense_rows_have_the_same_diameters(forest_law):
    rng = np.random.default_rng(5)
    shape = (3, 4, 5)
    rows = random_rows(rng, shape, True, forest_law)
    dense = cp.rows.DenseRows(rows.dense())
    seen = set()
    for cut in (0.2, 0.4, 0.6):
        exceeds = diameters_exceed(rows, shape, cut)
        np.testing.assert_array_equal(exceeds, diameters_exceed(dense, shape, cut))
        seen |= set(exceeds.ravel().tolist())
    assert seen == {False, True}


@pytest.mark.parametrize("classed", [False, True], ids=["dense", "classed"])
def test_a_distance_of_exactly_the_cut_does_not_vote(classed):
    # Eighths are exact: the two columns differ by 1/4 in total variation.
    masses = np.array([[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])
    rows = (
        cp.rows.ClassedRows(
            masses, cp.classes.TokenClasses.identity(1, 3), np.zeros(2, dtype=np.int64)
        )
        if classed
        else cp.rows.DenseRows(masses)
    )
    for exceeds in (diameters_exceed, diameters_exceed_plain):
        assert not exceeds(rows, (2, 1, 1), 0.25).any()
        assert exceeds(rows, (2, 1, 1), np.nextafter(0.25, 0)).all()


def test_all_pairs_of_columns_are_compared():
    # Columns 0 and 1 differ by 1/4, each by 1/8 from the tail in the last place.
    masses = np.array([[0.25, 0.75], [0.5, 0.5], [0.375, 0.625]])
    for exceeds in (diameters_exceed, diameters_exceed_plain):
        assert exceeds(cp.rows.DenseRows(masses), (3, 1, 1), 0.2).all()
        assert not exceeds(cp.rows.DenseRows(masses[[0, 2]]), (2, 1, 1), 0.2).any()
        assert not exceeds(cp.rows.DenseRows(masses[[1, 2]]), (2, 1, 1), 0.2).any()
    for order in itertools.permutations(range(3)):
        assert diameters_exceed(cp.rows.DenseRows(masses[list(order)]), (3, 1, 1), 0.2).all()


def test_one_column_never_votes():
    assert not diameters_exceed(cp.rows.DenseRows(np.array([[1.0, 0.0]])), (1, 1, 1), 0.0).any()


@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows_are_shared_among_threads(threads, thread_limit):
    thread_limit(threads)
    rng = np.random.default_rng(6)
    shape = (2, 90, 100)
    rows = cp.rows.DenseRows(rng.dirichlet(np.ones(3), size=18_000))
    np.testing.assert_array_equal(
        diameters_exceed(rows, shape, 0.4), diameters_exceed_plain(rows, shape, 0.4)
    )


def test_rows_in_single_precision():
    rows = np.random.default_rng(7).dirichlet(np.ones(5), size=24)
    single = torch.tensor(rows, dtype=torch.float32)
    exceeds = diameters_exceed(cp.rows.DenseRows(single), (3, 2, 4), 0.45)
    np.testing.assert_array_equal(
        exceeds, diameters_exceed(cp.rows.DenseRows(rows), (3, 2, 4), 0.45)
    )
    assert 0 < exceeds.sum() < exceeds.size


def test_probe_states_follow_the_definition_position_by_position() -> None:
    rng = np.random.default_rng(11)
    for _ in range(60):
        length, num_columns, num_colors = (int(k) for k in rng.integers((1, 1, 2), (40, 4, 6)))
        history = np.where(rng.random(length) < 0.3, rng.integers(0, 9, length), MASK)
        history = history.astype(np.int32)
        filler = np.where(history == MASK, rng.integers(0, 9, length), history)
        columns = rng.integers(0, 9, (num_columns, length))
        colors = rng.integers(num_colors, size=length).astype(np.int32)
        readable = np.flatnonzero((history == MASK) & (colors == 0))
        chunk = Chunk(0, readable[: len(readable) // 2 + 1], np.arange(1, num_colors))
        states = probe_states(history, filler, columns, colors, chunk)
        for k in range(num_columns):
            for s, source in enumerate(chunk.sources):
                state = states[k * len(chunk.sources) + s]
                for i in range(length):
                    if history[i] != MASK:
                        expected = history[i]
                    elif i in chunk.readouts:
                        expected = MASK
                    elif colors[i] == source:
                        expected = columns[k, i]
                    else:
                        expected = filler[i]
                    assert state[i] == expected


@pytest.mark.parametrize("seed", range(4))
def test_a_shared_filler_saves_evaluations_and_changes_no_vote(seed, counted):
    law = cp.families.random_recursive_tree(40, target_seed=seed)
    found, asked = [], []
    for is_shared in (False, True):
        oracle = counted(law.oracle())
        run = cp.run.Run(oracle)
        banks = run.call(read_banks, 4 / law.vocab_size, 0.0)
        columns = banks.columns(banks.most_likely, filler_first=True)
        assert (columns[0] == banks.most_likely).all()
        plain = banks.columns(banks.most_likely)
        assert (np.sort(columns, axis=0) == np.sort(plain, axis=0)).all()
        settings = ScreenSettings(5, 12, 8, 40, 0.0, share_filler=is_shared)
        colors = draw_colorings(12, 5, 40, np.random.default_rng(seed))
        rows = run.call(packed_screen, settings, columns, banks.most_likely, colors)
        found.append((rows.source.tolist(), rows.candidates.votes.tolist()))
        asked.append(run.ledger.probes)
        assert run.ledger.probes == settings.evaluations(len(columns))
    assert found[0] == found[1]
    assert asked == [12 * 5 * 4 * 3, 12 * 5 * (1 + 4 * 2)]


def test_a_filler_that_no_column_shows_is_not_shared():
    law = cp.families.path(20, target_seed=1)
    probes = []
    for is_shared in (False, True):
        run = cp.run.Run(law.oracle())
        banks = run.call(read_banks, 4 / law.vocab_size, 0.0)
        filler = np.full(20, 77)
        settings = ScreenSettings(5, 3, 8, 20, 0.0, share_filler=is_shared)
        colors = draw_colorings(3, 5, 20, np.random.default_rng(1))
        columns = banks.columns(filler, filler_first=is_shared)
        run.call(packed_screen, settings, columns, filler, colors)
        probes.append(run.ledger.probes)
    assert probes[0] == probes[1]
