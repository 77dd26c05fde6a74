"""What a misspelt word was meant to be, looked up in the pydantic model that refused it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, get_args

from pydantic import BaseModel

CLOSE = 0.6  # difflib's own threshold
CLOSE_ELSEWHERE = 0.75  # stricter for a key that belongs to another place


def nearest(word: str, candidates: Iterable[str], least: float = CLOSE) -> str | None:
    """The candidate most like ``word``, or None when none is at least that alike; ties go to the first."""
    wanted = _folded(word)
    scored = [(SequenceMatcher(None, wanted, _folded(name)).ratio(), name) for name in candidates]
    best = max(scored, key=lambda pair: pair[0], default=(0.0, ""))
    return best[1] if best[0] >= least else None


def nearest_key(model: type[BaseModel], loc: Sequence[int | str]) -> str | None:
    """What the unknown key at the end of ``loc`` was meant to be: a key allowed there, or one allowed elsewhere."""
    word = str(loc[-1])
    here = nearest(word, (name for found in _models_at(model, loc[:-1]) for name in found.model_fields))
    if here is not None:
        return here
    homes: dict[str, str] = {}
    for home, found in _reachable(model, "the top level", set()):
        for name in found.model_fields:
            homes.setdefault(name, home)
    elsewhere = nearest(word, homes, CLOSE_ELSEWHERE)
    return None if elsewhere is None else f"{elsewhere} (a key of {homes[elsewhere]})"


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Type arguments of ``list[…]``, ``… | None``, ``Annotated[…]``; what is not a type is harmless."""
    return get_args(annotation)


def _models_at(annotation: Any, loc: Sequence[int | str]) -> Iterator[type[BaseModel]]:
    """Models that may stand at ``loc``. Elements of ``loc`` that name a member of a union are stepped over."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not loc:
            yield annotation
        elif loc[0] in annotation.model_fields:
            yield from _models_at(annotation.model_fields[str(loc[0])].annotation, loc[1:])
        else:
            yield from _models_at(annotation, loc[1:])
        return
    rest = loc[1:] if loc and isinstance(loc[0], int) else loc
    for part in _parts(annotation):
        yield from _models_at(part, rest)


def _reachable(annotation: Any, home: str, seen: set[Any]) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every model below, with the name of the field in which it is first found."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation not in seen:
            seen.add(annotation)
            yield home, annotation
            for name, info in annotation.model_fields.items():
                yield from _reachable(info.annotation, name, seen)
        return
    for part in _parts(annotation):
        yield from _reachable(part, home, seen)
