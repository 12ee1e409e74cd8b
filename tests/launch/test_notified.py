"""The command of `--notify` in a whole run without a screen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradtui.launch.notified import notify_of_signal
from gradtui.runner.notify_command import NotifyCommand


@pytest.mark.parametrize(
    ("source", "code", "event", "message"),
    [
        ("print('over')", 0, "ended", "the run has ended"),
        ("raise ValueError('bad batch\\nmore of it')", 1, "failed", "ValueError: bad batch"),
        ("raise SystemExit(3)", 3, "failed", "SystemExit: 3"),
    ],
)
def test_the_end_of_a_run_is_told(source: str, code: int, event: str, message: str, tmp_path: Path) -> None:
    script, pipe = tmp_path / "train.py", tmp_path / "pipe"
    script.write_text(source)
    os.mkfifo(pipe)
    told = tmp_path / "notify.sh"
    told.write_text(f'#!/bin/sh\necho "$GRADTUI_EVENT|$GRADTUI_SCRIPT|$GRADTUI_EXIT_CODE|$GRADTUI_MESSAGE" > {pipe}\n')
    told.chmod(0o755)
    command = [sys.executable, "-m", "gradtui", "--plain", "--no-listen", "--notify", str(told), str(script)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert pipe.read_text() == f"{event}|train.py|{code}|{message}\n"
    _, said = running.communicate(timeout=100)
    assert running.returncode == code
    assert "gradtui: notify" not in said


def test_end_of_run_says_that_command_failed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('over')")
    command = [sys.executable, "-m", "gradtui", "--plain", "--no-listen", "--notify", "sh -c 'exit 7'", str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout) == (0, "over\n")
    assert ended.stderr.splitlines()[-1] == "gradtui: notify    sh ended with exit code 7"


def test_process_that_signal_has_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []
    monkeypatch.setattr(NotifyCommand, "run", lambda _self, facts: told.append(dict(facts)))
    notify_of_signal(None, "train.py", 9)
    notify_of_signal(NotifyCommand.__new__(NotifyCommand), "train.py", 9)
    assert [(each["GRADTUI_EVENT"], each["GRADTUI_EXIT_CODE"], each["GRADTUI_MESSAGE"]) for each in told] == [
        ("failed", "137", "killed by SIGKILL")
    ]
