"""The legend of the curves where several optimizers step in turns: a loss and a total norm of each, by name. UI thread; pure.

The newest values of different optimizers are of different steps, so each optimizer has a step: that of its newest norm. In few
cells they have a range of steps together, and where that has no room either there are names only.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import set_cell_size

from gradtui.dataclass import dataclass
from gradtui.run.state.freshness import is_stale
from gradtui.run.state.optimizers.optimizer_turns import OptimizerTurns, ShownOptimizer
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import value_at
from gradtui.run.text import number_text
from gradtui.tui.panels.curves_legend import ROW_ROLE, RowNorms
from gradtui.tui.plots.optimizers import ROLES
from gradtui.tui.rendering import STALE, Line, Span, elide, elide_start, line_width, pad, printable, width_of

_GAP: Span = ("  ", "")
_MAX_ROW = 24
"""Cells of the name of the selected row."""
_ELIDED = 8
_NUMBER = 5
"""Cells of most numbers; a longer one moves what is behind it."""


@dataclass(frozen=True)
class _Form:
    """How much of an entry is shown."""

    name: int
    norm: bool = True
    step: bool = True
    """Whether each value has its step. Without it, the last entry has the steps of all."""
    number: int = _NUMBER
    value: bool = True


_FORMS = (
    _Form(48),
    _Form(20),
    _Form(13),
    _Form(9),
    _Form(13, norm=False),
    _Form(9, norm=False),
    _Form(9, norm=False, step=False),
    _Form(5, norm=False, step=False),
    _Form(4, norm=False, step=False, number=0),
    _Form(3, norm=False, step=False, number=0),
    _Form(13, norm=False, step=False, value=False),
    _Form(3, norm=False, step=False, value=False),
)
"""The widest one that fits is used. Values of different steps are never shown without them."""


def most_lines(height: int) -> int:
    """Return how many lines a panel of this height has for the legend."""
    return 1 if height < 8 else 2 if height < 16 else 4


def optimizer_legend(state: RunState, turns: OptimizerTurns, row: RowNorms | None, width: int, most: int) -> list[Line]:
    """Return the names of the optimizers in the colours of their curves, with the newest values, in at most `most` lines.

    The norm of the selected row is behind them if it fits.
    """
    lines: list[list[Span]] = []
    for form in _FORMS:
        entries = [_entry(state, optimizer, role, form) for optimizer, role in zip(turns.shown, ROLES)]
        if turns.omitted:
            entries.append([(f"+{turns.omitted}", "faint")])
        if form.value and not form.step:
            entries[-1].append(_steps_of(state, turns))
        named = [[("Loss ", "muted"), *entries[0]], *entries[1:]]
        # The title of the panel says it too.
        entries = named if _fit(_lines(named, width), width, most) else entries
        lines = _lines(entries, width)
        if _fit(lines, width, most):
            break
    if row is not None:
        with_row = _lines([*entries, _row(state, row)], width)
        lines = with_row if _fit(with_row, width, most) else lines
    return [tuple(line) for line in lines[:most]]


def _fit(lines: Sequence[Sequence[Span]], width: int, most: int) -> bool:
    return len(lines) <= most and all(line_width(line) <= width for line in lines)


def _row(state: RunState, row: RowNorms) -> list[Span]:
    now, step = (row.values[-1], row.steps[-1]) if row.values else (None, None)
    name = elide_start(printable(row.name), _MAX_ROW)
    spans: list[Span] = [(f"{name} ", ROW_ROLE), ("‖g‖ ", "muted"), _value(state, now, step, _FORMS[0])]
    return [*spans, (f" @{step:,}", _step_role(state, step))] if step is not None else spans


def _newest(optimizer: ShownOptimizer) -> tuple[int | None, int | None]:
    """Return the steps of the newest loss and of the newest norm."""
    curves = optimizer.curves
    loss, norm = (series.steps[-1] if len(series) else None for series in (curves.loss, curves.gradient_norm))
    return loss if optimizer.has_own_loss else None, norm


def _steps_of(state: RunState, turns: OptimizerTurns) -> Span:
    """Return the first and the last step of the values where those of a loss stand alone: `@39–40`."""
    steps = [step for loss, norm in map(_newest, turns.shown) if (step := norm if loss is None else loss) is not None]
    if not steps:
        return "", ""
    first, last = f"{min(steps):,}", f"{max(steps):,}"
    is_as_long = len(first) == len(last)
    new = next((at for at, (a, b) in enumerate(zip(first, last)) if a != b), 0) if is_as_long else 0
    return f" @{first}{f'–{last[new:]}' if first != last else ''}", _step_role(state, min(steps))


def _entry(state: RunState, optimizer: ShownOptimizer, role: str, form: _Form) -> list[Span]:
    loss_step, norm_step = _newest(optimizer)
    curves, loss = optimizer.curves, optimizer.curves.loss.last
    if form.norm and loss_step is not None and not is_stale(state, norm_step):
        # Losses may be read more often. Those of the norm's step need no step of their own, so that the entry keeps its width.
        of_norm = value_at(curves.loss, norm_step)
        loss, loss_step = (loss, loss_step) if of_norm is None else (of_norm, norm_step)
    name = printable(optimizer.name)
    # In few cells an ellipsis would take one of the letters that tell the names apart.
    spans: list[Span] = [
        (elide(name, form.name) if form.name >= _ELIDED else set_cell_size(name, form.name).rstrip(), role)
    ]
    if not form.value:
        return spans
    has_loss = loss_step is not None
    if has_loss:
        spans += [(" ", ""), _value(state, loss, loss_step, form)]
    if has_loss and form.step and (not form.norm or norm_step != loss_step):
        spans.append((f" @{loss_step:,}", _step_role(state, loss_step)))
    if form.norm or not has_loss:
        spans += [(" ‖g‖ ", "muted"), _value(state, curves.gradient_norm.last, norm_step, form)]
        if form.step and norm_step is not None:
            spans.append((f" @{norm_step:,}", _step_role(state, norm_step)))
    return spans


def _value(state: RunState, value: float | None, step: int | None, form: _Form) -> Span:
    text = number_text(value).strip()
    return pad(text, max(form.number, width_of(text))), STALE if value is not None and is_stale(state, step) else "text"


def _step_role(state: RunState, step: int | None) -> str:
    return "muted" if is_stale(state, step) else "faint"


def _lines(entries: Sequence[list[Span]], width: int) -> list[list[Span]]:
    lines: list[list[Span]] = []
    for entry in entries:
        if lines and line_width(lines[-1]) + width_of(_GAP[0]) + line_width(entry) <= width:
            lines[-1] += [_GAP, *entry]
        else:
            lines.append(list(entry))
    return lines
