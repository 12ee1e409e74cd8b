"""The user's command of `--notify`: what it gets, and what it cannot do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.programs import run_program

_ASK = """
import json, os, queue, sys
from gradtui.runner.notify_command import NotifyCommand

words, facts, timeout = json.loads(sys.argv[1])
command = NotifyCommand.start(words, timeout)
try:
    os.wait()
except ChildProcessError:
    print("no child", flush=True)
failed = queue.Queue()
command.run(facts, failed.put)
if sys.argv[2] == "failed":
    print(failed.get(timeout=60), flush=True)
if sys.argv[2] == "outcome":
    command.run({})
    print(command.outcome(0.0), flush=True)
    print(command.outcome(60.0), flush=True)
"""


def ask(words: list[str], facts: dict[str, str], wait_for: str = "", timeout: float = 30.0) -> list[str]:
    """Have the command run in a process of its own, and return what that prints."""
    run = run_program(_ASK, json.dumps([words, facts, timeout]), wait_for)
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_it_gets_facts_without_shell_and_outlives_run(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = (
        "import json, os, sys; facts = {name: value for name, value in os.environ.items() if name.startswith('GRADTUI_')};"
        "open(sys.argv[1], 'w').write(json.dumps([facts, os.isatty(0), os.getsid(0) == os.getpid(), os.listdir('/dev/fd')]))"
    )
    hostile = "$(touch stolen); `id` \x1b'\""
    assert ask([sys.executable, "-c", script, str(pipe)], {"GRADTUI_MESSAGE": hostile}) == ["no child"]
    facts, is_a_terminal, leads_session, descriptors = json.loads(pipe.read_text())
    assert facts["GRADTUI_MESSAGE"] == hostile
    assert (is_a_terminal, leads_session) == (False, True)
    assert len(descriptors) <= 5


@pytest.mark.parametrize(
    ("words", "trouble"),
    [
        ([sys.executable, "-c", "raise SystemExit(3)"], f"{sys.executable} ended with exit code 3"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], f"{sys.executable} was ended by signal 9"),
        (["/nowhere/at-all"], "/nowhere/at-all could not be run: No such file or directory"),
        (["sh", "-c", "sleep 1000 & sleep 1000"], "sh took more than 0.2 s and was killed"),
    ],
)
def test_a_failure_is_told_in_one_line(words: list[str], trouble: str) -> None:
    assert ask(words, {}, "failed", 0.2 if words[0] == "sh" else 30.0) == ["no child", trouble]


def test_the_outcome_of_all_calls_is_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = ["sh", "-c", 'test -z "$WAITS_FOR" || read word < "$WAITS_FOR"; exit 4']
    asked = json.dumps([words, {"WAITS_FOR": str(pipe)}, 30.0])
    running = subprocess.Popen([sys.executable, "-c", _ASK, asked, "outcome"], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    said = [running.stdout.readline() for _ in range(2)]
    pipe.write_text("go\n")
    rest, _ = running.communicate(timeout=100)
    assert [*said, rest] == [
        "no child\n",
        "sh still runs after 0 s, and whether it fails will not be known\n",
        "sh ended with exit code 4 (2 of 2 times)\n",
    ]
