"""Frame2seq: a masked model of the sequences that fold into a backbone.

Akpinaroglu and others, "Structure-conditioned masked language models for protein sequence design
generalize beyond the native sequence space", 2023. The package ``frame2seq`` carries three
networks whose logits are averaged. Its classifier says MIT and its licence file is empty; nothing
of it is shipped here. It asks for packages that nothing here needs, so that it is installed
without them: its checkpoints are read without importing it, into the network of
``point_attention.py``.

Its own ``design`` draws all residues from one evaluation: what the sampler ``one-batch`` does.
With any other sampler residues that were drawn are shown to the network again.

As in the package, residues are numbered along the chains one after another, and what is known of a
residue is where its N, CA and C are; the beta carbon is put where it would ideally be. A residue
that lacks one of the three is masked in the attention of all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterprobe.extras import load_extra
from counterprobe.models.letters import AMINO_ACIDS, Letters
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.models.proteins.on_backbone import BackboneModel
from counterprobe.models.proteins.point_attention import Frames, Network, Sizes, matrix_precision
from counterprobe.models.template import Template
from counterprobe.models.tied import TiedOracle
from counterprobe.models.torch import TorchOracle
from counterprobe.models.weights import (
    default_device,
    fill_in,
    package_folder,
    read_checkpoint,
    tensors_of,
)

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn import functional
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")
    nn, functional = torch.nn, torch.nn.functional

__all__ = ["INSTALL", "Frame2Seq", "MaskedFolding", "load_frame2seq"]

INSTALL = "pip install --no-deps frame2seq==0.0.8"
NETWORKS = ("model1", "model2", "model3")
MASK_ID = 20
LETTERS = Letters(AMINO_ACIDS, tuple(range(20)), MASK_ID)
# The atoms that make the frame of a residue: N, CA and C.
FRAME = slice(0, 3)
# The beta carbon: its bond, its angle with N, and its dihedral angle behind C.
BETA_BOND, BETA_ANGLE, BETA_DIHEDRAL = 1.522, 1.927, -2.143
# Distances of atoms are shown as this many bumps from 0 to 12 angstroms.
NUM_BUMPS, FARTHEST_BUMP = 24, 12.0
# Residues farther apart along the chain than this are alike.
MOST_APART = 32
# Bytes for the pairs of the states that are evaluated at once: on the host, and at most on a GPU.
HOST_BYTES = 1 << 28
DEVICE_BYTES = 1 << 34


def load_frame2seq(
    backbone: Backbone | str | Path | None = None,
    *,
    chains: str | Sequence[str] | None = None,
    fill_gaps: bool = False,
    weights: str | None = None,
    tf32: bool = False,
    device: Any = None,
) -> MaskedFolding:
    """Load Frame2seq for one backbone.

    Parameters
    ----------
    backbone : Backbone, or path of a PDB or mmCIF file, or "1ubi" or "1ake"
        Required; the last two are examples that are shipped.
    chains : str or sequence of str, optional
        Names of the chains to read from a file, such as ``"B,A"``; all by default.
    fill_gaps : bool
        Whether residues that a file leaves out within a chain are positions too.
    weights : str, optional
        One of its networks, ``model1``, ``model2`` or ``model3``; by default all three, whose
        logits are averaged.
    tf32 : bool
        Whether a GPU updates pairs of residues with its matrix units, in numbers of ten bits: by
        one kernel where Triton is there. Faster, and less exact
        (``benchmarks/masked_folding.py`` measures both). It is part of the digest: rows so
        computed are the law, and the row error says how far they move between batches, not how
        far they are from those of full precision.
    device : optional
        A GPU where there is one, by default.
    """
    if not isinstance(backbone, Backbone):
        backbone = Backbone.named(backbone, chains, fill_gaps=fill_gaps)
    if weights is not None and weights not in NETWORKS:
        raise ValueError(
            f"weights must be one of {', '.join(NETWORKS)}, or left out for all; got {weights!r}"
        )
    folder = package_folder("frame2seq", INSTALL, "frame2seq") / "trained_models"
    names = NETWORKS if weights is None else (weights,)
    networks = [_read_network(folder / f"{name}.ckpt") for name in names]
    place = default_device(device)
    model = Frame2Seq([one.to(place) for one in networks], backbone, tf32=tf32)
    return MaskedFolding(
        model.eval(), backbone, "frame2seq" if weights is None else f"frame2seq {weights}"
    )


class MaskedFolding(BackboneModel):
    """Frame2seq on one backbone: reads templates and makes oracles.

    Parameters
    ----------
    network : Frame2Seq
        In evaluation mode.
    backbone : Backbone
    name : str
        Of the network.
    """

    network: Frame2Seq

    def __init__(self, network: Frame2Seq, backbone: Backbone, name: str = "frame2seq") -> None:
        super().__init__(name, network, LETTERS, backbone, FRAME)

    def oracle(
        self, template: Template | str | None = None, **options: Any
    ) -> TorchOracle | TiedOracle:
        """Return the oracle of one template; options as for :class:`TorchOracle`."""
        template = self.read(template)
        if template.tied is not None:
            return TiedOracle.of(self.oracle, template, **options)
        settings = {"name": self.name, "batch_size": self.network.fitting_states()}
        return TorchOracle(self.network, template, **{**settings, **options})


class Frame2Seq(nn.Module):
    """Networks on one backbone, their logits averaged.

    Parameters
    ----------
    networks : sequence of Network
        On their device.
    backbone : Backbone
    tf32 : bool
        See :func:`load_frame2seq`.
    """

    def __init__(
        self, networks: Sequence[Network], backbone: Backbone, *, tf32: bool = False
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        like = next(networks[0].parameters())
        atoms, is_known = atoms_of(backbone), torch.as_tensor(backbone.has(FRAME))
        # What rows depend on beside the weights, so that a digest sees it.
        self.register_buffer("atoms", atoms.to(like.device))
        self.register_buffer("is_known", is_known.to(like.device))
        self._fast, self._num_heads = tf32, networks[0].sizes.num_heads
        self._is_fused = tf32 and like.is_cuda and _fuse(networks)
        self.register_buffer("tf32", torch.tensor(tf32, device=like.device))
        self.register_buffer("one_kernel", torch.tensor(self._is_fused, device=like.device))
        with torch.no_grad(), matrix_precision(short=False):
            self._frames = _frames_of(atoms, is_known, like)
            single = single_features(atoms, networks[0].sizes.width)
            pair = PairFeatures(atoms)
            self._terms = [_terms_of(one, single, pair, like) for one in networks]

    def forward(
        self,
        ids: torch.Tensor,
        places: torch.Tensor | None = None,
        output_attentions: bool = False,
    ) -> torch.Tensor | tuple[torch.Tensor, list[torch.Tensor]]:
        """Return logits of shape ``(B, L, 21)``, with the attention of each block if asked.

        Parameters
        ----------
        ids : Tensor of int, shape (B, L)
            Letters from 0 to 19, 20 for a mask.
        places : Tensor of int, shape (R,), optional
            The residues whose logits are wanted, shape ``(B, R, 21)``; all by default.
        output_attentions : bool
            Of all networks: as many heads as they have together.
        """
        found: list[torch.Tensor] = []
        attention: list[list[torch.Tensor]] = [[] for _ in self.networks]
        with matrix_precision(short=False):
            for number, (base, letters, pairs) in enumerate(self._terms):
                logits = self.networks[number](
                    base + letters[ids],
                    pairs,
                    self._frames,
                    fast_pairs=self._fast,
                    rows=places,
                    attention=attention[number] if output_attentions else None,
                )
                found.append(logits)
        mean = torch.stack(found).mean(dim=0)
        if not output_attentions:
            return mean
        return mean, [torch.cat(heads, dim=1) for heads in zip(*attention, strict=True)]

    def fitting_states(self) -> int:
        """Return a number of states whose pairs are sure to fit into memory."""
        pairs = self._terms[0][2]
        # Pairs, and scores of every head in three stages.
        width = pairs.shape[-1] // 2 if self._is_fused else pairs.shape[-1]
        per_state = pairs[..., 0].nbytes * (width + 3 * self._num_heads)
        room = HOST_BYTES
        if pairs.device.type == "cuda":
            room = min(DEVICE_BYTES, torch.cuda.mem_get_info(pairs.device)[0] // 3)
        return max(1, room // int(per_state))


def _fuse(networks: Sequence[Network]) -> bool:
    """Let networks on a GPU update pairs by one kernel; return whether they do."""
    try:
        from counterprobe.models.proteins.fused_pairs import fuse
    except ImportError:  # no Triton
        return False
    return all([fuse(one) for one in networks])


# ----- What a backbone says -----------------------------------------------------------------


def atoms_of(backbone: Backbone) -> torch.Tensor:
    """Return N, CA, C and an ideal beta carbon, shape (L, 4, 3); missing ones at the origin."""
    places = torch.as_tensor(backbone.coordinates[:, :3].astype(np.float64)).nan_to_num(0.0)
    nitrogen, alpha, carbon = places.unbind(1)
    along = functional.normalize(nitrogen - alpha, dim=-1, eps=0.0)
    across = functional.normalize(torch.linalg.cross(nitrogen - carbon, along), dim=-1, eps=0.0)
    beta = alpha + BETA_BOND * (
        np.cos(BETA_ANGLE) * along
        + np.sin(BETA_ANGLE) * np.cos(BETA_DIHEDRAL) * torch.linalg.cross(across, along)
        - np.sin(BETA_ANGLE) * np.sin(BETA_DIHEDRAL) * across
    )
    atoms = torch.cat([places, beta.nan_to_num(0.0)[:, None]], dim=1)
    # A residue without its frame has no beta carbon; the package keeps four decimals.
    return atoms.round(decimals=4)


def _frames_of(atoms: torch.Tensor, is_known: torch.Tensor, like: torch.Tensor) -> Frames:
    """Return frames by Gram-Schmidt: the first axis from N to CA, C in the plane of two."""
    nitrogen, alpha, carbon = atoms[:, :3].unbind(1)
    first = _unit(alpha - nitrogen)
    second = carbon - alpha
    second = _unit(second - (first * second).sum(-1, keepdim=True) * first)
    axes = torch.stack([first, second, torch.linalg.cross(first, second)], dim=-1)
    origins = alpha - alpha[is_known].mean(dim=0) if bool(is_known.any()) else alpha
    square = (origins[:, None] - origins[None]).square().sum(-1)
    barred = None
    if not bool(is_known.all()):
        # A residue without a place sees what it likes: nobody sees it.
        barred = (is_known[:, None] & ~is_known[None]).to(like.device)
    axes, origins, square = (part.to(like) for part in (axes, origins, square))
    return Frames(axes, origins, square, barred)


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / (vectors.square().sum(-1, keepdim=True) + 1e-8).sqrt()


def single_features(atoms: torch.Tensor, width: int) -> torch.Tensor:
    """Return what is known of residues: their place in sines, their dihedral angles.

    Parameters
    ----------
    atoms : Tensor, shape (L, 4, 3)
    width : int
        Of the sines.
    """
    length = len(atoms)
    steps = torch.arange(0, width, 2, dtype=torch.float64) / width
    turns = torch.arange(length, dtype=torch.float64)[:, None] * 10_000**-steps
    places = torch.stack([turns.sin(), turns.cos()], dim=-1).flatten(-2)
    chain = atoms[:, :3].reshape(3 * length, 3)
    bonds = functional.normalize(chain[1:] - chain[:-1], dim=-1)
    normals = functional.normalize(torch.linalg.cross(bonds[:-1], bonds[1:]), dim=-1)
    cosine = (normals[:-1] * normals[1:]).sum(-1).clamp(-1 + 1e-7, 1 - 1e-7)
    angle = torch.sign((bonds[:-2] * normals[1:]).sum(-1)) * torch.acos(cosine)
    angles = functional.pad(angle, (1, 2)).view(length, 3)
    return torch.cat([places, angles.cos(), angles.sin()], dim=-1)


class PairFeatures:
    """What is known of pairs of residues: distances of their atoms, and how far along they are.

    Parameters
    ----------
    atoms : Tensor, shape (L, 4, 3)
    """

    def __init__(self, atoms: torch.Tensor) -> None:
        self._atoms = atoms
        self.length = len(atoms)

    def rows(self, low: int, high: int) -> torch.Tensor:
        """Return the features of some residues with all, shape (high - low, L, 449)."""
        apart = self._atoms[low:high, None, :, None] - self._atoms[None, :, None]
        distance = apart.square().sum(-1).sqrt().flatten(-2)
        bumps = torch.linspace(0, FARTHEST_BUMP, NUM_BUMPS, dtype=distance.dtype)
        spread = FARTHEST_BUMP / NUM_BUMPS
        near = torch.exp(-(((distance[..., None] - bumps) / spread) ** 2)).flatten(-2)
        place = torch.arange(self.length)
        along = (place[low:high, None] - place).clamp(-MOST_APART, MOST_APART) + MOST_APART
        return torch.cat([near, functional.one_hot(along, 2 * MOST_APART + 1)], dim=-1)


def _terms_of(
    network: Network, single: torch.Tensor, pair: PairFeatures, like: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what a network makes of a backbone alone: residues, letters, pairs."""
    base = network.single(single.to(like))
    pairs = base.new_empty((pair.length, pair.length, network.sizes.pair_width))
    step = max(1, (1 << 16) // pair.length)
    for low in range(0, pair.length, step):
        rows = pair.rows(low, min(pair.length, low + step))
        pairs[low : low + step] = network.pair(rows.to(like))
    return base, network.letter_states(), pairs


# ----- Checkpoints --------------------------------------------------------------------------


def _read_network(file: Path) -> Network:
    """Read one of the package's networks."""
    checkpoint = read_checkpoint(file)
    hyper = checkpoint.get("hyper_parameters")
    config = hyper.get("config") if isinstance(hyper, Mapping) else None
    names = (
        "ipa_depth", "ipa_heads", "ipa_dim", "ipa_pairwise_repr_dim", "sequence_dim",
        "st_mod_tsit_factor",
    )  # fmt: skip
    if not isinstance(config, Mapping) or not all(isinstance(config.get(k), int) for k in names):
        raise ValueError(f"{file} does not say how large the network is")
    depth, heads, width, pair_width, letters, widening = (config[name] for name in names)
    features = 16 * NUM_BUMPS + 2 * MOST_APART + 1
    network = Network(
        Sizes(depth, heads, width, pair_width, letters, widening, width + 6, features)
    )
    state = tensors_of(checkpoint, file, "state_dict")
    fill_in(network, {_renamed(name, widening): value for name, value in state.items()}, file)
    return network


def _renamed(name: str, widening: int) -> str:
    """Turn a name of the package's network into ours."""
    # Parts of a block have numbers; a wide one has two more of them.
    update = ["widen", "transition", "narrow"] if widening > 1 else ["transition"]
    parts = ["attention", "", "norm", *update, "pairs"]
    name = re.sub(
        r"^layers\.(\d+)\.(\d+)\.",
        lambda found: f"blocks.{found[1]}.{parts[int(found[2])]}.",
        name,
    )
    for old, new in (
        (r"^sequence_to_single", "single"),
        (r"^edge_to_pair", "pair"),
        (r"^single_to_sequence", "head"),
        (r"^input_sequence_to_single", "letters"),
        (r"^input_sequence_layer_norm", "letters_norm"),
        (r"\.linear_q_points", ".query_points"),
        (r"\.linear_kv_points", ".key_value_points"),
        (r"\.linear_q\.", ".query."),
        (r"\.linear_kv\.", ".key_value."),
        (r"\.linear_b\.", ".pair_bias."),
        (r"\.linear_out\.", ".out."),
        (r"transition\.layers\.0\.linear_1", "transition.first"),
        (r"transition\.layers\.0\.linear_2", "transition.second"),
        (r"transition\.layers\.0\.linear_3", "transition.third"),
        (r"\.layer_norm\.", ".norm."),
        (r"\.initial_embed\.", ".embed."),
        (r"\.trunk\.0\.", ".first."),
        (r"\.trunk\.2\.", ".second."),
        (r"\.final_layer\.", ".last."),
    ):
        name = re.sub(old, new, name)
    return name
