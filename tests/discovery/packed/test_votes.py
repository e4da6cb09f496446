"""Vote counting against its definition, a plain NumPy count, and cases worked out by hand."""

import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.discovery.packed import votes
from counterprobe.discovery.packed.votes import Nominees, VoteBook, count_plain
from counterprobe.threads import num_threads, set_num_threads

Triples = list[tuple[int, int, int]]

derandomised = settings(derandomize=True, deadline=None, max_examples=80)


# ----- Helpers --------------------------------------------------------------------------------


def fill(response: BoolArray) -> VoteBook:
    """Book of a whole array of responses, written one coloring at a time."""
    num_colorings, num_colors, num_positions = response.shape
    book = VoteBook(num_positions, num_colors, num_colorings)
    for t in range(num_colorings):
        book.record(t, np.arange(num_colors), np.arange(num_positions), response[t])
    return book


def draw(
    seed: int, num_positions: int, num_colors: int, num_colorings: int, density: float
) -> tuple[BoolArray, IntArray]:
    """Random responses and colors."""
    rng = np.random.default_rng([seed, num_positions, num_colors, num_colorings])
    response = rng.random((num_colorings, num_colors, num_positions)) < density
    return response, rng.integers(num_colors, size=(num_colorings, num_positions))


def triples(candidates: Nominees) -> Triples:
    """All (readout, source, votes), in the order in which they are stored."""
    return list(
        zip(
            candidates.readout.tolist(),
            candidates.source.tolist(),
            candidates.votes.tolist(),
            strict=True,
        )
    )


def by_definition(response: BoolArray, colors: IntArray, fraction: float) -> Triples:
    """Vote by vote, from the paper's formula."""
    num_colorings, num_positions = colors.shape
    found = []
    for j, i in itertools.product(range(num_positions), repeat=2):
        total = sum(
            bool(response[t, colors[t, i], j])
            for t in range(num_colorings)
            if colors[t, i] != colors[t, j]
        )
        if i != j and total > fraction * num_colorings:
            found.append((j, i, total))
    return found


def assert_same(ours: Nominees, expected: Nominees) -> None:
    for name in ("start", "source", "votes"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(expected, name), strict=True)


@pytest.fixture
def use_threads() -> Iterator[Callable[[int], None]]:
    """Set the number of threads; the old one comes back after the test."""
    before = num_threads()
    yield set_num_threads
    set_num_threads(before)


# ----- Counting: exact --------------------------------------------------------------------------


def test_hand_worked_screen() -> None:
    # Under both colorings position 0 answers to color 1, whose only steady member is position 2.
    colors = [[0, 1, 1], [0, 0, 1]]
    book = VoteBook(3, 2, 2)
    for t in range(2):
        book.record(t, 1, [0], [True])
    assert triples(book.count(colors)) == [(0, 2, 2)]
    assert triples(book.count(colors, 0.25)) == [(0, 1, 1), (0, 2, 2)]
    sources, totals = book.count(colors, 0.25).row(0)
    assert sources.tolist() == [1, 2]
    assert totals.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("num_colorings", "num_votes", "wins"),
    [(1, 1, True), (2, 1, False), (2, 2, True), (60, 30, False), (60, 31, True), (127, 64, True)],
)
def test_majority_is_strict(num_colorings: int, num_votes: int, wins: bool) -> None:
    book = VoteBook(2, 2, num_colorings)
    for t in range(num_votes):
        book.record(t, 0, [1], [True])
    expected = [(1, 0, num_votes)] if wins else []
    assert triples(book.count(np.tile([0, 1], (num_colorings, 1)))) == expected


def test_same_color_votes_zero_even_where_a_response_was_recorded() -> None:
    book = VoteBook(70, 3, 5)
    book.words[:] = np.uint64(2**64 - 1)  # also the bits beyond the last position
    colors = np.random.default_rng(5).integers(3, size=(5, 70))
    differs = (colors[:, :, None] != colors[:, None, :]).sum(axis=0)
    candidates = book.count(colors, 0.0)
    totals = np.zeros((70, 70), dtype=np.int64)
    totals[candidates.source, candidates.readout] = candidates.votes
    np.testing.assert_array_equal(totals, differs)
    assert (book.words == np.uint64(2**64 - 1)).all()  # counting leaves the book as it was
    assert triples(book.count(np.ones((5, 70), dtype=np.int64), 0.0)) == []


