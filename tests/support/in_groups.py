"""Oracles that want several queries of a stage at once."""

from dataclasses import replace

from counterprobe.oracles import OracleInfo
from counterprobe.testing import CountingOracle


class InGroups(CountingOracle):
    """Wants the states of a stage six at a time."""

    @property
    def info(self) -> OracleInfo:
        return replace(super().info, stream_states=6)
