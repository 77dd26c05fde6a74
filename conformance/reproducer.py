"""A divergence as a script that needs only NumPy and the framework: no case file, no engine, no adapter.

With dropout in training there is none: the verdict is on eight draws, each held against the reference under the mask
that it reveals, or all of them against chance, and neither fits into a short script.
"""

from __future__ import annotations

import numpy as np

from conformance.adapter import Scripted, Subject, load
from conformance.calls import limit_of
from conformance.compare import row_sums
from conformance.expectation import Expectation, expected, sample_of
from conformance.pair import Pair
from conformance.problem import Problem
from conformance.refusal import ACCIDENTS
from conformance.run import policy_of
from conformance.script_relation import relation_script
from conformance.script_text import COMPARED, WORST, head_of, indented, inputs_of, judged_dtypes
from conformance.spec import Array, Case
from conformance.tensors import problem_of

ROW_SUMS = "attn_weights.sum"
_CHECK = '''

def agrees(name, actual, dtype):
    """Whether all elements lie within their bounds; prints the worst one that does not."""
    if actual is None:
        print(f"{name}: not returned")
        return False
    expected, bound = data[name + ".expected"], data[name + ".bound"]
    if tuple(actual.shape) != expected.shape:
        print(f"{name}: shape {tuple(actual.shape)}, expected {expected.shape}")
        return False
    right = str(actual.dtype).split(".")[-1] == dtype
    if not right:
        print(f"{name}: dtype {actual.dtype}, expected {dtype}")
    actual = np.array(actual.tolist(), np.float64).reshape(expected.shape)
    with np.errstate(all="ignore"):
        error = np.abs(actual - expected{rest})
        outside = ~(error <= bound) & np.isfinite(bound){exact}
        ratio = np.where(np.isfinite(error), error / bound, np.inf)
{worst}

verdicts = [agrees(name, actual.get(name), dtype) for name, dtype in {
{dtypes}
}.items()]
{sums}sys.exit(0 if all(verdicts) else 1)
'''
_SUMS = f"""\
if actual.get("attn_weights") is not None and verdicts[{{place}}]:
    sums = np.array(actual["attn_weights"].tolist(), np.float64).sum(-1).reshape(data["{ROW_SUMS}.expected"].shape)
    verdicts.append(agrees("{ROW_SUMS}", sums, "float64"))
"""
_REFUSED = """
except ({accidents}):
    raise  # an accident, not a refusal
except Exception as error:
    print(f"refused: {{type(error).__name__}}: {{error}}")
    sys.exit(0)
print("accepted:", {{name: tuple(array.shape) for name, array in actual.items()}})
sys.exit(1)
"""
_ILL_FORMED = "The call is ill-formed and must be refused. Needs NumPy and {}. Exits with status 1 when it is accepted."


def script_of(pair: Pair) -> str | None:
    """The script of a pair, or None where its subject gives none (see :class:`conformance.adapter.Scripted`), and
    where random numbers decide the answer."""
    if pair.adapter.missing or pair.case.drops:
        return None
    subject = load(pair.subject)
    if not isinstance(subject, Scripted) or limit_of(pair.case, subject) is not None:
        return None
    if pair.case.ill_formed == "mixed-dtypes" and pair.case.storage == "bfloat16":
        return None  # scripts narrow every input alike, and with them the one that must stay wide
    try:
        if pair.case.relation is not None:
            return relation_script(pair, subject, subject)
        return _one_call(pair, subject, subject)
    except NotImplementedError:
        return None


def _one_call(pair: Pair, subject: Subject, writer: Scripted) -> str:
    problem = problem_of(pair.case)
    script = writer.script(problem, samples_of(problem))
    arrays = inputs_of(problem) | dict(script.arrays)
    if pair.case.expect == "raises":
        tail = _REFUSED.format(accidents=", ".join(accident.__name__ for accident in ACCIDENTS))
        code = "try:\n" + indented(script.code)
        return head_of(pair, subject, _ILL_FORMED, arrays) + code.rstrip() + tail
    tail = _check(subject, pair.case, arrays)
    return head_of(pair, subject, COMPARED, arrays) + script.code.rstrip() + tail


def samples_of(problem: Problem) -> tuple[Problem, ...]:
    """The samples of a problem whose case calls them one at a time; none where it is one call."""
    if problem.case.calls != "one-sample-at-a-time":
        return ()
    return tuple(sample_of(problem, index) for index in range(problem.case.batch))


def _check(subject: Subject, case: Case, arrays: dict[str, Array]) -> str:
    """The text that judges ``actual``; puts what it compares with into ``arrays``."""
    policy = policy_of(subject)
    _, expectation = expected(case, policy)
    dtypes = judged_dtypes(subject, case)
    compared = {name: (expectation.values[name], expectation.bounds[name]) for name in dtypes}
    if "attn_weights" in dtypes:
        compared[ROW_SUMS] = row_sums(expectation, policy)
    for name, (values, bound) in compared.items():
        arrays[f"{name}.expected"], arrays[f"{name}.bound"] = values.astype(np.float64), bound
        rest = values - values.astype(np.float64)
        if np.isfinite(values).all() and rest.any():
            arrays[f"{name}.rest"] = rest.astype(np.float64)
    return _check_text(expectation, dtypes, arrays)


def _check_text(expectation: Expectation, dtypes: dict[str, str], arrays: dict[str, Array]) -> str:
    exact, inexact = [name for name in dtypes if name in expectation.exact], ""
    if exact:
        inexact = f"\n        if name in {exact}:  # every step is exact\n            outside |= actual != expected"
    replaced = {
        "{worst}": WORST,
        "{rest}": ' - data.get(name + ".rest", 0)' if any(name.endswith(".rest") for name in arrays) else "",
        "{exact}": inexact,
        "{dtypes}": "\n".join(f'    "{name}": "{dtype}",' for name, dtype in dtypes.items()),
        "{sums}": _SUMS.format(place=list(dtypes).index("attn_weights")) if "attn_weights" in dtypes else "",
    }
    text = _CHECK
    for mark, written in replaced.items():
        text = text.replace(mark, written)
    return text
