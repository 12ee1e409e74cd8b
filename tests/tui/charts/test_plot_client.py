"""The client, with a server that the test plays: what it sends, what it makes of the answers, and when it gives up."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator

import pytest
from helpers.lines import line_text
from plot_cases import curve, noisy

from gradtui.tui.charts.chart import LABEL_WIDTH, Chart
from gradtui.tui.charts.plot_client import MAX_ANSWER_SECONDS, PlotClient
from gradtui.tui.charts.plot_server import MessageReader, PlotServer, packed
from gradtui.tui.charts.request import PlotRequest
from gradtui.tui.charts.sanitise import sanitise

SHORT = (curve(1.0, 2.0),)
REQUEST = PlotRequest(60, 14, SHORT)


class Played:
    """The server's end of the socket, and the client at the other end; time passes when the test says so."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        self.socket.setblocking(False)
        self.now = 1000.0
        self.connection = ours
        self.client = PlotClient(PlotServer(ours, 0), clock=lambda: self.now)
        self._reader = MessageReader()
        self.received: list[tuple[int, Chart]] = []

    def submit(self, request: PlotRequest = REQUEST, key: str = "panel") -> None:
        self.client.submit(key, request, sanitise(request))

    def take(self) -> list[tuple[int, Chart]]:
        """The messages that have come since the last call."""
        try:
            data = self.socket.recv(1 << 20)
        except BlockingIOError:
            return []
        taken = [(number, pickle.loads(payload)) for number, payload in self._reader.feed(data)]
        self.received += taken
        return taken

    def answer(self, text: str = "x") -> None:
        """Answer the newest message with a picture of the right size that begins with `text`."""
        number, chart = self.received[-1]
        line = text.ljust(chart.layout.columns + LABEL_WIDTH + 1)
        self.socket.sendall(packed(number, "\n".join([line] * (chart.layout.rows + 2)).encode()))

    def shown(self, key: str = "panel") -> str | None:
        picture = self.client.latest(key)
        return None if picture is None else line_text(picture.lines[1]).strip()

    def draw(self, text: str) -> None:
        """Have the server draw this picture."""
        self.submit()
        self.take()
        self.answer(text)
        assert self.shown() == text


@pytest.fixture
def played() -> Iterator[Played]:
    played = Played()
    yield played
    played.connection.close()
    played.socket.close()


def test_picture_comes_with_answer_and_not_before(played: Played) -> None:
    assert played.shown() is None
    played.submit()
    assert played.shown() is None
    (message,) = played.take()
    assert message[1] == sanitise(REQUEST)
    played.answer("drawn")
    assert played.shown() == "drawn"
    assert played.take() == []


def test_of_each_panel_only_the_newest_chart_waits(played: Played) -> None:
    played.submit()
    for count in (2, 3, 4):
        played.submit(PlotRequest(60, 14, (curve(*noisy(count)),)), "a")
    played.submit(PlotRequest(60, 14, (curve(*noisy(9)),)), "b")
    lengths = []
    for _ in range(3):
        ((_, chart),) = played.take()
        lengths.append(len(chart.curves[0].polylines[0].xs))
        played.answer()
        played.shown()
    assert lengths == [2, 4, 9]
    assert played.take() == []


def test_a_picture_stays_while_the_next_is_drawn(played: Played) -> None:
    played.draw("old")
    played.submit(PlotRequest(60, 14, (curve(1.0, 2.0, 3.0),)))
    played.take()
    assert played.shown() == "old"
    played.answer("new")
    assert played.shown() == "new"


@pytest.mark.parametrize(
    "other",
    [
        PlotRequest(61, 14, SHORT),
        PlotRequest(60, 15, SHORT),
        PlotRequest(60, 14, SHORT, "log"),
        PlotRequest(60, 14, SHORT, x_label="layer"),
        PlotRequest(60, 14, SHORT, view="zoomed"),
        PlotRequest(60, 14, (curve(1.0, 2.0, label="ctx"),)),
        PlotRequest(60, 14, (curve(1.0, 2.0, color="red"),)),
    ],
)
def test_a_picture_of_another_layout_is_never_shown(played: Played, other: PlotRequest) -> None:
    played.draw("old")
    played.submit(PlotRequest(60, 14, (curve(2.0, 1.0),)))
    played.take()
    played.submit(other)
    assert played.shown() is None
    played.answer("of the old layout")
    assert played.shown() is None
    played.take()
    played.answer("new")
    assert played.shown() == "new"


def test_late_answer_hides_old_picture_until_it_comes(played: Played) -> None:
    played.draw("old")
    played.submit(PlotRequest(60, 14, (curve(3.0, 1.0),)))
    played.take()
    played.now += MAX_ANSWER_SECONDS - 0.1
    assert played.shown() == "old"
    played.now += 0.2
    assert played.shown() is None
    played.answer("new")
    assert played.shown() == "new"


def test_a_drawing_that_failed_costs_its_picture_only(played: Played) -> None:
    played.draw("old")
    played.submit(PlotRequest(60, 14, (curve(3.0, 1.0),)))
    ((number, _),) = played.take()
    played.socket.sendall(packed(number, b""))
    assert played.shown() is None
    played.draw("new")


@pytest.mark.parametrize("answer", [b"x" * 1000, packed(7, b""), None], ids=["no message", "wrong number", "the end"])
def test_ended_or_confused_server_is_given_up(played: Played, answer: bytes | None) -> None:
    played.draw("old")
    played.submit(PlotRequest(60, 14, (curve(3.0, 1.0),)))
    played.take()
    if answer is None:
        played.socket.close()
    else:
        played.socket.sendall(answer)
    assert played.shown() is None
    assert played.client.connection is None
    played.submit()
    assert played.shown() is None


def test_server_that_reads_nothing_does_not_hold_caller(played: Played) -> None:
    big = PlotRequest(300, 100, tuple(curve(*noisy(600), color=f"c{i}") for i in range(40)))
    chart = sanitise(big)
    for _ in range(50):
        played.client.submit("panel", big, chart)
        assert played.shown() is None
    assert played.client.connection is not None


def test_without_a_server_there_are_no_pictures() -> None:
    client = PlotClient(None)
    client.submit("panel", REQUEST, sanitise(REQUEST))
    assert client.latest("panel") is None


def test_a_picture_is_awaited_until_it_is_received(played: Played) -> None:
    assert not played.client.is_awaited
    assert not played.client.receive()
    played.submit()
    played.take()
    assert played.client.is_awaited
    assert not played.client.receive()
    played.submit(PlotRequest(60, 14, (curve(*noisy(4)),)), "other")
    played.answer("drawn")
    assert played.client.receive()
    assert played.client.is_awaited, "the other one is requested now"
    played.take()
    played.answer("drawn too")
    assert played.client.receive()
    assert not played.client.is_awaited
    assert (played.shown(), played.shown("other")) == ("drawn", "drawn too")


def test_ended_server_gives_no_awaited_picture(played: Played) -> None:
    played.submit()
    played.socket.close()
    assert not played.client.receive()
    assert not played.client.is_awaited