@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.5, 2 / 3])
@pytest.mark.parametrize(("num_colors", "num_colorings"), [(1, 3), (2, 4), (3, 7), (5, 18)])
def test_both_counts_follow_the_definition(
    num_colors: int, num_colorings: int, fraction: float
) -> None:
    response, colors = draw(1, 9, num_colors, num_colorings, 0.7)
    expected = by_definition(response, colors, fraction)
    assert bool(expected) == (num_colors > 1)
    assert triples(count_plain(response, colors, fraction)) == expected
    candidates = fill(response).count(colors, fraction)
    assert triples(candidates) == expected
    for j in range(9):
        sources, totals = candidates.row(j)
        mine = [(i, total) for readout, i, total in expected if readout == j]
        assert list(zip(sources.tolist(), totals.tolist(), strict=True)) == mine


@pytest.mark.parametrize("num_colors", [1, 2, 4, 80])
@pytest.mark.parametrize("num_colorings", [1, 2, 15, 16, 17, 60, 127, 128, 129])
@pytest.mark.parametrize("num_positions", [0, 1, 2, 63, 64, 65, 130])
def test_count_agrees_with_plain_count(
    num_positions: int, num_colorings: int, num_colors: int
) -> None:
    # Densities on both sides of a half, and fractions at which some pairs win and some lose.
    for density, fraction in ((0.02, 0.0), (0.6, 0.5), (0.95, 0.5), (0.5, 0.37), (1.0, 0.99)):
        response, colors = draw(2, num_positions, num_colors, num_colorings, density)
        expected = count_plain(response, colors, fraction)
        assert_same(fill(response).count(colors, fraction), expected)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.734, 0.9, 1.0])
def test_every_total_is_decoded(fraction: float) -> None:
    # Position i is the only one of its color and gets exactly i votes at the last position.
    num_colorings = 67
    num_positions = num_colorings + 2
    response = np.zeros((num_colorings, num_positions, num_positions), dtype=np.bool_)
    for i in range(num_colorings + 1):
        response[num_colorings - i :, i, -1] = True
    colors = np.tile(np.arange(num_positions), (num_colorings, 1))
    expected = [
        (num_positions - 1, i, i) for i in range(num_colorings + 1) if i > fraction * num_colorings
    ]
    assert triples(fill(response).count(colors, fraction)) == expected


def test_one_vote_decides() -> None:
    response, colors = draw(3, 130, 4, 60, 0.0)
    colors[:, 128], colors[:, 7] = 0, 1
    response[:31, 1, 128] = True
    book = fill(response)
    assert (128, 7, 31) in triples(book.count(colors))
    book.record(30, 1, [128], [False])
    assert triples(book.count(colors)) == []


