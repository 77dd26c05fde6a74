"""Types of the values in a case file: strict, closed, and with a JSON Schema that says the same."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError, core_schema

from conformance.casefile.located import NOT_BLANK, WORD

MAX_SIZE = 2**24  # of one axis
MAX_ELEMENTS = 2**28  # of one array: 2 GiB in float64
NOTHING: Any = None  # default of a key that is not given; null itself is refused unless the type allows it
NAME = r"^[A-Za-z0-9._+-]+$"
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _nested(value: list[Any], path: tuple[int, ...] = ()) -> list[Any]:
    """Refuse what is not a number, and lists of unequal shape, at the place where they stand."""
    for index, item in enumerate(value):
        here = (*path, index)
        if isinstance(item, list):
            _nested(item, here)
        elif isinstance(item, bool) or not isinstance(item, int | float):
            raise PydanticCustomError("not_a_number", "expected numbers or lists of numbers", {"path": here})
        if (shape_of(item), isinstance(item, list)) != (shape_of(value[0]), isinstance(value[0], list)):
            message = "ragged: this has shape {found}, the first of its list has {first}"
            context = {"path": here, "found": str(shape_of(item)), "first": str(shape_of(value[0]))}
            raise PydanticCustomError("ragged", message, context)
    return value


def shape_of(value: Any) -> list[int]:
    """Lengths of nested lists, following the first element of each."""
    if not isinstance(value, list | tuple):
        return []
    return [len(value), *(shape_of(value[0]) if value else [])]


def mapping_or_word(value: Any) -> str:
    return "mapping" if isinstance(value, dict | BaseModel) else WORD


class Stated:
    """Annotation of a model of which at least one key must be given."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "minProperties": 1}

    @staticmethod
    def check(model: M) -> M:
        if not model.model_fields_set:
            raise ValueError("must not be empty")
        return model


NESTED = {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "array"}]}}
Numbers = Annotated[list[Any], AfterValidator(_nested), WithJsonSchema(NESTED)]
Length = Annotated[int, Field(ge=0, le=MAX_SIZE)]
Width = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Text = Annotated[str, StringConstraints(pattern=NOT_BLANK)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Subject = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._*-]+/[A-Za-z0-9._*-]+(@[A-Za-z0-9._*+-]+)?$")]
Choice = Annotated[list[T], Field(min_length=1)]
