"""A broken relation as a script: every call of both sides, and where their answers differ although they must not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from conformance.adapter import Script, Scripted, Subject
from conformance.pair import Pair
from conformance.relations.check import expectations, sides_of
from conformance.relations.table import Relation, meaning_of, relation_of
from conformance.relations.views import Told
from conformance.run import policy_of
from conformance.script_text import COMPARED, WORST, head_of, indented, inputs_of, judged_dtypes
from conformance.spec import Array

_ARGUMENTS = '''\
def arguments(call):
    """The arrays of one call: its own, and those that all calls share."""
    own = f"{call}/"
    return {name.removeprefix(own): array for name, array in data.items() if "/" not in name or name.startswith(own)}


'''
_CALLS = '''
calls = [
{calls}
]
for name, (dtype, *shapes) in {
{wanted}
}.items():
    for call, shape in enumerate(shapes):
        actual = calls[call].get(name)
        found = None if actual is None else (str(actual.dtype).split(".")[-1], tuple(actual.shape))
        if found != (dtype, shape):
            print(f"call {call}: {name}: {found}, expected {(dtype, shape)}")
            sys.exit(1)
        calls[call][name] = np.array(actual.tolist(), np.longdouble).reshape(shape)

left = {
{left}
}
right = {
{right}
}


def agrees(name):
    """Whether both sides agree within the sum of their bounds; prints the worst element that does not."""
    actual, expected, bound = left[name], right[name], data[name + ".bound"]
    with np.errstate(all="ignore"):
        alike = np.isnan(actual) & np.isnan(expected) | np.isinf(actual) & (actual == expected)
        error = np.where(alike, 0, np.abs(actual - expected))
        outside = ~(error <= bound) & np.isfinite(bound)
        ratio = np.where(np.isfinite(error), error / bound, np.inf)
{worst}


verdicts = [agrees(name) for name in left]
sys.exit(0 if all(verdicts) else 1)
'''


def relation_script(pair: Pair, subject: Subject, writer: Scripted) -> str:
    """The script of a pair whose case asks for a relation. ``writer`` is the subject.

    Raises NotImplementedError where a call cannot be written down.
    """
    case, relation = pair.case, relation_of(pair.case)
    calls = expectations(case, policy_of(subject))
    scripts = [writer.script(problem, ()) for problem in relation.problems]
    dtypes = judged_dtypes(subject, case)
    sides = sides_of(case, calls, [list(dtypes)] * len(calls))
    split = len(relation.left.problems)
    left = set(relation.left.view([call.values for call in calls[:split]]))
    names = [name for name in dtypes if name in sides.bounds and name in left]
    arrays = _shared([inputs_of(one) | dict(text.arrays) for one, text in zip(relation.problems, scripts, strict=True)])
    arrays |= {f"{name}.bound": sides.bounds[name] for name in names} | _told(relation, names)
    task = f"Relation {case.relation}: {meaning_of(case.relation)} {COMPARED}" if case.relation else COMPARED
    functions, made = _functions(scripts)
    shapes = {name: [call.values[name].shape for call in calls] for name in dtypes}
    wanted = [f'    "{name}": {(dtype, *shapes[name])!r},' for name, dtype in dtypes.items()]
    replaced = {
        "{calls}": "\n".join(f"    {function}(arguments({call}))," for call, function in enumerate(made)),
        "{wanted}": "\n".join(wanted),
        **_views(relation, split, len(calls), names),
        "{worst}": WORST.replace("return right", "return True"),
    }
    text = _CALLS
    for mark, written in replaced.items():
        text = text.replace(mark, written)
    return head_of(pair, subject, task, arrays) + _ARGUMENTS + functions + text


def _shared(calls: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Arrays of every call by ``call/name``; by ``name`` alone where all calls have the same."""
    arrays: dict[str, Array] = {}
    for number, call in enumerate(calls):
        for name, array in call.items():
            if all(name in other and _same(array, other[name]) for other in calls):
                arrays[name] = array
            else:
                arrays[f"{number}/{name}"] = array
    return arrays


def _same(one: Array, other: Array) -> bool:
    return one is other or (one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())


def _functions(scripts: Sequence[Script]) -> tuple[str, list[str]]:
    """The definition of a function for each distinct code, and the function of each call."""
    codes = list(dict.fromkeys(script.code.rstrip() for script in scripts))
    names = {code: f"attend{number}" if len(codes) > 1 else "attend" for number, code in enumerate(codes)}
    texts = [f"def {name}(data):\n{indented(code)}\n    return actual\n\n" for code, name in names.items()]
    return "\n".join(texts), [names[script.code.rstrip()] for script in scripts]


def _views(relation: Relation, split: int, count: int, names: Sequence[str]) -> dict[str, str]:
    """Both sides of what is compared, written down."""
    calls = [f"calls[{number}]" for number in range(count)]
    sides = (("{left}", relation.left, calls[:split]), ("{right}", relation.right, calls[split:]))
    return {
        mark: "\n".join(f'    "{name}": {side.view.written(own, name)},' for name in names) for mark, side, own in sides
    }


def _told(relation: Relation, names: Sequence[str]) -> dict[str, Array]:
    """What is known without a call, in float64 and what is beyond it."""
    if not isinstance(relation.right.view, Told):
        return {}
    told = {name: np.asarray(relation.right.view.arrays[name]) for name in names}
    near = {name: array.astype(np.float64) for name, array in told.items()}
    rests = {name: (array - near[name]).astype(np.float64) for name, array in told.items()}
    return {f"{name}.expected": near[name] for name in names} | {f"{name}.rest": rests[name] for name in names}
