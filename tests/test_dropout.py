"""Dropout: correct subjects never raise an alarm, wrong ones do, and what an answer reveals is what was drawn."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.bounds.running_error import OVERFLOW, Pair, Rules, exact
from conformance.casefile import read_case_file
from conformance.deviations.rules import DeviationRules
from conformance.dropout import judge as dropout
from conformance.dropout.chances import allowed
from conformance.dropout.judge import DRAWS, draws_of
from conformance.dropout.kept import Kept
from conformance.dropout.masks import copies, from_output
from conformance.dropout.means import means_of
from conformance.dropout.scene import Scene
from conformance.policy import ENVELOPE, FORMATS
from conformance.problem import Outputs, Problem
from conformance.run import examine, judge
from conformance.spec import NUMPY_DTYPES, Array, Case, Data, Mask, Padding, Source
from conformance.tensors import problem_of
from conformance.verdict import Agrees, Diverges, Errored
from tests.casefiles import HEAD, case_of, faults_of
from tests.planted import CONTROL, dropout_faults
from tests.planted.attention import Attention
from tests.planted.setting import Setting, Tape

REVEALING = Case(
    id="dropout-test",
    suite="planted",
    name="dropout",
    why="What the output shows decides.",
    source=Source("tests/test_dropout.py", 1),
    batch=2,
    target_length=9,
    source_length=5,
    embed_dim=40,
    num_heads=4,
    num_kv_heads=4,
    head_dim=10,
    value_head_dim=10,
    kdim=40,
    vdim=40,
    output_dim=40,
    data=Data("revealing"),
    mode="train",
    dropout=0.3,
)
PLAIN = replace(REVEALING, id="dropout-plain", data=Data(), check=("output", "weights"), target_length=40)
CASES = {
    "revealing": REVEALING,
    "revealing-float64": replace(REVEALING, dtype="float64"),
    "revealing-bfloat16": replace(REVEALING, dtype="bfloat16", dropout=0.9),
    "revealing-mixed": replace(REVEALING, dtype="mixed_float16"),
    "revealing-groups": replace(REVEALING, num_kv_heads=2, mask=Mask(key_padding=Padding((0, 4)), causal="top-left")),
    "plain": PLAIN,
    "plain-extra-keys": replace(PLAIN, bias_kv=True, zero_attention=True, num_kv_heads=2),
    "plain-blocked": replace(PLAIN, bias=False, mask=Mask(key_padding=Padding((0, 4)), causal="top-left")),
    "plain-gradients": replace(PLAIN, check=("output", "weights", "gradients"), dropout=0.5),
    "plain-float16": replace(PLAIN, dtype="float16", dropout=0.05),
}
MANY = pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])


class OutputToo(Attention):
    """Drops the output as well, which is a convention, and takes its dropout back through."""

    name = "planted/output-too"

    def _factor(self, setting: Setting, output: Array) -> Array:
        again = replace(setting, problem=replace(setting.problem, seed=setting.problem.seed + 1))
        return self.kept(again, output)

    def output(self, setting: Setting, joined: Array) -> Array:
        output = super().output(setting, joined)
        return self.drop(setting, output, self._factor(setting, output))

    def output_backward(self, setting: Setting, tape: Tape) -> tuple[Array, Array, Array]:
        cotangent = setting.take(setting.problem.cotangent)
        dropped = self.drop(setting, cotangent, self._factor(setting, cotangent)).astype(cotangent.dtype)
        return super().output_backward(replace(setting, problem=replace(setting.problem, cotangent=dropped)), tape)


class WeightsAfter(Attention):
    """Returns the weights after dropout, which is a convention."""

    name = "planted/weights-after"

    def handed_back(self, tape: Tape) -> Array:
        return tape.dropped


class Both(OutputToo, WeightsAfter):
    """Both conventions."""

    name = "planted/both"


SOUND: tuple[type[Attention], ...] = (CONTROL, OutputToo, WeightsAfter, Both)


def kinds(case: Case, subject: Attention) -> set[str]:
    verdict = judge(case, subject)
    assert not isinstance(verdict, Errored), verdict
    return {finding.kind for finding in verdict.findings} if isinstance(verdict, Diverges) else set()


def test_weights_too_uncertain_to_show_a_drop_are_told_by_their_sums() -> None:
    case = replace(PLAIN, dtype="bfloat16", data=Data("coherent"), mask=Mask(), dropout=0.01)
    assert kinds(case, CONTROL()) == set()
    assert kinds(case, WeightsAfter()) == set()


class SharesAcross(Attention):
    """Weights two or more apart share one dropout mask."""

    def __init__(self, axis: int, source: tuple[int, ...]) -> None:
        self.axis, self.source = axis, source

    def keeps(self, setting: Setting, weights: Array) -> Array:
        kept = super().keeps(setting, weights)
        return kept.take(np.resize(self.source, kept.shape[self.axis]), self.axis)


@pytest.mark.parametrize(
    ("axis", "source"),
    [(1, (0, 1)), (2, tuple(range(8))), (2, (0, 1, 1, 3)), (3, (0, 1, 2))],
    ids=["every other head", "eight queries repeated", "queries 1 and 2 of 4", "three keys repeated"],
)
def test_masks_shared_by_others_than_neighbours_are_found(axis: int, source: tuple[int, ...]) -> None:
    case = replace(REVEALING, batch=2, target_length=16, num_heads=4, num_kv_heads=4, embed_dim=64, output_dim=64)
    case = replace(case, head_dim=16, value_head_dim=16, kdim=64, vdim=64, source_length=7, mask=Mask())
    assert kinds(case, CONTROL()) == set()
    assert kinds(case, SharesAcross(axis, source)) == {"dropout-shared"}


@pytest.mark.parametrize("length", [0, 1, 2, 7, 40])
def test_pairings_never_use_an_outcome_twice(length: int) -> None:
    pairings = list(dropout._matchings(length))
    for first, second in pairings:
        both = np.concatenate([first, second])
        assert len(set(both.tolist())) == len(both)
        assert both.max() < length
    assert {int(second[0] - first[0]) for first, second in pairings} == {
        apart for apart in (1, 2, 3, 4, 5, 6, 7, 8, 16, 32) if apart < length
    }


@MANY
@pytest.mark.parametrize("subject", [pytest.param(one, id=one.__name__) for one in SOUND])
def test_every_convention_agrees(case: Case, subject: type[Attention]) -> None:
    verdict = judge(case, subject())
    assert isinstance(verdict, Agrees), verdict
    assert verdict.note.endswith("false alarm ≤ 1e-09")


@pytest.mark.parametrize("case", [REVEALING, replace(REVEALING, dtype="float16", dropout=0.1)], ids=["32", "16"])
def test_conventions_are_observed(case: Case) -> None:
    observed = replace(case, expect="observe")
    assert kinds(observed, CONTROL()) == set()
    assert kinds(observed, OutputToo()) == {"output-dropout"}
    assert kinds(observed, WeightsAfter()) == {"weights-after-dropout"}
    assert kinds(observed, Both()) == {"output-dropout", "weights-after-dropout"}


@pytest.mark.parametrize(("subject", "case"), [(CONTROL, REVEALING), (OutputToo, REVEALING), (CONTROL, PLAIN)])
def test_hundreds_of_seeds_raise_no_alarm(subject: type[Attention], case: Case) -> None:
    small = replace(case, check=("output", "weights"), target_length=6)
    for seed in range(100):
        verdict = judge(replace(small, id=f"seed {seed}"), subject())
        assert isinstance(verdict, Agrees), (seed, verdict)


@pytest.mark.parametrize(("case", "expected"), [(REVEALING, "dropout-rate"), (PLAIN, "dropout-mean")])
def test_alarms_come_no_more_often_than_they_say(case: Case, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an alarm that is meant to sound now and then, it does not sound more often: 7 questions of 2 % each."""
    monkeypatch.setattr(dropout, "ALARM", 0.02)
    small = replace(case, check=("output",), target_length=6)
    found = [kinds(replace(small, id=f"alarm {seed}"), CONTROL()) for seed in range(100)]
    assert sum(bool(one) for one in found) <= 7 * 0.02 * 100
    monkeypatch.setattr(dropout, "ALARM", 1.5)  # and at a level beyond reason it does sound
    assert expected in {kind for seed in range(20) for kind in kinds(replace(small, id=f"alarm {seed}"), CONTROL())}


