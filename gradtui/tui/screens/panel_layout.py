"""Which panels are visible, how many rows each has, and the titles of their frames. Pure."""

from __future__ import annotations

from dataclasses import replace

from textual.content import Content

from gradtui.dataclass import dataclass

PANELS = ("gradients", "memory", "why", "changes", "output", "events", "ranks")
_BESIDE = ("gradients", "memory")

_WIDE, _HIGH = 100, 30
"""From this screen size on, panels have whole frames, and *why* is below the tree only."""

_ROOM_FOR_CHANGES = 34
"""From this height of a wide screen on, the changes have a place of their own; otherwise they are a tab below."""

_ROOM_FOR_WHY = 18
"""From this height on, the selected row is explained."""

_ROOM_FOR_BOTH = 9
"""From this number of rows on, curves and memory are above each other; otherwise one of them is visible."""

_MAX_MEMORY = 15
"""Rows of the memory panel with its frame, beyond which the curves have more use for them."""

_NAMES = {
    "gradients": "Loss · ‖g‖", "memory": "Memory", "why": "Why", "changes": "Changes", "output": "Output",
    "events": "Events", "ranks": "Ranks",
}  # fmt: skip
_SHORT_NAMES = {**_NAMES, "gradients": "Loss"}

_BESIDE_TITLE, _BESIDE_TITLE_NARROW = 8, 4
"""Cells of the frame's upper edge that the corners and the gaps around the title take."""


@dataclass(frozen=True)
class PanelLayout:
    """The tree with the curves and the memory beside it, *why* below it, and one of the tabs at the bottom."""

    width: int = 160
    height: int = 50
    """The size of the screen; before it is known, that of a wide one."""
    below: str = "output"
    """The tab that is visible."""
    has_ranks: bool = False
    """Whether the run is a job of several ranks, which have a tab."""
    beside: str = "gradients"
    """The panel beside the tree where only one has room."""

    @property
    def is_wide(self) -> bool:
        """Whether panels have whole frames."""
        return self.width >= _WIDE and self.height >= _HIGH

    @property
    def output_columns(self) -> int:
        """The cells of a line of the output panel: the width to report to progress bars."""
        frame_padding_and_thumb = 5 if self.is_wide else 3
        return max(10, self.width - frame_padding_and_thumb)

    @property
    def rows(self) -> tuple[int, int, int]:
        """The rows of the upper part, of *why* and of the tabs, with their frames; 0 for what has no room."""
        body = self.height - 3
        if self.is_wide:
            why, below = (7, 6) if self.height < 44 else (9, 6)
            if self.height < _ROOM_FOR_CHANGES:
                why, below = 7, 5
        else:
            why = 0 if self.height < _ROOM_FOR_WHY else 4 if self.height < _HIGH else 5
            below = 2 if self.height < 14 else 3 if self.height < _ROOM_FOR_WHY else 4 if self.height < _HIGH else 7
        return max(1, body - why - below), why, below

    @property
    def curve_rows(self) -> int:
        """The rows of the curves of the upper part; the others are of the memory, which has its fill on a high screen."""
        upper = self.rows[0]
        return upper - min(upper * 11 // 20, _MAX_MEMORY) if self.is_wide else -(-upper // 2)

    @property
    def has_room_for_changes(self) -> bool:
        """Whether the changes have a place of their own."""
        return self.is_wide and self.height >= _ROOM_FOR_CHANGES

    @property
    def memory_is_high(self) -> bool:
        """Whether the memory panel takes the place beside *why* too."""
        return self.is_wide and not self.has_room_for_changes

    @property
    def tabs(self) -> tuple[str, ...]:
        """The panels that share the place at the bottom."""
        tabs = ("output", "events") if self.has_room_for_changes else ("output", "events", "changes")
        tabs = ("ranks", *tabs) if self.has_ranks else tabs
        return tabs if self._shows_both else (*tabs, *(name for name in _BESIDE if name != self.beside))

    @property
    def _shows_both(self) -> bool:
        return self.rows[0] >= _ROOM_FOR_BOTH

    def is_shown(self, name: str) -> bool:
        """Return whether a panel is visible."""
        if name == "why":
            return self.rows[1] > 0
        if name in _BESIDE:
            return self._shows_both or name == self.beside
        if name == "changes" and self.has_room_for_changes:
            return True
        return name == self.below

    def showing(self, name: str) -> PanelLayout:
        """Return the layout in which a panel is visible."""
        if name in _BESIDE:
            return replace(self, beside=name)
        return replace(self, below=name) if name in self.tabs else self

    @property
    def next_tab(self) -> str:
        """The tab whose turn it is to be visible."""
        tabs = [name for name in self.tabs if name not in _BESIDE]
        return tabs[(tabs.index(self.below) + 1) % len(tabs)] if self.below in tabs else tabs[0]

    def room_for_note(self, name: str, width: int) -> int:
        """Return the cells for a note behind the name of a panel whose content is `width` cells wide."""
        return width - len(self._names[name]) - (_BESIDE_TITLE if self.is_wide else _BESIDE_TITLE_NARROW)

    @property
    def _names(self) -> dict[str, str]:
        return _NAMES if self.is_wide else _SHORT_NAMES

    def titles(self, name: str, note: str) -> tuple[Content, Content]:
        """Return the title and the subtitle of a panel's frame: its name or the tabs, and a note."""
        muted_note = Content.styled(note, "$foreground-muted")
        if name not in self.tabs:
            gap = "  " if self.is_wide else " "
            own = f"{self._names[name]}{gap}" if note else self._names[name]
            return Content.assemble((own, "bold" if self.is_wide else ""), muted_note), Content("")
        tabs = [
            f"[bold $primary]{_NAMES[tab]}[/]"
            if tab == name
            else f"[$foreground-muted @click=screen.show_{tab}]{_SHORT_NAMES[tab]}[/]"
            for tab in self.tabs
        ]
        title = Content.from_markup(" [$foreground-muted]│[/] ".join(tabs))
        # Narrow panels have no frame below them.
        return (
            (title, muted_note)
            if self.is_wide or not note
            else (Content.assemble(title, "  ", muted_note), Content(""))
        )
