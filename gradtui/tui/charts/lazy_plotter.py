"""A plotter that is imported and created for the first picture, because the first paint has none. UI thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradtui.tui.charts.plot_server import PlotServer
    from gradtui.tui.charts.plotter import Plotter
    from gradtui.tui.charts.request import Picture, PlotRequest


class LazyPlotter:
    """Draws as `plotter.Plotter` does. Without a `server` every picture is a braille drawing."""

    def __init__(self, server: PlotServer | None = None) -> None:
        self._server = server
        self._plotter: Plotter | None = None

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """Return the best picture available now."""
        if self._plotter is None:
            from gradtui.tui.charts.plotter import Plotter

            self._plotter = Plotter(self._server)
        return self._plotter.picture(key, request)

    def close(self) -> None:
        """Disconnect from the server. Every picture is a braille drawing afterwards."""
        if self._plotter is not None:
            self._plotter.close()
        elif self._server is not None:
            self._server.connection.close()
            self._server = None
