"""Separation and exact rows: the paper's example, brute force, and what one says of the other."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.banks import read_banks
from counterprobe.discovery.packed.screen import (
    ScreenRows,
    ScreenSettings,
    draw_colorings,
    packed_screen,
)
from counterprobe.discovery.packed.selectors import empty_on_overflow, top_votes
from separated_screens import (
    is_separating,
    residual_edges,
    rows_exact,
    screen_separated,
)

# The paper's 15 vertices, from zero: a hub with eight leaves and two paths of three.
EXAMPLE_EDGES = np.array(
    [[0, i] for i in range(1, 9)] + [[0, 9], [9, 10], [10, 11], [0, 12], [12, 13], [13, 14]]
)


def example_colors() -> np.ndarray:
    colors = np.full(15, 3)
    colors[[0, 3]], colors[[9, 12]] = 1, 2
    return colors


def neighbours(edges, residual, position: int) -> list[int]:
    alive = set(np.asarray(residual).tolist())
    around = [
        b if a == position else a for a, b in np.asarray(edges).tolist() if position in (a, b)
    ]
    return sorted(v for v in around if v in alive)


def random_tree(rng: np.random.Generator, length: int) -> np.ndarray:
    """Draw a labelled tree, between a path and a star, with some edges gone."""
    lean = rng.choice([0.3, 1.0, 4.0])
    parent = [int(i * rng.random() ** lean) for i in range(1, length)]
    edges = np.stack([np.array(parent, dtype=np.int64), np.arange(1, length)], axis=1)
    kept = rng.random(len(edges)) < rng.choice([0.7, 1.0])
    return rng.permutation(length)[edges[kept]].reshape(-1, 2)


def law_on(edges, length: int, rng: np.random.Generator) -> cp.ForestLaw:
    if rng.integers(2):
        return cp.families.two_type_forest(length, edges, vocab_size=64)
    seed = int(rng.integers(1000))
    return cp.families.from_edges(length, edges, np.full(len(edges), 0.4), seed, relabel=False)


def screen_law(
    law: cp.ForestLaw,
    screen: ScreenSettings,
    rng: np.random.Generator,
    given=None,
    selector=top_votes,
) -> tuple[ScreenRows, np.ndarray]:
    """Run one screen with the exact oracle; return its rows and its colors."""
    run = cp.run.Run(law.oracle(), given=given)
    banks = run.call(read_banks, 0.05, 0.0)
    colors = draw_colorings(screen.num_colorings, screen.num_colors, law.length, rng)
    draft = banks.most_likely
    return run.call(packed_screen, screen, banks.columns(draft), draft, colors, selector), colors


def exact_settings(
    num_colors: int, num_colorings: int, cutoff: int, length: int
) -> ScreenSettings:
    return ScreenSettings(
        num_colors=num_colors,
        num_colorings=num_colorings,
        degree_cutoff=cutoff,
        chunk_size=length,
        tv_cut=2e-12,
        skip_empty_colors=True,
    )


# ----- The definition -------------------------------------------------------------------------


def test_the_example_coloring_separates_its_pair_and_two_others_do_not():
    around = neighbours(EXAMPLE_EDGES, np.arange(15), 9)
    assert around == [0, 10]
    colors = example_colors()
    assert is_separating(colors, 0, 9, around)
    for shared in (2, 1):  # the readout's color, then the source's
        broken = colors.copy()
        broken[10] = shared
        assert not is_separating(broken, 0, 9, around)


def brute_force(edges, residual, colors, cutoff: int, fraction: float) -> bool:
    for j in residual:
        around = neighbours(edges, residual, int(j))
        if len(around) > cutoff:
            continue
        for i in residual:
            count = sum(is_separating(hue, int(i), int(j), around) for hue in colors)
            if i != j and count <= fraction * len(colors):
                return False
    return True


def test_separation_of_a_screen_is_a_majority_for_every_pair():
    rng = np.random.default_rng(1)
    outcomes = []
    for _ in range(400):
        length = int(rng.integers(1, 9))
        edges = random_tree(rng, length)
        residual = np.flatnonzero(rng.random(length) < 0.8)
        num_colors, num_colorings = int(rng.integers(2, 40)), int(rng.integers(1, 6))
        colors = rng.integers(num_colors, size=(num_colorings, length))
        cutoff, fraction = int(rng.integers(0, 4)), float(rng.choice([0.0, 0.5, 0.8]))
        outcome = screen_separated(edges, residual, colors, cutoff, majority_fraction=fraction)
        assert outcome == brute_force(edges, residual, colors, cutoff, fraction)
        outcomes.append(outcome)
    assert 50 < sum(outcomes) < 350


# ----- Separated screens are exact ------------------------------------------------------------


def fewest_votes(readout, candidates, votes, cutoff):
    """Keep the worst of an overflowing row: allowed, for no guarantee looks at it."""
    return candidates[np.argsort(votes, kind="stable")[:cutoff]]


@pytest.mark.parametrize("selector", [top_votes, empty_on_overflow, fewest_votes])
def test_rows_are_exact_whenever_the_colorings_separate(selector):
    rng = np.random.default_rng(2)
    separated = 0
    for _ in range(60):
        length = int(rng.integers(4, 16))
        edges = random_tree(rng, length)
        law = law_on(edges, length, rng)
        given = np.where(rng.random(length) < 0.15, 1, cp.MASK)
        cutoff = int(rng.integers(2, 10))
        screen = exact_settings(int(rng.choice([20, 80])), int(rng.choice([3, 7])), cutoff, length)
        rows, colors = screen_law(law, screen, rng, given, selector)
        if screen_separated(edges, rows.residual, colors, cutoff):
            separated += 1
            assert rows_exact(edges, rows, length, cutoff)
        assert (np.diff(rows.start) <= cutoff).all()
    assert 20 <= separated < 60


@pytest.mark.parametrize("family", ["path", "two-type-path", "matching", "binary-tree"])
def test_paper_families_with_the_colors_of_the_theory(family):
    # p = 8 (d + 1) = 80: a screen of 25 colorings separates a forest of low degree.
    law = cp.families.build(family, 40, 7)
    screen = exact_settings(80, 25, 9, 40)
    rows, colors = screen_law(law, screen, np.random.default_rng(4))
    assert screen_separated(law.edges, rows.residual, colors, 9)
    assert rows_exact(law.edges, rows, 40, 9)
    assert {tuple(e) for e in rows.edges().tolist()} == {
        tuple(sorted(e)) for e in law.edges.tolist()
    }


def test_rows_can_be_exact_without_separation():
    # Positions 0 - 1 and a lone 2. For the pair (2, 1): the first coloring separates; under the
    # second 2 shares the color of 0 and gets a vote; under the third 0 is masked together with 1,
    # which separates nothing but gives 2 no vote either.
    colors = np.array([[0, 1, 2], [0, 1, 0], [1, 1, 0]], dtype=np.int32)
    assert [is_separating(hue, 2, 1, [0]) for hue in colors] == [True, False, False]
    assert not screen_separated([[0, 1]], np.arange(3), colors, 9)
    law = cp.families.two_type_forest(3, [[0, 1]], vocab_size=64)
    run = cp.run.Run(law.oracle())
    banks = run.call(read_banks, 0.05, 0.0)
    draft = banks.most_likely
    rows = run.call(packed_screen, exact_settings(3, 3, 9, 3), banks.columns(draft), draft, colors)
    assert rows_exact([[0, 1]], rows, 3, 9)


def test_rows_are_wrong_without_colors_enough():
    # The converse check can fail: two colors cannot tell the ends of a path apart.
    law = cp.families.path(12, 1)
    rows, colors = screen_law(law, exact_settings(2, 9, 9, 12), np.random.default_rng(5))
    assert not screen_separated(law.edges, rows.residual, colors, 9)
    assert not rows_exact(law.edges, rows, 12, 9)


# ----- Peel sets and the high-degree core -----------------------------------------------------


def hub_tree(rng: np.random.Generator, cutoff: int, num_hubs: int) -> tuple[np.ndarray, int]:
    """Draw hubs joined in a random tree, leaves around each; some hubs need other hubs to pass."""
    edges = [(int(rng.integers(h)), h) for h in range(1, num_hubs)]
    length = num_hubs
    for hub in range(num_hubs):
        for _ in range(int(rng.integers(cutoff // 2, cutoff + 4))):
            edges.append((hub, length))
            length += 1
    return rng.permutation(length)[np.array(edges)], length


def high_degree(edges, residual, length: int, cutoff: int) -> int:
    left = residual_edges(edges, residual, length)
    return int((np.bincount(left.ravel(), minlength=length) > cutoff).sum())


def check_peel_bounds(
    seed: int, cutoff: int, num_hubs: int, num_colorings: int
) -> tuple[bool, int]:
    """Screen and peel once; return whether the screen succeeded and how many hubs there were."""
    rng = np.random.default_rng([seed, cutoff])
    edges, length = hub_tree(rng, cutoff, num_hubs)
    law = cp.families.two_type_forest(length, edges, vocab_size=64)
    residual = np.arange(length)
    screen = exact_settings(8 * (cutoff + 1), num_colorings, cutoff, length)
    selector = (top_votes, empty_on_overflow, fewest_votes)[seed % 3]
    rows, colors = screen_law(law, screen, rng, selector=selector)
    if not screen_separated(edges, residual, colors, cutoff):
        return False, 0
    assert rows_exact(edges, rows, length, cutoff)
    peel = np.flatnonzero(2 * rows.claims(length) > cutoff)
    assert len(peel) < 4 * length / cutoff
    before = high_degree(edges, residual, length, cutoff)
    after = high_degree(edges, np.setdiff1d(residual, peel), length, cutoff)
    assert after < 4 / cutoff * before or after == before == 0
    return True, before


def test_peel_set_is_small_and_the_core_contracts():
    outcomes = [check_peel_bounds(seed, 5, 5, 9) for seed in range(8)]
    assert sum(success for success, _ in outcomes) >= 4
    assert max(before for _, before in outcomes) >= 3


def test_a_hub_among_hubs_survives_with_what_the_lemma_allows():
    # The 65-vertex tree: six hubs of nine leaves around z, which has four leaves of its own. All
    # seven rows overflow and come back empty; only the hubs have enough claims.
    edges = np.array(
        [(0, h) for h in range(1, 7)]
        + [(1 + i, 7 + 9 * i + j) for i in range(6) for j in range(9)]
        + [(0, s) for s in range(61, 65)]
    )
    law = cp.families.two_type_forest(65, edges, vocab_size=64)
    screen = exact_settings(80, 9, 9, 65)
    rows, colors = screen_law(law, screen, np.random.default_rng(6), selector=empty_on_overflow)
    assert screen_separated(edges, np.arange(65), colors, 9)
    claims = rows.claims(65)
    assert claims[0] == 4
    assert claims[1:7].tolist() == [9] * 6
    peel = np.flatnonzero(2 * claims > 9)
    assert peel.tolist() == [1, 2, 3, 4, 5, 6]
    assert high_degree(edges, np.arange(65), 65, 9) == 7
    left = np.setdiff1d(np.arange(65), peel)
    assert high_degree(edges, left, 65, 9) == 0
    assert neighbours(edges, left, 0) == [61, 62, 63, 64]


@pytest.mark.parametrize("seed", range(3))
def test_successful_screens_end_in_the_true_forest(seed):
    # d = 9 and p = 80 as in the theory, fewer colorings: whenever every reached screen separates,
    # nothing is repaired, no guard acts and the terminal graph is the residual forest.
    rng = np.random.default_rng(seed)
    edges, length = hub_tree(rng, 9, 3)
    law = cp.families.two_type_forest(length, edges, vocab_size=64)
    sampler = cp.samplers.Packed(
        num_colors=80, num_colorings=9, degree_cutoff=9, majority_fraction=0.5
    )
    run = cp.run.Run(law.oracle(), keep_notes=True)
    result = sampler(run, cp.Streams(seed, 1))
    report = result.diagnostics
    screens = [note.content for note in result.transcript.notes if note.name == "screen"]
    assert len(screens) >= 2
    for content in screens:
        assert screen_separated(edges, content["rows"].residual, content["colors"], 9)
    expected = residual_edges(edges, report.terminal_positions, length)
    assert {tuple(e) for e in report.terminal_edges.tolist()} == {
        tuple(sorted(e)) for e in expected.tolist()
    }
    assert report.num_repaired == 0
    assert report.guard == "none"
    assert cp.evaluation.batch_kl(law, result).value == 0.0
