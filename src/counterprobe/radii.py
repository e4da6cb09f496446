"""How far an oracle's rows may lie from the exact ones, in the three metrics of the paper.

Every oracle declares ``row_error``, in total variation. Two further declarations are optional:
``row_hellinger_radius`` and ``row_kl_radius``, uniform bounds over all states and positions on the
squared Hellinger distance and on the forward KL of a row. The accuracy cases of the paper's
guarantee are stated in these two ("Uniform frozen-oracle accuracy"), so ``row_radii`` collects
what an oracle declares and what follows from it. Nothing bounds a KL but its own declaration.
"""

from __future__ import annotations

from dataclasses import dataclass

from counterprobe.oracles import Oracle, as_oracle

__all__ = ["RowRadii", "row_radii"]


@dataclass(frozen=True, slots=True)
class RowRadii:
    """Uniform bounds on the error of a row.

    Attributes
    ----------
    total_variation : float
    squared_hellinger : float
        Bound on ``1 - sum sqrt(pq)``.
    kl : float or None
        Bound on ``KL(exact || oracle)`` in nats; None where nothing is declared.
    """

    total_variation: float
    squared_hellinger: float
    kl: float | None = None

    @classmethod
    def exact(cls) -> RowRadii:
        """Return those of an oracle without error."""
        return cls(0.0, 0.0, 0.0)


def row_radii(oracle: Oracle) -> RowRadii:
    """Collect what an oracle declares about its rows, and what follows.

    The squared Hellinger distance is at most the total variation and at most half the KL. In the
    other direction there is no such inequality: a row may be close in both and miss a token.
    """
    info = as_oracle(oracle).info
    known = [info.row_error]
    for name, factor in (("row_hellinger_radius", 1.0), ("row_kl_radius", 0.5)):
        value = getattr(info, name)
        if value is not None:
            if not value >= 0:
                raise ValueError(f"{name} of an oracle must not be negative, got {value!r}")
            known.append(factor * float(value))
    return RowRadii(info.row_error, min(known), info.row_kl_radius)
