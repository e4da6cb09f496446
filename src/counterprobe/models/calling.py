"""Calling a torch model: ids in, logits out, whatever shape the model returns them in.

A model that returns its attention weights when asked (``output_attentions``, as those of
transformers do) can be called for both at once.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from counterprobe.arrays import IntArray
from counterprobe.errors import OracleError
from counterprobe.extras import load_extra

if TYPE_CHECKING:
    import torch
else:
    torch = load_extra("torch", "torch", "a torch model", package="PyTorch")

__all__ = ["Calling", "device_of"]

PROBE = "let rules probe instead: graph='probes', or build the oracle with attention=False"


class Calling:
    """A model that maps ids to logits, and how it wants to be called.

    Parameters
    ----------
    model : callable
    name : str
        For error messages.
    device : optional
        Where ids go; by default the device of the model's parameters.
    attention_mask : bool, optional
        Whether to pass an attention mask of ones; by default where the model takes one.
    attention : bool, optional
        Whether the model returns attention when it is asked to; by default where it says so.

    Attributes
    ----------
    model : callable
    wants_mask : bool
        Whether it is passed an attention mask.
    num_evaluated : int
        States that went through the model so far.
    offers_attention : bool
        Whether :meth:`attended` can be called.
    takes_places : bool
        Whether it can be told which places are read, and gives logits of those alone.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        name: str,
        *,
        device: Any = None,
        attention_mask: bool | None = None,
        attention: bool | None = None,
    ) -> None:
        if getattr(model, "training", False):
            raise ValueError(
                "model must be in evaluation mode, or dropout makes its rows random: call "
                "model.eval()"
            )
        self.model = model
        self._name = name
        self.device = device_of(model) if device is None else torch.device(device)
        wants_mask = _takes(model, "attention_mask") if attention_mask is None else attention_mask
        self.wants_mask = wants_mask
        self.offers_attention = _gives_attention(model) if attention is None else attention
        self.takes_places = _takes(model, "places")
        self.num_evaluated = 0

    def __call__(self, ids: IntArray, places: IntArray | None = None) -> torch.Tensor:
        """Return logits of shape ``(B, L, W)`` for ids of shape ``(B, L)``.

        Parameters
        ----------
        ids : ndarray of int, shape (B, L)
        places : ndarray of int, shape (R,), optional
            Where logits are wanted, shape ``(B, R, W)``, of a model that can be told so.
        """
        if places is None:
            return self._logits(ids.shape, self._reply(ids))
        on_device = torch.as_tensor(places, device=self.device)
        return self._logits((len(ids), len(places)), self._reply(ids, places=on_device))

    def attended(self, ids: IntArray, num_layers: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits, and attention averaged over the heads of the last layers.

        Parameters
        ----------
        ids : ndarray of int, shape (B, L)
        num_layers : int
            More than the model has means all of them.

        Returns
        -------
        logits : Tensor, shape (B, L, W)
        attention : Tensor, shape (B, L, L)
            Of each place, what it gives to each.
        """
        try:
            with _eager(self.model):
                reply = self._reply(ids, output_attentions=True)
        # What networks raise that take no such argument, or whose kernels keep no weights.
        except (NotImplementedError, TypeError, ValueError) as problem:
            said = " ".join(str(problem).split())
            raise OracleError(
                f"oracle {self._name!r} cannot be asked for attention ({said[:200]}); {PROBE}"
            ) from problem
        logits = self._logits(ids.shape, reply)
        layers = _attentions_of(reply)[-num_layers:]
        square = (ids.shape[0], ids.shape[1], ids.shape[1])
        shapes = {(*weights.shape[:1], *weights.shape[2:]) for weights in layers}
        if shapes != {square}:
            raise OracleError(
                f"oracle {self._name!r} gives no attention of shape (B, heads, L, L) for ids of "
                f"shape {ids.shape}; {PROBE}"
            )
        # One layer at a time: all heads of all layers of a long text do not fit beside each other.
        total = torch.zeros(square, device=logits.device)
        for weights in layers:
            total += weights.detach().float().mean(dim=1) / len(layers)
        return logits, total

    def _reply(self, ids: IntArray, **options: Any) -> Any:
        """Call the model."""
        on_device = torch.as_tensor(ids, device=self.device)
        masks = {"attention_mask": torch.ones_like(on_device)} if self.wants_mask else {}
        try:
            with torch.no_grad():
                return self.model(on_device, **masks, **options)
        except IndexError as problem:
            raise OracleError(
                f"oracle {self._name!r}: the model cannot read one of the ids 0..{int(ids.max())},"
                f" or a sequence of {ids.shape[1]} ({problem}); check mask_id, the vocabulary and "
                "the length"
            ) from problem

    def _logits(self, wanted: tuple[int, ...], reply: Any) -> torch.Tensor:
        """Take the logits of some states at some places out of a reply; count the states."""
        logits = _logits_of(reply)
        if logits is None or logits.ndim != 3 or tuple(logits.shape[:2]) != wanted:
            got = type(reply).__name__ if logits is None else tuple(logits.shape)
            raise OracleError(
                f"oracle {self._name!r} must return logits of shape (B, L, W), with {wanted[0]} "
                f"states and {wanted[1]} places, got {got}"
            )
        self.num_evaluated += wanted[0]
        return logits.detach()

    def check_mask_id(self, mask_id: int, num_outputs: int | None = None) -> None:
        """Refuse a mask that the model cannot read: on a GPU that would be fatal.

        A module reads as many ids as its (largest) embedding has rows. Otherwise the mask is one
        of the ids that the model gives logits for, or the one after the last.
        """
        parts: list[Any] = []
        if isinstance(self.model, torch.nn.Module):
            parts = list(self.model.modules())
            # Models of transformers may have the method without an answer.
            with contextlib.suppress(AttributeError, NotImplementedError):
                parts = [self.model.get_input_embeddings()]  # type: ignore[operator]
        sizes = [part.num_embeddings for part in parts if isinstance(part, torch.nn.Embedding)]
        most = max(sizes) if sizes else num_outputs + 1 if num_outputs is not None else None
        if mask_id < 0 or (most is not None and mask_id >= most):
            known = f", 0..{most - 1}" if most is not None else ""
            raise ValueError(f"mask_id must be an id that the model reads{known}; got {mask_id}")


def device_of(model: Any) -> torch.device:
    """Return where a module's parameters are; a plain function is taken to work on the host."""
    if isinstance(model, torch.nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            return tensor.device
    return torch.device("cpu")


def _takes(model: Callable[..., Any], argument: str) -> bool:
    """Whether a model's signature names an argument."""
    called = model.forward if isinstance(model, torch.nn.Module) else model
    try:
        return argument in inspect.signature(called).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False


def _gives_attention(model: Callable[..., Any]) -> bool:
    """Whether a model says that it can return attention."""
    config = getattr(model, "config", None)
    return hasattr(config, "_attn_implementation") or _takes(model, "output_attentions")


@contextlib.contextmanager
def _eager(model: Callable[..., Any]) -> Iterator[None]:
    """Let a model of transformers compute its weights one by one: fused kernels keep them."""
    config: Any = getattr(model, "config", None)
    usual = getattr(config, "_attn_implementation", None)
    if usual in (None, "eager"):
        yield
        return
    config._attn_implementation = "eager"
    try:
        yield
    finally:
        config._attn_implementation = usual


def _attentions_of(reply: Any) -> tuple[torch.Tensor, ...]:
    """Find the attention weights in what a model returned, one tensor a layer."""
    found = reply[-1] if isinstance(reply, (tuple, list)) and reply else None
    found = reply.get("attentions") if isinstance(reply, Mapping) else found
    found = getattr(reply, "attentions", found)
    layers = tuple(found) if isinstance(found, (tuple, list)) else ()
    is_whole = all(isinstance(one, torch.Tensor) and one.ndim == 4 for one in layers)
    return layers if is_whole else ()


def _logits_of(reply: Any) -> torch.Tensor | None:
    """Find the logits in what a model returned."""
    if isinstance(reply, Mapping) and "logits" in reply:
        reply = reply["logits"]
    elif hasattr(reply, "logits"):
        reply = reply.logits
    elif isinstance(reply, (tuple, list)) and reply:
        reply = reply[0]
    return reply if isinstance(reply, torch.Tensor) else None
