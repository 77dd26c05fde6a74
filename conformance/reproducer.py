"""A divergence as a script that needs only NumPy and the framework: no case file, no engine, no adapter."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapter import Scripted, Subject, load
from conformance.compare import row_sums
from conformance.expectation import Expectation, expected, sample_of
from conformance.pair import Pair
from conformance.problem import Problem
from conformance.refusal import ACCIDENTS
from conformance.run import policy_of
from conformance.spec import Array, Case
from conformance.tensors import parameter_names, problem_of

WIDTH = 110
ROW_SUMS = "attn_weights.sum"
_HEAD = '''\
"""{title}

{why}

{task}
Found with {versions}.
"""
import base64, io, sys
import numpy as np

# {shapes}
data = dict(np.load(io.BytesIO(base64.b64decode(
{blob}
))))

'''
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
    if not outside.any():
        print(f"{name}: all {outside.size} elements within the bound")
        return right
    ratio = np.where(outside, np.where(np.isnan(ratio), 0, ratio), -1)
    largest = np.where(ratio == ratio.max(), np.nan_to_num(error, nan=np.inf), -1)
    index = np.unravel_index(np.argmax(largest), ratio.shape)
    print(f"{name}[{', '.join(str(int(i)) for i in index)}]: expected {expected[index]:.9g}, "
          f"actual {actual[index]:.9g}, error {error[index]:.3g}, bound {bound[index]:.3g}, "
          f"ratio {ratio[index]:.3g}; {outside.sum()} of {outside.size} elements outside")
    return False


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
_COMPARED = "Needs NumPy and {}. Exits with status 1 when the divergence shows."
_ILL_FORMED = "The call is ill-formed and must be refused. Needs NumPy and {}. Exits with status 1 when it is accepted."


def script_of(pair: Pair) -> str | None:
    """The script of a pair, or None where its subject gives none (see :class:`conformance.adapter.Scripted`), for a
    relation, whose calls are several and whose other side is the subject itself, and with dropout, which one call
    cannot show."""
    if pair.adapter.missing or pair.case.relation is not None or pair.case.dropout:
        return None
    subject = load(pair.subject)
    if not isinstance(subject, Scripted) or subject.unsupported(pair.case) is not None:
        return None
    if pair.case.ill_formed == "mixed-dtypes" and pair.case.storage == "bfloat16":
        return None  # scripts narrow every input alike, and with them the one that must stay wide
    problem = problem_of(pair.case)
    try:
        script = subject.script(problem, samples_of(problem))
    except NotImplementedError:
        return None
    arrays = inputs_of(problem) | dict(script.arrays)
    versions = {**subject.versions(), "numpy": np.__version__}
    head = _HEAD.format(
        title=pair.id,
        why="\n".join(textwrap.wrap(pair.case.why.replace("\\", "/").replace('"', "'"), WIDTH)),
        task=(_ILL_FORMED if pair.case.expect == "raises" else _COMPARED).format(" and ".join(pair.adapter.modules)),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        shapes="\n# ".join(_described(portable(arrays))),
        blob="{blob}",
    )
    if pair.case.expect == "raises":
        tail = _REFUSED.format(accidents=", ".join(accident.__name__ for accident in ACCIDENTS))
        code = "try:\n" + "\n".join("    " + line if line else line for line in script.code.splitlines())
    else:
        code, tail = script.code, _check(subject, pair.case, arrays)
    return head.replace("{blob}", _text(portable(arrays))) + code.rstrip() + tail


def samples_of(problem: Problem) -> tuple[Problem, ...]:
    """The samples of a problem whose case calls them one at a time; none where it is one call."""
    if problem.case.calls != "one-sample-at-a-time":
        return ()
    return tuple(sample_of(problem, index) for index in range(problem.case.batch))


def inputs_of(problem: Problem) -> dict[str, Array]:
    """Inputs, each object once, the cotangent where gradients are asked for, and the parameters, by name."""
    arrays: dict[str, Array] = {}
    for name in ("query", "key", "value"):
        array: Array = getattr(problem, name)
        if not any(array is other for other in arrays.values()):
            arrays[name] = array
    if problem.case.wants_gradients:
        arrays["cotangent"] = problem.cotangent
    return arrays | problem.parameters.present


def portable(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Contiguous arrays of NumPy's own dtypes: bfloat16 becomes the float32 of the same values."""

    def plain(array: Array) -> Array:
        return np.array(array, np.float32 if array.dtype.name == "bfloat16" else array.dtype, order="C")

    return {name: plain(array) for name, array in arrays.items()}


def _check(subject: Subject, case: Case, arrays: dict[str, Array]) -> str:
    """The text that judges ``actual``; puts what it compares with into ``arrays``."""
    policy = policy_of(subject)
    _, expectation = expected(case, policy)
    dtypes = _judged(subject, case)
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
        "{rest}": ' - data.get(name + ".rest", 0)' if any(name.endswith(".rest") for name in arrays) else "",
        "{exact}": inexact,
        "{dtypes}": "\n".join(f'    "{name}": "{dtype}",' for name, dtype in dtypes.items()),
        "{sums}": _SUMS.format(place=list(dtypes).index("attn_weights")) if "attn_weights" in dtypes else "",
    }
    text = _CHECK
    for mark, written in replaced.items():
        text = text.replace(mark, written)
    return text


def _judged(subject: Subject, case: Case) -> dict[str, str]:
    """Names of the outputs that are judged, with the dtype each must have."""
    names = ["attn_output"] if "output" in case.check else []
    if "weights" in case.check and subject.gives_weights:
        names.append("attn_weights")
    gradients: list[str] = []
    if subject.gives_gradients and case.wants_gradients:
        alone = case.calls == "one-sample-at-a-time"
        gradients = [f"{name}.gradient" for name in (*case.input_gradients, *(() if alone else parameter_names(case)))]
    return dict.fromkeys(names, case.compute) | dict.fromkeys(gradients, case.storage)


def _described(arrays: Mapping[str, Array]) -> list[str]:
    """Names, dtypes and shapes of arrays in lines of comment."""
    lines, line = [], ""
    for name, array in arrays.items():
        item = f"{name} {array.dtype.name}{list(array.shape)}"
        if line and len(line) + len(item) > WIDTH - 4:
            lines.append(line)
            line = ""
        line += f"{', ' if line else ''}{item}"
    return [*lines, line]


def _text(arrays: Mapping[str, Array]) -> str:
    stream = io.BytesIO()
    keyed: dict[str, Any] = dict(arrays)
    np.savez_compressed(stream, **keyed)
    encoded = base64.b64encode(stream.getvalue()).decode("ascii")
    return "\n".join(f'    "{encoded[start : start + WIDTH]}"' for start in range(0, len(encoded), WIDTH))
