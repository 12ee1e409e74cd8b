"""The model tree: a flat list of visible rows, of which only those on the screen are drawn. UI thread.

It draws 100,000 rows as fast as ten. It stores a cursor, folds and a filter, and no facts about the run: every cell is read
from the `RunState` when it is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from textual import events
from textual.message import Message

from gradtui.protocol.commands import SetCheckpointing
from gradtui.run.state.backward.frontier import Frontier
from gradtui.run.state.changes.toggles import pending_parameters
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import has_trained, is_classified, next_problem
from gradtui.run.state.tree.rows import buffer_at
from gradtui.tui.actions import bindings, keymap_of
from gradtui.tui.rendering import BLANK, Line, fit, wrap
from gradtui.tui.tree.finding_rows import FindingRows
from gradtui.tui.tree.loading_card import FIRST_KEYS, loading_lines
from gradtui.tui.tree.module_order import CallRanks, Order, execution_sequence
from gradtui.tui.tree.sorting import SortedOrder
from gradtui.tui.tree.states_legend import states_legend
from gradtui.tui.tree.tree_cells import NOTHING_PENDING, PendingMarks, TreeCells
from gradtui.tui.tree.tree_columns import COLUMNS, SORTABLE, SPARK_WIDTH, columns_for
from gradtui.tui.tree.tree_reach import TreeReach
from gradtui.tui.tree.tree_rows import TreeRows
from gradtui.tui.tree.tree_totals import TreeTotals
from gradtui.tui.widgets import ScrollLines

_FREE_ROWS, _ROOM_FOR_MORE = 5, 16
_NONE = -1
"""The version of no structure."""


class ModuleTree(ScrollLines):
    """The rows of modules, parameters and buffers, with a cursor."""

    BINDINGS = bindings("tree")

    class CursorMoved(Message):
        """The cursor has moved. Who handles it draws all that depends on it, so that the screen is composed once."""

    class TitlesChanged(Message):
        """The titles of the columns have changed: other columns, or sorted by another one."""

    class ToggleClicked(Message):
        """The state of the row under the cursor was clicked."""

    class ExplainClicked(Message):
        """The user double-clicked a row."""

    def __init__(
        self,
        state: RunState,
        *,
        columns: Sequence[str] = COLUMNS,
        order: Order = "execution",
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._state = state
        self.first_keys: tuple[str, ...] = FIRST_KEYS
        """The ids of the actions that stand there until a model is found."""
        self._made_at = time.monotonic()
        # A viewer that comes later begins with a tree, which is taken in as one that has changed.
        self._version = state.tree.version if not state.tree.modules else _NONE
        self.chosen_columns = tuple(columns)
        """Names of the columns to show, the most important first."""
        self.order: Order = order
        self.sorted = SortedOrder()
        """The column by which the rows are sorted, and the step of their order."""
        self._ranks = CallRanks(state.tree)
        self.rows = TreeRows(state.tree)
        self._models: tuple[int, ...] = ()
        self._has_folded = False
        """Whether the user has folded or unfolded something. New models then leave the folds as they are."""
        self.totals = TreeTotals(state.tree, SPARK_WIDTH)
        """Sums over subtrees, as of the last drawing."""
        self.reach = TreeReach(state.tree)
        """Which modules backward reaches, as of the last drawing."""
        self.findings = FindingRows(state.tree)
        """Which rows open findings concern, as of the last drawing."""
        self._cells: TreeCells | None = None
        self._waiting: tuple[int, ...] = ()
        self._marks = NOTHING_PENDING
        self.cursor = 0

    @property
    def current(self) -> int | None:
        """The row under the cursor (see `tree_rows`), None if there are no rows."""
        return self.rows.rows[self.cursor] if self.cursor < len(self.rows) else None

    @property
    def measured(self) -> int | None:
        """The row under the cursor if its gradients are measured; None for a buffer."""
        row = self.current
        return row if row is None or buffer_at(self._state.tree, row) is None else None

    @property
    def frontier(self) -> Frontier | None:
        """Where backward stops in all models, as of the newest events; None if that is unknown."""
        if self._state.tree.version != self._version:
            return None
        self.reach.update()
        return self.reach.line

    def update(self) -> None:
        """Apply a new structure if there is one, and repaint the rows that changed."""
        self._take_in()
        newer = self.sorted.newer_rows(self._state.tree, self.totals) if self.sorted.column else None
        if newer is not None:
            self._keep_cursor_in_view(lambda: self.rows.sort(newer))
        self.redraw()

    def _take_in(self) -> None:
        tree = self._state.tree
        if tree.version != self._version:
            was, self._version = self._version, tree.version
            self._take_structure(was)
        self.totals.update(self._state)
        self.reach.update()
        self.findings.update(self._state.findings)
        if self._ranks.update() and self.order == "execution":
            self._put_in_order()

    def _put_in_order(self) -> None:
        ranks = self._ranks.ranks if self.order == "execution" else ()
        at = self.current
        self.rows.put_in_order(execution_sequence(self._state.tree.modules, ranks))
        self.cursor = (self.rows.position(at) if at is not None else None) or 0

    def _take_structure(self, was: int) -> None:
        tree, at = self._state.tree, self.current
        place = self.rows.place(at) if at is not None and was != _NONE else None
        models = tuple(model.number for model in tree.models)
        folds = self.rows.folds if place is not None and (self._has_folded or models == self._models) else None
        self._models = models
        self._waiting, self._marks = (), NOTHING_PENDING
        pattern = self.rows.filter
        self.rows = TreeRows(tree, folds, room=_room(self.content_size.height or self.app.size.height // 2))
        if pattern:
            self.rows.set_filter(pattern)
        self.totals = TreeTotals(tree, SPARK_WIDTH)
        self.reach, self.findings, self._ranks = TreeReach(tree), FindingRows(tree), CallRanks(tree)
        self.sorted.column = ""
        self.cursor = self.rows.go_to(place) if place is not None else 0
        self.post_message(self.CursorMoved())

    # Drawing

    def line_count(self, width: int) -> int:
        return len(self.rows) or len(self._empty(width))

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        # A key can repaint at any time, and then module rows must be as new as the parameter rows under them.
        self._take_in()
        state = self._state
        columns = columns_for(width - 1, self.chosen_columns)
        if self._cells is None or self._cells.rows is not self.rows or self._cells.columns != columns:
            self._cells = TreeCells(state.tree, self.rows, self.totals, columns, self.reach, self.findings)
        waiting = tuple(state.pending)
        if waiting != self._waiting:
            self._waiting, self._marks = waiting, PendingMarks(pending_parameters(state))
        self._cells.pending = self._marks
        self._cells.asked = frozenset(c.path for c in state.pending.values() if isinstance(c, SetCheckpointing))
        lines = super().lines_for(width, height)
        return [*lines, *self._below(width - 1, height - len(lines))] if len(self.rows) else lines

    def _below(self, width: int, room: int) -> list[Line]:
        """Return the lines for the free rows: the loss, from which the gradient rises, and at the bottom what states mean."""
        loss: list[Line] = []
        if room <= 0:
            return loss
        if self.order == "execution" and self._ranks.ranks and not self.rows.filter and not self.sorted.column:
            loss = [fit(((" ", ""), ("● ", "gradients"), ("loss", "muted")), width)]
        legend = states_legend(self._state.tree, width, room - len(loss)) if is_classified(self._state.tree) else []
        return [*loss, *[BLANK] * (room - len(loss) - len(legend)), *legend]

    def line_at(self, index: int, width: int) -> Line:
        if not len(self.rows):
            return fit(self._empty(width)[index], width)
        if self._cells is None:
            return ()
        line = self._cells.line(self.rows.rows[index])
        if index != self.cursor:
            return line
        ground = "cursor" if self.has_focus else "cursor-blurred"
        return tuple((text, f"{role}@{ground}") for text, role in line)

    def sort_by(self, column: str) -> None:
        """List the rows sorted by a column of `SORTABLE`, the largest first; an empty name shows the tree."""
        self.totals.update(self._state)
        rows = self.sorted.rows(self._state.tree, self.totals, column)
        self._keep_cursor(lambda: self.rows.sort(rows))
        self.post_message(self.CursorMoved())
        self.post_message(self.TitlesChanged())

    def shows_column(self, name: str) -> bool:
        """Whether a column of `COLUMNS` is chosen, and there is room for it."""
        return len(columns_for(self.content_size.width - 1, self.chosen_columns).cells_of(name)) > 0

    def toggle_column(self, name: str) -> None:
        """Hide a column of `COLUMNS` if it is shown; otherwise show it, instead of others if there is no room for all."""
        others = tuple(column for column in self.chosen_columns if column != name)
        self.chosen_columns = others if self.shows_column(name) else (name, *others)
        self.redraw()
        self.post_message(self.TitlesChanged())

    def _empty(self, width: int) -> list[Line]:
        action = keymap_of(self.app).action
        if self.rows.filter:
            text = f"No row matches {self.rows.filter!r}. {action('back').key_text} shows every row again."
        elif self.sorted.column and self._state.tree.modules:
            reasons = {
                "saved": "As far as steps have been sampled, autograd keeps nothing for backward in any module.",
                "time": "No sampled step has been timed yet.",
            }
            reason = reasons.get(self.sorted.column, "The model has no parameters to sort.")
            text = f"{reason} {action('sort').key_text} shows another order."
        elif self._state.ended is None:
            seconds = max(self._state.seconds, time.monotonic() - self._made_at)
            lines = loading_lines(self._state, map(action, self.first_keys), seconds, max(1, width - 2))
            return [((" ", ""), *line) for line in lines]
        elif has_trained(self._state):
            text = "The script trained something, but no module was found."
        else:
            text = "The script ended without training in this process: no module was called and no optimizer was made."
        return [((" ", ""), *line) for line in wrap(((text, "muted"),), max(1, width - 2))]

    # Cursor

    def move_to(self, index: int) -> None:
        """Move the cursor to a visible row, scrolling as far as needed."""
        if not len(self.rows):
            return
        index = min(max(0, index), len(self.rows) - 1)
        self.sorted.touched()
        moved, self.cursor = index != self.cursor, index
        height = max(1, self.content_size.height)
        self.top = min(max(self.top, index - height + 1), index)
        if moved:
            self.post_message(self.CursorMoved())
        else:
            self.redraw()

    def show_row(self, row: int) -> None:
        """Move the cursor to a row; unfold its ancestors, clear the filter and end the sorted list if they hide it."""
        self.rows.reveal(row)
        if self.sorted.column and not self.rows.is_sorted:
            self.sorted.column = ""
            self.post_message(self.TitlesChanged())
        self.move_to(self.rows.position(row) or 0)

    def to_next_problem(self) -> bool:
        """Move to the next parameter whose state needs attention; return False if there is none."""
        at = self.current
        tree = self._state.tree
        after = -1 if at is None else ~at if at < 0 else tree.modules[at].first_parameter - 1
        found = next_problem(tree, after)
        if found is None:
            return False
        self.show_row(~found)
        return True

    def set_filter(self, text: str) -> None:
        """Filter the rows by path. The cursor stays on its row if that matches, else it moves to the first match."""
        at = self.current
        self.rows.set_filter(text)
        where = self.rows.position(at) if at is not None and self.rows.is_match(at) else None
        if where is None:
            where = next((i for i, row in enumerate(self.rows.rows) if self.rows.is_match(row)), 0)
        self.cursor, self.top = min(where, max(0, len(self.rows) - 1)), 0
        self.move_to(self.cursor)
        self.redraw()
        self.post_message(self.CursorMoved())

    def _fold(self, module: int, folded: bool) -> None:
        self._has_folded = True
        self.rows.set_folded(module, folded)
        self.move_to(self.rows.position(module) or 0)

    def _keep_cursor(self, change: Callable[[], None]) -> None:
        row = self.current
        change()
        while row is not None and self.rows.position(row) is None:
            row = self.rows.parent(row)
        self.move_to(self.rows.position(row) or 0 if row is not None else 0)

    def _keep_cursor_in_view(self, change: Callable[[], None]) -> None:
        """Change the order of the rows. The cursor stays on its row, and the view scrolls only if it would leave that."""
        row, height = self.current, max(1, self.content_size.height)
        was_visible = self.top <= self.cursor < self.top + height
        change()
        self.cursor = (self.rows.position(row) if row is not None else None) or 0
        if was_visible:
            self.top = min(max(self.top, self.cursor - height + 1), self.cursor)

    # Actions; `action_table.ACTIONS` describes each

    def action_cursor_up(self) -> None:
        self.move_to(self.cursor - 1)

    def action_cursor_down(self) -> None:
        self.move_to(self.cursor + 1)

    def action_page_up(self) -> None:
        self.move_to(self.cursor - max(1, self.content_size.height - 1))

    def action_page_down(self) -> None:
        self.move_to(self.cursor + max(1, self.content_size.height - 1))

    def action_first_row(self) -> None:
        self.move_to(0)

    def action_last_row(self) -> None:
        self.move_to(len(self.rows) - 1)

    def action_sort(self) -> None:
        columns = ("", *SORTABLE)
        self.sort_by(columns[(columns.index(self.sorted.column) + 1) % len(columns)])

    def action_change_order(self) -> None:
        self.order = "registration" if self.order == "execution" else "execution"
        self._put_in_order()
        self.move_to(self.cursor)

    def action_fold_or_parent(self) -> None:
        row = self.current
        if row is None or self.sorted.column:
            return
        if row >= 0 and self.rows.has_children(row) and not self.rows.is_folded(row):
            self._fold(row, True)
            return
        parent = self.rows.parent(row)
        if parent is not None:
            self.move_to(self.rows.position(parent) or 0)

    def action_unfold_or_child(self) -> None:
        row = self.current
        if row is None or row < 0 or self.sorted.column or not self.rows.has_children(row):
            return
        if self.rows.is_folded(row):
            self._fold(row, False)
        else:
            self.move_to(self.cursor + 1)

    def action_toggle_fold(self) -> None:
        row = self.current
        module = row if row is None or row >= 0 else self.rows.parent(row)
        if module is not None and not self.sorted.column:
            self._fold(module, not self.rows.is_folded(module))

    def unfold_stack(self) -> bool:
        """Unfold the selected row if it is a folded stack of blocks; return whether it was."""
        row = self.current
        is_folded = row is not None and row >= 0 and row in self.rows.stacks and self.rows.is_folded(row)
        if row is None or not is_folded or self.sorted.column:
            return False
        self._fold(row, False)
        return True

    def action_fold_all(self) -> None:
        self._has_folded = True
        self._keep_cursor(self.rows.fold_all)

    def action_unfold_all(self) -> None:
        self._has_folded = True
        self._keep_cursor(self.rows.unfold_all)

    # Mouse

    def on_click(self, event: events.Click) -> None:
        """Select a row. A click on an arrow folds, on the state of the selected row toggles it, a double click explains."""
        offset = event.get_content_offset(self)
        if offset is None or not len(self.rows) or self._cells is None:
            return
        index = self.top + offset.y
        if index >= len(self.rows):
            return
        was_there, row = index == self.cursor, self.rows.rows[index]
        self.move_to(index)
        marker = self._cells.marker_column(row)
        if row >= 0 and marker <= offset.x <= marker + 1:
            self.action_toggle_fold()
        elif offset.x in self._cells.columns.cells_of("state"):
            if was_there:
                self.post_message(self.ToggleClicked())
        elif event.chain == 2:
            self.post_message(self.ExplainClicked())


def _room(height: int) -> int:
    """Return the rows that a new tree may fill: some stay free for the loss and what the states mean, in a low panel one."""
    return height - _FREE_ROWS if height >= _ROOM_FOR_MORE else height - 1
