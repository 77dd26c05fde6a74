"""The subjects on PyTorch, and the ones among them that are modules of this project.

Those are projections around ``scaled_dot_product_attention`` with each CPU backend, the contract's own implementation,
its packed form, and the textbook recipe. ``nn.MultiheadAttention`` is in :mod:`adapters.pytorch_mha`. PyTorch is
imported by the constructors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from adapters.pytorch_mha import (
    FLASH,
    WIDTH_FAULTS,
    MultiheadAttention,
    MultiheadAttentionInference,
    MultiheadAttentionSequenceFirst,
    MultiheadAttentionWeights,
    TorchSubject,
)
from conformance.adapter import Adapter, Script
from conformance.problem import Outputs, Problem
from conformance.spec import Case, Unsupported

if TYPE_CHECKING:
    import torch

    from adapters.pytorch_modules import Projections, Widths

SDPA_DOCUMENTATION = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html"
)
FLASH_SOURCE = "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/transformers/sdp_utils_cpp.cpp"


class _OwnModule(TorchSubject):
    """A module of this project around PyTorch operators."""

    def attend(self, problem: Problem) -> Outputs:
        """Multi-head attention of the problem; raises what PyTorch or the module raises."""
        from adapters.pytorch_arrays import answer

        module = self._module(problem.case)
        return answer(problem, module, module.slots(), self._forward(module, problem))

    def _module_class(self) -> type[Projections]:
        raise NotImplementedError

    def _forward(self, module: Any, problem: Problem) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
        from adapters.pytorch_masks import module_masks, tensors

        masks = tensors(problem.case, module_masks(problem))
        return lambda query, key, value: module(query=query, key=key, value=value, **masks)

    def _module(self, case: Case) -> Projections:
        widths = self._widths(case)
        if widths not in self._kept:
            self._kept[widths] = self._module_class()(widths)
        module: Projections = self._kept[widths]
        return module

    def _widths(self, case: Case) -> Widths:
        from adapters.pytorch_modules import Widths

        whole = case.embed_dim if case.ill_formed in WIDTH_FAULTS else None
        heads, kv_heads, head, value_head = case.num_heads, case.num_kv_heads, case.head_dim, case.value_head_dim
        return Widths(
            embed_dim=case.embed_dim,
            kdim=case.kdim,
            vdim=case.vdim,
            query_width=heads * head if whole is None else whole,
            key_width=kv_heads * head if whole is None else whole,
            value_width=kv_heads * value_head if whole is None else whole,
            context_width=heads * value_head if whole is None else whole,
            output_dim=case.output_dim,
            num_heads=heads,
            num_kv_heads=kv_heads,
            dtype=getattr(self._torch, case.storage),
            bias=case.bias,
            bias_kv=case.bias_kv,
            zero_attention=case.zero_attention,
            scale=case.scale,
            dropout=case.dropout,
        )


class Handwritten(_OwnModule):
    """The contract's own implementation: answers every case."""

    name = "torch/handwritten"
    gives_weights = True

    def unsupported(self, case: Case) -> Unsupported | None:
        """Nothing."""
        return None

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        """The same call with NumPy and PyTorch alone, and the source of the module."""
        from adapters.pytorch_script import module_script

        return module_script(problem, samples, self._module_class().__name__, vars(self._widths(problem.case)))

    def parameter_count(self, case: Case) -> int:
        """Number of parameters of the module for the case."""
        return sum(parameter.numel() for parameter in self._module(case).parameters())

    def _module_class(self) -> type[Projections]:
        from adapters.pytorch_modules import HandwrittenAttention

        return HandwrittenAttention


class Packed(Handwritten):
    """The contract's own implementation with one packed input projection, split on its last axis."""

    name = "torch/packed"

    def unsupported(self, case: Case) -> Unsupported | None:
        """Inputs of different widths: their weights cannot be concatenated."""
        if case.kdim == case.vdim == case.embed_dim:
            return None
        return Unsupported("one packed projection needs kdim = vdim = embed_dim")

    def _module_class(self) -> type[Projections]:
        from adapters.pytorch_modules import PackedAttention

        return PackedAttention


