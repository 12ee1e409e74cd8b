"""Which panels are visible beside and below the tree, and the titles of their frames. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from textual.content import Content

PANELS = ("memory", "gradients", "output", "events")
_BELOW = ("output", "events")

_WIDE, _HIGH = 100, 30
"""From this screen size on, memory and gradients are beside the tree, and output or events below."""

_TALL = 45
"""From this screen height in rows on, the memory panel has room for its curve."""

_ROOM_FOR_NAMES = 96
"""From this screen width in columns on, the full names of all panels fit beside each other in one title."""

_TAB_NAMES = {"memory": "Memory", "gradients": "Gradients", "output": "Output", "events": "Events"}
_SHORT_TAB_NAMES = {"memory": "Mem", "gradients": "Grad", "output": "Output", "events": "Events"}


@dataclass(frozen=True)
class PanelLayout:
    """A wide screen shows all panels, but one of those below; a narrow screen shows one panel beside the tree."""

    width: int = 160
    height: int = 50
    """The size of the screen; before it is known, that of a wide one."""
    below: str = "output"
    beside: str = "memory"

    @property
    def is_wide(self) -> bool:
        """Whether all panels have room."""
        return self.width >= _WIDE and self.height >= _HIGH

    @property
    def output_columns(self) -> int:
        """The cells of a line of the output panel: the width to report to progress bars."""
        panel = self.width if self.is_wide else self.width - self.width // 2
        frame_padding_and_thumb = 5
        return max(10, panel - frame_padding_and_thumb)

    @property
    def is_tall(self) -> bool:
        """Whether the memory panel has room for its curve."""
        return self.height >= _TALL

    def is_shown(self, name: str) -> bool:
        """Return whether a panel is visible."""
        if self.is_wide:
            return name not in _BELOW or name == self.below
        return name == self.beside

    def showing(self, name: str) -> PanelLayout:
        """Return the layout in which a panel is visible."""
        return replace(self, beside=name, below=name if name in _BELOW else self.below)

    @property
    def next_panel(self) -> str:
        """The panel whose turn it is to be visible."""
        shown = self.below if self.is_wide else self.beside
        return self._tabs[(self._tabs.index(shown) + 1) % len(self._tabs)]

    def titles(self, name: str, note: str) -> tuple[Content, Content]:
        """Return the title and the subtitle of a panel's frame: its name or its tabs, and a note."""
        muted_note = Content.styled(note, "$foreground-muted")
        if self.is_wide and name not in _BELOW:
            title = "Loss and gradient norm" if name == "gradients" else _TAB_NAMES[name]
            return Content.assemble((f"{title}  ", "bold"), muted_note), Content("")
        labels = _TAB_NAMES if self.width >= _ROOM_FOR_NAMES else _SHORT_TAB_NAMES
        tabs = [
            f"[bold $primary]{labels[tab]}[/]"
            if tab == name
            else f"[$foreground-muted @click=screen.show_{tab}]{labels[tab]}[/]"
            for tab in self._tabs
        ]
        return Content.from_markup(" [$foreground-muted]│[/] ".join(tabs)), muted_note

    @property
    def _tabs(self) -> tuple[str, ...]:
        return _BELOW if self.is_wide else PANELS
