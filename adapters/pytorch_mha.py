"""``nn.MultiheadAttention`` in its four paths, and what all subjects on PyTorch share.

PyTorch is imported by the constructors. Arrays: :mod:`adapters.pytorch_arrays`; masks: :mod:`adapters.pytorch_masks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from conformance.adapter import Script
from conformance.policy import Policy
from conformance.problem import Outputs, Problem
from conformance.spec import Case, Unsupported

if TYPE_CHECKING:
    import torch

    from adapters.pytorch_arrays import Slots

MHA_DOCUMENTATION = "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html"
WIDTH_FAULTS = ("embed-dim-not-divisible", "zero-heads")
# ATen's softmax takes the exponential from SLEEF with at most 1.0 ULP, two units of roundoff
# (aten/src/ATen/cpu/vec/vec512/vec512_float.h, Vectorized::exp). A Python number that scales a tensor stays float32 or
# wider (opmath).
PLAIN = Policy(flash=False, scale="wide", exponential_units=2)
# The flash kernel for CPU takes exp_u20, "a faster version of exp with ULP=20", in float32 and float64, and a rougher
# fexp_u20 for 16-bit storage (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp).
FLASH = Policy(flash=True, scale="wide", exponential_units=40, exponential_relative=2e-4)


class TorchSubject:
    """What every subject here shares: PyTorch on one thread, and modules kept for reuse by their static options."""

    name: str
    gives_weights: bool
    gives_gradients = True
    policy: Policy = PLAIN

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self._kept: dict[Any, Any] = {}

    def versions(self) -> Mapping[str, str]:
        """The version of PyTorch."""
        return {"torch": str(self._torch.__version__)}


class MultiheadAttention(TorchSubject):
    """``nn.MultiheadAttention`` in the mode of the case, weights not asked for."""

    name = "torch/mha"
    gives_weights = False
    batch_first = True
    policy = FLASH  # scaled_dot_product_attention chooses the kernel

    def unsupported(self, case: Case) -> Unsupported | None:
        """Options that the module has no parameter for."""
        for met, reason in (
            (case.scale is not None, "nn.MultiheadAttention has no scale parameter"),
            (case.num_kv_heads != case.num_heads, "nn.MultiheadAttention has no grouped heads"),
            (
                case.ill_formed not in WIDTH_FAULTS and case.num_heads * case.head_dim != case.embed_dim,
                "heads of nn.MultiheadAttention are embed_dim / num_heads wide",
            ),
            (case.value_head_dim != case.head_dim, "value heads of nn.MultiheadAttention are as wide as key heads"),
            (case.output_dim != case.embed_dim, "the output of nn.MultiheadAttention is embed_dim wide"),
        ):
            if met:
                return Unsupported(reason, MHA_DOCUMENTATION)
        return None

    def attend(self, problem: Problem) -> Outputs:
        """Multi-head attention of the problem; raises what PyTorch raises."""
        from adapters.pytorch_arrays import answer
        from adapters.pytorch_masks import mha_masks, tensors

        module, masks = self._module(problem.case), tensors(problem.case, mha_masks(problem))
        return answer(
            problem,
            module,
            self._slots(problem.case),
            lambda *inputs: self._call(module, inputs, masks),
            gives_gradients=self.gives_gradients,
        )

    def script(self, problem: Problem, samples: Sequence[Problem]) -> Script:
        """The same call with NumPy and PyTorch alone."""
        from adapters.pytorch_script import mha_script

        return mha_script(problem, samples, weights=self.gives_weights, batch_first=self.batch_first,
                          inference=not self.gives_gradients)  # fmt: skip

    def parameter_count(self, case: Case) -> int:
        """Number of parameters of PyTorch's own module for the case."""
        return sum(parameter.numel() for parameter in self._module(case).parameters())

    def _call(
        self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], masks: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self.batch_first:
            swapped = {id(tensor): tensor.transpose(0, 1) if tensor.dim() == 3 else tensor for tensor in inputs}
            inputs = tuple(swapped[id(tensor)] for tensor in inputs)
        query, key, value = inputs
        attn_output, attn_weights = module(
            query=query,
            key=key,
            value=value,
            need_weights=self.gives_weights,
            average_attn_weights=False,
            **masks,
        )
        return attn_output if self.batch_first else attn_output.transpose(0, 1), attn_weights

    def _module(self, case: Case) -> torch.nn.MultiheadAttention:
        options = {
            "embed_dim": case.embed_dim,
            "num_heads": case.num_heads,
            "bias": case.bias,
            "kdim": case.kdim,
            "vdim": case.vdim,
            "add_bias_kv": case.bias_kv,
            "add_zero_attn": case.zero_attention,
            "dropout": case.dropout,
            "dtype": getattr(self._torch, case.storage),
        }
        key = tuple(options.values())
        if key not in self._kept:
            self._kept[key] = self._torch.nn.MultiheadAttention(batch_first=self.batch_first, **options)
        module: torch.nn.MultiheadAttention = self._kept[key]
        return module

    def _slots(self, case: Case) -> Slots:
        from adapters.pytorch_arrays import Slot

        width = case.embed_dim
        packed = case.kdim == case.vdim == width
        slots = {"output_weight": Slot("out_proj.weight"), "output_bias": Slot("out_proj.bias")}
        for number, role in enumerate(("query", "key", "value")):
            rows = (number * width, (number + 1) * width)
            slots[f"{role}_weight"] = Slot("in_proj_weight", *rows) if packed else Slot(f"{role[0]}_proj_weight")
            slots[f"{role}_bias"] = Slot("in_proj_bias", *rows)
        return slots | {"bias_k": Slot("bias_k"), "bias_v": Slot("bias_v")}


class MultiheadAttentionWeights(MultiheadAttention):
    """``nn.MultiheadAttention`` with ``need_weights=True`` and weights per head."""

    name = "torch/mha@weights"
    gives_weights = True
    policy = PLAIN  # baddbmm and softmax


class MultiheadAttentionSequenceFirst(MultiheadAttention):
    """``nn.MultiheadAttention`` with ``batch_first=False``."""

    name = "torch/mha@seq-first"
    batch_first = False


class MultiheadAttentionInference(MultiheadAttention):
    """``nn.MultiheadAttention`` in evaluation under ``inference_mode``: the native fast path, and nothing else.

    Raises ``OtherPathRan`` when ``torch._native_multi_head_attention`` did not run. Forward only.
    """

    name = "torch/mha@inference"
    gives_gradients = False
    policy = PLAIN  # the native fast path masks and normalises stored scores

    def unsupported(self, case: Case) -> Unsupported | None:
        """What ``nn.MultiheadAttention`` cannot do, and what its documentation excludes from the fast path."""
        floats = case.mask.additive is not None or (case.mask_route == "additive" and bool(case.mask.parts))
        for met, reason in (
            (case.mode == "train", "evaluation"),
            (case.sharing != "self", "query, key and value being one tensor"),
            (not case.bias, "biases"),
            (case.num_heads % 2 == 1, "an even number of heads"),
            (case.bias_kv or case.zero_attention, "no extra keys"),
            (case.kdim != case.embed_dim or case.vdim != case.embed_dim, "kdim = vdim = embed_dim"),
            (floats, "a Boolean mask"),
        ):
            if met:
                return Unsupported(f"the native fast path needs {reason}", MHA_DOCUMENTATION)
        return super().unsupported(case)

    def _call(
        self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], masks: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        from adapters.pytorch_arrays import must_run

        with self._torch.inference_mode(), must_run("aten::_native_multi_head_attention"):
            return super()._call(module, inputs, masks)
