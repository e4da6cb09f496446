"""Forests from a third of the probes: read masked neighbours too, and peel from the leaves."""
