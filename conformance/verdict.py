"""What a comparison can end in, and what each end means to pytest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NoReturn

from conformance.spec import Unsupported

Kind = Literal[
    "accepted",  # an ill-formed call did not raise
    "raised",  # a well-formed call raised
    "missing",  # an output or gradient that was asked for is absent
    "shape",
    "dtype",
    "nan-blocked-row",  # NaN where a fully blocked row must be exactly neutral
    "uniform-blocked-row",  # a fully blocked row attends to all keys alike
    "unmasked-blocked-row",  # a fully blocked row is answered as if nothing were masked
    "blocked-row",  # a fully blocked row is otherwise not neutral
    "blocked-weight",  # weight, or gradient, at a blocked position is not exactly 0
    "nonfinite",  # NaN or infinity where the reference is finite
    "row-sum",  # a row of weights does not sum to 1
    "inexact",  # an exact case is not bit-equal
    "value",  # an element lies outside the bound
    "statistics",  # every element lies inside, and all together err more than rounding does
    "dropout-rate",  # more or fewer weights are kept than chance allows
    "dropout-shared",  # what must be drawn by itself is dropped together with something else
    "dropout-mean",  # the mean over several draws is not the answer without dropout
    "output-dropout",  # observed: the output is dropped as well as the weights
    "weights-after-dropout",  # observed: the weights come back as dropout left them
    "unstable",  # a repeated call answers differently
    "relation",  # two calls, or two parts of one answer, that must agree do not
    "as-contract",  # an observed case where the subject does what the contract would ask
]


@dataclass(frozen=True)
class Worst:
    """The element with the largest error/bound ratio of one finding."""

    index: tuple[int, ...]
    expected: float
    actual: float
    error: float
    bound: float

    @property
    def ratio(self) -> float:
        """Error over bound: ``inf`` when the bound is 0 or the error is not finite."""
        if self.error == 0:
            return 0.0
        finite = self.error == self.error and self.error != float("inf")
        return self.error / self.bound if finite and self.bound > 0 else float("inf")


@dataclass(frozen=True)
class Finding:
    """One kind of fault in one output: ``count`` elements of ``total`` show it."""

    output: str
    kind: Kind
    message: str
    count: int = 1
    total: int = 1
    worst: Worst | None = None


@dataclass(frozen=True)
class Measure:
    """How close one output came, whatever the verdict."""

    output: str
    elements: int
    not_judged: int  # elements whose bound overflows
    bit_equal: int
    max_abs_error: float
    max_ulp: float  # in the storage format, for display only
    max_ratio: float
    max_ratio_index: tuple[int, ...]
    p99_ratio: float
    assert_close: bool  # what torch.testing.assert_close's default tolerances would have said
    rms: float | None = None  # rms(error/σ); None where no element has statistics


@dataclass(frozen=True)
class Agrees:
    """Every judged element lies within its bound, and the structure is right."""

    measures: tuple[Measure, ...] = ()
    note: str = ""

    def __bool__(self) -> NoReturn:
        raise TypeError("match on the type of a verdict; its truth value means nothing")


@dataclass(frozen=True)
class Diverges:
    """At least one finding; the first is the one to show."""

    findings: tuple[Finding, ...]
    measures: tuple[Measure, ...] = ()

    def __bool__(self) -> NoReturn:
        raise TypeError("match on the type of a verdict; its truth value means nothing")


@dataclass(frozen=True)
class Errored:
    """The subject raised where it should have answered, or the engine failed on it."""

    exception: str
    message: str
    traceback: str
    accident: bool = False  # a mistake of a program, such as a NameError: no known divergence is about one

    def __bool__(self) -> NoReturn:
        raise TypeError("match on the type of a verdict; its truth value means nothing")


Verdict = Agrees | Diverges | Unsupported | Errored
