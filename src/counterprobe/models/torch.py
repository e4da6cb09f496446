"""Any torch model that maps token ids to logits, as an oracle.

``TorchOracle`` fills a template with each state's tokens, calls the model on as many of them as
fit into memory, and returns rows that stay on the model's device. It handles what a hand-written
wrapper forgets: special tokens, tokens that are not allowed, logits in half precision, states that
round differently in another batch, and memory that runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from counterprobe.arrays import FloatArray, IntArray, StateArray
from counterprobe.errors import OracleError
from counterprobe.extras import load_extra
from counterprobe.models.calling import Calling
from counterprobe.models.digests import LastDigest, rows_digest
from counterprobe.models.memory import BatchSize, is_out_of_memory
from counterprobe.models.repeatability import Repeatability, measure_repeatability
from counterprobe.models.rows import Softmax
from counterprobe.models.template import Allowed, Template, names_tokens
from counterprobe.oracles import Attends, OracleInfo, Readouts, RowOracle
from counterprobe.rows import Rows
from counterprobe.states import as_states

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["TorchOracle"]

T = TypeVar("T")

# Bytes of logits in one call when nothing is said: on the host, and at most on a device.
HOST_BYTES = 1 << 27
DEVICE_BYTES = 1 << 32
# Weights of one head in a call with attention: those of all heads and layers are kept for a while.
HEAD_WEIGHTS = 1 << 20
# On the host larger batches gain nothing: caches are small.
HOST_TOKENS = 1 << 13


class TorchOracle(RowOracle):
    """A torch model as an oracle.

    Parameters
    ----------
    model : callable
        Takes ids, an integer tensor of shape ``(B, L)``, and returns logits of shape ``(B, L, W)``
        as a tensor, as the attribute or key ``logits``, or as the first of a tuple. A module must
        be in evaluation mode. One whose signature has ``places=None`` is told where logits are
        wanted, an integer tensor of shape ``(R,)``, and returns those alone, ``(B, R, W)``.
    template : Template, optional
        What is given and what may stand where. Without one, ``length`` positions are masked.
    length : int, optional
        Number of positions, without a template.
    mask_id : int, optional
        What the model reads at a masked position; a template knows it.
    allowed : optional
        Which tokens may stand where, named by model id; see :meth:`Template.allow`. Without a
        template and alike everywhere, it is the vocabulary.
    temperature : float
        Logits are divided by it: a declared change of the law.
    shift : bool
        Whether the logits of a position are read one place to its left, as in models made from
        left-to-right ones.
    attention_mask : bool, optional
        Whether to pass an attention mask of ones; by default where the model takes one.
    attention : bool, optional
        Whether the model returns attention weights when called with ``output_attentions=True``
        (attribute or key ``attentions``, or last of a tuple: one tensor of shape
        ``(B, heads, L, L)`` a layer); by default where its signature or its transformers
        settings say so. Rules that want attention probe where there is none.
    batch_size : int, optional
        The most states in one call; by default as many as are sure to fit. It is halved when
        memory runs out.
    row_error : float, optional
        Total-variation radius to declare; by default it is measured, which costs a dozen
        evaluations (some dozens on a GPU).
    device : optional
        Where ids go; by default the device of the model's parameters.
    name : str, optional
        For error messages and results.

    Attributes
    ----------
    repeatability : Repeatability or None
        What was measured, unless ``row_error`` was given.

    Notes
    -----
    Rows are checked here, on their device, so that the oracle is trusted: tokens that are not
    allowed have probability zero without a warning.

    Token k of a template made here is the k-th id that is not the mask: the id itself unless the
    mask stands in the middle. ``oracle.template.vocabulary`` has the ids.

    Examples
    --------
    >>> import counterprobe as cp, torch
    >>> model = lambda ids: torch.zeros(*ids.shape, 4)  # four tokens, all alike; the mask is 4
    >>> oracle = TorchOracle(model, length=3, mask_id=4)
    >>> run = cp.run.Run(oracle)
    >>> cp.samplers.OneBatch()(run, cp.Streams(1, 2)).ledger.evaluations
    1
    """

    def __init__(
        self,
        model: Callable[..., Any],
        template: Template | None = None,
        *,
        length: int | None = None,
        mask_id: int | None = None,
        allowed: Allowed | None = None,
        temperature: float = 1.0,
        shift: bool = False,
        attention_mask: bool | None = None,
        attention: bool | None = None,
        batch_size: int | None = None,
        row_error: float | None = None,
        device: Any = None,
        name: str | None = None,
    ) -> None:
        if row_error is not None and not 0 <= row_error <= 1:
            raise ValueError(f"row_error must lie in [0, 1], got {row_error!r}")
        self._name: str = name or type(model).__name__
        self._digest = LastDigest()
        self._call = Calling(
            model, self._name, device=device, attention_mask=attention_mask, attention=attention
        )
        if template is None:
            template = self._blank_template(length, mask_id, allowed)
        else:
            _check_beside_template(template, length, mask_id)
            self._call.check_mask_id(template.mask_id)
            template = template if allowed is None else template.allow(allowed)
        self.template = template
        self.temperature = float(temperature)
        self._softmax = Softmax(template, temperature, self._name)
        self._read_at = np.maximum(template.slots - 1, 0) if shift else template.slots
        self._batch = BatchSize(batch_size or self._guessed_batch_size())
        self.repeatability: Repeatability | None = None
        self._row_error = row_error
        if row_error is None:
            self.repeatability = measure_repeatability(
                self.rows,
                template.given,
                template.vocab_size,
                largest_batch=min(self._batch.value, 6 if self.device.type == "cpu" else 64),
                name=self._name,
            )

    # ----- What it declares ----------------------------------------------------------------

    @property
    def length(self) -> int:
        """Number of positions N."""
        return self.template.length

    @property
    def vocab_size(self) -> int:
        """Number of tokens V."""
        return self.template.vocab_size

    @property
    def row_error(self) -> float:
        """Total-variation radius of its rows: what was declared, or what rounding does."""
        if self._row_error is not None:
            return self._row_error
        assert self.repeatability is not None
        return self.repeatability.row_error

    @property
    def batch_size(self) -> int:
        """The most states that now go to the model at once."""
        return self._batch.value

    @property
    def num_evaluated(self) -> int:
        """States that went through the model so far, measuring included."""
        return self._call.num_evaluated

    @property
    def device(self) -> Any:
        """Where the model's ids, and its rows, are."""
        return self._call.device

    @property
    def info(self) -> OracleInfo:
        """What it is."""
        return OracleInfo(
            self._name,
            self.length,
            self.vocab_size,
            self.row_error,
            trusted=True,
            temperature=self.temperature,
        )

    @property
    def digest(self) -> str | None:
        """What tells it from others of its name and size; None where the model is a function."""
        call = self._call
        others = self.temperature, self._read_at, call.wants_mask
        return self._digest.of(call.model, lambda: rows_digest(call.model, self.template, *others))

    # ----- Rows ----------------------------------------------------------------------------

    def ability(self, kind: type[T]) -> T | None:
        """Return what it does beside rows; not every model says where it attends."""
        return (
            None if kind is Attends and not self._call.offers_attention else super().ability(kind)
        )

    def rows(self, states: StateArray, readouts: Readouts) -> Rows:
        """Call the model on every state and return one row per readout, in order."""
        states = as_states(states, self.length, self.vocab_size)

        def logits_of(low: int, high: int, places: IntArray | None) -> torch.Tensor:
            return self._call(self.template.fill(states[low:high]), places)

        return self._rows(
            states, readouts, logits_of, self._batch, by_place=self._call.takes_places
        )

    def attend(
        self, states: StateArray, readouts: Readouts, layers: int
    ) -> tuple[Rows, FloatArray]:
        """Call the model once on every state; return rows and attention between positions.

        Parameters
        ----------
        states, readouts
            At least one readout.
        layers : int
            The last layers that are averaged, with all their heads; more than there are means all.

        Returns
        -------
        rows : Rows
        attention : ndarray of float, shape (B, N, N)
            Entry ``[b, i, j]``: what the place that position i is read at gives to position j.
        """
        states = as_states(states, self.length, self.vocab_size)
        attention = np.zeros((len(states), self.length, self.length))

        def logits_of(low: int, high: int, _: IntArray | None) -> torch.Tensor:
            ids = self.template.fill(states[low:high])
            logits, weights = self._call.attended(ids, layers)
            every = weights.cpu().numpy()
            attention[low:high] = every[:, self._read_at[:, None], self.template.slots]
            return logits

        fitting = max(1, HEAD_WEIGHTS // len(self.template.frame) ** 2)
        batch = BatchSize(min(self._batch.value, fitting))
        return self._rows(states, readouts, logits_of, batch), attention

    def _rows(
        self,
        states: StateArray,
        readouts: Readouts,
        logits_of: Callable[[int, int, IntArray | None], torch.Tensor],
        batch: BatchSize,
        *,
        by_place: bool = False,
    ) -> Rows:
        """Return one row per readout from the logits of consecutive states.

        With ``by_place`` logits are asked for where something is read, and nowhere else.
        """
        if len(readouts) == 0:
            return self._softmax.rows(torch.empty((0, self.vocab_size), device=self.device))
        order = np.argsort(readouts.state_index, kind="stable")
        index, position = readouts.state_index[order], readouts.position[order]
        out: list[torch.Tensor] = []

        def evaluate(low: int, high: int) -> None:
            first, last = np.searchsorted(index, [low, high])
            places, where = None, self._read_at[position[first:last]]
            if by_place:
                places, where = np.unique(where, return_inverse=True)
            logits = logits_of(low, high, places)
            if not out:
                out.append(self._space(len(readouts), logits))
            self._softmax.write(
                logits,
                index[first:last] - low,
                where,
                position[first:last],
                out[0][first:last],
                first_state=low,
            )

        batch.run(len(states), evaluate, name=self._name)
        rows = self._softmax.rows(out[0])
        is_sorted = bool((order == np.arange(len(order))).all())
        return rows if is_sorted else rows.take(np.argsort(order, kind="stable"))

    def _space(self, count: int, logits: torch.Tensor) -> torch.Tensor:
        """Make room for rows; where there is none, smaller batches of states do not help."""
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        try:
            return torch.empty((count, self.vocab_size), dtype=dtype, device=logits.device)
        except Exception as problem:
            if not is_out_of_memory(problem):
                raise
            size = count * self.vocab_size * dtype.itemsize / 2**30
            raise OracleError(
                f"oracle {self._name!r}: {count} rows over {self.vocab_size} tokens need "
                f"{size:.3g} GiB, which {logits.device} does not have; read fewer positions at "
                "once, or allow fewer tokens"
            ) from problem

    # ----- Inside --------------------------------------------------------------------------

    def _blank_template(
        self, length: int | None, mask_id: int | None, allowed: Allowed | None
    ) -> Template:
        """Mask ``length`` positions; the vocabulary is what the model gives logits for."""
        if length is None or mask_id is None:
            raise ValueError("give a template, or length and mask_id")
        if allowed is not None and not isinstance(allowed, (Mapping, np.ndarray)):
            allowed = list(allowed)
            if not allowed:
                raise ValueError("allowed must name at least one token, got none")
            if names_tokens(allowed):
                self._call.check_mask_id(mask_id, max(map(int, allowed), default=0) + 1)
                return Template.blank(length, map(int, allowed), mask_id)
        self._call.check_mask_id(mask_id)
        width = int(self._call(np.full((1, length), mask_id)).shape[-1])
        self._call.check_mask_id(mask_id, width)
        return Template.blank(length, range(width), mask_id, allowed=allowed)

    def _guessed_batch_size(self) -> int:
        """Return a number of states whose logits are sure to fit."""
        length = len(self.template.frame)
        width = max(1024, int(self.template.vocabulary.max()) + 1)
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
            return max(1, min(DEVICE_BYTES, free // 8) // (4 * length * width))
        return max(1, min(HOST_TOKENS // length, HOST_BYTES // (4 * length * width)))


def _check_beside_template(template: Template, length: int | None, mask_id: int | None) -> None:
    """Refuse what contradicts a template."""
    if template.tied is not None:
        raise ValueError(
            "template must have no tied positions here: model.oracle(template) combines their rows"
        )
    for label, said, known in (
        ("length", length, template.length),
        ("mask_id", mask_id, template.mask_id),
    ):
        if said is not None and said != known:
            raise ValueError(f"{label} must be the template's, {known}, or left out; got {said}")
