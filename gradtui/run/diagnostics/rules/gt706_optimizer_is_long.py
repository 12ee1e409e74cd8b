"""GT706: the optimizer's steps take a large part of the loop."""

from __future__ import annotations

from collections.abc import Iterator

from gradtui.protocol.step_times import StepPart
from gradtui.run.diagnostics.rule import Match, Rule
from gradtui.run.diagnostics.step_parts import long_part, needs_steps
from gradtui.run.state.findings import Level
from gradtui.run.state.run_state import RunState
from gradtui.run.text.units import duration_text, plural

_FASTER = ("fused", "foreach")
"""Settings that have an optimizer update many tensors in one operation."""

_FASTER_STILL = "pass fused=True, or foreach=True where there is no fused form; freeze what need not train"


def check(state: RunState) -> Iterator[Match]:
    """Match a loop whose optimizer takes much of its time. It is a warning where the optimizer could be faster as it is."""
    for part in long_part(state, StepPart.OPTIMIZER):
        slow = _without(state)
        tensors = sum(len(each.parameters) for each in state.optimizers if not each.freed)
        words = f", with {' and '.join(f'{name}=False' for name in slow)}" if slow else ""
        yield Match(
            f"{part.words} is the optimizer: {duration_text(part.a_step)} a step for {plural(tensors, 'tensor')}{words}",
            part.evidence | {"tensors": tensors},
            is_exact=part.is_exact,
            level=None if slow else Level.NOTE,
            remedy=None if slow else _FASTER_STILL,
        )


def _without(state: RunState) -> list[str]:
    """Return the faster implementations that an optimizer has, and that the script has switched off."""
    groups = [group for each in (state.groups.optimizers if state.groups is not None else ()) for group in each]
    settings = [dict(group.further) for group in groups]
    if any(each.get(name) for each in settings for name in _FASTER):
        return []
    return [name for name in _FASTER if any(each.get(name) is False for each in settings)]


RULE = Rule(
    "GT706",
    Level.WARNING,
    "the optimizer takes much of the time",
    "an optimizer that updates one tensor after the other starts several operations for each of them",
    "let it choose (leave out foreach=False and fused=False), or pass fused=True; freeze what need not train",
    check,
    needs=needs_steps,
)
