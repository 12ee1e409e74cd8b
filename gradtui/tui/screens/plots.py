"""The full-screen plots: one view at a time, with keys to zoom, pan and smooth. UI thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import ModalScreen

from gradtui.state.run_state import RunState
from gradtui.state.selectors import run_status
from gradtui.tui.actions import ACTIONS, SHARED_WITH_PLOTS, Action, applicable, bindings, plot_footer
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.panels import FindingLine, Header, HeaderState
from gradtui.tui.plots.options import Plot, PlotOptions
from gradtui.tui.plots.rows import to_watch
from gradtui.tui.plots.settings import VIEWS, PlotSettings
from gradtui.tui.plots.table import Table
from gradtui.tui.plots.window import Window
from gradtui.tui.rendering import Line
from gradtui.tui.screens.action_context import (
    ActionContext,
    export_plots,
    open_explanation,
    open_finding,
    open_findings_list,
)
from gradtui.tui.tree import ModuleTree
from gradtui.tui.widgets import KeyBar, LineView, Status, StatusLine

_ABOVE = "findings"
"""The action that the line under the header shows; the footer leaves it out."""


class PlotView(LineView):
    """The current view: lines of text above and below a chart."""

    def __init__(self, state: RunState, pictures: Pictures, tree: ModuleTree, settings: PlotSettings) -> None:
        super().__init__(id="plot")
        self._state, self._pictures, self._tree, self._plot_settings = state, pictures, tree, settings
        self._made: tuple[tuple[int, int], Plot] | None = None

    @property
    def options(self) -> PlotOptions:
        """The selection and the settings to plot now."""
        return self._plot_settings.options(self._state.tree, self._tree.measured)

    @property
    def plot(self) -> Plot | None:
        """The plot as last drawn, None before the first drawing."""
        return self._made[1] if self._made is not None else None

    def renew(self) -> None:
        """Redraw with the current data."""
        self._made = None
        self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        if self._made is None or self._made[0] != (width, height):
            self._made = (width, height), self._plot_settings.view.plot(self._state, self.options, width, height)
        plot = self._made[1]
        if plot.request is None:
            return [*plot.above, *plot.below]
        view = self._plot_settings.view.id
        request = replace(plot.request, view=f"{view} {self._plot_settings.changes}")
        return [*plot.above, *self._pictures.picture(f"plot {view}", request).lines, *plot.below]


class PlotScreen(ModalScreen[None]):
    """The header, one view of the plots, and a footer with its keys."""

    BINDINGS = bindings("plots", *SHARED_WITH_PLOTS)

    def __init__(self, context: ActionContext, tree: ModuleTree, settings: PlotSettings) -> None:
        super().__init__()
        self._action_context, self._state, self._tree, self._plot_settings = context, context.state, tree, settings
        self.header = Header(context.state, id="header")
        self.finding = FindingLine(context.state, has_rows=False, id="finding")
        self.plot_view = PlotView(context.state, context.pictures, tree, settings)
        self._others = tuple(
            next(action for action in ACTIONS if action.id == id) for id in SHARED_WITH_PLOTS if id != _ABOVE
        )
        self.keys = KeyBar(self._actions(), id="keys")
        self._status_line = StatusLine()
        self._shown: tuple[object, ...] = ()
        self._watches: tuple[str, ...] = ()
        """Paths of the parameters for which the view, as last drawn, needs detailed measurements."""

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.finding
        yield self.plot_view
        yield self.keys
        yield self._status_line

    def on_mount(self) -> None:
        self.finding.update()
        self.call_after_refresh(self._chosen)

    # Contents

    @property
    def table(self) -> tuple[str, Table]:
        """The id and the data of the current view."""
        view = self._plot_settings.view
        return view.id, view.table(self._state, self.plot_view.options)

    def _to_watch(self) -> tuple[str, ...]:
        if not self._plot_settings.view.watches:
            return ()
        options = self.plot_view.options
        chosen = (options.selection,) if options.selection is not None else ()
        return to_watch(self._state.tree, (*options.pinned, *chosen) if self._plot_settings.view.pins else chosen)

    def visible_parts(self) -> list[str]:
        """Return the visible parts: there is only "plots"."""
        return ["plots"]

    def draw_header(self, facts: HeaderState) -> None:
        """Repaint the header, the line of the gravest finding, and the footer (which depends on the run's status)."""
        self.header.facts = facts
        self.header.redraw()
        self.finding.update()
        self.keys.show(self._actions())

    def show_status(self, status: Status | None) -> None:
        """Show a message above the footer, or nothing."""
        self._status_line.show_status(status)

    def draw(self, part: str) -> None:  # noqa: ARG002 - there is one
        """Redraw the view with the current data."""
        try:
            self.plot_view.renew()
            self._update_frame()
            before, self._watches = self._watches, self._to_watch()
            if self._watches != before:
                self._action_context.watched.watch(self._watches)
        except Exception as error:  # noqa: BLE001  # a view must never cost the screen
            self.plot_view.show_failure(error)

    def collect_pictures(self) -> None:
        """Show the chart that the plot server has drawn since it was requested."""
        self.plot_view.redraw()

    def _chosen(self) -> None:
        self.keys.show(self._actions())
        self.draw("plots")

    def _actions(self) -> list[Action]:
        return applicable(plot_footer(self._plot_settings.view, self._others), run_status(self._state))

    def _update_frame(self) -> None:
        view, plot = self._plot_settings.view, self.plot_view.plot
        tabs = [
            f"[bold $primary]{listed.title}[/]"
            if listed is view
            else f"[$foreground-muted @click=screen.show_view('{listed.id}')]{listed.title}[/]"
            for listed in VIEWS
        ]
        title = Content.from_markup(" [$foreground-muted]│[/] ".join(tabs))
        note = plot.note if plot is not None else ""
        # Setting the titles redraws the frame, so set them only if they changed.
        if (view, note) != self._shown:
            self._shown = (view, note)
            self.plot_view.border_title = title
            self.plot_view.border_subtitle = Content(note)

    # Actions; `plot_actions.PLOT_ACTIONS` describes each, `action_table.ACTIONS` those that the dashboard has too

    def action_request(self, name: str) -> None:
        self._action_context.request(name)

    def action_explain(self) -> None:
        open_explanation(self.app, self._action_context, self._tree.current)

    def action_findings(self) -> None:
        open_findings_list(self.app, self._action_context, self._show_row)

    def on_finding_line_pressed(self, message: FindingLine.Pressed) -> None:
        open_finding(self.app, self._action_context, message.finding, self._show_row)

    def _show_row(self, row: int | None) -> None:
        if row is not None:
            self._tree.show_row(row)
            self._plot_settings.changes += 1
            self._chosen()

    def action_export(self) -> None:
        export_plots(self.app, self._action_context, [self.table])

    def action_show_view(self, view: str, further: int = 0) -> None:
        self._plot_settings.show(view, further)
        self._chosen()

    def action_turn(self, further: int) -> None:
        self.action_show_view(self._plot_settings.view.id, further)

    def action_go(self, rows: int) -> None:
        self._tree.move_to(self._tree.cursor + rows)
        self._plot_settings.changes += 1
        self._chosen()

    def action_move(self, change: str, *arguments: float) -> None:
        """Zoom or pan by a method of `Window`, whose last arguments are the ends of what is drawn."""
        plot = self.plot_view.plot
        ends = plot.range if plot is not None else None
        if ends is not None:
            self._plot_settings.move(lambda window: getattr(window, change)(*arguments, *ends))
            self._chosen()

    def action_zoom_none(self) -> None:
        self._plot_settings.move(lambda _: Window())
        self._chosen()

    def action_newest(self) -> None:
        self._plot_settings.move(Window.at_end)
        self._chosen()

    def action_change(self, setting: str) -> None:
        """Call a method of the settings that takes the setting's next value."""
        getattr(self._plot_settings, setting)()
        self._chosen()

    def action_pin(self) -> None:
        trouble = self._plot_settings.pin(self._state.tree, self._tree.measured)
        if trouble is not None:
            self.notify(trouble, severity="warning")
        self._chosen()
