"""The words of a case: every option that a field of a case can take.

Like :mod:`conformance.spec`, which builds on it, this module runs on Python 3.10.
"""

from __future__ import annotations

from typing import Literal

Dtype = Literal["float64", "float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"]
Side = Literal["right", "left"]
Alignment = Literal["top-left", "bottom-right"]
MaskRoute = Literal["native", "dense", "additive"]
Axes = Literal["TS", "1TS", "BTS", "B1S", "BHTS", "B1TS", "B11S", "1HTS"]
Pattern = Literal["random", "block-diagonal", "rows", "keys", "heads", "samples", "everything", "literal"]
Regime = Literal[
    "normal",
    "tiny",
    "large",
    "very-negative-scores",
    "dominant-key",
    "equal",
    "coherent",
    "cancelling",
    "rounding-ties",
    "integers",
    "one-hot",
    "subnormal",
    "revealing",
    "literal",
]
Layout = Literal["contiguous", "transposed", "negative-stride", "broadcast"]
Sharing = Literal["separate", "self", "key-value", "query-key", "equal-copies"]
Calls = Literal["once", "repeated", "one-sample-at-a-time"]
Mode = Literal["evaluate", "train"]
Relation = Literal["keys-permuted", "keys-appended", "batch-split", "heads-permuted", "scores-shifted", "conservation"]
Check = Literal["output", "weights", "gradients"]
HeadFault = Literal["embed-dim-not-divisible", "zero-heads", "heads-not-divisible-by-kv-heads"]
InputFault = Literal[
    "value-longer-than-key",
    "key-longer-than-value",
    "batch-mismatch",
    "query-width",
    "key-width",
    "query-rank",
    "key-rank",
    "mixed-dtypes",
]
AttentionMaskFault = Literal[
    "mask-target-too-long",
    "mask-source-too-long",
    "mask-heads",
    "mask-batch",
    "mask-rank-1",
    "integer-mask",
    "mask-device",
]
PaddingMaskFault = Literal["padding-mask-as-attention-mask", "padding-mask-wrong-batch"]
IllFormed = Literal[HeadFault, InputFault, AttentionMaskFault, PaddingMaskFault]
