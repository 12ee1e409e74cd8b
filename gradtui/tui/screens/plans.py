"""The dialog of plans: what may train and what may be checkpointed, what each would cost, and a key to apply one. UI thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from gradtui.protocol.commands import TryChange
from gradtui.protocol.forecasts import ForecastAsked
from gradtui.run.state.forecasts.forecast import question
from gradtui.run.state.forecasts.plans import PlanFigures, PlanOffered, figures, plans
from gradtui.run.state.run_state import RunState
from gradtui.run.text import plural
from gradtui.tui.explanations.plan_lines import heading_lines, plan_details, plan_rows, progress
from gradtui.tui.rendering import Line
from gradtui.tui.requests.requests import Make
from gradtui.tui.requests.tries import TRIED_STEPS, best_plans
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog
from gradtui.tui.widgets import LineView

_PAGE = 5

AskAll = Callable[[Sequence[ForecastAsked]], None]
"""Asks the planner a list of questions, whose answers arrive as events."""


class PlanTable(DialogLines):
    """The plans with a cursor."""

    class Moved(Message):
        """The cursor is on another plan."""

    class Opened(Message):
        """The user clicked the plan under the cursor."""

    def __init__(self, state: RunState, ask: AskAll) -> None:
        super().__init__(self._make_lines)
        self._state, self._ask = state, ask
        self._offered: tuple[PlanOffered, ...] = ()
        self._known: tuple[PlanFigures, ...] = ()
        self._basis: object = None
        self._at = 0
        self.asks = False
        """A second press applies the plan under the cursor."""
        self.refresh_figures()

    @property
    def known(self) -> tuple[PlanFigures, ...]:
        """The figures of all plans."""
        return self._known

    @property
    def index(self) -> int:
        """The index of the plan under the cursor."""
        return self._at

    @property
    def current(self) -> PlanOffered | None:
        """The plan under the cursor, None if there are none."""
        return self._offered[self._at] if self._offered else None

    def refresh_figures(self) -> None:
        """Read the newest forecasts, and ask for them if the run is another one than when they were asked for."""
        state, tree = self._state, self._state.tree
        basis = tree.version, tree.trainable, tree.checkpointed, state.operations
        if basis != self._basis:
            self._basis, name = basis, self.current.name if self.current is not None else ""
            self._offered = plans(state)
            self._at = next((at for at, plan in enumerate(self._offered) if plan.name == name), 0)
            self.asks = False
            self._known = figures(state, self._offered)
            asked = (question(state, known.forecast, final=True) for known in self._known)
            self._ask([request for request in asked if request is not None])
        else:
            self._known = figures(state, self._offered)

    def _make_lines(self, width: int) -> list[Line]:
        return plan_rows(self._known, self._at, width)

    def on_key(self, event: events.Key) -> None:
        """Move the cursor by the usual keys."""
        to = {
            "up": self._at - 1, "k": self._at - 1, "down": self._at + 1, "j": self._at + 1,
            "pageup": self._at - _PAGE, "pagedown": self._at + _PAGE, "home": 0, "end": len(self._offered) - 1,
        }.get(event.key)  # fmt: skip
        if to is not None:
            event.stop()
            event.prevent_default()
            self._move_to(to)

    def on_click(self, event: events.Click) -> None:
        """Select a plan. A click on the selected one is a press of enter."""
        event.stop()
        offset = event.get_content_offset(self)
        index = self.top + offset.y if offset is not None else -1
        if 0 <= index < len(self._offered):
            if index == self._at:
                self.post_message(self.Opened())
            self._move_to(index)

    def _move_to(self, index: int) -> None:
        if not self._offered:
            return
        before, self._at = self._at, min(max(0, index), len(self._offered) - 1)
        if self._at != before:
            self.asks = False
            self.post_message(self.Moved())
        self.update()
        self.scroll_top_to(min(max(self.top, self._at + 1 - self.content_size.height), self._at))


class _Above(LineView):
    """The names of the columns, and the run as it is now."""

    def __init__(self, state: RunState, table: PlanTable) -> None:
        super().__init__(id="plan-heading")
        self._state, self._table = state, table

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002
        return len(self.lines_for(width, 0))

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        return heading_lines(self._state, self._table.known, width - 1)


class _Below(LineView):
    """What the plan under the cursor would do."""

    def __init__(self, state: RunState, table: PlanTable) -> None:
        super().__init__(id="plan-details")
        self._state, self._table = state, table

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        table = self._table
        return plan_details(self._state, table.known, table.index, width - 1, asks=table.asks)[:height]


class PlansDialog(TextDialog[PlanOffered | Make]):
    """The plans for the run. Dismissed with the plan to apply, or with what tries the best ones, by a second press."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "apply", "apply", show=False),
        Binding("y", "try_best", "try", show=False),
        Binding("F", "dismiss", "close", show=False),
    ]
    changes = True

    def __init__(self, state: RunState, ask: AskAll) -> None:
        self._asks_try = False
        self._state, self._table = state, PlanTable(state, ask)
        self._above, self._below = _Above(state, self._table), _Below(state, self._table)
        super().__init__("Plans", self._table)

    @property
    def note(self) -> str:
        return progress(self._state, self._table.known)

    @property
    def keys(self) -> str:
        if self._asks_try:
            return f"y again: {plural(len(best_plans(self._table.known)), 'plan')}, {TRIED_STEPS} steps each"
        return "enter applies · y tries the best" if self._table.known else ""

    def compose(self) -> ComposeResult:
        with self._box:
            self._show_title()
            yield self._above
            yield self._table
            yield self._below

    def on_dialog_lines_laid_out(self) -> None:
        super().on_dialog_lines_laid_out()
        self._draw_around()

    def update(self) -> None:
        known = len(self._above.lines)
        self._table.refresh_figures()
        super().update()
        self._draw_around()
        if len(self._above.lines_for(self._above.content_size.width, 0)) != known:
            self._above.refresh(layout=True)

    def on_plan_table_opened(self) -> None:
        self.action_apply()

    def on_plan_table_moved(self) -> None:
        self._draw_around()

    def _draw_around(self) -> None:
        self._above.redraw()
        self._below.redraw()

    def action_try_best(self) -> None:
        """Try the plans that no other beats, at a second press."""
        changes = best_plans(self._table.known)
        if self._asks_try and changes:
            self.dismiss(lambda number: TryChange(number, changes, TRIED_STEPS, "ask"))
        elif changes:
            self._asks_try = True
            self.on_dialog_lines_laid_out()

    def action_apply(self) -> None:
        plan = self._table.current
        if plan is None:
            return
        if self._table.asks:
            self.dismiss(plan)
        else:
            self._table.asks = True
            self._draw_around()
