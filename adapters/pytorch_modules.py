"""The contract's own implementation in PyTorch, with separate and with packed input projections.

Imported by a subject's constructor only. Shape legend in :mod:`conformance.spec`. Boolean masks are True where
attention is blocked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from adapters.pytorch_arrays import Slot


@dataclass(frozen=True)
class Widths:
    """Static options of a module: all widths are those of whole tensors, ``query_width`` = H·Dh."""

    embed_dim: int
    kdim: int
    vdim: int
    query_width: int
    key_width: int
    value_width: int
    context_width: int
    output_dim: int
    num_heads: int
    num_kv_heads: int
    dtype: torch.dtype
    bias: bool = True
    bias_kv: bool = False
    zero_attention: bool = False
    scale: float | None = None
    dropout: float = 0.0


def split_heads(projected: Tensor, heads: int) -> Tensor:
    """[B, L, H·Dh] → [B, H, L, Dh]; heads are contiguous blocks of columns."""
    head_width = projected.shape[-1] // heads
    return projected.view(*projected.shape[:-1], heads, head_width).transpose(-3, -2)


def join_heads(context: Tensor) -> Tensor:
    """[B, H, T, Dhv] → [B, T, H·Dhv]."""
    return context.transpose(-3, -2).flatten(-2)


class Projections(nn.Module):
    """Separate projections of query, key and value, and the output projection."""

    def __init__(self, widths: Widths) -> None:
        super().__init__()
        self.widths = widths
        self._input_projections()
        self.output_projection = self._linear(widths.context_width, widths.output_dim)

    def _linear(self, inner: int, outer: int) -> nn.Linear:
        return nn.Linear(inner, outer, bias=self.widths.bias, dtype=self.widths.dtype)

    def _input_projections(self) -> None:
        widths = self.widths
        self.query_projection = self._linear(widths.embed_dim, widths.query_width)
        self.key_projection = self._linear(widths.kdim, widths.key_width)
        self.value_projection = self._linear(widths.vdim, widths.value_width)

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Projected query, key and value, heads not yet split."""
        return self.query_projection(query), self.key_projection(key), self.value_projection(value)

    def slots(self) -> dict[str, Slot]:
        """Where each neutral parameter lives in this module."""
        found = {}
        for role in ("query", "key", "value", "output"):
            found[f"{role}_weight"] = Slot(f"{role}_projection.weight")
            found[f"{role}_bias"] = Slot(f"{role}_projection.bias")
        return found | {"bias_k": Slot("bias_k"), "bias_v": Slot("bias_v")}


