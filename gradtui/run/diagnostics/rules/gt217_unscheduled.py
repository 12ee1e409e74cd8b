"""GT217: there is a scheduler, and the learning rate of some parameters that train stays as it is."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.windows import optimizer_name
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import listed, plural

_STEPS = 2


def check(state: RunState) -> Iterator[Match]:
    """Match schedulers without a step, those of an optimizer that steps no more, and groups that were added later."""
    for each in state.script_calls.missed.values():
        if each.steps < _STEPS and not each.epochs:
            continue
        name = optimizer_name(state, each.optimizer)
        if each.epochs:
            message = (
                f"{each.scheduler} of {name} has made no step in {plural(each.epochs, 'epoch')}: the learning rate stays at "
                f"{each.rate:g}"
            )
            remedy = "call its step(), once an epoch or after each optimizer.step(), as its numbers mean"
        elif each.groups:
            which = "group " + listed([str(group) for group in each.groups])
            message = (
                f"{which} of {name} was added after {each.scheduler} was made: its learning rate is {each.rate:g} since step "
                f"{each.since_step:,}, over {plural(each.steps, 'step')} of the scheduler"
            )
            remedy = "make the scheduler anew after add_param_group()"
        else:
            message = (
                f"{each.scheduler} made {plural(each.steps, 'step')} for {name}, which does not step since step "
                f"{each.since_step:,}: {optimizer_name(state, each.stepping)} steps in its place, at {each.rate:g}"
            )
            remedy = "make the scheduler for the optimizer that steps"
        yield Match(
            message,
            {"scheduler_steps": each.steps, "learning_rate": each.rate, "groups": len(each.groups)},
            first_step=each.since_step,
            is_exact=True,
            remedy=remedy,
            site=each.site,
            key=f"{each.scheduler} {each.optimizer}",
        )


RULE = Rule(
    "GT217",
    Level.WARNING,
    "a schedule does not reach what trains",
    "a scheduler changes the groups that its optimizer had when the scheduler was made, and no other optimizer",
    "make the scheduler after the optimizer and its groups are complete",
    check,
    explains=frozenset({"GT115"}),
)