class Textbook(Handwritten):
    """The textbook recipe: −1e9 written where the mask blocks, everything in the storage dtype."""

    name = "torch/textbook"

    def unsupported(self, case: Case) -> Unsupported | None:
        """What the recipe does not describe."""
        for met, reason in (
            (case.scale is not None, "always scales by 1/√Dh"),
            (case.num_kv_heads != case.num_heads, "has no grouped heads"),
            (case.bias_kv or case.zero_attention, "has no extra keys"),
            (case.mask.additive is not None, "has no bias on the scores"),
            (case.mask_route == "additive" and bool(case.mask.parts), "takes a Boolean mask only"),
        ):
            if met:
                return Unsupported(f"the textbook recipe {reason}")
        return None

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        """The recipe written out."""
        from adapters.pytorch_script import textbook_script

        return textbook_script(problem, samples)

    def _module_class(self) -> type[Projections]:
        from adapters.pytorch_recipes import TextbookAttention

        return TextbookAttention


class SdpaMath(_OwnModule):
    """``scaled_dot_product_attention`` with the MATH backend alone, between projections of this project."""

    name = "torch/sdpa-math"
    gives_weights = False
    backend = "MATH"

    def unsupported(self, case: Case) -> Unsupported | None:
        """What the operator has no parameter for."""
        if case.bias_kv or case.zero_attention:
            return Unsupported("scaled_dot_product_attention has no extra keys", SDPA_DOCUMENTATION)
        if case.ill_formed in WIDTH_FAULTS:
            return Unsupported("scaled_dot_product_attention takes heads that are split already", SDPA_DOCUMENTATION)
        return None

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        """The same call with NumPy and PyTorch alone."""
        from adapters.pytorch_script import sdpa_script

        return sdpa_script(problem, samples, self.backend)

    def _module_class(self) -> type[Projections]:
        from adapters.pytorch_recipes import ScaledDotProductAttention

        return ScaledDotProductAttention

    def _forward(self, module: Any, problem: Problem) -> Callable[..., tuple[torch.Tensor, torch.Tensor | None]]:
        from adapters.pytorch_masks import sdpa_masks, tensors

        masks = tensors(problem.case, sdpa_masks(problem))
        return lambda query, key, value: module(self.backend, query, key, value, **masks)


class SdpaFlash(SdpaMath):
    """``scaled_dot_product_attention`` with the FLASH_ATTENTION backend alone; the CPU has one since PyTorch 2.2."""

    name = "torch/sdpa-flash"
    backend = "FLASH_ATTENTION"
    policy = FLASH

    def unsupported(self, case: Case) -> Unsupported | None:
        """What the constraints of the CPU kernel exclude."""
        if case.drops:
            return Unsupported("flash attention on the CPU has no dropout", FLASH_SOURCE)
        if case.value_head_dim != case.head_dim:
            return Unsupported("flash attention needs value heads as wide as key heads", FLASH_SOURCE)
        if 0 in (case.batch, case.target_length, case.source_length):
            return Unsupported("PyTorch answers an empty problem before it chooses a backend", FLASH_SOURCE)
        return super().unsupported(case)


ADAPTER = Adapter(
    framework="torch",
    modules=("torch",),
    install="pip install 'attention-conformance[torch]'",
    subjects={
        "torch/mha": MultiheadAttention,
        "torch/mha@weights": MultiheadAttentionWeights,
        "torch/mha@inference": MultiheadAttentionInference,
        "torch/mha@seq-first": MultiheadAttentionSequenceFirst,
        "torch/sdpa-math": SdpaMath,
        "torch/sdpa-flash": SdpaFlash,
        "torch/handwritten": Handwritten,
        "torch/packed": Packed,
        "torch/textbook": Textbook,
    },
)
