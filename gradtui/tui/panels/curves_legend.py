"""The legend of the curves: their names in their colours, the newest values, and the step of each value. UI thread; pure.

The header has a loss too, and is drawn more often. So the legend always says of which step its values are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from gradtui.dataclass import dataclass
from gradtui.run.state.freshness import is_stale
from gradtui.run.state.norms.shown_norms import shown_norms
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import newest_loss, total_norm_at, value_at
from gradtui.run.text import NUMBER_WIDTH, number_text
from gradtui.tui.plots.courses import newest_role
from gradtui.tui.plots.rows import CLIP_ROLE, LOSS_ROLE, TOTAL_ROLE
from gradtui.tui.rendering import STALE, Line, Span, elide_start, line_width, pad, printable, width_of

ROW_ROLE = "curve-2"
_GAP: Span = (" ", "")
_MIN_NAME = 6
_MIN_NUMBER = 5
"""Cells of most numbers; a longer one takes some of the name."""


@dataclass(frozen=True)
class RowNorms:
    """The curve of the selected row."""

    name: str
    steps: Sequence[int]
    values: Sequence[float | None]

    def until(self, step: int | None) -> RowNorms:
        """Return the same without what is newer than a step."""
        end = len(self.steps) if step is None else bisect_right(self.steps, step)
        return RowNorms(self.name, self.steps[:end], self.values[:end]) if 0 < end < len(self.steps) else self


@dataclass(frozen=True)
class _Form:
    """How much room the values take. Those of a form have fixed places, so that they do not move from step to step."""

    total: str = "‖g‖ total "
    number: int = NUMBER_WIDTH
    step: str = "step "
    at: str = " at "


_FORMS = (
    _Form(),
    _Form(total="‖g‖ "),
    _Form(total="‖g‖ ", number=5),
    _Form(total="‖g‖ ", number=5, step="@", at=" @"),
    _Form(total="‖g‖ ", number=0, step="@", at=" @"),
    _Form(total="‖g‖ ", step=""),
)
"""The widest one that fits is used; the last one, without a step, is for panels that are too narrow for anything else. It has
figures of one step only."""


def step_shown(state: RunState, drawn: int | None = None) -> int | None:
    """Return the step of the norms in the tree, because totals are measured more often. Without one, the newest step.

    `drawn` is that of the norms that the tree was drawn with, if it was.
    """
    shown = shown_norms(state)
    step, newest = shown.step if drawn is None else drawn, shown.total.steps
    return step if total_norm_at(state, step) is not None else newest[-1] if newest else None


def legend_line(state: RunState, step: int | None, row: RowNorms | None, width: int) -> Line:
    """Return the curves' names, each in the colour of its curve, and their values at `step`.

    The plotter does not draw this legend: values in its labels would change the chart at every step. The row and the value
    before clipping are shown if they fit. A loss that is not of `step` has its own step behind it.
    """
    form = _form_with_row(state, step, row, width)
    has_row = form is not None
    form = form or _form(state, step, width) or _FORMS[-1]
    spans, when = _values(state, step, form), _when(state, step, form)
    clipping = _clipping(state, step)
    least = _row_width(row, step, form, _MIN_NAME) if row is not None and has_row else 0
    if line_width((*spans, *clipping, *when)) + least <= width:
        spans += clipping
    if row is not None and has_row:
        spans += _row(state, row, step, form, width - line_width((*spans, *when)))
    return (*spans, *when)


def names_row(state: RunState, step: int | None, row: RowNorms, width: int) -> bool:
    """Return whether the legend has room for the name and the value of the row."""
    return _form_with_row(state, step, row, width) is not None


def _form_with_row(state: RunState, step: int | None, row: RowNorms | None, width: int) -> _Form | None:
    if row is None:
        return None
    # The whole name, if there is a form that leaves room for it, else the end of the path.
    name = width_of(printable(row.name))
    return _form(state, step, width, row, name) or _form(state, step, width, row, min(name, _MIN_NAME))


def _row_width(row: RowNorms, step: int | None, form: _Form, name: int) -> int:
    """Return the cells of the row's value and its step behind a name of `name` cells, with the gaps before them."""
    return 1 + name + 1 + max(form.number, _MIN_NUMBER) + width_of(_row_step(row, step, form))


