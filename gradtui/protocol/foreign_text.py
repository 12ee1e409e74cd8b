"""Parse JSON and TOML that others have written. Nesting is checked first: parsers recurse, and a script may have raised the
limit of recursion above what the stack of a thread holds.

The caller bounds the length of the text.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from gradtui.protocol.codec import shown

MAX_NESTED = 64
"""Levels of lists and tables. What gradtui writes has fewer than 20."""
_ONLY_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_NOT_STRUCTURE = re.compile(
    rb'"""[\s\S]*?(?:"""|\Z)' rb"|'''[\s\S]*?(?:'''|\Z)" rb'|"[^"\n]*"?' rb"|'[^'\n]*'?" rb"|\#[^\n]*"
)
"""Strings and comments of TOML, once escaped quotes are gone. Each alternative matches to the end of what has begun, so the
search takes linear time."""
_KEY_ENDS = re.compile(rb"[=,{\[\n]")


def from_json(text: str | bytes) -> Any:
    """Return the value in a text of JSON. Raises ValueError if it has none, or is nested too deeply."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if raw.count(b"[") + raw.count(b"{") > MAX_NESTED:
        # Every second part between quotes is a string.
        _check_nesting(b"".join(_without_escaped_quotes(raw).split(b'"')[::2]))
    return json.loads(text)


def from_toml(content: bytes) -> dict[str, Any]:
    """Return the table in a text of TOML.

    Raises:
        ValueError: it is no TOML, nested too deeply, or has a whole number of more than 64 bits, which TOML has not. The
            message says why in one line.
    """
    # Most runs read none, and the first paint would wait for the import.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    structure = _NOT_STRUCTURE.sub(b"", _without_escaped_quotes(content))
    _check_nesting(structure)
    # The parts of a dotted key are tables, one in the other.
    if any(part.count(b".") >= MAX_NESTED for part in _KEY_ENDS.split(structure)):
        raise ValueError("a key has too many dots")
    try:
        table: dict[str, Any] = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise ValueError("it is not a text in UTF-8") from None
    except ValueError as error:
        # A `TOMLDecodeError`, or a number of so many digits that Python does not read it.
        raise ValueError(f"it is not TOML: {error}") from None
    _check_whole_numbers(table)
    return table


def _check_whole_numbers(table: dict[str, Any]) -> None:
    """Raise ValueError if one is too large. In hexadecimal digits it may be so large that Python cannot write it."""
    values: list[tuple[str, Any]] = list(table.items())
    while values:
        name, value = values.pop()
        if isinstance(value, dict):
            values += value.items()
        elif isinstance(value, list):
            values += ((name, each) for each in value)
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"{shown(name)} needs more than 64 bits")


def _without_escaped_quotes(raw: bytes) -> bytes:
    return raw.replace(rb"\\", b"").replace(rb"\"", b"")


def _check_nesting(structure: bytes) -> None:
    brackets = structure.translate(_ONLY_SQUARE, _NO_BRACKETS)
    levels = 0
    while levels < MAX_NESTED and (outer := brackets.replace(b"[]", b"")) != brackets:
        brackets, levels = outer, levels + 1
    # Those that are left are not closed, or deeper.
    if levels + brackets.count(b"[") > MAX_NESTED:
        raise ValueError("its brackets are nested too deeply")
