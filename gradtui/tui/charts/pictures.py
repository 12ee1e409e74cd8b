"""What panels with a curve need: pictures, and the request that they keep between two updates. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from gradtui.tui.charts.request import Picture, PlotRequest

if TYPE_CHECKING:
    from gradtui.tui.charts.plot_server import PlotServer
    from gradtui.tui.charts.plotter import Plotter


class Pictures:
    """Draws as `plotter.Plotter` does, which is imported for the first picture, because the first paint has none."""

    def __init__(self, server: PlotServer | None = None) -> None:
        """Use the pictures of `server`; without a server every picture is a braille drawing."""
        self._server = server
        self.on_awaited: Callable[[], None] = lambda: None
        """Called when a picture was requested that has not arrived yet."""

    @cached_property
    def _plotter(self) -> Plotter:
        from gradtui.tui.charts.plotter import Plotter

        return Plotter(self._server)

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """Return the best picture available now."""
        picture = self._plotter.picture(key, request)
        if self.is_awaited:
            self.on_awaited()
        return picture

    @property
    def is_awaited(self) -> bool:
        """Whether a picture was requested that has not arrived yet."""
        return self._plotter.is_awaited

    def receive(self) -> bool:
        """Receive the pictures that have arrived. Return whether any came since the last call; `picture` returns them."""
        return self._plotter.receive()

    def close(self) -> None:
        """Disconnect from the server, whose pictures come no more."""
        if self._server is not None:
            self._server.connection.close()


class HeldRequest:
    """Keeps a panel's request until `renew` is called or the size changes.

    Until then the same request is shown again, which costs almost nothing and also shows a picture that has arrived in the
    meantime.
    """

    def __init__(self) -> None:
        self._request: PlotRequest | None = None
        self._due = True

    def renew(self) -> None:
        """Make a new request at the next drawing."""
        self._due = True

    @property
    def is_due(self) -> bool:
        """Whether the next drawing makes a new request, whatever its size."""
        return self._due

    def request(self, width: int, height: int, make: Callable[[int, int], PlotRequest | None]) -> PlotRequest | None:
        """Return the request for an area of this size; None if there is nothing to draw."""
        held = self._request
        if self._due or held is None or (held.width, held.height) != (width, height):
            self._request, self._due = make(width, height), False
        return self._request
