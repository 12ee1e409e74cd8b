"""The line under the header, which says whether anything is wrong: the gravest open finding. UI thread; the lines are pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message

from gradtui.run.state.findings import Finding, open_findings
from gradtui.run.state.run_state import RunState
from gradtui.run.text.step_times import time_verdict
from gradtui.run.text.throughput import throughput_words
from gradtui.tui.actions import keymap_of
from gradtui.tui.rendering import LEVEL_ROLES, Line, elide, line_width, printable, spread, width_of
from gradtui.tui.widgets import LineView

_WIDE = 120
"""From this width on, the line has both keys."""
_ARROW = " → "
_BETWEEN = " · "
_MIN_REMEDY = 20
"""Minimum cells for a remedy that is cut."""


def finding_line(finding: Finding, count: int, width: int, next_key: str, list_key: str) -> Line:
    """Return a finding and its remedy, as far as they fit, in exactly `width` cells.

    Args:
        finding: the finding.
        count: the number of open findings.
        width: the width in cells.
        next_key: the key that goes to the next row that a finding concerns, empty where there are no rows.
        list_key: the key that lists all findings.
    """
    badge = f" {finding.level} {finding.rule} "
    hint = _hint(count, width, next_key, list_key)
    message, remedy = _fitted(
        printable(finding.message), printable(finding.remedy), width - len(badge) - 1 - line_width(hint)
    )
    return spread(
        ((badge, f"ground on {LEVEL_ROLES[finding.level]}"), (" ", ""), (message, "text"), (remedy, "muted")),
        hint,
        width,
    )


def no_finding_line(
    findings: Sequence[Finding],
    width: int,
    list_key: str,
    *,
    has_begun: bool,
    time: str = "",
    speed: Sequence[str] = (),
) -> Line:
    """Return what stands in place of a finding while none is open, in `width` cells.

    Args:
        findings: those that are not open.
        width: the width in cells.
        list_key: the key that lists them.
        has_begun: whether there were steps.
        time: where the time goes.
        speed: what the run processes in a second. What does not fit is left out.
    """
    cleared = sum(not each.is_open for each in findings)
    suspected = len(findings) - cleared
    others = [
        f"{number} {words}"
        for number, words in ((cleared, "cleared"), (suspected, "suspected: needs more samples"))
        if number
    ]
    verdict: Line = (
        ((" ✔ ", "good"), ("no findings", "text")) if has_begun else (("   ", ""), ("no findings yet", "muted"))
    )
    hint: Line = ((f" {list_key} ", "key"), ("list ", "muted")) if others else ()
    room = max(0, width - line_width(verdict) - line_width(hint))
    words = elide("".join(f"{_BETWEEN}{each}" for each in [*others, time] if each), room)
    for each in speed:
        if width_of(words) + len(_BETWEEN) + width_of(each) < room:
            words += f"{_BETWEEN}{each}"
    return spread((*verdict, (words, "muted")), hint, width)


def _hint(count: int, width: int, next_key: str, list_key: str) -> Line:
    everything = "list" if count == 1 else f"all {count}"
    where = "go to it" if count == 1 else "next"
    if width < _WIDE or not next_key:
        return (f" {list_key} ", "key"), (f"{everything} ", "muted")
    return (f" {next_key} ", "key"), (f"{where}  ", "muted"), (f"{list_key} ", "key"), (f"{everything} ", "muted")


def _fitted(message: str, remedy: str, room: int) -> tuple[str, str]:
    """Return a message and a remedy for this many cells. The first clause of a message says most."""
    clause = message.rpartition(": ")[0] or message
    for words in (message, clause):
        if width_of(words) + len(_ARROW) + width_of(remedy) <= room:
            return words, _ARROW + remedy
    left = room - width_of(clause) - len(_ARROW)
    if left >= _MIN_REMEDY:
        return clause, _ARROW + elide(remedy, left)
    return (message if width_of(message) <= room else elide(clause, max(0, room))), ""


class FindingLine(LineView):
    """Whether anything is wrong, in one line that is always there: the gravest open finding, or that there is none.

    Args:
        state: the run.
        has_rows: whether a key of the screen goes to the rows that a finding concerns.
    """

    class Pressed(Message):
        """The user clicked the line.

        Args:
            finding: the finding that it shows.
        """

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    def __init__(self, state: RunState, *, has_rows: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state, self._has_rows = state, has_rows
        self._drawn: tuple[list[Finding], bool, str, list[str]] | None = None
        self._open: list[Finding] = []

    def update(self) -> None:
        """Show the newest findings."""
        state = self._state
        now = state.findings, state.step > 0, time_verdict(state), throughput_words(state)
        if self._drawn is None or now[0] is not self._drawn[0] or now[1:] != self._drawn[1:]:
            self._drawn = now
            self._open = open_findings(self._state.findings)
            self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        next_key, list_key = (keymap_of(self.app).action(id).key_text for id in ("next_problem", "findings"))
        if self._open:
            next_key = next_key if self._has_rows else ""
            return [finding_line(self._open[0], len(self._open), width, next_key, list_key)]
        state, words = self._state, (time_verdict(self._state), throughput_words(self._state))
        has_begun = state.step > 0
        return [no_finding_line(state.findings, width, list_key, has_begun=has_begun, time=words[0], speed=words[1])]

    def on_click(self) -> None:
        if self._open:
            self.post_message(self.Pressed(self._open[0]))
