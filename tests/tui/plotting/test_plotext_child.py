"""The real child and the real plotext, in processes of their own."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plot_cases import assert_measures, curve, noisy, requests, texts, wait_for

from gradtui.tui.plotting import braille
from gradtui.tui.plotting.child_handle import ChildHandle, default_command
from gradtui.tui.plotting.frame import compose
from gradtui.tui.plotting.layout import LABEL_WIDTH
from gradtui.tui.plotting.messages import MessageReader, drawing_of, encode_drawing, packed
from gradtui.tui.plotting.plot_process import PlotProcess
from gradtui.tui.plotting.request import Picture, PlotRequest, Scale
from gradtui.tui.plotting.sanitise import sanitise

ROOT = str(Path(__file__).resolve().parents[3])
REQUEST = PlotRequest(60, 14, (curve(*noisy(300)),), "log", "norm")
KEYS = count()

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the plot child needs POSIX")


@pytest.fixture(scope="module")
def process() -> Iterator[PlotProcess]:
    process = PlotProcess()
    yield process
    process.close()


def drawn_by(process: PlotProcess, request: PlotRequest, key: str = "panel") -> Picture:
    """plotext's picture of a request; fails where the child dies or cannot draw it."""
    process.submit(key, request, sanitise(request))
    assert wait_for(lambda: process.latest(key) is not None, process)
    picture = process.latest(key)
    assert picture is not None
    return picture


def run_python(code: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": ROOT}
    arguments = [sys.executable, "-c", code]
    return subprocess.run(arguments, env=environment, capture_output=True, timeout=60, **options)  # type: ignore[call-overload,no-any-return]


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests(width=st.integers(24, 130), height=st.integers(6, 40)))
def test_nothing_that_was_made_safe_kills_it_and_the_frame_is_ours_to_the_cell(
    process: PlotProcess, request_: PlotRequest
) -> None:
    chart = sanitise(request_)
    if not chart.y_ticks:
        return
    pid = process.pid
    picture = drawn_by(process, request_, f"panel {next(KEYS)}")
    assert pid in (None, process.pid)
    assert_measures(picture, request_)
    own = compose(request_, chart, braille.draw(chart), "braille")
    header, margin = chart.layout.header, chart.layout.margin
    theirs, ours = texts(picture.lines), texts(own.lines)
    assert theirs[:header] == ours[:header]
    assert [line[:margin] for line in theirs[header:]] == [line[:margin] for line in ours[header:]]
    assert theirs[-2:] == ours[-2:]
    edge = "×▲▼•"
    assert [[c if c in edge else "" for c in line] for line in theirs] == [
        [c if c in edge else "" for c in line] for line in ours
    ]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(), st.integers(24, 220), st.integers(6, 60), st.sampled_from(["linear", "log"]))
def test_long_noisy_series_with_spikes_and_holes_are_drawn(
    process: PlotProcess, seed: int, width: int, height: int, scale: Scale
) -> None:
    random = Random(seed)
    odd = (math.nan, math.inf, -math.inf, 0.0, None, 1e300, 1e-300)
    series = tuple(
        curve(
            *(10 ** random.gauss(-2, 1) if random.random() < 0.97 else random.choice(odd) for _ in range(2000)),
            color=color,
        )
        for color in ("red", "green", "blue")
    )
    request = PlotRequest(width, height, series, scale)
    assert_measures(drawn_by(process, request, f"panel {next(KEYS)}"), request)


def test_curves_lie_where_our_own_lie(process: PlotProcess) -> None:
    chart = sanitise(REQUEST)
    theirs = texts(drawn_by(process, REQUEST, "curve").lines)
    ours = texts(compose(REQUEST, chart, braille.draw(chart), "braille").lines)
    cells = [(a != " ", b != " ") for mine, other in zip(ours, theirs) for a, b in zip(mine, other)]
    same = sum(a == b for a, b in cells)
    # Both rasterise the same dots; a line between two of them may touch a neighbouring cell in one and not in the other.
    assert same / len(cells) > 0.95


def test_styles_come_back_from_the_colours(process: PlotProcess) -> None:
    two = (curve(1.0, 2.0, 3.0), curve(3.0, 2.5, 2.0, label="ctx", color="magenta"))
    keys = {key for line in drawn_by(process, PlotRequest(60, 14, two), "two").lines for _, key in line}
    assert {"cyan", "magenta", "axis", "tick", "legend"} <= keys


