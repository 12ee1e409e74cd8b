"""GT223: a schedule is over long before training is: its scheduler steps more often than it was made for."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import optimizer_name
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import plural


def check(state: RunState) -> Iterator[Match]:
    """Match schedulers that step on after their end, and those that have lowered the rate to nearly nothing."""
    for each in state.script_calls.over.values():
        name = optimizer_name(state, each.optimizer)
        if each.is_cyclic:
            message = (
                f"{each.scheduler} of {name} was made for {plural(each.length, 'step')} (T_max), and has made "
                f"{each.steps:,} or more: after T_max the learning rate rises again"
            )
            remedy = "set T_max to all steps that the scheduler makes, or call its step() once an epoch if T_max counts epochs"
        else:
            message = (
                f"{each.scheduler} divides the learning rate of {name} by 1,000 within {plural(each.length, 'step')}, and is "
                "stepped after each step of the optimizer"
            )
            remedy = "call its step() once an epoch if its numbers are of epochs, or make it for steps"
        yield Match(
            message,
            {"length": each.length, "scheduler_steps": each.steps},
            is_exact=True,
            remedy=remedy,
            site=each.site,
            key=f"{each.scheduler} {each.optimizer}",
        )


RULE = Rule(
    "GT223",
    Level.WARNING,
    "a schedule is over before training is",
    "a scheduler counts calls of its step(), not epochs: called at each batch, it is through with its schedule within an epoch",
    "call scheduler.step() as often as its numbers mean",
    check,
    explains=frozenset({"GT202"}),
)
