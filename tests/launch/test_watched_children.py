"""What starts child processes of the script: those that may train are watched, all else is as without gradtui."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from gradtui.configuration.settings import Settings, Target
from gradtui.launch import spawned_rank
from gradtui.launch.child_ranks import ChildRanks
from gradtui.launch.spawned_rank import SpawnedRank, _ending
from gradtui.system.own_frames import PACKAGE_DIRECTORY

SPAWN = "torch.multiprocessing.spawn"
SETTINGS = Settings(Target("train.py", None), summary=Path("s-{rank}.json"), record=Path("all.jsonl"), steps=7)


class Run:
    """A run that starts child processes, and counts how often they are expected."""

    def __init__(self, address: str | None = "/socket", settings: Settings = SETTINGS) -> None:
        self.address, self.listened, self.included = address, 0, 0
        self.children = ChildRanks(settings, self.listen, self.include)

    def listen(self) -> str | None:
        self.listened += 1
        return self.address

    def include(self) -> None:
        self.included += 1


def train(index: int, text: str = "") -> str:
    if text == "fail":
        raise ValueError(f"rank {index} fails")
    return f"{index}{text}"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What reaches torch's `start_processes`, which starts nothing."""
    calls: list[dict[str, Any]] = []

    def start_processes(
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        daemon: bool = False,
        start_method: str = "spawn",
    ) -> str:
        if args == ("raise",):
            raise RuntimeError("a rank fails")
        calls.append(locals())
        return "context"

    monkeypatch.setattr(sys.modules[SPAWN], "start_processes", start_processes)
    monkeypatch.setattr(torch.multiprocessing, "start_processes", start_processes)
    return calls


def test_the_functions_of_spawned_processes_are_watched(started: list[dict[str, Any]]) -> None:
    run = Run()
    original = torch.multiprocessing.start_processes
    with run.children.watched():
        assert torch.multiprocessing.spawn(train, args=("!",), nprocs=2) == "context"
        torch.multiprocessing.start_processes(fn=train, nprocs=3, start_method="fork", join=False)
    assert torch.multiprocessing.start_processes is original is vars(sys.modules[SPAWN])["start_processes"]
    first, second = started
    assert (first["args"], first["nprocs"], first["start_method"]) == (("!",), 2, "spawn")
    assert (second["nprocs"], second["start_method"], second["join"]) == (3, "fork", False)
    for call, ranks, generation in ((first, 2, 0), (second, 3, 1)):
        child = call["fn"]
        assert isinstance(child, SpawnedRank)
        assert (child._function, child._ranks, child._generation) == (train, ranks, generation)
        settings = child._settings
        assert (settings.connect, settings.plain, settings.steps) == ("/socket", True, 7)
        # Without a place for the rank a file is that of the parent.
        assert (settings.summary, settings.record) == (Path("s-{rank}.json"), None)
    assert run.listened == 2


@pytest.mark.parametrize(
    ("arguments", "address"),
    [
        ({"fn": train}, None),
        ({"fn": "nothing", "nprocs": 2}, "/socket"),
        ({"fn": train, "nprocs": "2"}, "/socket"),
        ({"fn": train, "nprocs": 0}, "/socket"),
    ],
)
def test_unwatchable_process_reaches_torch_unchanged(
    started: list[dict[str, Any]], arguments: dict[str, Any], address: str | None
) -> None:
    with Run(address).children.watched():
        torch.multiprocessing.start_processes(**arguments)
    (call,) = started
    assert {name: call[name] for name in arguments} == arguments


def test_call_that_torch_refuses_is_refused_by_torch(started: list[dict[str, Any]]) -> None:
    with Run().children.watched(), pytest.raises(TypeError, match="unexpected keyword argument 'nothing'") as raised:
        torch.multiprocessing.start_processes(train, nothing=1)
    assert started == []
    assert_no_own_frames(raised.value)


def test_error_of_rank_shows_no_frame_of_gradtui(started: list[dict[str, Any]]) -> None:
    with Run().children.watched(), pytest.raises(RuntimeError) as raised:
        torch.multiprocessing.spawn(train, args=("raise",))
    assert started == []
    assert_no_own_frames(raised.value)


def test_forked_process_starts_its_children_unwatched(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    with run.children.watched():
        monkeypatch.setattr(os, "getpid", lambda: 0)
        torch.multiprocessing.start_processes(train)
        monkeypatch.undo()
    assert started[0]["fn"] is train
    assert run.listened == 0


def assert_no_own_frames(error: BaseException) -> None:
    files = [each.filename for each in traceback.extract_tb(error.__traceback__)]
    own = [file for file in files if file.startswith(PACKAGE_DIRECTORY)]
    # CPython 3.10 begins an exception that is raised again with the clause that does so.
    assert own == [] or sys.version_info < (3, 11)


# In the child


class Watched:
    """Stands for what watches a child."""

    ends: ClassVar[list[BaseException | None]] = []

    def __init__(self, settings: Settings, index: int, ranks: int, generation: int) -> None:
        if index == 9:
            raise OSError("there is no room")
        assert (settings.connect, ranks, generation) == ("/socket", 2, 0)

    def finish(self, error: BaseException | None) -> None:
        self.ends.append(error)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> SpawnedRank:
    monkeypatch.setattr(spawned_rank, "WatchedRank", Watched)
    monkeypatch.setattr(Watched, "ends", [])
    return pickle.loads(pickle.dumps(SpawnedRank(train, SETTINGS, "/socket", 2, 0)))


def test_the_function_is_called_as_without_gradtui(child: SpawnedRank) -> None:
    assert child(1, "!") == "1!"
    assert Watched.ends == [None]


def test_its_error_reaches_torch_without_frame_of_gradtui(child: SpawnedRank) -> None:
    with pytest.raises(ValueError, match="rank 1 fails") as raised:
        child(1, "fail")
    assert Watched.ends == [raised.value]
    assert_no_own_frames(raised.value)


def test_a_child_that_cannot_be_watched_trains(child: SpawnedRank, capsys: pytest.CaptureFixture[str]) -> None:
    assert child(9) == "9"
    assert capsys.readouterr().err == "gradtui: cannot watch process 9: OSError: there is no room\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [(None, 0), (KeyboardInterrupt(), 0), (SystemExit(), 0), (SystemExit(3), 3), (SystemExit("no"), 1)],
)
def test_the_exit_code_is_that_of_torchs_process(error: BaseException | None, code: int) -> None:
    ending, report, found = _ending(error)
    assert (ending, report) == (code, None)
    assert (found is None) == (code == 0)


