"""The compressed screen as a whole: laws that break a careless version of it."""

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.discovery.compressed import CompressedSettings, compressed_screen
from counterprobe.discovery.compressed.design import sides
from counterprobe.discovery.compressed.findings import Findings, needed_evidence
from counterprobe.targets import forests
from counterprobe.targets.hard_matching import HardMatchingOracle
from screens import Screen


def screen(oracle: cp.Oracle, seed: int = 1, **settings: object) -> tuple[Findings, cp.Ledger]:
    """Run a screen with settings of its own."""
    run = cp.run.Run(oracle)
    decisions = cp.Streams.from_seed(seed).decisions
    findings = run.call(compressed_screen, decisions, CompressedSettings(**settings))
    return findings, run.ledger


def pairs(edges: np.ndarray) -> set[tuple[int, int]]:
    """Edges as a set, smaller end first."""
    return {(int(min(e)), int(max(e))) for e in edges}


def missed(law: cp.ForestLaw, findings: Findings) -> set[tuple[int, int]]:
    """Edges of the law between resolved positions that were not found."""
    inside = {e for e in pairs(law.edges) if findings.is_resolved[list(e)].all()}
    return inside - pairs(findings.edges)


def shuffled(edges: np.ndarray, length: int, seed: int = 0) -> np.ndarray:
    """Relabel at random."""
    return np.random.default_rng(seed).permutation(length)[edges]


# ----- Families -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("matching", {}),
        ("path", {}),
        ("binary-tree", {"signs": "mixed"}),
        ("growing-stars", {}),
        ("random-recursive-tree", {}),
        ("preferential-attachment", {}),
        ("caterpillar", {"signs": "mixed"}),
        ("random-forest", {}),
        ("path", {"classes": 4, "tables": "random", "weight": 0.5}),
        ("random-recursive-tree", {"classes": 5, "tables": "random", "weight": 0.5}),
        ("path", {"classes": 2, "tables": "random", "weight": 0.5}),
    ],
)
def test_families_are_recovered_whole(family: str, options: dict[str, object]) -> None:
    law = cp.families.build(family, 300, 196, **options)
    findings, ledger = screen(law.oracle())
    assert pairs(findings.edges) == pairs(law.edges)
    assert findings.is_resolved.all()
    assert findings.reason == ""
    assert findings.evidence.min() >= findings.needed > 0
    assert ledger.commits == 0
    assert ledger.preprocessing == 1
    assert ledger.probes == sum(batch.probes for batch in findings.batches)


def test_isolated_positions_need_no_edge() -> None:
    law = cp.ForestLaw(np.tile([0.5, 0.3, 0.2], (60, 1)), [[3, 7]], np.eye(3) + 0.5)
    findings, _ = screen(law.oracle())
    assert pairs(findings.edges) == {(3, 7)}
    assert findings.is_resolved.all()


