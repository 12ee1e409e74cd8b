"""What panels with a curve need of a plotter, and the request that they keep between two updates. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gradtui.tui.charts.request import Picture, PlotRequest


class Pictures(Protocol):
    """A source of pictures of curves."""

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """Return the best picture available now."""
        ...


class HeldRequest:
    """Keeps a panel's request until `renew` is called or the size changes.

    Until then the same request is shown again, which costs almost nothing and also shows a picture that has arrived in the
    meantime.
    """

    def __init__(self) -> None:
        self._request: PlotRequest | None = None
        self._due = True

    def renew(self) -> None:
        """Make a new request at the next drawing."""
        self._due = True

    def request(self, width: int, height: int, make: Callable[[int, int], PlotRequest | None]) -> PlotRequest | None:
        """Return the request for an area of this size; None if there is nothing to draw."""
        held = self._request
        if self._due or held is None or (held.width, held.height) != (width, height):
            self._request, self._due = make(width, height), False
        return self._request
