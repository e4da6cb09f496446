"""Samplers, all behind the same call and the same ledger.

Ours stand here, other people's in ``peers/``, what several share in ``rules/``.
"""

from counterprobe.samplers.auto import Auto
from counterprobe.samplers.balanced import OneBatch, RandomBalanced, Spread
from counterprobe.samplers.base import Sampler, Sweep
from counterprobe.samplers.centroid_layers import CentroidLayers
from counterprobe.samplers.compressed import Compressed
from counterprobe.samplers.packed import Packed
from counterprobe.samplers.packed_theory import PackedTheory
from counterprobe.samplers.peers.ancestral import Ancestral, ReMDM
from counterprobe.samplers.peers.assd import ASSD
from counterprobe.samplers.peers.autospeculation import Autospeculation
from counterprobe.samplers.peers.dapd import DAPD
from counterprobe.samplers.peers.dawn import DAWN
from counterprobe.samplers.peers.demask import DEMASK
from counterprobe.samplers.peers.dependence import (
    ChenCongLi,
    InformationCurve,
    InformationProfile,
    LiCai,
)
from counterprobe.samplers.peers.freedave import FreeDave
from counterprobe.samplers.peers.lookahead import InfoGain, LookUM
from counterprobe.samplers.peers.mean_field import MeanField
from counterprobe.samplers.peers.punt import PUNT
from counterprobe.samplers.peers.random_times import EffectiveTC, ZhaoCai
from counterprobe.samplers.peers.threshold import KLASS, EntropyBounded, Factor, Threshold
from counterprobe.samplers.peers.topk import Dream, LLaDA, MaskGIT
from counterprobe.samplers.peers.universal_coupling import (
    UniversalCoupling,
    coupling_disagreement,
)
from counterprobe.samplers.peers.wino import WINO
from counterprobe.samplers.planned import Planned
from counterprobe.samplers.registry import SAMPLERS, as_sampler, build_sampler, describe_samplers
from counterprobe.samplers.rules.stepwise import Reply, Stepwise
from counterprobe.samplers.sequential import Sequential
from counterprobe.samplers.structured import Structured

__all__ = [
    "ASSD",
    "DAPD",
    "DAWN",
    "DEMASK",
    "KLASS",
    "PUNT",
    "SAMPLERS",
    "WINO",
    "Ancestral",
    "Auto",
    "Autospeculation",
    "CentroidLayers",
    "ChenCongLi",
    "Compressed",
    "Dream",
    "EffectiveTC",
    "EntropyBounded",
    "Factor",
    "FreeDave",
    "InfoGain",
    "InformationCurve",
    "InformationProfile",
    "LLaDA",
    "LiCai",
    "LookUM",
    "MaskGIT",
    "MeanField",
    "OneBatch",
    "Packed",
    "PackedTheory",
    "Planned",
    "RandomBalanced",
    "ReMDM",
    "Reply",
    "Sampler",
    "Sequential",
    "Spread",
    "Stepwise",
    "Structured",
    "Sweep",
    "Threshold",
    "UniversalCoupling",
    "ZhaoCai",
    "as_sampler",
    "build_sampler",
    "coupling_disagreement",
    "describe_samplers",
]
