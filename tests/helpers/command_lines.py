"""Command lines that end the process that parses them: what they print, and their exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradtui.command_line.cli import parse


def ended(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Parse a command line that ends. Return its exit code, and what it has written to stdout and to stderr."""
    with pytest.raises(SystemExit) as end:
        parse([*map(str, words)])
    code = end.value.code
    assert isinstance(code, int)
    return code, *capsys.readouterr()


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Return what a command that succeeds writes to stdout. Asserts that it says nothing else."""
    code, out, error = ended(capsys, *words)
    assert (code, error) == (0, "")
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Return the one line in which a command line is refused, as bad usage."""
    code, out, error = ended(capsys, *words)
    assert (code, out) == (2, "")
    assert error.startswith("gradtui: ")
    assert error.count("\n") == 1
    return error
