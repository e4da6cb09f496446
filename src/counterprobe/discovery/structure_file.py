"""Structure files: NumPy arrays and a JSON header in a zip archive, with a digest over both.

A file has the fields of a structure, and those of its certificate and its strengths where it has
them. Nothing in it is executable, and it appears whole or not at all. Reading trusts nothing: only
the arrays of a structure are unpacked, each after its size was derived from its own header, and
every field is checked before a structure is made of them. Nothing is repaired: what is wrong is
refused, by a ``StructureError`` that says which field and why.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from counterprobe.archives import Head, read_arrays
from counterprobe.digests import digest_of
from counterprobe.errors import StructureError
from counterprobe.files import special_kind, whole_file
from counterprobe.graph import check_edges
from counterprobe.run.ledger import Ledger
from counterprobe.states import MASK

__all__ = ["FORMAT", "array", "arrays_of", "contents", "digest", "number", "read", "write"]

FORMAT = "counterprobe structure 3"
# All arrays of one structure together, in bytes.
MOST_ARRAYS = 2**31
# The texts of a file, and how many bytes they may have.
TEXTS = {"header": 2**22, "digest": 2**10}

Arrays = Mapping[str, NDArray[Any]]
Kinds = Mapping[str, type]


@dataclass(frozen=True, slots=True)
class Kept:
    """How files hold an array.

    Attributes
    ----------
    dtype : type
    shape : str
        A letter for each size, which is the same wherever the letter stands.
    least, most : float or str
        Of its values; a letter stands for the largest index of something of that size, V for the
        largest token.
    may_lack : bool
        Whether some values may be unknown: NaN.
    """

    dtype: type[np.generic]
    shape: str
    least: float = 0
    most: float | str = math.inf
    may_lack: bool = False


def array(*how: Any, **more: Any) -> dict[str, Any]:
    """Return the metadata of a field that is an array; see :class:`Kept`."""
    return {"array": Kept(*how, **more)}


def number(least: float, most: float) -> dict[str, Any]:
    """Return the metadata of a field that is a number, a whole one where its limits are."""
    return {"number": (least, most)}


def arrays_of(kind: type) -> dict[str, Kept]:
    """Return how files hold the arrays of a class."""
    return {one.name: one.metadata["array"] for one in fields(kind) if "array" in one.metadata}


def _values_of(kind: type, parts: Kinds) -> dict[str, Mapping[str, Any]]:
    """Return what else a class has, which headers hold, with its metadata."""
    named = {one.name: one.metadata for one in fields(kind) if one.name not in parts}
    return {name: known for name, known in named.items() if "array" not in known}


def _present(names: Iterable[str], parts: Kinds) -> Kinds:
    """Return the parts of which there are arrays."""
    there = set(names)
    return {name: kind for name, kind in parts.items() if there & set(arrays_of(kind))}


def contents(whole: Any, parts: Kinds) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays of a structure, with the parts that it has, and its other values."""
    arrays: dict[str, NDArray[Any]] = {}
    values: dict[str, Any] = {}
    for one in (whole, *(getattr(whole, name) for name in parts)):
        if one is not None:
            arrays |= {name: getattr(one, name) for name in arrays_of(type(one))}
            values |= {name: getattr(one, name) for name in _values_of(type(one), parts)}
    return arrays, values


def digest(text: str, arrays: Arrays) -> str:
    """Return what tells a header and arrays from others."""
    named = (part for name in sorted(arrays) for part in (name.encode(), arrays[name]))
    return digest_of(text.encode(), *named).hex()


def write(path: str | os.PathLike[str], whole: Any, parts: Kinds) -> None:
    """Write a structure to a file, which appears whole or not at all.

    Parameters
    ----------
    path : path
    whole : object
        A dataclass with a ``ledger``, of which the arrays are declared by :func:`array`.
    parts : mapping of str to type
        Fields that are such dataclasses themselves, or None.
    """
    arrays, values = contents(whole, parts)
    header = {"format": FORMAT, **values, "ledger": asdict(whole.ledger)}
    text = json.dumps(header, sort_keys=True, default=np.generic.item)
    members = {"header": np.array(text), "digest": np.array(digest(text, arrays)), **arrays}
    # What could not be read back is not worth keeping.
    with _saying(f"cannot save to {os.fspath(path)}"):
        heads = {name: (array.dtype, array.shape) for name, array in members.items()}
        _check_heads(heads, type(whole), parts)
        _made(json.loads(text), arrays, type(whole), parts)
    with whole_file(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, **members)


