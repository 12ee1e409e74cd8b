"""Convert typed plain data to values that JSON can write, and back: numbers, strings, tuples, enums and dataclasses.

A dataclass or named tuple is a list of its fields' values. A table of field names per class (`Names`) says which field each
value is, so that a reader with other fields understands it: it ignores what it does not know, and what is missing has its
default.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gradtui.protocol.codec import from_words, to_words
from gradtui.protocol.commands import Command
from gradtui.protocol.json_text import spelled

Convert = Callable[[Any], Any]
Names = Mapping[str, tuple[str, ...]]
"""The fields of each class, by its name, in the order of their values."""


MAX_INTEGER = 1 << 63
"""Larger integers are no counts and no sizes, and some are no floats."""


class NotReadableError(ValueError):
    """A value is not what its type says. The message says what it should be, in words."""


_ATTRIBUTES: dict[type, dict[str, Any]] = {}
_OPTIONAL: dict[type, frozenset[str]] = {}


def write_attributes(kind: type, attributes: dict[str, Any], optional: frozenset[str] = frozenset()) -> None:
    """Let objects of a class be written by their attributes, whose types are given. They are read without a call of it.

    Attributes that are `optional`, because older versions do not write them, must have a value in the class.
    """
    _ATTRIBUTES[kind] = attributes
    _OPTIONAL[kind] = optional


def types_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields of a class, by name."""
    return _ATTRIBUTES[kind] if kind in _ATTRIBUTES else get_type_hints(kind)


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass, a named tuple, or a class that `write_attributes` names."""
    if kind in _ATTRIBUTES:
        return tuple(_ATTRIBUTES[kind])
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return tuple(getattr(kind, "_fields", ()))


def records_in(hint: Any) -> dict[str, type]:
    """Return the dataclasses and named tuples that values of a type contain, by name, the inner ones first."""
    found: dict[str, type] = {}
    for part in get_args(hint):
        found |= records_in(part)
    if is_record(hint):
        for inner in types_of(hint).values():
            # A hop of a gradient's path contains further hops.
            found |= records_in(inner) if inner is not hint and hint not in get_args(inner) else {}
        found[hint.__name__] = hint
    return found


def is_record(hint: Any) -> bool:
    """Return whether values of a type are written as lists of fields."""
    is_tuple = isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
    is_class = is_tuple or hint in _ATTRIBUTES or dataclasses.is_dataclass(hint)
    return isinstance(hint, type) and is_class and not _is_command(hint)


def _is_command(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Command)


# Writing


@cache
def encoder(hint: Any) -> Convert | None:
    """Return what makes a JSON value of a value of a type; None if JSON writes it as it is."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        encoders = [each for part in parts if (each := encoder(part)) is not None]
        if not encoders:
            return None
        if len(encoders) > 1:
            raise TypeError(f"{hint} may be more than one converted type")
        inner = encoders[0]
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        return _tuple_encoder(parts)
    if origin is list:
        return _tuple_encoder((parts[0], ...))
    if origin in (frozenset, set):
        return sorted
    if origin is Mapping:
        return dict
    if origin is dict:
        pairs = _tuple_encoder((tuple.__class_getitem__(parts), ...))
        return lambda value: pairs(tuple(value.items())) if pairs is not None else list(value.items())
    if _is_command(hint):
        return _command_words
    return _record_encoder(hint) if is_record(hint) else None


def named(value: Any) -> Any:
    """Return a value of typed plain data as JSON in which dataclasses are objects: for programs that read a single event."""
    if isinstance(value, Command):
        return _command_words(value)
    if is_record(type(value)):
        return {name: named(getattr(value, name)) for name in fields_of(type(value))}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): named(each) for name, each in value.items()}
    if isinstance(value, (tuple, list, set, frozenset)):
        return [named(each) for each in value]
    return spelled(value) if isinstance(value, float) else value


def _command_words(command: Command) -> dict[str, Any]:
    origin = {"origin": command.origin} if command.origin else {}
    return {"id": command.id, **origin, **to_words(command)}


def _tuple_encoder(parts: tuple[Any, ...]) -> Convert | None:
    """Return the encoder of a tuple; JSON writes a tuple of plain values as it is."""
    if len(parts) == 2 and parts[1] is Ellipsis:
        # A class that contains itself is found when the first value is converted.
        if _is_recursive(parts[0]):
            return lambda values: [_needed(encoder(parts[0]))(value) for value in values]
        inner = encoder(parts[0])
        return None if inner is None else lambda values: [inner(value) for value in values]
    encoders = [encoder(part) for part in parts]
    if not any(encoders):
        return None
    return lambda values: [each(value) if each is not None else value for each, value in zip(encoders, values)]


def _needed(convert: Convert | None) -> Convert:
    return convert if convert is not None else lambda value: value


def _is_recursive(hint: Any) -> bool:
    return is_record(hint) and any(hint in get_args(inner) for inner in types_of(hint).values())


def _record_encoder(kind: type) -> Convert:
    """Return the encoder of a dataclass or named tuple. Values at the end that are their fields' defaults are left out."""
    names, hints = fields_of(kind), types_of(kind)
    encoders = [encoder(hints[name]) for name in names]
    defaults = _defaults(kind)
    read = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    required = max((at + 1 for at, name in enumerate(names) if name not in defaults), default=0)
    missing = object()
    ends = [defaults.get(name, missing) for name in names]

    def encode(value: Any) -> list[Any]:
        values = list(read(value))
        while len(values) > required and _is_same(values[-1], ends[len(values) - 1]):
            values.pop()
        for at, convert in enumerate(encoders[: len(values)]):
            if convert is not None:
                values[at] = convert(values[at])
        return values

    return encode


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


