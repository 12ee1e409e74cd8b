"""The panel of changes: what was done to the run, and what came of it. UI thread; `changes_lines` is pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol import commands
from gradtui.run.state.changes.changes import Change, ChangeStatus, folded
from gradtui.run.state.run_state import RunState
from gradtui.run.text import change_results, change_words, counted_changes
from gradtui.tui.rendering import Line, Span, elide, elide_start, fit, pad, printable, width_of, wrap
from gradtui.tui.widgets import LineView

EMPTY = "Nothing has been changed yet. Changes and their results are listed here."
_NONE = "Nothing was changed in this run."

_GLYPHS: dict[type[commands.Command], tuple[str, str]] = {
    commands.SetCheckpointing: ("◇", "accent"),
    commands.TrainOnly: ("■", "accent"),
    commands.TakeUpFreezes: ("□", "accent"),
    commands.Undo: ("←", "accent"),
}
_FREEZE, _UNFREEZE, _OTHER = ("□", "accent"), ("■", "accent"), ("·", "accent")
_PENDING, _REFUSED = ("○", "pending"), ("×", "warning")
_MAX_WORDS = 0.5
"""Share of the width that the column of words may take."""


def changes_lines(state: RunState, width: int, height: int) -> list[Line]:
    """Return the newest changes in at most `height` lines of exactly `width` cells, the newest at the bottom."""
    listed = folded(counted_changes(state))[-height:]
    if not listed:
        return [fit(line, width) for line in wrap(((EMPTY if state.ended is None else _NONE, "muted"),), width)][
            :height
        ]
    step_width = max(len(f"{change.step:,}") for change in listed)
    before = 2 + step_width + 1
    room = max(1, int(_MAX_WORDS * width) - before)
    words_width = min(room, max(width_of(change_words(change)) for change in listed))
    lines: list[Line] = []
    spare = height - len(listed)
    for change in reversed(listed):
        entry = _entry(change, step_width, words_width, width, 1 + spare)
        spare -= len(entry) - 1
        lines[:0] = entry
    return lines


def _entry(change: Change, step_width: int, words_width: int, width: int, height: int) -> list[Line]:
    """Return the lines of one change. Its results are wrapped if they fit into `height` lines, otherwise cut."""
    is_over = change.status in (ChangeStatus.UNDONE, ChangeStatus.REFUSED)
    glyph, role = _glyph(change)
    words_role = "pending" if change.status is ChangeStatus.PENDING else "muted" if is_over else "text"
    begin: list[Span] = [
        (f"{glyph} ", role),
        (f"{change.step:,}".rjust(step_width) + " ", "muted"),
        (pad(_shortened(printable(change_words(change)), words_width), words_width) + "  ", words_role),
    ]
    indent = sum(width_of(text) for text, _ in begin)
    room = max(1, width - indent)
    results_role = _results_role(change, is_over=is_over)
    for only_largest in (False, True):
        results = printable(", ".join(change_results(change, only_largest=only_largest)))
        first, *rest = wrap(((results, results_role),), room)
        # Without a forecast the results are short, and the first of them is the most important one.
        if 1 + len(rest) <= height or change.forecast is None:
            break
    if 1 + len(rest) > height:
        return [fit((*begin, (elide(results, room), results_role)), width)]
    return [fit((*begin, *first), width), *(fit(((" " * indent, ""), *line), width) for line in rest)]


def _results_role(change: Change, *, is_over: bool) -> str:
    if change.status is ChangeStatus.REFUSED:
        return "warning"
    if change.verified is not None and change.verified.moved:
        return "error"
    return "pending" if change.status is ChangeStatus.PENDING else "muted" if is_over else "text"


def _glyph(change: Change) -> tuple[str, str]:
    if change.status is ChangeStatus.PENDING:
        return _PENDING
    if change.status is ChangeStatus.REFUSED or (change.receipt is not None and not change.receipt.held):
        return _REFUSED
    if isinstance(change.command, (commands.SetTrainable, commands.SetRowsTrainable)):
        return _UNFREEZE if change.command.trainable else _FREEZE
    return _GLYPHS.get(type(change.command), _OTHER)


def _shortened(words: str, width: int) -> str:
    """Cut the words to a width. The end of a path says more than its beginning."""
    verb, _, path = words.partition(" ")
    if width_of(words) <= width or len(verb) + 2 >= width:
        return elide(words, width)
    return f"{verb} {elide_start(path, width - len(verb) - 1)}"


class ChangesPanel(LineView):
    """Shows what was done to the run and what came of it."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._known: tuple[object, ...] = ()

    def update(self) -> None:
        """Show new changes and results."""
        state = self._state
        known = (
            state.intervention_count,
            state.refused[-1] if state.refused else None,
            tuple(state.pending),
            next(reversed(state.receipts.values()), None),
            next(reversed(state.profiled_peaks), None),
            next(reversed(state.verified.values()), None),
            state.ended is not None,
            state.step if state.tries.under_way is not None else None,
        )
        if known != self._known:
            self._known = known
            self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        return changes_lines(self._state, width, height)
