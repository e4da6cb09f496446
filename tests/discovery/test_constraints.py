"""Laws that forbid tokens: impossible ones are not shown, forbidden pairs end a screen clearly."""

import numpy as np
import pytest

import counterprobe as cp


def table_of(*pairs: np.ndarray) -> cp.TableLaw:
    """Return the law of independent pairs over four tokens."""
    joint = np.ones(())
    for pair in pairs:
        full = np.zeros((4, 4))
        full[: pair.shape[0], : pair.shape[1]] = pair
        joint = np.multiply.outer(joint, full / full.sum())
    return cp.TableLaw(joint)


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
@pytest.mark.parametrize("seed", range(3))
def test_positions_of_different_cardinality_are_resolved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [rng.dirichlet(np.ones(a * b)).reshape(a, b) for a, b in rng.integers(2, 5, (3, 2))]
    law = table_of(*pairs)
    structure = cp.discover(law.oracle(), cp.Streams.from_seed(seed), mode="exact")
    assert structure.edges.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert len(structure.unresolved) == 0
    drawn = cp.sample(law.oracle(), structure, 50, seed=cp.Streams(1, 2)).sequences
    assert (law.log_prob(drawn) > -np.inf).all()


@pytest.mark.filterwarnings("ignore::counterprobe.errors.ZeroProbabilityWarning")
@pytest.mark.parametrize("mode", ["exact", "soft", "auto"])
def test_forbidden_pairs_are_infeasible_with_advice(mode: str) -> None:
    apart = np.full((3, 3), 1 / 6)
    np.fill_diagonal(apart, 0)
    law = table_of(apart, apart, apart)
    with pytest.raises(cp.Infeasible, match=r"cannot stand together .*What to try: .*punt"):
        cp.discover(law.oracle(), mode=mode)
