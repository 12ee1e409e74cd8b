"""The tail of a log against what a terminal would show of the same bytes, whatever the bytes and however they arrive."""

from __future__ import annotations

import io
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from gradtui.transport.log_tail import MAX_LINE, MAX_READ, LogTail, clip, last_lines


def shown(path: Path, *pieces: bytes, max_lines: int = 100) -> list[str]:
    """Write the pieces one after the other, with a poll after each."""
    path.write_bytes(b"")
    tail = LogTail(path, max_lines=max_lines)
    with path.open("ab", buffering=0) as file:
        for piece in pieces:
            file.write(piece)
            tail.poll()
    return list(tail.lines)


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "output.log"


TEXTS = {
    "lines": (b"one\ntwo\n", ["one", "two"]),
    "unfinished line": (b"one\ntw", ["one", "tw"]),
    "blank lines": (b"\na\n\n", ["", "a", ""]),
    "windows line ends": (b"one\r\ntwo\r\n", ["one", "two"]),
    "bar": (b"\r 0%\r 50%\r100%\ndone\n", ["100%", "done"]),
    "shorter text over longer": (b"a long line\rshort", ["short"]),
    "bar erased": (b"bar\r   \r", ["   "]),
    "return without text": (b"kept\r", ["kept"]),
    "colours": (b"\x1b[1;31mred\x1b[0m and \x1b[38;5;9mmore\x1b[m\n", ["red and more"]),
    "title and link": (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", ["alink"]),
    "charset and cursor save": (b"\x1b(Ba\x1b7b\x1b8c\x1b=d\n", ["abcd"]),
    "erase line": (b"gone\x1b[2Knew\nkept\x1b[K\nfrom the start\r\x1b[K\n", ["new", "kept", ""]),
    "backspace": (b"spin |\b/\b-\n\b\b", ["spin -"]),
    "tabs": (b"a\tb\n\tc\n", ["a       b", "        c"]),
    "zeros and other controls": (b"a\x00b\x07c\x0bd\x7fe\n", ["abcde"]),
    "not utf-8": (b"a\xffb\xc3\n", ["a\ufffdb\ufffd"]),
    "malformed escape": (b"\x1b[12\x00m!\n", ["[12m!"]),
    "control string without end": (b"\x1b]never closed\nnext\n", ["]never closed", "next"]),
    "cursor up beyond the top": (b"a\nb\x1b[99A\rA", ["A", "b"]),
    "cursor up and down": (b"1\n2\n3\x1b[2A\rone\x1b[B\rtwo\n\rthree\n4", ["one", "two", "three", "4"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_a_terminal_would_show(name: str, log_file: Path) -> None:
    data, expected = TEXTS[name]
    assert shown(log_file, data) == expected
    assert shown(log_file, *(data[index : index + 1] for index in range(len(data)))) == expected


@given(
    text=st.lists(
        st.sampled_from(
            [
                *("\n", "\r", "\b", "\t", "\x1b[A", "\x1b[3A", "\x1b[B", "\x1b[2K", "\x1b[K", "\x1b[31m"),
                *("\x1b]0;t\x07", "\x1b", "\x1b[", "\x00", "ab", "é", "漢字", "100%"),
            ]
        )
        | st.text(max_size=5),
        max_size=30,
    ).map(lambda parts: "".join(parts).encode("utf-8", errors="surrogatepass")),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
def test_how_it_arrives_makes_no_difference(log_file: Path, text: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(edges)]
    assert shown(log_file, *pieces) == shown(log_file, text)


@given(
    lines=st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20), max_size=60),
    kept=st.integers(1, 20),
)
def test_plain_lines_come_through_unchanged(log_file: Path, lines: list[str], kept: int) -> None:
    text = "".join(f"{line}\n" for line in lines)
    assert shown(log_file, text.encode(), max_lines=kept) == lines[-kept:]


@given(data=st.binary(max_size=300))
def test_any_bytes_leave_printable_lines(log_file: Path, data: bytes) -> None:
    for line in shown(log_file, data[: len(data) // 2], data[len(data) // 2 :]):
        assert all(ord(character) >= 0x20 and not 0x7F <= ord(character) <= 0x9F for character in line)


def test_nested_bars_are_shown_as_tqdm_draws_them(log_file: Path) -> None:
    drawn = io.StringIO()
    with tqdm(total=2, file=drawn, desc="epoch", mininterval=0, ncols=40) as outer:
        for _ in range(2):
            with tqdm(total=3, file=drawn, desc="batch", mininterval=0, ncols=40, position=1, leave=False) as inner:
                for _ in range(3):
                    inner.update()
                    lines = shown(log_file, drawn.getvalue().encode())
                    assert lines[0].startswith("epoch:")
                    assert lines[1].startswith("batch:")
                    assert f"{inner.n}/3" in lines[1]
                    assert len(lines) == 2
            outer.update()
    lines = shown(log_file, drawn.getvalue().encode())
    assert "2/2" in lines[0]
    assert "".join(lines[1:]).strip() == ""


def test_message_between_bars(log_file: Path) -> None:
    drawn = io.StringIO()
    with tqdm(total=2, file=drawn, mininterval=0, ncols=40) as bar:
        bar.update()
        bar.write("a message", file=drawn)
        bar.update()
    lines = shown(log_file, drawn.getvalue().encode())
    assert lines[0] == "a message"
    assert "2/2" in lines[1]
    assert len(lines) == 2


def test_only_the_end_of_a_flood_is_read(tmp_path: Path) -> None:
    path = tmp_path / "flood.log"
    tail = LogTail(path, max_lines=50)
    assert tail.poll() is False  # not there yet
    path.write_text("before\nunfin")
    assert tail.poll() is True
    line = "x" * 99 + "\n"
    with path.open("a") as file:
        for _ in range(100):
            file.write(line * 10_000)  # 100 MB in all
        file.write("the end\n")
    size = os.path.getsize(path)
    assert tail.poll() is True
    assert tail.poll() is False
    assert tail.lines[-1] == "the end"
    assert len(tail.lines) == 50
    whole = LogTail(path, max_lines=MAX_READ // 100 + 2)
    whole.poll()
    skipped = int("".join(filter(str.isdigit, whole.lines[0])))
    assert whole.lines[0].endswith(" bytes not shown]")
    assert size - MAX_READ <= skipped < size - MAX_READ + 100


def test_flood_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "flood.log"
    path.write_text("before\nunfin")
    tail = LogTail(path, max_lines=50_000)
    tail.poll()
    with path.open("a") as file:
        file.write("0123456\n" * (MAX_READ // 8) + "0123456\n")
    tail.poll()
    assert tail.lines[:4] == ["before", "unfin", "[16 bytes not shown]", "0123456"]


def test_one_endless_line_is_cut(log_file: Path) -> None:
    lines = shown(log_file, b"y" * MAX_READ, b"z" * MAX_READ)
    assert len(lines) == 1
    assert len(lines[0]) == MAX_LINE


def test_memory_is_bounded(log_file: Path) -> None:
    tail = LogTail(log_file, max_lines=100)
    log_file.write_bytes(b"")
    for _ in range(50):
        with log_file.open("ab") as file:
            file.write(b"line\n" * 1000)
        tail.poll()
        assert len(tail.lines) == 100
        assert len(tail._screen.rows) < 200


def test_starts_where_it_is_told(log_file: Path) -> None:
    log_file.write_bytes(b"an older run\nthis run\n")
    tail = LogTail(log_file, offset=len(b"an older run\n"))
    tail.poll()
    assert list(tail.lines) == ["this run"]


def test_emptied_file_starts_again(log_file: Path) -> None:
    log_file.write_bytes(b"a first line\n")
    tail = LogTail(log_file)
    tail.poll()
    log_file.write_bytes(b"anew\n")
    assert tail.poll() is True
    assert tail.lines[-1] == "anew"


def test_unreadable_file_is_quiet(tmp_path: Path) -> None:
    assert LogTail(tmp_path).poll() is False
    assert last_lines(str(tmp_path / "missing"), 3) == []


def test_last_lines(log_file: Path) -> None:
    log_file.write_bytes(b"1\n2\n3\n4\n\n\n")
    assert last_lines(str(log_file), 3) == ["2", "3", "4"]


@pytest.mark.parametrize(
    ("text", "width", "clipped"),
    [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("longer", None, "longer"),
        ("題題題", 6, "題題題"),
        ("題題題", 5, "題題…"),
        ("題題題", 4, "題…"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
        ("ab", 1, "…"),
        ("ab", 0, ""),
    ],
)
def test_no_line_is_wider_than_asked(text: str, width: int | None, clipped: str) -> None:
    assert clip(text, width) == clipped
