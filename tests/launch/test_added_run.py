"""Adding gradtui to a process that it did not start: the client's side, and all of it where Python can."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.live_training import environment

from gradtui.launch import added_run
from gradtui.launch.added_run import added_to
from gradtui.remote.live.client import LiveError
from gradtui.remote.serving.client import ask
from gradtui.remote.serving.server import Conversation, RunServer

Inject = Callable[[int, str], None]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let this process be one that gradtui can be added to, with its files in a directory of the test."""
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(added_run, "why_not_added", lambda _: None)
    return tmp_path


def with_inject(monkeypatch: pytest.MonkeyPatch, inject: Inject) -> None:
    monkeypatch.setattr(sys, "remote_exec", inject, raising=False)


def answering(**words: object) -> Inject:
    def inject(_process: int, script: str) -> None:
        place = Path(script).parent
        assert [stat.S_IMODE(each.stat().st_mode) for each in (place, Path(script), place / "request")] == [
            0o700, 0o600, 0o600,
        ]  # fmt: skip
        compile(Path(script).read_text(), script, "exec")
        (place / "answer").write_text(json.dumps(words))

    return inject


def left_behind(place: Path) -> list[Path]:
    return list(place.glob("gradtui-attach-*"))


def test_the_viewer_stays_and_says_that_it_leaves(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [{"removed": True}, {"others": True}, {}]
    server = RunServer(
        {"stay": lambda _: Conversation({}, lambda other: (other.receive(), other.send(answers.pop(0)))[0])}
    )
    path = str(server.listen(own).path)
    server.start()
    with_inject(monkeypatch, answering(path=path, seconds=0.42))
    for _ in range(3):
        with added_to(os.getpid()) as address:
            assert str(address.path) == path
    server.close()
    added = f"gradtui: gradtui was added to process {os.getpid()}, which it held up for 0.4 s"
    lines = capsys.readouterr().err.splitlines()
    assert lines[::2] == [added] * 3
    assert [line.removeprefix("gradtui: ").split()[0] for line in lines[1::2]] == ["gradtui", "left;", "left;"]
    assert left_behind(own) == []


def test_what_the_process_says_is_one_line(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_inject(monkeypatch, answering(refused="it has not\nimported torch"))
    with pytest.raises(LiveError) as refused, added_to(os.getpid()):
        pass
    assert f"process {os.getpid()}" in refused.value.message
    assert "\n" not in refused.value.message
    assert left_behind(own) == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied"), "run gradtui attach as root"),
        (RuntimeError("Remote debugging is not enabled in the remote process"), "-X disable-remote-debug"),
        (ProcessLookupError(3, "No such process"), "has ended"),
        (RuntimeError("Can't find the main thread"), "Can't find the main thread"),
    ],
)
def test_a_refusal_of_the_system_is_one_line(
    own: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def inject(_process: int, _script: str) -> None:
        raise error

    with_inject(monkeypatch, inject)
    with pytest.raises(LiveError, match=words) as refused, added_to(os.getpid()):
        pass
    assert "\n" not in refused.value.message
    assert left_behind(own) == []


def test_process_that_reaches_no_python_is_given_up(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts: list[str] = []
    with_inject(monkeypatch, lambda _, script: scripts.append(script))
    monkeypatch.setattr(added_run, "_LIMIT_S", 0.0)
    with pytest.raises(LiveError, match="has not reached Python code in 0 s"), added_to(os.getpid()):
        pass
    # Python would report on the stderr of the process that a script is missing.
    (script,) = scripts
    exec(compile(Path(script).read_text(), script, "exec"), {})
    assert left_behind(own) == []


def test_ctrl_c_gives_up(own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with_inject(monkeypatch, lambda _, __: None)
    monkeypatch.setattr(added_run, "sleep", interrupted)
    with pytest.raises(SystemExit) as ended, added_to(os.getpid()):
        pass
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"gradtui: given up: process {os.getpid()} runs on without gradtui\n"


def test_without_a_dashboard_nothing_is_added(own: Path) -> None:
    with pytest.raises(LiveError, match="no dashboard here"), added_to(os.getpid(), "no dashboard here"):
        pass


_TRAINING = """
import hashlib, os, threading, torch
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(net.parameters(), 0.01)
before = nn.Module.__call__, torch.optim.Optimizer.zero_grad, torch.autograd.graph._engine_run_backward
print("trains", flush=True)
for step in range(4_000):
    optimizer.zero_grad()
    net(torch.randn(6, 4)).square().mean().backward()
    optimizer.step()
    if step == 2_000:
        print("waits", flush=True)
        while not os.path.exists("go"):
            threading.Event().wait(0.01)
now = nn.Module.__call__, torch.optim.Optimizer.zero_grad, torch.autograd.graph._engine_run_backward
states = [*net.state_dict().values(), *(v for each in optimizer.state.values() for v in each.values())]
found = hashlib.sha256(b"".join(each.numpy().tobytes() for each in (*states, torch.get_rng_state()))).hexdigest()
print(found, now == before, threading.active_count(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 14), reason="Python cannot be given code from outside")
def test_training_looked_at_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "train.py").write_text(_TRAINING)
    results = []
    for is_seen in (False, True):
        (tmp_path / "go").unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, "train.py"], cwd=tmp_path, env=environment(tmp_path, PYTHONPATH=""), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stdout.readline() == "trains\n"
            if is_seen:
                with added_to(process.pid) as address:
                    assert process.stdout.readline() == "waits\n"
                    (model,) = ask(address, "state")["models"]
                    assert (model["name"], model["parameters"]) == ("net", 74)
            (tmp_path / "go").touch()
            out, err = process.communicate(timeout=60)
            results.append(out.splitlines()[-1])
            assert (process.returncode, err) == (0, "")
    assert results[0] == results[1]
    assert results[1].endswith(" True 1")
    assert len(results[1].split()[0]) == len(hashlib.sha256().hexdigest())
