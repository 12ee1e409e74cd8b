"""The events panel: the log of the run, newest entry at the bottom. UI thread."""

from __future__ import annotations

from gradtui.protocol.commands import ShowRank
from gradtui.run.state.run_state import LogEntry, RunState
from gradtui.run.text.commands import command_text
from gradtui.run.text.units import seconds_text
from gradtui.tui.rendering import Line, Span, cut, fit, linked_places, printable, wrap
from gradtui.tui.widgets import FollowedLines

KINDS: dict[str, tuple[str, str, str, str]] = {
    "applied": ("✔", "good", "applied", "a freeze or another change took effect, at a step boundary"),
    "rejected": (
        "✖",
        "warning",
        "refused",
        "a command was not carried out, or its result not measured, for the reason beside it",
    ),
    "receipt": ("◆", "accent", "receipt", "what a change has brought, measured some steps later"),
    "verified": ("◆", "good", "unchanged", "the tensors of a freeze did not change"),
    "moved": ("!", "error", "moved", "a frozen tensor changed"),
    "contending": ("!", "warning", "contending", "the script makes trainable what a command has frozen"),
    "not finite": ("!", "error", "not finite", "where NaN or Inf appeared first: the phase, the module, the parameter"),
    "finding": (
        "!",
        "warning",
        "finding",
        "a rule is sure that something is wrong; the list of findings has all of them",
    ),
    "ranks": ("!", "error", "ranks", "something differs between ranks that all of them must have in common"),
    "growth": ("!", "warning", "growth", "memory rises step after step"),
    "spike": ("!", "warning", "spike", "the memory peak of a step is far above those around it"),
    "loss spike": (
        "!",
        "warning",
        "loss spike",
        "the loss or the gradient norm of a step is far above those before it, and of which batch",
    ),
    "out of memory": (
        "✖",
        "error",
        "no memory",
        "an allocation failed, whether the script caught it or not; the file lists the owners of the memory",
    ),
    "checkpoint": (
        "!",
        "warning",
        "checkpoint",
        "what the script's checkpoints hold and lack while something is unfrozen",
    ),
    "schedule": ("✖", "error", "schedule", "what became of the file of --schedule, where it was not all carried out"),
    "returns": ("!", "error", "returns", "a return policy gives up: the run continues without returns"),
    "probe": ("!", "warning", "gradtui", "a part of gradtui failed; training was not touched"),
    "message": ("›", "muted", "message", "what the last line of the screen said"),
    "run": ("▶", "accent", "run", "started, paused, resumed, ended"),
    "model": ("◇", "muted", "found", "a model or an optimizer"),
}
"""Glyph, colour role, name and meaning of each kind of entry."""

_STEP_WIDTH, _STEP_WIDTH_NARROW = 13, 9
_ROOM_FOR_COLUMNS, _ROOM_FOR_TIME = 60, 80
_MIN_LINES = 2
_MEMORY = 4_000
"""Number of entries whose wrapped lines are cached."""


def entry_lines(entry: LogEntry, width: int) -> list[Line]:
    """Wrap an entry; continuation lines are indented to its text."""
    glyph, role, *_ = KINDS.get(entry.kind, ("·", "muted"))
    text_role = (
        role if entry.kind in ("rejected", "moved", "not finite", "out of memory", "returns", "probe") else "text"
    )
    if width < _ROOM_FOR_COLUMNS:
        return wrap(
            (
                (f"{glyph} ", role),
                (f"step {entry.step:,}".ljust(_STEP_WIDTH_NARROW) + " ", "muted"),
                *linked_places(printable(entry.text), text_role),
            ),
            width,
            2,
        )
    when: list[Span] = [(f"{glyph} ", role), (f"step {entry.step:,}".ljust(_STEP_WIDTH), "muted")]
    if width >= _ROOM_FOR_TIME:
        when.insert(1, (f"{seconds_text(entry.at)}  ", "faint"))
    indent = sum(len(text) for text, _ in when)
    room = max(10, width - indent)
    body = wrap(linked_places(printable(entry.text), text_role), room)
    return [(*when, *body[0]), *(((" " * indent, ""), *line) for line in body[1:])]


class EventsPanel(FollowedLines):
    """Shows the log of the run and the pending commands."""

    def __init__(self, state: RunState, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._state = state
        self._wrapped: dict[LogEntry, list[Line]] = {}
        self._width = 0
        self._shown: list[Line] = []
        self._known: tuple[object, ...] = ()

    def update(self) -> None:
        """Show new entries. While the user has scrolled up, the text does not move."""
        if self.follows:
            self.redraw()

    def line_count(self, width: int) -> int:
        log = self._state.log
        most = max(_MIN_LINES, self.content_size.height - 1)
        known = (len(log), log[-1] if log else None, tuple(self._state.pending), most)
        if width != self._width or known != self._known:
            self._lay_out(width, most)
            self._known = known
        return len(self._shown)

    def line_at(self, index: int, width: int) -> Line:
        return fit(self._shown[index], width)

    def _lay_out(self, width: int, most: int) -> None:
        """Wrap the entries into at most `most` lines each, so that the newest one shows its beginning."""
        if width != self._width or len(self._wrapped) > _MEMORY:
            self._width, self._wrapped = width, {}
        self._shown = []
        for entry in self._state.log:
            if entry not in self._wrapped:
                self._wrapped[entry] = entry_lines(entry, width)
            lines = self._wrapped[entry]
            self._shown += lines if len(lines) <= most else [*lines[: most - 1], cut(lines[most - 1], width)]
        for command in self._state.pending.values():
            what = "the rank's state" if isinstance(command, ShowRank) else "the next step boundary"
            text = f"{command_text(command)}: waits for {what}"
            self._shown += wrap((("◌ ", "pending"), (printable(text), "pending")), width, 2)
        if not self._shown:
            text = "Models, optimizers, freezes and their verification are listed here once the run starts."
            self._shown = wrap(((text, "muted"),), width)
