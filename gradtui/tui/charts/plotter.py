"""Draws curves for the panels at once: by plotext where its picture has come, else in braille. On the UI thread."""

from __future__ import annotations

from dataclasses import dataclass

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
    """Pictures for any number of panels, told apart by key. Nothing here waits or raises."""

    def __init__(self, server: PlotServer | None = None) -> None:
        """Ask `server` for plotext's pictures; without one every picture is a braille drawing."""
        self._client = PlotClient(server)
        self._panels: dict[str, _Panel] = {}

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """The best picture there is now.

        A plotext picture may be of the request before this one; call again when the screen next ticks, which is cheap
        while the request is the same, until the picture stays the same object. `Picture.source` tells who drew it.
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

    def close(self) -> None:
        """Give up the plot server. Every picture is a braille drawing afterwards."""
        self._client.close()


def _fit_for_plotext(chart: Chart) -> bool:
    """plotext gets axes with ticks and at least one value; what is smaller or emptier is ours to draw."""
    return chart.layout.framed and bool(chart.y_ticks)
