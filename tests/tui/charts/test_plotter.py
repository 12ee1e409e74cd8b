from __future__ import annotations

import math
import pickle
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from plot_cases import assert_measures, curve, noisy, requests

from gradtui.tui.charts.chart import LABEL_WIDTH
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.charts.plot_server import MessageReader, PlotServer, packed
from gradtui.tui.charts.plotter import Plotter
from gradtui.tui.charts.request import PlotRequest

REQUEST = PlotRequest(60, 14, (curve(*noisy(300)),), "log")
LONGER = PlotRequest(60, 14, (curve(*noisy(301)),), "log")


class Server:
    """The other end of a plotter's socket."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        self.connection = ours
        self.plotter = Plotter(PlotServer(ours, 0))
        self._reader = MessageReader()

    def answer(self) -> None:
        """Answer the message that has come."""
        for number, payload in self._reader.feed(self.socket.recv(1 << 20)):
            layout = pickle.loads(payload).layout
            text = "\n".join(["-" * (layout.columns + LABEL_WIDTH + 1)] * (layout.rows + 2))
            self.socket.sendall(packed(number, text.encode()))


@pytest.fixture
def plot_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.connection.close()
    server.socket.close()


def test_picture_is_braille_drawing_until_plotext_has_one(plot_server: Server) -> None:
    first = plot_server.plotter.picture("panel", REQUEST)
    assert first.source == "braille"
    assert plot_server.plotter.picture("panel", REQUEST) is first
    plot_server.answer()
    picture = plot_server.plotter.picture("panel", REQUEST)
    assert picture.source == "plotext"
    assert_measures(picture, REQUEST)


def test_the_same_request_gives_the_same_object(plot_server: Server) -> None:
    plot_server.plotter.picture("panel", REQUEST)
    plot_server.answer()
    again = PlotRequest(60, 14, (curve(*noisy(300)),), "log")
    assert plot_server.plotter.picture("panel", again) is plot_server.plotter.picture("panel", REQUEST)


def test_other_size_is_braille_until_plotext(plot_server: Server) -> None:
    plot_server.plotter.picture("panel", REQUEST)
    plot_server.answer()
    wider = PlotRequest(80, 14, REQUEST.series, "log")
    picture = plot_server.plotter.picture("panel", wider)
    assert (picture.source, sum(len(text) for text, _ in picture.lines[0])) == ("braille", 80)
    plot_server.answer()
    assert plot_server.plotter.picture("panel", wider).source == "plotext"


def test_new_points_keep_picture_until_next(plot_server: Server) -> None:
    plot_server.plotter.picture("panel", REQUEST)
    plot_server.answer()
    before = plot_server.plotter.picture("panel", REQUEST)
    assert plot_server.plotter.picture("panel", LONGER) is before
    plot_server.answer()
    after = plot_server.plotter.picture("panel", LONGER)
    assert after.source == "plotext"
    assert after is not before


def test_a_server_that_ends_is_replaced_by_braille(plot_server: Server) -> None:
    plot_server.plotter.picture("panel", REQUEST)
    plot_server.answer()
    assert plot_server.plotter.picture("panel", REQUEST).source == "plotext"
    plot_server.socket.close()
    assert plot_server.plotter.picture("panel", LONGER).source == "braille"


def test_after_closing_pictures_are_drawn_in_braille(plot_server: Server) -> None:
    pictures = Pictures(PlotServer(plot_server.connection, 0))
    assert pictures.picture("panel", REQUEST).source == "braille"
    pictures.close()
    assert pictures.picture("panel", REQUEST).source == "braille"
    assert pictures.picture("panel", LONGER).source == "braille"


def test_impossible_for_plotext_is_braille(plot_server: Server) -> None:
    only_marks = PlotRequest(60, 14, (curve(math.nan, math.nan),))
    tiny = PlotRequest(10, 3, REQUEST.series)
    empty = PlotRequest(60, 14, ())
    for request in (only_marks, tiny, empty):
        picture = plot_server.plotter.picture("panel", request)
        assert picture.source == "braille"
        assert_measures(picture, request)
    plot_server.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        plot_server.socket.recv(1)


@given(requests())
def test_requests_give_picture_of_size_immediately(request_: PlotRequest) -> None:
    assert_measures(Plotter().picture("panel", request_), request_)
