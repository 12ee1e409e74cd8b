"""What launchers start: the commands of their ranks with gradtui, against those without it, as the launchers make them."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import runpy
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed.run
from helpers.targets import module, script
from torch.distributed.elastic.utils import macros

from gradtui.command_line.cli import parse
from gradtui.configuration.settings import Target
from gradtui.protocol.events import RankFailure
from gradtui.runner.launchers import failures_in, is_launcher, program_of, put_in_front, ranks_under_gradtui

OPTIONS = ["--steps=20", "--summary=run-{rank}.json"]
WITHOUT_ADVICE = "ignore::FutureWarning"


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory belongs to no project, and accelerate's configuration is nobody's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # else launchers set it
    monkeypatch.setattr(faulthandler, "enable", lambda **_: None)  # pytest's own is in use


class Started:
    """The agent of torchrun, which keeps what it would start."""

    last: tuple[Any, list[str]] | None = None

    def __init__(self, config: Any, entrypoint: Any) -> None:
        self.config, self.entrypoint = config, entrypoint

    def __call__(self, *words: str) -> None:
        Started.last = self.config, [str(self.entrypoint), *words]


@pytest.fixture
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.distributed.run, "elastic_launch", Started)
    # They name the launching thread, which is that of the tests here.
    monkeypatch.setattr(torch.multiprocessing, "_set_thread_name", lambda _name: None)
    yield
    Started.last = None


def started(launcher: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[str]]:
    """The configuration of torchrun's agent, and the command of a rank."""
    name = launcher.rpartition(".")[2]
    monkeypatch.setattr(sys, "argv", [name, *words])
    Started.last = None
    if launcher == "torch.distributed.run":
        torch.distributed.run.main(words)
    else:
        with warnings.catch_warnings():  # it is deprecated
            warnings.simplefilter("ignore")
            import torch.distributed.launch as deprecated

            deprecated.main(words)
    assert Started.last is not None
    return Started.last


LINES = [
    "train.py",
    "--nproc-per-node 2 train.py",
    "--nproc_per_node=2 train.py --lr 0.1",
    "--nproc-per-n 2 dir/train.py -m --nproc-per-node 3",
    "--standalone --nproc-per-node 2 --max-restarts=3 train.py -- --x",
    "--nnodes 1:4 --nproc-per-node 8 --rdzv-id job7 --rdzv-backend c10d --rdzv-endpoint node0:29400 train.py --epochs 3",
    "--nnodes=2 --node-rank=1 --master-addr=10.0.0.1 --master-port=1234 train.py",
    "--nproc-per-node 2 --log-dir logs --redirects 3 --tee 0:1,1:3 --local-ranks-filter 0 train.py a 'b'",
    "--nproc-per-node 2 -m pkg.train --config c.yaml",
    "--module --nproc-per-node=2 pkg.train",
    "--modul -r 1 pkg.train -m torchrun",
    "--role trainer --monitor-interval 1 --start-method fork train.py ${local_rank} {rank} --",
    "-- train.py",
    "train.py --no-python --run-path",
]


@pytest.mark.usefixtures("_no_agent")
@pytest.mark.parametrize("launcher", ["torch.distributed.run", "torch.distributed.launch"])
@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    "environ", [{}, {"PET_NPROC_PER_NODE": "2", "PYTHON_EXEC": "/opt/python"}, {"PET_MODULE": "1"}]
)
def test_torchrun_starts_gradtui_and_nothing_else_differs(
    launcher: str, line: str, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    words = line.split()
    config, plain = started(launcher, words, monkeypatch)
    with ranks_under_gradtui(OPTIONS):
        ours, command = started(launcher, words, monkeypatch)

    # `python -u SCRIPT --local-rank=… ARGUMENTS` becomes `python -u -mgradtui OPTIONS SCRIPT --local-rank=… ARGUMENTS`.
    assert plain[1] == "-u"
    assert command == [*plain[:2], "-mgradtui", *OPTIONS, *plain[2:]]
    for field in dataclasses.fields(config):
        if field.name not in ("run_id", "logs_specs"):  # a new id each time, and an object
            assert getattr(ours, field.name) == getattr(config, field.name), field.name
    assert vars(ours.logs_specs).keys() == vars(config.logs_specs).keys()
    assert ours.logs_specs._redirects == config.logs_specs._redirects

    # What gradtui runs in a rank is what python would run.
    settings = parse(command[3:])
    target = module(plain[3], *plain[4:]) if plain[2] == "-m" else script(plain[2], *plain[3:])
    assert settings.target == target
    assert settings.steps == 20
    assert settings.job is False


@pytest.mark.usefixtures("_no_agent")
def test_reports_of_torchrun_name_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.launcher.api import _get_entrypoint_name

    for line, name in (("train.py a", "train.py"), ("-m pkg.train a", "pkg.train")):
        _, plain = started("torch.distributed.run", line.split(), monkeypatch)
        with ranks_under_gradtui(OPTIONS):
            _, command = started("torch.distributed.run", line.split(), monkeypatch)
        assert _get_entrypoint_name(plain[0], plain[1:]) == name
        assert _get_entrypoint_name(command[0], command[1:]) == name


@pytest.mark.usefixtures("_no_agent")
def test_deprecated_launcher_gives_local_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    with ranks_under_gradtui([]):
        _, command = started("torch.distributed.launch", ["train.py", "a"], monkeypatch)
    assert macros.substitute(command, "3")[3:] == ["train.py", "--local-rank=3", "a"]


@contextlib.contextmanager
def no_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """What accelerate starts without torchrun."""
    commands: list[list[str]] = []

    class Process:
        returncode = 0

        def __init__(self, command: list[str], **_: Any) -> None:
            if command[0] != sys.executable:  # nvidia-smi
                raise OSError
            commands.append(command)

        def wait(self) -> int:
            return 0

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Process)
        yield commands


