"""The question of a try: which change of the row, and on how many batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gradtui.protocol.commands import TryChange
from gradtui.run.state.changes.toggles import toggle_of
from gradtui.run.state.forecasts.plans import PlanFigures
from gradtui.run.state.parts.tries import change_of, progress_of
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import row_parameters
from gradtui.run.state.tree.rows import row_path
from gradtui.run.text.tries import progress_text
from gradtui.tui.requests.question import Field, Question
from gradtui.tui.requests.requests import Make, Refusal

TRIED_STEPS = 50
_MAX_PLANS = 6
_NOTES = (
    "The run trains on the next batches twice, without and with the change, from the same state.",
    "It says what that costs in loss, with a 95 % interval; then it asks which side continues.",
    "If the script has evaluated with a DataLoader, each side then goes over 8 batches of that data, without a step.",
    "The script's loop makes that many more iterations, and its own counters count them.",
    "A change that fails (no memory, NaN) ends its side only.",
    "Batches and two copies of the run stay in memory until then.",
)


def try_question(state: RunState, row: int) -> Question | Refusal:
    """Return the form for a try of a change of the row, or why there is none."""
    if (began := state.tries.under_way) is not None:
        found = progress_of(state.tries, began.command, state.step)
        words = f": {progress_text(found)}" if found is not None else ""
        return Refusal(f"A try is under way{words}. gradtui do end-try ends it.")
    if state.job is not None and len(state.job.live) > 1:
        return Refusal("Several ranks train: a try is for one process. Start the script by itself on one device.")
    path = row_path(state.tree, row)
    toggle = toggle_of(state, path, row_parameters(state.tree, row))
    if toggle is None:
        return Refusal(f"Whether {path or 'the model'} trains is not known before the first step.")
    change = f"{'unfreeze' if toggle.trainable else 'freeze'} {path or '**'}"
    return Question("Try a change", (Field("change", change), Field("steps", str(TRIED_STEPS))), _answer, _NOTES)


def best_plans(known: Sequence[PlanFigures]) -> tuple[str, ...]:
    """Return the changes of the first plans that no other beats in memory and time; of the first ones while that is unknown."""
    best = [each for each in known if each.on_front] or list(known)
    changes = (change_of([make(0) for make in each.plan.commands]) for each in best)
    return tuple(dict.fromkeys(each for each in changes if each is not None))[:_MAX_PLANS]


def _answer(typed: Sequence[str]) -> Make | Refusal:
    change, steps = (each.strip() for each in typed)
    if not change:
        return Refusal("Type a change, such as freeze blocks.0 or checkpoint blocks.0.")
    if not steps.isascii() or not steps.isdecimal() or len(steps) > 6:
        return Refusal(f"The steps are a whole number, not {steps}." if steps else "Type a number of steps.")
    return lambda number: TryChange(number, (change,), int(steps), "ask")
