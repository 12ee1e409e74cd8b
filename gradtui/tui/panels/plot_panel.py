"""Common to the panels with a curve: asking for a picture, and noticing when a better one has come. UI thread."""

from __future__ import annotations

from typing import Protocol

from gradtui.tui.lines import Line
from gradtui.tui.plotting.request import Picture, PlotRequest


class Pictures(Protocol):
    """Where pictures of curves come from."""

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """The best picture there is now."""
        ...


class Curve:
    """One place on the screen where a curve is drawn.

    The first picture of a new request may still be the one before; `settled` is False until it has been asked for twice.
    """

    def __init__(self, pictures: Pictures, key: str) -> None:
        self._pictures, self._key = pictures, key
        self._request: PlotRequest | None = None
        self.settled = True

    def lines(self, request: PlotRequest) -> tuple[Line, ...]:
        """The lines of the best picture there is now of `request`."""
        self.settled = request == self._request
        self._request = request
        return self._pictures.picture(self._key, request).lines
