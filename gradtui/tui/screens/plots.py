"""The full-screen plots: one view at a time, with keys to zoom, pan and smooth. UI thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from textual import events
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget

from gradtui.run.state.over_steps.markers import Marker
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import run_status
from gradtui.tui.actions import ACTIONS, SHARED_WITH_PLOTS, Action, applicable, bindings, keymap_of
from gradtui.tui.charts.cursor import columns_of, with_cursor, x_at
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.explanations.mark_lines import mark_words
from gradtui.tui.plots.cursor import marks_at
from gradtui.tui.plots.footer import plot_footer
from gradtui.tui.plots.metrics import shown_metrics
from gradtui.tui.plots.options import Plot, PlotOptions
from gradtui.tui.plots.plot_state import MetricChoice, PlotState, Span
from gradtui.tui.plots.rows import to_watch
from gradtui.tui.plots.settings import VIEWS, PlotSettings
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import Line, fit, printable
from gradtui.tui.screens.action_context import (
    ActionContext,
    export_plots,
    open_explanation,
)
from gradtui.tui.screens.front_screen import FrontScreen
from gradtui.tui.tree import ModuleTree
from gradtui.tui.widgets import LineView

_FRAME = 4
"""Cells of the frame beside its title."""


class PlotView(LineView):
    """The current view: lines of text above and below a chart."""

    class Clicked(Message):
        """The user clicked the chart at a place of its axis."""

        def __init__(self, at: float) -> None:
            super().__init__()
            self.at = at

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

    @property
    def marks(self) -> tuple[list[Marker], bool]:
        """The marks at the cursor, and True; if it is at none, the nearest ones, and False."""
        plot, at = self.plot, self.options.cursor
        if plot is None or plot.request is None or plot.request.x_limits is None or at is None:
            return [], False
        first, last = plot.request.x_limits
        return marks_at(plot.marks, at, (last - first) / max(1, columns_of(plot.request)) / 2)

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        settings = self._plot_settings
        view, reads_marks = settings.view, settings.has_cursor and settings.view.axis == "steps"
        if self._made is None or self._made[0] != (width, height):
            self._made = (width, height), view.plot(self._state, self.options, width, height - reads_marks)
        plot = self._made[1]
        if plot.request is None:
            return [*plot.above, *plot.below]
        request = replace(plot.request, view=f"{view.id} {settings.changes}")
        picture: Sequence[Line] = self._pictures.picture(f"plot {view.id}", request).lines
        cursor = self.options.cursor
        if cursor is not None:
            picture = with_cursor(picture, request, cursor)
        return [*plot.above, *picture, *([self._mark_line(width)] if reads_marks else []), *plot.below]

    def _mark_line(self, width: int) -> Line:
        """Say what the marks at the cursor are, or the nearest ones."""
        marks, is_at = self.marks
        if not marks:
            return fit((("No change, spike or finding is marked here.", "faint"),), width)
        where = () if is_at else ((f"nearest, step {marks[0].step:,}:  ", "muted"),)
        more = f"   {keymap_of(self.app).action('explain').key_text} says more"
        return fit((*where, *mark_words(marks), (more, "faint")), width)

    def on_click(self, event: events.Click) -> None:
        """Read the curves at the place that was clicked."""
        offset, plot = event.get_content_offset(self), self.plot
        if offset is None or plot is None or plot.request is None:
            return
        at = x_at(plot.request, offset.x)
        if at is not None:
            self.post_message(self.Clicked(at))


class PlotScreen(FrontScreen, ModalScreen[None]):
    """The header, one view of the plots, and a footer with its keys."""

    BINDINGS = bindings("plots", *SHARED_WITH_PLOTS)

    def __init__(self, context: ActionContext, tree: ModuleTree, settings: PlotSettings) -> None:
        super().__init__(context)
        self._tree, self._plot_settings = tree, settings
        self.plot_view = PlotView(context.state, context.pictures, tree, settings)
        self._others = tuple(
            next(action for action in ACTIONS if action.id == id) for id in SHARED_WITH_PLOTS if id != "findings"
        )
        self._shown: tuple[object, ...] = ()
        self._watches: tuple[str, ...] = ()
        """Paths of the parameters for which the view, as last drawn, needs detailed measurements."""

    def contents(self) -> Iterable[Widget]:
        return (self.plot_view,)

    def on_mount(self) -> None:
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

    def show_keys(self) -> None:
        self.keys.show(self._actions())

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
        self.draw("plots")
        self.keys.show(self._actions())

    def _actions(self) -> list[Action]:
        settings = self._plot_settings
        others = self._others
        if self.plot_view.marks[0]:
            # The one action that is another one while the cursor reads; it comes first then.
            event = replace(next(action for action in others if action.id == "explain"), label="event")
            listed = plot_footer(settings.view, tuple(action for action in others if action.id != "explain"))
            return applicable([*listed[:4], event, *listed[4:]], run_status(self._state))
        return applicable(plot_footer(settings.view, others), run_status(self._state))

    def _update_frame(self) -> None:
        view, plot = self._plot_settings.view, self.plot_view.plot
        tabs = [
            f"[bold $primary]{listed.title}[/]"
            if listed.id == view.id
            else f"[$foreground-muted @click=screen.show_view('{listed.id}')]{listed.title}[/]"
            for listed in VIEWS
        ]
        # Where not all tabs fit, the current one stands for them.
        if sum(len(listed.title) + 3 for listed in VIEWS) + _FRAME > self.plot_view.size.width:
            at = [listed.id for listed in VIEWS].index(view.id) + 1
            tabs = [f"[bold $primary]{view.title}[/] [$foreground-muted]{at} of {len(VIEWS)}[/]"]
        title = " [$foreground-muted]│[/] ".join(tabs)
        note = plot.note if plot is not None else ""
        # Setting the titles redraws the frame, so set them only if they changed.
        if (title, note) != self._shown:
            self._shown = (title, note)
            self.plot_view.border_title = Content.from_markup(title)
            self.plot_view.border_subtitle = Content(note)

    # Actions; `plot_actions.PLOT_ACTIONS` describes each, `action_table.ACTIONS` those that the dashboard has too

    def action_request(self, name: str) -> None:
        self._action_context.request(name)

    def action_explain(self) -> None:
        """Explain the marks at the cursor, or else the selected row."""
        marks, _ = self.plot_view.marks
        if marks:
            from gradtui.tui.screens.marks import MarkDialog

            self.app.push_screen(MarkDialog(self._state, marks))
        else:
            open_explanation(self.app, self._action_context, self._tree.current)

    def show_row(self, row: int | None) -> None:
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

    def action_choose_metric(self) -> None:
        """Open the list of metrics."""
        from gradtui.tui.screens.metrics import MetricDialog

        if not self._state.metrics.by_name:
            self.notify("The script has logged no metric so far.")
            return
        self.action_show_view("metrics")
        self.app.push_screen(MetricDialog(self._state), self._choose_metric)

    def _choose_metric(self, choice: MetricChoice | None) -> None:
        if choice is not None:
            self._plot_settings.change(lambda chosen: replace(chosen, metric=choice))
            self._chosen()

    def action_next_metric(self, further: int) -> None:
        if self._plot_settings.view.has_metrics:
            self._plot_settings.show_next_quantity(self._state, further)
            self._chosen()

    def action_change_axis(self) -> None:
        if not self._plot_settings.view.has_metrics:
            return
        if not self._state.metrics.has_epochs:
            self.notify("The epoch is unknown: the script logs none, and no DataLoader tells it.")
            return
        self.action_change("over_other_axis")

    def action_read_further(self, direction: int) -> None:
        """Move the cursor that reads all curves."""
        if self.plot_view.plot is not None:
            self._plot_settings.read_further(self.plot_view.plot, direction)
            self._chosen()

    def action_read_at_mark(self, direction: int) -> None:
        """Move the cursor to a mark."""
        plot = self.plot_view.plot
        if plot is None or self._plot_settings.view.axis != "steps":
            return
        if not self._plot_settings.read_at_mark(plot, direction):
            self.notify("Nothing is marked yet: no change, spike or finding.")
        self._chosen()

    def on_plot_view_clicked(self, message: PlotView.Clicked) -> None:
        if self.plot_view.plot is not None:
            self._plot_settings.read_at(self.plot_view.plot, message.at)
            self._chosen()

    def action_zoom(self, factor: float) -> None:
        self._over_axis(lambda chosen, axis, whole: chosen.zoomed(axis, factor, whole))

    def action_pan(self, direction: int) -> None:
        self._over_axis(lambda chosen, axis, whole: chosen.panned(axis, direction, whole))

    def action_oldest(self) -> None:
        self._over_axis(lambda chosen, axis, whole: chosen.at_start(axis, whole))

    def action_newest(self) -> None:
        self._over_axis(lambda chosen, axis, _: chosen.at_end(axis))

    def action_zoom_none(self) -> None:
        self._over_axis(lambda chosen, axis, _: chosen.whole(axis))

    def _over_axis(self, change: Callable[[PlotState, str, Span], PlotState]) -> None:
        view, plot = self._plot_settings.view, self.plot_view.plot
        if view.zooms and plot is not None and plot.range is not None:
            whole = plot.range
            self._plot_settings.change(lambda chosen: change(chosen, view.axis, whole))
            self._chosen()

    def action_change(self, change: str) -> None:
        """Call a method of what is chosen, which returns the next value of a setting."""
        self._plot_settings.change(lambda chosen: getattr(chosen, change)())
        self._chosen()

    def action_pin(self) -> None:
        """Pin the selected row to the plot, or the first metric of it to the header."""
        if self._plot_settings.view.has_metrics:
            self._pin_metric()
            return
        trouble = self._plot_settings.pin(self._state.tree, self._tree.measured)
        if trouble is not None:
            self.notify(trouble, severity="warning")
        self._chosen()

    def _pin_metric(self) -> None:
        metrics = self._state.metrics
        shown = shown_metrics(metrics, self._plot_settings.chosen.metric).metrics
        if shown:
            # The newest of its quantity is mostly the one of the validation, for which people wait.
            name = next((each.name for each in shown if each.side == "validation"), shown[0].name)
            metrics.pinned = "" if metrics.pinned == name else name
            self.notify(f"{printable(name)} is {'in the header' if metrics.pinned else 'no longer in the header'}.")
            self._chosen()
