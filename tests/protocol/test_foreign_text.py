"""JSON and TOML of others: nesting is checked before a parser recurses, in linear time, and quoted brackets do not count."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.protocol.foreign_text import MAX_NESTED, from_json, from_toml

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='[]{}"\\a,:'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[]{}"\\', max_size=4), inner, max_size=4)
    ),
    max_leaves=40,
)


@pytest.fixture(autouse=True)
def _high_limit() -> Iterator[None]:
    """A script may have raised the limit of recursion above what the stack holds."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    yield
    sys.setrecursionlimit(before)


@given(VALUES)
def test_shallow_json_is_read_as_by_python(value: Any) -> None:
    text = json.dumps([value, ["["] * MAX_NESTED])
    assert from_json(text) == from_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 65_535,
        "[" * 65_535 + "]" * 65_535,
        "[" * (MAX_NESTED + 1) + "]" * (MAX_NESTED + 1),
        '{"a":' * 65_535 + "1" + "}" * 65_535,
        '[{"a":' * 30_000,
        '["' + '\\"' * 100 + '",' + "[" * 65_535,
        '"' + '\\"' * 100_000 + "[" * 65_535,
        '"' * 65_535 + "[" * 65_535,
        "\\" * 65_535 + "[" * 65_535,
        "[]" * 65_535 + "]" * 65_535,
        "1" * 10_000,
    ],
)
def test_deep_json_is_refused_in_linear_time(text: str) -> None:
    began = process_time()
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - JSONDecodeError is one
        from_json(text)
    assert not isinstance(refused.value, RecursionError)
    assert process_time() - began < 1


def test_as_many_levels_as_are_allowed_are_read() -> None:
    for most in (MAX_NESTED - 1, MAX_NESTED):
        assert from_json("[" * most + "]" * most + " ") == from_json("[" * most + "]" * most)
        assert from_toml(f"a = {'[' * most}{']' * most}".encode())


@pytest.mark.parametrize(
    "text",
    [
        "a=" + "[" * 40_000,
        "a=" + "[" * 40_000 + "]" * 40_000,
        "a=" + "[\n" * 40_000 + "]" * 40_000,
        "a=" + "{a=" * 20_000 + "1" + "}" * 20_000,
        "a=" + "[{a=" * 20_000,
        ".".join("a" * 20_000) + " = 1",
        "[" + ".".join("a" * 20_000) + "]",
        "a = {" + ".".join(['"a"'] * 20_000) + "=1}",
        "a = '\\'\nb=" + "[" * 40_000,
        'a = "\\\\"\nb=' + "[" * 40_000,
        "a = '''\n'''\n# '''\nb=" + "[" * 40_000,
        'a = """\\"""" # "\nb=' + "[" * 40_000,
        "learning_rate = " + "1" * 10_000,
        '"""' * 20_000,
        '"' * 60_000,
        "'" * 60_001,
        '"' + "\\" * 60_001,
    ],
)
def test_deep_toml_is_refused_in_linear_time(text: str) -> None:
    began = process_time()
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message says what
        from_toml(text.encode())
    assert "\n" not in str(refused.value)
    assert process_time() - began < 2


@pytest.mark.parametrize(
    "text",
    [
        "# " + "[" * 200 + "\na = 1",
        'a = """' + "[" * 200 + '\n{\\"""" # [[[[',
        "a = '''" + "[" * 200 + "\n'''",
        "a = '\\'\nb = '" + "[" * 200 + "'",
        'a = "\\"' + "[" * 200 + '"',
        "[[a]]\nx = [1.5, {y = 2.5}]\n" * 100,
        "x = [" + "1.5, " * 300 + "]",
        "x = '" + "a." * 300 + "'",
        'x = """' + "a.b\n" * 300 + '"""',
    ],
)
def test_strings_and_comments_are_no_nesting(text: str) -> None:
    assert from_toml(text.encode())


@pytest.mark.parametrize(("parse", "content"), [(from_json, b"\xff[1]"), (from_toml, b"a = '\xff'")])
def test_what_is_no_text_is_refused(parse: Callable[[bytes], Any], content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        parse(content)