CAUGHT: dict[type[Attention], tuple[Case, set[str]]] = {
    dropout_faults.NotRescaled: (REVEALING, {"value"}),
    dropout_faults.KeepsInstead: (REVEALING, {"dropout-rate"}),
    dropout_faults.HeadsShare: (REVEALING, {"dropout-shared"}),
    dropout_faults.SamplesShare: (REVEALING, {"dropout-shared"}),
    dropout_faults.WholeRows: (REVEALING, {"dropout-shared"}),
    dropout_faults.WholeKeys: (REVEALING, {"dropout-shared"}),
    dropout_faults.SameEveryCall: (REVEALING, {"dropout-shared"}),
    dropout_faults.OtherMaskInBackward: (REVEALING, {"value"}),
    dropout_faults.NoMaskInBackward: (REVEALING, {"value"}),
    dropout_faults.WeightsNotRescaled: (REVEALING, {"value"}),
}


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name.split("/")[1]) for fault in CAUGHT])
def test_a_fault_is_of_its_kind(fault: type[Attention]) -> None:
    case, expected = CAUGHT[fault]
    assert kinds(case, fault()) == expected


@pytest.mark.parametrize("fault", [dropout_faults.NotRescaled, dropout_faults.KeepsInstead])
def test_where_nothing_is_revealed_the_mean_tells(fault: type[Attention]) -> None:
    assert kinds(replace(PLAIN, check=("output",)), fault()) == {"dropout-mean"}


