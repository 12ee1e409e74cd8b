"""The help: the keys that act now, what the signs of the screen mean, and a search in all actions and meanings. UI thread.

The lines are pure. They come from the table of actions and from `meanings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from gradtui.dataclass import dataclass
from gradtui.run.state.selectors import RunStatus
from gradtui.tui.actions import ACTIONS, Action, Keymap, actions_here, by_group
from gradtui.tui.rendering import BLANK, Line, Span, fit, in_columns, line_width, wrap
from gradtui.tui.screens.meanings import MEANINGS, Meaning, Meanings
from gradtui.tui.screens.text_dialog import DialogLines, TextDialog

_KEYS_WIDTH = 9
_ROOM_FOR_COLUMNS = 70
_ROOM_FOR_BLANKS = 100
_GAP = 2
_MIN_TEXT = 10

_PLACES = {
    "tree": "Selected row", "filter": "Filter", "memory": "Memory", "output": "Output", "events": "Events", "plot": "Plots",
    "output-text": "Output",
}  # fmt: skip
"""The headings of the keys that only one widget has, by its id."""

_STATUS_NOTES = {
    RunStatus.PAUSED: "training is paused",
    RunStatus.ENDED: "the run has ended",
    RunStatus.INTERRUPTED: "the run was interrupted",
    RunStatus.OUT_OF_SIGHT: "nothing more is known of the run",
    RunStatus.FAILED: "the run has failed",
}


@dataclass(frozen=True)
class Here:
    """What can be pressed where the help was opened.

    Attributes:
        place: the heading of `own`.
        own: the actions of the widget with the focus.
        others: the actions that have keys everywhere.
        palette: the keys of the command palette.
        note: what the run is doing, if that decides which keys act.
    """

    place: str
    own: tuple[Action, ...]
    others: tuple[Action, ...]
    palette: str
    note: str = ""


def here(focused: str | None, status: RunStatus, keymap: Keymap, *, replays: bool = False) -> Here:
    """Return what can be pressed while the widget with the id `focused` has the focus."""
    own, others = (tuple(keymap.apply(actions)) for actions in actions_here(focused, status, replays=replays))
    palette = keymap.apply(action for action in ACTIONS if action.id == "command_palette")[0]
    return Here(_PLACES.get(focused or "tree", ""), own, others, palette.key_text, _STATUS_NOTES.get(status, ""))


def overview_lines(pressed: Here, width: int) -> list[Line]:
    """Return the keys that act now, and each meaning of the overview in few words."""
    lines = _key_lines(pressed, width)
    note = f"Type to search what every action does; {pressed.palette} runs those without a key."
    lines += wrap((((note, "muted")),), width)
    for section in MEANINGS:
        if section.is_overview:
            lines += [BLANK] if width >= _ROOM_FOR_BLANKS else []
            lines += [_heading(section.heading), *_brief(section, width)]
    return lines


def found_lines(actions: Iterable[Action], query: str, width: int) -> list[Line]:
    """Return every action and meaning with all words of the query, in full; `actions` have their keys in force."""
    words = query.lower().split()
    lines: list[Line] = []
    listed = list(actions)
    # The command palette runs the actions without a key.
    palette = next(action.all_keys for action in listed if action.id == "command_palette")
    for group, members in by_group(listed):
        found = [
            action
            for action in members
            if _has(words, group, action.all_keys or palette, action.title, action.label, action.all_help)
        ]
        lines += [_heading(group)] if found else []
        for action in found:
            text: Line = ((f"{action.title}: ", "text"), (action.all_help, "muted"))
            lines += _wrapped(((action.all_keys or palette, "key"),), text, _KEYS_WIDTH, width)
    for section in MEANINGS:
        entries = [
            meaning
            for meaning in section.entries
            if _has(words, section.heading, *(part for part, _ in meaning.sign), meaning.brief, meaning.text)
        ]
        lines += [_heading(section.heading)] if entries else []
        for meaning in entries:
            lines += _wrapped(meaning.sign, ((meaning.text or meaning.brief, "muted"),), section.sign_width, width)
    return lines or wrap(((f"Nothing matches {query.strip()!r}. esc shows the help again.", "muted"),), width)


def _key_lines(pressed: Here, width: int) -> list[Line]:
    columns = 2 if width >= _ROOM_FOR_COLUMNS else 1
    cells = (width - _GAP * (columns - 1)) // columns
    entries: list[Line] = []
    headings = set()
    for heading, members in ((pressed.place, pressed.own), *by_group(pressed.others)):
        if members:
            headings.add(_heading(heading))
            entries.append(_heading(heading))
            listed = (action for action in members if action.in_overview)
            entries += [_row(((action.all_keys, "key"),), action.title, _KEYS_WIDTH) for action in listed]
    # No heading is the last row of a column.
    while entries[last := -(-len(entries) // columns) - 1] in headings:
        entries.insert(last, BLANK)
    return in_columns([fit(entry, cells) for entry in entries], columns, _GAP)


def _has(words: Sequence[str], *texts: str) -> bool:
    text = " ".join(texts).lower()
    return all(word in text for word in words)


def _heading(text: str) -> Line:
    return ((text, "accent"),)


def _row(sign: Line, text: str, column: int) -> Line:
    gap: Span = (" " * max(1, column + 1 - line_width(sign)), "")
    return ((" ", ""), *sign, gap, (text, "text"))


def _brief(section: Meanings, width: int) -> list[Line]:
    if width < _ROOM_FOR_COLUMNS or section.columns == 1:
        return [
            line
            for meaning in section.entries
            for line in _wrapped(meaning.sign, _words(meaning), section.sign_width, width)
        ]
    cells = (width - _GAP * (section.columns - 1)) // section.columns
    rows = [fit(_row(meaning.sign, meaning.brief, section.sign_width + 1), cells) for meaning in section.entries]
    return in_columns(rows, section.columns, _GAP)


def _words(meaning: Meaning) -> Line:
    return ((meaning.brief, "text"),)


def _wrapped(sign: Line, text: Line, column: int, width: int) -> list[Line]:
    indent = column + 3
    first, *rest = wrap(text, max(_MIN_TEXT, width - indent))
    gap: Span = (" " * max(1, indent - 1 - line_width(sign)), "")
    return [((" ", ""), *sign, gap, *first), *(((" " * indent, ""), *line) for line in rest)]


class SearchLine(Input):
    """The search line. It leaves the key that opened the help to the dialog."""

    def check_consume_key(self, key: str, character: str | None) -> bool:
        return key != "question_mark" and super().check_consume_key(key, character)


class HelpDialog(TextDialog[None]):
    """The overview, and what a search finds: typed text goes to the search line.

    Args:
        actions: all actions, with their keys in force.
        pressed: what can be pressed where the help was opened.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear_or_close", show=False),
        Binding("question_mark,f1", "dismiss", show=False, priority=True),
        Binding("home", "scroll_to_start", show=False, priority=True),
        Binding("end", "scroll_to_end", show=False, priority=True),
    ]

    def __init__(self, actions: Sequence[Action], pressed: Here) -> None:
        self._actions, self._pressed = actions, pressed
        self._search = SearchLine(placeholder="type to search", compact=True, id="search")
        super().__init__("Help", DialogLines(self._lines))
        self._text.can_focus = False

    @property
    def query_text(self) -> str:
        """The text to search for. The slash that opens a filter elsewhere may begin it."""
        return self._search.value.removeprefix("/").strip()

    @property
    def note(self) -> str:
        return self._pressed.note

    @property
    def keys(self) -> str:
        return "esc clears the search" if self._search.value else "type to search"

    def compose(self) -> ComposeResult:
        with self._box:
            self._show_title()
            yield self._search
            yield self._text

    def on_mount(self) -> None:
        self._search.cursor_blink = False
        self._search.focus()

    def on_input_changed(self) -> None:
        self._text.top = 0
        self.update()
        self.on_dialog_lines_laid_out()

    def on_input_submitted(self) -> None:
        if not self._search.value:
            self.dismiss(None)

    def on_key(self, event: events.Key) -> None:
        """Scroll by the keys that the search line leaves."""
        self._text.on_key(event)

    def action_clear_or_close(self) -> None:
        if self._search.value:
            self._search.value = ""
        else:
            self.dismiss(None)

    def action_scroll_to_start(self) -> None:
        self._text.scroll_top_to(0)

    def action_scroll_to_end(self) -> None:
        self._text.scroll_top_to(self._text.line_count(self._text.content_size.width - 1))

    def _lines(self, width: int) -> Sequence[Line]:
        query = self.query_text
        return found_lines(self._actions, query, width) if query else overview_lines(self._pressed, width)
