"""The list of findings and the page of one. Both end with the row of the tree to go to, None if there is none. UI thread."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from gradtui.run.state.findings import Finding, newest_first
from gradtui.run.state.run_state import RunState
from gradtui.tui.explanations.finding_lines import count_words, entry_lines, finding_rows, status_word
from gradtui.tui.rendering import Line, detail_lines, wrap
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog
from gradtui.tui.tree import first_row

_NONE = "No rule has found anything wrong so far. The rules run at every sampled step."


class FindingDialog(TextDialog[int]):
    """The page of a finding. Dismissed with the first row that it concerns if the user wants to go there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "go", "go to the row", show=False),
        Binding("exclamation_mark", "next", "next finding", show=False),
    ]
    changes = True

    def __init__(self, state: RunState, finding: Finding) -> None:
        self._state, self._finding = state, finding
        super().__init__(finding.rule, DialogLines(self._lines))

    @property
    def note(self) -> str:
        return f"{self._finding.level}, {status_word(self._finding)}"

    @property
    def keys(self) -> str:
        return "enter goes to its row" if self._row is not None else ""

    @property
    def _row(self) -> int | None:
        return first_row(self._state.tree, self._finding)

    def action_go(self) -> None:
        self.dismiss(self._row)

    def action_next(self) -> None:
        """Close the page, and go on to the next finding if the page was opened from the dashboard."""
        self.dismiss(None)
        self.app.call_next(self.app.run_action, "screen.next_problem")

    def _lines(self, width: int) -> list[Line]:
        known = _same(self._state.findings, self._finding)
        if known is not None:
            self._finding = known
        return detail_lines(finding_rows(self._finding, is_known=known is not None), width)


class FindingList(DialogLines):
    """The findings, newest first, with a cursor."""

    class Opened(Message):
        """The user clicked the entry under the cursor."""

    def __init__(self, state: RunState) -> None:
        super().__init__(self._make_lines)
        self._state = state
        self._at: Finding | None = None
        self._ends: list[int] = []
        """For each entry the index of the line after it."""

    @property
    def current(self) -> Finding | None:
        """The finding under the cursor, None if there are none."""
        shown = newest_first(self._state.findings)
        if self._at is not None:
            self._at = _same(shown, self._at)
        if self._at is None and shown:
            self._at = shown[0]
        return self._at

    def _make_lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        self._ends = []
        current = self.current
        for finding in newest_first(self._state.findings):
            entry = entry_lines(finding, width)
            if finding is current:
                entry = [tuple((text, f"{role}@cursor") for text, role in line) for line in entry]
            lines += entry
            self._ends.append(len(lines))
        return lines or wrap(((_NONE, "muted"),), width)

    def on_key(self, event: events.Key) -> None:
        """Move the cursor by the usual keys."""
        shown, current = newest_first(self._state.findings), self.current
        at = shown.index(current) if current is not None else 0
        to = {
            "up": at - 1, "k": at - 1, "down": at + 1, "j": at + 1,
            "pageup": at - 5, "pagedown": at + 5, "home": 0, "end": len(shown) - 1,
        }.get(event.key)  # fmt: skip
        if to is None:
            return
        event.stop()
        event.prevent_default()
        if shown:
            self._move_to(shown, min(max(0, to), len(shown) - 1))

    def on_click(self, event: events.Click) -> None:
        """Select an entry. A click on the selected one opens it."""
        event.stop()
        offset, shown = event.get_content_offset(self), newest_first(self._state.findings)
        index = next((i for i, end in enumerate(self._ends) if offset is not None and self.top + offset.y < end), None)
        if index is None or index >= len(shown):
            return
        if shown[index] is self.current:
            self.post_message(self.Opened())
        self._move_to(shown, index)

    def _move_to(self, shown: list[Finding], index: int) -> None:
        self._at = shown[index]
        self.update()
        first, end = self._ends[index - 1] if index else 0, self._ends[index]
        self.scroll_top_to(min(max(self.top, end - self.content_size.height), first))


class FindingListDialog(TextDialog[int]):
    """The list of all findings. Dismissed with the row to go to, if a page that was opened from here asks for one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", show=False),
        Binding("d", "dismiss", "close", show=False),
    ]
    changes = True

    def __init__(self, state: RunState) -> None:
        self._state, self._list = state, FindingList(state)
        super().__init__("Findings", self._list)

    @property
    def keys(self) -> str:
        return "enter opens" if self._state.findings else ""

    @property
    def note(self) -> str:
        return count_words(self._state.findings)

    def on_finding_list_opened(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        finding = self._list.current
        if finding is not None:
            self.app.push_screen(FindingDialog(self._state, finding), self._go_to)

    def _go_to(self, row: int | None) -> None:
        if row is not None:
            self.dismiss(row)


def _same(findings: list[Finding], finding: Finding) -> Finding | None:
    """Return the newest form of a finding, None if the run has it no longer."""
    return next((listed for listed in findings if (listed.rule, listed.key) == (finding.rule, finding.key)), None)
