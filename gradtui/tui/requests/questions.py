"""The questions of form dialogs: their fields, and the check of the typed values. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gradtui.protocol.commands import RunSteps, RunTo, SaveCheckpoint, SetGroup, SetLearningRate
from gradtui.protocol.vocabulary import GroupSettings
from gradtui.run.state.optimizers.param_groups import param_groups
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import row_parameters
from gradtui.run.state.tree.rows import row_path
from gradtui.run.text import group_title
from gradtui.tui.requests.question import Field, Question
from gradtui.tui.requests.requests import Make, Refusal, refusal_of
from gradtui.tui.requests.tries import try_question

_MAX_LISTED = 8


def question_for(name: str, state: RunState, row: int | None = None) -> Question | Refusal:
    """Return a question of `QUESTIONS`, or of `ROW_QUESTIONS`, or why it is not asked.

    Args:
        name: the question, which is the id of its action.
        state: the run.
        row: the row under the cursor (see `tree_rows`), None if there are no rows.
    """
    if name in ROW_QUESTIONS:
        refusal = refusal_of("parameters", state, row)
        return refusal or ROW_QUESTIONS[name](state, row or 0)
    return refusal_of("run", state) or QUESTIONS[name](state)


def _wanted(what: str, kind: str, text: str) -> Refusal:
    """Return what is to be typed in a field, and what is wrong with the text that is there."""
    text = text.strip()
    return Refusal(f"{what} is {kind}, not {text}." if text else f"Type {what[0].lower()}{what[1:]}: {kind}.")


def _steps(typed: Sequence[str]) -> Make | Refusal:
    count = _whole(typed[0])
    if count is None or count < 1:
        return _wanted("A number of steps", "a whole number from 1 on", typed[0])
    return lambda number: RunSteps(number, count)


def _run_to(state: RunState) -> Question:
    now = state.step

    def answer(typed: Sequence[str]) -> Make | Refusal:
        step = _whole(typed[0])
        if step is None:
            return _wanted("A step", f"a whole number from {now + 1:,} on", typed[0])
        if step <= now:
            return Refusal(f"Step {step:,} is over: {now:,} steps have been executed.")
        return lambda number: RunTo(number, step)

    return Question("Run to a step, then pause", (Field("step", hint=str(now + 100)),), answer, (f"Now: step {now:,}",))


def step_question(now: int, last: int) -> Question:
    """Return the question for a step of a recording, from 0 to `last`."""

    def answer(typed: Sequence[str]) -> Make | Refusal:
        step = _whole(typed[0])
        if step is None or not 0 <= step <= last:
            return _wanted("A step", f"a whole number from 0 to {last:,}", typed[0])
        return lambda number: RunTo(number, step)

    return Question("Go to a step", (Field("step", hint=f"0 to {last}"),), answer, (f"Now: step {now:,}",))


def _save_checkpoint(_: RunState) -> Question:
    notes = ("Models, optimizers, step and random states, for torch.load.", "Training is paused while it is written.")
    hint = "empty: beside the log"
    return Question("Save a checkpoint", (Field("file", hint=hint),), _file, notes)


def _file(typed: Sequence[str]) -> Make | Refusal:
    name = typed[0].strip()
    if name.endswith("/"):
        return Refusal(f"{name} is a directory: name a file in it.")
    return lambda number: SaveCheckpoint(number, name)


def _set_group(state: RunState) -> Question | Refusal:
    groups = _groups(state)
    if not groups:
        return Refusal("There is no optimizer left." if state.optimizers else "No optimizer has been seen yet.")
    at = f" (step {state.groups.step:,})" if state.groups is not None else ""
    notes = [f"{index}  {words}" for index, (_, _, words) in enumerate(groups[:_MAX_LISTED])]
    notes[0] += at
    if len(groups) > _MAX_LISTED:
        notes.append(f"… {len(groups)} groups in all")
    fields = (
        Field("group", "0"),
        Field("learning rate", hint="empty: as it is; *0.1: a tenth"),
        Field("weight decay", hint="empty: as it is"),
    )
    return Question("Learning rate and weight decay", fields, lambda typed: _group(typed, groups), tuple(notes))


def _set_learning_rate(state: RunState, row: int) -> Question | Refusal:
    path, parameters = row_path(state.tree, row), set(row_parameters(state.tree, row))
    groups = [group for group in param_groups(state) if not parameters.isdisjoint(group.parameters)]
    if not groups:
        return Refusal(f"No optimizer has a parameter of {path or 'the model'}.")
    rates = {group.rate for group in groups}
    words = f"learning rate {_number_words(rates.pop() if len(rates) == 1 else None)}"
    notes = [group_title(state, group, with_rate=True) for group in groups[:_MAX_LISTED]]
    notes.append("It will keep its ratio to the rate of its group, whatever sets that.")

    def answer(typed: Sequence[str]) -> Make | Refusal:
        rate = _setting("learning rate", typed[0], words)
        if isinstance(rate, Refusal):
            return rate
        if rate is None:
            return _wanted("A learning rate", "a number from 0 on, such as 3e-4", "")
        return lambda number: SetLearningRate(number, path, rate)

    field = Field("learning rate", hint="3e-4; *0.1: a tenth")
    return Question(f"Learning rate of {path or 'the model'}", (field,), answer, tuple(notes))


_Group = tuple[int, int, str]
"""Index of the optimizer, index of the group within it, and its settings in words."""


def _groups(state: RunState) -> list[_Group]:
    read = state.groups.optimizers if state.groups is not None else ()
    found: list[_Group] = []
    for index, optimizer in enumerate(state.optimizers):
        settings = read[index] if index < len(read) else ()
        if index < len(read) and not settings:
            # Every optimizer has a group, so one without settings is gone.
            continue
        for group in range(optimizer.groups):
            known = settings[group] if group < len(settings) else GroupSettings(None, None)
            name = f"{optimizer.type_name} group {group}" if optimizer.groups > 1 else optimizer.type_name
            found.append((index, group, f"{name}: {_words(known)}"))
    return found


def _words(known: GroupSettings) -> str:
    rate, decay = known.learning_rate, known.weight_decay
    return f"learning rate {_number_words(rate)}, weight decay {_number_words(decay)}"


def _number_words(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def _group(typed: Sequence[str], groups: list[_Group]) -> Make | Refusal:
    index = _whole(typed[0])
    if index is None or not 0 <= index < len(groups):
        last = len(groups) - 1
        known = f"they are 0 to {last}" if last else "there is only 0"
        number = typed[0].strip()
        return Refusal(f"There is no group {number}: {known}." if number else f"Type the number of a group: {known}.")
    optimizer, group, words = groups[index]
    rate = _setting("learning rate", typed[1], words)
    decay = _setting("weight decay", typed[2], words)
    for value in (rate, decay):
        if isinstance(value, Refusal):
            return value
    if rate is None and decay is None:
        return Refusal("Type a learning rate, a weight decay, or both.")
    return lambda number: SetGroup(number, optimizer, group, rate, decay)  # type: ignore[arg-type]  # neither is a refusal now


def _setting(name: str, text: str, words: str) -> float | Refusal | None:
    """Parse a number from 0 on, or `*` and a factor of the present value; None for an empty text."""
    text = text.strip()
    if not text:
        return None
    factor = 1.0
    if text.startswith("*"):
        now = _number(words.partition(f"{name} ")[2].partition(",")[0])
        if now is None:
            return Refusal(f"What the {name} is now is not known: type the number itself.")
        factor, text = now, text[1:].strip()
    value = _number(text)
    if value is None or value < 0:
        return _wanted(f"A {name}", "a number from 0 on, such as 3e-4", text)
    return value * factor


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str) -> int | None:
    try:
        return int(text.strip().replace(",", "").replace("_", ""))
    except ValueError:
        return None


QUESTIONS: dict[str, Callable[[RunState], Question | Refusal]] = {
    "run_steps": lambda _: Question("Run several steps, then pause", (Field("steps", hint="10"),), _steps),
    "run_to": _run_to,
    "set_group": _set_group,
    "save_checkpoint": _save_checkpoint,
}
"""By the id of its action: each request that needs values from the user."""
ROW_QUESTIONS: dict[str, Callable[[RunState, int], Question | Refusal]] = {
    "set_learning_rate": _set_learning_rate,
    "try_change": try_question,
}
"""The same about the row under the cursor."""