ACCELERATE = [
    "--cpu train.py --lr 1",
    "--cpu --num_processes 2 -m pkg.train",
    "--cpu -q --mixed_precision no --num-processes 1 --num_cpu_threads_per_process 2 train.py --cpu",
    "--multi_gpu --num_processes 2 train.py --x",
    "--multi-gpu --num-processes=2 --main_process_port 0 --module pkg.train --multi_gpu",
    "--use_fsdp --fsdp_version 2 --num_processes 2 --main_process_port 0 train.py",
    "--multi_gpu --num_processes 4 --num_machines 2 --machine_rank 1 --main_process_ip 10.0.0.1 --main_process_port 29512 a.py",
]


@pytest.mark.usefixtures("_no_agent")
@pytest.mark.parametrize("line", ACCELERATE)
def test_accelerate_starts_gradtui_and_nothing_else_differs(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = pytest.importorskip("accelerate.commands.launch")

    def of(words: list[str]) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["accelerate", "launch", *words])
        Started.last = None
        with no_process(monkeypatch) as commands, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a port may be in use
            launch.launch_command(launch.launch_command_parser().parse_args(words))
        if commands:
            return commands[0]
        assert Started.last is not None
        return Started.last[1]

    words = line.split()
    plain = of(words)
    with ranks_under_gradtui(OPTIONS):
        command = of(words)
    # torchrun's python writes at once (-u), that of one process does not.
    own = 2 if plain[1] == "-u" else 1
    assert command == [*plain[:own], "-m", "gradtui", *OPTIONS, *plain[own:]]
    target = module(plain[own + 1], *plain[own + 2 :]) if plain[own] == "-m" else script(*plain[own:])
    assert parse(command[own + 2 :]).target == target


def torchrun(line: str) -> argparse.Namespace:
    return torch.distributed.run.get_args_parser().parse_args(line.split())


REFUSED = {
    "--no-python ./run.sh": "--no-python",
    "--run-path /tmp/train.py": "--run-path",
}


@pytest.mark.parametrize("line", REFUSED)
def test_ranks_without_python_are_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with ranks_under_gradtui([]), pytest.raises(SystemExit) as refused:
        torchrun(line)
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("gradtui: ")
    assert said.count("\n") == 1
    assert REFUSED[line] in said


SAGEMAKER = """\
compute_environment: AMAZON_SAGEMAKER
distributed_type: DATA_PARALLEL
ec2_instance_type: x
iam_role_name: me
"""