def _row_step(row: RowNorms, step: int | None, form: _Form) -> str:
    """Return the step of the row's newest norm with what is before it; empty if it is `step`."""
    newest = row.steps[-1] if row.steps else step
    return "" if newest is None or newest == step else f"{form.at}{newest:,}"


def _form(state: RunState, step: int | None, width: int, row: RowNorms | None = None, name: int = 0) -> _Form | None:
    """Return the widest form that fits, beside a row whose name takes `name` cells if there is one."""
    for form in _FORMS[:-1]:
        taken = line_width((*_values(state, step, form), *_when(state, step, form)))
        if taken + (_row_width(row, step, form, name) if row is not None else 0) <= width:
            return form
    return None


def _values(state: RunState, step: int | None, form: _Form) -> list[Span]:
    loss, loss_step = _loss(state, step)
    norm, is_old = total_norm_at(state, step), is_stale(state, step)
    mark = "≥" if shown_norms(state).is_part and norm is not None else ""
    spans: list[Span] = [("Loss ", newest_role(state, LOSS_ROLE))]
    if not form.step and step is not None:
        # Beside the norm there is no room to say that the loss is of another step.
        loss, loss_step = value_at(state.loss, step), step
    if loss_step == step or loss is None:
        spans.append((_number(loss, form), _role(loss, old=is_stale(state, loss_step))))
    else:
        spans.append((number_text(loss).strip(), _role(loss, old=is_stale(state, loss_step))))
        spans.append((f"{form.at}{loss_step:,}", "faint"))
    total = _total_name(form, newest_role(state, TOTAL_ROLE))
    spans += [_GAP, *total, (_number(norm, form, mark), _role(norm, old=is_old))]
    return spans


def _total_name(form: _Form, role: str) -> list[Span]:
    first, _, second = form.total.strip().partition(" ")
    return [(f"{first} ", "muted"), (f"{second} ", role)] if second else [(f"{first} ", role)]


def _loss(state: RunState, step: int | None) -> tuple[float | None, int | None]:
    """Return the loss of `step` and its step; if that is unknown or old, the newest loss: it may be read without the norms."""
    loss = value_at(state.loss, step)
    if loss is not None and not is_stale(state, step):
        return loss, step
    return newest_loss(state)


def _when(state: RunState, step: int | None, form: _Form) -> list[Span]:
    # Behind faint values the step must be found at a glance.
    return [_GAP, (f"{form.step}{step:,}", "muted" if is_stale(state, step) else "faint")] if step and form.step else []


def _row(state: RunState, row: RowNorms, step: int | None, form: _Form, room: int) -> list[Span]:
    now, is_old = row.values[-1] if row.values else None, bool(row.steps) and is_stale(state, row.steps[-1])
    value, own_step = number_text(now).strip(), _row_step(row, step, form)
    value = value if own_step else pad(value, max(form.number, _MIN_NUMBER))
    name = elide_start(printable(row.name), room - width_of(f"  {value}{own_step}"))
    spans: list[Span] = [_GAP, (f"{name} ", ROW_ROLE), (value, _role(now, old=is_old))]
    return [*spans, (own_step, "muted" if is_old else "faint")] if own_step else spans


def _clipping(state: RunState, step: int | None) -> list[Span]:
    if not len(state.before_clipping):
        return []
    at = "" if state.clipped_at is None else f" at {state.clipped_at:g}"
    norm = value_at(state.before_clipping, step)
    return [
        _GAP,
        (f"before clipping{at} ", CLIP_ROLE),
        (_number(norm, _FORMS[0]), _role(norm, old=is_stale(state, step))),
    ]


def _role(value: float | None, *, old: bool) -> str:
    return STALE if old and value is not None else "text"


def _number(value: float | None, form: _Form, mark: str = "") -> str:
    text = mark + number_text(value).strip()
    return pad(text, max(form.number, width_of(text)))
