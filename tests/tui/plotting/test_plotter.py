from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from plot_cases import assert_measures, curve, noisy, requests, wait_for

from gradtui.tui.plotting.plot_process import Patience, PlotProcess
from gradtui.tui.plotting.plotter import Plotter
from gradtui.tui.plotting.request import PlotRequest

REQUEST = PlotRequest(60, 14, (curve(*noisy(300)),), "log", "norm")
SILENT = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]
HOPELESS = [sys.executable, "-c", "raise SystemExit(3)"]


@pytest.fixture
def plotter() -> Iterator[Plotter]:
    plotter = Plotter(PlotProcess(patience=Patience(first_pause=0.01)))
    yield plotter
    plotter.close()


def drawn_by_plotext(plotter: Plotter, request: PlotRequest = REQUEST) -> bool:
    return wait_for(lambda: plotter.picture("panel", request).source == "plotext", plotter._process)


def test_pictures_are_ours_until_plotext_has_one(plotter: Plotter) -> None:
    silent = Plotter(PlotProcess(SILENT))
    assert silent.picture("panel", REQUEST).source == "braille"
    silent.close()
    assert drawn_by_plotext(plotter)
    assert_measures(plotter.picture("panel", REQUEST), REQUEST)


def test_the_same_request_gives_the_same_object(plotter: Plotter) -> None:
    assert drawn_by_plotext(plotter)
    again = PlotRequest(60, 14, (curve(*noisy(300)),), "log", "norm")
    assert plotter.picture("panel", again) is plotter.picture("panel", REQUEST)


def test_another_size_is_drawn_by_us_until_plotext_has_it(plotter: Plotter) -> None:
    assert drawn_by_plotext(plotter)
    pid = plotter._process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    wider = PlotRequest(80, 14, REQUEST.series, "log", "norm")
    picture = plotter.picture("panel", wider)
    assert (picture.source, picture.width) == ("braille", 80)
    os.kill(pid, signal.SIGCONT)
    assert drawn_by_plotext(plotter, wider)


def test_new_points_do_not_fall_back_to_our_own_drawing(plotter: Plotter) -> None:
    assert drawn_by_plotext(plotter)
    longer = PlotRequest(60, 14, (curve(*noisy(301)),), "log", "norm")
    before = plotter.picture("panel", REQUEST)
    assert plotter.picture("panel", longer).source == "plotext"
    assert wait_for(lambda: plotter.picture("panel", longer) != before, plotter._process)


def test_a_killed_child_is_bridged_by_us_and_replaced(plotter: Plotter) -> None:
    assert drawn_by_plotext(plotter)
    pid = plotter._process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    steps = iter(range(302, 100_000))

    def after_new_points() -> str:
        return plotter.picture(
            "panel", PlotRequest(60, 14, (curve(*noisy(300), first=next(steps)),), "log", "norm")
        ).source

    assert wait_for(lambda: after_new_points() == "braille", plotter._process)
    assert wait_for(lambda: after_new_points() == "plotext", plotter._process)
    assert plotter._process.pid != pid


def test_without_plotext_all_pictures_are_ours() -> None:
    plotter = Plotter(PlotProcess(HOPELESS, patience=Patience(first_pause=0.0)))
    steps = iter(range(100_000))

    def gave_up() -> bool:
        request = PlotRequest(60, 14, (curve(*noisy(300), first=next(steps)),), "log", "norm")
        picture = plotter.picture("panel", request)
        assert picture.source == "braille"
        assert_measures(picture, request)
        return plotter._process.given_up

    assert wait_for(gave_up, plotter._process)
    assert plotter.picture("panel", REQUEST).source == "braille"
    plotter.close()


def test_what_plotext_cannot_show_is_ours_and_starts_no_child(plotter: Plotter) -> None:
    only_marks = PlotRequest(60, 14, (curve(math.nan, math.nan),))
    tiny = PlotRequest(10, 3, REQUEST.series)
    empty = PlotRequest(60, 14, ())
    for request in (only_marks, tiny, empty):
        picture = plotter.picture("panel", request)
        assert picture.source == "braille"
        assert_measures(picture, request)
    assert plotter._process.pid is None


def test_it_works_from_a_thread_while_the_main_thread_computes() -> None:
    sources: list[str] = []
    done = threading.Event()

    def screen() -> None:
        plotter = Plotter()
        if drawn_by_plotext(plotter):
            sources.append(plotter.picture("panel", REQUEST).source)
        plotter.close()
        done.set()

    thread = threading.Thread(target=screen)
    thread.start()
    while not done.is_set():
        sum(range(20_000))
    thread.join()
    assert sources == ["plotext"]


@given(requests())
def test_any_request_gives_a_picture_of_its_size_at_once(request_: PlotRequest) -> None:
    plotter = Plotter(PlotProcess(["/nonexistent/python"]))
    assert_measures(plotter.picture("panel", request_), request_)
    plotter.close()
    assert_measures(plotter.picture("panel", request_), request_)
