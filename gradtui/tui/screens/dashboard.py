"""The main screen: the layout of its panels, which of them are visible, and how each part is redrawn. UI thread."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.screen import Screen

from gradtui.state.run_state import RunState
from gradtui.state.selectors import run_status
from gradtui.tui.actions import bindings, footer_actions
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.panels import (
    EventsPanel,
    GradientPanel,
    Header,
    HeaderState,
    MemoryPanel,
    OutputLog,
    OutputPanel,
    gradient_title,
    memory_table,
    memory_title,
)
from gradtui.tui.plots.rows import is_part, selection_of
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import is_wide
from gradtui.tui.tree import ModuleTree, TreePane
from gradtui.tui.widgets import KeyBar, LineView, ScrollLines

TALL = 45
"""From this screen height in rows on, the memory panel has room for its curve."""

PANELS = ("memory", "gradients", "output", "events")
_BELOW = ("output", "events")
_TAB_NAMES = {"memory": "Memory", "gradients": "Gradients", "output": "Output", "events": "Events"}
_ROOM_FOR_NAMES = 96
"""From this screen width in columns on, the full names of all panels fit beside each other in one title."""
_SHORT_TAB_NAMES = {"memory": "Mem", "gradients": "Grad", "output": "Output", "events": "Events"}

INTERVALS: dict[str, float] = {
    "tree": 1.0, "memory": 1.0, "memory_curve": 5.0, "gradients": 2.0, "output": 0.5, "events": 0.5, "plots": 2.0,
}  # fmt: skip
"""Minimum seconds between two redraws of each part."""


class Dashboard(Screen[None]):
    """The tree on the left with the other panels around it; on a narrow screen, one of them beside it."""

    BINDINGS = bindings("dashboard")
    AUTO_FOCUS = "#tree"

    def __init__(self, state: RunState, log: OutputLog | None, pictures: Pictures) -> None:
        super().__init__()
        self._state = state
        self.header = Header(state, id="header")
        self.pane = TreePane(state, id="tree-pane")
        self.memory = MemoryPanel(state, pictures, id="memory")
        self.gradients = GradientPanel(state, pictures, id="gradients")
        self.output = OutputPanel(state, log, id="output")
        self.events = EventsPanel(state, id="events")
        self.keys = KeyBar(footer_actions(), id="keys")
        self._wide = True
        self._below = "output"
        self._beside = "memory"
        self._titles: dict[str, tuple[object, ...]] = {}
        self._draw: dict[str, Callable[[], None]] = {
            "tree": self.pane.update,
            "memory": self.memory.redraw,
            "memory_curve": self.memory.redraw_curve,
            "gradients": self.gradients.redraw_curve,
            "output": self.output.update,
            "events": self.events.update,
        }

    @property
    def tree_view(self) -> ModuleTree:
        """The model tree."""
        return self.pane.tree_view

    def compose(self) -> ComposeResult:
        yield self.header
        # The container keeps the panels out of the compositing of a header that changed.
        with Container(id="body"):
            yield self.pane
            yield self.memory
            yield self.gradients
            yield self.output
            yield self.events
        yield self.keys

    def on_mount(self) -> None:
        self._wide = is_wide(self.app.size.width, self.app.size.height)
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        self._wide = is_wide(event.size.width, event.size.height)
        self._arrange()

    def on_descendant_focus(self) -> None:
        self._show_keys()

    def _show_keys(self) -> None:
        focused = self.focused.id if self.focused is not None else None
        self.keys.show(footer_actions(focused, run_status(self._state)))

    # Drawing

    def visible_parts(self) -> list[str]:
        """Return the visible parts, in the order in which they are drawn if all are due."""
        shown = ["tree", *(name for name in PANELS if self._is_shown(name))]
        return [*shown, "memory_curve"] if self._is_shown("memory") else shown

    def draw_header(self, facts: HeaderState) -> None:
        """Repaint the header and the footer (which depends on the run's status) if they changed."""
        self.header.facts = facts
        self.header.redraw()
        self._show_keys()

    def draw(self, part: str) -> None:
        """Redraw a part of the screen. If that raises, the part shows the error."""
        try:
            if part == "gradients":
                # A filter also moves the cursor, and its `CursorMoved` message stops at the pane around the tree.
                self.select()
            self._draw[part]()
            self._set_titles(part)
        except Exception as error:  # noqa: BLE001  # a panel must never cost the screen
            (self.tree_view if part == "tree" else self._panel(part)).show_failure(error)

    def tables(self) -> list[tuple[str, Table]]:
        """Return the name and the data of each visible plot."""
        from gradtui.tui.plots.norms import norm_table
        from gradtui.tui.plots.options import PlotOptions

        options = PlotOptions(selection=self.gradients.selection)
        found = [("norm", norm_table(self._state, options))] if self._is_shown("gradients") else []
        if self._is_shown("memory") and self.memory.shows_curve:
            found.append(("memory", memory_table(self._state)))
        return found

    def collect_pictures(self) -> None:
        """Show the charts that the plot server has drawn since they were requested."""
        for name, panel in (("memory", self.memory), ("gradients", self.gradients)):
            if self._is_shown(name):
                panel.redraw()

    def select(self) -> None:
        """Show the curve of the row under the tree's cursor in the gradient panel."""
        row, tree = self.tree_view.measured, self._state.tree
        chosen = selection_of(tree, row) if row is not None else None
        # The curve of the whole model is the total, which is drawn anyway.
        drawn = row is not None and chosen is not None and (row < 0 or is_part(tree, chosen))
        self.gradients.selection = chosen if drawn else None

    # Visible panels

    @property
    def shows_newest_events(self) -> bool:
        """Whether the newest event lines are visible."""
        return self._is_shown("events") and self.events.follows

    def _is_shown(self, name: str) -> bool:
        if self._wide:
            return name not in _BELOW or name == self._below
        return name == self._beside

    def _arrange(self) -> None:
        self.set_class(self._wide, "-wide")
        self.set_class(self.app.size.height >= TALL, "-tall")
        self.set_class(not self._wide, "-narrow")
        for name in PANELS:
            self._panel(name).display = self._is_shown(name)
            self._set_titles(name)
        focused = self.focused
        if focused is not None and not focused.display:
            self.tree_view.focus()

    def _panel(self, name: str) -> LineView:
        panels: dict[str, LineView] = {
            "memory": self.memory, "memory_curve": self.memory, "gradients": self.gradients,
            "output": self.output, "events": self.events,
        }  # fmt: skip
        return panels[name]

    def _set_titles(self, name: str) -> None:
        if name not in PANELS:
            return
        note = (
            memory_title(self._state)
            if name == "memory"
            else gradient_title(self._state)
            if name == "gradients"
            else ""
        )
        key = (self._wide, self.app.size.width >= _ROOM_FOR_NAMES, self._below, self._beside, note)
        if self._titles.get(name) == key:
            return
        self._titles[name] = key
        panel = self._panel(name)
        muted_note = Content.styled(note, "$foreground-muted")
        if self._wide and name not in _BELOW:
            title = "Gradient norm" if name == "gradients" else _TAB_NAMES[name]
            panel.border_title = Content.assemble((f"{title}  ", "bold"), muted_note)
            panel.border_subtitle = ""
            return
        panel.border_title = self._tabs(name)
        panel.border_subtitle = muted_note

    def _tabs(self, active: str) -> Content:
        names = _BELOW if self._wide else PANELS
        labels = _TAB_NAMES if self.app.size.width >= _ROOM_FOR_NAMES else _SHORT_TAB_NAMES
        tabs = [
            f"[bold $primary]{labels[name]}[/]"
            if name == active
            else f"[$foreground-muted @click=screen.show_{name}]{labels[name]}[/]"
            for name in names
        ]
        return Content.from_markup(" [$foreground-muted]│[/] ".join(tabs))

    def show_panel(self, name: str) -> None:
        """Make a panel visible."""
        if name in _BELOW:
            self._below = name
        self._beside = name
        self._arrange()
        self.call_after_refresh(self.draw, name)

    # Actions; `action_table.ACTIONS` describes each

    def action_next_panel(self) -> None:
        names = _BELOW if self._wide else PANELS
        now = self._below if self._wide else self._beside
        self.show_panel(names[(names.index(now) + 1) % len(names)])

    def action_show_memory(self) -> None:
        if self._is_shown("memory"):
            (self.tree_view if self.memory.has_focus else self.memory).focus()
        else:
            self.show_panel("memory")

    def action_show_gradients(self) -> None:
        if self._is_shown("gradients"):
            self.gradients.post_message(GradientPanel.PlotsWanted())
        else:
            self.show_panel("gradients")

    def action_show_output(self) -> None:
        self.show_panel("output")

    def action_show_events(self) -> None:
        self.show_panel("events")

    def action_move_focus(self) -> None:
        shown = [self.tree_view, *(self._panel(name) for name in PANELS if self._is_shown(name))]
        stops = [view for view in shown if view.can_focus]
        now = next((index for index, view in enumerate(stops) if view is self.focused), -1)
        stops[(now + 1) % len(stops)].focus()

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
        if not self.tree_view.to_next_problem():
            self.notify("No parameter needs a look.", timeout=3)
