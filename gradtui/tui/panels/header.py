"""The first line of the screen: how far the script is, and what gradtui costs. UI thread; `header_line` is pure."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from gradtui.dataclass import dataclass
from gradtui.run.state.freshness import is_stale
from gradtui.run.state.memory.run_memory import memory_now, memory_peak, memory_step
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import RunStatus, learning_rates, newest_loss, next_stop, run_status
from gradtui.run.state.time.throughput_of_run import throughput_now
from gradtui.run.state.time.time_left import time_left
from gradtui.run.text import (
    BYTES_WIDTH,
    NUMBER_WIDTH,
    RATE_WIDTH,
    SHARE_WIDTH,
    bounded,
    count_text,
    number_text,
    rate_text,
    seconds_text,
    share_text,
    short_bytes,
    short_rate,
    steps_text,
    time_left_text,
)
from gradtui.run.text.kept_states import copied_share
from gradtui.run.text.optimizers import main_name
from gradtui.run.text.throughput import a_second
from gradtui.transport.progress_bars import ProgressBar
from gradtui.tui.rendering import STALE, Line, Span, elide, line_width, pad, printable, sparkline, spread, width_of
from gradtui.tui.widgets import LineView

_STATUS: dict[RunStatus, tuple[str, str, str]] = {
    RunStatus.LOADING: ("◌", "loading", "muted"),
    RunStatus.RUNNING: ("●", "", "good"),
    RunStatus.PAUSING: ("◐", "pausing", "pending"),
    RunStatus.PAUSED: ("‖", "paused", "warning"),
    RunStatus.RESUMING: ("◐", "resumes", "pending"),
    RunStatus.STOPPING: ("◐", "stops", "pending"),
    RunStatus.ENDED: ("✔", "ended", "good"),
    RunStatus.INTERRUPTED: ("✖", "stopped", "warning"),
    RunStatus.FAILED: ("✖", "failed", "error"),
    RunStatus.OUT_OF_SIGHT: ("✖", "lost", "warning"),
}
_BRAND = " gradtui "
_MIN_OWNER, _MIN_COURSE = 4, 4
"""Cells in which it is shown whose loss it is, and the course of the loss beside that."""
_MIN_NAME = 6
"""Cells in which the script's name is shown beside the rank."""
_LR_WIDTH, _TIME_WIDTH, _LEFT_WIDTH = 6, 7, 6
_SAMPLES_WIDTH, _SAMPLES, _TOKENS = 6, " samples/s", " tokens/s "
_PIN_WIDTH, _MIN_PIN = 18, 9
"""Cells of the name and the step of a pinned metric."""
_LEFT, _EPOCH_LEFT = "left ", "epoch left "


@dataclass(frozen=True)
class HeaderState:
    """What the header shows besides the run.

    Attributes:
        ui_share: the UI thread's share of one core.
        dropped: the number of dropped events.
        bars: the progress bars of the script's output, the outermost first.
    """

    ui_share: float | None = None
    dropped: int = 0
    bars: Sequence[ProgressBar] = ()


@dataclass(frozen=True)
class _Layout:
    """The fields of the header and their widths.

    They depend on the screen width, and on whether several optimizers step in turns. So values never move a field.
    """

    brand: bool = True
    script: int = 24
    digits: int = 7
    micro: bool = True
    left: bool = True
    """Whether the time left has a place."""
    spark: int = 10
    rates: bool = True
    peak: bool = True
    label: str = "memory "
    overhead: bool = True
    time: bool = True
    memory: bool = True
    pace: bool = True
    samples: bool = True
    """Whether the samples per second have a place."""
    gap: int = 2
    pin: int = 0
    """Cells of the name and the step of the metric that the user has pinned; 0 if none is."""
    owner: int = 0
    """Cells in which the main one of several optimizers is named, in place of the overhead where there is no course."""


