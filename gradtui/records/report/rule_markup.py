"""The page of a rule as HTML. Its Markdown is gradtui's own, and has paragraphs, lists, emphasis, code and links. Pure."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

_INLINE = re.compile(r"\*\*(?P<strong>[^*]+)\*\*|`(?P<code>[^`]+)`|\[(?P<words>[^\]]+)\]\((?P<link>https://[^)\s]+)\)")


def rule_markup(page: str) -> Markup:
    """Return the page without its heading."""
    parts: list[Markup] = []
    for block in re.split(r"\n\s*\n", page.strip()):
        if block.startswith("#"):
            continue
        if block.startswith("```"):
            code = block.strip("`").partition("\n")[2]
            parts.append(Markup("<pre><code>{}</code></pre>").format(code))
        elif block.startswith("- "):
            items = re.split(r"\n- ", block[2:])
            listed = Markup("").join(Markup("<li>{}</li>").format(_inline(item)) for item in items)
            parts.append(Markup("<ul>{}</ul>").format(listed))
        else:
            parts.append(Markup("<p>{}</p>").format(_inline(block)))
    return Markup("").join(parts)


def _inline(block: str) -> Markup:
    block = " ".join(block.split())
    parts: list[Markup] = []
    end = 0
    for found in _INLINE.finditer(block):
        parts.append(escape(block[end : found.start()]))
        parts.append(_element(found))
        end = found.end()
    return Markup("").join([*parts, escape(block[end:])])


def _element(found: re.Match[str]) -> Markup:
    if found["strong"] is not None:
        return Markup("<strong>{}</strong>").format(found["strong"])
    if found["code"] is not None:
        return Markup("<code>{}</code>").format(found["code"])
    return Markup('<a href="{}" rel="noreferrer">{}</a>').format(found["link"], found["words"])
