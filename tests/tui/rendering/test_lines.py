from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.tui.rendering import lines

texts = st.text(alphabet=st.sampled_from("ab é→漢字 ▲\U0001f600"), max_size=30)
spans = st.lists(st.tuples(texts, st.sampled_from(["", "muted", "error"])), max_size=6)


@given(spans, st.integers(min_value=0, max_value=40))
def test_fit_gives_exactly_the_width(line: list[lines.Span], width: int) -> None:
    assert lines.line_width(lines.fit(line, width)) == width


@given(texts, st.integers(min_value=0, max_value=40))
def test_eliding_never_exceeds_width_and_keeps_what_fits(text: str, width: int) -> None:
    for cut in (lines.elide(text, width), lines.elide_start(text, width)):
        assert lines.width_of(cut) <= width
        if lines.width_of(text) <= width:
            assert cut == text
    assert lines.width_of(lines.pad(text, width)) == lines.width_of(lines.pad_start(text, width)) == width


@pytest.mark.parametrize(("text", "directory", "expected"), [
    ("error GT203: x; y [/a b/t.py:3] (until step 4)", "", {"/a b/t.py:3": "/a%20b/t.py#3"}),
    ("t.py:34 in main: x[1:2]", "/d", {"t.py:34": "/d/t.py#34"}),
    ("t.py:34 in main", "", {}),
    ("12:30, loss:3, 3/4:5, at /a/t.py", "/d", {}),
    ("at /a/t.py:41.5", "", {}),
])  # fmt: skip
def test_places_in_text_become_links(text: str, directory: str, expected: dict[str, str]) -> None:
    line = lines.linked_places(text, "muted", directory)
    assert "".join(each for each, _ in line) == text
    assert {each: lines.place_in(role)[0] for each, role in line if lines.place_in(role)[0]} == expected
    assert {lines.place_in(role)[1] for _, role in line} == {"muted"}


@given(spans, spans, st.integers(min_value=0, max_value=60))
def test_spread_keeps_the_right_hand_side_whole(left: list[lines.Span], right: list[lines.Span], width: int) -> None:
    line = lines.spread(left, right, width)
    assert line[len(line) - len(right) :] == tuple(right)
    assert lines.line_width(line) == max(width, lines.line_width(right))


@given(
    st.lists(st.text(alphabet="abcdefgh", min_size=1, max_size=12), min_size=1, max_size=20),
    st.integers(min_value=4, max_value=30),
    st.integers(min_value=0, max_value=3),
)
def test_wrapping_keeps_every_character_and_the_width(words: list[str], width: int, indent: int) -> None:
    wrapped = lines.wrap(((" ".join(words), "text"),), width, indent)
    assert all(lines.line_width(line) <= width for line in wrapped)
    together = "".join(text for line in wrapped for text, _ in line)
    assert together.replace(" ", "") == "".join(words)
    assert all(line[0][0].startswith(" " * indent) for line in wrapped[1:])


def test_wrapping_breaks_at_spaces_and_keeps_roles() -> None:
    wrapped = lines.wrap((("one two", "muted"), (" three", "error")), 9)
    assert wrapped == [(("one two", "muted"),), (("three", "error"),)]


def test_wrapping_joins_neighbours_of_one_role() -> None:
    assert lines.wrap((("one two three", "text"),), 40) == [(("one two three", "text"),)]


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\n", "\x9b", "\u202e", "\x7f"])
def test_nothing_that_commands_a_terminal_gets_through(character: str) -> None:
    assert character not in lines.printable(f"a{character}b")


def test_elide_start_keeps_the_end_of_a_path() -> None:
    assert lines.elide_start("text_encoder.blocks.3.weight", 12) == "…s.3.weight"[:1] + "ks.3.weight"


@given(texts, st.integers(min_value=1, max_value=20))
def test_chunks_keep_every_character_and_the_width(text: str, width: int) -> None:
    pieces = lines.chunks(text, width)
    assert "".join(pieces) == text
    assert all(lines.width_of(piece) <= max(width, 2) for piece in pieces)


def test_blanks_join_text_of_same_background() -> None:
    line = (("  ", ""), ("ab", "error"), (" ", "muted"), ("c", "error"), ("  ", ""), ("d", "text"))
    assert lines.compact(line) == (("  ab c  ", "error"), ("d", "text"))
    assert lines.compact((("a", "text"), (" ", "text on error"))) == (("a", "text"), (" ", "text on error"))
