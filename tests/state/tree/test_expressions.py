"""Regular expressions find what `re` finds, and none of them takes long."""

from __future__ import annotations

import re
import sys
import warnings
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gradtui.run.state.tree.expressions import BadExpressionError, parse
from gradtui.run.state.tree.name_search import Automaton, Names

NAMES = [
    "", "a", "A", "ab", "aab", "b.a", "layers.0.weight", "layers.10.bias", "encoder.layers.3.norm.weight", "a\nb", "a\n", "é_1",
    "x y", "½", "٣", "\u2028", "-", "]", "^", "aaaa.bbbb", "$", "a{2}", "head",
]  # fmt: skip
ATOMS = st.sampled_from(
    [
        "a", "b", r"\.", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "[ab]", "[^a]", "[a-c_.]", r"[\d.]", r"[^\w]", "[]a]",
        "[a-]",        r"[\]^]", "^", "$", r"\b", r"\B", r"\A", r"\Z", r"\x61", "é", "layers", "0", "{", "}", "]", "a{,1}",
        r"\n", "[^]]", r"[\W\d]",
    ]
)  # fmt: skip
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(
            inner, st.sampled_from(["*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,1}?", "{1,}", "{,2}"])
        ).map(lambda parts: f"({parts[0]}){parts[1]}"),
        st.tuples(st.sampled_from(["?=", "?!", "?:"]), inner).map(lambda parts: f"({parts[0]}{parts[1]})"),
    ),
    max_leaves=6,
)


def found(pattern: str, names: list[str]) -> list[bool]:
    return list(Names(names).search(Automaton(parse(pattern))))


@given(PATTERNS, st.booleans())
@example("(a|)*b", False)
@example("((a*)*)*$", False)
@example("^(?!layers)", False)
@example(r"(?!.*\.)", True)
@example(r"layers(?=\.\d+\.(?!weight))", True)
@example(r"(?=(a)(b))q|(?=a|b)b", False)
@example(r"(?=(?!a))q|(?=(a){0,1})a", False)
def test_it_finds_what_re_finds(pattern: str, ignores_case: bool) -> None:
    pattern = f"(?i){pattern}" if ignores_case else pattern
    try:
        expected = re.compile(pattern)
    except re.error:
        with pytest.raises(BadExpressionError):
            parse(pattern)
        return
    # Before Python 3.14 `\B` does not match in an empty name.
    names = NAMES[1:] if r"\B" in pattern else NAMES
    assert found(pattern, names) == [expected.search(name) is not None for name in names]


@pytest.mark.parametrize(
    "pattern", ["(?<=layers)", r"(?<!\.)weight$", r"(?<=\.)\d(?=\.)", "(?<=a|b)$", r"(?<![.a])\w$"]
)
def test_what_stands_before_is_found(pattern: str) -> None:
    assert found(pattern, NAMES) == [re.search(pattern, name) is not None for name in NAMES]


@given(st.text(alphabet="ab()[]{}*+?|\\^$.-,:=!<>Pid12wWbBAZ\n", max_size=20))
def test_typed_text_finds_as_re_or_refused(text: str) -> None:
    try:
        expression = parse(text)
    except BadExpressionError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = re.search(text, "ab") is not None
        except re.error:
            return
    assert list(Names(["ab"]).search(Automaton(expression))) == [expected]


ORDINARY = [f"encoder.layers.{layer}.attention.self.query.weight_of_head{layer}" for layer in range(400)] + [
    "a" * 40
] * 10


@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$", r"^(\w+\.?)+weight$", "(a|a)*$x", "(a|aa)+$x", "(.*)*x$", ".*.*.*.*.*.*x", "(a?){40}a{40}$", "((a*)*)*b",
        r"(\w|\w\w|\w\w\w)*!", r"(?=(\w+\.?)+!)", r"(?<=(\w+)+)!", r"(?!(?:(?!(\w+)*!).)*!)x$",
        "(" * 49 + "a" + "*)" * 49 + "!",
        "(?i)" + "[\0-\uffff]*" * 60 + "!", "(.{0,30}){0,30}!", "a" * 990, "((.?){20}){20}!",
    ],
)  # fmt: skip
def test_no_expression_takes_long_in_ordinary_names(pattern: str) -> None:
    began = process_time()
    names = Names(ORDINARY)
    assert not any(names.search(Automaton(parse(pattern)))) or pattern in ("^(a+)+$", "(a?){40}a{40}$")
    assert process_time() - began < 5


LONG, MANY = ["a" * 100_000], ["a.b" * 20] * 50_000


@pytest.mark.parametrize(
    ("pattern", "names", "refusal"),
    [
        (r"^(\w+\.?)+weight$", LONG, "its search would take too long"),
        (r"^(\w+\.?)+weight$", MANY, None),
        ("^(.*.?)*x$", LONG, "its search would take too long"),
        ("^(.*.?)*x$", MANY, None),
        ("(.?.?.?){200}!", LONG, "it is too large"),
        ("(?=(.|..|...)*!)" * 40, LONG, None),
        ("(?=(.|..|...)*!)" * 40, MANY, None),
    ],
)
def test_a_search_that_would_take_long_is_refused(pattern: str, names: list[str], refusal: str | None) -> None:
    began = process_time()
    if refusal is not None:
        with pytest.raises(BadExpressionError, match=refusal):
            found(pattern, names)
    else:
        assert not any(found(pattern, names))
    assert process_time() - began < 10


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", "backreferences are not supported"),
        ("(?P=a)", "this kind of group is not supported"),
        ("(?>a)", "this kind of group is not supported"),
        ("(?x)a", "this kind of group is not supported"),
        ("(?(1)a|b)", "this kind of group is not supported"),
        ("a++", "possessive repetition is not supported"),
        ("a**", "multiple repeat"),
        ("*", "nothing to repeat"),
        ("(", "missing ), unterminated subpattern"),
        (")", "unbalanced parenthesis"),
        ("[z-a]", "bad character range"),
        ("[a", "unterminated character set"),
        ("\\", "bad escape"),
        (r"\y", "bad escape"),
        ("(" * 10_000, "more than 1,000 characters"),
        ("(" * 900, "too many groups"),
        ("(((a{900}){900}){900}){900}", "too large"),
        ("((){900}){900}", "too large"),
        ("a{99999}", "too many repetitions"),
    ],
)
def test_what_is_no_expression_says_why(pattern: str, reason: str) -> None:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(10**6)
    try:
        with pytest.raises(BadExpressionError, match=re.escape(reason)):
            Automaton(parse(pattern))
    finally:
        sys.setrecursionlimit(before)
