"""Describe the kept states of the run, and the return to one of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.run.state.kept_states import KeptStateInfo
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import DASH, duration_text, number_text, size_text

WHAT_A_RETURN_DOES = (
    "A return undoes what was changed since, and gives models, optimizers, schedulers and random states the values that they "
    "had. The script's own loop continues: its counters, its progress bar and its loader stand where they are."
)
_WHY = {"command": "", "change": "before a change", "finite": "finite, for a return policy"}


def kept_rows(state: RunState) -> list[tuple[int, str]]:
    """Return the number and a line of each kept state, the newest first, in columns: step, age, size, loss, and why."""
    found = list(reversed(state.kept.states.values()))
    cells = [_cells(state, each) for each in found]
    widths = [max(len(row[at]) for row in cells) for at in range(4)] if cells else []
    return [
        (each.kept.number, f"{'  '.join(cell.rjust(width) for cell, width in zip(row, widths))}  {row[4]}".rstrip())
        for each, row in zip(found, cells)
    ]


def _cells(state: RunState, info: KeptStateInfo) -> Sequence[str]:
    kept = info.kept
    loss = number_text(info.loss).strip() if info.loss is not None else DASH
    age = f"{duration_text(max(0.0, state.seconds - kept.at))} ago"
    return f"step {kept.step:,}", age, size_text(kept.bytes), f"loss {loss}", kept.name or _WHY.get(kept.why, kept.why)
