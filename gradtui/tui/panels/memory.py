"""The memory panel: the curve within a step with what is held, the curves over steps, or the bytes by phase. UI thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from textual import events

from gradtui.protocol.vocabulary import Phase
from gradtui.run.state.memory.run_memory import phase_total
from gradtui.run.state.memory.step_curve import shares_within_step, steady_shares, step_curve, time_shares
from gradtui.run.state.run_state import RunState
from gradtui.run.text import memory_source_text
from gradtui.tui.charts.pictures import Pictures
from gradtui.tui.panels.memory_bars import MemoryOptions
from gradtui.tui.panels.memory_step import Drawing, scale_of, step_lines, step_title, step_words
from gradtui.tui.panels.memory_table import chosen_phase, next_phase, phase_table
from gradtui.tui.plots.table import Table
from gradtui.tui.rendering import Line
from gradtui.tui.widgets import LineView

if TYPE_CHECKING:
    from gradtui.tui.plots.options import Plot

View = Literal["within a step", "over steps", "by phase"]
VIEWS: tuple[View, ...] = ("within a step", "over steps", "by phase")
"""The views of the panel, in the order in which they take turns."""


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
    """The curve within a step and what is held, the curves over steps, or the table by phase."""

    _MOVES: ClassVar[dict[str, int]] = {"up": -1, "k": -1, "down": 1, "j": 1, "home": -len(Phase), "end": len(Phase)}

    def __init__(self, state: RunState, pictures: Pictures, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._pictures = pictures
        self._view: View = VIEWS[0]
        self._plot: Plot | None = None
        self._plot_size = 0, 0
        self._rows: tuple[Phase | None, ...] = ()
        self._chosen: Phase | None = None
        self._drawing = Drawing()

    def title(self, width: int) -> str:
        """Return what the panel shows, to follow its name in the title of its frame."""
        if self._view == "over steps":
            return self._view if len(self._view) <= width else ""
        return memory_title(self._state, width, by_phase=self._by_phase, chosen=self._chosen)

    @property
    def _by_phase(self) -> bool:
        return self._view == "by phase"

    @property
    def shows_curve(self) -> bool:
        """Whether the curve within a step is shown."""
        return self._view == "within a step" and step_curve(self._state) is not None

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        colour = not self.app.no_color
        if self._by_phase:
            table = phase_table(self._state, width, height, MemoryOptions(self._chosen, self.has_focus, colour))
            self._rows = table.phases
            return table.lines
        self._rows = ()
        if self._view == "over steps":
            return self._lines_over_steps(width, height)
        self._drawing = Drawing(
            # The axis of a bar without a curve is none for the curve.
            self._state.tree.version if step_curve(self._state) is not None else None,
            scale_of(self._state, self._drawing),
            steady_shares(self._drawing.shares or {}, shares_within_step(time_shares(self._state.phases))),
        )
        return step_lines(self._state, width, height, self._drawing.scale, self._drawing.shares or {}, colour=colour)

    def _lines_over_steps(self, width: int, height: int) -> Sequence[Line]:
        # As the plots screen: not before it is wanted.
        from gradtui.tui.plots.memory import memory_plot
        from gradtui.tui.plots.options import PlotOptions

        if self._plot is None or self._plot_size != (width, height):
            self._plot, self._plot_size = memory_plot(self._state, PlotOptions(), width, height), (width, height)
        plot = self._plot
        picture = () if plot.request is None else self._pictures.picture("memory", plot.request).lines
        return [*plot.above, *picture, *plot.below]

    def update(self) -> None:
        """Show new numbers. `redraw` alone shows a picture that has arrived."""
        self._plot = None
        self.redraw()

    def switch_view(self) -> None:
        """Show the next view of `VIEWS`."""
        self._view = VIEWS[(VIEWS.index(self._view) + 1) % len(VIEWS)]
        self.update()

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
