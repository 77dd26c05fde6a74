"""What a subject documents about its arithmetic: the only freedom the bound grants it beyond rounding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Precision = Literal["wide", "float32", "storage"]


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: significand bits, exponents of its smallest and largest normal numbers."""

    name: str
    significand: int
    smallest_exponent: int
    largest_exponent: int

    @cached_property
    def unit_roundoff(self) -> float:
        return 2.0**-self.significand

    @cached_property
    def smallest_normal(self) -> float:
        return 2.0**self.smallest_exponent

    @cached_property
    def smallest_subnormal(self) -> float:
        return float(np.ldexp(1.0, max(self.smallest_exponent - self.significand + 1, -1074)))

    @cached_property
    def largest(self) -> float:
        return (2.0 - 2.0 ** (1 - self.significand)) * 2.0**self.largest_exponent

    @cached_property
    def flushes(self) -> bool:
        """Whether hardware may flush subnormal numbers to zero: formats with float32's exponent range or more."""
        return self.smallest_exponent <= -126

    @property
    def underflow(self) -> float:
        """Absolute error of one operation near zero."""
        return self.smallest_normal if self.flushes else self.smallest_subnormal


FORMATS = {
    "float64": Format("float64", 53, -1022, 1023),
    "float32": Format("float32", 24, -126, 127),
    "float16": Format("float16", 11, -14, 15),
    "bfloat16": Format("bfloat16", 8, -126, 127),
}


@dataclass(frozen=True)
class Policy:
    """Formats of the stages, relative to the storage format, and which algorithms are allowed for.

    ``wide`` is float64 for float64 storage and float32 otherwise. The default is the envelope: every common choice
    that keeps accumulation and softmax wide, so a subject that declares nothing is judged soundly. Declaring
    ``flash=False`` or a better exponential sharpens the bound; declaring a narrower format widens it and must rest
    on the framework's documentation or source.

    The placement of the scale, of biases and of intermediate stores is always left open: all placements are covered.
    """

    products: Precision = "wide"  # projections
    batched_products: Precision = "wide"  # scores, context and their gradients
    softmax: Precision = "wide"
    softmax_gradient: Precision = "wide"
    weight_gradients: Precision = "wide"
    bias_gradients: Precision = "wide"
    scale: Precision = "storage"  # format in which the constant 1/√Dh is held
    flash: bool = True  # unnormalised weights, row sums from the output, weights rebuilt from log-sum-exp
    exponential_units: float = 40.0  # error of exp in units of its format's roundoff; 40 covers ATen's fast exp
    exponential_relative: float = 2e-4  # further relative error of exp for 16-bit storage in flash kernels
    rescalings: int = 2  # rescaling roundings of an online softmax

    def format(self, precision: Precision, storage: Format) -> Format:
        """The format that a relative precision means for a storage format."""
        if precision == "storage":
            return storage
        if precision == "float32":
            return FORMATS["float32"]
        return FORMATS["float64" if storage.name == "float64" else "float32"]


ENVELOPE = Policy()
