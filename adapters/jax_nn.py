"""JAX: ``jax.nn.dot_product_attention`` run eagerly and compiled, and the textbook recipe written by hand.

All three have their projections in ``jnp``. A compiled function is keyed by shapes, dtypes and a hashable record of
static options; masks, inputs, parameters and the cotangent are arguments, so one compilation serves every mask of a
shape. The scale of ``dot_product_attention`` is documented as a Python float and is therefore static; the textbook's
is an argument.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from adapters.jax_compilation import Compilations, keep_compilations
from adapters.jax_masks import JaxMask, full_mask_and_bias, jax_mask, mask_and_bias
from adapters.scripting import masks_by_call
from conformance.adapter import Adapter, Script
from conformance.policy import Policy
from conformance.problem import Outputs, Problem
from conformance.spec import Array, Case, Unsupported

DOCUMENTATION = "https://docs.jax.dev/en/latest/_autosummary/jax.nn.dot_product_attention.html"
LARGE_NEGATIVE = -1e9
# XLA budgets 6 ULP, twelve units of roundoff, for exp in float32 on CPU and 1 in float64
# (xla/codegen/intrinsic/accuracy/accuracy_budget.h). Scores are float32 or wider when they are scaled.
DECLARED = Policy(flash=False, scale="wide", exponential_units=12)
Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Static:
    """What a compilation depends on besides shapes and dtypes."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    input_names: tuple[str, str, str]
    gradients: bool
    scale: float | None = None
    is_causal: bool = False
    local_window_size: tuple[int, int] | None = None


@dataclass(frozen=True)
class Call:
    """The arguments of one call: every array is a traced argument."""

    static: Static
    inputs: Mapping[str, Array]
    parameters: Mapping[str, Array]
    masks: Mapping[str, Array]
    cotangent: Array

    @property
    def signature(self) -> Hashable:
        """What the call is compiled for."""
        given = (*self.inputs.items(), *self.parameters.items(), *self.masks.items())
        return self.static, tuple((name, array.shape, array.dtype.name) for name, array in given)


class _JaxSubject:
    """Construction, projections and gradients; a subclass gives the attention between the projections."""

    name: str
    gives_weights: bool = False
    gives_gradients: bool = True
    compiled: bool = True
    policy: Policy = DECLARED

    def __init__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax

        # Without it float64 arrays are silently taken as float32.
        jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
        keep_compilations(jax)
        self.jax = jax
        self._compilations = Compilations(jax)
        self.run: Callable[..., Any] = jax.jit(self._run, static_argnames="static") if self.compiled else self._run

    @property
    def compilations(self) -> int:
        """How often a call was of a new signature."""
        return self._compilations.count

    def versions(self) -> Mapping[str, str]:
        """Versions of jax, of jaxlib, which brings XLA, and of NumPy."""
        return {name: version(name) for name in ("jax", "jaxlib", "numpy")}

    def unsupported(self, case: Case) -> Unsupported | None:
        """Dropout, mixed policies and appended keys, which JAX does not have."""
        if case.drops:
            return Unsupported("dot_product_attention has no dropout", DOCUMENTATION)
        if case.mixed:
            return Unsupported("JAX has no mixed-precision policy: arrays are computed in their own dtype")
        if case.bias_kv or case.zero_attention:
            return Unsupported("dot_product_attention has no appended key and value rows", DOCUMENTATION)
        return None

    def attend(self, problem: Problem) -> Outputs:
        """Multi-head attention of the problem; raises what JAX raises."""
        call = self.call_of(problem)
        self._compilations.make_room(call.signature)
        output, weights, gradients = self.run(
            call.inputs, call.parameters, call.masks, call.cotangent, static=call.static
        )
        return Outputs(
            attn_output=np.asarray(output),
            attn_weights=None if weights is None else np.asarray(weights),
            gradients={name: np.asarray(gradient) for name, gradient in gradients.items()},
        )

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        """The same call with NumPy and JAX alone."""
        from adapters.jax_script import JaxCall, jax_script

        masks, varying = masks_by_call(problem, samples, lambda one: self.mask_of(one).arrays)
        call = JaxCall(self.mask_of(problem), masks, varying, self.compiled, textbook=self.gives_weights)
        return jax_script(problem, call)

    def call_of(self, problem: Problem) -> Call:
        """The arguments and the static options of a problem."""
        case, mask = problem.case, self.mask_of(problem)
        static = Static(
            num_heads=case.num_heads,
            num_kv_heads=case.num_kv_heads,
            head_dim=case.head_dim,
            value_head_dim=case.value_head_dim,
            input_names=problem.input_names,
            gradients=case.wants_gradients,
            scale=self.static_scale(case),
            is_causal=mask.is_causal,
            local_window_size=mask.local_window_size,
        )
        return Call(static, problem.distinct_inputs, problem.parameters.present, mask.arrays, problem.cotangent)

    def mask_of(self, problem: Problem) -> JaxMask:
        return jax_mask(problem)

    def static_scale(self, case: Case) -> float | None:
        return case.scale

    def attention(self, query: Any, key: Any, value: Any, masks: Arrays, static: Static) -> tuple[Any, Any]:
        """[B, T, H, Dh], [B, S, K, Dh], [B, S, K, Dhv] → aggregate [B, T, H, Dhv] and weights or None."""
        raise NotImplementedError

    def _run(self, inputs: Arrays, parameters: Arrays, masks: Arrays, cotangent: Any, *, static: Static) -> Any:
        """(output, weights, gradients by name)."""

        def forward(inputs: Arrays, parameters: Arrays) -> tuple[Any, Any]:
            return self._forward(inputs, parameters, masks, static)

        if not static.gradients:
            return *forward(inputs, parameters), {}
        output, pull_back, weights = self.jax.vjp(forward, inputs, parameters, has_aux=True)
        of_inputs, of_parameters = pull_back(cotangent)
        return output, weights, {**of_inputs, **of_parameters}

    def _forward(self, inputs: Arrays, parameters: Arrays, masks: Arrays, static: Static) -> tuple[Any, Any]:
        query, key, value = (
            self._affine(inputs[source], parameters, name)
            for name, source in zip(("query", "key", "value"), static.input_names, strict=True)
        )
        query = query.reshape(*query.shape[:-1], static.num_heads, static.head_dim)
        key = key.reshape(*key.shape[:-1], static.num_kv_heads, static.head_dim)
        value = value.reshape(*value.shape[:-1], static.num_kv_heads, static.value_head_dim)
        aggregate, weights = self.attention(query, key, value, masks, static)
        joined = aggregate.reshape(*aggregate.shape[:-2], static.num_heads * static.value_head_dim)
        return self._affine(joined, parameters, "output"), weights

    def _affine(self, array: Any, parameters: Arrays, name: str) -> Any:
        product = self.jax.numpy.matmul(array, parameters[f"{name}_weight"])
        bias = parameters.get(f"{name}_bias")
        return product if bias is None else product + bias


