"""The choices while the run is held before an optimizer's step with NaN or Inf, and the commands that each one makes. Pure."""

from __future__ import annotations

from functools import partial

from gradtui.dataclass import dataclass
from gradtui.protocol.commands import Resume, SetGroup, SkipStep
from gradtui.protocol.vocabulary import HeldStep
from gradtui.run.state.run_state import RunState
from gradtui.run.text.script_lines import script_line_text
from gradtui.tui.requests.requests import Make

_DIVISOR = 10


@dataclass(frozen=True)
class Choice:
    """One line of the dialog: its key, its text, and what makes its commands."""

    key: str
    text: str
    commands: tuple[Make, ...]


def choices(state: RunState, held: HeldStep) -> list[Choice]:
    """Return what the user may do with the step before which the run is held."""
    found = []
    # The same weights, or the same batch in the next epoch, give the same values again.
    again = f"; {state.newest_bad_step.value} may come again" if state.newest_bad_step is not None else ""
    if not held.no_skip:
        found.append(Choice("s", f"Skip this step: weights and state stay as they are{again}", (SkipStep, Resume)))
        lower, words = _lower(state, held)
        if lower:
            text = f"Skip it and lower the learning rate: {words}"
            found.append(Choice("l", text, (*lower, SkipStep, Resume)))
    found.append(Choice("c", "Continue: the step applies these gradients", (Resume,)))
    return found


def _lower(state: RunState, held: HeldStep) -> tuple[tuple[Make, ...], str]:
    """Return what sets a tenth of the rate of each param group, and the rates in words; nothing where a rate is not known."""
    groups = state.groups.optimizers if state.groups is not None else ()
    rates = [group.learning_rate for group in groups[held.optimizer]] if held.optimizer < len(groups) else []
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return (), ""
    makes = tuple(
        partial(SetGroup, optimizer=held.optimizer, group=index, learning_rate=rate / _DIVISOR)
        for index, rate in enumerate(known)
        if rate
    )
    return makes, ", ".join(dict.fromkeys(f"{rate:g} → {rate / _DIVISOR:g}" for rate in known if rate))


def facts(state: RunState, held: HeldStep) -> list[str]:
    """Return the cause, and what is known of the step, as sentences."""
    reason = state.pause_reason
    lines = [f"{reason[:1].upper()}{reason[1:]}."] if reason else []
    if held.line is not None:
        lines.append(f"At {script_line_text(held.line)}")
    lines.append(f"The step of {held.name} has not run: the gradients are there, and the weights are those before it.")
    if held.no_skip:
        lines.append(f"It cannot be skipped: {held.no_skip}.")
    return lines
