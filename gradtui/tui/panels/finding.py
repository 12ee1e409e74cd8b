"""The line under the header with the gravest open finding. UI thread; `finding_line` is pure."""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message

from gradtui.state.findings import Finding, open_findings
from gradtui.state.run_state import RunState
from gradtui.tui.actions import keymap_of
from gradtui.tui.rendering import LEVEL_ROLES, Line, elide, printable, spread, width_of
from gradtui.tui.widgets import LineView

_WIDE = 120
"""From this width on, the key has the full word beside it."""
_ARROW = " → "
_MIN_REMEDY = 20
"""Minimum cells for a remedy that is cut."""


def finding_line(finding: Finding, count: int, width: int, key: str) -> Line:
    """Return a finding and its remedy, as far as they fit, in exactly `width` cells.

    Args:
        finding: the finding.
        count: the number of open findings.
        width: the width in cells.
        key: the key that lists all findings.
    """
    badge = f" {finding.level} {finding.rule} "
    hint = _hint(count, width)
    room = width - len(badge) - 1 - len(hint) - len(key) - 3
    message, remedy = _fitted(printable(finding.message), printable(finding.remedy), room)
    return spread(
        ((badge, f"ground on {LEVEL_ROLES[finding.level]}"), (" ", ""), (message, "text"), (remedy, "muted")),
        ((f" {key} ", "key"), (hint, "muted")),
        width,
    )


def _hint(count: int, width: int) -> str:
    if width < _WIDE:
        return "list " if count == 1 else f"all {count} "
    return "findings " if count == 1 else f"{count} findings "


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
    """The gravest open finding in one line, which is there only while there is one."""

    class Pressed(Message):
        """The user clicked the line.

        Args:
            finding: the finding that it shows.
        """

        def __init__(self, finding: Finding) -> None:
            super().__init__()
            self.finding = finding

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._findings: list[Finding] = []
        self._open: list[Finding] = []
        self.display = False

    def update(self) -> None:
        """Show the newest findings. Only the first open one and the end of the last one cost a layout of the screen."""
        if self._state.findings is self._findings:
            return
        self._findings = self._state.findings
        self._open = open_findings(self._findings)
        if self.display != bool(self._open):
            self.display = bool(self._open)
        self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        key = keymap_of(self.app).action("findings").key_text
        return [finding_line(self._open[0], len(self._open), width, key)] if self._open else []

    def on_click(self) -> None:
        if self._open:
            self.post_message(self.Pressed(self._open[0]))
