"""What the marks of the curves stand for: in a few words, and as the rows of a dialog. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradtui.protocol.events import CommandApplied, MemorySpikeFound
from gradtui.run.state.findings import Finding
from gradtui.run.state.over_steps.markers import Marker, MarkerKind
from gradtui.run.state.parts.rate_jumps import RateJump
from gradtui.run.state.run_state import RunState
from gradtui.run.text import change_results, change_words, counted_changes, spike_text
from gradtui.tui.explanations.finding_lines import finding_rows
from gradtui.tui.rendering import MARKERS, DetailRow, Line, Span, printable, text_rows


def mark_words(marks: Sequence[Marker]) -> Line:
    """Return marks in a few words: `■ freeze blocks.7`."""
    spans: list[Span] = []
    for mark in marks:
        glyph, role = MARKERS[mark.kind]
        spans += [("  ", "")] if spans else []
        spans += [(f"{glyph} ", role), (printable(f"{mark.kind} {mark.words}".strip()), "text")]
    return tuple(spans)


def mark_rows(state: RunState, marks: Iterable[Marker]) -> list[DetailRow]:
    """Return what each mark stands for."""
    rows: list[DetailRow] = []
    told: list[object] = []
    for mark in marks:
        # A command that freezes and unfreezes has two marks.
        if mark.of is not None and any(mark.of is each for each in told):
            continue
        told.append(mark.of)
        glyph, role = MARKERS[mark.kind]
        rows += [DetailRow(" ", ((" ", ""),))] if rows else []
        rows += [DetailRow(str(mark.kind), ((f"{glyph} ", role), (_when(mark), "strong")))]
        rows += _rows_of(state, mark)
    return rows


def _when(mark: Marker) -> str:
    if mark.kind in (MarkerKind.FINDING, MarkerKind.SPIKE):
        return f"at step {mark.step:,}"
    return f"after step {mark.step:,}"


def _rows_of(state: RunState, mark: Marker) -> list[DetailRow]:
    event = mark.of
    if isinstance(event, CommandApplied):
        return _of_command(state, event)
    if isinstance(event, Finding):
        return [*text_rows("rule", event.rule), *finding_rows(event)]
    if isinstance(event, MemorySpikeFound):
        return text_rows("what", spike_text(state, event))
    if isinstance(event, RateJump):
        words = (
            f"{event.before:g} → {event.after:g} of group {event.group} of optimizer {event.optimizer}, by the script"
        )
        return [*text_rows("what", printable(mark.words)), *text_rows("rate", words)]
    return text_rows("what", printable(mark.words))


def _of_command(state: RunState, applied: CommandApplied) -> list[DetailRow]:
    """Return what a command did, and what was measured of it."""
    change = next(
        (each for each in counted_changes(state) if each.command == applied.command and each.at == applied.at), None
    )
    words = (change.text or change_words(change)) if change is not None else applied.text
    results = ", ".join(change_results(change)) if change is not None else ""
    undo = "undo: " if applied.undone is not None else ""
    return [
        *text_rows("what", printable(undo + words), "strong"),
        *text_rows("result", printable(results) or None),
    ]