class HandwrittenAttention(Projections):
    """Multi-head attention as the contract states it.

    Scores and softmax are computed in float32 (float64 for float64) with autocast off; a fully blocked row has weights
    and aggregate exactly 0 and passes exactly 0 back. Raises ValueError for widths that heads do not divide.
    """

    def __init__(self, widths: Widths) -> None:
        heads, kv_heads = widths.num_heads, widths.num_kv_heads
        if heads < 1 or kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"{kv_heads} key/value heads must divide {heads} query heads, and both be at least 1")
        if widths.query_width % heads or widths.value_width % kv_heads:
            raise ValueError(f"the projected widths are not divisible by num_heads = {heads}")
        if widths.query_width // heads * kv_heads != widths.key_width:
            raise ValueError("query and key heads must have the same width")
        super().__init__(widths)
        self.dropout = nn.Dropout(widths.dropout)
        if widths.bias_kv:
            self.bias_k = nn.Parameter(torch.zeros(widths.key_width, dtype=widths.dtype))
            self.bias_v = nn.Parameter(torch.zeros(widths.value_width, dtype=widths.dtype))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding: Tensor | None = None,
        blocked: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attention output [B, T, Do] and weights before dropout [B, H, T, S + E], in the dtype of the projections.

        ``query`` [B, T, D], ``key`` [B, S, Dk], ``value`` [B, S, Dv]. ``key_padding`` is Boolean [B, S]. ``blocked``
        (Boolean) and ``bias`` (floating-point, added to the scores; −inf blocks) are [T, S], [B, T, S] or
        [B, H, T, S], with 1 for any axis of the last two forms. Raises ValueError for anything else.
        """
        self._check_inputs(query, key, value)
        shape = (query.shape[0], self.widths.num_heads, query.shape[1], key.shape[1])
        blocked = _merge(_key_padding(key_padding, key, shape), _mask("blocked", blocked, query, shape))
        bias = _mask("bias", bias, query, shape)
        queries, keys, values = self._heads(query, key, value)
        context, weights = self._core(queries, keys, values, blocked, bias)
        return self.dropout(self.output_projection(join_heads(context))), weights

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        widths = self.widths
        for name, tensor, width in (
            ("query", query, widths.embed_dim),
            ("key", key, widths.kdim),
            ("value", value, widths.vdim),
        ):
            if tensor.dim() != 3 or tensor.shape[2] != width or tensor.shape[0] != query.shape[0]:
                raise ValueError(f"{name} must be [batch, length, {width}], not {list(tensor.shape)}")
        if key.shape[1] != value.shape[1]:
            raise ValueError(f"key and value differ in length: {key.shape[1]} and {value.shape[1]}")

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Projected heads [B, H, T, Dh], [B, K, S + E, Dh], [B, K, S + E, Dhv]."""
        queries, keys, values = self.project(query, key, value)
        if self.widths.bias_kv:
            keys = _append(keys, self.bias_k)
            values = _append(values, self.bias_v)
        if self.widths.zero_attention:
            keys = _append(keys, keys.new_zeros(keys.shape[-1]))
            values = _append(values, values.new_zeros(values.shape[-1]))
        heads, kv_heads = self.widths.num_heads, self.widths.num_kv_heads
        return split_heads(queries, heads), split_heads(keys, kv_heads), split_heads(values, kv_heads)

    def _core(
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        stored, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
        groups = query.shape[1] // key.shape[1]
        with torch.autocast(query.device.type, enabled=False):
            key = key.to(wide).repeat_interleave(groups, dim=1)
            value = value.to(wide).repeat_interleave(groups, dim=1)
            scale = 1.0 / math.sqrt(query.shape[-1]) if self.widths.scale is None else self.widths.scale
            scores = (query.to(wide) * scale) @ key.transpose(-2, -1)
            weights = masked_softmax(scores, blocked, None if bias is None else bias.to(wide))
            context = self.dropout(weights) @ value
        return context.to(stored), weights.to(stored)


class PackedAttention(HandwrittenAttention):
    """The same attention with one packed input projection, concat(W_q, W_k, W_v), split on its last axis."""

    def _input_projections(self) -> None:
        self.sizes = [self.widths.query_width, self.widths.key_width, self.widths.value_width]
        self.packed_projection = self._linear(self.widths.embed_dim, sum(self.sizes))

    def project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Projected query, key and value: of one product when the three are one tensor."""
        if query is key and key is value:
            queries, keys, values = torch.split(self.packed_projection(query), self.sizes, dim=-1)
            return queries, keys, values
        weights = torch.split(self.packed_projection.weight, self.sizes)
        packed_bias = self.packed_projection.bias
        biases = (None, None, None) if packed_bias is None else torch.split(packed_bias, self.sizes)
        queries, keys, values = map(F.linear, (query, key, value), weights, biases)
        return queries, keys, values

    def slots(self) -> dict[str, Slot]:
        """Where each neutral parameter lives in this module."""
        found, start = super().slots(), 0
        for role, size in zip(("query", "key", "value"), self.sizes, strict=True):
            for kind in ("weight", "bias"):
                found[f"{role}_{kind}"] = Slot(f"packed_projection.{kind}", start, start + size)
            start += size
        return found


def masked_softmax(scores: Tensor, blocked: Tensor | None, bias: Tensor | None) -> Tensor:
    """Softmax over the keys that are not blocked; exactly 0, with gradient exactly 0, where nothing is left.

    ``scores`` [B, H, T, S + E]; the masks broadcast to [B, H, T, S], and the E extra keys are never blocked.
    """
    extra = scores.shape[-1] - next((mask.shape[-1] for mask in (blocked, bias) if mask is not None), scores.shape[-1])
    if bias is not None:
        # −inf is moved to the Boolean mask: added to a score it would leave NaN behind in a fully blocked row
        forbidden = bias == -math.inf
        blocked = _merge(blocked, forbidden)
        scores = scores + F.pad(bias.masked_fill(forbidden, 0), (0, extra))
    if blocked is None:
        return scores.softmax(dim=-1)
    blocked = F.pad(blocked, (0, extra))
    nothing_left = blocked.all(dim=-1, keepdim=True)
    scores = scores.masked_fill(blocked, -math.inf).masked_fill(nothing_left, 0)
    return scores.softmax(dim=-1).masked_fill(blocked, 0)


def _merge(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _append(rows: Tensor, row: Tensor) -> Tensor:
    """One more row, the same for every sample, at the end of [B, S, width]."""
    return torch.cat([rows, row.to(rows.dtype).expand(rows.shape[0], 1, -1)], dim=1)


def _key_padding(padding: Tensor | None, key: Tensor, shape: tuple[int, int, int, int]) -> Tensor | None:
    """[B, S] → full source axis [B, 1, 1, S]."""
    if padding is None:
        return None
    if padding.shape != (shape[0], shape[3]):
        raise ValueError(f"key_padding must be [batch, source] = {[shape[0], shape[3]]}, not {list(padding.shape)}")
    return _mask("key_padding", padding[:, None, None, :], key, shape)


def _mask(name: str, mask: Tensor | None, beside: Tensor, shape: tuple[int, int, int, int]) -> Tensor | None:
    """A checked mask with four axes and a full source axis."""
    if mask is None:
        return None
    if name != "bias" and mask.dtype != torch.bool:
        raise ValueError(f"{name} must be Boolean (True = may not attend), not {mask.dtype}")
    if name == "bias" and not mask.is_floating_point():
        raise ValueError(f"bias must be floating-point, not {mask.dtype}")
    if mask.device != beside.device:
        raise ValueError(f"{name} is on {mask.device}, the inputs are on {beside.device}")
    if mask.dim() == 2:
        fits = tuple(mask.shape) == shape[2:]
        mask = mask[None, None]
    else:
        mask = mask[:, None] if mask.dim() == 3 else mask
        fits = mask.dim() == 4 and all(size in (1, full) for size, full in zip(mask.shape, shape, strict=True))
    if not fits:
        raise ValueError(f"{name} must be [T, S], [B, T, S] or [B, H, T, S] of {list(shape)}, not {list(mask.shape)}")
    return mask.expand(*mask.shape[:3], shape[3])