def test_the_report_on_an_error_is_its_traceback() -> None:
    code, report, found = _ending(ValueError("lost"))
    assert (code, report) == (1, "ValueError: lost\n")
    assert found.headline == "ValueError: lost"


# The script again


@pytest.fixture
def popen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The positional arguments of each `subprocess.Popen`, which starts nothing. The script is /place/train.py."""
    calls: list[tuple[Any, ...]] = []

    def init(self: object, args: Any, bufsize: int = -1, **named: Any) -> None:
        if args == ["missing"]:
            raise FileNotFoundError("missing")
        calls.append((args, bufsize, named))

    monkeypatch.setattr(subprocess.Popen, "__init__", init)
    monkeypatch.setattr(subprocess.Popen, "__del__", lambda self: None)
    monkeypatch.setattr(sys, "argv", ["/place/train.py", "--lr", "1"])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    for name in ("LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return calls


SCRIPT = [sys.executable, "/place/train.py", "--lr", "1"]
CHILD = {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}
GRADTUI = ["-m", "gradtui", "--steps=7", "--budget=2%", "--connect=/socket"]


def starting(run: Run, *arguments: Any, **named: Any) -> None:
    with run.children.watched():
        subprocess.Popen(*arguments, **named)


def passing_on(address: str | None = "/socket") -> Run:
    return Run(address, Settings(Target("train.py", None), rank_options=("--steps=7", "--budget=2%")))


def test_the_script_as_another_rank_starts_under_gradtui(
    popen: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = passing_on()
    starting(run, SCRIPT, env=CHILD, cwd="/place")
    assert popen.pop() == ([sys.executable, *GRADTUI, *SCRIPT[1:]], -1, {"env": CHILD, "cwd": "/place"})
    # Lightning sets the rank of this process first.
    monkeypatch.setenv("LOCAL_RANK", "0")
    starting(run, SCRIPT, 7, env=CHILD)
    assert popen.pop() == ([sys.executable, *GRADTUI, *SCRIPT[1:]], 7, {"env": CHILD})
    spec = importlib.machinery.ModuleSpec("pack.train", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    starting(run, [sys.executable, "-m", "pack.train", "hydra.job"], env=CHILD)
    assert popen.pop()[0] == [sys.executable, *GRADTUI, "-m", "pack.train", "hydra.job"]
    assert (run.listened, run.included) == (3, 3)


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (SCRIPT, None),
        (SCRIPT, {}),
        (SCRIPT, {"LOCAL_RANK": "1"}),
        (SCRIPT, {"LOCAL_RANK": "0", "WORLD_SIZE": "2"}),
        (SCRIPT, {"LOCAL_RANK": "one", "WORLD_SIZE": "2"}),
        (["python", *SCRIPT[1:]], CHILD),
        ([sys.executable, "/place/other.py"], CHILD),
        ([sys.executable, "-m", "pack.train"], CHILD),
        ([sys.executable], CHILD),
        ([], CHILD),
        ("python train.py", CHILD),
        (b"train", CHILD),
    ],
)
def test_any_other_process_starts_as_without_gradtui(popen: list[tuple[Any, ...]], words: Any, environ: Any) -> None:
    run = passing_on()
    starting(run, words, env=environ)
    ((args, _, named),) = popen
    assert args is words
    assert named == {"env": environ}
    assert (run.listened, run.included) == (0, 0)


def test_without_viewer_script_starts_as_it_does(popen: list[tuple[Any, ...]]) -> None:
    run = passing_on(None)
    starting(run, SCRIPT, env=CHILD)
    assert popen[0][0] is SCRIPT
    assert run.included == 0


def test_unstartable_process_shows_no_frame_of_gradtui(popen: list[tuple[Any, ...]]) -> None:
    before = subprocess.Popen.__init__
    with pytest.raises(FileNotFoundError) as raised:
        starting(passing_on(), ["missing"])
    assert popen == []
    assert_no_own_frames(raised.value)
    assert subprocess.Popen.__init__ is before


def test_command_line_of_lightning_is_known(popen: list[tuple[Any, ...]]) -> None:
    pytest.importorskip("lightning")
    launcher = importlib.import_module("lightning.fabric.strategies.launchers.subprocess_script")
    starting(passing_on(), launcher._basic_subprocess_cmd(), env=CHILD)
    assert popen[0][0] == [sys.executable, *GRADTUI, *SCRIPT[1:]]
