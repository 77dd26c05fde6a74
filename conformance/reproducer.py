"""A divergence as a script that needs only NumPy and the framework: no case file, no engine, no adapter."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from conformance.adapter import load
from conformance.pair import Pair
from conformance.run import expected, policy_of
from conformance.spec import Array, Problem
from conformance.store import Row
from conformance.suite import find_pair
from conformance.tensors import problem_of

_SCRIPT = '''\
"""{title}

{why}
Needs NumPy and {packages}. Exits with status 1 when the divergence shows.
"""
import base64, io, sys
import numpy as np

# {shapes}
data = dict(np.load(io.BytesIO(base64.b64decode(
{blob}
))))

{code}

worst = 0.0
for name, actual in actual.items():
    if name + "/expected" not in data:
        continue
    expected, bound = data[name + "/expected"], data[name + "/bound"]
    actual = np.asarray(actual, np.float64)
    if actual.shape != expected.shape:
        print(f"{{name}}: shape {{actual.shape}}, expected {{expected.shape}}")
        worst = np.inf
        continue
    if not actual.size:
        continue
    with np.errstate(all="ignore"):
        error = np.abs(actual - expected)
        ratio = np.where(error == 0, 0, error / bound)
    ratio = np.where(np.isnan(ratio) & np.isfinite(bound), np.inf, np.where(np.isinf(bound), 0, ratio))
    index = np.unravel_index(np.argmax(ratio), ratio.shape)
    place = ", ".join(str(int(i)) for i in index)
    print(f"{{name}}[{{place}}]: expected {{expected[index]:.9g}}, actual {{actual[index]:.9g}}, "
          f"bound {{bound[index]:.3g}}, error/bound {{ratio[index]:.3g}}; {{(ratio > 1).sum()}} of {{ratio.size}} outside")
    worst = max(worst, ratio.max())
sys.exit(1 if worst > 1 else 0)
'''
_REFUSAL = '''\
"""{title}

{why}
The call is ill-formed and must be refused. Needs NumPy and {packages}. Exits with status 1 when it is accepted.
"""
import base64, io, sys
import numpy as np

# {shapes}
data = dict(np.load(io.BytesIO(base64.b64decode(
{blob}
))))

try:
{code}
except Exception as error:
    print(f"refused: {{type(error).__name__}}: {{error}}")
    sys.exit(0)
print("accepted:", {{name: np.shape(array) for name, array in actual.items()}})
sys.exit(1)
'''


def script_of(pair: Pair) -> str | None:
    """The script of a pair, or None where its subject gives no code (a subject's optional ``script(problem)``)."""
    if pair.adapter.missing:
        return None
    subject = load(pair.subject)
    write: Callable[[Problem], str] | None = getattr(subject, "script", None)
    if write is None or subject.unsupported(pair.case) is not None:
        return None
    problem = problem_of(pair.case)
    arrays = problem_arrays(problem)
    refusal = pair.case.expect == "raises"
    if not refusal:
        _, expectation = expected(pair.case, policy_of(subject))
        for name, values in expectation.values.items():
            arrays[f"{name}/expected"] = values.astype(np.float64)
            arrays[f"{name}/bound"] = expectation.bounds[name]
    code = write(problem).strip("\n")
    return (_REFUSAL if refusal else _SCRIPT).format(
        title=pair.id,
        why=pair.case.why.replace('"""', "'''").replace("\\", "/"),
        packages=", ".join(pair.adapter.modules),
        shapes="; ".join(f"{name} {list(array.shape)}" for name, array in arrays.items() if "/" not in name),
        blob=_text(arrays),
        code="\n".join("    " + line if line else line for line in code.splitlines()) if refusal else code,
    )


def problem_arrays(problem: Problem) -> dict[str, Array]:
    """Inputs, parameters, cotangent and the parts of the mask, by name; bfloat16 as the float32 of the same values."""
    arrays = {"query": problem.query, "key": problem.key, "value": problem.value, "cotangent": problem.cotangent}
    arrays |= problem.parameters.present
    for part in ("key_padding", "key_lengths", "query_padding", "query_lengths", "causal", "window", "explicit"):
        array: Array | None = getattr(problem.mask, part)
        if array is not None:
            arrays[f"mask.{part}"] = array
    if problem.mask.additive is not None:
        arrays["mask.additive"] = problem.mask.additive
    return {name: array.astype(np.float32) if array.dtype.name == "bfloat16" else array for name, array in arrays.items()}


def reproducer_for(root: Path) -> Callable[[Row], str | None]:
    """What the report asks for the script of a row."""

    def reproducer(row: Row) -> str | None:
        pair = find_pair(row.node, [root / row.file], root)
        return None if pair is None else script_of(pair)

    return reproducer


def _text(arrays: dict[str, Array]) -> str:
    stream = io.BytesIO()
    keyed: dict[str, Any] = dict(arrays)
    np.savez_compressed(stream, **keyed)
    encoded = base64.b64encode(stream.getvalue()).decode("ascii")
    return "\n".join(f'    "{encoded[start : start + 110]}"' for start in range(0, len(encoded), 110))
