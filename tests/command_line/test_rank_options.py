"""What the command line means for a launcher, for its ranks, and for a rank that another launcher starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_lines import refused

from gradtui.command_line.cli import parse
from gradtui.configuration.settings import Settings, Target
from gradtui.launch.rank_run import connected
from gradtui.protocol.events import PhaseSampled, ProcessGroupFound
from gradtui.protocol.vocabulary import Phase
from gradtui.remote.job import LateRankLink
from gradtui.system.rank_environment import CONNECT, TOKEN, local_rank_in, of_rank, rank_in, rank_of_several
from gradtui.transport.in_process import CommandQueue, EventQueue

ROOT = Path(__file__).parents[2]
RANK_NAMES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (*RANK_NAMES, "LOCAL_RANK", "NODE_RANK", CONNECT, TOKEN):
        monkeypatch.delenv(name, raising=False)


def test_a_launcher_shows_its_ranks_and_not_itself() -> None:
    settings = parse(["--plain", "torchrun", "--nproc-per-node", "2", "train.py", "--steps", "3"])
    target = Target("torchrun", None, ("--nproc-per-node", "2", "train.py", "--steps", "3"))
    assert settings == Settings(target, plain=True, job=True)
    # What is written down to do the same again is read as the same.
    assert parse(["--plain", *target.words]) == settings
    assert parse(["-m", "torch.distributed.run", "train.py"]).job
    assert not parse(["train.py", "torchrun"]).job


def test_what_concerns_training_goes_to_the_ranks(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'version = 1\n[[do]]\nstep = 1\ncommand = "freeze"\npath = "a"\n', encoding="utf-8"
    )
    words = ["--theme", "nord", "--steps", "20", "--budget=2%"]
    words += ["--select", "GT2,GT3", "--select=GT101", "--ignore", "GT203"]
    words += ["--schedule", "s.toml", "--no-listen", "--record-limit", "1GiB", "--log", "o.log", "--refresh", "2"]
    settings = parse([*words, "torchrun", "--standalone", "train.py"])
    assert settings.rank_options == (
        "--steps=20", "--budget=2%", "--select=GT2,GT3", "--select=GT101", "--ignore=GT203", "--schedule=s.toml",
        "--record-limit=1GiB",
    )  # fmt: skip
    assert settings.steps == 20
    assert settings.schedule == ()
    assert settings.log == tmp_path / "o.log"
    # A rank reads them as its own.
    of_a_rank = parse([*settings.rank_options, "train.py"])
    assert (of_a_rank.steps, of_a_rank.budget, len(of_a_rank.schedule)) == (20, 0.02, 1)
    assert of_a_rank.rules == settings.rules


def test_files_with_place_for_rank_are_of_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--summary", "run-{rank}.json", "--record=run-{rank}-{x}.zst", "torchrun", "train.py"]
    settings = parse(words)
    assert settings.rank_options == ("--summary=run-{rank}.json", "--record=run-{rank}-{x}.zst")
    assert settings.summary is None
    assert settings.record is None
    monkeypatch.setenv("RANK", "3")
    of_a_rank = parse([*settings.rank_options, "train.py"])
    assert of_a_rank.summary == tmp_path / "run-3.json"
    assert of_a_rank.record == tmp_path / "run-3-{x}.zst"
    # The launcher itself may be a step of Slurm.
    assert parse(words).rank_options == settings.rank_options
    alone = parse(["--summary", "run.json", "torchrun", "train.py"])
    assert alone.rank_options == ()
    assert alone.summary == tmp_path / "run.json"


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, None),
        ({"RANK": "0"}, 0),
        ({"RANK": "2", "SLURM_PROCID": "1"}, 2),
        ({"SLURM_PROCID": "11"}, 11),
        ({"RANK": "", "PMI_RANK": "4"}, 4),
        ({"RANK": "-1", "OMPI_COMM_WORLD_RANK": "5"}, 5),
        ({"RANK": "٣"}, None),
        ({"RANK": "1/2"}, None),
    ],
)
def test_the_rank_of_the_environment(environ: dict[str, str], rank: int | None) -> None:
    assert rank_in(environ) == rank
    expected = "{rank}" if rank is None else str(rank)
    assert of_rank(Path("/d/{rank}/a{rank}.json"), environ) == Path("/d/{rank}") / f"a{expected}.json"
    assert of_rank(None, environ) is None


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, 1),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "0"}, None),
        ({"WORLD_SIZE": "2"}, None),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, 3),
    ],
)
def test_lone_rank_is_not_one_of_several(environ: dict[str, str], rank: int | None) -> None:
    assert rank_of_several(environ) == rank


def test_process_becomes_rank_by_option_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse(["train.py"]).connect is None
    assert parse(["--connect", "node0:7000", "train.py"]).connect == "node0:7000"
    monkeypatch.setenv(CONNECT, "/run/user/0/gradtui/12.sock")
    assert parse(["train.py"]).connect == "/run/user/0/gradtui/12.sock"
    assert parse(["--connect", "[::1]:7000", "train.py"]).connect == "[::1]:7000"
    # A check reports on itself.
    assert parse(["check", "train.py"]).connect is None
    # A launcher on another machine passes it on.
    launcher = parse(["torchrun", "train.py"])
    assert (launcher.job, launcher.connect) == (True, "/run/user/0/gradtui/12.sock")


def test_ranks_of_check_are_as_short_and_sampled() -> None:
    settings = parse(["check", "--steps", "80", "--select", "GT708", "torchrun", "train.py"])
    assert (settings.job, settings.check is not None) == (True, True)
    assert settings.rank_options == ("--steps=80", "--budget=0.5", "--steps=80", "--select=GT708")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--connect", "node0", "train.py"], "'node0' is no HOST:PORT"),
        (["--connect", "node0:99999", "train.py"], "is no HOST:PORT"),
        (["--connect", "node0:7000", "--listen", "7001", "train.py"], "--listen is for the viewer"),
        (["--pause-at-nan", "torchrun", "train.py"], "--pause-at-nan holds one process"),
        (["forecast", "--freeze", "a", "-m", "torch.distributed.run", "train.py"], "starts several processes"),
    ],
)
def test_what_makes_no_sense_is_refused_in_line(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert why in refused(capsys, *words)


@pytest.mark.parametrize(
    ("connect", "token", "why"),
    [
        ("/nowhere/1.sock", None, "there is no run 1"),
        ("", None, "the launcher could not open a socket"),
        ("nonsense", "x" * 20, "'nonsense' is no HOST:PORT"),
        ("localhost:1", None, f"without its token in {TOKEN}"),
        ("localhost:1", "short", f"without its token in {TOKEN}"),
    ],
)
def test_rank_without_viewer_says_so_once(
    connect: str, token: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONNECT, connect)
    if token is not None:
        monkeypatch.setenv(TOKEN, token)
    said: list[str] = []
    settings = Settings(Target("train.py", None), connect=connect)
    assert connected(settings, EventQueue(), CommandQueue(), said.append) == []
    assert len(said) == 1
    assert why in said[0]
    assert said[0].endswith("; this rank has no viewer")
    assert CONNECT not in os.environ
    assert TOKEN not in os.environ


def test_an_ordinary_run_keeps_the_users_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "t")
    assert connected(Settings(Target("train.py", None)), EventQueue(), CommandQueue(), pytest.fail) == ()
    assert os.environ[TOKEN] == "t"


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({"LOCAL_RANK": "1"}, 1),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, 1),
        ({"LOCAL_RANK": "1", "NODE_RANK": "2"}, None),  # how many ranks the other nodes have is not known
        ({"LOCAL_RANK": "1", "RANK": "5"}, 5),
        ({"LOCAL_RANK": "-1"}, None),
    ],
)
def test_process_of_lightning_has_rank_on_its_node(environ: dict[str, str], rank: int | None) -> None:
    expected = Path("s-{rank}.json" if rank is None else f"s-{rank}.json")
    assert of_rank(Path("s-{rank}.json"), environ) == expected


def test_process_that_lightning_starts_joins_when_it_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    said: list[str] = []
    settings = parse(["--connect", "/nothing/there.sock", "--steps", "3", "train.py"])
    events = EventQueue()
    (link,) = connected(settings, events, CommandQueue(), said.append)
    assert isinstance(link, LateRankLink)
    events.seen([PhaseSampled(0.0, 0, Phase.LOAD)])
    assert said == []
    events.seen([ProcessGroupFound(0.0, 0, 1, 2, "gloo")])
    assert len(said) == 1
    assert said[0].endswith("; this rank has no viewer")
    link.finish()


@pytest.mark.parametrize("connect", [None, "node0:7000"])
def test_launcher_tells_its_ranks_viewer_of_its_job(connect: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONNECT, "before")
    monkeypatch.setenv(TOKEN, "t")
    settings = Settings(Target("torchrun", None), job=True, connect=connect)
    assert connected(settings, EventQueue(), CommandQueue(), pytest.fail) == ()
    # Empty until the socket is there: a rank is never a run with a screen.
    assert os.environ[CONNECT] == (connect or "")
    assert os.environ[TOKEN] == "t"


@pytest.mark.slow
def test_ranks_import_nothing_of_the_current_directory(tmp_path: Path) -> None:
    """torchrun starts `python -mgradtui` where the user's own `click.py` may lie."""
    for name in ("click.py", "queue.py", "psutil.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')\n", encoding="utf-8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("import sys; print(sys.path[0])\n", encoding="utf-8")
    for words, first in ((["src/train.py"], tmp_path / "src"), (["-m", "src.train"], tmp_path)):
        done = subprocess.run(
            [sys.executable, "-m", "gradtui", "--plain", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.stdout == f"{first}\n", done.stderr


def test_numbers_of_many_digits_are_no_ranks() -> None:
    environ = {"RANK": "9" * 5_000, "WORLD_SIZE": "9" * 5_000, "LOCAL_RANK": "1" * 10}
    assert rank_in(environ) is rank_of_several(environ) is local_rank_in(environ) is None
    assert rank_in({**environ, "SLURM_PROCID": "3"}) == 3