@pytest.mark.parametrize("leaves", [90, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("signs", ["same", "mixed"])
def test_strong_hubs_saturate_and_are_resolved_all_the_same(leaves: int, signs: str) -> None:
    law = cp.families.build("double-star", 2 * leaves + 2, 196, weight=0.5, signs=signs)
    for seed in (1, 2):
        findings, _ = screen(law.oracle(), seed)
        assert pairs(findings.edges) == pairs(law.edges)
        assert findings.is_resolved.all()


@pytest.mark.parametrize("log_coupling", [4.0, 8.0, 12.0])
def test_strong_couplings_of_two_classes_are_told_apart(log_coupling: float) -> None:
    # Where both neighbours agree the row is saturated; only such rows tell them from the constant.
    length = 256
    law = cp.ForestLaw(
        np.ones((length, 2)),
        shuffled(forests.path(length), length),
        np.exp(log_coupling * np.eye(2)),
    )
    findings, _ = screen(law.oracle())
    assert pairs(findings.edges) == pairs(law.edges)
    assert findings.is_resolved.all()
    if log_coupling > 8:
        # Validation may have met a saturated row; only half of the other probes reveal a given
        # neighbour, and more of them are needed.
        inside = np.bincount(law.edges.ravel()) == 2
        needed = needed_evidence(length, 2, 0.01, reveal_rate=0.5)
        assert findings.evidence[inside].min() >= needed > 2 * findings.needed


def skewed_tree(
    kind: str, length: int, classes: int, unary: float, pair: float, seed: int = 0
) -> cp.ForestLaw:
    """Return a tree with normal log-weights of given strengths."""
    draw = np.random.default_rng(seed)
    edges = (
        forests.binary_tree(length)
        if kind == "binary"
        else forests.random_recursive_tree(length, draw)
    )
    return cp.ForestLaw(
        np.exp(unary * draw.normal(size=(length, classes))),
        draw.permutation(length)[edges],
        np.exp(pair * draw.normal(size=(len(edges), classes, classes))),
    )


@pytest.mark.parametrize(
    ("kind", "classes", "unary", "pair"),
    [
        ("binary", 3, 3.0, 0.5), ("recursive", 4, 2.0, 0.5), ("recursive", 3, 2.0, 2.0),
        ("binary", 3, 0.0, 5.0),
    ],
)  # fmt: skip
def test_skewed_trees_are_resolved(kind: str, classes: int, unary: float, pair: float) -> None:
    law = skewed_tree(kind, 300, classes, unary, pair)
    findings, _ = screen(law.oracle())
    assert findings.is_resolved.all()
    assert pairs(law.edges) <= pairs(findings.edges)


# Not among them: recursive trees of three classes with tables of strength five, whose hubs are
# fitted too roughly for their certificate; everything is then committed singly.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "unary", "pair", "kind"),
    [
        (classes, unary, pair, kind)
        for classes, unary, pair in [
            (3, 3.0, 0.5),
            (4, 3.0, 0.5),
            (3, 2.0, 2.0),
            (3, 0.0, 5.0),
            (4, 0.0, 5.0),
        ]
        for kind in ("binary", "recursive")
        if (classes, pair, kind) != (3, 5.0, "recursive")
    ],
)
def test_what_skewed_trees_leave_unresolved_does_not_grow_with_their_size(
    kind: str, classes: int, unary: float, pair: float
) -> None:
    for seed in (0, 1):
        law = skewed_tree(kind, 2000, classes, unary, pair, seed)
        findings, _ = screen(law.oracle())
        assert missed(law, findings) == set()
        assert (~findings.is_resolved).sum() <= 4


def test_an_edge_between_two_classes_of_rare_tokens_is_seen() -> None:
    # Classes 2 and 3 have 500 tokens of mass 2e-4 each; only this pair of classes interacts.
    length, draw = 120, np.random.default_rng(3)
    token_class = np.concatenate([[0, 1], draw.permutation(np.repeat([2, 3], 500))])
    pair = np.ones((4, 4))
    pair[2, 3] = pair[3, 2] = 3.0
    law = cp.ForestLaw(
        np.tile([0.4, 0.4, 0.1, 0.1], (length, 1)),
        shuffled(forests.path(length), length),
        pair,
        classes=cp.classes.TokenClasses.build(length, token_class),
    )
    findings, _ = screen(law.oracle())
    assert pairs(findings.edges) == pairs(law.edges)
    assert findings.is_resolved.all()


def test_an_edge_that_moves_one_contrast_only_is_seen() -> None:
    # Classes 0 and 1 stay in proportion whatever the neighbour shows.
    length = 200
    pair = np.array([[1.0, 1.0, 0.7], [1.0, 1.0, 0.7], [0.7, 0.7, 2.0]])
    law = cp.ForestLaw(
        np.tile([0.4, 0.4, 0.2], (length, 1)),
        shuffled(forests.path(length), length),
        pair,
        classes=cp.classes.TokenClasses.build(length, np.minimum(np.arange(64), 2)),
    )
    findings, _ = screen(law.oracle())
    assert pairs(findings.edges) == pairs(law.edges)


def test_dense_rows_of_many_tokens_are_sketched() -> None:
    # 48 tokens in three classes, but the rows do not say so; the tail is one column.
    length, vocab_size = 60, 48
    law = cp.ForestLaw(
        np.tile([0.4, 0.3, 0.3], (length, 1)),
        shuffled(forests.path(length), length),
        np.array([[2.0, 0.5, 1.0], [0.5, 2.0, 1.0], [1.0, 1.0, 1.5]]),
        classes=cp.classes.TokenClasses.build(length, np.minimum(np.arange(vocab_size), 2)),
    )
    exact = law.oracle()

    def dense(states: np.ndarray) -> np.ndarray:
        table = np.full((*states.shape, vocab_size), 1 / vocab_size)
        readouts = cp.Readouts.every_masked(states)
        rows = exact.rows(states, readouts).dense()
        table[readouts.state_index, readouts.position] = rows
        return table

    oracle = cp.CallableOracle(dense, length, vocab_size)
    findings, _ = screen(oracle, bank_threshold=0.1)
    assert findings.num_choices == 3
    assert pairs(findings.edges) == pairs(law.edges)
    assert findings.is_resolved.all()


# ----- What cannot be certified ---------------------------------------------------------------


def test_the_hard_family_is_never_certified_after_80_probes() -> None:
    law = cp.families.hard_matching(128, target_seed=3)
    findings, ledger = screen(HardMatchingOracle(law), max_probes=80)
    assert ledger.probes <= 80
    assert not findings.is_resolved.any()
    assert "80 probes" in findings.reason


@pytest.mark.slow
def test_the_hard_family_costs_as_many_probes_as_there_are_triggers() -> None:
    law = cp.families.hard_matching(128, target_seed=3)
    findings, ledger = screen(HardMatchingOracle(law))
    assert missed(law, findings) == set()
    if findings.is_resolved.any():
        assert ledger.probes >= 64 * np.log(128)
        assert findings.evidence[findings.is_resolved].min() >= needed_evidence(128, 65, 0.01)


def test_three_way_parity_ends_unresolved_not_wrong() -> None:
    bits = np.indices((2,) * 8)
    odd = (bits[0] + bits[1] + bits[2]) % 2
    table = np.where(odd == 1, 0.1, 0.9) * np.where(bits[3] == bits[4], 0.8, 0.2)
    law = cp.TableLaw(table / table.sum())
    findings, _ = screen(law.oracle())
    assert not findings.is_resolved[:3].any()
    assert findings.is_resolved[3:].all()
    assert pairs(findings.edges) == {(3, 4)}
    assert "pairwise" in findings.reason


def test_a_loop_is_recovered_as_a_loop() -> None:
    bits = np.indices((2,) * 6)
    loop = [(0, 1), (1, 2), (2, 3), (0, 3)]
    table = np.ones((2,) * 6)
    for a, b in loop:
        table = table * np.where(bits[a] == bits[b], 0.8, 0.2)
    findings, _ = screen(cp.TableLaw(table / table.sum()).oracle())
    assert pairs(findings.edges) == set(loop)
    assert findings.is_resolved.all()


# ----- Noise ----------------------------------------------------------------------------------


def smallest_response(law: cp.ForestLaw, draws: int = 4) -> float:
    """Smallest total variation that an edge makes at random boundaries, three columns."""
    oracle, draw = law.oracle(), np.random.default_rng(0)
    responses = []
    for j, i in np.concatenate([law.edges, law.edges[:, ::-1]]):
        for _ in range(draws):
            states = np.tile(draw.integers(3, size=law.length), (3, 1)).astype(np.int32)
            states[:, i], states[:, j] = [0, 1, 2], cp.MASK
            masses = oracle.rows(states, cp.Readouts.same(3, [j])).masses
            moves = np.abs(masses[:, None] - masses[None]).sum(axis=2) / 2
            responses.append(moves.max())
    return min(responses)


@pytest.mark.parametrize(
    ("direction", "family"),
    [
        ("random", "matching"), ("random", "binary-tree"), ("random", "growing-stars"),
        ("hide", "matching"), ("hide", "path"),
        pytest.param("hide", "growing-stars", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_noise_of_a_tenth_of_the_response_changes_nothing(family: str, direction: str) -> None:
    law = cp.families.build(family, 256, 196)
    error = smallest_response(law) / 10
    noisy = cp.FrozenNoise(law.oracle(), radius=error**2 / 2, direction=direction, seed=3)
    assert noisy.row_error == pytest.approx(error, rel=1e-3)
    findings, _ = screen(noisy)
    assert missed(law, findings) == set()
    # Noise that hides moves all leaves of a hub alike: the hub may then stay unresolved.
    if (family, direction) == ("growing-stars", "hide"):
        degree = np.bincount(law.edges.ravel(), minlength=256)
        assert degree[~findings.is_resolved].min(initial=256) > 1
    else:
        assert pairs(findings.edges) == pairs(law.edges)
        assert findings.is_resolved.all()


@pytest.mark.parametrize("direction", ["random", "hide"])
def test_noise_does_not_certify_that_two_hubs_are_apart(direction: str) -> None:
    # Errors of a hundred and fifty leaves add up at each hub to more than the edge between them.
    law = cp.families.build("double-star", 300, 190, signs="mixed")
    error = smallest_response(law, draws=1) / 10
    noisy = cp.FrozenNoise(law.oracle(), radius=error**2 / 2, direction=direction, seed=0)
    findings, _ = screen(noisy, 0)
    assert missed(law, findings) == set()


@pytest.mark.parametrize("given", [[], [0, 1, 2]])
def test_two_positions_that_are_left_are_enough_to_find_their_edge(given: list[int]) -> None:
    length = 2 + len(given)
    law = cp.ForestLaw(np.ones((length, 3)), [[0, 1]], 1 + 2 * np.eye(3))
    context = np.array([cp.MASK, cp.MASK, *given])
    run = cp.run.Run(law.oracle(), given=context)
    findings = run.call(compressed_screen, cp.Streams.from_seed(1).decisions, CompressedSettings())
    assert pairs(findings.edges) == {(0, 1)}
    assert findings.is_resolved[:2].all()


def gated_law() -> cp.ForestLaw:
    """Two positions that interact through one token, which closed gates suppress at each end.

    The gates are nearly always open under the law, and nearly always closed in a probe.
    """
    length, vocab_size = 60, 10
    draw = np.random.default_rng(2)
    edges = [[0, 1], [0, 2], [0, 3], [1, 4], [1, 5]]
    acts = np.ones((vocab_size, vocab_size))
    acts[2, 2] = 4.0
    gate = np.ones((vocab_size, vocab_size))
    gate[2, 1:] = 1e-12
    unary = draw.uniform(0.5, 1.5, size=(length, vocab_size))
    unary[2:6, 0] = 90.0
    return cp.ForestLaw(unary, edges, np.stack([acts, gate, gate, gate, gate]))


def test_a_row_is_no_evidence_about_a_token_that_it_rules_out() -> None:
    law = gated_law()
    for seed in range(3):
        findings, _ = screen(law.oracle(), seed)
        assert missed(law, findings) == set()


RARE_TOKENS = [
    (1e-5, 25.0, 4, True),
    (1e-4, 12.0, 3, False),
    (5e-4, 30.0, 6, True),
    (1.5e-3, 15.0, 4, False),
    (1.9e-3, 15.0, 4, True),
    (1.9e-3, 25.0, 4, True),
    (1.9e-3, 25.0, 4, False),
    (5e-3, 8.0, 5, True),
    (2e-2, 8.0, 3, True),
    (2e-2, 10.0, 3, False),
    (2e-2, 20.0, 5, False),
    (2e-2, 30.0, 6, True),
]


def assert_centres_are_safe(law: cp.ForestLaw, seed: int) -> None:
    """Whatever is committed together is independent."""
    run = cp.run.Run(law.oracle())
    result = cp.samplers.Compressed(fallback=True)(run, cp.Streams.from_seed(seed))
    assert cp.evaluation.batch_kl(law, result).value == 0.0
    assert missed(law, result.diagnostics.findings) == set()


@pytest.mark.parametrize(("mass", "strength", "leaves", "keeps_marginals"), RARE_TOKENS)
def test_a_rare_token_behind_gates_certifies_nothing(
    rare_token, mass: float, strength: float, leaves: int, keeps_marginals: bool
) -> None:
    law = rare_token(mass, strength, leaves, keeps_marginals=keeps_marginals)
    if keeps_marginals:
        np.testing.assert_allclose(law.class_marginals[:2, -1], mass, rtol=1e-6)
    assert_centres_are_safe(law, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("mass", "strength", "leaves", "keeps_marginals"), RARE_TOKENS)
def test_a_rare_token_behind_gates_certifies_nothing_at_other_seeds(
    rare_token, mass: float, strength: float, leaves: int, keeps_marginals: bool
) -> None:
    for vocab_size in (3, 5, 8):
        law = rare_token(
            mass, strength, leaves, keeps_marginals=keeps_marginals, vocab_size=vocab_size
        )
        for seed in (1, 2):
            assert_centres_are_safe(law, seed)


def test_gates_that_are_nearly_always_closed_leave_their_centres_unresolved(rare_token) -> None:
    law = rare_token(1.9e-3, 15.0, 4, keeps_marginals=True)
    for seed in range(3):
        findings, _ = screen(law.oracle(), seed)
        assert missed(law, findings) == set()
        # Nothing but the centres and their leaves is held up.
        assert not findings.is_resolved[:2].all()
        assert findings.is_resolved[10:].all()


def test_two_groups_of_tokens_that_are_never_seen_together_are_no_evidence() -> None:
    # Positions 0 and 1 each copy the half of the vocabulary that their gate shows; the edge
    # between them favours equal halves. Within a half all tokens are always seen.
    length, vocab_size = 40, 4
    half = np.arange(vocab_size) // 2
    same = half[:, None] == half
    draw = np.random.default_rng(5)
    law = cp.ForestLaw(
        draw.uniform(0.5, 1.5, size=(length, vocab_size)),
        [[0, 1], [0, 2], [1, 3]],
        np.stack([np.where(same, 3.0, 1.0)] + [np.where(same, 1.0, np.exp(-40.0))] * 2),
    )
    for seed in range(3):
        result = cp.samplers.Compressed()(cp.run.Run(law.oracle()), cp.Streams.from_seed(seed))
        assert cp.evaluation.batch_kl(law, result).value == 0.0
        assert missed(law, result.diagnostics.findings) == set()
        assert result.diagnostics.findings.is_resolved[4:].all()


@pytest.mark.parametrize("given_as", [np.float32, np.float64], ids=["single", "widened"])
def test_rows_in_single_precision_are_resolved(given_as: type) -> None:
    length, vocab_size, draw = 60, 6, np.random.default_rng(6)
    law = cp.ForestLaw(
        draw.uniform(0.5, 1.5, size=(length, vocab_size)),
        shuffled(forests.path(length), length),
        np.exp(draw.normal(0, 0.7, size=(length - 1, vocab_size, vocab_size))),
    )
    exact = law.oracle()

    def single(states: np.ndarray) -> np.ndarray:
        table = np.full((*states.shape, vocab_size), 1 / vocab_size, dtype=np.float32)
        readouts = cp.Readouts.every_masked(states)
        rows = exact.rows(states, readouts).dense()
        table[readouts.state_index, readouts.position] = rows
        return table.astype(given_as)

    findings, _ = screen(cp.CallableOracle(single, length, vocab_size))
    assert pairs(findings.edges) == pairs(law.edges)
    assert findings.is_resolved.all()


def test_noise_above_the_mass_of_rare_tokens_misleads_nobody() -> None:
    # Row noise of 1e-3; two classes hold single tokens of mass 1e-4, whose logs are pure noise.
    length = 150
    unary = np.tile([0.5, 0.4998, 1e-4, 1e-4], (length, 1))
    pair = np.ones((4, 4))
    pair[0, 0] = pair[1, 1] = 1.8
    law = cp.ForestLaw(
        unary,
        shuffled(forests.path(length), length),
        pair,
        classes=cp.classes.TokenClasses.build(length, np.arange(4)),
    )
    noisy = cp.FrozenNoise(law.oracle(), radius=1e-6 / 2, seed=4)
    assert noisy.row_error == pytest.approx(1e-3, rel=1e-3)
    findings, _ = screen(noisy)
    assert pairs(findings.edges) == pairs(law.edges)
    assert findings.is_resolved.all()


# ----- Mistakes made on purpose ---------------------------------------------------------------


def until_resolved(law: cp.ForestLaw) -> Screen:
    """Run a screen up to the point where everything is resolved and nothing is validated."""
    running = Screen(cp.run.Run(law.oracle()))
    rng = running._generator()
    running.now(running._submit("first", rng.random((64, law.length)) < 0.33, rng))
    while not running.knowledge.is_resolved.all():
        running.now(running._step())
    return running


def forget(running: Screen, i: int, j: int) -> None:
    """Take an edge out of both neighbourhoods, as if it had never shown."""
    found = running.found
    for a, b in ((i, j), (j, i)):
        kept = [m for m in found.members[a, : found.count[a]] if m != b]
        found.count[a] = len(kept)
        found.members[a, : len(kept)] = kept
        found.knowledge.resolve(a)
        found.has_claims[a] = True


def test_validation_finds_an_edge_deleted_before_it(monkeypatch) -> None:
    law = cp.families.build("path", 200, 196)
    length = law.length
    # An edge whose ends come to lie on the same side of the two components it leaves.
    for k in range(length - 1):
        rest = np.delete(law.edges, k, axis=0)
        i, j = law.edges[k]
        _, side = sides(length, rest)
        if side[i] == side[j]:
            break
    else:
        raise AssertionError("every edge has its ends on different sides")
    for deleted in (False, True):
        running = until_resolved(law)
        if deleted:
            forget(running, i, j)
        # The probes so far would betray the edge; validation must do so alone, and nothing may
        # be searched again before we look.
        running.readings.num_probes = 0
        running.readings._weight[:] = 0.0
        monkeypatch.setattr(running, "_improve", lambda: None)
        running.now(running._validate(running.validated.pending()))
        reopened = set(np.flatnonzero(~running.knowledge.is_resolved).tolist())
        assert reopened == ({i, j} if deleted else set())


def test_a_false_non_edge_on_a_path_is_reopened() -> None:
    law = cp.families.build("path", 200, 196)
    running = until_resolved(law)
    i, j = law.edges[77]
    forget(running, i, j)
    while running.now(running._step()):
        pass
    assert pairs(running.found.edges()) == pairs(law.edges)


# ----- Budgets --------------------------------------------------------------------------------


def test_what_a_budget_certifies_has_all_its_evidence() -> None:
    law = cp.families.build("path", 100, 196)
    findings, ledger = screen(law.oracle(), max_probes=140, method="regression")
    assert ledger.probes <= 140
    assert "140 probes" in findings.reason
    assert findings.is_resolved.any()
    assert findings.evidence[findings.is_resolved].min() >= findings.needed
    assert not findings.evidence[~findings.is_resolved].any()


@pytest.mark.parametrize(
    ("family", "most", "seed", "hub"),
    [
        ("preferential-attachment", 158, 1, 27),
        ("preferential-attachment", 160, 3, 27),
        ("preferential-attachment", 162, 1, 11),
    ],
)
def test_a_hub_may_rest_on_leaves_that_lack_their_evidence(
    family: str, most: int, seed: int, hub: int
) -> None:
    # When the budget ends, a hub has its evidence and some leaf, whose terms it took over, has
    # not: their edge belongs to what is certified, since the hub moves with the leaf.
    law = cp.families.build(family, 40, 196)
    findings, _ = screen(law.oracle(), seed, max_probes=most, method="regression")
    assert findings.num_refuted == 0 and findings.num_compared > 0
    assert 0 < findings.is_resolved.sum() < 40
    assert findings.terms is not None
    np.testing.assert_array_equal(findings.terms.edges, findings.edges)
    mine = {e for e in pairs(law.edges) if hub in e}
    assert findings.is_resolved[hub]
    assert not all(findings.is_resolved[sum(e) - hub] for e in mine)
    assert mine <= pairs(findings.edges) <= pairs(law.edges)
    assert missed(law, findings) == set()


@pytest.mark.parametrize("most", [1, 10, 63, 65])
def test_the_first_batch_keeps_to_the_budget(most: int) -> None:
    law = cp.families.build("path", 100, 196)
    findings, ledger = screen(law.oracle(), max_probes=most)
    assert 0 < ledger.probes <= most
    assert not findings.is_resolved.any()
    assert f"{most} probes" in findings.reason


def test_validation_is_kept_in_reserve() -> None:
    law = cp.families.build("path", 512, 196)
    findings, ledger = screen(law.oracle(), max_probes=150, method="regression")
    assert ledger.probes <= 150
    # Resolving more would have taken every probe, and left nothing to certify it by.
    assert not findings.is_resolved.all()
    assert [batch.purpose for batch in findings.batches][-1] == "rehearse"
    assert findings.is_resolved.sum() > 200


# ----- Settings, context, seeds ---------------------------------------------------------------


def test_given_positions_are_neither_varied_nor_read() -> None:
    law = cp.families.build("path", 200, 196)
    given = np.full(200, cp.MASK)
    given[law.edges[50]] = [0, 1]
    run = cp.run.Run(law.oracle(), given=given)
    findings = run.call(compressed_screen, cp.Streams.from_seed(1).decisions, CompressedSettings())
    known = set(law.edges[50].tolist())
    assert pairs(findings.edges) == {e for e in pairs(law.edges) if not known & set(e)}
    assert findings.is_resolved.all()


def test_threads_and_batching_change_nothing(thread_limit) -> None:
    law = cp.families.build("random-recursive-tree", 200, 196)
    thread_limit(1)
    one, ledger = screen(law.oracle())
    thread_limit(2)
    two, again = screen(law.oracle())
    assert ledger == again
    np.testing.assert_array_equal(one.edges, two.edges)
    np.testing.assert_array_equal(one.evidence, two.evidence)
    np.testing.assert_array_equal(one.misfit, two.misfit)


def test_one_token_depends_on_nothing(uniform_oracle) -> None:
    findings, ledger = screen(uniform_oracle(length=5, vocab_size=1))
    assert ledger.evaluations == 0
    assert findings.is_resolved.all()
    assert findings.edges.size == 0


def test_tokens_below_the_bank_threshold_leave_nothing_to_vary(uniform_oracle) -> None:
    findings, ledger = screen(uniform_oracle(length=5, vocab_size=300))
    assert ledger.probes == 0
    assert "no token reaches the bank threshold 0.0133" in findings.reason
    assert not findings.is_resolved.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"failure_budget": 0.0}, "failure_budget must lie strictly between 0 and 1, got 0.0"),
        ({"mask_rate": 1.0}, "mask_rate must lie strictly between 0 and 1, got 1.0"),
        ({"max_probes": 0}, "max_probes must be a positive integer, got 0"),
        ({"patience": 1.5}, "patience must be a positive integer, got 1.5"),
        ({"tolerance": -1.0}, r"tolerance must lie in \[0, 1\], got -1.0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompressedSettings(**settings)
