"""The first line of the screen: the script, its progress, and the overhead of gradtui. UI thread; `header_line` is pure."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gradtui.protocol.vocabulary import Phase
from gradtui.state.run_state import RunState
from gradtui.state.selectors import RunStatus, next_stop, run_status
from gradtui.text import (
    NUMBER_WIDTH,
    RATE_WIDTH,
    count_text,
    microseconds_text,
    number_text,
    rate_text,
    share_text,
    steps_text,
)
from gradtui.tui.rendering import Line, Span, line_width, pad, printable, sparkline, spread
from gradtui.tui.widgets import LineView

_STATUS: dict[RunStatus, tuple[str, str, str]] = {
    RunStatus.LOADING: ("◌", "loading", "muted"),
    RunStatus.RUNNING: ("●", "running", "good"),
    RunStatus.PAUSING: ("◐", "pausing", "pending"),
    RunStatus.PAUSED: ("‖", "paused", "warning"),
    RunStatus.RESUMING: ("◐", "resumes", "pending"),
    RunStatus.STOPPING: ("◐", "stops", "pending"),
    RunStatus.ENDED: ("✔", "ended", "good"),
    RunStatus.INTERRUPTED: ("✖", "stopped", "warning"),
    RunStatus.FAILED: ("✖", "failed", "error"),
}
_STATUS_WIDTH = 9
_PHASE_WIDTH = max(len(phase) for phase in Phase)
_BRAND = " gradtui "


@dataclass(frozen=True)
class HeaderState:
    """What the header shows besides the run: the UI thread's share of one core, and the number of dropped events."""

    ui_share: float | None = None
    dropped: int = 0


@dataclass(frozen=True)
class _Layout:
    """The fields of the header and their widths. They depend on the screen width alone, so values never move a field."""

    brand: bool = True
    script: int = 28
    digits: int = 9
    spark: int = 10
    phase_apart: bool = True
    ui: bool = True
    cost_share: bool = True
    gap: int = 2


_REDUCTIONS: tuple[dict[str, object], ...] = (
    {"script": 20},
    {"brand": False},
    {"digits": 7},
    {"script": 16},
    {"spark": 0},
    {"phase_apart": False},
    {"script": 12},
    {"gap": 1},
    {"cost_share": False},
    {"digits": 5},
    {"ui": False},
)


def header_line(state: RunState, facts: HeaderState, width: int) -> Line:
    """Return the header in exactly `width` cells, without the least important fields if not all fit."""
    left, right = _fields(state, facts, _layout_for(width))
    return spread(left, right, width)


@lru_cache(maxsize=8)
def _layout_for(width: int) -> _Layout:
    layout, nothing = _Layout(), (RunState(), HeaderState())
    for reduction in _REDUCTIONS:
        left, right = _fields(*nothing, layout)
        if line_width(left) + line_width(right) <= width:
            break
        layout = replace(layout, **reduction)  # type: ignore[arg-type]  # the table names fields of the layout
    return layout


def _fields(state: RunState, facts: HeaderState, layout: _Layout) -> tuple[Line, Line]:
    gap: Span = (" " * layout.gap, "")
    left: list[Line] = [((_BRAND, "ground on accent"),)] if layout.brand else []
    left.append(_status(state, apart=layout.phase_apart))
    left.append(_alarm(state, facts, layout.script) or _script(state, layout.script))
    left.append((("step ", "faint"), *_steps(state, layout.digits)))
    left.append(((pad(rate_text(state.steps_per_second).strip(), RATE_WIDTH), "text"),))
    left.append((("loss ", "faint"), _loss(state.loss.last)))
    if layout.spark:
        left.append(sparkline(state.loss.values[-layout.spark :], layout.spark, "muted"))
    if layout.phase_apart:
        left.append(((pad(_phase(state), _PHASE_WIDTH), "accent"),))
    right: list[Line] = [_cost(state, layout)]
    if layout.ui:
        right.append((("ui ", "faint"), (share_text(facts.ui_share), "muted")))
    start: Line = () if layout.brand or layout.gap == 1 else ((" ", ""),)
    return (*start, *_joined(left, gap)), (gap, *_joined(right, gap))


def _joined(fields: Sequence[Line], gap: Span) -> Line:
    spans: list[Span] = []
    for index, field in enumerate(fields):
        spans += (gap, *field) if index else field
    return tuple(spans)


def _status(state: RunState, *, apart: bool) -> Line:
    status = run_status(state)
    glyph, label, role = _STATUS[status]
    if state.ended is not None and state.ended.exit_code:
        glyph, role = "✖", "error" if status is RunStatus.FAILED else "warning"
    if apart:
        return ((pad(f"{glyph} {label}", _STATUS_WIDTH), role),)
    # While the run continues, the phase says more than the word "running", and the glyph and its colour still show that
    # it runs.
    label = _phase(state) if status is RunStatus.RUNNING else label
    return ((pad(f"{glyph} {label}", 2 + _PHASE_WIDTH), role),)


def _phase(state: RunState) -> str:
    return "" if state.ended is not None else state.phase.value


def _script(state: RunState, width: int) -> Line:
    name = os.path.basename(state.started.script) if state.started else ""
    return ((pad(printable(name), width), "title"),)


def _alarm(state: RunState, facts: HeaderState, width: int) -> Line:
    """Return what replaces the script's name: the number of dropped events, or NaN or Inf while the newest values have it."""
    if facts.dropped:
        return ((pad(f"dropped {count_text(facts.dropped).strip()}", width), "warning"),)
    newest = (state.loss.last, state.gradient_norm.last)
    if state.bad_step is None or all(value is None or math.isfinite(value) for value in newest):
        return ()
    return ((pad(f"{state.bad_step.value} at {state.bad_step.step}", width), "error"),)


def _steps(state: RunState, digits: int) -> Line:
    """Return the step and the micro-steps. While the run is to be paused at a step, that step replaces the micro-steps."""
    runs_to = next_stop(state)
    second = state.micro_steps if runs_to is None else runs_to
    step, other = (steps_text(count, digits).strip() for count in (state.step, second))
    if digits > 5:
        label = "  micro " if runs_to is None else "  until "
        return ((pad(step, digits), "strong"), (label, "faint"), (pad(other, digits), "text"))
    # Too narrow for two columns: the two numbers share one.
    sign = "·" if runs_to is None else "→"
    return ((step, "strong"), (sign, "faint"), (pad(other, 2 * digits - len(step)), "text"))


def _loss(loss: float | None) -> Span:
    role = "error" if loss is not None and not math.isfinite(loss) else "text"
    return pad(number_text(loss).strip(), NUMBER_WIDTH), role


def _cost(state: RunState, layout: _Layout) -> Line:
    spans: list[Span] = [("overhead ", "faint"), (microseconds_text(state.cost.recent_us), "muted")]
    if layout.cost_share:
        spans.append((" " + share_text(state.cost.recent_share), "muted"))
    return tuple(spans)


class Header(LineView):
    """The header line. Set `facts` before calling `redraw`."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self.facts = HeaderState()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        return [header_line(self._state, self.facts, width)]