@cache
def _defaults(kind: type) -> dict[str, Any]:
    if not dataclasses.is_dataclass(kind):
        return dict(getattr(kind, "_field_defaults", {}))
    fields = dataclasses.fields(kind)
    return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}


# Reading


class Decoders:
    """Makes values of types from what JSON has read.

    Args:
        names: the fields of each class in what is read. It may grow, but not change.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[Any, Convert] = {}

    def of(self, hint: Any) -> Convert:
        """Return what makes a value of a type. It raises `NotReadableError` if it cannot."""
        known = self._known.get(hint)
        if known is None:
            known = self._known[hint] = self._make(hint)
        return known

    def _make(self, hint: Any) -> Convert:
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._union(parts)
        if origin is Literal:
            return _one_of(parts)
        if origin in (tuple, list, frozenset, set):
            return self._collection(origin, parts)
        if origin is Mapping:
            return _exactly(dict)
        if origin is dict:
            pair = self._collection(tuple, parts)
            return lambda value: dict(map(pair, _list(value)))
        if origin is not None:
            return lambda value: value
        if _is_command(hint):
            return _command
        if is_record(hint):
            return self._record(hint)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return _enum(hint)
        return _PLAIN.get(hint, lambda value: value)

    def _union(self, parts: tuple[Any, ...]) -> Convert:
        """Return the decoder of a union: of its members, one takes lists, and one other values."""
        others = [part for part in parts if part is not type(None)]
        lists = [part for part in others if get_origin(part) in (tuple, list, frozenset, set, dict) or is_record(part)]
        plain = [part for part in others if part not in lists]
        of_list = self.of(lists[0]) if lists else None
        of_plain = self.of(plain[0]) if len(plain) == 1 else _mixed(plain)
        may_be_none = type(None) in parts

        def decode(value: Any) -> Any:
            if value is None and may_be_none:
                return None
            return of_list(value) if of_list is not None and isinstance(value, list) else of_plain(value)

        return decode

    def _collection(self, kind: type, parts: tuple[Any, ...]) -> Convert:
        if kind is tuple and not (len(parts) == 2 and parts[1] is Ellipsis):
            inner = [self.of(part) for part in parts]

            def fixed(value: Any) -> Any:
                if len(_list(value)) != len(inner):
                    raise NotReadableError(f"a list of {len(inner)} values")
                return tuple(each(part) for each, part in zip(inner, value))

            return fixed
        element = parts[0]
        if element is int or element is str:
            return lambda value: kind(_all(element, _list(value)))
        return lambda value: kind(map(self.of(element), _list(value)))

    def _record(self, kind: type) -> Convert:
        own, hints = fields_of(kind), types_of(kind)
        written = self._names.get(kind.__name__)
        if written is None:
            raise NotReadableError(f"the fields of {kind.__name__}, which are not in the table of names")
        read = [(at, name, self.of(hints[name])) for at, name in enumerate(written) if name in own]
        required = _required(kind)

        def decode(value: Any) -> Any:
            count = len(_list(value))
            given = {name: convert(value[at]) for at, name, convert in read if at < count}
            for name in required:
                if name not in given:
                    raise NotReadableError(f"{kind.__name__} with its {name}")
            return kind(**given) if kind not in _ATTRIBUTES else _made(kind, given)

        return decode


def _required(kind: type) -> list[str]:
    if kind in _ATTRIBUTES:
        return [name for name in _ATTRIBUTES[kind] if name not in _OPTIONAL[kind]]
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if not _has_default(field)]
    return [name for name in fields_of(kind) if name not in _defaults(kind)]


def _made(kind: type, attributes: dict[str, Any]) -> Any:
    made: Any = object.__new__(kind)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise NotReadableError("a list")
    return value


def _all(kind: type, values: list[Any]) -> list[Any]:
    if set(map(type, values)) - {kind}:
        raise NotReadableError(f"a list of values of type {kind.__name__}")
    if kind is int and values and max(max(values), -min(values)) > MAX_INTEGER:
        raise NotReadableError("a list of integers of 64 bits")
    return values


def _number(value: Any) -> Any:
    if isinstance(value, float) or (isinstance(value, int) and abs(value) <= MAX_INTEGER):
        return value
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    raise NotReadableError("a number")


def _integer(value: Any) -> Any:
    if type(value) is not int or abs(value) > MAX_INTEGER:
        raise NotReadableError("an integer of 64 bits")
    return value


def _mixed(parts: list[Any]) -> Convert:
    """Return the decoder of a union of plain types."""
    if str in parts:
        return lambda value: value
    return _number if float in parts else lambda value: value


def _exactly(kind: type) -> Convert:
    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise NotReadableError(f"a value of type {kind.__name__}")
        return value

    return decode


def _enum(kind: type[enum.Enum]) -> Convert:
    values = {each.value: each for each in kind}

    def decode(value: Any) -> Any:
        try:
            return values[value]
        except (KeyError, TypeError):
            raise NotReadableError(f"one of {', '.join(map(str, values))}") from None

    return decode


def _one_of(choices: tuple[Any, ...]) -> Convert:
    def decode(value: Any) -> Any:
        if value not in choices:
            raise NotReadableError(f"one of {', '.join(map(str, choices))}")
        return value

    return decode


def _command(value: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(value.get("id"), int):
        raise NotReadableError("a command with an id")
    words = {name: each for name, each in value.items() if name not in ("id", "origin")}
    return dataclasses.replace(from_words(words, value["id"]), origin=str(value.get("origin", "")))


_PLAIN: dict[Any, Convert] = {int: _integer, str: _exactly(str), bool: _exactly(bool), float: _number}
