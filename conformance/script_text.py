"""What every reproducer script is made of: its head with the arrays, and the line on the worst element."""

from __future__ import annotations

import base64
import io
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapter import Subject
from conformance.pair import Pair
from conformance.problem import Problem
from conformance.spec import Array, Case
from conformance.tensors import parameter_names

WIDTH = 110
COMPARED = "Needs NumPy and {}. Exits with status 1 when the divergence shows."
_COMPARED_WITH = (".expected", ".bound", ".rest")  # endings of arrays that are no arguments of a call
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
WORST = """\
    if not outside.any():
        print(f"{name}: all {outside.size} elements within the bound")
        return right
    ratio = np.where(outside, np.where(np.isnan(ratio), 0, ratio), -1)
    largest = np.where(ratio == ratio.max(), np.nan_to_num(error, nan=np.inf), -1)
    index = np.unravel_index(np.argmax(largest), ratio.shape)
    print(f"{name}[{', '.join(str(int(i)) for i in index)}]: expected {expected[index]:.9g}, "
          f"actual {actual[index]:.9g}, error {error[index]:.3g}, bound {bound[index]:.3g}, "
          f"ratio {ratio[index]:.3g}; {outside.sum()} of {outside.size} elements outside")
    return False"""


def head_of(pair: Pair, subject: Subject, task: str, arrays: Mapping[str, Array]) -> str:
    """The docstring, which says what is called and why, the imports, and ``data`` with the arrays. ``{}`` in the task
    stands for what the script needs beside NumPy."""
    versions = {**subject.versions(), "numpy": np.__version__}
    plain = portable(arrays)
    return _HEAD.format(
        title=pair.id,
        why="\n".join(textwrap.wrap(pair.case.why.replace("\\", "/").replace('"', "'"), WIDTH)),
        task="\n".join(textwrap.wrap(task.format(" and ".join(pair.adapter.modules)), WIDTH)),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        shapes="\n# ".join(_described({name: plain[name] for name in plain if not name.endswith(_COMPARED_WITH)})),
        blob=_text(plain),
    )


def indented(code: str) -> str:
    """Code one level deeper."""
    return "\n".join("    " + line if line else line for line in code.splitlines())


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


def judged_dtypes(subject: Subject, case: Case) -> dict[str, str]:
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
