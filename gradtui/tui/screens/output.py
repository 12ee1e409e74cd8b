"""The script's output on the whole screen, with a search. UI thread.

It reads the log again from its beginning, or its last megabytes, so that it has more lines than the panel. Until it has caught
up, it shows those of the panel.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from gradtui.run.state.selectors import run_status
from gradtui.transport.log_tail import LogTail
from gradtui.transport.rank_logs import OutputLine
from gradtui.transport.text_styles import StyledLine
from gradtui.tui.actions import ACTIONS, SHARED_WITH_OUTPUT, applicable, bindings, output_footer
from gradtui.tui.panels import OutputPanel
from gradtui.tui.rendering import Line, fit, printable, styled_spans, width_of
from gradtui.tui.screens.action_context import ActionContext
from gradtui.tui.screens.front_screen import FrontScreen
from gradtui.tui.widgets import ScrollLines

MAX_LINES = 100_000
MAX_BYTES = 32 << 20
"""Lines, and bytes at the end of the log, that are read again."""

_READ_S = 0.04
_READ_SIZE = 128 << 10
"""Seconds between two readings while it catches up, and the bytes of one. They take some milliseconds each."""

_SHIFT = 16
"""Cells by which a key moves long lines."""

_MATCH, _THIS_MATCH = "ground on warning", "ground on accent"


class OutputText(ScrollLines):
    """The lines, cut at the width of the screen. They are numbered from the first one that was read."""

    def __init__(self, panel: OutputPanel) -> None:
        super().__init__(id="output-text")
        self._panel, self.follows = panel, True
        self.history = _history(panel)
        self.is_caught_up = self._has_all = False
        self.source: Sequence[OutputLine | StyledLine] = ()
        self.first = 0
        """The number of the first line that is kept."""
        self.left = 0
        """Cells of each line that are left of the screen."""
        self.pattern = ""
        self.matches: list[int] = []
        """The numbers of the lines with the pattern, as of the last key."""
        self.match: int | None = None
        """The number of the line that was found."""

    def read(self) -> bool:
        """Read more of the log. Returns whether there is more to read at once."""
        if self.history is None:
            return False
        self.history.poll()
        self.is_caught_up = self.is_caught_up or not self.history.unread
        return bool(self.history.unread)

    @property
    def progress(self) -> str:
        """How much of the log has been read; empty once it has caught up."""
        history = self.history
        if history is None or self.is_caught_up:
            return ""
        return f"reading the log: {100 * history.offset // max(1, history.offset + history.unread)} %"

    def update(self) -> None:
        """Show what was printed since."""
        if self.history is None or not self.is_caught_up:
            self.source = self._panel.newest_lines
        elif self._has_all:
            self.source = self.history.styled_lines
            # The lines that are shown stay where they are, although older ones have been dropped.
            self.top = max(0, self.top - (self.history.dropped - self.first))
            self.first = self.history.dropped
        else:
            self._take_all(self.history)
        self.redraw()

    def _take_all(self, history: LogTail) -> None:
        """Show the lines that were read again in place of those of the panel, which are the last ones of them."""
        self._has_all = True
        earlier = max(0, len(history.styled_lines) - len(self.source))
        self.source, self.first = history.styled_lines, history.dropped
        self.top += earlier
        if self.match is not None:
            self.match += self.first + earlier
            self.matches = self._found()
        elif self.pattern:
            self.go_to_match(-1 if self.follows else 1)

    def lines_for(self, width: int, height: int) -> Sequence[Line]:
        return super().lines_for(width, height) if self.source else self._panel.empty_lines(width)

    def line_count(self, width: int) -> int:  # noqa: ARG002 - lines are not wrapped
        return len(self.source)

    def line_at(self, index: int, width: int) -> Line:
        line = self.source[index]
        label: Line = ((line.label, "faint"),) if isinstance(line, OutputLine) and line.label else ()
        styled = line.styled if isinstance(line, OutputLine) else line
        room = width - sum(width_of(text) for text, _ in label)
        start = _index_at(styled.text, self.left)
        shown = styled.part(start, _index_at(styled.text, self.left + room + 1))
        return fit((*label, *self._spans(shown, is_this=index + self.first == self.match)), width)

    def _spans(self, line: StyledLine, *, is_this: bool) -> Line:
        spans: list[tuple[str, str]] = []
        end = 0
        for start in _found_in(line.text, self.pattern):
            spans += styled_spans(line.part(end, start)) if start > end else ()
            end = start + len(self.pattern)
            spans.append((printable(line.text[start:end]), _THIS_MATCH if is_this else _MATCH))
        return (*spans, *styled_spans(line.part(end, len(line.text))))

    def scrolled(self, *, at_end: bool) -> None:
        self.follows = at_end

    # Search

    def search(self, pattern: str) -> None:
        """Find a text: of output that is followed its last line, and otherwise the first one from the top of the screen on."""
        self.pattern, self.match = pattern, None
        if pattern:
            self.go_to_match(-1 if self.follows else 1)
        else:
            self.matches = []
            self.redraw()

    def go_to_match(self, further: int) -> None:
        """Go to the next line with the text (1), or the one before (-1), from the line that was found last."""
        self.matches = self._found()
        if not self.matches:
            self.match = None
            self.redraw()
            return
        if self.match is None:
            at = bisect_left(self.matches, self.first + (len(self.source) if further < 0 else self.top))
            at -= further < 0
        else:
            at = bisect_left(self.matches, self.match + (further > 0)) - (further < 0)
        self.match = self.matches[at % len(self.matches)]
        self._show_match()

    def _found(self) -> list[int]:
        """Return the numbers of the lines with the pattern."""
        return [
            self.first + index
            for index, line in enumerate(self.source)
            if next(_found_in(line.text, self.pattern), None) is not None
        ]

    def _show_match(self) -> None:
        size = self.content_size
        index = (self.match or 0) - self.first
        text = self.source[index].text
        start = next(_found_in(text, self.pattern), 0)
        cell = width_of(text[:start])
        if not self.left <= cell < self.left + size.width - len(self.pattern) - 2:
            self.left = max(0, cell - size.width // 2)
        if self.top <= index < self.top + size.height and not self.follows:
            self.redraw()
        else:
            self.scroll_top_to(index - size.height // 2)

    @property
    def search_words(self) -> str:
        """What came of the search; empty if there is none."""
        if not self.pattern:
            return ""
        if self.match is None:
            return f"{self.pattern!r} is nowhere" + (" so far" if self.progress else "")
        at = bisect_left(self.matches, self.match) + 1
        return f"{self.pattern!r}: line {at:,} of {len(self.matches):,} that have it"


class OutputScreen(FrontScreen, ModalScreen[None]):
    """The header, the output, and a footer with its keys."""

    BINDINGS = bindings("output", *SHARED_WITH_OUTPUT)
    AUTO_FOCUS = "#output-text"

    def __init__(self, context: ActionContext, panel: OutputPanel) -> None:
        super().__init__(context)
        self._panel = panel
        self.text = OutputText(panel)
        self.input = Input(placeholder="text to find", compact=True, id="search")
        self.input.display = False
        self.input.cursor_blink = False
        self._shown: tuple[str, ...] = ()

    def contents(self) -> Iterable[Widget]:
        return self.text, self.input

    def on_mount(self) -> None:
        self._panel.follows = True  # a panel that does not follow says nothing of new output
        self._readings = self.set_interval(_READ_S, self._read)
        self.call_after_refresh(self.draw, "output")

    def _read(self) -> None:
        if not self.text.read():
            self._readings.pause()
            self.draw("output")

    # Drawing

    def visible_parts(self) -> list[str]:
        """Return the visible parts: there is only "output"."""
        return ["output"]

    def draw(self, part: str) -> None:  # noqa: ARG002 - there is one
        """Show new output."""
        try:
            if self.text.is_caught_up and self.text.read():
                self._readings.resume()
            self.text.update()
            self._update_frame()
        except Exception as error:  # noqa: BLE001  # a view must never cost the screen
            self.text.show_failure(error)

    def collect_pictures(self) -> None:
        """Do nothing: there is no chart."""

    def show_keys(self) -> None:
        others = tuple(action for action in ACTIONS if action.id in SHARED_WITH_OUTPUT)
        shown = output_footer(others, has_search=bool(self.text.pattern), has_ranks=self._panel.has_ranks)
        self.keys.show(applicable(shown, run_status(self._state)))

    def _update_frame(self) -> None:
        text = self.text
        count = len(text.source)
        height = max(1, text.content_size.height)
        last = min(count, text.top + height)
        shown = f"lines {text.first + text.top + 1:,}–{text.first + last:,} of {text.first + count:,}"
        place = shown if count else ""
        left = f"from column {text.left + 1}" if text.left else ""
        follows = "follows the end" if text.follows else ""
        note = " · ".join(filter(None, (text.search_words, text.progress, left, place, follows)))
        title = " · ".join(filter(None, ("Output", self._panel.shown_words)))
        # Setting the titles redraws the frame, so set them only if they changed.
        if (title, note) != self._shown:
            self._shown = (title, note)
            text.border_title = Content.assemble((printable(title), "bold"))
            text.border_subtitle = Content(printable(note))

    def show_row(self, row: int | None) -> None:
        """Leave for the screen below, and show a row of its tree."""
        if row is None:
            return
        below = self.app.screen_stack[self.app.screen_stack.index(self) - 1]
        self.dismiss()
        if isinstance(below, FrontScreen):
            below.show_row(row)

    # Actions; `output_actions.OUTPUT_ACTIONS` describes each

    def action_search(self) -> None:
        self.input.display = True
        self.input.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.input.display = False
        self.text.focus()
        self.text.search(event.value)
        self._after_key()

    def action_match(self, further: int) -> None:
        if self.text.pattern:
            self.text.go_to_match(further)
            self._after_key()
        else:
            self.action_search()

    def action_go(self, lines: int) -> None:
        self.text.scroll_lines(lines)
        self._after_key()

    def action_page(self, pages: int) -> None:
        self.action_go(pages * max(1, self.text.content_size.height - 1))

    def action_end(self, last: int) -> None:
        self.text.scroll_top_to(len(self.text.source) if last else 0)
        self._after_key()

    def action_shift(self, further: int) -> None:
        self.text.left = max(0, self.text.left + further * _SHIFT)
        self.text.redraw()
        self._after_key()

    def action_other_rank(self) -> None:
        self._panel.show_next_rank()
        self.text.follows = True
        self.draw("output")
        self.text.search(self.text.pattern)

    def action_close_output(self) -> None:
        if self.input.display:
            self.input.display = False
            self.text.focus()
        elif self.text.pattern:
            self.text.search("")
            self._after_key()
        else:
            self.dismiss(None)

    def _after_key(self) -> None:
        self._update_frame()
        self.show_keys()


def _history(panel: OutputPanel) -> LogTail | None:
    """Return a tail of the log that has more lines than that of the panel; None for the logs of ranks."""
    log = panel.source
    if not isinstance(log, LogTail):
        return None
    try:
        size = os.stat(log.path).st_size
    except OSError:
        return None
    offset = max(log.start, size - MAX_BYTES)
    return LogTail(
        log.path, max_lines=MAX_LINES, offset=offset, max_read=_READ_SIZE, skips=False, displays=log.displays
    )


def _found_in(text: str, pattern: str) -> Iterator[int]:
    """Yield where a pattern begins in a text. Without capitals it stands for capitals too."""
    if not pattern:
        return
    # Lower case may have another length, and then it cannot be told where the pattern is.
    lowered = text.lower() if pattern == pattern.lower() else text
    within = lowered if len(lowered) == len(text) else text
    at = within.find(pattern)
    while at >= 0:
        yield at
        at = within.find(pattern, at + len(pattern))


def _index_at(text: str, cell: int) -> int:
    """Return the index of the character at a cell of the text, or the length of the text."""
    if text.isascii():
        return min(cell, len(text))
    used = 0
    for index, character in enumerate(text):
        if used >= cell:
            return index
        used += width_of(character)
    return len(text)
