"""Tables of structures that are used elsewhere."""

import tables  # noqa: F401 - first: it says where benchmarks are
from pages.carried import carried_tables

NATS = {"own": 0.1, "once": 0.2, "distance": 0.5, "spread": 1.0, "random": 2.0}


def template(shift: float, *left_out: str) -> dict[str, dict[str, float]]:
    return {f"{way} 4": {"kl": kl + shift} for way, kl in NATS.items() if way not in left_out}


def test_tables_show_prices_with_their_errors_and_the_difference_that_decides():
    parts = {f"25% fixed, template {k + 1}": template(0.024 * k) for k in range(2)}
    lines = carried_tables({"scaffold": {"tasks": {"1ake": parts}}})["scaffold"].splitlines()
    assert lines[-1] == (
        "| 1ake | 25% | 4 | 0.11 ± 0.01 | 0.21 ± 0.01 | 0.51 ± 0.01 | 1.01 ± 0.01 | 2.01 ± 0.01 "
        "| -0.300 ± 0.000 | 2 of 2 |"
    )
    assert carried_tables({}) == {}


def test_a_template_is_taken_from_the_file_that_has_most_of_it():
    name = "25% fixed, template 1"
    begun = {"scaffold": {"tasks": {"1ake": {name: template(5.0, "random")}}}}
    assert len(carried_tables(begun)["scaffold"].splitlines()) == 2, "half a template is none"
    both = {**begun, "scaffold_1ake": {"tasks": {"1ake": {name: template(0.0)}}}}
    last = carried_tables(both)["scaffold"].splitlines()[-1]
    assert last.startswith("| 1ake | 25% | 4 | 0.10 | 0.20 |") and last.endswith("| 1 of 1 |")
