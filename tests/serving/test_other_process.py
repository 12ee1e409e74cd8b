"""`gradtui attach PID` of a process without gradtui."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gradtui.command_line.cli import parse
from gradtui.remote.live.other_process import command_with_gradtui, why_not_shown


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
    script = tmp_path / "my train.py"
    script.write_text("print(flush=True)\ninput()", encoding="utf-8")
    command = [sys.executable, str(script), "3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(SystemExit) as ended:
            parse(["attach", str(process.pid)])
        assert ended.value.code == 2
        assert capsys.readouterr().err == (
            f"gradtui: gradtui did not start process {process.pid}, and is not added to one that runs; "
            f"start it again with gradtui '{script}' 3\n"
        )
        process.kill()


def test_other_processes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert why_not_shown(1 << 40) == f"there is no process {1 << 40}"
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _: ["/bin/sleep", "9"])
    assert why_not_shown(os.getpid()) == f"process {os.getpid()} is no Python: it runs sleep"

    def denied(_: psutil.Process) -> list[str]:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "cmdline", denied)
    assert "belongs to another user" in why_not_shown(os.getpid())


def test_a_process_and_a_run_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["attach", "--run", "x", "12"])
    assert "in place of --run" in capsys.readouterr().err
