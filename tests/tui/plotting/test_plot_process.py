"""The plot process with children that misbehave. Time is a number that the tests set."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from plot_cases import curve, noisy, wait_for

from gradtui.tui.plotting.child_handle import default_command
from gradtui.tui.plotting.plot_process import Patience, PlotProcess
from gradtui.tui.plotting.request import PlotRequest
from gradtui.tui.plotting.restarts import MOST_FAILURES
from gradtui.tui.plotting.sanitise import sanitise

SILENT = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]
NO_PLOTEXT = [sys.executable, "-c", "raise SystemExit(3)"]
GIBBERISH = [sys.executable, "-c", "print('x' * 1000, flush=True); input()"]
WRONG_NUMBER = [sys.executable, "-c", "import os, signal; os.write(1, bytes(8)); signal.pause()"]

# Answers every message with lines of the right size that show how many messages came so far.
COUNTING = [
    sys.executable,
    "-c",
    "import os, sys; sys.path.append(sys.argv[1])\n"
    "from gradtui.tui.plotting.messages import MessageReader, decode_drawing, packed\n"
    "reader, count = MessageReader(), 0\n"
    "while data := os.read(0, 65536):\n"
    "    for number, payload in reader.feed(data):\n"
    "        count += 1\n"
    "        drawing = decode_drawing(payload)\n"
    "        line = f'{count} of {len(drawing[\"pens\"])}'.ljust(drawing['columns'] + 8)\n"
    "        os.write(1, packed(number, '\\n'.join([line] * (drawing['rows'] + 2)).encode()))\n",
    default_command()[-2],
]

SHORT = (curve(1.0, 2.0),)
REQUEST = PlotRequest(60, 14, SHORT)

Started = Callable[..., PlotProcess]


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def started(clock: Clock) -> Iterator[Started]:
    processes: list[PlotProcess] = []

    def start(command: Sequence[str] | None = None) -> PlotProcess:
        processes.append(PlotProcess(command, clock=clock, patience=Patience(answer=2, start=10, first_pause=1)))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


@contextmanager
def stopped(process: PlotProcess) -> Iterator[None]:
    """Nothing is answered inside: the child is there and stands still."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    yield
    os.kill(process.pid, signal.SIGCONT)


def submit(process: PlotProcess, request: PlotRequest = REQUEST, key: str = "panel") -> None:
    process.submit(key, request, sanitise(request))


def arrived(process: PlotProcess, key: str = "panel") -> bool:
    return wait_for(lambda: process.latest(key) is not None, process)


def canvas_text(process: PlotProcess, key: str = "panel") -> str:
    picture = process.latest(key)
    assert picture is not None
    return "".join(text for text, _ in picture.lines[1]).strip()


def test_it_starts_with_the_first_chart_and_not_before(started: Started) -> None:
    process = started()
    process.poll()
    assert process.pid is None
    assert process.latest("panel") is None
    submit(process)
    assert process.pid is not None
    assert arrived(process)


def test_of_each_panel_only_the_newest_chart_waits(started: Started) -> None:
    process = started(COUNTING)
    submit(process)
    assert arrived(process)
    with stopped(process):
        for _ in range(5):
            submit(process, key="a")
        submit(process, key="b")
    assert arrived(process, "b")
    # The first of five was on its way at once; of the four after it one was sent, then the other panel's.
    assert canvas_text(process, "a") == "3 of 1"
    assert canvas_text(process, "b") == "4 of 1"


def test_a_picture_stays_while_the_next_is_drawn(started: Started) -> None:
    process = started(COUNTING)
    submit(process)
    assert arrived(process)
    submit(process, PlotRequest(60, 14, (curve(1.0, 2.0, 3.0),)))
    shown: list[str] = []
    # canvas_text fails where there is no picture.
    assert wait_for(lambda: shown.append(canvas_text(process)) or shown[-1] == "2 of 1", process)  # type: ignore[func-returns-value]
    assert set(shown) <= {"1 of 1", "2 of 1"}


@pytest.mark.parametrize(
    "other",
    [
        PlotRequest(61, 14, SHORT),
        PlotRequest(60, 15, SHORT),
        PlotRequest(60, 14, SHORT, "log"),
        PlotRequest(60, 14, SHORT, title="norm"),
        PlotRequest(60, 14, SHORT, view="zoomed"),
        PlotRequest(60, 14, (curve(1.0, 2.0, label="ctx"),)),
        PlotRequest(60, 14, (curve(1.0, 2.0, color="red"),)),
    ],
)
def test_a_picture_of_another_look_is_never_shown(started: Started, other: PlotRequest) -> None:
    process = started(COUNTING)
    submit(process)
    assert arrived(process)
    with stopped(process):
        # The second of these two is submitted while the first, of the old look, is being drawn.
        submit(process, PlotRequest(60, 14, (curve(2.0, 1.0),)))
        assert process.latest("panel") is not None
        submit(process, other)
        assert process.latest("panel") is None
    assert arrived(process)
    assert canvas_text(process) == "3 of 1"


