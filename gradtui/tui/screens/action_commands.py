"""The commands of the palette. UI thread."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.types import IgnoreReturnCallbackType

from gradtui.run.state.selectors import RunStatus
from gradtui.tui.actions import ACTIONS, applicable, keymap_of
from gradtui.tui.requests.shown_rank import ranks_to_show
from gradtui.tui.tree import ALL_COLUMNS, ModuleTree, column_words


class ActionCommands(Provider):
    """The commands of the palette: the actions of the table that can be done from the dashboard, with their keys."""

    async def discover(self) -> Hits:
        for title, help, run in sorted(self._commands(), key=lambda command: command[0]):
            yield DiscoveryHit(title, run, help=help)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for title, help, run in self._commands():
            if (match := matcher.match(title)) > 0:
                yield Hit(match, matcher.highlight(title), run, help=help)

    def _commands(self) -> Iterator[tuple[str, str, IgnoreReturnCallbackType]]:
        replays = getattr(self.screen, "replays", False)
        for action in keymap_of(self.app).apply(applicable(ACTIONS, RunStatus.RUNNING, replays=replays)):
            if action.in_palette:
                target = self.screen.query_one(ModuleTree) if action.scope == "tree" else self.screen
                title = action.title + (f"  {action.key_text}" if action.keys else "")
                yield title, action.help, partial(self.app.run_action, action.name, target)
        yield from self._column_commands()
        yield from self._rank_commands()

    def _column_commands(self) -> Iterator[tuple[str, str, IgnoreReturnCallbackType]]:
        tree = self.screen.query_one(ModuleTree)
        for name in ALL_COLUMNS:
            title, meaning = column_words(name)
            does = "Hide" if tree.shows_column(name) else "Show"
            yield f"{does} column {title}", meaning, partial(tree.toggle_column, name)

    def _rank_commands(self) -> Iterator[tuple[str, str, IgnoreReturnCallbackType]]:
        state = getattr(self.app, "run_state", None)
        for rank in ranks_to_show(state) if state is not None else ():
            does = "Show the tree, the curves and the memory of this rank."
            yield f"Show rank {rank}", does, partial(self.app.run_action, f"show_rank({rank})", self.screen)
