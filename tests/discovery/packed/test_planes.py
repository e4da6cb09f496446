"""Each compiled step of the count beside a plain one: bits as booleans, totals as integers."""

import numpy as np
import pytest

from counterprobe.discovery.packed import planes

ALL = np.uint64(2**64 - 1)


def booleans(words):
    """The bits of words, lowest first, along the last axis."""
    octets = np.ascontiguousarray(words).astype("<u8").view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little").astype(bool)


def random_words(rng, *shape):
    return rng.integers(2**64, size=shape, dtype=np.uint64)


@pytest.mark.parametrize("seed", range(4))
def test_bits_that_are_named_are_written_and_no_others(seed):
    rng = np.random.default_rng([61, seed])
    words = random_words(rng, 5, 3)
    before = booleans(words)
    colors = rng.permutation(5)[: 1 + seed].astype(np.int64)
    readouts = np.array([0, 63, 64, 100, 127, 128, 191])[rng.permutation(7)[:5]]
    responds = rng.random((len(colors), len(readouts))) < 0.5
    expected = before.copy()
    expected[np.ix_(colors, readouts)] = responds
    planes.write_bits(words, colors, readouts, responds)
    np.testing.assert_array_equal(booleans(words), expected)


@pytest.mark.parametrize("num_positions", [1, 63, 64, 65, 128, 130, 320])
def test_tiles_hold_the_votes_that_count(num_positions):
    rng = np.random.default_rng([62, num_positions])
    num_words = -(-num_positions // 64)
    words = random_words(rng, 3, 4, num_words)
    colors = rng.integers(4, size=(3, num_positions), dtype=np.int32)
    before = words.copy()
    for width in {1, 2, num_words}:
        num_tiles = -(-num_words // width)
        tiles = np.zeros((num_tiles, 3 * 4 + 1, width), dtype=np.uint64)
        planes.copy_to_tiles(words, colors, tiles)
        votes = booleans(words)[:, :, :num_positions]
        votes &= colors[:, None, :] != np.arange(4)[:, None]
        side_by_side = booleans(tiles.transpose(1, 0, 2).reshape(13, num_tiles * width))
        np.testing.assert_array_equal(
            side_by_side[:12, :num_positions], votes.reshape(12, num_positions)
        )
        assert not side_by_side[:, num_positions:].any(), "beyond the last position"
        assert not side_by_side[12].any(), "the row that fills a last pass"
    np.testing.assert_array_equal(words, before)


def count(tiles, rows, first_source, least_votes, room, num_planes=6):
    """Call the kernel until all is counted; the pairs of each call, and how often it stopped."""
    width = tiles.shape[2]
    stack = np.full((num_planes, width), ALL)
    carry = np.full(width, ALL)
    buffer = np.full((3, room), -1, dtype=np.int32)
    pairs, step, stops = [], 0, []
    while step < tiles.shape[0] * len(rows):
        step, found = planes.find_pairs(
            tiles, rows, first_source, least_votes, stack, carry, step, buffer
        )
        pairs += buffer[:, :found].T.tolist()
        assert (buffer[:, found:] == -1).all()
        buffer[:] = -1
        stops.append(step)
    return pairs, stops


def count_plainly(tiles, rows, first_source, least_votes):
    """Pairs in the order of the kernel: tile, then source, then readout."""
    found = []
    for tile, words in enumerate(tiles):
        bits = booleans(words).astype(int)
        for i, row in enumerate(rows):
            for j, votes in enumerate(bits[row].sum(axis=0)):
                if votes >= least_votes:
                    found.append([tile * words.shape[1] * 64 + j, first_source + i, int(votes)])
    return found


@pytest.mark.parametrize("num_rows", [16, 32])
@pytest.mark.parametrize("least_votes", [1, 7, 9, 12, 16])
def test_pairs_with_enough_votes_are_found_with_their_totals(num_rows, least_votes):
    rng = np.random.default_rng([63, num_rows, least_votes])
    tiles = random_words(rng, 2, 40, 2)
    # Bits that are rarely and often set, so that totals run from none to all.
    tiles[:, 10:20] &= random_words(rng, 2, 10, 2) & random_words(rng, 2, 10, 2)
    tiles[:, 20:30] |= random_words(rng, 2, 10, 2) | random_words(rng, 2, 10, 2)
    tiles[:, 30:] = ALL
    rows = rng.integers(40, size=(4, num_rows)).astype(np.uint32)
    rows[1] = rng.integers(10, 20, size=num_rows)
    rows[2] = rng.integers(20, 30, size=num_rows)
    rows[3] = rng.integers(30, 40, size=num_rows)
    pairs, stops = count(tiles, rows, 5, least_votes, 4 * 2 * 128)
    assert pairs == count_plainly(tiles, rows, 5, least_votes)
    assert stops == [8]
    assert {votes for *_, votes in pairs} >= {num_rows}


def test_counting_stops_while_a_source_might_not_fit_and_goes_on_from_there():
    tiles = np.full((2, 16, 1), ALL)
    rows = np.tile(np.arange(16, dtype=np.uint32), (3, 1))
    everything = count_plainly(tiles, rows, 0, 16)
    assert len(everything) == 2 * 3 * 64
    for room, stops in [(64, [1, 2, 3, 4, 5, 6]), (127, [1, 2, 3, 4, 5, 6]), (128, [2, 4, 6])]:
        assert count(tiles, rows, 0, 16, room) == (everything, stops)


def test_pairs_are_placed_in_the_rows_of_their_readouts():
    pairs = np.array([[2, 0, 2, 2], [7, 8, 9, 1], [3, 4, 5, 6]], dtype=np.int32)
    cursor = np.array([0, 1, 1], dtype=np.int64)
    source, votes = np.full(5, -1), np.full(5, -1)
    planes.place(pairs, cursor, source, votes)
    assert source.tolist() == [8, 7, 9, 1, -1]
    assert votes.tolist() == [4, 3, 5, 6, -1]
    assert cursor.tolist() == [1, 1, 4]
