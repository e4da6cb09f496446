"""Centroid layers of a known forest: exact in few rounds, and never guessed."""

import math

import numpy as np
import pytest

import counterprobe as cp
from counterprobe.evaluation import batch_kl
from counterprobe.graph import centroid_layers
from counterprobe.samplers import CentroidLayers, build_sampler

STREAMS = cp.Streams(111, 112)


@pytest.mark.parametrize("family", ["path", "matching", "binary-tree", "caterpillar"])
def test_it_is_exact_in_logarithmically_many_rounds(family):
    law = cp.families.build(family, 200, 3)
    result = CentroidLayers().informed_by(law)(cp.run.Run(law.oracle()), STREAMS)
    assert result.ledger.evaluations == result.ledger.stages <= math.floor(math.log2(200)) + 1
    layers = centroid_layers(200, law.edges)
    assert [batch.tolist() for batch in result.batches] == [layer.tolist() for layer in layers]
    assert batch_kl(law, result).value == 0.0
    assert result.used == cp.Need.NONE


def test_given_context_cuts_the_forest():
    law = cp.ForestLaw(np.ones((5, 2)), [[0, 1], [1, 2], [2, 3], [3, 4]], [[2, 1], [1, 2]])
    given = [cp.MASK, cp.MASK, 0, cp.MASK, cp.MASK]
    run = cp.run.Run(law.oracle(), given=given)
    result = CentroidLayers().informed_by(law)(run, STREAMS)
    assert [batch.tolist() for batch in result.batches] == [[0, 3], [1, 4]]


def test_edges_survive_json():
    law = cp.families.path(6, target_seed=1)
    told = CentroidLayers().informed_by(law)
    as_lists = [list(edge) for edge in told.edges]
    assert build_sampler("centroid-layers", {"edges": as_lists}) == told
    assert told.informed_by(cp.families.path(9, target_seed=1)) == told  # settings are kept


def test_a_law_without_a_forest_is_refused(table_law):
    with pytest.raises(ValueError, match=r"needs a forest, which TableLaw.* does not have"):
        CentroidLayers().informed_by(table_law)


def test_a_cycle_is_refused():
    run = cp.run.Run(cp.families.path(3, target_seed=1).oracle())
    with pytest.raises(cp.errors.NotAForestError, match="cycle"):
        CentroidLayers(((0, 1), (1, 2), (0, 2)))(run, STREAMS)


def test_a_context_that_gives_everything_needs_no_commit():
    law = cp.families.path(6, target_seed=1)
    given = np.zeros(6, dtype=int)
    for sampler in (CentroidLayers().informed_by(law), CentroidLayers(edges=())):
        many = cp.sample(law.oracle(), sampler, 2, seed=STREAMS, given=given)
        assert many.sequences.tolist() == [[0] * 6] * 2
        assert many.ledger.evaluations == 0


def test_a_cycle_that_context_cuts_is_no_cycle():
    law = cp.families.path(3, target_seed=1)
    run = cp.run.Run(law.oracle(), given=[0, cp.MASK, cp.MASK])
    result = CentroidLayers(((0, 1), (1, 2), (0, 2)))(run, STREAMS)
    assert [batch.tolist() for batch in result.batches] == [[1], [2]]
