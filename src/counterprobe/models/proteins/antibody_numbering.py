"""Regions of antibodies by their IMGT names: where in a sequence ``CDR-H3`` is.

Lefranc and others, "IMGT unique numbering for immunoglobulin and T cell receptor variable domains
and Ig superfamily V-like domains", Developmental and Comparative Immunology 2003. The package
``immunum`` (MIT, the extra ``antibodies``) aligns a sequence with heavy, kappa and lambda chains;
masks are letters that align with anything, so that a loop is found also where it is masked.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from counterprobe.arrays import IntArray
from counterprobe.extras import load_extra

__all__ = ["imgt_numbers", "is_region", "positions_of"]

# Kappa and lambda chains are both called light.
CHAINS = {"H": ("H",), "L": ("K", "L")}
# How well a sequence without masks must align (immunum's own default), and any.
CONFIDENCE, LEAST_CONFIDENCE = 0.5, 0.25
REGIONS = ("FR1", "CDR1", "FR2", "CDR2", "FR3", "CDR3", "FR4")
# Between two chains of one sequence.
BREAK = "/"
_NAME = re.compile(r"(FR|CDR)-?([HL])-?([1-4])", re.IGNORECASE)


def is_region(name: str) -> bool:
    """Whether a text is the name of a region, such as ``CDR-H3``, ``cdrl1`` or ``FR-H2``."""
    return _parsed(name) is not None


def positions_of(name: str, sequence: str) -> IntArray:
    """Return the positions of a region, by its IMGT name, counted from 0.

    Parameters
    ----------
    name : str
        ``CDR-H1`` to ``CDR-H3`` and ``FR-H1`` to ``FR-H4`` of heavy chains, the same with ``L`` of
        light ones.
    sequence : str
        One letter a position, ``X`` where it is unknown or masked. It may hold several domains,
        joined by a linker or by ``/``, which is no position.

    Raises
    ------
    ValueError
        If there is no such region, or no such chain in this sequence, or several.

    Examples
    --------
    >>> heavy = (
    ...     "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKN"
    ...     "TAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
    ... )
    >>> "".join(heavy[k] for k in positions_of("CDR-H3", heavy))
    'SRWGGDGFYAMDY'
    """
    parsed = _parsed(name)
    if parsed is None:
        raise ValueError(
            f"a region must be called CDR-H1 to CDR-H3 or FR-H1 to FR-H4, or the same with L for "
            f"a light chain; got {name!r}"
        )
    chain, region = parsed
    found: list[IntArray] = []
    others: list[str] = []
    offset = 0
    for part in sequence.split(BREAK):
        for kind, places in _domains(part):
            if kind in CHAINS[chain]:
                low, high = places[region]
                found.append(np.arange(offset + low, offset + high))
            else:
                others.append(kind)
        offset += len(part)
    called = {"H": "heavy", "L": "light"}[chain]
    if not found:
        other = "light" if chain == "H" else "heavy"
        why = f"only a {other} one" if others else "no antibody domain at all"
        raise ValueError(f"{name} needs a {called} chain, but {why} was recognised here")
    if len(found) > 1:
        raise ValueError(
            f"{name} must be one region, but the sequence has {len(found)} {called} chains; name "
            "positions by chain and number instead"
        )
    if not len(found[0]):
        raise ValueError(f"{name} is empty in this sequence")
    return found[0]


def imgt_numbers(sequence: str) -> tuple[str, ...]:
    """Return what every position is called by IMGT, such as ``H105``; empty outside of a domain.

    Kappa and lambda chains are both ``L``. Positions of two chains that have one name stand at one
    place of the fold, whatever the lengths of their loops.

    Parameters
    ----------
    sequence : str
        As in :func:`positions_of`.

    Examples
    --------
    >>> heavy = (
    ...     "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKN"
    ...     "TAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
    ... )
    >>> numbers = imgt_numbers(heavy)
    >>> numbers[0], numbers[heavy.index("CSRW")]
    ('H1', 'H104')
    """
    names: list[str] = []
    for part in sequence.split(BREAK):
        found = [""] * len(part)
        for numbers, _ in _read(part):
            chain = "H" if numbers.chain == "H" else "L"
            for k, number in enumerate(numbers.numbering, int(numbers.query_start)):
                found[k] = f"{chain}{number}"
        names += found
    return tuple(names)


def _parsed(name: str) -> tuple[str, str] | None:
    """Return the chain, H or L, and the region; None for what is no name of one."""
    matched = _NAME.fullmatch(name.strip())
    if matched is None:
        return None
    kind, chain, number = matched.groups()
    region = f"{kind}{number}".upper()
    return (chain.upper(), region) if region in REGIONS else None


def _domains(sequence: str) -> list[tuple[str, dict[str, tuple[int, int]]]]:
    """Return every variable domain: its chain (H, K or L), and where each region is."""
    domains = []
    for numbers, parts in _read(sequence):
        regions, low = {}, int(numbers.query_start)
        for region in REGIONS:
            high = low + len(getattr(parts, region.lower()))
            regions[region] = (low, high)
            low = high
        domains.append((str(numbers.chain), regions))
    return domains


def _read(sequence: str) -> list[tuple[Any, Any]]:
    """Return the numbers and the regions of every variable domain that is recognised."""
    immunum = load_extra("immunum", "antibodies", "a region of an antibody by its name")
    letters = re.sub(r"[^A-Za-z]", "X", sequence)
    # Masks add nothing to how well a sequence aligns: as much less is asked for.
    known = 1 - letters.upper().count("X") / max(1, len(letters))
    least = max(LEAST_CONFIDENCE, CONFIDENCE * known)
    reader = immunum.Annotator(chains=["H", "K", "L"], scheme="imgt", min_confidence=least)
    both = zip(reader.number_domains(letters), reader.segment_domains(letters), strict=True)
    return [(numbers, parts) for numbers, parts in both if numbers.error is None]