def test_sizes_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    process = PlotProcess()
    request = PlotRequest(200, 60, REQUEST.series)
    assert_measures(drawn_by(process, request), request)
    process.close()


def test_modules_in_the_working_directory_do_not_get_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "plotext", "select", "gradtui", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the person')")
    monkeypatch.chdir(tmp_path)
    process = PlotProcess()
    assert drawn_by(process, REQUEST).source == "plotext"
    process.close()


def test_it_imports_neither_torch_nor_the_screen() -> None:
    code = (
        "import sys, gradtui.tui.plotting.plotext_child, gradtui.tui.plotting.plotext_figure\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    modules = run_python(code, check=True).stdout.split()
    assert b"plotext" in modules
    assert not {b"torch", b"textual", b"rich", b"numpy"} & set(modules)


def test_ctrl_c_does_not_reach_it(process: PlotProcess) -> None:
    drawn_by(process, REQUEST, "before")
    pid = process.pid
    assert pid is not None
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGINT)
    drawn_by(process, REQUEST, "after")
    assert process.pid == pid


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_it_is_polite_and_holds_nothing_but_its_pipes(process: PlotProcess) -> None:
    drawn_by(process, REQUEST, "proc")
    pid = process.pid
    assert pid is not None
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    held = {os.readlink(entry.path).split(":")[0] for entry in os.scandir(f"/proc/{pid}/fd")}
    assert held == {"pipe", os.devnull}
    assert sum(os.readlink(entry.path).startswith("pipe") for entry in os.scandir(f"/proc/{pid}/fd")) == 2
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert next(line.split()[4] for line in limits.splitlines() if line.startswith("Max core")) == "0"


def test_a_drawing_that_fails_is_answered_and_the_next_one_drawn() -> None:
    good = encode_drawing(drawing_of(sanitise(REQUEST), LABEL_WIDTH))
    messages = packed(1, b"{}") + packed(2, b"no json") + packed(3, good)
    done = run_child(messages)
    answers = list(MessageReader().feed(done.stdout))
    assert [number for number, _ in answers] == [1, 2, 3]
    assert [bool(payload) for _, payload in answers] == [False, False, True]


def run_child(messages: bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(default_command(), input=messages, capture_output=True, timeout=60, check=False)


def test_it_ends_when_its_input_does_without_a_word() -> None:
    done = run_child(b"")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_without_plotext_it_says_so_by_its_exit_code() -> None:
    code = (
        "import sys; sys.modules['plotext'] = None\n"
        "from gradtui.tui.plotting.plotext_child import main; sys.exit(main(['1']))"
    )
    done = run_python(code, input=b"")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")


def test_a_drawing_without_end_is_ended_from_inside_even_if_alarms_were_blocked() -> None:
    code = (
        "import signal; from gradtui.tui.plotting import plotext_child, plotext_figure\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "plotext_child._SECONDS_PER_DRAWING = 1\n"
        "def without_end(drawing):\n    while True: pass\n"
        "plotext_figure.draw = without_end\n"
        "plotext_child.main(['1'])"
    )
    assert run_python(code, input=packed(1, b"{}")).returncode == -signal.SIGALRM


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_it_ends_when_its_parent_dies_even_if_a_worker_keeps_the_pipe_open(tmp_path: Path) -> None:
    script = tmp_path / "trainer.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "from gradtui.tui.plotting.child_handle import ChildHandle, default_command\n"
        "child = ChildHandle(default_command())\n"
        "worker = os.fork()\n"
        "if worker == 0:\n    time.sleep(60); os._exit(0)\n"
        "print(child.pid, worker, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": ROOT}, stdout=subprocess.PIPE
    ) as trainer:
        assert trainer.stdout is not None
        child, worker = map(int, trainer.stdout.readline().split())
    try:
        assert wait_for(lambda: not alive(child), seconds=20)
    finally:
        os.kill(worker, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process that is not our child still runs; one that nobody reaps counts as gone."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if sys.platform == "linux" else "R"
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def test_sending_more_than_a_pipe_holds_does_not_wait() -> None:
    child = ChildHandle([sys.executable, "-c", "import signal; signal.pause()"])
    try:
        child.send(bytes(1 << 23))
        assert 0 < child.moved < 1 << 23
        assert list(child.received()) == []
    finally:
        child.kill()
        child.wait()
    assert child.reaped()
