"""The case file as its writer sees it: pydantic models that validate it and give the JSON Schema for editors.

Strict, and closed: nothing is coerced and no unknown key passes. What depends on several values together (a padding
length against the source length) is checked later, on each case.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Discriminator, Field, Tag, create_model

from conformance import vocabulary
from conformance.casefile.fieldtypes import (
    NOTHING,
    Choice,
    Finite,
    Length,
    Name,
    Numbers,
    Stated,
    Strict,
    Subject,
    Text,
    Width,
    mapping_or_word,
)
from conformance.casefile.located import WORD


class PaddingKeys(Strict):
    lengths: Annotated[list[Length], Field(description="real positions of each sample, one number per sample")] = (
        NOTHING
    )
    side: Annotated[vocabulary.Side, Field(description="where the padding is; right when left out")] = NOTHING
    last: Annotated[Length, Field(description="block the last n positions of every sample")] = NOTHING
    first: Annotated[Length, Field(description="block the first n positions of every sample")] = NOTHING


class WindowKeys(Strict):
    before: Annotated[Length, Field(description="how many keys before its own position a query sees")]
    after: Annotated[Length, Field(description="how many keys after its own position a query sees")]
    align: vocabulary.Alignment = "top-left"


class ExplicitKeys(Strict):
    pattern: Annotated[vocabulary.Pattern, Field(description="what is blocked; literal if values are given")] = NOTHING
    axes: Annotated[vocabulary.Axes, Field(description="shape as letters; TS when left out")] = NOTHING
    density: Annotated[float, Field(gt=0, lt=1, description="share of blocked positions, for random")] = NOTHING
    block: Annotated[Width, Field(description="side of a block, for block-diagonal")] = NOTHING
    indices: Annotated[list[Length], Field(min_length=1, description="rows, keys, heads or samples to block")] = NOTHING
    values: Annotated[Numbers, Field(description="literal 0 or 1 for each position; 1 blocks")] = NOTHING


class AdditiveKeys(Strict):
    axes: Annotated[vocabulary.Axes, Field(description="shape as letters; TS when left out")] = NOTHING
    magnitude: Annotated[Finite, Field(ge=0, description="standard deviation of the drawn bias")] = NOTHING
    minus_inf: Annotated[ExplicitKeys, Field(description="where the bias is minus infinity")] = NOTHING
    values: Annotated[Numbers, Field(description="the bias itself, number by number")] = NOTHING


class MaskKeys(Strict):
    key_padding: Annotated[PaddingKeys, Field(description="keys past the end of each sample")] = NOTHING
    query_padding: Annotated[PaddingKeys, Field(description="queries past the end of each sample")] = NOTHING
    causal: Annotated[vocabulary.Alignment, Field(description="key j ≤ i, or j ≤ i + S − T")] = NOTHING
    is_causal: Annotated[bool, Field(description="true is causal: top-left")] = NOTHING
    window: Annotated[WindowKeys, Field(description="keys near the query's own position")] = NOTHING
    explicit: Annotated[ExplicitKeys, Field(description="a Boolean mask, written or drawn")] = NOTHING
    additive: Annotated[AdditiveKeys, Field(description="a bias added to the scores")] = NOTHING


class DataKeys(Strict):
    regime: vocabulary.Regime = NOTHING
    magnitude: Annotated[Finite, Field(gt=0, description="factor on the inputs")] = NOTHING
    poison: Annotated[float, Field(description="written over keys and values that no query may attend to")] = NOTHING


class RaisesKeys(Strict):
    raises: Annotated[Literal[True], Field(description="the call must raise")]


class ExpectedKeys(Strict):
    attn_output: Numbers = NOTHING
    attn_weights: Numbers = NOTHING


class ExpectKeys(ExpectedKeys):
    raises: Literal[True] = NOTHING


class GivenKeys(Strict):
    query: Numbers = NOTHING
    key: Numbers = NOTHING
    value: Numbers = NOTHING
    query_weight: Numbers = NOTHING
    key_weight: Numbers = NOTHING
    value_weight: Numbers = NOTHING
    output_weight: Numbers = NOTHING
    query_bias: Numbers = NOTHING
    key_bias: Numbers = NOTHING
    value_bias: Numbers = NOTHING
    output_bias: Numbers = NOTHING
    bias_k: Numbers = NOTHING
    bias_v: Numbers = NOTHING
    cotangent: Numbers = NOTHING


ExpectWord = Literal["agree", "observe"]
MaskValue = Annotated[
    Annotated[Literal["none"], Tag(WORD)] | Annotated[MaskKeys, Stated(), Tag("mapping")],
    Discriminator(mapping_or_word),
]
DataValue = Annotated[
    Annotated[vocabulary.Regime, Tag(WORD)] | Annotated[DataKeys, Stated(), Tag("mapping")],
    Discriminator(mapping_or_word),
]
ExpectValue = Annotated[
    Annotated[ExpectWord, Tag(WORD)] | Annotated[RaisesKeys, Tag("mapping")], Discriminator(mapping_or_word)
]
LiteralExpectValue = Annotated[
    Annotated[ExpectWord, Tag(WORD)] | Annotated[ExpectKeys, Stated(), Tag("mapping")],
    Discriminator(mapping_or_word),
]


class Sizes(Strict):
    batch: Annotated[Length, Field(description="B; 2 when left out")] = NOTHING
    target_length: Annotated[Length, Field(description="T, the number of queries; 5 when left out")] = NOTHING
    source_length: Annotated[Length, Field(description="S, the number of keys; 7 when left out")] = NOTHING
    embed_dim: Annotated[Width, Field(description="D, the width of a query; 16 when left out")] = NOTHING
    num_heads: Annotated[Length, Field(description="H; 4 when left out")] = NOTHING
    num_kv_heads: Annotated[Length, Field(description="K, heads of key and value; num_heads when left out")] = NOTHING
    head_dim: Annotated[Width, Field(description="Dh; embed_dim / num_heads when left out")] = NOTHING
    value_head_dim: Annotated[Width, Field(description="Dhv; head_dim when left out")] = NOTHING
    kdim: Annotated[Width, Field(description="Dk, the width of a key; embed_dim when left out")] = NOTHING
    vdim: Annotated[Width, Field(description="Dv, the width of a value; embed_dim when left out")] = NOTHING
    output_dim: Annotated[Width, Field(description="Do, the width of the output; embed_dim when left out")] = NOTHING


class CaseKeys(Sizes):
    """What any case may state; also the axes of a matrix, and what ``exclude`` compares."""

    dtype: Annotated[vocabulary.Dtype, Field(description="storage dtype; float32 when left out")] = NOTHING
    mask: Annotated[MaskValue, Field(description="who may not attend to whom; all parts block together")] = NOTHING
    mask_route: Annotated[vocabulary.MaskRoute, Field(description="in which form the subject gets the mask")] = NOTHING
    data: Annotated[DataValue, Field(description="how the numbers are drawn")] = NOTHING
    layout: Annotated[vocabulary.Layout, Field(description="memory layout of the inputs")] = NOTHING
    sharing: Annotated[vocabulary.Sharing, Field(description="which inputs are one object, or equal")] = NOTHING
    calls: Annotated[vocabulary.Calls, Field(description="how the subject is called")] = NOTHING
    mode: Annotated[vocabulary.Mode, Field(description="evaluate, where dropout is off, or train")] = NOTHING
    dropout: Annotated[float, Field(ge=0, lt=1, description="probability of dropping a weight in training")] = NOTHING
    relation: Annotated[vocabulary.Relation | None, Field(description="what is compared instead of the reference")] = (
        NOTHING
    )
    bias: Annotated[bool, Field(description="projections have biases; true when left out")] = NOTHING
    bias_kv: Annotated[bool, Field(description="one learnt row more in keys and values")] = NOTHING
    zero_attention: Annotated[bool, Field(description="one row of zeros more in keys and values")] = NOTHING
    scale: Annotated[Finite | None, Field(description="factor on the scores; 1/√head_dim when left out")] = NOTHING
    ill_formed: Annotated[vocabulary.IllFormed | None, Field(description="what is wrong with the call")] = NOTHING
    check: Annotated[Choice[vocabulary.Check], Field(description="what is compared")] = NOTHING
    expect: Annotated[ExpectValue, Field(description="agree when left out; raises for an ill-formed call")] = NOTHING


class ScopeKeys(CaseKeys):
    tags: Annotated[Choice[Name], Field(description="added to the tags of the scopes around")] = NOTHING
    subjects: Annotated[Choice[Subject], Field(description="the only subjects that answer")] = NOTHING
    subjects_why: Annotated[Text, Field(description="why only these subjects")] = NOTHING


class IncludeKeys(ScopeKeys):
    name: Annotated[Name, Field(description="the case's name; spelt from the given keys when left out")] = NOTHING
    why: Annotated[Text, Field(description="why this case; the file's reason when left out")] = NOTHING
    given: Annotated[GivenKeys, Field(description="inputs and parameters, number by number")] = NOTHING
    expected: Annotated[ExpectedKeys, Field(description="outputs, number by number")] = NOTHING
    expect: Annotated[LiteralExpectValue, Field(description="agree, observe, raises, or the outputs")] = NOTHING  # type: ignore[assignment]


_AXES: dict[str, Any] = {
    name: (Annotated[Choice[hint], Field(title=name)], NOTHING)  # type: ignore[valid-type]
    for name, hint in get_type_hints(CaseKeys, include_extras=True).items()
    if name in CaseKeys.model_fields
}
_AXES["sizes"] = (
    Annotated[Choice[Annotated[Sizes, Stated()]], Field(description="several sizes that vary together")],
    NOTHING,
)
MatrixKeys: Any = create_model("MatrixKeys", __base__=Strict, **_AXES)
Matrix = Annotated[MatrixKeys, Stated()]
Combine = Literal["product", "pairwise"]


class BlockKeys(Strict):
    name: Annotated[Name, Field(description="begins the name of each case")] = NOTHING
    why: Annotated[Text, Field(description="why these cases; the file's reason when left out")] = NOTHING
    defaults: ScopeKeys = NOTHING
    matrix: Matrix
    combine: Combine = "product"
    exclude: Choice[Annotated[CaseKeys, Stated()]] = NOTHING
    check: Choice[vocabulary.Check] = NOTHING
    expect: ExpectValue = NOTHING
    tags: Choice[Name] = NOTHING


class FileKeys(Strict):
    suite: Annotated[Name, Field(description="begins the id of each case; no two files share it")]
    why: Annotated[Text, Field(description="what these cases are for")]
    defaults: Annotated[ScopeKeys, Field(description="what cases state when they state nothing")] = NOTHING
    matrix: Annotated[Matrix, Field(description="axes, each with its values")] = NOTHING
    combine: Annotated[Combine, Field(description="every combination, or every pair of values once")] = "product"
    exclude: Annotated[Choice[Annotated[CaseKeys, Stated()]], Field(description="combinations to leave out")] = NOTHING
    matrices: Annotated[Choice[BlockKeys], Field(description="more matrices, each with its own keys")] = NOTHING
    include: Annotated[Choice[IncludeKeys], Field(description="cases written one by one")] = NOTHING
    check: Choice[vocabulary.Check] = NOTHING
    expect: ExpectValue = NOTHING
    tags: Choice[Name] = NOTHING
    subjects: Choice[Subject] = NOTHING
    subjects_why: Text = NOTHING