def test_what_may_overflow_is_not_judged() -> None:
    case = replace(PLAIN, id="dropout-overflow", dtype="float16", check=("output",), data=Data(magnitude=100.0))
    scene = Scene(problem_of(case), ENVELOPE)
    bounds = scene.everything[0].bounds["attn_output"]
    assert np.isinf(bounds).any()
    assert np.isfinite(bounds).any()
    assert isinstance(judge(case, CONTROL()), Agrees)
    outputs = [CONTROL().attend(one).attn_output for one in draws_of(scene.problem)]
    outputs = [np.where(np.isinf(bounds), np.nan, output) for output in outputs]
    means = means_of(scene, outputs, dropped=False, alarm=1e-10)
    assert np.isfinite(means.along)
    assert np.isfinite(means.mean).all()


def test_means_measure_the_loss_along_the_output() -> None:
    scene = Scene(problem_of(PLAIN), ENVELOPE)
    outputs = [dropout_faults.NotRescaled().attend(one).attn_output for one in draws_of(scene.problem)]
    means = means_of(scene, outputs, dropped=False, alarm=1e-10)
    assert means.along == pytest.approx(-PLAIN.dropout, abs=0.05)
    assert means.along_strays < PLAIN.dropout
    wider = means_of(scene, outputs, dropped=True, alarm=1e-10)
    assert (wider.strays >= means.strays).all()
    assert wider.along_strays >= means.along_strays


def test_the_largest_surprise_of_the_mean_is_that_of_its_sharpest_coins() -> None:
    """One key with all the weight: the mean of n draws is Binomial(n, 1 − p)/(n(1 − p)) of it, and the radius covers
    what Hoeffding's inequality says of that."""
    case = replace(PLAIN, source_length=1, num_heads=1, num_kv_heads=1, output_dim=40, bias=False, dtype="float64")
    scene = Scene(problem_of(case), ENVELOPE)
    outputs = [CONTROL().attend(one).attn_output for one in draws_of(scene.problem)]
    means = means_of(scene, outputs, dropped=False, alarm=1e-10)
    whole = np.abs(means.expected) / (1 - case.dropout)
    alarm = 1e-10 / 2 / whole.size
    np.testing.assert_allclose(means.strays, whole * np.sqrt(np.log(2 / alarm) / 2 / DRAWS), rtol=1e-9)


