"""The frame around the tree: its title, the names of the columns, and the line in which a filter is typed. UI thread."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from gradtui.state.run_state import RunState
from gradtui.state.selectors import problem_count
from gradtui.tui.formatting import count_text
from gradtui.tui.panels.module_tree import ColumnTitles, ModuleTree


class FilterInput(Input):
    """Where the filter is typed; it stays in sight as long as the filter is in force."""


def tree_title(state: RunState, trainable: int | None) -> str:
    """How large the models are and how much of them trains."""
    tree = state.tree
    if not tree.parameters:
        return ""
    elements = count_text(sum(tree.parameters[i].count for i in range(len(tree.parameters)))).strip()
    return f"{elements} parameters, {count_text(trainable).strip()} trainable"


class TreePane(Vertical):
    """Column names, tree and filter line in one frame."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self.tree_view = ModuleTree(state, id="tree")
        self.filter_input = FilterInput(placeholder="path or glob", compact=True, id="filter")
        self._titles: tuple[str, str, int] = ("", "", 0)
        self._counted: tuple[int, str] = (-1, "")
        self._size_text = ""

    def compose(self) -> ComposeResult:
        self.border_title = Content.assemble(("Model", "bold"))
        self.filter_input.display = False
        self.filter_input.cursor_blink = False
        yield ColumnTitles(id="columns")
        yield self.tree_view
        yield self.filter_input

    def update(self) -> None:
        """Repaint what changed."""
        self.tree_view.update()
        self._update_titles()

    def open_filter(self) -> None:
        """Show the filter line and type into it."""
        self.filter_input.display = True
        self.filter_input.focus()

    def clear_filter(self) -> None:
        """Show every row again and go back to the tree."""
        self.filter_input.value = ""
        self.filter_input.display = False
        self.tree_view.set_filter("")
        self.tree_view.focus()
        self._update_titles()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self.tree_view.rows.filter:
            self.tree_view.set_filter(event.value)
            self._update_titles()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.filter_input.display = bool(event.value)
        self.tree_view.focus()

    def _update_titles(self) -> None:
        rows = self.tree_view.rows
        problems = problem_count(self._state.tree)
        matching = f"{rows.matches:,} rows match" if rows.filter else ""
        titles = (self._model_text(), matching, problems)
        if titles == self._titles:
            return
        self._titles = titles
        self.border_title = Content.assemble(("Model", "bold"), (f"  {titles[0]}" if titles[0] else "", "$foreground-muted"))
        look = f"! {problems:,} need a look" if problems else ""
        parts = [(matching, "$foreground-muted"), (look, "$warning")]
        shown = [part for part in parts if part[0]]
        self.border_subtitle = Content("  ").join(Content.styled(text, style) for text, style in shown)

    def _model_text(self) -> str:
        tree = self._state.tree
        if self._counted != (tree.version, tree.trainable):
            self._counted = (tree.version, tree.trainable)
            known = [self.tree_view.totals.trainable(tree.modules[model.root]) for model in tree.models]
            trainable = None if None in known or not known else sum(count or 0 for count in known)
            self._size_text = tree_title(self._state, trainable)
        return self._size_text
