"""The frame around the tree: its title, the column titles, and the input line of the filter. UI thread."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from gradtui.run.state.findings import open_findings
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import problem_count
from gradtui.run.state.tree_state import TreeState
from gradtui.run.text.units import count_text, plural, steps_of
from gradtui.tui.actions import keymap_of
from gradtui.tui.rendering import BLANK, Line, elide, printable
from gradtui.tui.tree.states_legend import legend_line
from gradtui.tui.tree.tree_columns import column_words, columns_for
from gradtui.tui.tree.tree_totals import TreeTotals
from gradtui.tui.tree.view import ModuleTree
from gradtui.tui.widgets import KeptStrips, LineView

_ROOM_FOR_WORDS = 58
_NAME = len("─Model  ")
_MIN_ROWS_WITH_LEGEND = 8
_BETWEEN = " · "


def tree_title(tree: TreeState, totals: TreeTotals, width: int) -> str:
    """Describe the size of the models and how much of them is trainable, in more words if the frame is wide enough."""
    if not tree.parameters:
        return ""
    every = range(len(tree.parameters))
    elements, train = count_text(totals.count(every)).strip(), count_text(totals.trainable(every)).strip()
    if width < _ROOM_FOR_WORDS:
        forms = (f"{train} of {elements} trainable", f"{train} of {elements} train", f"{train} train")
        return next((form for form in forms if len(form) <= width - _NAME), forms[-1])
    names = " + ".join(printable(model.type_name) for model in tree.models)
    return f"{elide(names, width - _ROOM_FOR_WORDS + 12)}, {elements} parameters, {train} trainable"


class ColumnTitles(LineView):
    """The line of column titles above the tree, blank until there are rows."""

    def __init__(self, state: RunState, tree_view: ModuleTree, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state, self._tree_view = state, tree_view

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        view = self._tree_view
        return [
            columns_for(width - 1, view.chosen_columns).header(view.sorted.column)
            if self._state.tree.modules
            else BLANK
        ]


class StatesLegend(LineView):
    """The line below a tree without free rows that says what the words for frozen parameters mean."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        return [legend_line(self._state.tree, width)]


