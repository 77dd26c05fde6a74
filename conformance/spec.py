"""What one attention problem is: the value types that the engine and every adapter share.

Shape legend, used in every shape comment of this project::

    B  batch             T  target (query) length     S  source (key and value) length
    H  query heads       K  key/value heads           Dh width of a query or key head
    D  embed_dim         Dk kdim   Dv vdim            Dhv width of a value head   Do output_dim
    E  extra key rows: one for ``bias_kv``, one for ``zero_attention``

This module runs on Python 3.10 with NumPy and ml_dtypes alone, so that adapters built on it can run beside
old releases of a framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from conformance.vocabulary import (
    Alignment,
    Axes,
    Calls,
    Check,
    Dtype,
    IllFormed,
    Layout,
    MaskRoute,
    Mode,
    Pattern,
    Regime,
    Relation,
    Sharing,
    Side,
)

Array = NDArray[Any]
MASK_PARTS = ("key_padding", "query_padding", "causal", "window", "explicit", "additive")
NUMPY_DTYPES: Mapping[str, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass(frozen=True)
class Padding:
    """Real positions of each sample; ``side`` is where the padding is."""

    lengths: tuple[int, ...]
    side: Side = "right"


@dataclass(frozen=True)
class Window:
    """Query i sees keys i + offset − before … i + offset + after; offset is 0, or S − T under ``bottom-right``."""

    before: int
    after: int
    align: Alignment = "top-left"


@dataclass(frozen=True)
class Explicit:
    """A Boolean mask in one of the accepted shapes; True means *may not attend*.

    ``axes`` is the shape as letters: ``TS`` is [T, S], ``B11S`` is [B, 1, 1, S]. ``pattern`` says what is blocked:
    a random ``density`` of positions that leaves every row one key; everything outside diagonal blocks of
    ``block``; whole ``indices`` of rows, keys, heads or samples; everything; or ``literal`` 0/1 ``values``.
    """

    pattern: Pattern
    axes: Axes = "TS"
    density: float = 0.4
    block: int = 2
    indices: tuple[int, ...] = ()
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Additive:
    """A floating-point bias added to the scores, normal with standard deviation ``magnitude``.

    ``minus_inf`` writes −inf at the positions of a Boolean pattern of the same ``axes``; ``literal`` values are
    given by ``values`` instead.
    """

    axes: Axes = "TS"
    magnitude: float = 1.0
    minus_inf: Explicit | None = None
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Mask:
    """The mask of a case, one field for each part; all parts block together (logical or)."""

    key_padding: Padding | None = None
    query_padding: Padding | None = None
    causal: Alignment | None = None
    window: Window | None = None
    explicit: Explicit | None = None
    additive: Additive | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that are present, in the order of :data:`MASK_PARTS`."""
        return tuple(part for part in MASK_PARTS if getattr(self, part) is not None)

    def __str__(self) -> str:
        return "+".join(part.replace("_", "-") for part in self.parts) or "none"


@dataclass(frozen=True)
class Data:
    """How inputs are drawn. ``magnitude`` multiplies them; ``poison`` overwrites key and value inputs at keys that
    no query of their sample may attend to."""

    regime: Regime = "normal"
    magnitude: float = 1.0
    poison: float | None = None


@dataclass(frozen=True)
class Source:
    """Where a case is written: as an entry of its own, or by a matrix."""

    file: str
    line: int
    entry: bool = False


@dataclass(frozen=True)
class Literals:
    """Numbers written in the case file: inputs and parameters by name, and expected outputs by name."""

    given: tuple[tuple[str, Any], ...] = ()
    expected: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Case:
    """One fully specified attention problem. Sizes are resolved: no field that a subject needs is left open."""

    id: str
    suite: str
    name: str
    why: str
    source: Source
    batch: int
    target_length: int
    source_length: int
    embed_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    kdim: int
    vdim: int
    output_dim: int
    dtype: Dtype = "float32"
    mask: Mask = field(default_factory=Mask)
    mask_route: MaskRoute = "native"
    data: Data = field(default_factory=Data)
    layout: Layout = "contiguous"
    sharing: Sharing = "separate"
    calls: Calls = "once"
    mode: Mode = "evaluate"
    dropout: float = 0.0  # probability that a weight is dropped in training
    relation: Relation | None = None
    bias: bool = True
    bias_kv: bool = False
    zero_attention: bool = False
    scale: float | None = None
    ill_formed: IllFormed | None = None
    literals: Literals = field(default_factory=Literals)
    check: tuple[Check, ...] = ("output", "weights", "gradients")
    expect: Literal["agree", "observe", "raises"] = "agree"
    subjects: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def storage(self) -> str:
        """Name of the dtype in which inputs and parameters are stored."""
        return "float32" if self.dtype.startswith("mixed_") else self.dtype

    @property
    def compute(self) -> str:
        """Name of the dtype in which results come back: the storage dtype, or the low one of a mixed policy."""
        return self.dtype.removeprefix("mixed_")

    @property
    def mixed(self) -> bool:
        """Whether a mixed-precision policy (autocast) is asked for."""
        return self.dtype.startswith("mixed_")

    @property
    def drops(self) -> bool:
        """Whether random numbers decide the answer: dropout is on."""
        return self.dropout > 0 and self.mode == "train"

    @property
    def extra_keys(self) -> int:
        """E, the rows appended to keys and values after the projections."""
        return int(self.bias_kv) + int(self.zero_attention)

    @property
    def wants_gradients(self) -> bool:
        return "gradients" in self.check

    @property
    def effective_scale(self) -> float:
        """The factor on the scores: the case's own, or 1/√Dh."""
        return 1.0 / float(np.sqrt(self.head_dim)) if self.scale is None else self.scale

    @property
    def plain_widths(self) -> bool:
        """Whether kdim, vdim, output_dim and H·Dh all equal embed_dim and heads are not grouped."""
        return (
            self.kdim == self.vdim == self.output_dim == self.embed_dim
            and self.num_heads * self.head_dim == self.embed_dim
            and self.value_head_dim == self.head_dim
            and self.num_kv_heads == self.num_heads
        )

    @property
    def input_gradients(self) -> tuple[str, ...]:
        """Inputs whose gradient is asked for. A shared object has one gradient, the sum over its uses."""
        match self.sharing:
            case "self":
                return ("query",)
            case "key-value":
                return ("query", "key")
            case "query-key":
                return ("query", "value")
            case _:
                return ("query", "key", "value")


@dataclass(frozen=True)
class Unsupported:
    """A rightful limit of a subject: a documented restriction, shown as a skip."""

    reason: str
    link: str | None = None
