"""The tables of docs/peers.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from counterprobe.samplers import SAMPLERS
from rivals.exponents import Exponent, fit
from rivals.pretrained import SHOWN, pretrained_rows
from rivals.published import PUBLISHED, cap_exponents, caps_at, is_feasible, marked

__all__ = ["Cells", "learned_needs", "mean_need", "tables"]

Cell = dict[str, Any]
Cells = Mapping[str, Cell]

LETTERS = {"select": "S", "candidates": "C", "verify": "V", "remask": "M"}
# What is left of zero after a sum of logarithms.
ROUNDING = 1e-12
# Nats between mean log-probabilities, and the share of one batch's distance in pairs, that count
# as close to the truth of a denoiser: some six standard errors of 256 sequences.
CLOSE, CLOSE_PAIRS = 3.0, 0.1


def sizes_of(cells: Cells, family: str) -> list[int]:
    """Return the sizes at which a family was measured."""
    return sorted({int(key.split()[1]) for key in cells if key.split()[0] == family})


def samplers_of(cells: Cells, family: str) -> list[str]:
    """Return what was measured on a family, laws left out."""
    names = {key.split(maxsplit=2)[2] for key in cells if key.split()[0] == family}
    return sorted(names - {"law"})


def cell_of(cells: Cells, family: str, size: int, name: str) -> Cell | None:
    """Return a cell with numbers, or None."""
    found = cells.get(f"{family} {size} {name}")
    return found if found is not None and found.get("evaluations") is not None else None


def largest_cell(cells: Cells, family: str, name: str) -> tuple[int, Cell] | None:
    """Return the largest size at which a sampler has numbers, and its cell."""
    for size in reversed(sizes_of(cells, family)):
        found = cell_of(cells, family, size, name)
        if found is not None:
            return size, found
    return None


def exponent_of(cells: Cells, family: str, name: str, count: str) -> Exponent:
    """Fit how a count grows over the sizes at which the sampler met the accuracy."""
    sizes = sizes_of(cells, family)
    costs = []
    for size in sizes:
        found = cell_of(cells, family, size, name)
        costs.append(found[count] if found is not None and found["meets"] else None)
    return fit(sizes, costs)


def tables(
    cells: Cells,
    learned: Mapping[str, Any] | None = None,
    pretrained: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """Return every table by name, in Markdown.

    Parameters
    ----------
    cells : mapping
        What was measured on laws.
    learned : mapping or None
        The laws of the denoiser benchmark, if it was run.
    pretrained : mapping or None
        The tasks of the benchmarks of antibodies and proteins, likewise.
    """
    made = {
        "resources": _resources(cells),
        "two-type-path": _strongest(cells, "two-type-path"),
        "families": _families(cells),
        "dependence": _dependence(cells),
    }
    if learned is not None:
        made["learned"] = _learned(learned)
    if pretrained is not None:
        rows = [[_shown_name(name), *row] for name, *row in pretrained_rows(pretrained)]
        made["pretrained"] = _table(["sampler", *SHOWN], rows, left=1)
    return made


# ----- Laws ---------------------------------------------------------------------------------


def _resources(cells: Cells) -> str:
    """Set what papers state beside what was measured on the two-type path."""
    family = "two-type-path"
    size = max(sizes_of(cells, family))
    lines = []
    for row in PUBLISHED:
        stated = [row.who, row.evaluations, row.stages, row.output]
        found = largest_cell(cells, family, row.sampler)
        if row.case is not None:
            caps, growth = caps_at(size, row.case), cap_exponents(row.case)
            state = "caps" if is_feasible(size, row.case) else "caps; infeasible at this N"
            measured = [
                f"`packed-theory`, {state}", f"{caps.evaluations:,}", str(growth[0]),
                f"{caps.stages:,}",
                str(growth[1]), "-", "-",
            ]  # fmt: skip
        elif found is None:
            measured = [marked(row.sampler), *["-"] * 6]
        else:
            measured = _measured(cells, family, row.sampler)
        lines.append([*stated, *measured])
    heading = [
        "who", "evaluations", "stages", "output", "here", f"evaluations, N = {size:,}", "exponent",
        "stages", "exponent", "widest stage", "batch KL",
    ]  # fmt: skip
    return _table(heading, lines, left=5)


def _measured(cells: Cells, family: str, name: str) -> list[str]:
    """Return a sampler's name, costs and quality at its largest size, and how costs grow."""
    found = largest_cell(cells, family, name)
    assert found is not None
    at, cell = found
    return [
        marked(name) + ("" if at == max(sizes_of(cells, family)) else f" (N = {at:,})"),
        _count(cell["evaluations"]),
        str(exponent_of(cells, family, name, "evaluations")),
        _count(cell["stages"]),
        str(exponent_of(cells, family, name, "stages")),
        _count(cell["widest_stage"]),
        _quality(cell),
    ]


def _strongest(cells: Cells, family: str) -> str:
    """Return every sampler at its strongest setting, at the largest size, cheapest first."""
    size = max(sizes_of(cells, family))
    rows: list[tuple[tuple[bool, float], list[str]]] = []
    for name in samplers_of(cells, family):
        found = largest_cell(cells, family, name)
        if found is None:
            continue
        at, cell = found
        cheap = (not cell["meets"], cell["evaluations"] * size / at)
        # Rights are those of the rule; what it does with them here may need none.
        letters = "".join(LETTERS.get(need, "") for need in cell["needs"])
        rows.append(
            (
                cheap,
                [
                    marked(name) + ("" if at == size else f" (N = {at:,})"),
                    _settings(name, cell),
                    letters,
                    "yes" if cell["knows"] else "",
                    _count(cell["evaluations"]),
                    str(exponent_of(cells, family, name, "evaluations")),
                    _count(cell["stages"]),
                    str(exponent_of(cells, family, name, "stages")),
                    _count(cell["widest_stage"]),
                    _ratio(cell["tokens_per_forward"]),
                    _quality(cell) + ("" if _is_fine(cell) else ", too much"),
                ],
            )
        )
    heading = [
        "sampler", "setting", "needs", "told", "evaluations", "exponent", "stages", "exponent",
        "widest stage", "tokens per forward", "batch KL",
    ]  # fmt: skip
    return _table(heading, [row for _, row in sorted(rows, key=lambda r: r[0])], left=4)


