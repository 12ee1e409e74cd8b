"""The main screen: its panels, how each part is redrawn, and the actions on the run and on the selected row. UI thread.

Dialogs and plots are imported when they first open, so that the first paint does not wait for the import.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.command import Provider
from textual.screen import Screen

from gradtui.state.findings import open_findings
from gradtui.state.selectors import run_status
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import JobTail
from gradtui.tui.actions import Action, bindings, footer_actions, keymap_of
from gradtui.tui.panels import (
    ChangesPanel,
    CurvesPanel,
    EventsPanel,
    FindingLine,
    Header,
    HeaderState,
    MemoryPanel,
    OutputPanel,
    RanksPanel,
    WhyPanel,
    curves_title,
    memory_table,
)
from gradtui.tui.plots.rows import is_part, selection_of
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
    open_findings_list,
    open_memory,
    open_question,
)
from gradtui.tui.screens.panel_layout import PANELS, PanelLayout
from gradtui.tui.screens.second_press import SecondPress
from gradtui.tui.tree import ModuleTree, TreePane, first_row
from gradtui.tui.widgets import KeptContainer, KeptStrips, KeyBar, LineView, ScrollLines, StatusMessage

if TYPE_CHECKING:
    from gradtui.tui.plots.settings import PlotSettings
    from gradtui.tui.screens.plots import PlotScreen


class Dashboard(Screen[None], KeptStrips):
    """The tree on the left, the curves and the memory beside it, below it why the selected row is in its state, and tabs."""

    BINDINGS = bindings("dashboard")
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {ActionCommands}
    AUTO_FOCUS = "#tree"
    replays = False
    """Whether this is the screen of a recording."""

    def __init__(self, context: ActionContext, log: LogTail | JobTail | None) -> None:
        super().__init__()
        self._action_context, self._state = context, context.state
        state, pictures = context.state, context.pictures
        self.header = Header(state, id="header")
        self.finding = FindingLine(state, id="finding")
        self.pane = TreePane(state, id="tree-pane")
        self.memory = MemoryPanel(state, id="memory")
        self.gradients = CurvesPanel(state, pictures, id="gradients")
        self.why = WhyPanel(state, lambda: self.tree_view.frontier, context.ask_planner, id="why")
        self.changes = ChangesPanel(state, id="changes")
        self.output = OutputPanel(state, log, id="output")
        self.events = EventsPanel(state, id="events")
        self.ranks = RanksPanel(state, id="ranks")
        self.second_press = SecondPress(self, state, self.why)
        self.keys = KeyBar(footer_actions(), id="keys")
        self._panels = PanelLayout()
        self._titles: dict[str, tuple[PanelLayout, str]] = {}
        self._draw: dict[str, Callable[[], None]] = {
            "tree": self.pane.update,
            "memory": self.memory.redraw,
            "gradients": self.gradients.redraw_curve,
            "why": self.why.update,
            "changes": self.changes.redraw,
            "output": self.output.update,
            "events": self.events.update,
            "ranks": self.ranks.update,
        }
        self.on_drawn: Callable[[str], None] = lambda _: None
        """Called with the name of each part that was drawn."""
        self._plots: PlotScreen | None = None
        self._plot_settings: PlotSettings | None = None
        self._visited: tuple[str, str] | None = None
        """Rule and key of the finding to which `next_problem` went last."""

    @property
    def tree_view(self) -> ModuleTree:
        """The model tree."""
        return self.pane.tree_view

    @property
    def plots(self) -> PlotScreen | None:
        """The plots screen above this one, None if it is closed."""
        return self._plots if self._plots is not None and self._plots in self.app.screen_stack else None

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.finding
        # The container keeps the panels out of the compositing of a header that changed.
        with KeptContainer(id="body"):
            # The grid places them in this order.
            yield self.pane
            yield self.gradients
            yield self.memory
            yield self.why
            yield self.changes
            yield self.output
            yield self.events
            yield self.ranks
        yield self.keys

    def on_mount(self) -> None:
        actions = map(self._action, ("toggle_trainable", "toggle_checkpointing"))
        self.why.key, self.why.checkpoint_key = (action.key_text for action in actions)
        self._arrange(replace(self._panels, width=self.app.size.width, height=self.app.size.height))

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(replace(self._panels, width=event.size.width, height=event.size.height))

    def on_descendant_focus(self) -> None:
        self._show_keys()

    def on_module_tree_cursor_moved(self) -> None:
        self.tree_view.redraw()
        self.select()
        self.second_press.cancel()
        self.why.update()

    def on_module_tree_toggle_clicked(self) -> None:
        self.action_request("toggle_trainable")

    def on_module_tree_explain_clicked(self) -> None:
        self.action_explain()

    def _show_keys(self) -> None:
        focused = self.focused.id if self.focused is not None else None
        self.keys.show(footer_actions(focused, run_status(self._state), replays=self.replays))

    # Drawing

    def visible_parts(self) -> list[str]:
        """Return the visible parts, in the order in which they are drawn if all have changed."""
        return ["tree", *(name for name in PANELS if self._panels.is_shown(name))]

    def draw_header(self, facts: HeaderState) -> None:
        """Repaint the header, the line of the gravest finding, and the footer (which depends on the run's status)."""
        if self._state.job is not None and not self._panels.has_ranks:
            self._arrange(replace(self._panels, has_ranks=True, below="ranks"))
        self.header.facts = facts
        self.header.redraw()
        self.finding.update()
        self._show_keys()

    def draw(self, part: str) -> None:
        """Redraw a part of the screen. If that raises, the part shows the error."""
        try:
            self._draw[part]()
            self._set_titles(part)
        except Exception as error:  # noqa: BLE001  # a panel must never cost the screen
            (self.tree_view if part == "tree" else self._panel(part)).show_failure(error)
        self.on_drawn(part)

    def draw_pending(self) -> None:
        """Show which commands are pending, in each part that says so."""
        for part in ("tree", "why", "changes", "events"):
            self.draw(part)

    def tables(self) -> list[tuple[str, Table]]:
        """Return the name and the data of each visible plot."""
        from gradtui.tui.plots.norms import norm_table
        from gradtui.tui.plots.options import PlotOptions

        options = PlotOptions(selection=self.gradients.selection)
        found = [("norm", norm_table(self._state, options))] if self._panels.is_shown("gradients") else []
        if self._panels.is_shown("memory") and self.memory.shows_curve:
            found.append(("memory", memory_table(self._state)))
        return found

    def collect_pictures(self) -> None:
        """Show the charts that the plot server has drawn since they were requested."""
        if self._panels.is_shown("gradients"):
            self.gradients.redraw()

    def select(self) -> None:
        """Show the curve of the row under the tree's cursor in the panel of the curves."""
        row, tree = self.tree_view.measured, self._state.tree
        self.why.row = self.tree_view.current
        chosen = selection_of(tree, row) if row is not None else None
        # The curve of the whole model is the total, which is drawn anyway.
        drawn = row is not None and chosen is not None and (row < 0 or is_part(tree, chosen))
        self.gradients.select(chosen if drawn else None)

    # Visible panels

    @property
    def shows_newest_events(self) -> bool:
        """Whether the newest event lines are visible."""
        return self._panels.is_shown("events") and self.events.follows

    def show_panel(self, name: str) -> None:
        """Make a panel visible."""
        self._arrange(self._panels.showing(name))
        self.call_after_refresh(self.draw, name)

    def _arrange(self, panels: PanelLayout) -> None:
        self._panels = panels
        self.set_class(panels.is_wide, "-wide")
        self.set_class(not panels.is_wide, "-narrow")
        self.set_class(panels.memory_is_high, "-memory-is-high")
        upper, why, below = panels.rows
        first = upper * 9 // 20 if panels.is_wide else upper // 2
        rows = [f"{first}fr", f"{upper - first}fr", *(str(row) for row in (why, below) if row)]
        self.query_one("#body").styles.grid_rows = " ".join(rows)
        for name in PANELS:
            self._panel(name).display = panels.is_shown(name)
            self._set_titles(name)
        focused = self.focused
        if focused is not None and not focused.display:
            self.tree_view.focus()

    def _panel(self, name: str) -> LineView:
        panels: dict[str, LineView] = {
            "memory": self.memory, "gradients": self.gradients, "why": self.why,
            "changes": self.changes, "output": self.output, "events": self.events,
            "ranks": self.ranks,
        }  # fmt: skip
        return panels[name]

    def _set_titles(self, name: str) -> None:
        if name not in PANELS or name == "why":
            return
        room = self._panels.room_for_note(name, self._panel(name).size.width)
        notes: dict[str, Callable[[], str]] = {
            "memory": lambda: self.memory.title(room),
            "gradients": lambda: curves_title(self._state, room),
            "output": lambda: self.output.title,
        }
        note = notes.get(name, str)()
        # Setting the titles redraws the frame, so set them only if they changed.
        if self._titles.get(name) != (self._panels, note):
            self._titles[name] = (self._panels, note)
            panel = self._panel(name)
            panel.border_title, panel.border_subtitle = self._panels.titles(name, note)

    # Actions that change the run; `action_table.ACTIONS` describes each action

    async def action_on_row(self, id: str) -> None:
        action = self._action(id)
        explains_panel = id == "explain" and self.focused in (self.memory, self.ranks)
        if self.focused in (None, self.tree_view) or explains_panel:
            await self.run_action(action.name)
        else:
            where = f"{action.key_text} ({action.label}) acts on the row under the tree's cursor"
            self.notify(f"{where}: {self._action('back').key_text} goes back to the tree.", severity="warning")

    def _action(self, id: str) -> Action:
        """Return an action with its keys in force."""
        return keymap_of(self.app).action(id)

    def action_request(self, name: str) -> None:
        row = self.tree_view.current
        if not self.second_press.holds_back(name, row):
            self._action_context.request(name, row)

    def action_ask(self, name: str) -> None:
        open_question(self.app, self._action_context, name)

    def action_open(self, name: str) -> None:
        DIALOGS[name](self.app, self._action_context)

    # Actions that explain and write down

    def action_explain(self) -> None:
        if self.memory.has_focus:
            open_memory(self.app, self._action_context)
        elif self.ranks.has_focus:
            self.action_show_rank(self.ranks.current)
        elif not self.tree_view.unfold_stack():
            open_explanation(self.app, self._action_context, self.tree_view.current)

    def action_show_rank(self, rank: int | None) -> None:
        self._action_context.send(show_rank(self._state, rank))

    def on_ranks_panel_rank_chosen(self) -> None:
        self.action_show_rank(self.ranks.current)

    def action_findings(self) -> None:
        open_findings_list(self.app, self._action_context, self._show_row)

    def on_finding_line_pressed(self, message: FindingLine.Pressed) -> None:
        open_finding(self.app, self._action_context, message.finding, self._show_row)

    def _show_row(self, row: int | None) -> None:
        if row is not None:
            self.tree_view.focus()
            self.tree_view.show_row(row)

    def action_export(self) -> None:
        export_plots(self.app, self._action_context, self.tables())

    def action_export_schedule(self) -> None:
        export_schedule(self.app, self._action_context)

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
        if self.plots is not None:
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
        if self._panels.is_shown("output"):
            self.output.show_next_rank()
            self._set_titles("output")
        self.show_panel("output")

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
            open_finding(self.app, self._action_context, finding, self._show_row)
            return
        self._show_row(row)
        if finding is not found[0]:
            # The line under the header shows another one.
            self._action_context.say(StatusMessage(finding.message, f"{finding.level} {finding.rule}"))

    def action_next_parameter(self) -> None:
        if not self.tree_view.to_next_problem():
            self.notify("No parameter has a problem.")
