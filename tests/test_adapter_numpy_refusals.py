"""The NumPy subjects refuse ill-formed calls, each with a message that names the fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from conformance.adapter import Subject
from conformance.problem import Problem
from conformance.spec import Case, Explicit, Mask, Padding
from conformance.tensors import problem_of
from conformance.vocabulary import IllFormed
from tests.test_adapter_numpy import EVERY_SUBJECT, PLAIN

SQUARE = replace(PLAIN, embed_dim=8, head_dim=2, kdim=8, vdim=8, output_dim=8, mask=Mask(explicit=Explicit("random")))
PADDED = replace(SQUARE, mask=Mask(key_padding=Padding((5, 2))))
REFUSED: list[tuple[IllFormed, Case, str]] = [
    ("value-longer-than-key", SQUARE, "key and value must have one length, got 5 and 6"),
    ("key-longer-than-value", SQUARE, "key and value must have one length, got 6 and 5"),
    ("key-batch-of-one", SQUARE, r"must have one batch size, got \(2, 1, 1\)"),
    ("embed-dim-not-divisible", replace(SQUARE, num_heads=3, num_kv_heads=3), "width 8 is not divisible by 3 heads"),
    ("zero-heads", replace(SQUARE, num_heads=0, num_kv_heads=0), "at least one head is needed"),
    ("mask-target-too-long", SQUARE, r"explicit mask of shape \(4, 5\) does not fit"),
    ("mask-source-too-long", SQUARE, r"explicit mask of shape \(3, 6\) does not fit"),
    ("integer-mask", SQUARE, "explicit mask must be Boolean, got int64"),
    ("mask-rank-1", SQUARE, r"explicit mask must have 2, 3 or 4 axes, got shape \(5,\)"),
    ("padding-mask-as-attention-mask", PADDED, r"explicit mask of shape \(2, 5\) does not fit"),
    ("padding-mask-wrong-batch", PADDED, r"key_padding must have shape \(2, 5\), got \(3, 5\)"),
    ("query-width", SQUARE, r"query_weight must have shape \(9, 8\), got \(8, 8\)"),
]


@EVERY_SUBJECT
@pytest.mark.parametrize(("fault", "case", "message"), [pytest.param(*row, id=row[0]) for row in REFUSED])
def test_ill_formed_calls_are_refused(fault: IllFormed, case: Case, message: str, subject: Subject) -> None:
    problem = problem_of(replace(case, ill_formed=fault))
    with pytest.raises(ValueError, match=message):
        subject.attend(problem)


@EVERY_SUBJECT
def test_other_faults_are_refused(subject: Subject) -> None:
    problem = problem_of(SQUARE)
    faults: dict[str, Problem] = {
        "3 axes": replace(problem, query=problem.query[0]),
        "one batch size": replace(problem, query=problem.query[:1]),
        "dtype of the query": replace(problem, key=problem.key.astype(np.float32)),
        "must be a floating-point array": replace(problem, query=problem.query.astype(np.int64)),
        "given together": replace(problem, parameters=replace(problem.parameters, bias_k=np.zeros(8))),
        "evenly": replace(problem, case=replace(SQUARE, num_kv_heads=3)),
        "additive mask must be": replace(problem, mask=replace(problem.mask, additive=np.zeros((3, 5), np.int64))),
    }
    for message, fault in faults.items():
        with pytest.raises(ValueError, match=message):
            subject.attend(fault)
