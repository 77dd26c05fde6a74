"""What reproducer scripts are tested on: one small case for each thing a script must say, and which are executed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conformance.spec import Additive, Case, Data, Explicit, Mask, Padding, Window
from tests.pytorch_oracle import case_of, inference_case

FORWARD: dict[str, Any] = {"check": ("output", "weights")}
BLOCKED = Mask(key_padding=Padding((0, 5)))
_CASES: dict[str, Case] = {
    "plain": case_of(),
    "causal": case_of(mask=Mask(causal="top-left"), **FORWARD),
    "square-causal": case_of(size=(2, 5, 5, 12, 3), mask=Mask(causal="top-left"), **FORWARD),
    "padding": case_of(mask=Mask(key_padding=Padding((7, 3)), query_padding=Padding((5, 2))), **FORWARD),
    "window": case_of(mask=Mask(window=Window(1, 1)), **FORWARD),
    "explicit-heads": case_of(mask=Mask(explicit=Explicit("random", "BHTS"), key_padding=Padding((7, 5))), **FORWARD),
    "dense": case_of(mask=Mask(causal="bottom-right", key_padding=Padding((7, 6))), mask_route="dense", **FORWARD),
    "additive-route": case_of(mask=Mask(causal="top-left"), mask_route="additive", dtype="bfloat16", **FORWARD),
    "additive": case_of(mask=Mask(additive=Additive("1HTS"), key_padding=Padding((4, 7)))),
    "float16": case_of(dtype="float16"),
    "bfloat16": case_of(dtype="bfloat16", mask=Mask(key_padding=Padding((7, 3)))),
    "float64": case_of(dtype="float64", mask=Mask(causal="bottom-right")),
    "mixed": case_of(dtype="mixed_bfloat16"),
    "self": inference_case(dtype="float16"),
    "self-inference": inference_case(mask=Mask(key_padding=Padding((6, 2))), **FORWARD),
    "self-inference-blocked": inference_case(mask=Mask(key_padding=Padding((6, 0))), **FORWARD),
    "key-value": case_of(sharing="key-value"),
    "query-key": case_of(sharing="query-key", target_length=7),
    "repeated": case_of(calls="repeated", mask=Mask(key_padding=Padding((7, 3)))),
    "one-sample": case_of(calls="one-sample-at-a-time", mask=Mask(explicit=Explicit("random", "BTS"))),
    "one-sample-shared-mask": case_of(calls="one-sample-at-a-time", mask=Mask(causal="top-left"), layout="transposed"),
    "transposed": case_of(layout="transposed"),
    "negative-stride": case_of(layout="negative-stride", dtype="bfloat16"),
    "broadcast": case_of(layout="broadcast"),
    "no-bias": case_of(bias=False),
    "widths": case_of(kdim=5, vdim=9),
    "scale": case_of(scale=0.25),
    "grouped": case_of(num_kv_heads=1),
    "extra-keys": case_of(bias_kv=True, zero_attention=True),
    "exact": case_of(data=Data("equal"), mask=Mask(explicit=Explicit("keys", "TS", indices=(1,)))),
    "evaluation-dropout": case_of(dropout=0.9, **FORWARD),
    "blocked-evaluation-dropout": case_of(dropout=0.1, mask=BLOCKED),
    "blocked": case_of(mask=BLOCKED),
    "blocked-float16": case_of(mask=BLOCKED, dtype="float16"),
    "blocked-dense": case_of(mask=BLOCKED, mask_route="dense"),
    "blocked-additive": case_of(mask=BLOCKED, mask_route="additive"),
    "blocked-repeated": case_of(mask=BLOCKED, calls="repeated"),
    "blocked-one-sample": case_of(mask=BLOCKED, calls="one-sample-at-a-time"),
} | {
    f"relation-{relation}": case_of(relation=relation, mask=mask, check=("output", "weights", "gradients"))
    for relation, mask in {
        "keys-permuted": Mask(explicit=Explicit("random", "TS")),
        "keys-appended": Mask(key_padding=Padding((7, 3))),
        "batch-split": Mask(key_padding=Padding((7, 3))),
        "heads-permuted": Mask(explicit=Explicit("random", "BHTS")),
        "scores-shifted": Mask(causal="top-left"),
        "conservation": Mask(),
    }.items()
} | {
    "relation-appended-float16": case_of(relation="keys-appended", dtype="float16", check=("output",)),
    "relation-conserved-float64": case_of(relation="conservation", dtype="float64", size=(2, 9, 40, 12, 3)),
    "relation-long-batch-bfloat16": case_of(relation="batch-split", dtype="bfloat16", size=(7, 40, 3, 12, 3)),
} | {
    f"ill-formed-{fault}": case_of(ill_formed=fault, expect="raises", check=("output",), mask=mask)
    for fault, mask in (
        ("value-longer-than-key", Mask()),
        ("query-width", Mask()),
        ("zero-heads", Mask()),
        ("integer-mask", Mask(explicit=Explicit("random", "TS"))),
        ("mask-rank-1", Mask(explicit=Explicit("random", "TS"))),
        ("mask-source-too-long", Mask(explicit=Explicit("random", "TS"))),
        ("padding-mask-as-attention-mask", Mask(key_padding=Padding((7, 3)))),
        ("mask-device", Mask(explicit=Explicit("random", "TS"))),
        ("mask-heads", Mask(explicit=Explicit("random", "BHTS"))),
        ("query-rank", Mask()),
        ("key-rank", Mask()),
        ("key-width", Mask()),
        ("mixed-dtypes", Mask()),
    )
}  # fmt: skip
KINDS = {  # the numbers of a case are drawn from its id
    kind: replace(case, id=f"tests/{kind}", name=kind, why='a "reason" \\ in words') for kind, case in _CASES.items()
}
EXECUTED: dict[str, tuple[tuple[str, str], ...]] = {
    "torch": (
        *((kind, "torch/mha@weights") for kind in ("plain", "blocked", "blocked-additive", "exact", "one-sample")),
        *((kind, "torch/textbook") for kind in ("blocked", "blocked-float16", "blocked-repeated", "mixed", "bfloat16")),
        *((kind, "torch/mha@inference") for kind in ("self-inference", "self-inference-blocked")),
        *((kind, "torch/sdpa-math") for kind in ("float64", "ill-formed-integer-mask", "grouped")),
        *((kind, "torch/handwritten") for kind in ("extra-keys", "ill-formed-zero-heads", "transposed")),
        *((f"relation-{name}", "torch/mha@weights") for name in ("keys-permuted", "batch-split", "conservation")),
        ("relation-appended-float16", "torch/textbook"),
        *(("evaluation-dropout", f"torch/{subject}") for subject in ("mha", "textbook", "handwritten")),
        ("blocked-evaluation-dropout", "torch/textbook"),
        ("blocked-dense", "torch/mha@seq-first"),
        ("bfloat16", "torch/sdpa-flash"),
        ("self", "torch/packed"),
        ("ill-formed-query-width", "torch/mha"),
        ("blocked-one-sample", "torch/mha"),
        *((f"ill-formed-{fault}", "torch/mha@weights") for fault in ("mask-heads", "mask-device")),
        *((f"ill-formed-{fault}", "torch/mha@seq-first") for fault in ("query-rank", "key-rank")),
    ),
    "keras": (
        *((kind, "keras/mha") for kind in ("plain", "blocked", "ill-formed-mask-rank-1", "ill-formed-query-width")),
        *((kind, "keras/mha@scores") for kind in ("blocked-float16", "blocked-one-sample", "ill-formed-integer-mask")),
        ("blocked-repeated", "keras/gqa"),
        ("bfloat16", "keras/gqa"),
        ("mixed", "keras/mha@scores"),
        ("causal", "keras/mha@graph"),
        ("evaluation-dropout", "keras/mha@scores"),
        ("relation-keys-appended", "keras/mha@scores"),
        ("relation-long-batch-bfloat16", "keras/gqa"),
        *((f"ill-formed-{fault}", "keras/gqa") for fault in ("key-rank", "key-width", "mixed-dtypes")),
    ),
    "jax": (
        *(
            (kind, "jax/textbook")
            for kind in ("plain", "blocked", "blocked-one-sample", "bfloat16", "blocked-repeated")
        ),
        *((kind, "jax/dpa@jit") for kind in ("blocked", "float16", "window", "ill-formed-integer-mask")),
        ("relation-heads-permuted", "jax/textbook"),
        ("relation-long-batch-bfloat16", "jax/textbook"),
        ("relation-conserved-float64", "jax/dpa@jit"),
        *((f"ill-formed-{fault}", "jax/dpa@jit") for fault in ("query-width", "mixed-dtypes", "query-rank")),
    ),
}
