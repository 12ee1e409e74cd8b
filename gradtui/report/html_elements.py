"""Make HTML in which every text is escaped: names come from the script, and a recording may come from anyone. Pure."""

from __future__ import annotations

import html
from typing import Any

from gradtui.printable import printable
from gradtui.protocol.json_text import to_document

_VOID = frozenset({"meta", "br", "hr", "input"})
_IN_SCRIPTS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""Without these a text cannot end a script element, and begin no comment in it."""


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | bool | None) -> Markup:
    """Return an element. Children that are no `Markup` are escaped; None is left out.

    Args:
        name: of the element.
        children: texts and elements.
        attributes: `class_` and `for_` are `class` and `for`, other underscores are hyphens. True is an attribute without a
            value; False and None are left out.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{html.escape(_clean(value))}"')
    start = f"<{' '.join(words)}>"
    return Markup(start if name in _VOID else f"{start}{joined(*children)}</{name}>")


def joined(*children: str | None) -> Markup:
    """Return children one after the other, escaped if they are no `Markup`."""
    return Markup("".join(each if isinstance(each, Markup) else text(each) for each in children if each is not None))


def text(words: str) -> Markup:
    """Return a text as HTML, without control characters and without characters that reverse the direction of text."""
    return Markup(html.escape(_clean(words)))


def lines(words: str) -> Markup:
    """Return a text of several lines as HTML, for an element that keeps them."""
    return Markup("\n".join(text(line) for line in words.splitlines()))


def json_script(name: str, data: Any) -> Markup:
    """Return data as an element that no browser runs. Raises ValueError if a number is not finite."""
    # Chromium ends itself where it must write a lone surrogate.
    encoded = to_document(data, is_compact=True, ensure_ascii=False).translate(_IN_SCRIPTS)
    encoded = encoded.encode("utf-8", "replace").decode("utf-8")
    return Markup(f'<script type="application/json" id="{html.escape(name)}">{encoded}</script>')


def _clean(words: str) -> str:
    # A lone surrogate cannot be written as UTF-8.
    return printable(words).encode("utf-8", "replace").decode("utf-8")