@pytest.mark.parametrize(
    ("configuration", "line", "why"),
    [
        ("distributed_type: XLA\n", "train.py", "TPU"),
        (SAGEMAKER, "train.py", "SageMaker"),
        ("", "--tpu train.py", "TPU"),
        ("", "--cpu --no_python ./run.sh", "--no-python"),
    ],
)
def test_what_accelerate_starts_without_python_is_refused(
    configuration: str, line: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    words = line.split()
    if configuration:
        Path("c.yaml").write_text(configuration, encoding="utf-8")
        words = ["--config_file", "c.yaml", *words]
    with ranks_under_gradtui([]), pytest.raises(SystemExit) as refused:
        launch.launch_command_parser().parse_args(words)
    assert refused.value.code == 2
    assert why in capsys.readouterr().err


def test_unreadable_accelerate_configuration_is_left_to_it() -> None:
    launch = pytest.importorskip("accelerate.commands.launch")
    Path("c.yaml").write_text("distributed_type: [", encoding="utf-8")
    with ranks_under_gradtui([]):
        found = launch.launch_command_parser().parse_args(["--config_file", "c.yaml", "train.py"])
    assert found.training_script_args == ["train.py"]


def test_only_first_launcher_is_changed(capsys: pytest.CaptureFixture[str]) -> None:
    original = argparse.ArgumentParser.parse_args
    other = argparse.ArgumentParser()
    other.add_argument("--x")
    with ranks_under_gradtui(OPTIONS):
        assert other.parse_args(["--x", "1"]) == argparse.Namespace(x="1")
        with pytest.raises(SystemExit) as wrong:
            torchrun("--nproc-per-nod 2 --bad train.py")
        assert wrong.value.code == 2
        assert torchrun("train.py").training_script_args == [*OPTIONS, "train.py"]
        assert argparse.ArgumentParser.parse_args is original
        assert torchrun("train.py").training_script == "train.py"
    assert argparse.ArgumentParser.parse_args is original
    assert "usage: " in capsys.readouterr().err
    with ranks_under_gradtui(OPTIONS):
        pass
    assert argparse.ArgumentParser.parse_args is original


def test_launcher_without_newer_options_is_changed_too() -> None:
    """Older versions of torch have neither `--run-path` nor `use_env`."""
    found = argparse.Namespace(no_python=False, module=False, training_script="a.py", training_script_args=["x"])
    put_in_front(found, ["--steps=1"])
    assert (found.training_script, found.training_script_args) == ("-mgradtui", ["--steps=1", "a.py", "x"])


@pytest.mark.parametrize(
    ("target", "launches"),
    [
        (script("torchrun", "train.py"), True),
        (script("torchrun"), True),
        (script("accelerate", "launch", "train.py"), True),
        (script("accelerate", "config"), False),
        (script("accelerate"), False),
        (script("accelerate-launch", "train.py"), True),
        (module("torch.distributed.run", "train.py"), True),
        (module("torch.distributed.launch"), True),
        (module("accelerate.commands.launch", "train.py"), True),
        (module("accelerate.commands.accelerate_cli", "launch"), True),
        (module("accelerate.commands.accelerate_cli", "env"), False),
        (script("./torchrun"), False),
        (script("train.py", "torchrun"), False),
        (module("torchrun"), False),
        (module("torch.distributed"), False),
    ],
)
def test_launchers_are_known_by_their_names(target: Target, launches: bool) -> None:
    assert is_launcher(target) is launches


def test_path_is_launcher_if_file_is_one(tmp_path: Path) -> None:
    made = tmp_path / "bin" / "torchrun"
    made.parent.mkdir()
    made.write_text("#!/usr/bin/python\nimport sys\nfrom torch.distributed.run import main\nsys.exit(main())\n")
    assert is_launcher(script(str(made), "train.py"))
    made.write_text("print('mine')\n")
    assert not is_launcher(script(str(made), "train.py"))


@pytest.mark.parametrize(
    ("content", "runs"),
    [
        ("#!python\nfrom torch.distributed.run import main\nmain()\n", "script"),
        ('#!/bin/sh\nexec /nix/store/x/torchrun "$@"\n', "module"),
        (None, "module"),
    ],
)
def test_the_console_script_of_this_interpreter_runs(
    content: str | None, runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path / "nothing"))
    made = tmp_path / "torchrun"
    if content is not None:
        made.write_text(content)
    expected = script(str(made), "-h") if runs == "script" else module("torch.distributed.run", "-h")
    assert program_of(script("torchrun", "-h")) == expected
    assert program_of(module("torch.distributed.launch", "x")) == module("torch.distributed.launch", "x")


def test_launchers_have_the_modules_that_their_scripts_call() -> None:
    """Console scripts that installers have made here."""
    directory = Path(sys.executable).parent
    for name in ("torchrun", "accelerate", "accelerate-launch"):
        if (directory / name).exists():
            assert program_of(script(name)) == script(str(directory / name))


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_the_launcher_itself_can_be_the_main_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m torch.distributed.run` has functions of its own, which nothing that is imported changes."""
    monkeypatch.setattr(sys, "argv", ["run.py", "--no-python", "ls"])
    with ranks_under_gradtui([]), pytest.raises(SystemExit) as refused:
        runpy.run_module("torch.distributed.run", run_name="__main__")
    assert refused.value.code == 2
    assert "--no-python" in capsys.readouterr().err


def test_failures_are_read_from_what_torchrun_raises() -> None:
    class Failed:
        def __init__(self, exitcode: int, message: object, timestamp: int) -> None:
            self.exitcode, self.message, self.timestamp = exitcode, message, timestamp

    error = RuntimeError()
    traceback = "Traceback (most recent call last):\nValueError: no"
    error.failures = {  # type: ignore[attr-defined]
        0: Failed(-15, "Signal 15 (SIGTERM) received by PID 1", 9),
        1: Failed(1, {"message": "ValueError: no", "extraInfo": {"py_callstack": traceback}}, 8),
        2: Failed(1, {"message": "ValueError: no"}, 9),
    }
    assert failures_in(error) == (
        RankFailure(1, 1, traceback),
        RankFailure(0, 143, "Signal 15 (SIGTERM) received by PID 1"),
        RankFailure(2, 1, "ValueError: no"),
    )
    for other in ({"a": 1}, {0: object()}, [1], None):
        error.failures = other  # type: ignore[attr-defined]
        assert failures_in(error) == ()
    assert failures_in(KeyboardInterrupt()) == ()
