"""The memory panel: the curve within a step with what is held, or the bytes at the end of each phase. UI thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events

from gradtui.protocol.vocabulary import Phase
from gradtui.state.run_memory import phase_total
from gradtui.state.run_state import RunState
from gradtui.state.step_curve import shares_within_step, steady_shares, step_curve, time_shares
from gradtui.text import memory_source_text
from gradtui.tui.panels.memory_bars import MemoryOptions
from gradtui.tui.panels.memory_step import Drawing, scale_of, step_lines, step_title, step_words
from gradtui.tui.panels.memory_table import chosen_phase, next_phase, phase_table
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import Line
from gradtui.tui.widgets import LineView


def memory_title(state: RunState, width: int = 100, *, by_phase: bool = False, chosen: Phase | None = None) -> str:
    """Return what the view shows and of which step: the curve within a step, or the table by phase and its source."""
    if not by_phase:
        return step_title(state, width)
    phase = chosen_phase(state, chosen)
    total = phase_total(state, phase) if phase is not None else None
    words = ["by phase", *([step_words(state, total.step, width - 11)] if total is not None and total.step else [])]
    full = " · ".join([*words, source] if (source := memory_source_text(state)) else words)
    return full if len(full) <= width else " · ".join(words)


def memory_table(state: RunState) -> Table:
    """Return the points of the curve within the newest known step, in bytes."""
    step = step_curve(state)
    parts = step.parts if step is not None else ()
    number = step.step if step is not None else 0
    return Table(
        ("optimizer_step", "phase", "bytes"),
        tuple((number, part.phase.value, total) for part in parts for total in part.totals),
    )


class MemoryPanel(LineView, can_focus=True):
    """The curve within a step and what is held, or the table by phase."""

    _MOVES: ClassVar[dict[str, int]] = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -len(Phase), "end": len(Phase)}

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._by_phase = False
        self._rows: tuple[Phase | None, ...] = ()
        self._chosen: Phase | None = None
        self._drawing = Drawing()

    def title(self, width: int) -> str:
        """Return what the panel shows, to follow its name in the title of its frame."""
        return memory_title(self._state, width, by_phase=self._by_phase, chosen=self._chosen)

    @property
    def shows_curve(self) -> bool:
        """Whether the curve within a step is shown."""
        return not self._by_phase and step_curve(self._state) is not None

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        colour = not self.app.no_color
        if self._by_phase:
            table = phase_table(self._state, width, height, MemoryOptions(self._chosen, self.has_focus, colour))
            self._rows = table.phases
            return table.lines
        self._rows = ()
        self._drawing = Drawing(
            # The axis of a bar without a curve is none for the curve.
            self._state.tree.version if step_curve(self._state) is not None else None,
            scale_of(self._state, self._drawing),
            steady_shares(self._drawing.shares or {}, shares_within_step(time_shares(self._state))),
        )
        return step_lines(self._state, width, height, self._drawing.scale, self._drawing.shares or {}, colour=colour)

    def switch_view(self) -> None:
        """Show the table by phase instead of the curve, or the curve again."""
        self._by_phase = not self._by_phase
        self.redraw()

    def choose(self, phase: Phase | None) -> None:
        """Show the parts of this phase; None for the fullest one."""
        self._chosen = phase
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        """Choose a phase by the usual keys. These are not actions, because they have no meaning elsewhere."""
        rows = self._MOVES.get(event.key)
        if rows is not None:
            event.stop()
            event.prevent_default()
            self.move(rows)

    def move(self, rows: int) -> None:
        """Choose the phase `rows` rows below, in the table by phase."""
        if self._by_phase:
            self.choose(next_phase(self._state, self._chosen, rows))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        phase = self._rows[offset.y] if offset is not None and 0 <= offset.y < len(self._rows) else None
        if phase is not None and self._state.phases[phase].last is not None:
            self.choose(phase)
