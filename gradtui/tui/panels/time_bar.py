"""The time bar of a recording: where in the run the screen is. UI thread; `time_line` is pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from textual import events

from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import seconds_text
from gradtui.tui.rendering import Line, Span, fit, line_width
from gradtui.tui.widgets import LineView

_MIN_BAR = 8
_LABELLED = 100
"""From this width on, the step is called one."""


class RecordedMark(Protocol):
    """A finding or a change in a recording."""

    @property
    def position(self) -> int: ...
    @property
    def sign(self) -> str: ...
    @property
    def text(self) -> str: ...


class Player(Protocol):
    """Moves through a recording. Positions are counts of events."""

    position: int
    is_loaded: bool
    is_playing: bool
    speed: float

    @property
    def marks(self) -> Sequence[RecordedMark]: ...
    @property
    def count(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def last_step(self) -> int: ...
    @property
    def last_seconds(self) -> float: ...
    def share_of(self, position: int) -> float:
        """Return the share of the recorded time that has passed at a position."""
        ...

    def toggle(self) -> None: ...
    def change_speed(self, by: int) -> None: ...
    def move_steps(self, by: int) -> None: ...
    def move_share(self, by: float) -> None: ...
    def seek_share(self, share: float) -> None: ...
    def seek_step(self, step: int) -> None: ...
    def next_mark(self, by: int) -> RecordedMark | None: ...
    def take_state(self) -> RunState | None:
        """Return the state to show instead of the present one, once after each jump."""
        ...

    def note_marks(self, state: RunState) -> None:
        """Take the findings and changes of the whole recording once its end is shown first."""
        ...


def time_line(player: Player, width: int) -> tuple[Line, int, int]:
    """Return the bar in exactly `width` cells, and the first cell and the number of cells of the part that stands for time."""
    sign = "…" if not player.is_loaded else "▶" if player.is_playing else "‖"
    speed = f"{player.speed:g}×"
    digits = len(f"{player.last_step:,}")
    label = "step " if width >= _LABELLED else ""
    left: list[Span] = [
        (f" {sign} ", "accent" if player.is_playing else "text"),
        (f"{speed:<5} ", "muted"),
        (label, "faint"),
        (f"{player.step:>{digits},}", "text"),
        (f"/{player.last_step:,} ", "muted"),
    ]
    total = seconds_text(player.last_seconds).strip()
    right: list[Span] = [
        (f" {seconds_text(player.seconds).strip():>{len(total)}}", "text"),
        (f" / {total} ", "muted"),
    ]
    room = width - line_width(tuple(left)) - line_width(tuple(right))
    if room < _MIN_BAR:
        return fit((*left, *right[:1]), width), 0, 0
    return (*left, *_bar(player, room), *right), line_width(tuple(left)), room


def _bar(player: Player, cells: int) -> list[Span]:
    at = _cell(player.share_of(player.position), cells)
    signs = {_cell(player.share_of(mark.position), cells): mark.sign for mark in player.marks if mark.sign == "◆"}
    # Where both are in one cell, the finding is shown.
    signs |= {_cell(player.share_of(mark.position), cells): mark.sign for mark in player.marks if mark.sign != "◆"}
    spans: list[Span] = []
    for cell in range(cells):
        if cell == at:
            spans.append(("●", "accent"))
        elif cell in signs:
            spans.append((signs[cell], "warning" if signs[cell] == "!" else "accent"))
        else:
            spans.append(("━", "accent") if cell < at else ("─", "faint"))
    return spans


def _cell(share: float, cells: int) -> int:
    return min(cells - 1, max(0, round(share * (cells - 1))))


class TimeBar(LineView):
    """Shows and moves the position in a recording."""

    def __init__(self, player: Player, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._player = player
        self._first, self._cells = 0, 0

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        line, self._first, self._cells = time_line(self._player, width)
        return [line]

    def on_click(self, event: events.Click) -> None:
        if self._cells > 1 and event.x >= self._first:
            self._player.seek_share(min(1.0, (event.x - self._first) / (self._cells - 1)))
