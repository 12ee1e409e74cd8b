"""What a script may do while the screen is up, in a real terminal: it meets what plain python would have it meet."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from helpers.terminal_session import TerminalSession

from gradtui.runner.output_capture import INPUT_REFUSED


def session(directory: Path, script: str, *arguments: str) -> TerminalSession:
    (directory / "script.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "gradtui", "script.py", *arguments]
    environment = {"XDG_STATE_HOME": str(directory), "OMP_NUM_THREADS": "1"}
    return TerminalSession(command, columns=150, lines=50, env=environment, cwd=directory, forked=True)


ASKS = """
import getpass, os, pdb, sys, threading, time

def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)

for number in range(30):
    print("line", number)
until("go")
print("hello", input("who? "))
print("line:", repr(sys.stdin.readline()))
print("rest:", list(sys.stdin))
print("length", len(getpass.getpass("token: ")))
thread = threading.Thread(target=lambda: print("elsewhere:", input("in a thread? ")))
thread.start()
thread.join()
try:
    input("interrupt me: ")
except KeyboardInterrupt as error:
    print("interrupted")
child = os.fork()
if child == 0:
    try:
        input("from a child? ")
    except EOFError:
        os._exit(7)
print("child", os.waitpid(child, 0)[1] >> 8)
print("bytes", os.read(0, 1))
until("on")
value = 41
breakpoint()
value += 1
print("value", value, os.isatty(0), input.__name__)
until("over")
try:
    1 / 0
except ZeroDivisionError:
    pdb.post_mortem()
input("the end: ")
"""
ANSWERED = """(Pdb) n
> script.py(34)<module>()
-> print("value", value, os.isatty(0), input.__name__)
(Pdb) p value
42
(Pdb) c
value 42 False input
> script.py(37)<module>()
-> 1 / 0
(Pdb) p value
42
(Pdb) q
the end: Traceback (most recent call last):
"""


def type_answers(run: TerminalSession, question: str, *lines: str) -> None:
    """Wait for each question at the end of the output, and type the answer."""
    for line in lines:
        run.wait_until(lambda: run.text.rstrip().endswith(question), question)
        assert not run.full_screen
        before = len(run.raw)
        run.send(line)
        run.wait_until(lambda before=before: len(run.raw) > before, "the echo")  # type: ignore[misc]


@pytest.mark.slow
def test_terminal_goes_to_script_and_back(tmp_path: Path) -> None:
    with session(tmp_path, ASKS) as run:
        run.wait_for("line 29")
        run.send("?")
        run.wait_for("esc closes")
        (tmp_path / "go").touch()
        type_answers(run, "who?", "me\n")
        # What was printed before is above the question, and the dashboard does not return in between.
        assert "comes back when the script goes on\nline 10\n" in run.text
        run.wait_for("hello me")
        run.send("a line\n")
        run.wait_for("line: 'a line\\n'")
        run.send("more\n\x04")
        type_answers(run, "token:", "secret\n")
        type_answers(run, "in a thread?", "yes\n")
        type_answers(run, "interrupt me:", "\x03")
        run.resize(120, 40)
        run.wait_until(lambda: run.full_screen, "the dashboard")
        run.wait_for("esc closes")  # with the dialog that was open
        assert run.raw.count(b"\x1b[?1049h") == 2
        run.send("\x1b")
        run.wait_for("bytes b''")
        (tmp_path / "on").touch()
        type_answers(run, "(Pdb)", "n\n", "p value\n", "c\n")
        run.wait_until(lambda: run.full_screen, "the dashboard")
        (tmp_path / "over").touch()
        type_answers(run, "(Pdb)", "p value\n", "q\n")
        type_answers(run, "the end:", "\x04")
        run.wait_for("── exit code 1")
        run.send("q")
        assert run.wait_end() == 1
        assert run.problems_left() == []
    (log,) = (tmp_path / "gradtui").glob("*.log")
    kept = log.read_text().replace(f"{tmp_path}/", "")
    assert "who? me\nhello me\na line\nline: 'a line\\n'\nmore\nrest: ['more\\n']\ntoken: \nlength 6\n" in kept
    assert "in a thread? yes\nelsewhere: yes\ninterrupt me: interrupted\n" in kept
    assert f"from a child? \n{INPUT_REFUSED}child 7\nbytes b''\n" in kept
    assert ANSWERED in kept
    shown = run.raw.decode().replace("\r\n", "\n")
    assert "secret" not in kept + shown
    without_dashboard = "".join(part.split("\x1b[?1049h")[0] for part in shown.split("\x1b[?1049l"))
    # Once while it had the terminal, and not again at the end.
    assert without_dashboard.count("Traceback (most recent call last)") == 1


KILLED = """
import getpass, os, sys
print(os.getpid(), file=open("pid", "w"), flush=True)
getpass.getpass("token: ")
"""


@pytest.mark.slow
def test_script_killed_with_terminal_leaves_it(tmp_path: Path) -> None:
    with session(tmp_path, KILLED) as run:
        run.wait_for("token:")
        assert not run.full_screen
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        assert run.wait_end() == 128 + signal.SIGKILL
        assert run.problems_left() == []


DAEMON = """
import threading
threading.Thread(target=input, args=("enter ends it: ",), daemon=True).start()
threading.Event().wait(0.2)
print("trained")
"""


@pytest.mark.slow
def test_run_ends_although_daemon_thread_still_asks(tmp_path: Path) -> None:
    with session(tmp_path, DAEMON) as run:
        run.wait_for("enter ends it:")
        assert run.wait_end() == 0
        assert run.problems_left() == []


WAITS = """
import os, signal, sys
import torch

deaths = []
signal.signal(signal.SIGCHLD, lambda *_: deaths.append(1))
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

def train():
    while not os.path.exists(sys.argv[1]):
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()

train()
first = os.fork()
if first == 0:
    os._exit(7)
reaped = []
while True:
    try:
        reaped.append(os.wait())
    except ChildProcessError:
        break
print("reaped only its own:", reaped == [(first, 7 << 8)], "told of", len(deaths), flush=True)
"""


@pytest.mark.slow
def test_script_waiting_for_children_meets_own(tmp_path: Path) -> None:
    with session(tmp_path, WAITS, "go") as run:
        plots = run.plot_server()
        training = run.training_process()
        assert training.children() == []
        (tmp_path / "go").touch()
        run.wait_for("reaped only its own: True told of 1")
        run.wait_for("── exit code 0")
        run.send("q")
        assert run.wait_end() == 0
    assert psutil.wait_procs([plots], timeout=20)[1] == []
