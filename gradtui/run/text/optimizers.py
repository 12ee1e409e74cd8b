"""Losses and norms of a run by optimizer, in words: those of different optimizers are never compared. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from gradtui.run.state.optimizers.optimizer_turns import OptimizerTurns, ShownOptimizer, optimizer_turns
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import newest_step
from gradtui.run.state.series import Series
from gradtui.run.text.units import number_text, plural
from gradtui.system.printable import printable

OF_PARTS = "of the parts that this rank has"
"""Of norms of sharded parameters: a process has those of its parts only, and the combined ones are not kept for all steps."""
_LOSS_OF = {"mean": "the mean of a step's micro-steps", "sum": "the sum of a step's micro-steps"}


def steps_by_optimizer(state: RunState) -> str:
    """Return `Generator 533, Discriminator 533`; empty unless several optimizers step in turns."""
    turns = optimizer_turns(state)
    if turns.parts:
        return f"of {turns.parts:,} optimizers of one model"
    named = [f"{printable(each.name)} {each.steps:,}" for each in turns.shown]
    return ", ".join(named) + _others(turns)


def loss_of_text(loss_of: str) -> str:
    """Say how the losses of a step's backwards are combined; empty for a single backward."""
    return _LOSS_OF.get(loss_of, "")


def main_loss_of(state: RunState) -> str:
    """Return how the main optimizer's losses combine those of several backwards, a key of `loss_of_text`."""
    curves = state.of_optimizers.get(state.main_optimizer) if state.main_optimizer is not None else None
    return curves.loss_of if curves is not None else ""


def loss_courses(state: RunState) -> list[str]:
    """Return the first and the last loss, of each optimizer if several step in turns: `G 2.31 (step 2) → 0.71 (step 1,066)`."""
    turns = optimizer_turns(state)
    if not turns.shown:
        text, of = course(state.loss, state.main_since), loss_of_text(main_loss_of(state))
        return [f"{text}, each {of}" if of else text] if text else []
    own = [each for each in turns.shown if each.has_own_loss]
    kinds = {each.curves.loss_of for each in own}
    lines = []
    for each in own:
        text, of = course(each.curves.loss), loss_of_text(each.curves.loss_of)
        # What is true of all of them is said once.
        said = of and (len(kinds) > 1 or each is own[0])
        if text:
            name = f"{printable(each.name)} " if len(own) > 1 else ""
            lines.append(f"{name}{text}" + (f", each {of}" if said else ""))
    return _counted(lines, turns)


def norm_courses(state: RunState) -> list[str]:
    """Return the first and the last total norm in the same way."""
    turns = optimizer_turns(state)
    if turns.shown:
        return _counted([*_norms(state, turns.shown)], turns)
    norms = state.norm_summary
    if norms.last is None or norms.last_step is None:
        return []
    text = _course(norms.first, norms.first_step, norms.last, norms.last_step)
    whose = f", of the parameters of one of {turns.parts:,} optimizers" if turns.parts else ""
    return [f"{text}{whose}{_of_parts(state)}"]


def others_norm_courses(state: RunState) -> list[str]:
    """Return the same without that of the main optimizer, which the report describes in full."""
    turns = optimizer_turns(state)
    others = [optimizer for optimizer in turns.shown if optimizer.index != state.main_optimizer]
    return _counted([*_norms(state, others)], turns)


def _norms(state: RunState, optimizers: Iterable[ShownOptimizer]) -> Iterator[str]:
    for optimizer in optimizers:
        text = course(optimizer.curves.gradient_norm)
        if text:
            yield f"{printable(optimizer.name)} {text}{_of_parts(state)}"


def _of_parts(state: RunState) -> str:
    return f", {OF_PARTS}" if state.tree.is_sharded else ""


def newest_losses(state: RunState) -> str:
    """Return `Generator 0.6907 (step 82), Discriminator 1.706 (step 81)`; empty unless several optimizers step in turns."""
    return ", ".join(
        f"{printable(optimizer.name)} {_newest(state, optimizer.curves.loss, 4)}"
        for optimizer in optimizer_turns(state).shown
        if optimizer.has_own_loss and len(optimizer.curves.loss)
    )


def newest_norms(state: RunState) -> str:
    """Return the total norms in the same way."""
    # A process knows the norms of its parts only; what all ranks have is combined for all optimizers together.
    bound = "≥ " if state.tree.is_sharded else ""
    return ", ".join(
        f"{printable(optimizer.name)} {bound}{_newest(state, optimizer.curves.gradient_norm, 3)}"
        for optimizer in optimizer_turns(state).shown
        if len(optimizer.curves.gradient_norm)
    )


def _newest(state: RunState, series: Series, digits: int) -> str:
    return f"{series.values[-1]:.{digits}g}{of_step_text(state, series.steps[-1])}"


def of_step_text(state: RunState, step: int) -> str:
    """Return ` (step 81)`, or nothing if that is the newest step."""
    return f" (step {step:,})" if step != newest_step(state) else ""


def main_name(state: RunState) -> str:
    """Return the name of the main optimizer if several step in turns, else an empty text."""
    main = main_of(optimizer_turns(state), state)
    return printable(main.name) if main is not None else ""


def main_of(turns: OptimizerTurns, state: RunState) -> ShownOptimizer | None:
    """Return the main optimizer if it is shown."""
    return next((each for each in turns.shown if each.index == state.main_optimizer), None)


def course(series: Series, since: int = 0) -> str:
    """Return the first value from a step on and the last one, each with its step; empty without any."""
    first = bisect_left(series.steps, since)
    if first >= len(series):
        return ""
    return _course(series.values[first], series.steps[first], series.values[-1], series.steps[-1])


def _course(first: float | None, first_step: int | None, last: float, last_step: int) -> str:
    end = f"{number_text(last).strip()} (step {last_step:,})"
    return end if first_step == last_step else f"{number_text(first).strip()} (step {first_step:,}) → {end}"


def _counted(lines: list[str], turns: OptimizerTurns) -> list[str]:
    return [*lines[:-1], lines[-1] + _others(turns)] if lines else []


def _others(turns: OptimizerTurns) -> str:
    return f"; {plural(turns.omitted, 'more optimizer')}" if turns.omitted else ""
