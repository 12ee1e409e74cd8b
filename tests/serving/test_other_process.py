"""`gradtui attach PID` of a process without gradtui."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gradtui.command_line.cli import parse
from gradtui.remote.live import other_process
from gradtui.remote.live.other_process import command_with_gradtui, version_of, why_not_added, why_refused


@pytest.mark.parametrize(
    ("words", "again"),
    [
        ("python train.py --lr 0.1", "gradtui train.py --lr 0.1"),
        ("/usr/bin/python3.11 -u -X importtime -W error train.py -c x", "gradtui train.py -c x"),
        ("python -Wdefault -Xdev -bb train.py", "gradtui train.py"),
        ("python -m pkg.train --epochs 3", "gradtui -m pkg.train --epochs 3"),
        ("python -um pkg.train -x", "gradtui -m pkg.train -x"),
        ("python -mpkg.train -x", "gradtui -m pkg.train -x"),
        ("python --check-hash-based-pycs always train.py", "gradtui train.py"),
        ("python /venv/bin/torchrun --nproc-per-node 2 t.py", "gradtui /venv/bin/torchrun --nproc-per-node 2 t.py"),
        ("python train.py --api-key verysecret1", "gradtui train.py --api-key '***'"),
        ("python -c pass", None), ("python -ic pass", None), ("python -", None), ("python -m", None), ("python", None),
    ],
)  # fmt: skip
def test_the_command_that_starts_it_again(words: str, again: str | None) -> None:
    assert command_with_gradtui(words.split()) == again


def test_attach_says_why_it_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(other_process, "FIRST_VERSION", (99, 0))
    script = tmp_path / "my train.py"
    script.write_text("print(flush=True)\ninput()", encoding="utf-8")
    command = [sys.executable, str(script), "3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(SystemExit) as ended:
            parse(["attach", str(process.pid)])
        assert ended.value.code == 2
        assert capsys.readouterr().err == (
            f"gradtui: gradtui did not start process {process.pid}, and can be added to a Python that runs from 3.14 on; "
            f"start it again with gradtui '{script}' 3\n"
        )
        # Gradtui's files of another user are not to be seen, so that it may well have started the process.
        monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
        assert str(why_not_added(process.pid)).endswith("run gradtui attach as that user, or as root")
        process.kill()


@pytest.mark.parametrize("word", ["22403-d2ae", "0", "-3", "²"])
def test_what_is_no_process_number_is_one_line(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["attach", "--", word])
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"gradtui: invalid value for '[PID]': {word!r} is no number of a process; --run ID names a run\n"
    )


def test_other_processes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_added(1 << 40) == f"there is no process {1 << 40}"
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: ["/bin/sleep", "9"])
    assert why_not_added(os.getpid()) == f"process {os.getpid()} is no Python: it runs sleep"

    def denied(_: psutil.Process) -> list[str]:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "cmdline", denied)
    assert "belongs to another user" in str(why_not_added(os.getpid()))


def test_python_from_3_14_on_can_get_gradtui(monkeypatch: pytest.MonkeyPatch) -> None:
    process = os.getpid()
    assert version_of(psutil.Process()) == sys.version_info[:2]
    monkeypatch.setattr(other_process, "FIRST_VERSION", sys.version_info[:2])
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: ["python", "train.py"])
    assert why_not_added(process) is None
    monkeypatch.setattr(psutil.Process, "exe", lambda _: "/usr/bin/python3.99")
    own = ".".join(map(str, sys.version_info[:2]))
    assert why_not_added(process) == (
        f"process {process} is Python 3.99 and this gradtui is of Python {own}: use gradtui of Python 3.99"
    )
    monkeypatch.setattr(os, "getuid", lambda: 4_321)
    assert "belongs to another user: run gradtui attach as that user" in str(why_not_added(process))


def test_version_of_a_framework_of_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil has no maps of memory there, and the program has no version in its name."""
    monkeypatch.delattr(psutil.Process, "memory_maps", raising=False)
    program = "/Library/Frameworks/Python.framework/Versions/3.14/Resources/Python.app/Contents/MacOS/Python"
    for path, version in ((program, (3, 14)), ("/opt/bin/python", None)):
        monkeypatch.setattr(psutil.Process, "exe", lambda _, path=path: path)
        assert version_of(psutil.Process()) == version


@pytest.mark.skipif(not os.path.exists("/proc/self/root"), reason="only Linux has it")
def test_a_container_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_process, "FIRST_VERSION", sys.version_info[:2])
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: ["python", "train.py"])
    monkeypatch.setattr(os.path, "samestat", lambda _a, _b: False)
    assert "runs in a container" in str(why_not_added(os.getpid()))


def test_the_ptrace_scope_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "scope").write_text("1\n")
    monkeypatch.setattr(other_process, "_PTRACE_SCOPE", tmp_path / "scope")
    assert "kernel.yama.ptrace_scope is 1): run gradtui attach as root" in why_refused(7, PermissionError())


def test_a_process_and_a_run_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["attach", "--run", "x", "12"])
    assert "in place of --run" in capsys.readouterr().err
