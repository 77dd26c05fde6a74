"""The stage of attention that a fault lies in: of a planted fault by what it overrides, of a mutant by its function."""

from __future__ import annotations

from collections.abc import Mapping

from tests.mutator import Mutant
from tests.planted.attention import Attention

STAGES = (
    "call",  # what is refused, and how inputs are read
    "projection",
    "split",
    "extra keys",
    "scale",
    "mask",
    "softmax",
    "weights",
    "dropout",
    "aggregate",
    "join",
    "output",
    "gradient of output",
    "gradient of aggregate",
    "gradient of dropout",
    "gradient of softmax",
    "gradient of scores",
    "gradient of heads",
    "gradient of projection",
    "precision",  # dtypes and accumulation
    "branch by shape",
    "repeated call",
    "path switch",  # routes of one answer
)

NAMED = {  # planted faults whose point is not the stage that they override
    "weights-in-float32": "precision",
    "softmax-in-float32": "precision",
    "softmax-in-storage": "precision",
    "gradient-bias-summed-in-storage": "precision",
    "wrong-past-source-length": "branch by shape",
    "last-tile-dropped": "branch by shape",
    "tiles-not-rescaled": "branch by shape",
    "padding-read-as-target-source": "branch by shape",
    "dropout-same-every-call": "dropout",
    "dropout-in-evaluation": "dropout",
    "dropout-before-softmax": "dropout",
    "dropout-output-only": "dropout",
    "dropout-other-mask-in-backward": "gradient of dropout",
    "dropout-no-mask-in-backward": "gradient of dropout",
}
OVERRIDDEN = {
    "__init__": "repeated call",
    "product": "precision",
    "receive": "call",
    "read_mask": "mask",
    "blocked": "mask",
    "additive": "mask",
    "mask": "mask",
    "fill": "mask",
    "bias_of": "projection",
    "split": "split",
    "group": "split",
    "scale": "scale",
    "softmax": "softmax",
    "shift": "softmax",
    "returned_weights": "weights",
    "handed_back": "weights",
    "attend": "weights",
    "keeps": "dropout",
    "kept": "dropout",
    "drop": "dropout",
    "aggregate": "aggregate",
    "join": "join",
    "output": "output",
    "bias_gradient": "gradient of projection",
    "aggregate_backward": "gradient of aggregate",
    "softmax_backward": "gradient of softmax",
    "scores_backward": "gradient of scores",
    "group_backward": "gradient of heads",
    "gather": "gradient of projection",
}

OTHERWISE = ""  # the targets of a function that are not named
FUNCTIONS: Mapping[str, str | Mapping[str, str]] = {  # by function, or by what its statement assigns
    "numpy_core.Precision.of": "precision",
    "numpy_core.Precision.stored": "precision",
    "numpy_core.Precision.result": "precision",
    "numpy_core.Precision.gradient_result": "precision",
    "numpy_core.Masking.head": "mask",
    "numpy_core.masking_of": {"if": "path switch", "open_keys": "extra keys", OTHERWISE: "mask"},
    "numpy_core.kept_by_dropout": "dropout",
    "numpy_core.attend": {
        "scores": "scale",
        "if": "mask",
        "dropped": "dropout",
        "return": "aggregate",
        OTHERWISE: "weights",
    },
    "numpy_core._softmax": "softmax",
    "numpy_core.attend_backward": {
        "d_weights": "gradient of aggregate",
        "if": "gradient of dropout",
        "return": "gradient of scores",
        OTHERWISE: "gradient of softmax",
    },
    "numpy_per_head._Projection.__call__": "projection",
    "numpy_per_head._Network.__init__": {
        "masking": "mask",
        "kept": "dropout",
        "precision": "precision",
        OTHERWISE: "projection",
    },
    "numpy_per_head._Network._cut": "split",
    "numpy_per_head._Network._cut.pieces": "split",
    "numpy_per_head._Network.kv_head": "split",
    "numpy_per_head._Network.forward": {
        "masking": "mask",
        "kept": "dropout",
        "attended": "aggregate",
        OTHERWISE: "projection",
    },
    "numpy_per_head._Network._appended": "extra keys",
    "numpy_per_head.attend_per_head": {"joined": "join", "return": "weights", OTHERWISE: "output"},
    "numpy_per_head._Sums.add": "gradient of heads",
    "numpy_per_head._backward": {"return": "precision", OTHERWISE: "gradient of output"},
    "numpy_per_head._core_gradients": "gradient of output",
    "numpy_per_head._by_kv_head": "gradient of heads",
    "numpy_per_head._project_back": "gradient of projection",
    "numpy_per_head._outer": "gradient of projection",
    "pytorch_modules.Widths": "call",
    "pytorch_modules.split_heads": "split",
    "pytorch_modules.join_heads": "join",
    "pytorch_modules.Projections.__init__": {"output_projection": "output", OTHERWISE: "projection"},
    "pytorch_modules.Projections._linear": "projection",
    "pytorch_modules.Projections._input_projections": "projection",
    "pytorch_modules.Projections.project": "projection",
    "pytorch_modules.Projections.slots": "projection",
    "pytorch_modules.HandwrittenAttention.__init__": {
        "bias_k": "extra keys",
        "bias_v": "extra keys",
        OTHERWISE: "call",
    },
    "pytorch_modules.HandwrittenAttention.forward": {
        "expr": "call",
        "blocked": "mask",
        "bias": "mask",
        "queries": "split",
        "return": "output",
        OTHERWISE: "aggregate",
    },
    "pytorch_modules.HandwrittenAttention._check_inputs": "call",
    "pytorch_modules.HandwrittenAttention._heads": {
        "queries": "projection",
        "return": "split",
        OTHERWISE: "extra keys",
    },
    "pytorch_modules.HandwrittenAttention._core": {
        "stored": "precision",
        "with": "precision",
        "return": "precision",
        "groups": "split",
        "key": "split",
        "value": "split",
        "scale": "scale",
        "scores": "scale",
        "weights": "weights",
        OTHERWISE: "dropout",
    },
    "pytorch_modules.PackedAttention._input_projections": "projection",
    "pytorch_modules.PackedAttention.project": "path switch",
    "pytorch_modules.PackedAttention.slots": "projection",
    "pytorch_modules.masked_softmax": {
        "extra": "extra keys",
        "forbidden": "mask",
        "blocked": "mask",
        "nothing_left": "mask",
        "if": "path switch",
        OTHERWISE: "softmax",
    },
    "pytorch_modules._merge": "mask",
    "pytorch_modules._append": "extra keys",
    "pytorch_modules._key_padding": "mask",
    "pytorch_modules._mask": {"mask": "branch by shape", "fits": "branch by shape", OTHERWISE: "mask"},
}


def stage_of_planted(fault: type[Attention]) -> str:
    """The stage of a planted fault."""
    name = fault.name.split("/")[1]
    return NAMED.get(name) or next(stage for method, stage in OVERRIDDEN.items() if method in vars(fault))


def stage_of_mutant(mutant: Mutant) -> str:
    """The stage of a mutant."""
    stages = FUNCTIONS[mutant.function]
    return stages if isinstance(stages, str) else stages.get(mutant.target, stages[OTHERWISE])
