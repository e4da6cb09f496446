"""What models on a backbone have in common: how a sequence is read on it.

Everything is masked unless a text or a choice of residues says otherwise; what stays has the
letters of the structure file. Chains are separated by ``/``, in texts that are read and in those
that are written.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, Unpack

import numpy as np

from counterprobe.arrays import BoolArray, IntArray
from counterprobe.errors import UnmodelledWarning
from counterprobe.models.described import Described, letter_facts, network_facts
from counterprobe.models.letters import Letters
from counterprobe.models.proteins.antibody_numbering import BREAK
from counterprobe.models.proteins.backbones import ATOMS, Backbone, listed
from counterprobe.models.residue_names import Names
from counterprobe.models.residues import Choices, choose
from counterprobe.models.template import Allowed, Template

__all__ = ["BackboneModel"]


class BackboneModel(Described):
    """A network on one backbone: it reads templates.

    Parameters
    ----------
    name : str
        Of the network.
    network : Module
    letters : Letters
        Those of the network.
    backbone : Backbone
    reads : slice
        The atoms that the network reads, among N, CA, C and O.

    Attributes
    ----------
    is_known : ndarray of bool, shape (N,)
        Whether the backbone has all of these atoms of each residue.

    Warns
    -----
    UnmodelledWarning
        If some residues lack one: they keep the letters of the file.
    """

    def __init__(
        self, name: str, network: Any, letters: Letters, backbone: Backbone, reads: slice
    ) -> None:
        self.name = f"{name} {backbone.name}"
        self.network = network
        self.letters = letters
        self.backbone = backbone
        self.is_known: BoolArray = backbone.has(reads)
        if not self.is_known.any():
            lacking = [
                f"{(~backbone.has(slice(k, k + 1))).sum()} lack {ATOMS[k]}"
                for k in range(*reads.indices(len(ATOMS)))
            ]
            raise ValueError(
                f"backbone {backbone.name!r} has no residue that can be designed: {name} reads "
                f"{', '.join(ATOMS[reads])} of a residue, and of {len(backbone)} residues "
                f"{', '.join(lacking)}; give a file with whole backbones, or take the weights "
                "ca_v_48_020 of proteinmpnn, which read alpha carbons alone"
            )
        lacking_atoms = backbone.lacking(self.is_known)
        if lacking_atoms is not None:
            warnings.warn(
                f"backbone {backbone.name!r}: {lacking_atoms}", UnmodelledWarning, stacklevel=2
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a designer should know of the backbone."""
        return self.backbone.notes_for(self.is_known)

    def facts(self) -> list[str]:
        """Return what it draws, for which backbone, and how large its network is."""
        return [
            *letter_facts(self.letters, len(self.backbone)),
            *network_facts(self.network),
            f"for the backbone of {self.backbone}",
        ]

    def template(
        self,
        text: str | None = None,
        *,
        allowed: Allowed | None = None,
        **choices: Unpack[Choices],
    ) -> Template:
        """Read a sequence as long as the backbone, with masks, or choose residues of it.

        Parameters
        ----------
        text : str, optional
            With masks, and with ``/`` between chains or without. By default everything is masked
            but unmodelled residues, of which the network knows nothing: these are as in the file,
            where it has their letter.
        allowed
            See :meth:`Template.allow`.
        **choices
            ``design``, ``fixed``, ``tied``, ``symmetric``, ``omit`` and ``rules``, see
            :class:`counterprobe.models.residues.Choices`.
        """
        backbone, letters = self.backbone, self.letters
        breaks = np.flatnonzero(np.diff(backbone.chain)) + 1
        parts = [backbone.sequence] if text is None else text.split(BREAK)
        if len(parts) > 1:
            _check_chains(
                backbone.name,
                np.diff([0, *breaks, len(backbone)]).tolist(),
                [letters.template(part).length for part in parts],
            )
        template = letters.template("".join(parts), allowed=allowed)
        if template.length != len(backbone):
            raise ValueError(
                f"a sequence on backbone {backbone.name!r} must have {len(backbone)} residues, "
                f"got {template.length}"
            )
        spell = partial(_spell, letters, (0, *breaks.tolist(), len(backbone)))
        known = spell(template.fill(template.given)[0])
        names = Names(backbone.codes, backbone.chain_ids, backbone.chain - 1, known)
        template = replace(template, spell=spell, coordinates=backbone.alpha_carbons)
        has_text = text is not None
        return choose(template, names, is_open=self.is_known, has_text=has_text, **choices)

    def read(self, template: Template | str | None) -> Template:
        """Return the template of a text; refuse one that was read on another backbone."""
        if not isinstance(template, Template):
            return self.template(template)
        if len(template.slots) != len(self.backbone):
            raise ValueError(
                f"template must be of backbone {self.backbone.name!r}, which has "
                f"{len(self.backbone)} residues; got one of {len(template.slots)}"
            )
        return replace(template, coordinates=self.backbone.alpha_carbons)


def _check_chains(name: str, wanted: Sequence[int], lengths: Sequence[int]) -> None:
    """Refuse a text whose chains are not as long as those of the backbone."""
    if lengths != wanted:
        has, got = (listed([str(one) for one in said]) for said in (wanted, lengths))
        raise ValueError(
            f"chains of backbone {name!r} have {has} residues, but the text has {got} between "
            f"{BREAK!r}"
        )


def _spell(letters: Letters, bounds: tuple[int, ...], ids: IntArray) -> str:
    """Write ids as letters; a whole sequence with a break between its chains."""
    text = letters.spell(ids)
    if len(ids) != bounds[-1]:
        return text
    return BREAK.join(text[low:high] for low, high in pairwise(bounds))
