"""Exact rows: against enumeration, an independent library, log sums, and bit for bit."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.targets import families, inference
from followed import Followed

TOLERANCE = dict(rtol=0, atol=1e-12)
PHI = np.array([1.0, -1.0, 0.0])
NO_EXTRA = np.zeros(3)


# ----- Against enumeration --------------------------------------------------------------------


@pytest.mark.parametrize("num_classes", [1, 2, 3, 4, 8])
def test_rows_equal_enumeration(num_classes, draw_small_law, draw_states):
    for seed in range(70):
        rng = np.random.default_rng([11, seed])
        small = draw_small_law(rng, num_classes)
        length, vocab_size = small.law.length, small.law.vocab_size
        states = draw_states(rng, (8, length), vocab_size, rng.uniform(0.2, 0.9))
        states[0] = cp.MASK
        states[1] = rng.integers(vocab_size, size=length)  # nothing masked, nothing to read
        states[2] = rng.integers(vocab_size, size=length)
        states[2, rng.integers(length)] = cp.MASK
        readouts = cp.Readouts.every_masked(states)
        rows = small.law.oracle().rows(states, readouts)
        expected = [
            small.row(states[b], j)
            for b, j in zip(readouts.state_index, readouts.position, strict=True)
        ]
        np.testing.assert_allclose(
            rows.dense(), np.reshape(expected, (-1, vocab_size)), **TOLERANCE
        )
        np.testing.assert_allclose(rows.masses.sum(axis=1), 1, **TOLERANCE)


def test_no_states_and_no_readouts_give_no_rows():
    oracle = families.path(6, 1).oracle()
    none = cp.Readouts.same(0, [0, 1])
    assert oracle.rows(np.empty((0, 6), dtype=np.int32), none).dense().shape == (0, 2048)
    assert len(oracle.rows(np.zeros((3, 6), dtype=np.int32), cp.Readouts.same(3, []))) == 0


# ----- Against pyAgrum ------------------------------------------------------------------------


@pytest.fixture
def markov_field(gum):
    """The same law as a Markov random field of another library."""

    def build(law):
        field = gum.MarkovRandomField()
        for i in range(law.length):
            field.add(gum.RangeVariable(f"x{i}", "", 0, law.num_classes - 1))
            field.addFactor([f"x{i}"]).fillWith(law.unary[i].tolist())
        for (i, j), table in zip(law.edges, law.pair, strict=True):
            # Their first variable runs fastest.
            field.addFactor([f"x{i}", f"x{j}"]).fillWith(table.T.ravel().tolist())
        return field

    return build


@pytest.mark.parametrize("num_classes", [3, 4])
@pytest.mark.parametrize("shape", ["path", "star", "tree", "forest"])
def test_rows_equal_an_independent_library(
    num_classes, shape, gum, markov_field, draw_tree_law, draw_states
):
    rng = np.random.default_rng([13, num_classes, *shape.encode()])
    law = draw_tree_law(rng, 40, shape, num_classes)
    oracle, field = law.oracle(), markov_field(law)
    for masked in (0.1, 0.4, 0.7, 1.0):
        state = draw_states(rng, (1, 40), num_classes, masked)
        readouts = cp.Readouts.every_masked(state)
        rows = oracle.rows(state, readouts).dense()
        known = np.flatnonzero(state[0] != cp.MASK)
        theirs = gum.ShaferShenoyMRFInference(field)
        theirs.setEvidence({f"x{i}": int(state[0, i]) for i in known})
        theirs.makeInference()
        expected = [theirs.posterior(f"x{j}").toarray() for j in readouts.position]
        np.testing.assert_allclose(rows, np.reshape(expected, rows.shape), **TOLERANCE)
        if len(known):
            # The probability of the evidence, one revealed value after another.
            run, total = Followed(oracle, np.full(40, cp.MASK)), 0.0
            for i in known[:, None]:
                total += run.rows(i).log_prob(state[0, i]).sum()
                run.push(i, state[0, i])
            np.testing.assert_allclose(total, np.log(theirs.evidenceProbability()), atol=1e-10)


@pytest.mark.parametrize("num_classes", [3, 4])
def test_pair_marginals_and_log_prob_equal_an_independent_library(
    num_classes, gum, markov_field, draw_tree_law
):
    rng = np.random.default_rng([14, num_classes])
    law = draw_tree_law(rng, 40, "tree", num_classes)
    field = markov_field(law)
    theirs = gum.ShaferShenoyMRFInference(field)
    for i, j in law.edges:
        theirs.addJointTarget({f"x{i}", f"x{j}"})
    theirs.makeInference()
    classes = range(num_classes)
    for (i, j), joint in zip(law.edges, law.pair_marginals, strict=True):
        law_of_edge = theirs.jointPosterior({f"x{i}", f"x{j}"})
        expected = [[law_of_edge[{f"x{i}": a, f"x{j}": b}] for b in classes] for a in classes]
        np.testing.assert_allclose(joint, expected, **TOLERANCE)
    for tokens in law.sample(5, rng):
        theirs = gum.ShaferShenoyMRFInference(field)
        theirs.setEvidence({f"x{i}": int(t) for i, t in enumerate(tokens)})
        theirs.makeInference()
        np.testing.assert_allclose(
            law.log_prob(tokens), np.log(theirs.evidenceProbability()), atol=1e-10
        )


# ----- Large degrees --------------------------------------------------------------------------

LEAVES = 3000


def hub_weights(signs, weight, rng):
    flips = rng.permutation(LEAVES) % 2 if signs == "mixed" else np.zeros(LEAVES)
    return weight * np.where(flips == 1, -1.0, 1.0)


def pushes(kind, weights, rng):
    """Classes of the revealed leaves, -1 where masked: what they say about the hub."""
    up = np.where(weights > 0, 0, 1)  # a leaf of this class pushes the hub to class 0
    half = np.arange(LEAVES) < LEAVES // 2
    return {
        "one way": up,
        "cancelling": np.where(half, up, 1 - up),
        "nearly cancelling": np.where(np.arange(LEAVES) < LEAVES // 2 + 1, up, 1 - up),
        "alternating": np.where(np.arange(LEAVES) % 2 == 0, up, 1 - up),
        "some masked": np.where(
            rng.random(LEAVES) < 0.3, -1, np.where(rng.random(LEAVES) < 0.5, up, 1 - up)
        ),
        "masked": np.full(LEAVES, -1),
        "leaning and masked": np.where(half, up, -1),
    }[kind]


@pytest.mark.parametrize("hub", [0, 1234, LEAVES], ids=["root", "inner", "last"])
@pytest.mark.parametrize("signs", ["same", "mixed"])
@pytest.mark.parametrize("weight", [0.02, 0.9])
def test_hub_of_degree_3000_equals_log_sums(hub, signs, weight, log_star):
    rng = np.random.default_rng([15, hub, *signs.encode()])
    field = rng.uniform(-1, 1, LEAVES + 1)
    unary = np.stack([0.4 * np.exp(field), 0.4 * np.exp(-field), np.full(LEAVES + 1, 0.2)], axis=1)
    leaf = np.delete(np.arange(LEAVES + 1), hub)
    weights = hub_weights(signs, weight, rng)
    pair = 1 + weights[:, None, None] * np.outer(PHI, PHI)
    edges = np.stack([np.full(LEAVES, hub), leaf], axis=1)
    law = cp.ForestLaw(unary, edges, pair)
    oracle, reference = law.oracle(), log_star(unary[hub], unary[leaf], pair)
    for kind in (
        "one way", "cancelling", "nearly cancelling", "alternating", "some masked", "masked",
        "leaning and masked",
    ):  # fmt: skip
        known = pushes(kind, weights, rng)
        state = np.full((1, LEAVES + 1), cp.MASK)
        state[0, leaf] = known
        row = oracle.rows(state, cp.Readouts.same(1, [hub])).masses[0]
        expected = np.exp(reference.hub_row(known, NO_EXTRA))
        np.testing.assert_allclose(row, expected, **TOLERANCE)
        rows = oracle.rows(state, cp.Readouts.every_masked(state)).masses
        assert np.isfinite(rows).all()
        np.testing.assert_allclose(rows.sum(axis=1), 1, **TOLERANCE)
        for k in rng.permutation(np.flatnonzero(known < 0))[:8]:
            row = oracle.rows(state, cp.Readouts.same(1, [leaf[k]])).masses[0]
            expected = np.exp(reference.leaf_row(known, k, -1, NO_EXTRA))
            np.testing.assert_allclose(row, expected, **TOLERANCE)
        # The hub revealed: every leaf stands alone.
        state[0, hub] = 1
        for k in rng.permutation(np.flatnonzero(known < 0))[:8]:
            row = oracle.rows(state, cp.Readouts.same(1, [leaf[k]])).masses[0]
            expected = np.exp(reference.leaf_row(known, k, 1, NO_EXTRA))
            np.testing.assert_allclose(row, expected, **TOLERANCE)


@pytest.mark.parametrize("signs", ["same", "mixed"])
def test_two_adjacent_hubs_equal_log_sums(signs, log_star):
    rng = np.random.default_rng([16, *signs.encode()])
    half = LEAVES // 2
    unary = rng.uniform(0.2, 1.0, (LEAVES + 2, 3))
    weights = hub_weights(signs, 0.9, rng)
    pair = 1 + weights[:, None, None] * np.outer(PHI, PHI)
    middle = 1 + 0.9 * np.outer(PHI, PHI) + 0.05 * np.arange(9).reshape(3, 3)
    hubs = np.repeat([LEAVES, LEAVES + 1], half)
    edges = np.concatenate([np.stack([hubs, np.arange(LEAVES)], axis=1), [[LEAVES, LEAVES + 1]]])
    law = cp.ForestLaw(unary, edges, np.concatenate([pair, middle[None]]))
    left, right = (
        log_star(unary[LEAVES + side], unary[part], pair[part])
        for side, part in enumerate((slice(0, half), slice(half, LEAVES)))
    )
    for kind in ("one way", "alternating", "some masked", "masked"):
        known = pushes(kind, weights, rng)
        state = np.append(known, [cp.MASK, cp.MASK])[None, :]
        to_left = np.logaddexp.reduce(
            right.hub_row(known[half:], NO_EXTRA)[None, :] + np.log(middle), axis=1
        )
        to_right = np.logaddexp.reduce(
            left.hub_row(known[:half], NO_EXTRA)[:, None] + np.log(middle), axis=0
        )
        rows = law.oracle().rows(state, cp.Readouts.same(1, [LEAVES, LEAVES + 1])).masses
        np.testing.assert_allclose(
            rows[0], np.exp(left.hub_row(known[:half], to_left)), **TOLERANCE
        )
        np.testing.assert_allclose(
            rows[1], np.exp(right.hub_row(known[half:], to_right)), **TOLERANCE
        )
        for k in rng.permutation(np.flatnonzero(known[half:] < 0))[:8]:
            row = law.oracle().rows(state, cp.Readouts.same(1, [half + k])).masses[0]
            expected = np.exp(right.leaf_row(known[half:], k, -1, to_right))
            np.testing.assert_allclose(row, expected, **TOLERANCE)


@pytest.mark.parametrize("num_leaves", [1, 6, 7, 8, 9, 15, 16, 17, 40, 500])
def test_the_widest_allowed_tables_stay_in_range(num_leaves, log_star):
    # Every ratio is near 1e30, so seven factors already reach 1e-210.
    for seed in range(10):
        rng = np.random.default_rng([17, num_leaves, seed])
        spread = [1.0, 1e-30, 1e-15]
        unary = np.stack([rng.permutation(spread) for _ in range(num_leaves + 1)])
        pair = rng.choice(spread, size=(num_leaves, 3, 3))
        pair[:, 0, :] = 1e-30 if seed % 2 else 1.0
        law = cp.ForestLaw(
            unary,
            np.stack([np.zeros(num_leaves, dtype=int), np.arange(1, num_leaves + 1)], axis=1),
            pair,
        )
        reference = log_star(unary[0], unary[1:], pair)
        known = rng.integers(-1, 3, size=num_leaves)
        state = np.append(cp.MASK, known)[None, :]
        readouts = cp.Readouts.every_masked(state)
        rows = law.oracle().rows(state, readouts).masses
        assert np.isfinite(rows).all()
        expected = [
            reference.hub_row(known, NO_EXTRA)
            if j == 0
            else reference.leaf_row(known, j - 1, -1, NO_EXTRA)
            for j in readouts.position
        ]
        # Tiny probabilities count in a log-probability, so they are right in relative terms too.
        np.testing.assert_allclose(rows, np.exp(expected), rtol=1e-10, atol=1e-280)
        messages = reference.messages(np.full(num_leaves, -1))
        expected = np.logaddexp.reduce(np.log(unary[0]) + messages.sum(axis=0))
        np.testing.assert_allclose(law.log_partition, expected, rtol=1e-12, atol=1e-12)


def test_log_partition_of_a_hub_equals_log_sums(log_star):
    rng = np.random.default_rng(18)
    unary = rng.uniform(0.2, 1.0, (LEAVES + 1, 3))
    pair = 1 + hub_weights("mixed", 0.9, rng)[:, None, None] * np.outer(PHI, PHI)
    edges = np.stack([np.zeros(LEAVES, dtype=int), np.arange(1, LEAVES + 1)], axis=1)
    messages = log_star(unary[0], unary[1:], pair).messages(np.full(LEAVES, -1))
    expected = np.logaddexp.reduce(np.log(unary[0]) + messages.sum(axis=0))
    law = cp.ForestLaw(unary, edges, pair)
    np.testing.assert_allclose(law.log_partition, expected, rtol=1e-12)


@pytest.mark.slow
def test_a_large_law_stays_under_one_gibibyte():
    # A process of its own: the high-water mark of this one includes every test so far.
    script = """
        import resource
        import numpy as np
        import counterprobe as cp
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        def ask(length, num_states):
            law = cp.families.random_recursive_tree(length, 3)
            states = np.full((num_states, length), cp.MASK, dtype=np.int32)
            rows = law.oracle().rows(states, cp.Readouts.same(num_states, np.arange(length)))
            assert abs(rows.masses.sum(axis=1) - 1).max() < 1e-12
            states[:, ::2] = 1
            rows = law.oracle().rows(states, cp.Readouts.every_masked(states))
            assert abs(rows.masses.sum(axis=1) - 1).max() < 1e-12
        ask(100, 8)
        before = peak()
        ask(131_072, 64)
        print((peak() - before) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1024, f"{done.stdout.strip()} MiB"


# ----- Bit for bit ----------------------------------------------------------------------------


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("masked", [0.01, 0.125, 0.5, 1.0])
@pytest.mark.parametrize(("shape", "num_classes"), [("tree", 3), ("path", 2), ("caterpillar", 8)])
def test_rows_equal_the_reference_to_the_last_bit(
    shape, num_classes, masked, num_threads, draw_tree_law, draw_states, walk_all_positions,
    thread_limit,
):  # fmt: skip
    thread_limit(num_threads)
    rng = np.random.default_rng([19, num_classes, int(1000 * masked)])
    for length in (1, 2, 65, 700):
        law = draw_tree_law(rng, length, shape, num_classes)
        oracle = law.oracle()
        states = draw_states(rng, (12, length), num_classes, masked)
        every = cp.Readouts.every_masked(states)
        choices = [
            np.arange(len(every)),
            rng.permutation(len(every)),
            rng.integers(len(every), size=2 * len(every)) if len(every) else [],
            np.flatnonzero(every.state_index == 5),
        ]
        # One readout in 3, 20, 200 positions: a sweep, components in order, components as asked.
        choices += [np.flatnonzero(rng.random(len(every)) < 1 / k) for k in (3, 20, 200)]
        choices.append(np.repeat(rng.permutation(choices[-1]), 2))
        for choice in choices:
            chosen = np.asarray(choice, dtype=np.int64)
            readouts = cp.Readouts.pairs(every.state_index[chosen], every.position[chosen])
            rows = oracle.rows(states, readouts).masses
            np.testing.assert_array_equal(rows, walk_all_positions(law, states, readouts))


@pytest.mark.parametrize("shape", ["forest", "star", "path"])
def test_a_row_does_not_depend_on_what_is_asked_beside_it(shape, draw_tree_law, draw_states):
    rng = np.random.default_rng([20, *shape.encode()])
    law = draw_tree_law(rng, 300, shape, 3)
    oracle = law.oracle()
    states = np.concatenate([draw_states(rng, (6, 300), 3, m) for m in (0.05, 0.5, 1.0)])
    every = cp.Readouts.every_masked(states)
    together = oracle.rows(states, every).masses
    for k in rng.integers(len(every), size=200):
        b, j = every.state_index[k], every.position[k]
        alone = oracle.rows(states[b : b + 1], cp.Readouts.pairs([0], [j])).masses
        np.testing.assert_array_equal(alone[0], together[k])
        fresh = law.oracle().rows(states[b : b + 1], cp.Readouts.same(1, [j, j])).masses
        np.testing.assert_array_equal(fresh, together[[k, k]])
    shared = np.flatnonzero((states[-6:] == cp.MASK).all(axis=0))
    rows = oracle.rows(states[-6:], cp.Readouts.same(6, shared)).masses
    where = np.flatnonzero(every.state_index >= 12)
    np.testing.assert_array_equal(rows, together[where])


def test_read_only_and_strided_arguments_change_nothing(draw_tree_law, draw_states):
    rng = np.random.default_rng(21)
    law = draw_tree_law(rng, 60, "tree", 3)
    oracle = law.oracle()
    wide = draw_states(rng, (10, 120), 3, 0.5)
    states = wide[:, ::2].copy()
    every = cp.Readouts.every_masked(states)
    expected = oracle.rows(states, every).masses
    compiled = len(inference.rows_of_states.signatures)
    positions = np.repeat(every.position, 2)[::2]
    strided = cp.Readouts.pairs(every.state_index, positions)
    np.testing.assert_array_equal(oracle.rows(wide[:, ::2], strided).masses, expected)
    states.setflags(write=False)
    every.position.setflags(write=False)
    np.testing.assert_array_equal(oracle.rows(states, every).masses, expected)
    np.testing.assert_array_equal(oracle.rows(states.astype(np.int64), every).masses, expected)
    assert len(inference.rows_of_states.signatures) == compiled
