"""The stages of both graphs in the order of their dependence, and the rule of each in symbols.

x input, W its weight, b its bias; q, k, v heads of query, key and value; P weights, c context, dO the cotangent; d
before a letter is its gradient. ``docs/tolerance.md`` derives the rules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from conformance.spec import Case

FORWARD = ("query", "key", "value", "scores", "attn_weights", "context", "attn_output")
BACKWARD = ("d_context", "weights_again", "d_scores", "d_query", "d_key", "d_value")


@dataclass(frozen=True)
class Stage:
    """One stage, as :meth:`conformance.bounds.forward.ForwardGraph.handed_on` names it."""

    name: str
    label: str
    magnitude: str = ""  # what terms come to
    inherited: str = ""  # what the operands of an output's own stage bring along
    rule: str = ""  # before anything is stored
    constants: Mapping[str, float] = field(default_factory=dict)  # of the rule, by symbol

    @property
    def rounding(self) -> str:
        """What the last operation of an output rounds."""
        return "P·(n·u + division)" if self.name == "attn_weights" else self.rule

    def joined(self) -> Stage:
        """The stage where its last operation adds up several products."""
        return _summing(replace(self, inherited="Σε", rule=""), "Σ|dx|")


def stage_of(case: Case, name: str) -> Stage:
    """A stage by its name."""
    if name.endswith(".gradient"):
        return _gradient(name)
    label, magnitude, inherited, rule = _STAGES[name]
    biased = case.bias and name in ("query", "key", "value", "attn_output")
    stage = Stage(name, label, inherited=inherited, rule=rule)
    stage = _summing(stage, f"{magnitude} + |b|" if biased else magnitude)
    if name not in _SCALED:
        return stage
    return replace(stage, rule=f"√c·{stage.rule}", constants={"√c": math.sqrt(abs(case.effective_scale))})


_STAGES = {
    "query": ("query projection, scaled", "Σ|x||W|", "", ""),
    "key": ("key projection, scaled", "Σ|x||W|", "", ""),
    "value": ("value projection", "Σ|x||W|", "", ""),
    "scores": ("scores", "Σ|q||k|", "", ""),
    "attn_weights": ("softmax", "P", "P for scores ± τ", "P·(e^(2τ) − 1) + P·n·u"),
    "context": ("context", "ΣP|v|", "", ""),
    "attn_output": ("output projection", "Σ|c||W|", "Σ|W|·ε", ""),
    "d_context": ("gradient of the context", "Σ|dO||W|", "", ""),
    "weights_again": ("weights rebuilt as exp(s − lse)", "", "", "P·(e^τ − 1), u·|lse| in τ"),
    "d_scores": ("gradient of the scores", "Σ|dc||v|", "", "P·(ε(dP) + ε(D)), ε(dP) = n·u·Σ|dc||v|"),
    "d_query": ("gradient of the queries", "Σ|dS||k|", "", ""),
    "d_key": ("gradient of the keys", "Σ|dS||q|", "", ""),
    "d_value": ("gradient of the values", "ΣP|dc|", "", ""),
}
_SCALED = ("query", "key", "d_query", "d_key")  # each takes its root of the scale
_LETTERS = {"query": "dq", "key": "dk", "value": "dv", "output": "dO", "bias_k": "dk", "bias_v": "dv"}


def _gradient(name: str) -> Stage:
    """The stage that ends in the gradient of an input or parameter."""
    of = name.removesuffix(".gradient")
    letter = _LETTERS.get(of) or _LETTERS[of.rpartition("_")[0]]
    stage = Stage(name, f"gradient of {of}")
    if of.endswith("_weight"):
        return _summing(
            replace(stage, inherited="Σ|dO|·ε" if letter == "dO" else "Σ|x|·ε"),
            f"Σ|{'c' if letter == 'dO' else 'x'}||{letter}|",
        )
    if of in ("query", "key", "value"):
        return _summing(replace(stage, inherited="Σ|W|·ε"), f"Σ|{letter}||W|")
    return _summing(replace(stage, inherited="Σε"), f"Σ|{letter}|")


def _summing(stage: Stage, magnitude: str) -> Stage:
    shown = f"({magnitude})" if " " in magnitude else magnitude
    return replace(stage, magnitude=magnitude, rule=stage.rule or f"n·u·{shown}")