def drawn(problem: Problem) -> Array:
    """The mask that the control draws, [B, H, T, S]."""
    return CONTROL().keeps(Setting.of(problem), np.zeros(problem.mask.shape))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_the_output_reveals_what_was_drawn(dtype: Any) -> None:
    problem = problem_of(replace(REVEALING, dtype=dtype, mask=Mask(causal="top-left")))
    scene, draws = Scene(problem, ENVELOPE), draws_of(problem)
    outputs = [CONTROL().attend(draw).attn_output for draw in draws]
    masks = from_output(scene, outputs, dropped=False)
    assert (masks.told == (scene.forward.attn_weights > 0)).all()
    assert copies(scene, outputs) == (0, masks.told.sum() * DRAWS)
    assert masks.odd == ()
    for found, draw in zip(masks.outcomes, draws, strict=True):
        assert (found == drawn(draw))[masks.told].all()
    masks = from_output(scene, [OutputToo().attend(draw).attn_output for draw in draws], dropped=True)
    for kept, draw in zip(masks.kept, draws, strict=True):
        assert kept.weights is not None
        known = kept.weights.error == 0
        assert 0.3 < known.mean() < 0.7
        assert ((kept.weights.value > 0) == drawn(draw))[known].all()


def test_a_weight_is_told_apart_from_nothing_or_not_counted() -> None:
    """Small weights beside a large one drown in its rounding only where they share an output element; here none do."""
    problem = problem_of(replace(REVEALING, dtype="bfloat16", data=Data("revealing", magnitude=4.0)))
    scene = Scene(problem, ENVELOPE)
    masks = from_output(scene, [CONTROL().attend(draw).attn_output for draw in draws_of(problem)], dropped=False)
    assert 0 < masks.told.sum() < masks.told.size  # the bound of a score near 16 leaves some weights open
    assert isinstance(judge(problem.case, CONTROL()), Agrees)


@MANY
def test_anything_spans_every_dropout(case: Case) -> None:
    """What is expected under one dropout lies within the bound under any."""
    scene = Scene(problem_of(case), ENVELOPE)
    random = np.random.default_rng(7)
    told = np.array(True)
    for share in (0.0, 0.3, 0.5, 1.0):
        weights = scene.weights(random.random(scene.forward.attn_weights.shape) < share, told)
        output = scene.output(random.random(scene.forward.attn_output.shape) < share, told)
        for number, kept in enumerate((Kept(weights), Kept(weights, output))):
            expectation = scene.expected(kept)
            for name, values in expectation.values.items():
                span = scene.anything[number]
                distance = np.abs(values - span.values[name])
                assert (distance <= span.bounds[name] + 1e-18).all(), name


def test_a_factor_carries_its_errors_at_their_worst() -> None:
    pair = Pair(np.array([3.0, -2.0, 0.5, 0.0]), np.array([0.5, 0.25, 0.75, 0.0]))
    factor = Pair(np.array([2.0, 0.75, 0.75, 1.5]), np.array([0.0, 0.75, 0.75, 0.0]))
    relative = 0.125
    found = Rules(FORMATS["float32"], 0.0).times(pair, factor, relative)
    reached = np.zeros(4)
    for signs in np.ndindex(2, 2, 2):
        one, other, third = (2 * sign - 1 for sign in signs)
        held = (factor.value + other * factor.error) * (1 + third * relative)
        reached = np.maximum(reached, np.abs((pair.value + one * pair.error) * held - found.value))
    np.testing.assert_allclose(found.error, reached)
    dropped = Rules(FORMATS["float32"], 0.0).times(Pair(np.array([5.0]), np.array([OVERFLOW])), exact(np.zeros(1)), 0.1)
    assert dropped.error[0] == OVERFLOW  # what may be infinite is NaN times 0


