"""Typed plain data as JSON for other programs: a dataclass is an object, its keys the names of the fields in their order.

What an older version has not written has the empty value of its type when it is read: None where the type allows it. What a
newer version has written besides is ignored. (Recordings write dataclasses as lists: `json_values.py`.)
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from gradtui.protocol.json_values import Convert, Decoders, NotReadableError

T = TypeVar("T")

INLINED = {"inlined": True}
"""The metadata of a field whose own keys stand in the object in its place: a dataclass, or a mapping of any further keys."""
FINITE = {"finite": True}
"""The metadata of a number that is null in JSON where it is NaN or infinite."""
Number = float | None
"""None also stands for a number that JSON cannot represent (NaN, infinity)."""


def to_object(value: Any) -> dict[str, Any]:
    """Return a dataclass as JSON data."""
    kind: Any = type(value)
    return _encoder_of(kind)(value)


def from_object(kind: type[T], value: Any) -> T:
    """Return a dataclass from JSON data of anybody.

    Raises:
        NotReadableError: a value has another type. The message says what it should be, and where.
    """
    found: T = _DECODERS.of(kind)(value)
    return found


def inlined(kind: type) -> list[str]:
    """Return the names of the fields whose own keys stand in the object of a dataclass."""
    return [field.name for field in fields(kind) if field.metadata.get("inlined")]


@cache
def _encoder_of(kind: Any) -> Callable[[Any], dict[str, Any]]:
    """Return what makes an object of a dataclass."""
    names = tuple(field.name for field in fields(kind))
    hints, within = get_type_hints(kind), inlined(kind)
    converts = [(name, convert) for name in names if (convert := _encoder(hints[name])) is not None]
    converts += [(each.name, _finite) for each in fields(kind) if each.metadata.get("finite")]
    read = attrgetter(*names)

    def encode(value: Any) -> dict[str, Any]:
        entry = dict(zip(names, read(value)))
        for name, convert in converts:
            entry[name] = convert(entry[name])
        return _with_inlined(entry, within) if within else entry

    return encode


def _encoder(hint: Any) -> Convert | None:
    """Return what makes JSON data of a value of a type; None if JSON writes it as it is."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        encoders = [each for part in parts if (each := _encoder(part)) is not None]
        return (lambda value: None if value is None else encoders[0](value)) if encoders else None
    if origin is tuple:
        of_part = _encoder(parts[0])
        return list if of_part is None else lambda values: list(map(of_part, values))
    if origin is Mapping:
        of_value = _encoder(parts[1])
        return dict if of_value is None else lambda values: {name: of_value(each) for name, each in values.items()}
    kind: Any = hint
    return _encoder_of(kind) if is_dataclass(hint) else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _with_inlined(entry: dict[str, Any], within: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in entry.items():
        found.update(value if name in within else {name: value})
    return found


class _ObjectDecoders(Decoders):
    """Makes dataclasses from objects."""

    def _make(self, hint: Any) -> Convert:
        if get_origin(hint) is not Mapping:
            return super()._make(hint)
        inner = self.of(get_args(hint)[1])
        return lambda value: {name: inner(each) for name, each in _object(value).items()}

    def _union(self, parts: tuple[Any, ...]) -> Convert:
        others = [part for part in parts if part is not type(None)]
        inner = self.of(others[0]) if len(others) == 1 else _scalar
        return lambda value: None if value is None else inner(value)

    def _record(self, kind: type) -> Convert:
        hints, within = get_type_hints(kind), inlined(kind)
        own = {name: (self.of(hint), _empty(hint)) for name, hint in hints.items() if name not in within}
        parts = {name: (self.of(hints[name]), get_origin(hints[name]) is Mapping) for name in within}

        def decode(value: Any) -> Any:
            entry, given, at = _object(value), {}, ""
            try:
                for at, (convert, empty) in own.items():
                    given[at] = convert(entry[at]) if at in entry else empty()
            except NotReadableError as error:
                raise NotReadableError(f"{error} in {at}") from None
            for name, (convert, is_rest) in parts.items():
                given[name] = convert(
                    {key: each for key, each in entry.items() if key not in own} if is_rest else entry
                )
            return kind(**given)

        return decode


def _empty(hint: Any) -> Any:
    """Return what makes the value of a field that is missing."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return lambda: None
    if is_dataclass(hint):
        return lambda: from_object(hint, {})  # type: ignore[arg-type]
    return dict if origin is Mapping else origin or hint


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NotReadableError("an object")
    return value


def _scalar(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        raise NotReadableError("a number, a text or a truth value")
    return value


_DECODERS = _ObjectDecoders({})
