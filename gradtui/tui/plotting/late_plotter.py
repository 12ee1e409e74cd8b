"""The plotter, imported and made when the first picture is asked for: the first paint has none. On the UI thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradtui.tui.plotting.child_handle import Starter
    from gradtui.tui.plotting.plotter import Plotter
    from gradtui.tui.plotting.request import Picture, PlotRequest


class LatePlotter:
    """As `plotter.Plotter`; `starter` starts the plot child, by default this process."""

    def __init__(self, starter: Starter | None = None) -> None:
        self._starter = starter
        self._plotter: Plotter | None = None
        self._closed = False

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """The best picture there is now."""
        if self._plotter is None:
            self._plotter = self._made()
        return self._plotter.picture(key, request)

    def close(self) -> None:
        """End the plot child. Pictures are our own afterwards."""
        self._closed = True
        if self._plotter is not None:
            self._plotter.close()

    def _made(self) -> Plotter:
        from gradtui.tui.plotting.plot_process import PlotProcess
        from gradtui.tui.plotting.plotter import Plotter

        made = Plotter(PlotProcess(starter=self._starter))
        if self._closed:
            made.close()
        return made
