from __future__ import annotations

from gradtui.tui.panels.output import traceback_lines

ERROR = 'Traceback (most recent call last):\n  File "train.py", line 3\nValueError: bad batch\n'


def test_the_traceback_is_shown_with_its_last_line_as_an_error() -> None:
    lines = traceback_lines(ERROR, ["epoch 1"])
    assert "".join(text for line in lines for text, _ in line) == ERROR.replace("\n", "")
    assert [role for line in lines for _, role in line] == ["text", "text", "error"]


def test_a_traceback_that_the_script_printed_is_not_repeated() -> None:
    assert traceback_lines(ERROR, ["epoch 1", *ERROR.splitlines()]) == []


def test_an_error_without_text_shows_nothing() -> None:
    assert traceback_lines("", []) == []
