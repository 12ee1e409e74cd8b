"""The history of a row: its gradient norms, how far steps moved it, and every freeze and unfreeze. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.state.run_state import RunState
from gradtui.state.selectors import toggles_of
from gradtui.state.series import joint_norm
from gradtui.text import norm_text
from gradtui.tui.rendering import DetailRow, Line, printable, sparkline, text_rows

_POINTS, _FEWEST = 32, 8
_CELLS = 100_000
"""The maximum number of norms joined for one curve: only the gradient panel shows a subtree with more parameters."""
_TOGGLES = 8


def norm_history(state: RunState, parameters: range) -> list[DetailRow]:
    """Return the newest norms as a small curve; empty before there are two."""
    history = state.history
    if len(parameters) * _POINTS > _CELLS:
        return []
    rows = history.rows[-_POINTS:]
    values = [joint_norm(row[parameters.start : parameters.stop]) for row in rows]
    return _curve("norm", history.steps[-_POINTS:], values)


def ratio_history(state: RunState, parameter: int) -> list[DetailRow]:
    """Return the newest update ratios as a small curve."""
    ratios = state.tree.ratios.of(parameter)
    return _curve("ratio", ratios.steps[-_POINTS:], ratios.values[-_POINTS:])


def _curve(what: str, steps: Sequence[int], values: Sequence[float | None]) -> list[DetailRow]:
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return []
    low, high = norm_text(min(known)).strip(), norm_text(max(known)).strip()
    when = f"steps {steps[0]:,} to {steps[-1]:,}" if steps[0] != steps[-1] else f"step {steps[0]:,}"
    words = f"  {what} {low} to {high}, {when}"

    def line(width: int) -> Line:
        points = min(len(values), max(_FEWEST, width - len(words)))
        return (*sparkline(values, points), (words, "muted"))

    return [DetailRow("", line=line)]


def toggle_facts(state: RunState, parameters: range) -> list[DetailRow]:
    """Describe every freeze and unfreeze of these parameters, the newest first."""
    applied = toggles_of(state, parameters)
    if not applied:
        return text_rows("toggled", "Never, as far as this screen knows.")
    rows = []
    for index, each in enumerate(applied[:_TOGGLES]):
        rows += text_rows("" if index else "toggled", f"At step {each.step:,}: {printable(each.text)}")
    if len(applied) > _TOGGLES:
        rows += text_rows("", f"and {len(applied) - _TOGGLES:,} times before.", "muted")
    return rows
