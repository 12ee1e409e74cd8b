"""A widget whose strips Textual gets again as a whole while nothing in it has changed. UI thread.

Textual composes the whole surroundings of what it repaints: it asks every widget there for all of its lines, looks up each line
and each filtered line in a cache, and reads the styles of the frame. At 160×50 that takes longer than the lines that changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.containers import Container
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

if TYPE_CHECKING:
    from typing_extensions import Self


class KeptStrips(Widget):
    """Keeps the strips of the last painting until the widget is refreshed, gets new styles or another size."""

    _painted: tuple[Region, Size, list[Strip]] | None = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the strips of a part of the widget."""
        size = self.outer_size
        if self._painted is None or self._painted[:2] != (crop, size):
            self._painted = crop, size, self.paint(crop)
        return self._painted[2]

    def paint(self, crop: Region) -> list[Strip]:
        """Draw a part of the widget."""
        return super().render_lines(crop)

    def refresh(self, *regions: Region, **options: Any) -> Self:
        """Drop the strips, and repaint as Textual does."""
        self._painted = None
        return super().refresh(*regions, **options)

    def notify_style_update(self) -> None:
        """Drop the strips, which have the old styles."""
        self._painted = None
        super().notify_style_update()


class KeptContainer(Container, KeptStrips):
    """A container whose own ground is painted once."""
