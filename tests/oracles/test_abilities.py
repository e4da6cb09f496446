"""What only some oracles can do is found through wrappers, and hidden where it must be."""

import numpy as np
import pytest

import counterprobe as cp
from attentive import AttentiveLaw
from counterprobe.oracles import (
    Attends,
    AttentionQuery,
    Drawn,
    DrawsPlans,
    FollowsRuns,
    OracleInfo,
    Readouts,
    RowOracle,
    depends_on_order,
)
from counterprobe.rows import DenseRows


class Able(RowOracle):
    """Does everything."""

    info = OracleInfo("able", 3, 2)
    follows_many = depends_on_order = True

    def rows(self, states, readouts):
        return DenseRows(np.full((len(readouts), 2), 0.5))

    def follow(self, query):
        return DenseRows(np.tile([0.25, 0.75], (len(query.readouts), 1)))

    def attend(self, states, readouts, layers):
        return self.rows(states, readouts), np.full((len(states), 3, 3), 1 / layers)

    def draw(self, states, drawing):
        return Drawn(states, states * 0.0, states * 0.0)


ABILITIES = (FollowsRuns, Attends, DrawsPlans)


def test_an_oracle_can_do_what_it_has_methods_for(table_law):
    able, plain = Able(), table_law.oracle()
    for kind in ABILITIES:
        assert able.ability(kind) is able and plain.ability(kind) is None
    assert depends_on_order(able) and not depends_on_order(plain)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda oracle, path: oracle.retrying(2),
        lambda oracle, path: oracle.cached(path),
        lambda oracle, path: oracle.rechecking(0.5),
        lambda oracle, path: oracle.declaring(row_error=0.1).retrying(2),
    ],
)
def test_wrappers_hide_only_what_would_pass_them_by(wrap, tmp_path):
    able = Able()
    around = wrap(able, tmp_path / "run.log")
    assert around.ability(FollowsRuns) is around.ability(Attends) is able
    assert around.ability(DrawsPlans) is None
    by_index = around.by_index()
    assert by_index.ability(FollowsRuns) is None and by_index.ability(Attends) is able


def test_attention_comes_through_all_wrappers(table_law, tmp_path):
    inner = AttentiveLaw(table_law.oracle(), np.full((4, 4), 0.25))
    states = np.full((2, 4), cp.MASK, dtype=np.int32)
    query = AttentionQuery(states, Readouts.same(2, [1, 3]), 2)
    with inner.retrying(2).rechecking(1.0).cached(tmp_path / "replies") as oracle:
        reply = oracle.ask(query)
    assert np.array_equal(reply.attention, inner.attention_of(states))
    assert inner.calls == [2] and inner.states == 4, "rows alone are asked for again"
