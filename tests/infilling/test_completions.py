"""Joint completions against every completion of a small law."""

import itertools

import numpy as np
import pytest

import counterprobe as cp

MASKED = "X" * 5


def every_completion(law, text):
    """Return all completions of a text with their exact joint log-probabilities."""
    masked = [k for k, letter in enumerate(text) if letter == "X"]
    logs = {}
    for tokens in itertools.product(range(3), repeat=len(masked)):
        full = np.array(["ABC".find(letter) for letter in text])
        full[masked] = tokens
        logs["".join("ABC"[t] for t in full)] = float(law.log_prob(full))
    total = np.logaddexp.reduce(list(logs.values()))
    return {name: value - total for name, value in logs.items()}


@pytest.mark.parametrize("text", ["XXBXX", MASKED, "ABXCA", "XABCX"])
def test_a_wide_beam_ranks_every_completion_by_its_joint_probability(forest_law, spelled, text):
    exact = every_completion(forest_law, text)
    found = cp.fill_mask(spelled(forest_law), text, top_k=4, beam=243)
    best = sorted(exact, key=exact.get, reverse=True)[:4]
    assert found.is_exhaustive
    assert [one.text for one in found] == best[: len(found)]
    for one in (*found.ranked, *found.independent):
        assert one.log_joint == pytest.approx(exact[one.text])


def test_what_independent_masks_say_is_the_best_product_of_their_rows(forest_law, spelled):
    found = cp.fill_mask(spelled(forest_law), "XXBXX", top_k=81, beam=81)
    given = np.array([[-1, -1, 1, -1, -1]], dtype=np.int32)
    rows = np.log(forest_law.oracle().rows(given, cp.Readouts.same(1, [0, 1, 3, 4])).dense())
    products = {
        tokens: sum(rows[k, t] for k, t in enumerate(tokens))
        for tokens in itertools.product(range(3), repeat=4)
    }
    best = sorted(products.values(), reverse=True)
    assert [one.log_independent for one in found.independent] == pytest.approx(best)
    assert len({one.tokens for one in found.independent}) == 81
    for one in found:
        assert one.log_independent == pytest.approx(products[one.tokens])


def test_a_narrow_beam_says_so_and_every_evaluation_is_counted(forest_law, spelled):
    model = spelled(forest_law)
    before = model.network.states
    found = cp.fill_mask(model, MASKED, top_k=2, beam=2, oracle_options={"row_error": 1e-12})
    assert not found.is_exhaustive
    assert found.ledger.evaluations == model.network.states - before == 1 + 4 * 2 + 4 * 2
    assert found.measuring == cp.Ledger()
    before = model.network.states
    found = cp.fill_mask(model, MASKED, top_k=2, beam=2)
    assert found.ledger.evaluations + found.measuring.evaluations == model.network.states - before


def test_one_mask_is_the_ordinary_question(forest_law, spelled):
    found = cp.fill_mask(spelled(forest_law), "ABXCA", top_k=3)
    assert [one.log_joint for one in found] == [one.log_independent for one in found]
    assert sum(np.exp(one.log_joint) for one in found) == pytest.approx(1)


def test_a_finished_text_is_its_own_completion(forest_law, spelled):
    found = cp.fill_mask(spelled(forest_law), "ABCAB")
    assert [one.text for one in found] == ["ABCAB"]
    assert found.ledger == cp.Ledger()


def test_letters_that_are_not_allowed_are_never_offered(forest_law, spelled):
    found = cp.fill_mask(spelled(forest_law), "XXBXX", allowed={0: "A"}, top_k=50, beam=99)
    assert {one.text[0] for one in (*found.ranked, *found.independent)} == {"A"}
    assert len(found.ranked) == 27
