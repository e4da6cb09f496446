"""The documentation site, which ``make docs`` builds from docs/, docstrings and commands."""