def read(path: str | os.PathLike[str], kind: type, parts: Kinds) -> Any:
    """Read what :func:`write` wrote; raise ``StructureError`` if anything about it is wrong."""
    if (special := special_kind(path)) is not None:  # opening a pipe would wait for ever
        raise StructureError(f"{os.fspath(path)} is {special}; a structure is a regular file")
    known = {*TEXTS, *(name for one in (kind, *parts.values()) for name in arrays_of(one))}
    with _saying(f"cannot read {os.fspath(path)}"):
        arrays = read_arrays(
            path, known, MOST_ARRAYS, lambda heads: _check_heads(heads, kind, parts)
        )
        text, told = (str(arrays.pop(name)[()]) for name in TEXTS)
        if told != digest(text, arrays):
            refuse("it was changed after it was saved: its digest does not match")
        for name, values in arrays.items():
            arrays[name] = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("="))
        return _made(json.loads(text), arrays, kind, parts)


@contextmanager
def _saying(task: str) -> Iterator[None]:
    """Say in one line what was attempted and why it failed."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # damaged archives make zipfile, NumPy and JSON raise anything
        problem = f"it is not a structure file, or is damaged ({type(error).__name__}: {error})"
        if isinstance(error, StructureError):
            problem = str(error)
        line = " ".join(f"{task}: {problem}".split())[:400]
        raise StructureError(f"{line}; discover the structure again") from error


def _made(header: Any, arrays: Arrays, kind: type, parts: Kinds) -> Any:
    """Return the structure that a header and arrays are; refuse what is none."""
    if not isinstance(header, dict):
        refuse(f"its header must be an object, got {reprlib.repr(header)}")
    if (found := header.get("format")) != FORMAT:
        refuse(f"it has the format {reprlib.repr(found)}, this version reads {FORMAT!r} only")
    present = _present(arrays, parts)
    kinds = (kind, *present.values())
    values = {name: known for one in kinds for name, known in _values_of(one, parts).items()}
    if differing := sorted({"format", *values} ^ set(header)):
        refuse(f"its header lacks or has too many of {reprlib.repr(differing)}")
    _check_values(header, values)
    num_states, length = arrays["sample_states"].shape
    sizes = {"S": num_states, "N": length, "V": header["vocab_size"]}
    for one in kinds:
        for name, how in arrays_of(one).items():
            _check_range(name, arrays[name], how, sizes)
    _check_sample(arrays, header["row_width"])
    if "certificate" in present:
        _check_certificate(arrays)
    if "strengths" in present:
        _check_strengths(arrays)
    known = {**header, **arrays, "ledger": Ledger(**header["ledger"])}

    def made(one: type, **more: Any) -> Any:
        return one(**{k: known[k] for k in (*arrays_of(one), *_values_of(one, parts))}, **more)

    return made(kind, **{name: made(one) for name, one in present.items()})


# ----- Checks of fields ----------------------------------------------------------------------


def refuse(problem: str) -> NoReturn:
    """Say what is wrong with a file."""
    raise StructureError(problem)


def _check_heads(heads: Mapping[str, Head], kind: type, parts: Kinds) -> None:
    """Refuse names, types and shapes that no structure has, before anything is unpacked."""
    kinds = (kind, *_present(heads, parts).values())
    layout = {name: expected for one in kinds for name, expected in arrays_of(one).items()}
    if missing := sorted({*TEXTS, *layout} - set(heads)):
        refuse(f"it is not a structure file: it lacks {', '.join(missing)}")
    for name, most in TEXTS.items():
        dtype, shape = heads[name]
        if dtype.kind != "U" or shape != () or dtype.itemsize > most:
            refuse(f"{name} must hold one text of at most {most} bytes")
    sizes = {"2": 2}
    for name, how in layout.items():
        dtype, shape = heads[name]
        if dtype.newbyteorder("=") != np.dtype(how.dtype):
            refuse(f"{name} must have the type {how.dtype.__name__}, got {dtype}")
        named = zip(how.shape, shape, strict=False)
        fits = all(sizes.setdefault(letter, size) == size for letter, size in named)
        if not fits or len(shape) != len(how.shape):
            known = ", ".join(str(sizes.get(letter, letter)) for letter in how.shape)
            refuse(f"{name} must have the shape ({known}), got {shape}")
    if sizes["N"] < 1:
        refuse("it has no positions")
    total = sum(math.prod(shape) * dtype.itemsize for dtype, shape in heads.values())
    if total > MOST_ARRAYS:
        refuse(f"its arrays take {total} bytes, more than the {MOST_ARRAYS} of any structure")


def _check_values(header: Mapping[str, Any], values: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse values of a header that no structure has."""
    for name, kind in (("about", dict), ("ledger", dict), ("reason", str)):
        if name in header and type(header[name]) is not kind:
            what = "a text" if kind is str else "an object"
            refuse(f"{name} must be {what}, got {reprlib.repr(header[name])}")
    if unknown := sorted(set(header["ledger"]) - {one.name for one in fields(Ledger)}):
        refuse(f"ledger has unknown counts: {reprlib.repr(unknown)}")
    found_at = header["about"].get("temperature", 1.0)
    numbers = [("about.temperature", found_at, (1e-300, sys.float_info.max))]
    numbers += [(f"ledger.{name}", n, (0, 2**63 - 1)) for name, n in header["ledger"].items()]
    numbers += [(k, header[k], known["number"]) for k, known in values.items() if known]
    for name, value, (least, most) in numbers:
        kinds = (int,) if type(least) is int else (int, float)
        if type(value) not in kinds or not least <= value <= most:
            what = "whole number" if len(kinds) == 1 else "number"
            refuse(f"{name} must be a {what} from {least} to {most}, got {reprlib.repr(value)}")


