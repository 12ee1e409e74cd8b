"""Draws curves for the panels without waiting: by plotext if its picture has arrived, else in braille. UI thread."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.tui.charts import braille
from gradtui.tui.charts.chart import Chart
from gradtui.tui.charts.frame import compose
from gradtui.tui.charts.plot_client import PlotClient
from gradtui.tui.charts.plot_server import PlotServer
from gradtui.tui.charts.request import Picture, PlotRequest
from gradtui.tui.charts.sanitise import sanitise


@dataclass
class _Panel:
    request: PlotRequest
    chart: Chart
    own: Picture | None = None


class Plotter:
    """Draws pictures for any number of panels, each with its own key. No method blocks or raises."""

    def __init__(self, server: PlotServer | None = None) -> None:
        """Use the pictures of `server`; without a server every picture is a braille drawing."""
        self._client = PlotClient(server)
        self._panels: dict[str, _Panel] = {}

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """Return the best picture available now.

        A plotext picture may belong to the previous request. Call again (cheap for an unchanged request) once `receive` has
        returned True. `Picture.source` says which drawer made it.
        """
        panel = self._panels.get(key)
        if panel is None or panel.request != request:
            panel = self._panels[key] = _Panel(request, sanitise(request))
            if _fit_for_plotext(panel.chart):
                self._client.submit(key, request, panel.chart)
        drawn = self._client.latest(key) if _fit_for_plotext(panel.chart) else None
        if drawn is not None:
            return drawn
        if panel.own is None:
            panel.own = compose(request, panel.chart, braille.draw(panel.chart), "braille")
        return panel.own

    @property
    def is_awaited(self) -> bool:
        """Whether a picture was requested that has not arrived yet."""
        return self._client.is_awaited

    def receive(self) -> bool:
        """Receive the pictures that have arrived. Return whether any came since the last call."""
        return self._client.receive()


def _fit_for_plotext(chart: Chart) -> bool:
    """Whether plotext draws the chart: it needs axes with ticks and at least one value. Others are drawn in braille."""
    return chart.layout.framed and bool(chart.y_ticks)