# ----- Counting: blocks, tiles, threads and growth ----------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("tile_words", "block_sources", "buffer_pairs"), [(1, 1, 1), (2, 7, 300), (3, 64, 1000)]
)
def test_result_does_not_depend_on_how_work_is_cut(
    monkeypatch: pytest.MonkeyPatch,
    tile_words: int,
    block_sources: int,
    buffer_pairs: int,
    threads: int,
    use_threads: Callable[[int], None],
) -> None:
    use_threads(threads)
    response, colors = draw(4, 300, 4, 21, 0.6)
    expected = count_plain(response, colors, 0.4)
    assert expected.source.size > 10 * 1000  # the buffer is handed over many times
    monkeypatch.setattr(votes, "_TILE_WORDS", tile_words)
    monkeypatch.setattr(votes, "_BLOCK_SOURCES", block_sources)
    monkeypatch.setattr(votes, "_BUFFER_PAIRS", buffer_pairs)
    assert_same(fill(response).count(colors, 0.4), expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_pair_may_be_a_candidate(threads: int, use_threads: Callable[[int], None]) -> None:
    use_threads(threads)
    num_positions = 1500  # two blocks of sources, each with more pairs than a buffer
    book = VoteBook(num_positions, num_positions, 1)
    book.words[:] = np.uint64(2**64 - 1)
    candidates = book.count(np.arange(num_positions)[None])
    np.testing.assert_array_equal(np.diff(candidates.start), num_positions - 1)
    expected = np.tile(np.arange(num_positions), (num_positions, 1))
    expected = expected[~np.eye(num_positions, dtype=np.bool_)]
    np.testing.assert_array_equal(candidates.source, expected)
    assert (candidates.votes == 1).all()


def test_matching_at_full_size(
    capsys: pytest.CaptureFixture[str], use_threads: Callable[[int], None]
) -> None:
    """Two tiles and seventeen blocks: a planted matching among noise, every total known."""
    num_positions, num_colors, num_colorings = 16_386, 4, 60
    rng = np.random.default_rng(6)
    colors = rng.integers(num_colors, size=(num_colorings, num_positions))
    position = np.arange(num_positions)
    partner = position ^ 1
    book = VoteBook(num_positions, num_colors, num_colorings)
    planted = np.zeros(num_positions, dtype=np.int64)
    for t in range(num_colorings):
        response = rng.random((num_colors, num_positions)) < 0.02
        response[colors[t, partner], position] = True
        book.record(t, np.arange(num_colors), position, response)
        planted += colors[t] != colors[t, partner]
    candidates = book.count(colors)

    is_partner = candidates.source == partner[candidates.readout]
    wins = planted > num_colorings / 2
    np.testing.assert_array_equal(candidates.readout[is_partner], np.flatnonzero(wins))
    np.testing.assert_array_equal(candidates.votes[is_partner], planted[wins])
    # The first and last words of readouts, and a stretch across the two tiles, vote by vote.
    for readouts in (position[:64], position[8_150:8_250], position[-66:]):
        totals = np.zeros((num_positions, readouts.size), dtype=np.int64)
        for t in range(num_colorings):
            bits = (book.words[t][:, readouts >> 6] >> (readouts & 63).astype(np.uint64)) & 1
            totals += bits[colors[t]].astype(np.int64) * (
                colors[t][:, None] != colors[t, readouts][None, :]
            )
        column, source = np.nonzero(totals.T > num_colorings / 2)
        here = np.isin(candidates.readout, readouts)
        np.testing.assert_array_equal(candidates.readout[here], readouts[column])
        np.testing.assert_array_equal(candidates.source[here], source)
        np.testing.assert_array_equal(candidates.votes[here], totals[source, column])

    with capsys.disabled():
        for threads in (1, 2):
            use_threads(threads)
            seconds = []
            for _ in range(5):
                begin = time.perf_counter()
                again = book.count(colors)
                seconds.append(time.perf_counter() - begin)
            assert_same(again, candidates)
            print(f"\ncount, n = {num_positions}, {threads} threads: {min(seconds):.3f} s")


# ----- Counting: properties ---------------------------------------------------------------------


@derandomised
@given(
    seed=st.integers(0, 2**32 - 1),
    num_positions=st.integers(0, 140),
    num_colors=st.integers(1, 9),
    num_colorings=st.integers(1, 40),
    density=st.floats(0, 1),
    fractions=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_properties_of_any_screen(
    seed: int,
    num_positions: int,
    num_colors: int,
    num_colorings: int,
    density: float,
    fractions: tuple[float, float],
) -> None:
    response, colors = draw(seed, num_positions, num_colors, num_colorings, density)
    low, high = sorted(fractions)
    book = fill(response)
    many = book.count(colors, low)
    assert_same(many, count_plain(response, colors, low))
    # Raising the fraction removes exactly the pairs at or below it.
    few = set(triples(book.count(colors, high)))
    assert few == {pair for pair in triples(many) if pair[2] > high * num_colorings}
    # Relabelling positions relabels the candidates.
    new_name = np.random.default_rng(seed).permutation(num_positions)
    moved_response, moved_colors = np.empty_like(response), np.empty_like(colors)
    moved_response[..., new_name], moved_colors[:, new_name] = response, colors
    moved = triples(fill(moved_response).count(moved_colors, low))
    assert moved == sorted((new_name[j], new_name[i], total) for j, i, total in triples(many))


# ----- Recording --------------------------------------------------------------------------------


def test_recording_colors_together_or_one_by_one_or_in_chunks_is_the_same() -> None:
    response, _ = draw(7, 131, 5, 3, 0.5)
    rng = np.random.default_rng(8)
    one_by_one, in_chunks = VoteBook(131, 5, 3), VoteBook(131, 5, 3)
    for t in range(3):
        for c in range(5):
            one_by_one.record(t, c, np.arange(131), response[t, c])
        for chunk in np.array_split(rng.permutation(131), 10):
            some = rng.permutation(5)
            in_chunks.record(t, some, chunk, response[t][np.ix_(some, chunk)])
    np.testing.assert_array_equal(one_by_one.unpack(), response)
    np.testing.assert_array_equal(in_chunks.unpack(), response)
    np.testing.assert_array_equal(fill(response).unpack(), response)


def test_recording_writes_the_named_bits_only() -> None:
    book = fill(np.ones((2, 3, 100), dtype=np.bool_))
    book.record(1, [2, 0], [99, 64], [[False, True], [True, False]])
    expected = np.ones((2, 3, 100), dtype=np.bool_)
    expected[1, 2, 99] = expected[1, 0, 64] = False
    np.testing.assert_array_equal(book.unpack(), expected)
    book.record(1, 1, [], [])
    book.record(1, [], [4, 5], np.empty((0, 2), dtype=np.bool_))
    np.testing.assert_array_equal(book.unpack(), expected)


# ----- Errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 0, [0], [True]), r"coloring must lie in 0\.\.1, got 2"),
        ((-1, 0, [0], [True]), r"coloring must lie in 0\.\.1, got -1"),
        ((0, 3, [0], [True]), r"source_color must lie in 0\.\.2, got 3"),
        ((0, [0, -1], [0], [[True], [True]]), r"source_color must lie in 0\.\.2, got -1"),
        ((0, 0.5, [0], [True]), "source_color must hold integers, got dtype float64"),
        ((0, 0, [4], [True]), r"readouts must lie in 0\.\.3, got 4"),
        ((0, 0, [-1], [True]), r"readouts must lie in 0\.\.3, got -1"),
        ((0, 0, [0, 1], [True]), r"got \(\), \(2,\), \(1,\)"),
        ((0, [0, 1], [0, 1], [True, False]), r"got \(2,\), \(2,\), \(2,\)"),
        ((0, 0, [0], [0.3]), "responds must hold booleans, got dtype float64"),
    ],
)
def test_record_refuses(arguments: tuple[int, object, object, object], message: str) -> None:
    book = VoteBook(4, 3, 2)
    with pytest.raises(ValueError, match=message):
        book.record(*arguments)  # type: ignore[arg-type]
    assert not book.words.any()


@pytest.mark.parametrize(
    ("colors", "options", "message"),
    [
        ([[0, 1]], {}, r"colors must have shape \(2, 2\), got \(1, 2\)"),
        ([[0, 1], [0, 3]], {}, r"colors must lie in 0\.\.2, got 3"),
        ([[0, 1], [-1, 0]], {}, r"colors must lie in 0\.\.2, got -1"),
        ([[0.0, 1.0], [0.0, 1.0]], {}, "colors must hold integers, got dtype float64"),
        ([[0, 1], [0, 1]], {"majority_fraction": 1.01}, r"must be in \[0, 1\], got 1.01"),
        ([[0, 1], [0, 1]], {"majority_fraction": -0.01}, r"must be in \[0, 1\], got -0.01"),
        ([[0, 1], [0, 1]], {"majority_fraction": float("nan")}, r"in \[0, 1\], got nan"),
    ],
)
def test_count_refuses(colors: list[list[int]], options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VoteBook(2, 3, 2).count(colors, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(-1, 2, 2), (3, 0, 2), (3, 2, 0)])
def test_book_refuses_empty_screens(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        VoteBook(*sizes)
