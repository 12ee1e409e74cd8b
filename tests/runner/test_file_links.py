"""Links to lines of files in terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from gradtui.system.file_links import opens_links, with_file_link

SCRIPT = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(8):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, True),
        ({"TERM": "screen-256color", "TERM_PROGRAM": "vscode", "TMUX": "/tmp/x"}, False),
        ({"TERM": "dumb", "TERM_PROGRAM": "vscode"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "6800"}, True),
        ({"TERM": "xterm-256color", "VTE_VERSION": "4602"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "x"}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM": "xterm-kitty", "TEXTUAL_DRIVER": "page:Driver"}, False),
    ],
)
def test_which_terminals_open_links(environ: dict[str, str], expected: bool) -> None:
    assert opens_links(environ) is expected


def test_link_holds_no_character_that_could_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    linked = with_file_link("note GT1: x [/a b;\u009c/t.py:3] (until step 4)", "/a b;\u009c/t.py", 3)
    assert "\x1b]8;;file://here/a%20b%3B%C2%9C/t.py#3\x1b\\" in linked
    assert with_file_link("no place", "t.py", 3) == "no place"


@pytest.mark.slow
@pytest.mark.parametrize("on_terminal", [True, False])
def test_check_writes_links_to_terminals_only(tmp_path: Path, on_terminal: bool) -> None:
    (tmp_path / "t.py").write_text(SCRIPT, encoding="utf-8")
    environ = {
        **os.environ, "TERM": "xterm-kitty", "TMUX": "", "XDG_STATE_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }  # fmt: skip
    reading, writing = pty.openpty() if on_terminal else os.pipe()
    subprocess.run(
        [sys.executable, "-m", "gradtui", "check", "t.py"],
        cwd=tmp_path, env=environ, stderr=writing, timeout=100,
    )  # fmt: skip
    os.close(writing)
    written = b""
    try:
        while part := os.read(reading, 65536):
            written += part
    except OSError:  # a pseudo-terminal without its other side (Linux: EIO)
        pass
    os.close(reading)
    assert b"GT203" in written
    assert (b"t.py#7\x1b\\" in written) is on_terminal
    assert (b"\x1b" in written) is on_terminal
