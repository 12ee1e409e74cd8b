"""The plots screen and the export of plots: opening, watching the plotted parameters, writing files. UI thread.

Modules that only the plots need are imported when the plots open, so that the first paint does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.app import App

from gradtui.protocol.commands import Watch
from gradtui.state.run_state import RunState
from gradtui.transport.channel import CommandSink
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.panels import HeaderState
from gradtui.tui.screens.dashboard import Dashboard

if TYPE_CHECKING:
    from gradtui.tui.plots.export_files import WriteFile
    from gradtui.tui.plots.settings import PlotSettings
    from gradtui.tui.plots.table import Table
    from gradtui.tui.screens.plots import PlotScreen


class Front(Protocol):
    """The screen below any dialog, drawn part by part: the dashboard or the plots."""

    def visible_parts(self) -> list[str]: ...
    def draw(self, part: str) -> None: ...
    def draw_header(self, facts: HeaderState) -> None: ...
    def collect_pictures(self) -> None: ...


class PlotsApp(App[str]):
    """The part of the app that opens the plots, with the action `export`."""

    run_state: RunState
    write_file: WriteFile | None = None
    """Creates a file beside the run's log; None if there is no directory for files."""
    _sink: CommandSink
    _dashboard: Dashboard
    _pictures: Pictures
    _watched: tuple[str, ...] = ()
    _awaits_histograms = False
    """Whether the histograms of newly watched parameters are still awaited; the plot is redrawn as soon as they arrive."""

    def on_gradient_panel_plots_wanted(self) -> None:
        if self._plots is None:
            from gradtui.tui.screens.plots import PlotScreen

            tree = self._dashboard.tree_view
            self._opened = PlotScreen(self.run_state, self._pictures, tree, self._plot_settings)
            self.push_screen(self._opened, self._plots_closed)

    def on_plot_screen_plot_changed(self) -> None:
        self._watch(self._plots.watches if self._plots is not None else ())

    def on_unmount(self) -> None:
        # Training may go on without a screen, and then no plot needs the watched parameters.
        self._watch(())

    def _plots_closed(self, _: None) -> None:
        self._watch(())
        for part in self._dashboard.visible_parts():
            self._dashboard.draw(part)

    def _watch(self, paths: tuple[str, ...]) -> None:
        """Ask the probe for detailed measurements of these parameters. This does not change the run and needs no answer."""
        if paths != self._watched and self.run_state.ended is None:
            self._watched, self._awaits_histograms = paths, bool(paths)
            self._sink.submit(lambda number: Watch(number, paths))

    @property
    def _plots(self) -> PlotScreen | None:
        """The plots screen, None if it is closed."""
        return self._opened if self._opened is not None and self._opened in self.screen_stack else None

    @property
    def _front(self) -> Front:
        return self._plots or self._dashboard

    @property
    def _plot_settings(self) -> PlotSettings:
        if self._chosen is None:
            from gradtui.tui.plots.settings import PlotSettings

            self._chosen = PlotSettings()
        return self._chosen

    _chosen: PlotSettings | None = None
    _opened: PlotScreen | None = None
    """The plots screen opened last, which may be closed by now."""

    def action_export(self) -> None:
        from gradtui.tui.plots.export_files import export

        plots = self._plots
        tables: list[tuple[str, Table]] = [plots.table] if plots is not None else self._dashboard.tables()
        script = self.run_state.started.script if self.run_state.started is not None else ""
        picture: Callable[[], str] = lambda: self.export_screenshot(title=f"gradtui {script}".strip())  # noqa: E731
        exported = export(tables, picture, self.write_file)
        self.notify(exported.text, severity="information" if exported.written else "warning", timeout=15, markup=False)
