"""What starts child processes of the script: those that may train are watched, all else is as without gradtui."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from gradtui import child_ranks, spawned_rank
from gradtui.child_ranks import ChildRanks
from gradtui.own_frames import PACKAGE_DIRECTORY
from gradtui.settings import Settings, Target
from gradtui.spawned_rank import SpawnedRank, _ending

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
def test_what_cannot_be_watched_reaches_torch_as_it_is(
    started: list[dict[str, Any]], arguments: dict[str, Any], address: str | None
) -> None:
    with Run(address).children.watched():
        torch.multiprocessing.start_processes(**arguments)
    (call,) = started
    assert {name: call[name] for name in arguments} == arguments


def test_a_call_that_torch_refuses_is_refused_by_torch(started: list[dict[str, Any]]) -> None:
    with Run().children.watched(), pytest.raises(TypeError, match="unexpected keyword argument 'nothing'") as raised:
        torch.multiprocessing.start_processes(train, nothing=1)
    assert started == []
    assert_no_own_frames(raised.value)


def test_an_error_of_a_rank_shows_no_frame_of_gradtui(started: list[dict[str, Any]]) -> None:
    with Run().children.watched(), pytest.raises(RuntimeError) as raised:
        torch.multiprocessing.spawn(train, args=("raise",))
    assert started == []
    assert_no_own_frames(raised.value)


def test_a_process_that_was_forked_starts_its_own_children_unwatched(
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
    made: SpawnedRank = pickle.loads(pickle.dumps(SpawnedRank(train, SETTINGS, "/socket", 2, 0)))
    return made


def test_the_function_is_called_as_without_gradtui(child: SpawnedRank) -> None:
    assert child(1, "!") == "1!"
    assert Watched.ends == [None]


def test_its_error_reaches_torch_without_a_frame_of_gradtui(child: SpawnedRank) -> None:
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
    assert _ending(error) == (code, None)


def test_the_report_on_an_error_is_its_traceback() -> None:
    assert _ending(ValueError("lost")) == (1, "ValueError: lost\n")


# Lightning

COMMANDS = """
import sys
def _basic_subprocess_cmd():
    return [sys.executable, "/place/train.py", "--lr", "1"]
def _hydra_subprocess_cmd(local_rank):
    return ["other-python" if local_rank == 2 else sys.executable, "-m", "pack.train", "hydra.job"], "/place"
"""


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module like Lightning's, which is not imported yet."""
    (tmp_path / "lightning_of_test.py").write_text(COMMANDS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(child_ranks, "_LIGHTNING", ("lightning_of_test",))
    monkeypatch.delitem(sys.modules, "lightning_of_test", raising=False)
    return "lightning_of_test"


def test_lightning_starts_the_script_under_gradtui(launcher: str) -> None:
    settings = Settings(Target("train.py", None), rank_options=("--steps=7", "--budget=2%"))
    run = Run(settings=settings)
    finders = list(sys.meta_path)
    with run.children.watched():
        module = importlib.import_module(launcher)
        gradtui = [sys.executable, "-m", "gradtui", "--steps=7", "--budget=2%", "--connect=/socket"]
        assert module._basic_subprocess_cmd() == [*gradtui, "/place/train.py", "--lr", "1"]
        assert module._hydra_subprocess_cmd(local_rank=1) == ([*gradtui, "-m", "pack.train", "hydra.job"], "/place")
        assert (run.listened, run.included) == (2, 2)
        other = module._hydra_subprocess_cmd(2)
        assert other == (["other-python", "-m", "pack.train", "hydra.job"], "/place")
    assert sys.meta_path == finders
    assert module._basic_subprocess_cmd() == [sys.executable, "/place/train.py", "--lr", "1"]


def test_without_a_viewer_lightning_starts_the_script_as_it_does(launcher: str) -> None:
    run = Run(None)
    with run.children.watched():
        module = importlib.import_module(launcher)
        assert module._basic_subprocess_cmd() == [sys.executable, "/place/train.py", "--lr", "1"]
    assert run.included == 0


def test_the_names_of_torch_and_lightning_are_there() -> None:
    assert callable(vars(sys.modules[SPAWN])["start_processes"])
    for name in child_ranks._LIGHTNING:
        pytest.importorskip(name.partition(".")[0])
        for command in child_ranks._COMMANDS:
            assert callable(getattr(importlib.import_module(name), command))
