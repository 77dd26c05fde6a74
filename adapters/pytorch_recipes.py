"""The textbook recipe, and projections around ``scaled_dot_product_attention`` with one backend.

Imported by a subject's constructor only. Shape legend in :mod:`conformance.spec`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from adapters.pytorch_arrays import must_run
from adapters.pytorch_modules import Projections, Widths, join_heads, split_heads

LARGE_NEGATIVE = -1e9
BACKENDS = {
    "MATH": (SDPBackend.MATH, "aten::_safe_softmax"),
    "FLASH_ATTENTION": (SDPBackend.FLASH_ATTENTION, "aten::_scaled_dot_product_flash_attention_for_cpu"),
}


class TextbookAttention(Projections):
    """dropout(softmax(Q Kᵀ / √Dh with −1e9 where blocked)) V, all of it in the dtype of the projections."""

    def __init__(self, widths: Widths) -> None:
        super().__init__(widths)
        self.dropout = nn.Dropout(widths.dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding: Tensor | None = None,
        blocked: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attention output [B, T, Do] and weights after dropout [B, H, T, S].

        ``key_padding`` [B, S] is expanded to [B, 1, 1, S], three axes to [B, 1, T, S]; ``masked_fill`` broadcasts.
        """
        queries, keys, values = self.project(query, key, value)
        queries, keys, values = (self._split(projected) for projected in (queries, keys, values))
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
        if key_padding is not None:
            scores = scores.masked_fill(key_padding[:, None, None, :], LARGE_NEGATIVE)
        if blocked is not None:
            scores = scores.masked_fill(blocked[:, None] if blocked.dim() == 3 else blocked, LARGE_NEGATIVE)
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return self.output_projection(join_heads(weights @ values)), weights

    def _split(self, projected: Tensor) -> Tensor:
        batch, length, width = projected.shape
        heads = self.widths.num_heads
        return projected.view(batch, length, heads, width // heads).transpose(1, 2)


class ScaledDotProductAttention(Projections):
    """Projections around ``torch.nn.functional.scaled_dot_product_attention`` with one backend enabled."""

    def forward(
        self,
        backend: str,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> tuple[Tensor, None]:
        """Attention output [B, T, Do]; raises ``OtherPathRan`` unless an operator only the backend has ran.

        ``backend`` is a name in :data:`BACKENDS`. ``attn_mask`` is Boolean (True = may attend) or floats to add.
        """
        widths = self.widths
        queries, keys, values = self.project(query, key, value)
        queries = split_heads(queries, widths.num_heads)
        keys, values = split_heads(keys, widths.num_kv_heads), split_heads(values, widths.num_kv_heads)
        grouped = {"enable_gqa": True} if widths.num_heads != widths.num_kv_heads else {}
        # an empty operand is answered with zeros before any backend is chosen, so there is nothing to prove
        empty = 0 in (queries.numel(), keys.numel(), values.numel())
        kernel, operator = BACKENDS[backend]
        with sdpa_kernel([kernel]), must_run(None if empty else operator):
            context = F.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=attn_mask,
                dropout_p=widths.dropout if self.training else 0.0,
                is_causal=is_causal,
                scale=widths.scale,
                **grouped,
            )
        return self.output_projection(join_heads(context)), None