_REDUCTIONS: tuple[dict[str, object], ...] = (
    {"brand": False},
    {"script": 20},
    {"spark": 8},
    {"samples": False},
    {"script": 16},
    {"script": 14, "spark": 6},
    {"micro": False, "script": 16, "spark": 8},
    {"peak": False},
    {"spark": 0},
    {"script": 12},
    {"label": "mem ", "digits": 6},
    {"left": False, "label": "memory ", "digits": 7},
    {"rates": False},
    {"gap": 1},
    {"label": ""},
    {"digits": 5},
    {"overhead": False},
    {"time": False},
    {"memory": False},
    {"pace": False},
    {"script": 6},
)


_REDUCTIONS_WITH_PIN: tuple[dict[str, object], ...] = (
    {"brand": False},
    {"samples": False},
    {"script": 16, "spark": 8},
    {"micro": False},
    {"peak": False},
    {"spark": 0},
    {"script": 12},
    {"pin": 12},
    {"label": "", "digits": 6},
    {"left": False},
    {"rates": False},
    {"time": False},
    {"gap": 1, "digits": 5},
    {"pin": _MIN_PIN},
    {"memory": False},
    {"overhead": False},
    {"pace": False},
    {"script": 6},
)
"""The same where the user has pinned a metric, for which other fields give way."""


def header_line(state: RunState, facts: HeaderState, width: int) -> Line:
    """Return the header in exactly `width` cells, without the least important fields if not all fit."""
    layout = _layout_for(width, has_owner=bool(main_name(state)), has_pin=bool(state.metrics.pinned))
    left, right = _fields(state, facts, layout)
    return spread(left, right, width)


@lru_cache(maxsize=8)
def _layout_for(width: int, *, has_owner: bool, has_pin: bool = False) -> _Layout:
    layout, nothing = _Layout(pin=_PIN_WIDTH if has_pin else 0), (RunState(), HeaderState())
    for reduction in _REDUCTIONS_WITH_PIN if has_pin else _REDUCTIONS:
        left, right = _fields(*nothing, layout)
        if line_width(left) + line_width(right) <= width:
            break
        layout = replace(layout, **reduction)  # type: ignore[arg-type]  # the table names fields of the layout
    if has_owner and layout.overhead and not layout.spark:
        return replace(layout, owner=layout.gap + line_width(_overhead(*nothing)))
    return layout


def _fields(state: RunState, facts: HeaderState, layout: _Layout) -> tuple[Line, Line]:
    gap: Span = (" " * layout.gap, "")
    left: list[Line] = [((_BRAND, "ground on accent"),)] if layout.brand else []
    left.append((_glyph(state), *(_alarm(state, facts, layout.script) or _script(state, layout.script))))
    left.append((("step ", "faint"), *_steps(state, layout)))
    if layout.pace:
        left.append((_pace(state, layout),))
    if layout.samples:
        left.append(_samples(state))
    if layout.time:
        left.append(((pad(seconds_text(state.seconds if state.started else None).strip(), _TIME_WIDTH), "muted"),))
    if layout.left:
        left.append(_time_left(state, facts))
    left.append(_loss(state, layout))
    if layout.pin:
        left.append(_pinned(state, layout))
    if layout.rates:
        left.append((("lr ", "faint"), (pad(_learning_rate(state), _LR_WIDTH), "text")))
    right: list[Line] = [_memory(state, layout)] if layout.memory else []
    if layout.overhead and not layout.owner:
        right.append(_overhead(state, facts))
    start: Line = () if layout.brand or layout.gap == 1 else ((" ", ""),)
    return (*start, *_joined(left, gap)), (gap, *_joined(right, gap)) if right else ()


def _joined(fields: Sequence[Line], gap: Span) -> Line:
    spans: list[Span] = []
    for index, field in enumerate(fields):
        spans += (gap, *field) if index else field
    return tuple(spans)


def _glyph(state: RunState) -> Span:
    status = run_status(state)
    glyph, _, role = _STATUS[status]
    if state.ended is not None and state.ended.exit_code:
        glyph, role = "✖", "error" if status is RunStatus.FAILED else "warning"
    return f"{glyph} ", role