def _check_range(name: str, values: NDArray[Any], how: Kept, sizes: Mapping[str, int]) -> None:
    """Refuse values of an array that are out of range."""
    most = sizes[how.most] - 1 if isinstance(how.most, str) else how.most
    if values.dtype == np.bool_:
        values, most = values.view(np.uint8), 1
    if how.may_lack:
        values = values[~np.isnan(values)]
    if not ((values >= how.least) & (values <= most) & (values < math.inf)).all():
        refuse(f"{name} must lie in {how.least}..{most}, got {values.min()}..{values.max()}")


def _check_sample(arrays: Arrays, row_width: int) -> None:
    """Refuse edges, stored replies and nearness that no structure has."""
    given, states, near = arrays["given"], arrays["sample_states"], arrays["nearness"]
    check_edges(len(given), arrays["edges"])
    if ((given != MASK) & (states != given)).any():
        refuse("sample_states must agree with given")
    if (states[arrays["sample_index"], arrays["sample_position"]] != MASK).any():
        refuse("stored replies must be those of masked positions")
    if arrays["sample_rows"].shape[1] > row_width:
        refuse(f"sample_rows must have at most row_width = {row_width} entries a row")
    if len(near) not in (0, len(given)):
        refuse(f"nearness must be of {len(given)} positions, got {len(near)}")
    if (near.sum(axis=1) > 1 + 1e-3).any():
        refuse(f"nearness must sum to at most 1, got {near.sum(axis=1).max()}")


def _check_certificate(arrays: Arrays) -> None:
    """Refuse what no certificate has."""
    is_masked = arrays["given"] == MASK
    if np.isnan(arrays["misfit"][is_masked & arrays["is_resolved"]]).any():
        refuse("misfit must be a number where a position is resolved")
    if arrays["is_tested"].any() and arrays["unary"].shape[1] == 0:
        refuse("is_tested names positions, but there are no terms to test them by")


def _check_strengths(arrays: Arrays) -> None:
    """Refuse strengths of other pairs than there are, and halves of other ones than all."""
    given, pairs, is_known = arrays["given"], arrays["pairs"], ~np.isnan(arrays["moved"])
    for name in ("most_moved", "explained"):
        if np.isnan(arrays[name][is_known]).any():
            refuse(f"{name} must be a number wherever moved is")
    if (pairs[:, 0] >= pairs[:, 1]).any():
        refuse("pairs must have the smaller position first")
    if len(np.unique(pairs, axis=0)) != len(pairs):
        refuse("a pair is there twice")
    if (given[pairs] != MASK).any():
        refuse("a pair names a position that was given")
    masked = int((given == MASK).sum())
    count, expected = arrays["half_strength"].shape[1], masked * (masked - 1) // 2
    if count not in (0, expected):
        refuse(f"half_strength must have {expected} pairs of {masked} positions, got {count}")