class TreePane(Vertical, KeptStrips):
    """The column titles, the tree and the filter line in one frame."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self.tree_view = ModuleTree(state, id="tree")
        self.filter_input = Input(placeholder="path or glob", compact=True, id="filter")
        self.filter_input.display = False
        self.filter_input.cursor_blink = False
        self.border_title = Content.assemble(("Model", "bold"))
        self._columns = ColumnTitles(state, self.tree_view, id="columns")
        self._legend = StatesLegend(state, id="states")
        self._legend.display = False
        self._titles: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield self._columns
        yield self.tree_view
        yield self._legend
        yield self.filter_input

    def update(self) -> None:
        """Repaint the rows and titles that changed."""
        self.tree_view.update()
        self._columns.redraw()
        self._update_legend()
        self._update_titles()

    def _update_legend(self) -> None:
        """Show the line where the frame is low and the rows of the tree leave no room for what the words mean."""
        rows, height = len(self.tree_view.rows), self.content_size.height - 1
        wanted = self._is_narrow and rows > height - 3 and height >= _MIN_ROWS_WITH_LEGEND
        self._legend.display = wanted and bool(legend_line(self._state.tree, self.content_size.width))
        if self._legend.display:
            self._legend.redraw()

    @property
    def _is_narrow(self) -> bool:
        return self.screen.has_class("-narrow")

    def on_module_tree_titles_changed(self) -> None:
        self.update()

    def on_resize(self) -> None:
        self._update_titles()

    def open_filter(self) -> None:
        """Show the filter line and focus it."""
        self.filter_input.display = True
        self.filter_input.focus()

    def keep_filter(self) -> None:
        """Focus the tree. The filter stays active and visible if there is one."""
        self.filter_input.display = bool(self.filter_input.value)
        self.tree_view.focus()

    def clear_filter(self) -> None:
        """Clear the filter and focus the tree."""
        self.filter_input.value = ""
        self.filter_input.display = False
        self.tree_view.set_filter("")
        self.tree_view.focus()
        self._update_titles()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self.tree_view.rows.filter:
            self.tree_view.set_filter(event.value)
            self._report_cursor()
            self._update_titles()

    def on_key(self, event: events.Key) -> None:
        """Move the cursor of the tree while the filter has the focus."""
        rows = {"up": -1, "down": 1}.get(event.key)
        if rows is not None and self.filter_input.has_focus:
            event.stop()
            event.prevent_default()
            self.tree_view.move_to(self.tree_view.cursor + rows)
            self._report_cursor()

    def _report_cursor(self) -> None:
        # A message that a child sends while this widget handles another one does not bubble beyond this widget.
        self.post_message(ModuleTree.CursorMoved())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.keep_filter()

    def _update_titles(self) -> None:
        rows = self.tree_view.rows
        problems = problem_count(self._state.tree)
        matching = ("1 row matches" if rows.matches == 1 else f"{rows.matches:,} rows match") if rows.filter else ""
        action = keymap_of(self.app).action
        key = action("next_parameter" if open_findings(self._state.findings) else "next_problem").key_text
        by = self._order_words() if self.tree_view.sorted.column else ""
        ages = self._age_words() if self.tree_view.totals.ages.old else ""
        wrong = f"{key} {plural(problems, 'parameter')} with a problem" if problems else ""
        room = self.content_size.width - 4 - sum(len(text) + len(_BETWEEN) for text in (matching, by, wrong) if text)
        ages = ages if len(ages) <= room else ""
        width = self.content_size.width
        if self._is_narrow and width < _ROOM_FOR_WORDS:
            # Without a frame below it, the title says where backward stops, and the size in what room is left.
            least = len(tree_title(self._state.tree, self.tree_view.totals, 0))
            words = self.tree_view.reach.words(width - _NAME - least - len(_BETWEEN))
            left = width - (len(words) + len(_BETWEEN) if words else 0)
            size, stops = (
                _BETWEEN.join(filter(None, (tree_title(self._state.tree, self.tree_view.totals, left), words))),
                "",
            )
        else:
            stops = self.tree_view.reach.words(room - (len(ages) + len(_BETWEEN) if ages else 0))
            size = tree_title(self._state.tree, self.tree_view.totals, width)
        titles = (size, matching, by, wrong, ages, stops)
        if titles == self._titles:
            return
        self._titles = titles
        self.border_title = Content.assemble(("Model", "bold"), (f"  {size}" if size else "", "$foreground-muted"))
        muted = "$foreground-muted"
        parts = [(by, "$primary"), (ages, muted), (stops, muted), (matching, muted), (wrong, "$warning")]
        shown = [part for part in parts if part[0]]
        self.border_subtitle = Content.styled(_BETWEEN, "$foreground-muted").join(
            Content.styled(text, style) for text, style in shown
        )

    def _order_words(self) -> str:
        """Say by which column the rows are sorted, and as of which step, because they are not sorted again at every step."""
        order = self.tree_view.sorted
        at = f" at step {order.step:,}" if order.step is not None else ""
        return f"sorted by {order.column}{at} · {keymap_of(self.app).action('sort').key_text}: next"

    def _age_words(self) -> str:
        """Name the steps of the columns with old values: their cells have no room for it."""
        view, totals = self.tree_view, self.tree_view.totals
        norms = totals.ages.norms_step
        steps = {
            "norm": (norms, norms) if norms is not None else None,
            "ratio": totals.ratio_steps(range(len(self._state.tree.parameters))),
        }
        return _BETWEEN.join(
            f"{column_words(name)[0]} of {steps_of(*of)}"
            for name, of in steps.items()
            if of is not None and of[0] in totals.ages.old and view.shows_column(name)
        )
