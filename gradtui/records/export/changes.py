"""The changes of a run in words, as the summary has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol import summary_changes as sc
from gradtui.run.state.changes.changes import Change, ChangeStatus
from gradtui.run.state.run_state import RunState
from gradtui.run.text import change_results, change_words, counted_changes
from gradtui.run.text.effects import effect_clauses
from gradtui.run.text.freezes import verified_result
from gradtui.run.text.units import sentence


def changes(state: RunState) -> tuple[sc.Change, ...]:
    """Return the newest changes, with what came of each."""
    return tuple(map(_change, counted_changes(state)))


def _change(change: Change) -> sc.Change:
    # A refusal is its result, and has no other answer.
    answer = sentence(change.text) if change.status in (ChangeStatus.APPLIED, ChangeStatus.UNDONE) else ""
    return sc.Change(change.step, change.status.value, change_words(change), answer, tuple(_results(change)))


def _results(change: Change) -> Iterator[str]:
    """Yield what came of a change, each value with its name."""
    if change.receipt is not None and change.receipt.effect is not None:
        yield from effect_clauses(change.receipt.effect, change.forecast)
        if change.verified is not None:
            yield verified_result(change.verified)
        return
    status = change.status.value
    for result in change_results(change):
        if result != status:
            yield result.removeprefix(f"{status}: ")
