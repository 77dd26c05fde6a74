"""One case and one subject, from start to verdict."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.expectation import expected
from conformance.policy import ENVELOPE, Policy
from conformance.problem import Outputs, Problem
from conformance.refusal import refused
from conformance.run import errored, examine, judge, judged_again, policy_of, unsupported_reason
from conformance.spec import Array, Case, Data, Explicit, Literals, Mask, Unsupported
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored
from tests.drawn_problems import case_like
from tests.planted.attention import Attention


class Counting(Attention):
    """A correct subject that remembers what it was asked and can spoil one of its answers."""

    name = "test/counting"

    def __init__(self, spoilt_call: int | None = None, error: BaseException | None = None) -> None:
        self.problems: list[Problem] = []
        self.spoilt_call, self.error = spoilt_call, error

    def attend(self, problem: Problem) -> Outputs:
        self.problems.append(problem)
        if self.error is not None:
            raise self.error
        outputs = super().attend(problem)
        if self.spoilt_call != len(self.problems):
            return outputs
        return replace(outputs, attn_output=outputs.attn_output + np.float32(1))


class Limited(Counting):
    def unsupported(self, case: Case) -> Unsupported | None:
        return Unsupported("too small", "https://example.org/limit")


class Talkative(Counting):
    def attend(self, problem: Problem) -> Outputs:
        warnings.warn("slow path", RuntimeWarning, stacklevel=1)
        return super().attend(problem)


class WithoutGradients(Counting):
    gives_gradients = False

    def attend(self, problem: Problem) -> Outputs:
        return replace(super().attend(problem), gradients={}, attn_weights=None)

    gives_weights = False


class Forgetful(Counting):
    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        kept: Mapping[str, Array] = {name: array for name, array in outputs.gradients.items() if name != "key_bias"}
        return replace(outputs, gradients=kept)


def test_a_correct_subject_agrees_and_each_stage_is_timed() -> None:
    outcome = examine(case_like("run"), Counting())
    assert isinstance(outcome.verdict, Agrees)
    names = [measure.output for measure in outcome.verdict.measures]
    assert names[:5] == ["attn_output", "attn_weights", "query.gradient", "key.gradient", "value.gradient"]
    assert len(names) == 13 and outcome.tensors == {}
    assert set(outcome.seconds) == {"reference", "subject", "compare"}


def test_what_a_framework_warns_about_is_not_a_verdict() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(judge(case_like("run"), Talkative()), Agrees)


def test_a_limit_is_reported_and_the_subject_is_not_called() -> None:
    subject = Limited()
    verdict = judge(case_like("run"), subject)
    assert isinstance(verdict, Unsupported) and not subject.problems
    assert unsupported_reason(verdict) == "too small (https://example.org/limit)"
    assert unsupported_reason(Unsupported("too small")) == "too small"


def test_what_a_subject_raises_is_its_verdict_with_the_traceback() -> None:
    verdict = judge(case_like("run"), Counting(error=RuntimeError("no kernel")))
    assert isinstance(verdict, Errored)
    assert (verdict.exception, verdict.message) == ("RuntimeError", "no kernel") and "attend" in verdict.traceback
    assert errored(KeyError()).message == "KeyError"


def test_an_exception_that_raises_when_asked_for_its_message_is_a_verdict() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    verdict = judge(case_like("run"), Counting(error=Mute()))
    assert isinstance(verdict, Errored)
    assert (verdict.exception, verdict.message) == ("Mute", "an exception that has no printable message")
    assert refused(Mute()) == "raised Mute: an exception that has no printable message"


def test_a_divergence_keeps_its_tensors() -> None:
    outcome = examine(case_like("run"), Counting(spoilt_call=1))
    assert isinstance(outcome.verdict, Diverges)
    assert list(outcome.tensors) == ["blocked", "attn_output/actual", "attn_output/expected", "attn_output/bound"]
    difference = outcome.tensors["attn_output/actual"] - outcome.tensors["attn_output/expected"]
    np.testing.assert_allclose(difference, 1, atol=1e-5)


def test_a_missing_gradient_is_a_divergence_without_tensors() -> None:
    outcome = examine(case_like("run"), Forgetful())
    assert isinstance(outcome.verdict, Diverges)
    assert [(finding.kind, finding.output) for finding in outcome.verdict.findings] == [
        ("missing", "key_bias.gradient")
    ]
    assert list(outcome.tensors) == ["blocked"]


def test_what_a_subject_does_not_give_is_not_judged() -> None:
    verdict = judge(case_like("run"), WithoutGradients())
    assert isinstance(verdict, Agrees) and [measure.output for measure in verdict.measures] == ["attn_output"]


@pytest.mark.parametrize(("spoilt", "kind"), [(1, "value"), (2, "unstable")])
def test_a_repeated_call_that_changes_its_answer_is_unstable(spoilt: int, kind: str) -> None:
    subject = Counting(spoilt_call=spoilt)
    verdict = judge(case_like("run", calls="repeated"), subject)
    assert isinstance(verdict, Diverges) and {finding.kind for finding in verdict.findings} == {kind}
    assert len(subject.problems) == 2 and subject.problems[0] is subject.problems[1]
    assert isinstance(judge(case_like("run", calls="repeated"), Counting()), Agrees)


def test_samples_one_at_a_time_are_judged_as_the_batch_without_parameter_gradients() -> None:
    subject = Counting()
    verdict = judge(case_like("run", calls="one-sample-at-a-time"), subject)
    assert isinstance(verdict, Agrees) and [problem.case.batch for problem in subject.problems] == [1, 1]
    gradients = [measure.output for measure in verdict.measures if measure.output.endswith("gradient")]
    assert gradients == ["query.gradient", "key.gradient", "value.gradient"]
    assert isinstance(judge(case_like("run", calls="one-sample-at-a-time"), WithoutGradients()), Agrees)
    wrong = judge(case_like("run", calls="one-sample-at-a-time"), Counting(spoilt_call=2))
    assert isinstance(wrong, Diverges)
    worst = wrong.findings[0].worst
    assert worst is not None and worst.index[0] == 1


def test_no_samples_are_one_call() -> None:
    subject = Counting()
    assert isinstance(judge(case_like("run", batch=0, calls="one-sample-at-a-time"), subject), Agrees)
    assert len(subject.problems) == 1


ILL_FORMED = {"ill_formed": "query-width", "expect": "raises"}


@pytest.mark.parametrize(
    ("error", "verdict", "text"),
    [
        (ValueError("widths differ"), Agrees, "raised ValueError: widths differ"),
        (TypeError("not a mask"), Agrees, "raised TypeError: not a mask"),
        (
            RuntimeError("\x1b[1min user code:\n\n  shapes\x1b[0m differ"),
            Agrees,
            "raised RuntimeError: in user code: shapes differ",
        ),
        (AssertionError(), Agrees, "raised AssertionError, without a message"),
        (AttributeError("no attribute shape"), Errored, "no attribute shape"),
        (NotImplementedError("later"), Errored, "later"),
    ],
)
def test_a_refusal_agrees_and_an_accident_does_not(error: Exception, verdict: type, text: str) -> None:
    found = judge(case_like("run", **ILL_FORMED), Counting(error=error))
    assert isinstance(found, verdict)
    assert text == (found.note if isinstance(found, Agrees) else found.message if isinstance(found, Errored) else "")


def test_accepting_an_ill_formed_call_is_a_divergence() -> None:
    class Accepting(Counting):
        def attend(self, problem: Problem) -> Outputs:
            return Outputs(problem.query)

    verdict = judge(case_like("run", **ILL_FORMED), Accepting())
    assert isinstance(verdict, Diverges)
    (finding,) = verdict.findings
    assert (finding.output, finding.kind) == ("call", "accepted")
    assert finding.message == (
        "the ill-formed call (query-width) was accepted; "
        "the output, float32[2, 3, 5], is not the answer to the well-formed call"
    )


class Repairing(Counting):
    """Accepts a broken mask, and answers as if it were another."""

    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self.taken_for = mask

    def attend(self, problem: Problem) -> Outputs:
        return super().attend(problem_of(replace(problem.case, ill_formed=None, mask=self.taken_for)))


BROKEN_MASK = Mask(explicit=Explicit("keys", "TS", indices=(1,)))


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        (BROKEN_MASK, "is the answer to the well-formed call"),
        (Mask(), "is the answer to the call without its mask"),
        (Mask(explicit=Explicit("keys", "TS", indices=(2,))),
         "is not the answer to the well-formed call or to the call without its mask"),
    ],
)  # fmt: skip
def test_an_accepted_call_tells_whose_answer_came_back(mask: Mask, told: str) -> None:
    case = case_like("run", ill_formed="integer-mask", expect="raises", mask=BROKEN_MASK)
    verdict = judge(case, Repairing(mask))
    assert isinstance(verdict, Diverges)
    assert verdict.findings[0].message.endswith(f"the output, float32[2, 3, 4], {told}")


@pytest.mark.parametrize(
    "changes",
    [
        {"ill_formed": "zero-heads", "num_heads": 0, "num_kv_heads": 0},
        {"ill_formed": "mask-device", "mask": BROKEN_MASK},
    ],
)
def test_an_answer_is_compared_only_with_a_call_that_has_one(changes: dict[str, Any]) -> None:
    class Accepting(Counting):
        def attend(self, problem: Problem) -> Outputs:
            return Outputs(problem.query)

    verdict = judge(case_like("run", expect="raises", **changes), Accepting())
    assert isinstance(verdict, Diverges)
    assert verdict.findings[0].message.endswith("the output, float32[2, 3, 4], came back")


def test_a_case_that_cannot_be_built_is_an_error_of_every_subject() -> None:
    written = Literals(expected=(("attn_output", tuple([tuple([tuple([9.0] * 4)] * 3)] * 2)),))
    verdict = judge(case_like("run", literals=written), Counting())
    assert isinstance(verdict, Errored) and verdict.exception == "ValueError" and "9.0" in verdict.message


def test_a_declared_policy_is_the_one_that_judges() -> None:
    class Declared(Counting):
        policy = Policy(flash=False)

    assert policy_of(Declared()) == Policy(flash=False) and policy_of(Counting()) == ENVELOPE
    case = case_like("run")
    narrow, wide = (expected(case, policy)[1].bounds["attn_output"] for policy in (Policy(flash=False), ENVELOPE))
    assert (narrow <= wide).all() and (narrow < wide).any()
    assert expected(case, ENVELOPE)[0] is expected(case, Policy(flash=False))[0]


def test_a_divergence_can_be_judged_again_under_a_wider_policy() -> None:
    class Rough(Counting):
        def attend(self, problem: Problem) -> Outputs:
            outputs = super().attend(problem)
            rough = {name: array.astype(np.float32).astype(array.dtype) for name, array in outputs.gradients.items()}
            return replace(outputs, gradients=rough)

    wide = Policy("float32", "float32", "float32", "float32", "float32", "float32")
    case = case_like("run", dtype="float64", mask=Mask(explicit=Explicit("random", "TS")))
    outcome = examine(case, Rough())
    assert isinstance(outcome.verdict, Diverges)
    assert isinstance(judged_again(case, outcome, wide), Agrees)
    assert isinstance(judged_again(case, outcome, ENVELOPE), Diverges)


class Hostile(Counting):
    """Does one thing that a subject must not do, and answers rightly besides."""

    def __init__(self, deed: Callable[[Problem], None]) -> None:
        super().__init__()
        self.deed = deed

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        self.deed(problem)
        return outputs


def _writes_into_the_mask(problem: Problem) -> None:
    assert problem.mask.causal is not None
    problem.mask.causal.setflags(write=True)
    problem.mask.causal[:] = False


def _writes_into_the_query(problem: Problem) -> None:
    problem.query.setflags(write=True)
    problem.query[...] += 1


def _replaces_a_parameter(problem: Problem) -> None:
    problem.parameters.present["query_weight"] = np.zeros(3)


def _leaves(problem: Problem) -> None:
    raise SystemExit(0)


def _skips(problem: Problem) -> None:
    pytest.skip("a subject is not asked")


@pytest.mark.parametrize("deed", [_writes_into_the_mask, _writes_into_the_query, _replaces_a_parameter])
def test_who_changes_the_problem_errs_and_hurts_no_other(deed: Callable[[Problem], None]) -> None:
    case = case_like("own", mask=Mask(causal="top-left"))
    verdict = judge(case, Hostile(deed))
    assert isinstance(verdict, Errored)
    assert "changed the arrays" in verdict.message
    assert isinstance(judge(case, Counting()), Agrees)


def test_arrays_of_a_problem_cannot_be_written_into_by_mistake() -> None:
    problem, _ = expected(case_like("own", mask=Mask(causal="top-left", explicit=Explicit("random"))), ENVELOPE)
    for array in (problem.query, problem.cotangent, problem.mask.causal, problem.mask.explicit):
        assert array is not None
        assert not array.flags.writeable


@pytest.mark.parametrize("deed", [_leaves, _skips])
def test_no_way_out_of_a_subject_leaves_no_verdict(deed: Callable[[Problem], None]) -> None:
    assert isinstance(judge(case_like("own"), Hostile(deed)), Errored)


def test_an_interrupt_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        judge(case_like("own"), Counting(error=KeyboardInterrupt()))


def test_the_error_state_that_a_subject_sets_is_its_own() -> None:
    before = np.geterr()
    judge(case_like("own"), Hostile(lambda _: np.seterr(all="raise") and None))
    assert np.geterr() == before


class SharedBuffer(Counting):
    """Writes every answer into one buffer, and the first one wrongly."""

    def attend(self, problem: Problem) -> Outputs:
        outputs = super().attend(problem)
        if len(self.problems) == 1:
            self.buffer = outputs.attn_output + np.float32(7)
        else:
            self.buffer[...] = outputs.attn_output
        return replace(outputs, attn_output=self.buffer)


def test_a_later_call_cannot_mend_an_earlier_answer() -> None:
    assert isinstance(judge(case_like("own", calls="repeated"), SharedBuffer()), Diverges)


def test_who_gives_nothing_that_is_checked_does_not_agree() -> None:
    verdict = judge(case_like("own", check=("weights",)), WithoutGradients())
    assert isinstance(verdict, Unsupported)
    assert "gives none of what the case checks" in verdict.reason


def test_a_case_that_judges_nothing_says_so() -> None:
    case = case_like("own", dtype="float16", data=Data(magnitude=1000.0), check=("output",))
    verdict = judge(case, Counting())
    assert isinstance(verdict, Errored)
    assert verdict.exception == "NothingJudged"
    assert "no element of this case can be judged" in verdict.message


def test_a_limit_must_be_a_limit() -> None:
    class Odd(Counting):
        def unsupported(self, case: Case) -> Any:
            return "no"

    verdict = judge(case_like("own"), Odd())
    assert isinstance(verdict, Errored)
    assert "unsupported() gave a str" in verdict.message