def _pace(state: RunState, layout: _Layout) -> Span:
    """Return the steps per second while the run continues, else what it does instead; in few cells the step to run to."""
    _, word, role = _STATUS[run_status(state)]
    if word:
        return pad(word, RATE_WIDTH), role
    runs_to = next_stop(state)
    if runs_to is not None and not layout.micro:
        return pad(f"→{steps_text(runs_to, RATE_WIDTH - 2).strip()}", RATE_WIDTH), "text"
    return pad(rate_text(state.steps_per_second).strip(), RATE_WIDTH), "text"


def _samples(state: RunState) -> Line:
    """Return the samples per second, or the tokens where the model gets sequences of them; blank where both are unknown."""
    made = throughput_now(state) if state.ended is None else None
    width = _SAMPLES_WIDTH + len(_TOKENS)
    for rate, bound, unit in () if made is None else (
        (made.tokens, made.tokens_bound, _TOKENS), (made.samples, made.samples_bound, _SAMPLES),
    ):  # fmt: skip
        if rate is not None:
            number = a_second(rate, bound)
            return ((number, "text"), (pad(unit, width - width_of(number)), "faint"))
    return ((" " * width, ""),)


def _time_left(state: RunState, facts: HeaderState) -> Line:
    """Return the time left with what it is of; blank where it is unknown."""
    known = time_left(state, facts.bars)
    width = len(_EPOCH_LEFT) + _LEFT_WIDTH
    if known is None:
        return ((" " * width, ""),)
    label = _EPOCH_LEFT if known.is_of_epoch else _LEFT
    return ((label, "faint"), (pad(time_left_text(known.seconds), width - len(label)), "muted"))


def _script(state: RunState, width: int) -> Line:
    name = printable(os.path.basename(state.started.script) if state.started else "")
    rank = _other_rank(state)
    if rank is None:
        return ((pad(name, width), "title"),)
    words, role = rank
    room = width - width_of(words) - 1
    rest = f" {elide(name, room)}" if room >= _MIN_NAME else ""
    return ((words, role), (pad(rest, max(0, width - width_of(words))), "title"))


def _other_rank(state: RunState) -> Span | None:
    """Return which rank is shown, if it is not the lowest one or is gone; None otherwise."""
    job = state.job
    if job is None or job.shown is None or state.ended is not None:
        return None
    is_gone = job.ranks[job.shown] not in job.live and bool(job.live)
    if job.shown == min(job.ranks) and not is_gone:
        return None
    return (f"rank {job.shown} gone", "error") if is_gone else (f"rank {job.shown}", "accent")


def _alarm(state: RunState, facts: HeaderState, width: int) -> Line:
    """Return what replaces the script's name: how far a copy is for which training waits, the number of dropped events, or
    NaN or Inf while the newest values have it."""
    if (copying := state.kept.copying) is not None:
        return ((pad(f"copy {100 * copied_share(copying):.0f} %", width), "accent"),)
    if facts.dropped:
        return ((pad(f"dropped {count_text(facts.dropped).strip()}", width), "warning"),)
    newest = (state.loss.last, state.gradient_norm.last)
    bad = state.newest_bad_step
    if bad is None or all(value is None or math.isfinite(value) for value in newest):
        return ()
    return ((pad(f"{bad.value} at {bad.step:,}", width), "error"),)


def _steps(state: RunState, layout: _Layout) -> Line:
    """Return the step, and beside it the step to run to; or the iteration of the loop where several optimizers make one; or the
    micro-steps where these are not as many as steps.
    """
    digits = layout.digits
    runs_to = next_stop(state)
    # Before an optimizer's step, that step is the one that is asked about.
    current = state.step + (state.held_step is not None)
    step = pad(steps_text(current, digits).strip(), digits)
    if not layout.micro:
        return ((step, "strong"),)
    if runs_to is not None:
        other, label = runs_to, "until "
    elif state.iterations is not None:
        other, label = state.iterations, "iter  "
    elif state.micro_steps > state.step + state.skipped_steps + 1:
        # Within a step, its backward is counted before the step.
        other, label = state.micro_steps, "micro "
    else:
        return ((step, "strong"), (" " * (len("until ") + digits), ""))
    return ((step, "strong"), (label, "faint"), (pad(steps_text(other, digits).strip(), digits), "text"))


