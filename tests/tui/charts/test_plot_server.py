"""The real server and the real plotext, in processes of their own."""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

import pytest
from helpers.examples import examples
from helpers.lines import texts
from helpers.programs import run_program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plot_cases import assert_measures, curve, noisy, requests, wait_for

from gradtui.tui.charts import braille
from gradtui.tui.charts.chart import LABEL_WIDTH
from gradtui.tui.charts.frame import compose
from gradtui.tui.charts.plot_client import PlotClient
from gradtui.tui.charts.plot_server import MessageReader, PlotServer, packed
from gradtui.tui.charts.request import Picture, PlotRequest, Scale
from gradtui.tui.charts.sanitise import sanitise

ROOT = str(Path(__file__).resolve().parents[3])
REQUEST = PlotRequest(60, 14, (curve(*noisy(300)),), "log")
KEYS = count()

SERVES = (
    "import os, socket, sys\n"
    "from gradtui.tui.charts import plot_server\n"
    "{before}\n"
    "plot_server._run(socket.socket(fileno=int(sys.argv[1])), os.getppid(), plot_server._draw_with_plotext)"
)
"""What a forked server does, in a process that was not forked from this one, which has threads."""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the plot server needs POSIX")


@contextmanager
def served(before: str = "") -> Iterator[PlotServer]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-c", SERVES.format(before=before), str(theirs.fileno())]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    with theirs:
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
    with ours, process:
        try:
            yield PlotServer(ours, process.pid)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[PlotServer]:
    with served() as server:
        yield server


@pytest.fixture(scope="module")
def client(server: PlotServer) -> PlotClient:
    return PlotClient(server)


def drawn_by(client: PlotClient, request: PlotRequest, key: str = "panel") -> Picture:
    """plotext's picture of a request; fails where the server ends or cannot draw it."""
    client.submit(key, request, sanitise(request))
    assert wait_for(lambda: client.latest(key) is not None or client.connection is None, client)
    picture = client.latest(key)
    assert picture is not None
    return picture


@settings(suppress_health_check=list(HealthCheck))
@given(requests(width=st.integers(24, 130), height=st.integers(6, 40)))
def test_plotext_and_braille_agree_on_frame(client: PlotClient, request_: PlotRequest) -> None:
    chart = sanitise(request_)
    if not chart.y_ticks:
        return
    picture = drawn_by(client, request_, f"panel {next(KEYS)}")
    assert_measures(picture, request_)
    own = compose(request_, chart, braille.draw(chart), "braille")
    header, margin = chart.layout.header, LABEL_WIDTH + 1
    theirs, ours = texts(picture.lines), texts(own.lines)
    assert theirs[:header] == ours[:header]
    assert [line[:margin] for line in theirs[header:]] == [line[:margin] for line in ours[header:]]
    assert theirs[-2:] == ours[-2:]
    edge = "×▲▼•"
    assert [[c if c in edge else "" for c in line] for line in theirs] == [
        [c if c in edge else "" for c in line] for line in ours
    ]


