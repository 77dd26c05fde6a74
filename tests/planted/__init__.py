"""Wrong-on-purpose subjects: each carries one fault found in real attention code, and the suite must catch it."""

from __future__ import annotations

from tests.planted import dropout_faults, gradient_faults, mask_faults, projection_faults, softmax_faults
from tests.planted.attention import Attention

CONTROL = Attention

FAULTS: tuple[type[Attention], ...] = tuple(
    fault
    for module in (projection_faults, mask_faults, softmax_faults, gradient_faults, dropout_faults)
    for fault in vars(module).values()
    if isinstance(fault, type) and issubclass(fault, Attention) and fault is not Attention
)