def test_a_factor_that_is_not_told_leaves_the_statistics() -> None:
    pair = Pair(np.array([3.0, 3.0, 3.0, 0.0]), np.array([0.5, 0.5, 0.5, 0.0]))
    factor = Pair(np.array([2.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    found = DeviationRules(FORMATS["float32"], 0.0).times(pair, factor, 0.25)
    np.testing.assert_array_equal(found.value, [6, 0, 3, 0])
    np.testing.assert_array_equal(found.error, [np.hypot(1.0, 1.5), 0, np.nan, 0])


@cache
def shipped() -> dict[str, Case]:
    return {case.name: case for case in read_case_file(Path(__file__).parent.parent / "cases" / "dropout.yaml")}


def test_the_documented_power_is_that_of_the_case() -> None:
    scene = Scene(problem_of(shipped()["rate-dropout0.1"]), ENVELOPE)
    outputs = [CONTROL().attend(draw).attn_output for draw in draws_of(scene.problem)]
    trials = int(from_output(scene, outputs, dropped=False).told.sum()) * DRAWS
    least, most = allowed(trials, 0.9, dropout.ALARM)
    few, _ = allowed(7168, 0.9, dropout.ALARM)
    text = " ".join((Path(__file__).parent.parent / "docs" / "tolerance.md").read_text("utf-8").split())
    assert f"A case is answered {DRAWS} times" in text
    assert f"there are {trials} weights, and from {least} to {most} may come through" in text
    assert f"with 7168 weights, p = 0.1 is known to ± {0.9 - few / 7168:.3f}" in text


def test_one_weight_in_a_hundred_more_is_seen() -> None:
    """What docs/tolerance.md says of the power: a probability of 0.11 in place of 0.1."""
    caught = [
        kinds(replace(shipped()["rate-dropout0.1"], id=f"power {number}"), dropout_faults.SlightlyMore())
        for number in range(10)
    ]
    assert caught == [{"dropout-rate"}] * 10


def test_draws_have_seeds_of_their_own() -> None:
    draws = draws_of(problem_of(REVEALING))
    assert len({draw.seed for draw in draws}) == len(draws) == DRAWS
    assert all(0 <= draw.seed < 2**31 for draw in draws)
    assert draws[0].seed == problem_of(REVEALING).seed
    again = [draw.seed for draw in draws_of(problem_of(REVEALING))]
    assert [draw.seed for draw in draws] == again
    assert draws[0].seed != problem_of(replace(REVEALING, id="another")).seed


def test_the_same_run_twice_gives_the_same_verdict() -> None:
    fault = dropout_faults.HeadsShare()
    assert judge(REVEALING, fault) == judge(REVEALING, fault)


def test_a_case_too_small_to_tell_is_an_error() -> None:
    tiny = replace(REVEALING, batch=1, target_length=1, source_length=1, dropout=0.001)
    verdict = judge(tiny, CONTROL())
    assert isinstance(verdict, Errored)
    assert "too few weights to tell" in verdict.message


def test_an_accuracy_that_tells_nothing_is_judged_like_ordinary_data() -> None:
    case = replace(REVEALING, dtype="float16", embed_dim=64, kdim=64, vdim=64)
    poor = replace(ENVELOPE, products="storage", batched_products="storage", softmax="storage")
    outputs: list[dict[str, Array | None]]
    outputs = [{"attn_output": CONTROL().attend(one).attn_output} for one in draws_of(problem_of(case))]
    assert "weights came through" in dropout.judge_draws(case, outputs, ENVELOPE).verdict.note  # type: ignore[union-attr]
    verdict = dropout.judge_draws(case, outputs, poor).verdict
    assert isinstance(verdict, Agrees)
    assert "the mean of 8 draws" in verdict.note


class Broken(Attention):
    """Answers its third draw wrongly, as ``change`` says."""

    name = "planted/broken"

    def __init__(self, change: Any) -> None:
        self.change = change
        self.calls = 0

    def attend(self, problem: Problem) -> Outputs:
        self.calls += 1
        found = super().attend(problem)
        return self.change(found) if self.calls == 3 else found


BROKEN = {
    "shape": (lambda found: replace(found, attn_output=found.attn_output[..., :-1]), "attn_output", "shape"),
    "no-weights": (lambda found: replace(found, attn_weights=None), "attn_weights", "missing"),
    "nan": (lambda found: replace(found, attn_output=found.attn_output * np.nan), "attn_output", "nonfinite"),
    "one": (lambda found: replace(found, attn_output=_bumped(found.attn_output)), "attn_output", "value"),
    "no-gradient": (lambda found: replace(found, gradients={}), "query.gradient", "missing"),
}


def _bumped(output: Array) -> Array:
    """One element that came through half."""
    index = np.unravel_index(int(np.argmax(output)), output.shape)
    changed = output.copy()
    changed[index] *= 0.6
    return changed


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("control", [None, WeightsAfter])
def test_one_broken_draw_is_enough(name: str, control: type[Attention] | None) -> None:
    change, output, kind = BROKEN[name]
    subject = Broken(change) if control is None else type("BrokenAfter", (Broken, control), {})(change)
    outcome = examine(REVEALING, subject)
    assert isinstance(outcome.verdict, Diverges)
    assert (output, kind) in {(finding.output, finding.kind) for finding in outcome.verdict.findings}
    assert all(finding.output != "attn_weights" for finding in outcome.verdict.findings if output != "attn_weights")
    if kind == "value":
        assert outcome.tensors["attn_output/actual"].shape == (2, 9, 40)


def test_the_wrong_dtype_is_seen() -> None:
    class Wide(Attention):
        def attend(self, problem: Problem) -> Outputs:
            found = super().attend(problem)
            return replace(found, attn_output=found.attn_output.astype(NUMPY_DTYPES["float64"]))

    assert kinds(REVEALING, Wide()) == {"dtype"}


ONE = "batch: 1, target_length: 1, embed_dim: 1, num_heads: 1"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("dropout: 1", "less than 1"),
        ("dropout: -0.1", "must be at least 0"),
        ("mode: training", "not one of: evaluate, train"),
        ("mode: train, dropout: 0.5, calls: repeated", "calls repeated says nothing"),
        ("mode: train, dropout: 0.5, relation: keys-permuted", "relation keys-permuted compares calls"),
        ("mode: train, dropout: 0.5, check: [weights]", "shows in the output: check it"),
        ("mode: train, dropout: 0.5, data: {poison: 9}, mask: {key_padding: {last: 1}}", "poison and dropout"),
        ("mode: train, dropout: 0.5, expected: {attn_output: [[[1.0]]]}, " + ONE, "no outputs can be written"),
        ("data: revealing", "data revealing needs value_head_dim ≥ 2·source_length"),
        ("data: revealing, embed_dim: 64, zero_attention: true", "data revealing needs"),
        ("data: revealing, embed_dim: 64, vdim: 4", "data revealing needs"),
        ("data: revealing, embed_dim: 64, output_dim: 32", "data revealing needs"),
        ("data: revealing, embed_dim: 64, target_length: 7, sharing: self", "data revealing needs"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said_where_it_stands(tmp_path: Path, written: str, message: str) -> None:
    (fault,) = faults_of(tmp_path, f"{HEAD}include: [{{name: a, {written}}}]")
    assert message in str(fault)
    assert fault.line == 3


def test_what_is_written_arrives(tmp_path: Path) -> None:
    case = case_of(tmp_path, "include: [{mode: train, dropout: 0.25, data: revealing, embed_dim: 64}]")
    assert (case.mode, case.dropout, case.drops) == ("train", 0.25, True)
    assert case.name == "D64-revealing-train-dropout0.25"
    plain = case_of(tmp_path, "include: [{name: a}]")
    assert (plain.mode, plain.dropout, plain.drops) == ("evaluate", 0.0, False)
    assert not case_of(tmp_path, "include: [{dropout: 0.5}]").drops
    assert not case_of(tmp_path, "include: [{mode: train}]").drops


@pytest.mark.parametrize("change", [{"value_head_dim": 9}, {"vdim": 4}, {"sharing": "key-value"}, {"bias_kv": True}])
def test_revealing_data_refuse_sizes_that_reveal_nothing(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="data revealing needs"):
        problem_of(replace(REVEALING, **change))
