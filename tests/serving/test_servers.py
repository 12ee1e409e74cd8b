"""The socket of a live run: who may reach it, what it answers, and that nobody can hold it up."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.listening import address, run_server

from gradtui.protocol.codec import from_words, words_of
from gradtui.remote.live.client import LiveError, RunChoice, from_here
from gradtui.remote.serving import NoAnswerError, RunServer, address_of, ask, live_runs, socket_directory
from gradtui.run.text import command_text


def status(_: Mapping[str, Any]) -> dict[str, Any]:
    return {"step": 7, "since": "2026", "loss": float("nan")}


def fails(_: Mapping[str, Any]) -> None:
    raise RuntimeError("a mistake")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunServer]:
    made = run_server(tmp_path, {"status": status, "nothing": lambda _: None, "fails": fails})
    made.start()
    yield made
    made.close()


def test_a_run_answers_and_is_listed(server: RunServer, tmp_path: Path) -> None:
    assert ask(address(tmp_path, server), "status") == {"step": 7, "since": "2026", "loss": "NaN"}
    (run,) = live_runs(tmp_path)
    assert (run["id"], run["step"]) == (server.id, 7)
    assert server.id.startswith(f"{os.getpid()}-")


def test_run_that_does_not_answer_is_listed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.remote.serving.client._ANSWER_IN_LIST_S", 0.05)
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(str(tmp_path / "7-ef.sock"))
        # The kernel accepts connections for a process that is stopped.
        stopped.listen()
        (run,) = live_runs(tmp_path)
    assert run == {"id": "7-ef", "error": "run 7-ef does not answer: timed out"}


def test_only_the_owner_can_connect(server: RunServer, tmp_path: Path) -> None:
    (path,) = tmp_path.glob("*.sock")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.name == f"{server.id}.sock"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("other", "it can be asked for fails, nothing, status"),
        ("nothing", "does not answer now"),
        ("fails", "a mistake"),
    ],
)
def test_what_cannot_be_answered_is_said(server: RunServer, tmp_path: Path, asked: str, reason: str) -> None:
    with pytest.raises(NoAnswerError, match=reason) as raised:
        ask(address(tmp_path, server), asked)
    assert "\n" not in str(raised.value)
    assert ask(address(tmp_path, server), "status")["step"] == 7, "and the next is answered"


def said(tmp_path: Path, server: RunServer, *lines: bytes) -> list[Any]:
    with socket.socket(socket.AF_UNIX) as connected:
        connected.settimeout(60)
        connected.connect(str(tmp_path / f"{server.id}.sock"))
        connected.sendall(b"".join(lines))
        connected.shutdown(socket.SHUT_WR)
        with connected.makefile("rb") as answers:
            return [json.loads(line) for line in answers]


def test_another_protocol_gets_one_line(server: RunServer, tmp_path: Path) -> None:
    (answer,) = said(tmp_path, server, b'{"protocol": 99, "ask": "status"}\n')
    assert answer == {"error": "the run speaks protocol 1; use the same version of gradtui", "protocol": 1}


@pytest.mark.parametrize("line", [b"[1]\n", b'"x"\n', b"3\n", b'{"protocol": 1, "ask": {}}\n', b'{"protocol": 1}\n'])
def test_a_request_of_another_form_gets_an_error(server: RunServer, tmp_path: Path, line: bytes) -> None:
    (answer,) = said(tmp_path, server, line)
    assert set(answer) <= {"error", "protocol"}


@pytest.mark.parametrize("line", [b"\xff\xfe\n", b"{\n", b"[" * 60_000 + b"\n", b"x" * 200_000])
def test_what_is_no_json_closes_the_connection_only(server: RunServer, tmp_path: Path, line: bytes) -> None:
    # It may be closed before all was sent.
    with contextlib.suppress(OSError):
        assert said(tmp_path, server, line) == []
    assert ask(address(tmp_path, server), "status")["step"] == 7


def test_one_that_takes_nothing_holds_up_nobody(server: RunServer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tmp_path / f"{server.id}.sock"))
        assert ask(address(tmp_path, server), "status")["step"] == 7


def test_too_many_connections_are_closed_at_once(tmp_path: Path) -> None:
    server = run_server(tmp_path, {"status": status}, connections=1)
    server.start()
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for each in (first, second):
            each.settimeout(60)
            each.connect(str(tmp_path / f"{server.id}.sock"))
        assert second.recv(1) == b""
    server.close()


def test_end_removes_socket_and_threads_end(tmp_path: Path) -> None:
    server = run_server(tmp_path, {"status": status})
    server.start()
    (thread,) = [each for each in threading.enumerate() if each.name == "gradtui-server"]
    server.close()
    thread.join(60)
    assert not thread.is_alive()
    assert not list(tmp_path.glob("*.sock"))
    with pytest.raises(NoAnswerError, match="there is no run"):
        ask(address(tmp_path, server), "status")


def test_script_closing_files_keeps_its_own(tmp_path: Path) -> None:
    server = run_server(tmp_path, {"status": status})
    (listener,) = server._listeners
    number = listener._descriptor.number
    os.close(number)
    with open(tmp_path / "theirs.txt", "w") as theirs:
        os.dup2(theirs.fileno(), number)
        server.start()
        server.close()
        os.write(number, b"of the script")
        os.close(number)
    assert (tmp_path / "theirs.txt").read_text() == "of the script"


def test_sockets_of_runs_that_are_gone_are_removed(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "1-ab.sock"))
    assert live_runs(tmp_path) == []
    assert not list(tmp_path.glob("*.sock"))


def test_run_that_begins_removes_sockets_of_killed_ones(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        for name in ("1-ab", "2-cd"):
            gone = stack.enter_context(socket.socket(socket.AF_UNIX))
            gone.bind(str(tmp_path / f"{name}.sock"))
    os.utime(tmp_path / "1-ab.sock", (0, 0))
    server = run_server(tmp_path, {"status": status})
    names = {path.name for path in tmp_path.glob("*.sock")}
    assert names == {"2-cd.sock", f"{server.id}.sock"}, "a new one may belong to a run that does not listen yet"
    server.start()
    server.close()


def test_directory_is_private_and_first_that_can_be(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, state = place / "run", place / "state"
    runtime.mkdir()
    environ = {"XDG_RUNTIME_DIR": str(runtime), "XDG_STATE_HOME": str(state)}
    found = socket_directory(environ)
    assert found == runtime / "gradtui"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    found.chmod(0o755)
    assert stat.S_IMODE(socket_directory(environ).stat().st_mode) == 0o700
    assert socket_directory({"XDG_STATE_HOME": str(state)}) == state / "gradtui" / "sockets"
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(place))
    far = place / ("x" * 100)
    assert socket_directory({"XDG_STATE_HOME": str(far)}) == place / f"gradtui-{os.getuid()}"


def test_link_in_place_of_directory_is_not_followed(place: Path) -> None:
    (place / "elsewhere").mkdir()
    (place / "gradtui").symlink_to(place / "elsewhere")
    environ = {"XDG_RUNTIME_DIR": str(place), "XDG_STATE_HOME": str(place / "state")}
    assert socket_directory(environ) == place / "state" / "gradtui" / "sockets"


def test_file_is_relative_to_directory_of_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save = words_of(["save-checkpoint", "now.pt"])
    assert from_here(save, RunChoice()) == {"command": "save_checkpoint", "file": str(tmp_path / "now.pt")}
    assert command_text(from_words(from_here(save, RunChoice()), 1)) == f"save a checkpoint to {tmp_path / 'now.pt'}"
    assert from_here(save, RunChoice(connect="node:7000")) == save
    for other in (["save-checkpoint"], ["save-checkpoint", "/now.pt"], ["freeze", "file"]):
        assert from_here(words_of(other), RunChoice()) == words_of(other)


def test_run_is_named_by_beginning_of_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradtui.remote.serving.socket_directory", lambda: tmp_path)
    monkeypatch.setattr(
        "gradtui.remote.live.client.live_runs", lambda: [{"id": "139-ab"}, {"id": "1396-cd"}, {"id": "7-ef"}]
    )
    (tmp_path / "139-ab.sock").touch()
    for given, named in (("7", "7-ef"), ("1396", "1396-cd"), ("139-ab", "139-ab"), ("8", "8")):
        assert RunChoice(id=given).address() == address_of(tmp_path, named)
    with pytest.raises(LiveError, match="2 runs begin with 139; give one by --run: 139-ab, 1396-cd"):
        RunChoice(id="139").address()
