"""Which residues are designed, which are tied, and what may stand where.

Lists of residues (``residue_names.py`` reads them) become a template. What is fixed has the
letters of the text or of the structure file. Tied residues show one letter: where one of them is
named to be designed all are masked; where one stays, all show its letter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

import numpy as np

from counterprobe.arrays import BoolArray, FloatArray, IntArray, StateArray
from counterprobe.files import read_text
from counterprobe.models.residue_names import EVERY, Listed, Names, items
from counterprobe.models.template import Template
from counterprobe.states import MASK

__all__ = ["Choices", "choose", "choose_in_text", "read_rules"]

# Bytes of a file of rules.
MOST_RULES = 1 << 24


class Choices(TypedDict, total=False):
    """What may be said of residues when a text or a backbone is read.

    Attributes
    ----------
    design : str or sequence of str
        What is masked; everything else is given, as in the text or the structure file. An
        unmodelled residue within a range or a chain stays as it is; named alone it is masked.
    fixed : str or sequence of str
        What is given; without ``design``, everything else is masked.
    tied : str or sequence of str
        Residues that show the same letter, ``A10=B10=C10``, ranges and chains residue by residue,
        ``A1-76=B1-76,A80=B82``. ``B10*0.5`` counts half, ``B10*-1`` against.
    symmetric : str or sequence of str
        Chains of a homomer, ``A,B,C``: the same numbers are tied.
    omit : str
        Letters that are drawn nowhere.
    rules : path, or mapping of str to str
        What may stand where; see :func:`read_rules`.
    """

    design: Listed | None
    fixed: Listed | None
    tied: Listed | None
    symmetric: Listed | None
    omit: str | None
    rules: str | os.PathLike[str] | Mapping[str, str] | None


# ----- What is made of them -----------------------------------------------------------------


def choose(
    template: Template,
    names: Names,
    *,
    is_open: BoolArray | None = None,
    has_text: bool = True,
    design: Listed | None = None,
    fixed: Listed | None = None,
    tied: Listed | None = None,
    symmetric: Listed | None = None,
    omit: str | None = None,
    rules: str | os.PathLike[str] | Mapping[str, str] | None = None,
) -> Template:
    """Return a template with what was chosen masked, tied and allowed.

    Parameters
    ----------
    template : Template
        Whatever letters are known are given there.
    names : Names
    is_open : ndarray of bool, shape (N,), optional
        For a backbone: the residues whose place is known, which alone are masked where nobody
        names a residue by itself.
    has_text : bool
        Whether masks are written in a text; otherwise everything is masked by default.
    design, fixed, tied, symmetric, omit, rules
        See :class:`Choices`.
    """
    template = _with_rules(template, names, omit, rules)
    is_chosen = not has_text or design is not None or fixed is not None
    masked, named, kept = _selected(template, names, is_open, has_text, design, fixed)
    groups, weights = _groups(names, tied, symmetric)
    given = np.where(masked, MASK, template.given)
    for group in groups:
        given[group] = _shared(template, names, group, given[group], named[group], kept[group])
    if is_open is not None and is_chosen and not kept.all() and not (given == MASK).any():
        raise ValueError(
            "nothing is left to design: every residue that is not fixed lacks a backbone atom, or "
            "is tied to one that stays"
        )
    labels = tuple(names.label(k) for k in range(template.length)) if names.chain_ids else ()
    chosen = replace(template, given=given.astype(template.given.dtype), names=labels)
    return chosen.tie(groups, weights) if groups else chosen


def choose_in_text(template: Template, **choices: Unpack[Choices]) -> Template:
    """Return the template of a text, its positions numbered from 1, with what was chosen."""
    if all(value is None for value in choices.values()):
        return template
    return choose(template, Names.of_text(template), **choices)


def _selected(
    template: Template,
    names: Names,
    is_open: BoolArray | None,
    has_text: bool,
    design: Listed | None,
    fixed: Listed | None,
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """Return what is masked, what of it was named to be designed, and what to be fixed."""
    is_unknown = template.given == MASK
    may_open = np.ones(template.length, dtype=np.bool_) if is_open is None else is_open
    named, kept = (np.zeros(template.length, dtype=np.bool_) for _ in range(2))
    for item in () if design is None else items(design):
        found = names.of_item(item)
        found = found if len(found) == 1 else found[may_open[found]]
        if not len(found):
            raise ValueError(
                f"{item} cannot be designed: each of its residues lacks a backbone atom"
            )
        named[found] = True
    if fixed is not None:
        kept[names.find(fixed)] = True
    for k in np.flatnonzero(named & kept).tolist():
        raise ValueError(f"a residue is designed or fixed, but {names.label(k)} is named as both")
    if design is not None:
        masked = named
    elif fixed is not None or not has_text:
        masked = may_open & ~kept
    else:
        masked = is_unknown
    # A mask that is written in a text stays one; a file has a letter, or says nothing.
    stays = kept if has_text or design is None else ~masked
    for k in np.flatnonzero(is_unknown & stays).tolist():
        raise ValueError(f"{names.label(k)} must be designed, as no letter of it is known")
    return masked | is_unknown, named, kept


def _shared(
    template: Template,
    names: Names,
    group: IntArray,
    given: StateArray,
    named: BoolArray,
    kept: BoolArray,
) -> int:
    """Return what a group of tied residues shows: a token, or a mask."""
    if named.any() and kept.any():
        one, other = (names.label(group[np.argmax(which)]) for which in (named, kept))
        raise ValueError(f"{one} and {other} are tied: both are designed, or both fixed")
    shown = given[given != MASK]
    if named.any() or not len(shown):
        return MASK
    if (shown != shown[0]).any():
        said = [
            f"{names.label(k)} is {template.spell(template.vocabulary[t : t + 1])}"
            for k, t in zip(group, given, strict=True)
            if t != MASK
        ]
        raise ValueError(
            f"tied residues must have one letter where they stay, but {', '.join(said)}; name "
            "one to be designed, or leave them untied"
        )
    return int(shown[0])


def _groups(
    names: Names, tied: Listed | None, symmetric: Listed | None
) -> tuple[list[IntArray], FloatArray]:
    """Return groups of tied residues, and how much every residue counts in its own."""
    groups: list[IntArray] = []
    weights = np.ones(len(names.numbers))
    if symmetric is not None:
        groups.extend(_of_homomer(names, items(symmetric)))
    for item in () if tied is None else items(tied):
        found = []
        for part in item.split("="):
            listed, _, weight = part.partition("*")
            found.append(names.find(listed))
            if weight:
                weights[found[-1]] = _number(weight, f"a weight in {item!r}")
        if len(found) < 2:
            raise ValueError(f"tied residues must be joined by '=', as in A10=B10; got {item!r}")
        lengths = [len(one) for one in found]
        if len(set(lengths)) > 1:
            raise ValueError(
                f"{item!r} ties residue by residue, but its parts have "
                f"{', '.join(map(str, lengths[:-1]))} and {lengths[-1]} residues"
            )
        groups.extend(np.stack(found, axis=1))
    for group in groups:
        if len(set(group.tolist())) < len(group):
            raise ValueError(
                f"{names.label(group[0])} must be tied to another residue than itself"
            )
    return groups, weights


def _of_homomer(names: Names, chains: list[str]) -> Iterator[IntArray]:
    """Yield the residues of every number of some chains."""
    chains = list(dict.fromkeys(chains))
    members = [names.of_chain(chain) for chain in chains]
    if len(chains) < 2:
        raise ValueError(f"a homomer must have two chains or more, got {chains[0]}")
    numbers = [[names.numbers[k] for k in mine] for mine in members]
    for chain, mine in zip(chains, numbers, strict=True):
        if mine != numbers[0]:
            alone = next((n for n in numbers[0] if n not in mine), None)
            where = (chains[0], chain)
            if alone is None:
                alone = next((n for n in mine if n not in numbers[0]), None)
                where = (chain, chains[0])
            why = (
                "number theirs in another order"
                if alone is None
                else f"{where[0]}{alone} has no counterpart in chain {where[1]}"
            )
            raise ValueError(
                f"chains of a homomer must have the same numbers, but {why}; tie what agrees, as "
                f"in tied='{chains[0]}10-25={chain}10-25'"
            )
    yield from np.stack(members, axis=1)


# ----- What may stand where -----------------------------------------------------------------


def read_rules(
    rules: str | os.PathLike[str] | Mapping[str, str],
) -> list[tuple[str, str, str]]:
    """Return where each rule stands, the residues that it is for, and what it says of them.

    Parameters
    ----------
    rules : path, or mapping of str to str
        A file has a rule in every line: residues, as everywhere, and after white space any of

        - ``AVL``: nothing but these letters;
        - ``-CP``: not these;
        - ``W:1.5``, ``DE:-2``: a number to add to the logits of these letters, in nats.

        ``*`` is every residue; what follows ``#`` is a comment. A mapping has residues and what is
        said of them: ``{"A10-25": "AVL", "A30": "-CP W:1.5"}``. Rules add up.
    """
    if isinstance(rules, Mapping):
        return [(f"rule {where!r}", where, said) for where, said in rules.items()]
    found = []
    for number, line in enumerate(read_text(rules, MOST_RULES).splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            origin = f"{os.fspath(rules)}, line {number}"
            found.append((origin, words[0], " ".join(words[1:])))
    return found


def _with_rules(
    template: Template,
    names: Names,
    omit: str | None,
    rules: str | os.PathLike[str] | Mapping[str, str] | None,
) -> Template:
    """Return the template with letters left out, allowed or favoured."""
    every = [] if rules is None else read_rules(rules)
    if omit is not None:
        every.insert(0, ("omitted letters", EVERY, f"-{omit}"))
    for origin, where, said in every:
        try:
            template = _with_rule(template, names.find(where), said.split())
        except ValueError as problem:
            raise ValueError(f"{origin}: {problem}") from None
    return template


def _with_rule(template: Template, positions: IntArray, words: Sequence[str]) -> Template:
    if not words:
        raise ValueError("a rule must say something of its residues: AVL, -CP or W:1.5")
    allowed = np.ones((template.length, template.vocab_size), dtype=np.bool_)
    wanted = [word for word in words if ":" not in word and not word.startswith("-")]
    if wanted:
        allowed[positions] = template.which("".join(wanted))
    for word in words:
        if word.startswith("-"):
            # What is never drawn may be left out too.
            left_out = np.isin(template.vocabulary, template.look_up(word[1:]))
            allowed[np.ix_(positions, left_out)] = False
        elif ":" in word:
            letters, _, bias = word.partition(":")
            template = template.favour(positions, letters, _number(bias, f"the bias in {word!r}"))
    return template if allowed.all() else template.allow(allowed)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ValueError(f"{what} must be a number, got {text!r}")
    return value
