"""The panels of the dashboard: their places, how each part is redrawn, and the titles of their frames. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from textual import events
from textual.app import ComposeResult

from gradtui.run.state.selectors import run_status
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import JobTail
from gradtui.tui.actions import Action, footer_actions, keymap_of
from gradtui.tui.panels import (
    ChangesPanel,
    CurvesPanel,
    EventsPanel,
    HeaderState,
    MemoryPanel,
    OutputPanel,
    RanksPanel,
    WhyPanel,
    curves_title,
)
from gradtui.tui.plots.rows import is_part, selection_of
from gradtui.tui.screens.action_context import ActionContext
from gradtui.tui.screens.front_screen import FrontScreen
from gradtui.tui.screens.panel_layout import PANELS, PanelLayout
from gradtui.tui.tree import ModuleTree, TreePane
from gradtui.tui.widgets import KeptContainer, KeptStrips, LineView


class PanelScreen(FrontScreen, KeptStrips):
    """The tree on the left, the curves and the memory beside it, below it why the selected row is in its state, and tabs."""

    AUTO_FOCUS = "#tree"
    replays = False
    """Whether this is the screen of a recording."""

    def __init__(self, context: ActionContext, log: LogTail | JobTail | None) -> None:
        super().__init__(context, has_rows=True)
        state, pictures = context.state, context.pictures
        self.pane = TreePane(state, id="tree-pane")
        self.memory = MemoryPanel(state, pictures, id="memory")
        self.gradients = CurvesPanel(state, pictures, id="gradients")
        self.why = WhyPanel(state, lambda: self.tree_view.frontier, context.ask_planner, id="why")
        self.changes = ChangesPanel(state, id="changes")
        self.output = OutputPanel(state, log, id="output")
        self.events = EventsPanel(state, id="events")
        self.ranks = RanksPanel(state, id="ranks")
        self._panels = PanelLayout()
        self._titles: dict[str, tuple[PanelLayout, str]] = {}
        self._draw: dict[str, Callable[[], None]] = {
            "tree": self._draw_tree,
            "memory": self.memory.update,
            "gradients": self.gradients.redraw_curve,
            "why": self.why.update,
            "changes": self.changes.redraw,
            "output": self.output.update,
            "events": self.events.update,
            "ranks": self.ranks.update,
        }
        self.on_drawn: Callable[[str], None] = lambda _: None
        """Called with the name of each part that was drawn."""

    @property
    def tree_view(self) -> ModuleTree:
        """The model tree."""
        return self.pane.tree_view

    def contents(self) -> ComposeResult:
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

    def on_mount(self) -> None:
        actions = map(self._action, ("toggle_trainable", "toggle_checkpointing", "undo"))
        self.why.key, self.why.checkpoint_key, self.why.undo_key = (
            action.key_text if action.keys else "" for action in actions
        )
        self._arrange(replace(self._panels, width=self.app.size.width, height=self.app.size.height))

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(replace(self._panels, width=event.size.width, height=event.size.height))

    def on_descendant_focus(self) -> None:
        self.show_keys()

    def show_keys(self) -> None:
        focused = self.focused.id if self.focused is not None else None
        self.keys.show(footer_actions(focused, run_status(self._state), replays=self.replays, toggle=self.why.verb))

    # Drawing

    def visible_parts(self) -> list[str]:
        """Return the visible parts, in the order in which they are drawn if all have changed."""
        return ["tree", *(name for name in PANELS if self._panels.is_shown(name))]

    def draw_header(self, facts: HeaderState) -> None:
        """Repaint the header, the line of the gravest finding, and the footer (which depends on the run's status)."""
        if self._state.job is not None and not self._panels.has_ranks:
            self._arrange(replace(self._panels, has_ranks=True, below="ranks"))
        super().draw_header(facts)

    def draw(self, part: str) -> None:
        """Redraw a part of the screen. If that raises, the part shows the error."""
        try:
            self._draw[part]()
            self._set_titles(part)
        except Exception as error:  # noqa: BLE001  # a panel must never cost the screen
            (self.tree_view if part == "tree" else self._panel(part)).show_failure(error)
        self.on_drawn(part)

    def _draw_tree(self) -> None:
        self.pane.update()
        self._follow_tree()

    def _follow_tree(self) -> None:
        """Show beside the curves the norms of the step that the tree shows, which may be drawn at another time."""
        self.gradients.follow(self.tree_view.totals.ages.norms_step)

    def draw_pending(self) -> None:
        """Show which commands are pending, in each part that says so."""
        for part in ("tree", "why", "changes", "events"):
            self.draw(part)

    def collect_pictures(self) -> None:
        """Show the charts that the plot server has drawn since they were requested."""
        if self._panels.is_shown("gradients"):
            self.gradients.redraw()
        if self._panels.is_shown("memory"):
            self.memory.redraw()

    def select(self) -> None:
        """Show the curve of the row under the tree's cursor in the panel of the curves."""
        row, tree = self.tree_view.measured, self._state.tree
        self.why.row = self.tree_view.current
        chosen = selection_of(tree, row) if row is not None else None
        # The curve of the whole model is the total, which is drawn anyway.
        drawn = row is not None and chosen is not None and (row < 0 or is_part(tree, chosen))
        self.gradients.select(chosen if drawn else None)
        self._follow_tree()

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
        first = panels.curve_rows
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
            "gradients": lambda: curves_title(self._state, room, is_wide=self._panels.is_wide),
            "output": lambda: self.output.title,
        }
        note = notes.get(name, str)()
        # Setting the titles redraws the frame, so set them only if they changed.
        if self._titles.get(name) != (self._panels, note):
            self._titles[name] = (self._panels, note)
            panel = self._panel(name)
            panel.border_title, panel.border_subtitle = self._panels.titles(name, note)

    def _action(self, id: str) -> Action:
        """Return an action with its keys in force."""
        return keymap_of(self.app).action(id)
