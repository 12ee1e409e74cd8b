"""Messages to the user in one line above the footer: answers, refusals, failures. UI thread; `message_line` is pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Literal

from textual.message import Message

from gradtui.dataclass import dataclass
from gradtui.tui.rendering import Line, elide, line_width, printable, spread, width_of
from gradtui.tui.widgets.line_view import LineView

Severity = Literal["information", "warning", "error"]

SECONDS = 8.0
"""Seconds after which information disappears. Warnings and errors stay until the next key."""

_SIGNS: dict[Severity, tuple[str, str, str]] = {
    "information": (" › ", "accent", "text"),
    "warning": (" ! ", "warning", "warning"),
    "error": (" ✖ ", "error", "error"),
}
"""Sign, role of the sign and role of the text, the least grave first."""
_GRAVITY = tuple(_SIGNS)


@dataclass(frozen=True)
class StatusMessage:
    """What the user has to be told.

    Args:
        text: the message; line breaks count as blanks.
        title: a word before it, such as `Refused`.
        severity: how grave it is.
        seconds: how long it is shown if it is information.
        shorter: shorter texts for where it does not fit, the longest first.
    """

    text: str
    title: str = ""
    severity: Severity = "information"
    seconds: float = SECONDS
    shorter: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The title and the text in one line."""
        words = " ".join(self.text.split())
        return f"{self.title}: {words}" if self.title else words


@dataclass(frozen=True)
class Status:
    """What the line shows.

    Args:
        message: the gravest unread message, the newest of several.
        others: the number of other unread messages.
        key: the key that shows the events, where all messages are.
    """

    message: StatusMessage
    others: int
    key: str


@dataclass
class StatusMessages:
    """The messages that the user may not have read yet."""

    _unread: list[tuple[StatusMessage, float]] = field(default_factory=list)

    def add(self, message: StatusMessage, now: float) -> None:
        """Add a message at a time in seconds. The same message again replaces the earlier one."""
        self._unread = [entry for entry in self._unread if entry[0] != message]
        self._unread.append((message, now))

    def clear(self) -> None:
        """Drop all messages: the user has pressed a key."""
        self._unread = []

    def status(self, now: float, key: str) -> Status | None:
        """Return what to show now; None if there is nothing to show."""
        self._unread = [
            entry for entry in self._unread if entry[0].severity != "information" or now < entry[1] + entry[0].seconds
        ]
        if not self._unread:
            return None
        gravest = max(reversed(self._unread), key=lambda entry: _GRAVITY.index(entry[0].severity))
        return Status(gravest[0], len(self._unread) - 1, key)


def message_line(status: Status, width: int) -> Line:
    """Return a message in exactly `width` cells. Where it is cut, the line names the key that shows all of it."""
    sign, sign_role, role = _SIGNS[status.message.severity]
    texts = [printable(text) for text in (status.message.line, *status.message.shorter)]
    right: Line = _hint(f"{status.others} more", status.key) if status.others else ()
    room = width - width_of(sign) - (line_width(right) or 1)
    text = next((text for text in texts if width_of(text) <= room), texts[-1])
    if not right and width_of(text) > room:
        right = _hint("more", status.key)
    room = max(0, width - width_of(sign) - line_width(right))
    return spread(((sign, sign_role), (elide(text, room), role)), right, width)


def _hint(words: str, key: str) -> Line:
    return ("  ", ""), (key, "key"), (f" {words} ", "muted")


class StatusLine(LineView):
    """A line over the screen, which is there only while there is a message: above the footer, in a dialog at the bottom.

    A click posts `Read`.
    """

    DEFAULT_CSS = """
    StatusLine { layer: status; dock: bottom; width: 100%; height: 1; background: $panel; }
    """

    class Read(Message):
        """The user clicked the message."""

    def __init__(self) -> None:
        super().__init__()
        self._status: Status | None = None
        self.display = False

    def show_status(self, status: Status | None) -> None:
        """Show a message, or nothing."""
        if status != self._status:
            self._status = status
            self.display = status is not None
            self.redraw()

    def lines_for(self, width: int, height: int) -> Sequence[Line]:  # noqa: ARG002
        return [message_line(self._status, width)] if self._status is not None else []

    def on_click(self) -> None:
        self.post_message(self.Read())
