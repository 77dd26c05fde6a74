"""Ill-formed calls: what counts as refusing one, and what is said of one that was accepted."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from conformance.compare import compare
from conformance.expectation import Answer
from conformance.policy import Policy
from conformance.problem import Outputs
from conformance.spec import Array, Case, Mask
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Finding
from conformance.vocabulary import HeadFault

# These exceptions are accidents of a program, not refusals of a call.
ACCIDENTS = (AttributeError, NameError, ImportError, KeyError, NotImplementedError, MemoryError)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def message_of(error: BaseException) -> str:
    """What an exception says; its text is code of the subject, and may raise in its turn."""
    with contextlib.suppress(Exception):
        return str(error)
    return "an exception that has no printable message"


def refused(error: Exception) -> str:
    """The type of what was raised and its whole message, on one line and without the colours of a terminal."""
    message = " ".join(_COLOUR.sub("", message_of(error)).split())
    return f"raised {type(error).__name__}" + (f": {message}" if message else ", without a message")


def accepted(case: Case, outputs: Outputs, policy: Policy) -> Finding:
    """The finding about an ill-formed call that was accepted: the shape that came back, and whose answer it is."""
    answer = outputs.attn_output
    shape = f"{answer.dtype}[{', '.join(map(str, answer.shape))}]"
    told = [f"the ill-formed call ({case.ill_formed}) was accepted", f"the output, {shape},"]
    others = {name: _within(answer, other, policy) for name, other in _neighbours(case)}
    right = [name for name, within in others.items() if within]
    if right:
        told[1] += f" is the answer to {' and to '.join(right)}"
    else:
        told[1] += f" is not the answer to {' or to '.join(others)}" if others else " came back"
    return Finding("call", "accepted", "; ".join(told))


def _neighbours(case: Case) -> Iterator[tuple[str, Case]]:
    """Well-formed calls that the ill-formed one may have been taken for. None where its sizes are at fault, and none
    where the subject may give whatever lies in memory."""
    if case.ill_formed in (*get_args(HeadFault), "mask-device"):
        return
    well_formed = replace(case, ill_formed=None, expect="agree")
    yield "the well-formed call", well_formed
    if case.mask.parts:
        yield "the call without its mask", replace(well_formed, mask=Mask())


def _within(output: Array, case: Case, policy: Policy) -> bool:
    """Whether an output has the shape and dtype of a case's answer and lies within its bound."""
    expectation = Answer.of(problem_of(case)).under(policy)
    return isinstance(compare(expectation, {"attn_output": output}, policy), Agrees)
