"""The main screen: the actions on the run, on the selected row and on the panels. UI thread.

Dialogs and plots are imported when they first open, so that the first paint does not wait for the import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from textual.command import Provider

from gradtui.run.state.findings import open_findings
from gradtui.run.state.selectors import run_status
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import JobTail
from gradtui.tui.actions import ACTIONS, bindings, keymap_of
from gradtui.tui.panels import memory_table
from gradtui.tui.plots.table import Table
from gradtui.tui.requests.shown_rank import show_rank
from gradtui.tui.screens.action_commands import ActionCommands
from gradtui.tui.screens.action_context import (
    DIALOGS,
    ActionContext,
    export_plots,
    export_schedule,
    open_explanation,
    open_finding,
    open_memory,
    open_question,
)
from gradtui.tui.screens.panel_layout import PANELS
from gradtui.tui.screens.panel_screen import PanelScreen
from gradtui.tui.screens.second_press import SecondPress
from gradtui.tui.tree import first_row
from gradtui.tui.widgets import ScrollLines, StatusMessage

if TYPE_CHECKING:
    from gradtui.tui.plots.settings import PlotSettings
    from gradtui.tui.screens.output import OutputScreen
    from gradtui.tui.screens.plots import PlotScreen


class Dashboard(PanelScreen):
    """The main screen of a run."""

    BINDINGS = bindings("dashboard")
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionCommands}

    def __init__(self, context: ActionContext, log: LogTail | JobTail | None) -> None:
        super().__init__(context, log)
        self.second_press = SecondPress(self, context.state, self.why)
        self._plots: PlotScreen | None = None
        self._full_output: OutputScreen | None = None
        self._plot_settings: PlotSettings | None = None
        self._visited: tuple[str, str] | None = None
        """Rule and key of the finding to which `next_problem` went last."""

    @property
    def above(self) -> PlotScreen | OutputScreen | None:
        """The screen that hides this one, None if there is none."""
        output = self._full_output
        return self.plots or (output if output is not None and output in self.app.screen_stack else None)

    @property
    def plots(self) -> PlotScreen | None:
        """The plots screen above this one, None if it is closed."""
        return self._plots if self._plots is not None and self._plots in self.app.screen_stack else None

    def on_module_tree_cursor_moved(self) -> None:
        self.tree_view.redraw()
        self.select()
        self.second_press.cancel()
        self.why.update()
        self.show_keys()

    def on_module_tree_toggle_clicked(self) -> None:
        self.action_request("toggle_trainable")

    def on_module_tree_explain_clicked(self) -> None:
        self.action_explain()

    def tables(self) -> list[tuple[str, Table]]:
        """Return the name and the data of each visible plot."""
        from gradtui.tui.plots.norms import norm_table
        from gradtui.tui.plots.options import PlotOptions

        options = PlotOptions(selection=self.gradients.selection)
        found = [("norm", norm_table(self._state, options))] if self._panels.is_shown("gradients") else []
        if self._panels.is_shown("memory") and self.memory.shows_curve:
            found.append(("memory", memory_table(self._state)))
        return found

    # Actions that change the run; `action_table.ACTIONS` describes each action

    async def action_on_row(self, id: str) -> None:
        action = self._action(id)
        explains_panel = id == "explain" and self.focused in (self.memory, self.ranks, self.output)
        if self.focused in (None, self.tree_view) or explains_panel:
            await self.run_action(action.name)
        else:
            where = f"{action.key_text} ({action.label}) acts on the row under the tree's cursor"
            self.notify(f"{where}: {self._action('back').key_text} goes back to the tree.", severity="warning")

    def action_request(self, name: str) -> None:
        row = self.tree_view.current
        if not self.second_press.holds_back(name, row):
            self._action_context.request(name, row)

    def action_ask(self, name: str) -> None:
        open_question(self.app, self._action_context, name, self.tree_view.current)

    def action_open(self, name: str) -> None:
        DIALOGS[name](self.app, self._action_context)

    # Actions that explain and write down

    def action_explain(self) -> None:
        if self.memory.has_focus:
            open_memory(self.app, self._action_context)
        elif self.output.has_focus:
            self.action_fill_with_output()
        elif self.ranks.has_focus:
            self.action_show_rank(self.ranks.current)
        elif not self.tree_view.unfold_stack():
            open_explanation(self.app, self._action_context, self.tree_view.current)

    def action_show_rank(self, rank: int | None) -> None:
        self._action_context.send(show_rank(self._state, rank))

    def on_ranks_panel_rank_chosen(self) -> None:
        self.action_show_rank(self.ranks.current)

    def show_row(self, row: int | None) -> None:
        if row is not None:
            self.tree_view.focus()
            self.tree_view.show_row(row)

    def action_export(self) -> None:
        export_plots(self.app, self._action_context, self.tables())

    def action_export_schedule(self) -> None:
        export_schedule(self.app, self._action_context)

    def open_help(self) -> None:
        """Open the help about the keys that act now."""
        from gradtui.tui.screens.help import HelpDialog, here

        focused = self.app.screen.focused if self.above is not None else self.focused
        place = "plot" if self.plots is not None else focused.id if focused is not None else None
        keys = keymap_of(self.app)
        pressed = here(place, run_status(self._state), keys, replays=self.replays)
        self.app.push_screen(HelpDialog(keys.apply(ACTIONS), pressed))

    # Actions on the panels

    def action_next_panel(self) -> None:
        self.show_panel(self._panels.next_tab)

    def action_show_memory(self) -> None:
        if self._panels.is_shown("memory"):
            self.memory.focus()
            self.memory.switch_view()
            self._set_titles("memory")
        else:
            self.show_panel("memory")

    def action_show_gradients(self) -> None:
        if self.memory.has_focus:
            self._open_plots("memory")
        elif self._panels.is_shown("gradients"):
            self._open_plots()
        else:
            self.show_panel("gradients")

    def on_curves_panel_plots_wanted(self) -> None:
        self._open_plots()

    def _open_plots(self, view: str = "") -> None:
        if self.above is not None:
            return
        from gradtui.tui.plots.settings import PlotSettings
        from gradtui.tui.screens.plots import PlotScreen

        if self._plot_settings is None:
            self._plot_settings = PlotSettings()
        if view:
            self._plot_settings.show(view)
        self._plots = PlotScreen(self._action_context, self.tree_view, self._plot_settings)
        self.app.push_screen(self._plots, self._plots_closed)

    def _plots_closed(self, _: None) -> None:
        self._action_context.watched.watch(())
        for part in self.visible_parts():
            self.draw(part)

    def action_show_output(self) -> None:
        if self._panels.is_shown("output") and self.output.has_ranks:
            self.output.show_next_rank()
            self._set_titles("output")
        elif self._panels.is_shown("output"):
            self.action_fill_with_output()
            return
        self.show_panel("output")

    def action_fill_with_output(self) -> None:
        if self.output.source is None:
            self.notify("The output of this run is not captured.", severity="warning")
        elif self.above is None:
            from gradtui.tui.screens.output import OutputScreen

            self._full_output = OutputScreen(self._action_context, self.output)
            self.app.push_screen(self._full_output, self._output_closed)

    def on_output_panel_fill_wanted(self) -> None:
        self.action_fill_with_output()

    def _output_closed(self, _: None) -> None:
        self._full_output = None  # it has up to 100,000 lines
        for part in self.visible_parts():
            self.draw(part)

    def action_show_changes(self) -> None:
        self.show_panel("changes")

    def action_show_events(self) -> None:
        self.show_panel("events")

    def action_show_ranks(self) -> None:
        if self._panels.is_shown("ranks"):
            self.ranks.focus()
        else:
            self.show_panel("ranks")

    def action_move_focus(self) -> None:
        shown = [self.tree_view, *(self._panel(name) for name in PANELS if self._panels.is_shown(name))]
        stops = [view for view in shown if view.can_focus]
        now = next((index for index, view in enumerate(stops) if view is self.focused), -1)
        stops[(now + 1) % len(stops)].focus()

    # Actions on the tree

    def action_filter(self) -> None:
        self.pane.open_filter()

    def action_keep_filter(self) -> None:
        self.pane.keep_filter()

    def action_back(self) -> None:
        if self.focused is None or self.focused in (self.tree_view, self.pane.filter_input):
            self.pane.clear_filter()
        else:
            self.tree_view.focus()

    def action_one_down(self) -> None:
        focused = self.focused
        if focused is self.memory:
            self.memory.move(1)
        elif isinstance(focused, ScrollLines) and focused is not self.tree_view:
            focused.scroll_lines(1)
        else:
            self.tree_view.move_to(self.tree_view.cursor + 1)

    def action_next_problem(self) -> None:
        found = open_findings(self._state.findings)
        if not found:
            self.action_next_parameter()
            return
        keys = [(finding.rule, finding.key) for finding in found]
        at = (keys.index(self._visited) + 1) % len(found) if self._visited in keys else 0
        finding, self._visited = found[at], keys[at]
        row = first_row(self._state.tree, finding)
        if row is None:
            open_finding(self.app, self._action_context, finding, self.show_row)
            return
        self.show_row(row)
        if finding is not found[0]:
            # The line under the header shows another one.
            self._action_context.say(StatusMessage(finding.message, f"{finding.level} {finding.rule}"))

    def action_next_parameter(self) -> None:
        if not self.tree_view.to_next_problem():
            self.notify("No parameter has a problem.")
