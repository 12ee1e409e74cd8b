"""Templates of HTML: whatever a text is, it stays a text."""

from __future__ import annotations

import json

import pytest
from helpers.parsed_pages import Parsed
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import UndefinedError

from gradtui.records.report.page_templates import json_script, templates
from gradtui.records.report.rule_markup import rule_markup

PARAGRAPH = templates().from_string('<p title="{{ title }}">{{ words }}</p>')


@given(st.text(), st.text())
@example("{{ 7*7 }}{% raw %}", '" onload="x')
@example("</p><script>alert(1)</script><!--", "'><b>")
def test_a_text_is_no_markup(words: str, title: str) -> None:
    made = PARAGRAPH.render(words=words, title=title)
    parsed = Parsed(made)
    assert parsed.tags == ["p"]
    assert parsed.comments == 0
    if words.isprintable() and title.isprintable():
        assert parsed.text == words
        assert parsed.attributes == [{"title": title}]
    made.encode("utf-8")


def test_a_text_cannot_reverse_what_follows() -> None:
    assert PARAGRAPH.render(words="a\u202eb\x1b[1m", title="").endswith(">a·b·[1m</p>")


def test_a_template_writes_no_unknown_name() -> None:
    with pytest.raises(UndefinedError):
        PARAGRAPH.render(words="a")


@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_data_in_script_element_ends_where_element_ends(data: object) -> None:
    made = json_script("x", data)
    inside = made.removeprefix('<script type="application/json" id="x">').removesuffix("</script>")
    assert not {"<", ">", "&", "\u2028", "\u2029"} & set(inside)
    inside.encode("utf-8")
    assert json.loads(inside) == data


def test_a_lone_surrogate_is_not_written() -> None:
    assert json_script("x", ["a\ud800"]) == '<script type="application/json" id="x">["a?"]</script>'


def test_rule_page_keeps_text_and_links() -> None:
    source = (
        "# GT1: title\n\n**Why.** Write `x < 1` and\nsee [a & b](https://example.org/1).\n\n- one\n- two\n\n"
        "```python\na\n  b\n```"
    )
    made = rule_markup(source)
    assert made == (
        "<p><strong>Why.</strong> Write <code>x &lt; 1</code> and see "
        '<a href="https://example.org/1" rel="noreferrer">a &amp; b</a>.</p>'
        "<ul><li>one</li><li>two</li></ul><pre><code>a\n  b\n</code></pre>"
    )


def test_rule_page_makes_no_link_of_another_kind() -> None:
    assert "<a" not in rule_markup("[a](javascript:alert(1)) [b](data:x) <a href=x>")
