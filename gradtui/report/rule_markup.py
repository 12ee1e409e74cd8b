"""The page of a rule as HTML. Its Markdown is gradtui's own, and has paragraphs, lists, emphasis, code and links. Pure."""

from __future__ import annotations

import re

from gradtui.report.html_elements import Markup, joined, tag, text

_INLINE = re.compile(r"\*\*(?P<strong>[^*]+)\*\*|`(?P<code>[^`]+)`|\[(?P<words>[^\]]+)\]\((?P<link>https://[^)\s]+)\)")


def rule_markup(page: str) -> Markup:
    """Return the page without its heading."""
    parts: list[Markup] = []
    for block in re.split(r"\n\s*\n", page.strip()):
        if block.startswith("#"):
            continue
        if block.startswith("```"):
            code = block.strip("`").partition("\n")[2]
            parts.append(tag("pre", tag("code", *(joined(text(line), Markup("\n")) for line in code.splitlines()))))
        elif block.startswith("- "):
            items = re.split(r"\n- ", block[2:])
            parts.append(tag("ul", *(tag("li", _inline(item)) for item in items)))
        else:
            parts.append(tag("p", _inline(block)))
    return joined(*parts)


def _inline(block: str) -> Markup:
    block = " ".join(block.split())
    parts: list[Markup] = []
    end = 0
    for found in _INLINE.finditer(block):
        parts.append(text(block[end : found.start()]))
        parts.append(_element(found))
        end = found.end()
    return joined(*parts, text(block[end:]))


def _element(found: re.Match[str]) -> Markup:
    if found["strong"] is not None:
        return tag("strong", found["strong"])
    if found["code"] is not None:
        return tag("code", found["code"])
    return tag("a", found["words"], href=found["link"], rel="noreferrer")
