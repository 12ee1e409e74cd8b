"""Describe the kept states of the run, the copies of them, and the return to one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.events import CopyProgress
from gradtui.run.state.changes.copy_cost import copy_cost
from gradtui.run.state.parts.kept_states import KeptStateInfo, Return
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import DASH, duration_text, listed, number_text, size_text

WHAT_A_RETURN_DOES = (
    "A return undoes what was changed since, and gives models, optimizers, schedulers and random states the values that they "
    "had. The script's own loop continues: its counters, its progress bar and its loader stand where they are."
)
_WHY = {"command": "", "change": "before a change", "finite": "finite, for a return policy"}
_METRICS = 2
"""Metrics of a row."""


def copy_cost_text(state: RunState, *, into_file: bool = False) -> str:
    """Say what a copy of the run takes, as far as the viewer knows; empty if it does not."""
    cost = copy_cost(state)
    if cost is None:
        return ""
    size, wait = size_text(cost.bytes), duration_text(cost.seconds)
    about = "" if cost.is_of_copy else "about "
    and_file = ", and until it is written" if into_file else ""
    return f"a copy takes {about}{size}, and training waits about {wait} for it{and_file}"


def copying_text(event: CopyProgress) -> str:
    """Say how far a copy is."""
    what = "writes a state to a file" if event.what == "write" else "keeps a state"
    return f"{what}: {size_text(event.done)} of {size_text(event.total)}; training waits"


def return_text(made: Return) -> str:
    """Say what a return was: `returned to step 512 at step 700 (state 3, kept before freezing blocks.0)`."""
    kept, event = made.kept, made.made
    named = f", {kept.name}" if kept is not None and kept.name else ""
    verb, _, rest = made.before.partition(" ")
    before = f", kept before {_DOING.get(verb, verb)} {rest}".rstrip() if made.before else ""
    why = f": {event.why}" if event.why else ""
    words = f"returned to step {event.to_step:,} at step {event.step:,} (state {event.number}{named}{before}){why}"
    words += left_text(event.left)
    return f"{words}; {' and '.join(event.differing)} differ from it" if event.differing else words


def left_text(names: Sequence[str]) -> str:
    """Say what does not come back, to be put behind what a return was; empty of nothing."""
    return f"; not brought back: {listed(names, _LEFT)}" if names else ""


_LEFT = 5
"""Names of what a return leaves."""


_DOING = {
    "checkpoint": "checkpointing", "clear": "clearing", "freeze": "freezing", "put": "putting", "restore": "restoring",
    "return": "returning", "set": "setting", "skip": "skipping", "stop": "ending", "train": "training",
    "undo": "undoing", "unfreeze": "unfreezing",
}  # fmt: skip


def copied_share(event: CopyProgress) -> float:
    """Return the share that is done."""
    return event.done / event.total if event.total else 1.0


def kept_rows(state: RunState) -> list[tuple[int, str]]:
    """Return the number and a line of each kept state, the newest first. Columns: step, age, size, loss, metrics, why."""
    found = list(reversed(state.kept.states.values()))
    cells = [_cells(state, each) for each in found]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return [(each.kept.number, "  ".join(_padded(row, widths)).rstrip()) for each, row in zip(found, cells)]


def _padded(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    # Numbers end at one place, names begin at one.
    cells = [
        cell.rjust(width) if at < _NUMBERS else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths))
    ]
    return [cell for cell, width in zip(cells, widths) if width]


_NUMBERS = 4


def _cells(state: RunState, info: KeptStateInfo) -> Sequence[str]:
    kept = info.kept
    loss = number_text(info.loss).strip() if info.loss is not None else DASH
    age = f"{duration_text(max(0.0, state.seconds - kept.at))} ago"
    metrics = " ".join(f"{name} {number_text(value).strip()}" for name, value in info.metrics[:_METRICS])
    why = kept.name or _WHY.get(kept.why, kept.why)
    return f"step {kept.step:,}", age, size_text(kept.bytes), f"loss {loss}", metrics, why