def test_a_killed_child_costs_its_pictures_and_is_started_again(started: Started, clock: Clock) -> None:
    process = started()
    submit(process)
    assert arrived(process)
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    # Whether the write fails or the read ends depends on how far the kernel is; either way the picture goes.
    submit(process, PlotRequest(60, 14, (curve(3.0, 1.0),)))
    assert wait_for(lambda: process.latest("panel") is None and process.pid is None, process)
    clock.now += 1.1
    submit(process)
    assert process.pid not in (None, first)
    assert arrived(process)


def test_the_other_panels_are_drawn_again_by_the_new_child(started: Started, clock: Clock) -> None:
    process = started()
    submit(process, key="a")
    submit(process, key="b")
    assert arrived(process, "b")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)

    def gone() -> bool:
        submit(process, key="a")
        return process.pid is None

    assert wait_for(gone, process)
    assert process.latest("b") is None
    clock.now += 1.1
    assert arrived(process, "b")


def test_a_child_that_hangs_is_killed_at_the_deadline(started: Started, clock: Clock) -> None:
    process = started()
    submit(process)
    assert arrived(process)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    submit(process, PlotRequest(60, 14, (curve(3.0, 1.0),)))
    clock.now += 1.9
    process.poll()
    assert process.pid == pid
    clock.now += 0.2
    process.poll()
    assert process.pid is None
    assert process.latest("panel") is None
    clock.now += 1.1
    submit(process)
    assert arrived(process)


def test_an_answer_that_is_there_counts_even_after_the_deadline(started: Started, clock: Clock) -> None:
    process = started()
    submit(process)
    child = process._child
    assert child is not None
    assert select.select([child._output], [], [], 30)[0]
    clock.now += 1000
    assert process.latest("panel") is not None


@pytest.mark.parametrize("command", [SILENT, NO_PLOTEXT, GIBBERISH, WRONG_NUMBER, ["/nonexistent/python"]])
def test_a_hopeless_child_is_started_a_few_times_and_then_no_more(
    started: Started, clock: Clock, command: list[str]
) -> None:
    process = started(command)
    pids = set()

    def failed_again() -> bool:
        submit(process)
        if process.pid is not None:
            pids.add(process.pid)
        clock.now += 0.5
        assert process.latest("panel") is None
        return process.given_up

    assert wait_for(failed_again, process)
    assert len(pids) <= MOST_FAILURES
    clock.now += 1e6
    submit(process)
    assert process.pid is None


def test_a_chart_that_cannot_be_drawn_costs_no_restart(started: Started) -> None:
    process = started()
    submit(process)
    assert arrived(process)
    pid = process.pid
    request = PlotRequest(60, 14, (curve(),))
    submit(process, request)
    assert wait_for(lambda: process.latest("panel") is None, process)
    submit(process)
    assert arrived(process)
    assert process.pid == pid


def test_close_ends_and_reaps(started: Started) -> None:
    process = started()
    submit(process)
    pid = process.pid
    assert pid is not None
    process.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    assert process.given_up
    submit(process)
    assert (process.pid, process.latest("panel")) == (None, None)


def test_a_child_killed_at_its_deadline_leaves_no_zombie(started: Started, clock: Clock) -> None:
    process = started(SILENT)
    submit(process)
    pid = process.pid
    assert pid is not None
    clock.now += 11
    process.poll()

    def reaped() -> bool:
        process.poll()
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    assert wait_for(reaped, process)


def test_a_forked_copy_does_nothing(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    process = started()
    submit(process)
    assert arrived(process)
    pid = process.pid
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        process.close()
        submit(process, key="other")
    assert process.pid == pid
    assert not process.given_up
    assert process.latest("other") is None


def test_starting_and_asking_do_not_wait_for_the_child(started: Started) -> None:
    process = started(SILENT)
    big = tuple(curve(*noisy(600), color=f"c{i}") for i in range(40))
    submit(process, PlotRequest(300, 100, big))
    # A child that neither answers nor reads further must not stop the caller, or this test would hang.
    for _ in range(50):
        submit(process, PlotRequest(300, 100, big))
        assert process.latest("panel") is None
