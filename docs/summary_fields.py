"""The fields of the summary and their JSON schema, from the types in `gradtui.protocol.run_summary`."""

from __future__ import annotations

import ast
import inspect
import json
import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from gradtui.protocol.json_objects import inlined
from gradtui.protocol.run_summary import SCHEMA, RunSummary

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAMES: dict[Any, str] = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def schema() -> dict[str, Any]:
    """Return the schema of the file. Further keys are allowed: a later version may write them."""
    kinds = {kind.__name__: _object(kind) for kind in kinds_in(RunSummary)}
    whole = kinds.pop("RunSummary")
    whole["properties"]["schema"] = {"const": SCHEMA}
    return {"$schema": _DIALECT, "title": "The summary of a run of gradtui", **whole, "$defs": kinds}


def schema_text() -> str:
    """Return the schema as a file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


@cache
def kinds_in(kind: Any) -> tuple[type, ...]:
    """Return a dataclass, and those that its fields contain and that are objects of their own, the outer ones first."""
    found = dict.fromkeys([kind])
    for name, hint in get_type_hints(kind).items():
        for part in _dataclasses(hint):
            found |= dict.fromkeys(kinds_in(part)[name in inlined(kind) :])
    return tuple(found)


def fields_of(kind: type) -> Iterator[tuple[str, Any, str]]:
    """Yield the keys of the object of a dataclass with their types and what they mean."""
    texts = _texts(kind)
    for name, hint in get_type_hints(kind).items():
        if name not in inlined(kind):
            yield name, hint, texts.get(name, "")
        elif is_dataclass(hint):
            yield from fields_of(hint)  # type: ignore[arg-type]


def type_words(hint: Any, link: Any) -> str:
    """Return a type in words; `link` makes a link to the fields of a dataclass from its name."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(type_words(part, link) for part in parts)
    if origin is tuple:
        return f"list of {type_words(parts[0], link)}"
    if origin is Mapping:
        return f"object of {type_words(parts[1], link)}"
    return link(hint.__name__) if is_dataclass(hint) else _NAMES.get(hint, "any")


def _dataclasses(hint: Any) -> list[Any]:
    return [hint] if is_dataclass(hint) else [kind for part in get_args(hint) for kind in _dataclasses(part)]


def _object(kind: type) -> dict[str, Any]:
    rows = list(fields_of(kind))
    described = {name: {**_value(hint), **({"description": text} if text else {})} for name, hint, text in rows}
    return {
        "description": inspect.getdoc(kind),
        "type": "object",
        "properties": described,
        "required": [name for name, _, _ in rows],
    }


def _value(hint: Any) -> dict[str, Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        is_plain = all(part in _NAMES for part in parts)
        return {"type": [_NAMES[part] for part in parts]} if is_plain else {"anyOf": [_value(part) for part in parts]}
    if origin is tuple:
        return {"type": "array", "items": _value(parts[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _value(parts[1])}
    if is_dataclass(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}  # type: ignore[union-attr]
    return {"type": _NAMES[hint]} if hint in _NAMES else {}


def _texts(kind: type) -> dict[str, str]:
    """Return the docstrings below the fields of a dataclass."""
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in zip(node.body, node.body[1:])
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