class DotProductAttentionJit(_JaxSubject):
    """``jax.nn.dot_product_attention`` inside one ``jax.jit`` with its projections and their gradients."""

    name = "jax/dpa@jit"

    def unsupported(self, case: Case) -> Unsupported | None:
        """Besides what no JAX subject has: values of another width than keys."""
        if case.value_head_dim != case.head_dim:
            return Unsupported("the value array must have the same shape as the key array", DOCUMENTATION)
        if case.ill_formed in ("embed-dim-not-divisible", "zero-heads"):
            return Unsupported("dot_product_attention takes heads that are split already", DOCUMENTATION)
        return super().unsupported(case)

    def attention(self, query: Any, key: Any, value: Any, masks: Arrays, static: Static) -> tuple[Any, Any]:
        aggregate = self.jax.nn.dot_product_attention(
            query=query,
            key=key,
            value=value,
            scale=static.scale,
            is_causal=static.is_causal,
            local_window_size=static.local_window_size,
            **masks,
        )
        return aggregate, None


class DotProductAttention(DotProductAttentionJit):
    """The same run eagerly: each primitive is dispatched, and compiled for each new shape, by itself."""

    name = "jax/dpa"
    compiled = False


class Textbook(_JaxSubject):
    """softmax(where(mask, Q Kᵀ · scale, −1e9)) V as textbooks write it, in ``jnp``, compiled.

    Scores and softmax are float32 for 16-bit storage, so that −1e9 is finite. It is compiled because eager ``jnp``
    would compile each primitive for each shape. Whatever ``jnp.where`` and broadcasting accept, it accepts.
    """

    name = "jax/textbook"
    gives_weights = True

    def unsupported(self, case: Case) -> Unsupported | None:
        """Dropout, mixed policies and appended keys, which the recipe does not have."""
        limit = super().unsupported(case)
        if limit is None or limit.link is None:
            return limit
        return Unsupported(f"the textbook recipe {'has no dropout' if case.drops else 'appends no key and value rows'}")

    def mask_of(self, problem: Problem) -> JaxMask:
        """One full mask and one full bias whatever the route and the parts, so that one compilation serves all; the
        scale goes along as an argument. Ill-formed masks are handed over as they are."""
        case = problem.case
        if case.ill_formed is not None:
            return JaxMask(mask_and_bias(problem) | {"scale": np.array(case.effective_scale)})
        return JaxMask(full_mask_and_bias(problem) | {"scale": np.array(case.effective_scale)})

    def static_scale(self, case: Case) -> float | None:
        """None: the scale is an argument."""
        return None

    def attention(self, query: Any, key: Any, value: Any, masks: Arrays, static: Static) -> tuple[Any, Any]:
        jnp = self.jax.numpy
        storage, compute = query.dtype, jnp.promote_types(query.dtype, jnp.float32)
        shared_by = static.num_heads // static.num_kv_heads
        query, key, value = (
            array.astype(compute)
            for array in (query, jnp.repeat(key, shared_by, axis=2), jnp.repeat(value, shared_by, axis=2))
        )
        scores = jnp.einsum("bthd,bshd->bhts", query, key) * masks["scale"].astype(compute)
        if "bias" in masks:
            scores = scores + masks["bias"].astype(compute)
        if "mask" in masks:
            scores = jnp.where(masks["mask"], scores, LARGE_NEGATIVE)
        weights = self.jax.nn.softmax(scores, axis=-1).astype(storage)
        aggregate = jnp.einsum("bhts,bshd->bthd", weights.astype(compute), value)
        return aggregate.astype(storage), weights


SUBJECTS: tuple[type[_JaxSubject], ...] = (DotProductAttention, DotProductAttentionJit, Textbook)
ADAPTER = Adapter(
    framework="jax",
    modules=("jax",),
    install="pip install 'attention-conformance[jax]'",
    subjects={subject.name: subject for subject in SUBJECTS},
    slow={DotProductAttention.name: "sample", Textbook.name: "shared-shape"},
)