def _loss(state: RunState, layout: _Layout) -> Line:
    """Return the newest loss with its course; if it is old, with its step, as far as there is room.

    Where several optimizers step in turns it is that of the main one, whose name takes the place of the course or the overhead.
    A dash stands for a loss that nothing can read.
    """
    loss, step = newest_loss(state)
    is_old = is_stale(state, step)
    role = "error" if loss is not None and not math.isfinite(loss) else STALE if is_old else "text"
    number: Span = (pad(number_text(loss).strip(), NUMBER_WIDTH), role)
    cells = layout.spark or layout.owner
    if not cells:
        return (("loss ", "faint"), number)
    name = main_name(state)
    short = elide(name, cells - 1)
    whose: Line = ((f"{short} ", "muted"),) if name and width_of(short) >= min(_MIN_OWNER, width_of(name)) else ()
    room = cells - line_width(whose)
    value: Line = (("loss ", "faint"), *whose, number)
    if is_old and step is not None:
        words = next((text for text in (f"step {step:,}", f"@{step:,}") if width_of(text) <= room), "")
        return (*value, (pad(words, room), "muted"))
    if room < _MIN_COURSE or state.steps_without_loss:
        return (*value, (" " * room, ""))
    return (*value, *sparkline(state.loss.values[-room:], room, "muted"))


def _pinned(state: RunState, layout: _Layout) -> Line:
    """Return the metric that the user has pinned; if its value is old, with its step, as far as there is room."""
    metric = state.metrics.named(state.metrics.pinned)
    name = printable(metric.name if metric is not None else state.metrics.pinned)
    step = metric.points.steps[-1] if metric is not None and len(metric.points) else None
    value, is_old = metric.last if metric is not None else None, is_stale(state, step)
    role = "error" if value is not None and not math.isfinite(value) else STALE if is_old else "text"
    words = f"@{step:,}" if is_old and step is not None else ""
    words = words if width_of(words) + _MIN_NAME < layout.pin else ""
    room = layout.pin - width_of(words)
    label = f"{elide(name, room - 1)} "
    number: Span = (pad(number_text(value).strip(), NUMBER_WIDTH), role)
    blank = " " * (room - width_of(label))
    return ((label, "faint"), number, (f"{words}{blank}", "muted"))


def _learning_rate(state: RunState) -> str:
    """Return the learning rate; if the groups differ, the largest one with a sign that there are others."""
    rates = learning_rates(state)
    if not rates:
        return short_rate(None)
    return ("≤" if len(rates) > 1 else "") + short_rate(max(rates))


def _memory(state: RunState, layout: _Layout) -> Line:
    peak, is_old = memory_peak(state), is_stale(state, memory_step(state))
    spans: list[Span] = [(layout.label, "faint")] if layout.label else []
    spans.append((pad(short_bytes(memory_now(state)), BYTES_WIDTH), STALE if is_old else "text"))
    if layout.peak:
        words = short_bytes(None) if peak is None else bounded(peak.bound, short_bytes(peak.bytes))
        spans += [(" peak ", "faint"), (pad(words, BYTES_WIDTH + 1), "text")]
    return tuple(spans)


def _overhead(state: RunState, facts: HeaderState) -> Line:
    """Return the share of the training time that gradtui takes lately: its hooks, and the UI thread, which holds the GIL.

    Once the run has ended it is that of the hooks in all of it, as in the closing lines.
    """
    lately = (state.cost.recent_share, facts.ui_share)
    known = lately if state.ended is None or state.cost.share is None else (state.cost.share,)
    shares = [share for share in known if share is not None and math.isfinite(share)]
    overhead = sum(shares) if shares else None
    return (("overhead ", "faint"), (pad(share_text(overhead).strip(), SHARE_WIDTH), "muted"))


class Header(LineView):
    """The header line. Set `facts` before calling `redraw`."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self.facts = HeaderState()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        return [header_line(self._state, self.facts, width)]
