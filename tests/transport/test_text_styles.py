"""The styles that SGR sequences give to text, and what a line keeps of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradtui.transport.log_tail import LogTail
from gradtui.transport.text_styles import MAX_RUNS, StyledLine, style_after

STYLES = {
    "": "",
    "31": ":1:",
    "1;31": "b:1:",
    "1;2;3;4;7": "bdiru::",
    "97;104": ":15:12",
    "1;31;0": "",
    "1;31;": "",
    "1;2;22": "",
    "4;24": "",
    "4:3": "u::",
    "4;4:0": "",
    "31;39": "",
    "38;5;9": ":9:",
    "38;5;16": ":#000000:",
    "38;5;231;1": "b:#ffffff:",
    "38;5;244": ":#808080:",
    "48;2;1;2;255": "::#0102ff",
    "38:2::10:20:30": ":#0a141e:",
    "38:2:10:20:30": ":#0a141e:",
    "38:5:196": ":#ff0000:",
    "38;2;300;0;0;31": ":1:",
    "38;5": "",
    "38": "",
    "8;5;9;53;73": "",  # concealed text is shown, blinking text stands still
    "99999999999999999999": "",
}


@pytest.mark.parametrize("parameters", STYLES)
def test_a_sequence_gives_a_style(parameters: str) -> None:
    assert style_after("", f"\x1b[{parameters}m") == STYLES[parameters]


@given(st.text(st.sampled_from("0123456789;:"), max_size=60))
def test_any_parameters_leave_style_that_can_be_read(parameters: str) -> None:
    style = style_after("b:1:", f"\x1b[{parameters}m")
    if style:
        attributes, *colours = style.split(":")
        assert set(attributes) <= set("bdiur")
        assert all(not each or each[0] == "#" or 0 <= int(each) < 16 for each in colours)
        assert len(colours) == 2


def styled(path: Path, *pieces: str) -> list[StyledLine]:
    path.write_bytes(b"")
    tail = LogTail(path)
    with path.open("a", newline="") as file:
        for piece in pieces:
            file.write(piece)
            file.flush()
            tail.poll()
    return list(tail.styled_lines)


def test_a_style_lasts_until_it_is_changed(tmp_path: Path) -> None:
    lines = styled(tmp_path / "log", "a\x1b[31mb\nc\x1b[", "0md\x1b[1me")
    assert [list(line.spans()) for line in lines] == [
        [("a", ""), ("b", ":1:")],
        [("c", ":1:"), ("d", ""), ("e", "b::")],
    ]


def test_a_redrawn_line_has_its_new_styles_only(tmp_path: Path) -> None:
    lines = styled(tmp_path / "log", "\x1b[31mone\x1b[0m two\n\x1b[1A\x1b[2K\x1b[32mnew\x1b[0m\nnext")
    assert [list(line.spans()) for line in lines] == [[("new", ":2:")], [("next", "")]]


def test_links_and_other_sequences_leave_nothing(tmp_path: Path) -> None:
    hostile = "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\\x1b]52;c;AAAA\x07\x1b[?1049h\x1bP+q\x1b\\\x1b[6n"
    assert styled(tmp_path / "log", hostile + "\n") == [StyledLine("link")]


def test_the_styles_of_a_line_are_bounded(tmp_path: Path) -> None:
    (line,) = styled(tmp_path / "log", "".join(f"\x1b[3{index % 8}mx" for index in range(2_000)))
    assert len(line.runs) == MAX_RUNS
    assert line.text == "x" * 2_000


def test_a_part_of_a_line_keeps_its_styles() -> None:
    line = StyledLine("abcdef", ((1, ":1:"), (3, "")))
    for start in range(6):
        for end in range(start + 1, 7):
            whole = [(letter, style) for text, style in line.spans() for letter in text]
            part = [(letter, style) for text, style in line.part(start, end).spans() for letter in text]
            assert part == whole[start:end]
