"""What the panels with a curve need of a plotter, and the request that they hold on to between two new ones. UI thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gradtui.tui.charts.request import Picture, PlotRequest


class Pictures(Protocol):
    """Where pictures of curves come from."""

    def picture(self, key: str, request: PlotRequest) -> Picture:
        """The best picture there is now."""
        ...


class HeldRequest:
    """A request that is made anew when it is asked for, or when the size of its place changed.

    In between the same one is shown again, which costs next to nothing and brings the picture that has been drawn meanwhile.
    """

    def __init__(self) -> None:
        self._request: PlotRequest | None = None
        self._due = True

    def renew(self) -> None:
        """Make a new request at the next drawing."""
        self._due = True

    def request(self, width: int, height: int, make: Callable[[int, int], PlotRequest | None]) -> PlotRequest | None:
        """The request to show in a place of this size; None where there is nothing to draw."""
        held = self._request
        if self._due or held is None or (held.width, held.height) != (width, height):
            self._request, self._due = make(width, height), False
        return self._request
