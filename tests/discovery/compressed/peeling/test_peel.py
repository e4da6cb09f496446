"""The steps of the decoder against their plain references, and the decoder against laws."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import counterprobe as cp
from counterprobe import threads
from counterprobe.discovery.compressed.peeling import blocks, graph, peeler, plain
from counterprobe.discovery.compressed.peeling import clusters as fast
from counterprobe.discovery.compressed.peeling.board import (
    READ,
    UNREAD,
    Board,
    Boards,
    log_tolerance,
)
from counterprobe.discovery.compressed.peeling.decoder import Decoder, blind_chance, needed_reads
from counterprobe.discovery.compressed.peeling.design import (
    MASK_RATE,
    balanced_displays,
    grant_wishes,
)
from counterprobe.discovery.compressed.peeling.messages import remove_message, scale
from counterprobe.oracles import Readouts
from counterprobe.targets import forests


def random_law(edges: np.ndarray, length: int, classes: int, *, strength=0.8, seed=0):
    """A law with general tables, whose tokens are its classes; one token may be impossible."""
    rng = np.random.default_rng(seed)
    unary = rng.uniform(0.4, 1.0, size=(length, classes))
    pair = np.exp(rng.normal(scale=strength, size=(len(edges), classes, classes)))
    return cp.ForestLaw(unary, edges, pair)


class Probing:
    """A decoder of a law, and what it takes to make more probes."""

    def __init__(self, law: cp.ForestLaw, seed: int = 0) -> None:
        self.law, self.rng = law, np.random.default_rng(seed)
        nothing = np.full((1, law.length), cp.MASK, dtype=np.int32)
        rows = law.oracle().rows(nothing, Readouts.same(1, np.arange(law.length)))
        self.all_mask = rows.masses
        self.decoder = Decoder(
            rows.masses > 0, rows.masses.argmax(axis=1), log_tolerance(1e-12), MASK_RATE, 40
        )

    def probe(self, count: int) -> None:
        decoder = self.decoder
        board = decoder.board
        shown = balanced_displays(count, board.present, board.num_choices, self.rng)
        wished = grant_wishes(shown, decoder.wishes, self.rng)
        first = decoder.open(shown, wished)
        states = shown.astype(np.int32)
        readouts = Readouts.every_masked(states)
        rows = self.law.oracle().rows(states, readouts)
        decoder.take(first + readouts.state_index, readouts.position, rows.masses)

    def solve(self, most: int = 160) -> None:
        while True:
            self.probe(24 if self.decoder.board.num_probes == 0 else 6)
            self.decoder.decode()
            if self.decoder.num_open == 0 or self.decoder.board.num_probes > most:
                return


def pairs(edges: np.ndarray) -> set[tuple[int, int]]:
    return {(int(min(e)), int(max(e))) for e in edges}


@pytest.fixture
def probed() -> Callable[..., Board]:
    """A board with probes of a random tree on it."""

    def probed(length: int, classes: int, count: int, seed: int) -> Board:
        rng = np.random.default_rng(seed)
        edges = np.array([[rng.integers(k), k] for k in range(1, length)]).reshape(-1, 2)
        edges = edges[rng.random(len(edges)) < 0.8]
        probing = Probing(random_law(edges, length, classes, seed=seed), seed)
        probing.probe(count)
        return probing.decoder.board

    return probed


# ----- Kernels against plain steps -------------------------------------------------------------


CASES = [(12, 3, 20, 0), (9, 2, 70, 1), (10, 4, 25, 2), (2, 3, 30, 3), (1, 3, 12, 4)]


@pytest.mark.parametrize(("length", "classes", "count", "seed"), CASES)
def test_clusters_are_the_plain_ones(probed, length, classes, count, seed) -> None:
    board = probed(length, classes, count, seed)
    into = fast.new_clusters(board.shown.shape[1])
    for i in range(length):
        number = fast.cluster(board, i, board.residual[i], into)
        expected = plain.clusters(board, i)
        assert number == len(expected)
        ends = np.cumsum(into.size[:number])
        groups = np.split(into.probe[: ends[-1]], ends[:-1])
        assert sorted(map(sorted, groups)) == sorted(map(sorted, expected))
        size, probe, label = np.zeros((3, len(into.probe)), dtype=np.int16)
        fast.arrange(number, into, probe, size, label)
        groups = np.split(probe[: ends[-1]], np.cumsum(size[:number])[:-1])
        assert sorted(map(sorted, groups)) == sorted(map(sorted, expected))
        assert (np.diff((size[:number] == 1).astype(int)) >= 0).all()
        assert all((label[group] == n).all() for n, group in enumerate(groups))
        assert fast.equal_pairs(number, into) == sum(len(g) * (len(g) - 1) // 2 for g in expected)


@pytest.mark.parametrize(("length", "classes", "count", "seed"), CASES)
def test_candidates_are_the_plain_ones(probed, length, classes, count, seed) -> None:
    board = probed(length, classes, count, seed)
    room = graph.new_room(board)
    probe, size, label = np.zeros((3, board.shown.shape[1]), dtype=np.int16)
    narrow = np.zeros(3, dtype=np.int64)
    for i in range(length):
        number = fast.cluster(board, i, board.residual[i], room.mine)
        fast.arrange(number, room.mine, probe, size, label)
        answer = [fast.explains(board, i, k, label, size) for k in range(length)]
        found = [k for k in range(length) if k != i and answer[k] == fast.EXPLAINS]
        assert found == plain.candidates(board, i)
        reads = board.shown[i] == READ
        for k in range(length):
            is_silent = not (board.shown[k, reads] >= 0).any()
            assert (answer[k] == fast.SILENT) == is_silent
        # A block rules out none that explain, whatever clusters it looks at.
        fast.narrow_down(number, size, classes, MASK_RATE, narrow)
        num_large = int((size[:number] > 1).sum())
        everything = (num_large, size[:num_large].sum(), number - num_large)
        for chosen in (narrow, everything, (0, 0, 0)):
            blocks.keep_likely(
                board.displays[0], board.is_open[0], probe, size, *chosen, room.lanes
            )
            for k in found:
                assert blocks.is_set(room.lanes[:1], k)


@pytest.mark.parametrize("width", [2, 13, 14, 15, 16, 20, 40])
def test_one_that_showed_itself_once_is_never_ruled_out(width: int) -> None:
    """Also where more tokens could be shown than the planes count to."""
    block = np.zeros((21, width + 1, 1), dtype=np.uint64)
    block[0, 0, 0] = block[0, width, 0] = 1
    room = np.zeros((8, 1), dtype=np.uint64)
    probe, size = np.arange(21, dtype=np.int16), np.ones(21, dtype=np.int16)
    assert blocks.keep_likely(block, np.array([1], np.uint64), probe, size, 0, 0, 21, room)
    assert blocks.is_set(room[:1], 0)


@pytest.mark.parametrize(
    ("sizes", "classes"), [([4, 3, 3] + [1] * 12, 3), ([2, 2] + [1] * 19, 3), ([1] * 24, 2)]
)
def test_a_block_leaves_few_that_do_not_explain(sizes: list[int], classes: int) -> None:
    length, count = 8192, sum(sizes)
    rng = np.random.default_rng(len(sizes))
    shown = np.where(rng.random((count, length)) < MASK_RATE, -1,
                     rng.integers(0, classes, (count, length))).astype(np.int8)  # fmt: skip
    boards = Boards(np.ones((length, classes), np.bool_), np.zeros(length, int), 1e-8, 0.45, count)
    boards.open(shown)
    board = boards.board
    probe, size = rng.permutation(count).astype(np.int16), np.array(sizes, dtype=np.int16)
    room, narrow = graph.new_room(board), np.zeros(3, dtype=np.int64)
    fast.narrow_down(len(size), size, classes, MASK_RATE, narrow)
    blocks.keep_likely(board.displays[0], board.is_open[0], probe, size, *narrow, room.lanes)
    left = {k for k in range(length) if blocks.is_set(room.lanes[:1], k)}
    # By hand: the same throughout each cluster that was compared, and few of those counted.
    ends = np.cumsum([0, *sizes])
    expected = set()
    for k in range(length):
        at = [set(shown[probe[low:high], k]) for low, high in itertools.pairwise(ends)]
        singles = [display != {-1} for display in at[sizes.index(1) :][: narrow[2]]]
        if all(len(display) == 1 for display in at[: narrow[0]]) and sum(singles) <= classes:
            expected.add(k)
    assert left == expected
    # Four times as many as expected, at most: seed fixed.
    assert len(left) <= 4 * length * fast.LEFT


@pytest.mark.parametrize(("length", "count"), [(700, 20), (70, 40), (3, 30), (8200, 24)])
def test_positions_are_counted_in_blocks(length: int, count: int) -> None:
    rng = np.random.default_rng(length)
    shown = balanced_displays(count, np.tile(np.arange(3), (length, 1)), np.full(length, 3), rng)
    boards = Boards(np.ones((length, 3), dtype=np.bool_), np.zeros(length, int), 1e-8, 0.45, 16)
    boards.open(shown)
    board = boards.board
    for k in range(0, length, 3):
        blocks.clear_bit(board.is_open, k)
    room = graph.new_room(board)
    pairs = np.array([rng.choice(count, 2, replace=False) for _ in range(15)], dtype=np.int16)
    first, second = shown[pairs[:, 0]], shown[pairs[:, 1]]
    score = ((first == second) & (first >= 0)).sum(axis=0)
    for least in (1, 2, 5, 15):
        wanted = np.flatnonzero((score >= least) & (np.arange(length) % 3 != 0))
        found = []
        for b in range(len(board.displays)):
            blocks.count_alike(board.displays[b], board.is_open[b], pairs, 15, least, room.lanes)
            base = 64 * b * room.lanes.shape[1]
            here = [k for k in range(base, length) if k < base + 64 * room.lanes.shape[1]]
            at = [k for k in here if blocks.is_set(room.lanes[:1], k - base)]
            for k in at:
                word, place = divmod(k - base, 64)
                assert blocks.score_at(room.lanes, word, place) == score[k]
            found += at
        assert found == wanted.tolist()


@pytest.mark.parametrize(("length", "classes", "count", "seed"), CASES[:4])
def test_messages_are_the_plain_ones(probed, length, classes, count, seed) -> None:
    board = probed(length, classes, count, seed)
    rng = np.random.default_rng(seed)
    width = board.masses.shape[2]
    left_i, left_k = np.full((2, *board.residual[0].shape), np.nan)
    for _ in range(4):
        i, k = rng.choice(length, size=2, replace=False)
        table = rng.normal(size=(width, width))
        room = np.empty((width, width)), np.empty(width), np.empty(width)
        remove_message(board, i, k, table, 0, left_i, left_k, True, True, *room)
        for left, position, other, turned in ((left_i, i, k, table), (left_k, k, i, table.T)):
            is_read = board.shown[position] == READ
            expected = plain.leftover(board, position, other, turned)
            np.testing.assert_allclose(left[is_read], expected[is_read], atol=1e-10)


def test_scaling_leaves_absent_coordinates_out() -> None:
    psi = np.exp(np.random.default_rng(0).normal(size=(3, 3)))
    row, column = np.array([0.3, 0.0, 0.7]), np.array([0.0, 0.1, 0.9])
    alpha, beta = np.empty(3), np.empty(3)
    scale(psi, row, column, alpha, beta)
    joint = alpha[:, None] * psi * beta
    np.testing.assert_allclose(joint.sum(axis=1), row, atol=1e-13)
    np.testing.assert_allclose(joint.sum(axis=0), column, atol=1e-13)


@pytest.mark.parametrize("sizes", [[1, 1, 1], [3, 2, 1, 1], [4], [2, 2, 5]])
@pytest.mark.parametrize("num_choices", [2, 3])
@pytest.mark.parametrize("num_shown", [0, 2, 4])
def test_the_chance_of_a_candidate_is_that_of_enumeration(sizes, num_choices, num_shown) -> None:
    clusters = fast.new_clusters(len(sizes))
    clusters.size[:] = sizes
    room = np.empty((num_choices + 1, sum(sizes) + 1))
    chance = fast.chance_of_candidate(
        len(sizes), clusters, sum(sizes), num_choices, num_shown, 0.45, room
    )
    expected = plain.chance_of_candidate(np.array(sizes), num_choices, num_shown, 0.45)
    assert chance == pytest.approx(expected, rel=1e-12)


def test_the_chance_of_a_candidate_is_what_random_positions_show() -> None:
    # Deliberately statistical: 40,000 positions, seed fixed, five standard errors.
    rng = np.random.default_rng(5)
    label = np.repeat([0, 1, 2, 3], [3, 2, 1, 1])
    shown = np.where(rng.random((40_000, 7)) < 0.45, -1, rng.integers(0, 3, (40_000, 7)))
    hits = 0
    for at in shown:
        groups = [set(np.flatnonzero(at == c)) for c in range(3)]
        whole = [set(np.flatnonzero(label == c)) for c in range(4)]
        hits += all(not g or g in whole for g in groups)
    expected = plain.chance_of_candidate(np.array([3, 2, 1, 1]), 3, 0, 0.45)
    assert abs(hits / 40_000 - expected) < 5 * np.sqrt(expected / 40_000)


def test_bits() -> None:
    for value in (1, 2, 3, 2**63, 2**64 - 1, 0x8000_0000_0001_0000):
        assert blocks.ones(np.uint64(value)) == bin(value).count("1")
        assert blocks.lowest(np.uint64(value)) == (value & -value).bit_length() - 1


@pytest.mark.parametrize("long", [10**6, 100])
@pytest.mark.parametrize("family", ["path", "random-recursive-tree"])
def test_what_is_found_does_not_depend_on_threads_or_on_looking_ahead(
    monkeypatch: pytest.MonkeyPatch, family: str, long: int
) -> None:
    # Of long laws, seeds are planted until a crowd waits.
    monkeypatch.setattr(peeler, "LONG", long)
    monkeypatch.setattr(peeler, "CROWD", 24)
    monkeypatch.setattr(peeler, "REST", 8)

    def found(num_threads: int, enough: int, ahead: int) -> tuple[bytes, bytes, int]:
        monkeypatch.setattr(peeler, "num_threads", lambda: num_threads)
        monkeypatch.setattr(peeler, "ENOUGH", enough)
        monkeypatch.setattr(peeler, "AHEAD", ahead)
        monkeypatch.setattr(threads, "_limit", [num_threads])
        probing = Probing(random_law(edges, 400, 3, seed=5))
        probing.solve()
        decoder = probing.decoder
        assert pairs(decoder.edges) == pairs(probing.law.edges)
        wishes = decoder.graph.wishes[: decoder.graph.totals[1]]
        return decoder.edges.tobytes(), wishes.tobytes(), decoder.board.num_probes

    edges = cp.families.build(family, 400, 196).edges
    expected = found(1, 10**6, 64)
    assert found(1, 64, 64) == expected
    assert found(3, 64, 2048) == expected
    assert found(2, 64, 128) == expected


@pytest.mark.parametrize(("family", "first"), [("path", 20), ("matching", 16)])
def test_candidates_kept_between_decodings_are_those_found_anew(family: str, first: int) -> None:
    edges = cp.families.build(family, 400, 196).edges
    kept, anew = (Probing(random_law(edges, 400, 2, seed=5)) for _ in range(2))
    is_used, num_reopened = False, 0
    for count in (first, 2, 2, 2, 2, 2):
        for probing in (kept, anew):
            probing.probe(count)
            if probing is anew:
                probing.decoder.graph.listed[:] = graph.FORGOTTEN
            else:
                listed = probing.decoder.graph.listed
                is_used |= bool((listed[probing.decoder.is_open] >= 0).any())
            probing.decoder.decode()
        wishes = [one.graph.wishes[: one.graph.totals[1]] for one in (kept.decoder, anew.decoder)]
        np.testing.assert_array_equal(*wishes)
        np.testing.assert_array_equal(kept.decoder.edges, anew.decoder.edges)
        num_reopened = kept.decoder.num_reopened
    assert is_used and (num_reopened > 0) == (first == 16)


# ----- Design ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 7, 32])
def test_displays_are_balanced(count: int) -> None:
    num_choices = np.array([3, 2, 1, 0, 3])
    present = np.argsort(np.arange(3) >= num_choices[:, None], axis=1, kind="stable")
    shown = balanced_displays(count, present, num_choices, np.random.default_rng(1))
    masked = (shown < 0).sum(axis=0)
    assert (masked[3] == count) and (np.abs(masked[[0, 1, 2, 4]] - MASK_RATE * count) < 1).all()
    for i, choices in enumerate(num_choices):
        often = np.bincount(shown[shown[:, i] >= 0, i], minlength=3)
        assert (often[choices:] == 0).all()
        if choices:
            assert often[:choices].max() - often[:choices].min() <= 1


def test_wishes_are_granted_apart() -> None:
    shown = np.zeros((4, 6), dtype=np.int8)
    wishes = np.array([[0, 1, 2], [0, 1, 1], [2, 0, 1], [0, 3, 1], [0, 4, 1]], dtype=np.int32)
    readouts = grant_wishes(shown, wishes, np.random.default_rng(0))
    assert readouts.tolist() == [0, 0, 2, 0]  # four probes have room for four of them
    for i, k, b in wishes[:4]:
        assert ((shown[:, i] == -1) & (shown[:, k] == b)).any()


# ----- Whole laws ------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kind", ["path", "star", "tree", "pairs", "nothing"])
def test_forests_are_decoded_with_their_tables(kind: str, classes: int) -> None:
    length = 60
    edges = {
        "path": forests.path(length),
        "star": np.array([[0, k] for k in range(1, length)]),
        "tree": np.array([[(k - 1) // 2, k] for k in range(1, length)]),
        "pairs": np.arange(length).reshape(-1, 2),
        "nothing": np.empty((0, 2), dtype=np.int64),
    }[kind]
    edges = np.random.default_rng(3).permutation(length)[edges]
    # A hub of sixty strong neighbours would saturate.
    law = random_law(edges, length, classes, strength=0.2 if kind == "star" else 0.8, seed=classes)
    probing = Probing(law)
    probing.solve()
    decoder = probing.decoder
    assert decoder.num_open == 0
    assert pairs(decoder.edges) == pairs(law.edges)
    assert np.nanmax(decoder.misfit(), initial=0.0) < 1e-9
    terms = decoder.terms(1e-9)
    truth = {tuple(e): np.log(law.pair[k]) for k, e in enumerate(law.edges.tolist())}
    for edge, table in zip(terms.edges.tolist(), terms.tables, strict=True):
        i, k = edge
        real = truth[i, k] if (i, k) in truth else truth[k, i].T
        a, b = probing.all_mask[[i, k]].argmax(axis=1)
        np.testing.assert_allclose(table, real - real[a] - real[:, [b]] + real[a, b], atol=1e-8)


def test_a_position_lacks_tokens_that_it_cannot_have() -> None:
    rng = np.random.default_rng(0)
    joint = np.ones((3,) * 6)
    for i in range(5):  # a path on which the first position has two tokens, the last one
        joint = joint * np.exp(rng.normal(size=(3, 3))).reshape(
            [3 if k in (i, i + 1) else 1 for k in range(6)]
        )
    joint[2] = 0.0
    joint[..., 1:] = 0.0
    probing = Probing(cp.TableLaw(joint))
    probing.solve()
    assert probing.decoder.board.num_choices.tolist() == [2, 3, 3, 3, 3, 1]
    # A position of one token shows it whatever happens, and moves nothing.
    assert pairs(probing.decoder.edges) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert probing.decoder.num_open == 0
    assert np.isneginf(probing.decoder.terms(1e-9).unary[0, 2])


def test_saturated_rows_are_not_read() -> None:
    law = cp.ForestLaw(np.ones((2, 2)), [[0, 1]], np.exp(10.0 * np.eye(2)))
    probing = Probing(law)
    probing.probe(20)
    board = probing.decoder.board
    alone = (board.shown[0, :20] < 0) & (board.shown[1, :20] >= 0)
    assert (board.shown[0, :20][alone] == UNREAD).all()
    assert (board.residual[0, :20][alone] == 0).all()


def test_new_probes_contradict_what_was_found_too_early() -> None:
    # Found from eight probes, half of the edges are accidents; later probes drop them all.
    law = cp.families.build("path", 200, 196)
    everywhere = np.arange(200)
    tokens = np.array([np.flatnonzero(law.classes.token_class[0] == c)[0] for c in range(3)])
    rng = np.random.default_rng(1)
    decoder = None
    for count in (14, 8, 8, 8, 8, 8, 8, 8):
        if decoder is None:
            nothing = np.full((1, 200), cp.MASK, dtype=np.int32)
            masses = law.oracle().rows(nothing, Readouts.same(1, everywhere)).masses
            decoder = Decoder(masses > 0, masses.argmax(axis=1), 2e-8, MASK_RATE, 16)
        shown = balanced_displays(count, decoder.board.present, decoder.board.num_choices, rng)
        wished = grant_wishes(shown, decoder.wishes, rng)
        first = decoder.open(shown, wished)
        states = np.where(shown < 0, cp.MASK, tokens[shown]).astype(np.int32)
        readouts = Readouts.every_masked(states)
        masses = law.oracle().rows(states, readouts).masses
        decoder.take(first + readouts.state_index, readouts.position, masses)
        decoder.decode()
    assert decoder.num_open == 0
    assert pairs(decoder.edges) == pairs(law.edges)


def test_a_decoder_that_is_told_to_stop_looks_at_nothing_more() -> None:
    law = cp.families.build("binary-tree", 100, 196)
    probing = Probing(random_law(law.edges, 100, 3))
    probing.probe(40)
    probing.decoder.stop()
    probing.decoder.decode()
    assert (len(probing.decoder.edges), probing.decoder.num_open) == (0, 100)


def test_evidence_is_counted_without_what_tables_took() -> None:
    law = random_law(np.array([[0, 1]]), 3, 3)
    probing = Probing(law)
    probing.solve()
    decoder = probing.decoder
    reads = (decoder.board.shown[:, : decoder.board.num_probes] == READ).sum(axis=1)
    reader = int(decoder.edges[0, 0])
    expected = reads - 1
    expected[reader] -= 2
    spare = decoder.spare_reads()
    assert (spare <= expected).all() and spare[2] == expected[2]
    q = blind_chance(3, MASK_RATE, generic=False)
    assert decoder.failure_bound(q) == pytest.approx((q**spare).sum() * (q ** spare.min()))


@pytest.mark.parametrize("generic", [True, False])
@pytest.mark.parametrize("num_choices", [2, 3, 6])
def test_needed_reads_keep_the_bound(num_choices: int, generic: bool) -> None:
    blind = blind_chance(num_choices, MASK_RATE, generic=generic)
    reads = needed_reads(5000, blind, 0.01)
    assert 5000 * blind ** (2 * reads) <= 0.01 < 5000 * blind ** (2 * reads - 2)
    assert blind >= blind_chance(num_choices, MASK_RATE, generic=True)