def _families(cells: Cells) -> str:
    """Return evaluations, stages and the growth of evaluations on every other family."""
    families = [f for f in _families_of(cells) if f != "two-type-path"]
    names = sorted({name for family in families for name in samplers_of(cells, family)})
    lines = []
    for name in names:
        line = [marked(name)]
        for family in families:
            found = largest_cell(cells, family, name)
            if found is None:
                line += ["-", "-"]
                continue
            at, cell = found
            small = "" if at == max(sizes_of(cells, family)) else f" at {at}"
            broken = "" if _is_fine(cell) else " (too much KL)"
            line.append(f"{_count(cell['evaluations'])} / {_count(cell['stages'])}{small}{broken}")
            line.append(str(exponent_of(cells, family, name, "evaluations")))
        lines.append(line)
    heading = ["sampler"]
    for family in families:
        heading += [f"{family}, N = {max(sizes_of(cells, family)):,}", "exponent"]
    return _table(heading, lines, left=1)


def _families_of(cells: Cells) -> list[str]:
    return list(dict.fromkeys(key.split()[0] for key in cells))


def _dependence(cells: Cells) -> str:
    lines = []
    for family in _families_of(cells):
        size = max(sizes_of(cells, family))
        law = cells.get(f"{family} {size} law")
        if law is None:
            continue
        numbers = [
            f"{law[name]:.3g}" + (f" ± {law[f'{name}_se']:.1g}" if law.get(f"{name}_se") else "")
            for name in ("tc", "dtc", "effective_tc", "reference_kl")
        ]
        lines.append([family, f"{size:,}", *numbers])
    heading = ["law", "N", "TC", "DTC", "effective TC", "one batch, product to joint"]
    return _table(heading, lines, left=1)


def _settings(name: str, cell: Cell) -> str:
    if " " in name:  # the settings are part of its name
        return ""
    shown = [
        f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in cell["settings"].items()
    ]
    return ", ".join(shown)


def _quality(cell: Cell) -> str:
    if cell["exact"]:
        return "exact"
    kl = cell["batch_kl"]
    if kl is None:
        return "does not apply"
    return "0" if abs(kl) < ROUNDING else f"{kl:.2g}"


def _is_fine(cell: Cell) -> bool:
    """Whether nothing is known against its quality."""
    return bool(cell["meets"]) or cell["batch_kl"] is None


def _ratio(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:.1f}"


# ----- Learned models -----------------------------------------------------------------------


def learned_needs(laws: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the fewest evaluations at which a sampler is close to the truth, by name and law.

    Close: the mean log-probability under the true law is within ``CLOSE`` nats of the truth's, and
    the squared distance of pair frequencies on its edges is at most a tenth of what one batch has.
    Both need draws alone, so that every rule has them; the second sees what a rule gains that
    draws only likely values. Infinite where no setting is close.
    """
    needs: dict[str, dict[str, float]] = {}
    for law, parts in laws.items():
        entries = [
            entry
            for entry in parts.get("samplers", {}).values()
            if "error" not in entry and entry["sampler"] != "truth"
        ]
        broken = next(e["edge_distance"] for e in entries if e["sampler"] == "one-batch")
        for entry in entries:
            mine = needs.setdefault(entry["sampler"], {})
            is_close = (
                abs(entry["energy_gap"]) <= CLOSE
                and entry["edge_distance"] <= CLOSE_PAIRS * broken
            )
            needed = entry["evaluations"] if is_close else math.inf
            mine[law] = min(mine.get(law, math.inf), needed)
    return needs


def mean_need(mine: Mapping[str, float]) -> tuple[int, float]:
    """Rank a sampler: on how many laws it is never close, then the geometric mean elsewhere."""
    known = [math.log(value) for value in mine.values() if math.isfinite(value)]
    return len(mine) - len(known), sum(known) / max(1, len(known))


def _learned(laws: Mapping[str, Any]) -> str:
    needs = learned_needs(laws)
    lines = [
        [
            _shown_name(name),
            *(_need(needs[name][law]) if law in needs[name] else "-" for law in laws),
        ]
        for name in sorted(needs, key=lambda name: mean_need(needs[name]))
    ]
    return _table(["sampler", *laws], lines, left=1)


def _shown_name(name: str) -> str:
    return marked(name) if name in SAMPLERS else name


def _need(value: float) -> str:
    return _count(value) if math.isfinite(value) else "never"


def _table(heading: Sequence[str], lines: Iterable[Sequence[str]], *, left: int) -> str:
    """Write a Markdown table; the first columns to the left, numbers to the right."""
    escape: Callable[[str], str] = lambda text: text.replace("|", "\\|")  # noqa: E731
    rule = ["---" if k < left else "---:" for k in range(len(heading))]
    rows = [heading, rule, *lines]
    return "\n".join("| " + " | ".join(map(escape, row)) + " |" for row in rows)