@settings(max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(st.integers(), st.integers(24, 220), st.integers(6, 60), st.sampled_from(["linear", "log"]))
def test_long_noisy_series_are_drawn(client: PlotClient, seed: int, width: int, height: int, scale: Scale) -> None:
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
    assert_measures(drawn_by(client, request, f"panel {next(KEYS)}"), request)


def test_plotext_and_braille_curves_share_cells(client: PlotClient) -> None:
    chart = sanitise(REQUEST)
    theirs = texts(drawn_by(client, REQUEST, "curve").lines)
    ours = texts(compose(REQUEST, chart, braille.draw(chart), "braille").lines)
    cells = [(a != " ", b != " ") for mine, other in zip(ours, theirs) for a, b in zip(mine, other)]
    same = sum(a == b for a, b in cells)
    # Both rasterise the same dots; a line between two of them may touch a neighbouring cell in one and not in the other.
    assert same / len(cells) > 0.95


def test_styles_come_back_from_the_colours(client: PlotClient) -> None:
    two = (curve(1.0, 2.0, 3.0), curve(3.0, 2.5, 2.0, label="ctx", color="magenta"))
    keys = {key for line in drawn_by(client, PlotRequest(60, 14, two), "two").lines for _, key in line}
    assert {"cyan", "magenta", "axis", "tick", "legend"} <= keys


def test_sizes_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    request = PlotRequest(200, 60, REQUEST.series)
    with served() as server:
        assert_measures(drawn_by(PlotClient(server), request), request)


def test_modules_in_working_directory_are_harmless(tmp_path: Path) -> None:
    for name in ("plotext", "ctypes", "_ctypes", "shutil"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the person')")
    # As `python -m gradtui` in this directory: it is the first place that Python searches.
    with served(f"os.chdir({str(tmp_path)!r}); sys.path.insert(0, os.getcwd())") as server:
        assert drawn_by(PlotClient(server), REQUEST).source == "plotext"


def test_it_imports_neither_torch_nor_the_screen() -> None:
    code = (
        "import sys, gradtui.tui.charts.plot_server, gradtui.tui.charts.plotext_figure\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    modules = run(code).split()
    assert "plotext" in modules
    assert not {"torch", "textual", "rich", "numpy"} & set(modules)


def test_ctrl_c_does_not_reach_it(server: PlotServer, client: PlotClient) -> None:
    drawn_by(client, REQUEST, "before")
    assert os.getsid(server.pid) == server.pid
    os.kill(server.pid, signal.SIGINT)
    drawn_by(client, REQUEST, "after")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_server_has_low_priority_and_one_socket(server: PlotServer, client: PlotClient) -> None:
    drawn_by(client, REQUEST, "proc")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, server.pid) == min(own + 10, 19)
    held = [os.readlink(entry.path).split(":")[0] for entry in os.scandir(f"/proc/{server.pid}/fd")]
    assert sorted(held) == [os.devnull] * 3 + ["socket"]
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    assert next(line.split()[4] for line in limits.splitlines() if line.startswith("Max core")) == "0"


def test_failed_drawing_is_answered_before_next() -> None:
    good = pickle.dumps(sanitise(REQUEST))
    with served() as server:
        server.connection.setblocking(True)
        server.connection.sendall(packed(1, pickle.dumps({})) + packed(2, b"no chart") + packed(3, good))
        server.connection.shutdown(socket.SHUT_WR)
        reader = MessageReader()
        answers = [
            answer for data in iter(lambda: server.connection.recv(1 << 16), b"") for answer in reader.feed(data)
        ]
    assert [number for number, _ in answers] == [1, 2, 3]
    assert [bool(payload) for _, payload in answers] == [False, False, True]


@pytest.mark.parametrize(
    "before",
    [
        "sys.modules['plotext'] = None",
        "import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); "
        "plot_server._MAX_SECONDS_PER_DRAWING = 1; plot_server._draw_with_plotext = lambda _: [0 for _ in iter(int, 1)]",
        "plot_server._draw_with_plotext = lambda _: os.abort()",
    ],
    ids=["no plotext", "a drawing without end", "plotext aborts"],
)
def test_server_that_ends_leaves_drawing_to_braille(before: str) -> None:
    with served(before) as server:
        client = PlotClient(server)
        client.submit("panel", REQUEST, sanitise(REQUEST))
        assert wait_for(lambda: client.latest("panel") is None and client.connection is None, client)


PROLOGUE = """\
import os, signal, time
import psutil
from gradtui.tui.charts.plot_server import PlotServer
reading, writing = os.pipe()
server = PlotServer.start(lambda drawing: "drawn")

def gone(pid):
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, pid
        time.sleep(0.005)
    return True
"""


def run(program: str) -> str:
    done = run_program(program, warnings="error")
    assert done.stderr == ""
    return done.stdout


def test_server_is_reaped_child_holding_nothing() -> None:
    program = """
        os.close(writing)
        print(os.read(reading, 1))
        print([child.pid for child in psutil.Process().children()] == [server.pid], os.getsid(server.pid) == server.pid)
        server.end()
        print(psutil.Process().children())
    """
    assert run(PROLOGUE + textwrap.dedent(program)).splitlines() == ["b''", "True True", "[]"]


def test_server_ends_with_parent_despite_worker() -> None:
    program = """
        trainer = os.fork()
        if trainer == 0:
            own = PlotServer.start(lambda drawing: "drawn")
            worker = os.fork()
            if worker == 0:
                time.sleep(60)
            os.write(writing, f"{own.pid} {worker}".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(trainer, 0)
        orphan, worker = map(int, os.read(reading, 100).split())
        print(psutil.pid_exists(worker), gone(orphan))
        os.kill(worker, signal.SIGKILL)
        server.end()
    """
    assert run(PROLOGUE + textwrap.dedent(program)) == "True True\n"
