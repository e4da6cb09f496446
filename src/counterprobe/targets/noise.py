"""Frozen noise (being written)."""


class FrozenNoise:
    """Placeholder."""
