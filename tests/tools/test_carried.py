"""Tables of structures that are used elsewhere."""

from pages.carried import carried_tables


def test_tables_show_prices_with_their_errors_and_the_difference_that_decides():
    nats = {"own": 0.1, "once": 0.2, "distance": 0.5, "spread": 1.0, "random": 2.0}
    row = {**nats, "once less distance": -0.0301}
    errors = {f"{name} se": 0.0114 for name in row}
    told = {
        "task": "1ake",
        "fixed": 0.25,
        "batches": 4,
        "templates": 3,
        "cheaper than distance": 2,
    }
    claims = [{**told, **row, **errors}]
    lines = carried_tables({"scaffold": {"claims": claims}})["scaffold"].splitlines()
    assert lines[-1] == (
        "| 1ake | 25% | 4 | 0.10 ± 0.01 | 0.20 ± 0.01 | 0.50 ± 0.01 | 1.00 ± 0.01 | 2.00 ± 0.01 "
        "| -0.030 ± 0.011 | 2 of 3 |"
    )
    assert carried_tables({}) == {}
