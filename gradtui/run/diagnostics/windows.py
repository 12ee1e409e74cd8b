"""What the windows of `CallOrderMeasured` say about the optimizers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gradtui.protocol.call_order import AccumulationWindow
from gradtui.run.state.run_state import RunState
from gradtui.run.state.selectors import subtree
from gradtui.run.text.units import listed


class OptimizerWindows(NamedTuple):
    """The windows of one optimizer."""

    optimizer: int
    windows: tuple[AccumulationWindow, ...]

    @property
    def steps(self) -> int:
        """Number of its steps."""
        return sum(window.count for window in self.windows)

    def count(self, where: Callable[[AccumulationWindow], bool]) -> int:
        """Return the number of steps whose window satisfies `where`."""
        return sum(window.count for window in self.windows if where(window))

    def first(self, where: Callable[[AccumulationWindow], bool]) -> int:
        """Return the first step whose window satisfies `where`; 0 if none does."""
        return min((window.first_step for window in self.windows if where(window)), default=0)

    @property
    def usual_length(self) -> int:
        """The number of backwards that most steps apply."""
        lengths: dict[int, int] = {}
        for window in self.windows:
            lengths[window.applied] = lengths.get(window.applied, 0) + window.count
        return max(lengths, key=lambda length: (lengths[length], length), default=0)


def windows_by_optimizer(state: RunState) -> Iterator[OptimizerWindows]:
    """Yield the windows of each optimizer that has stepped."""
    windows = state.calls.windows if state.calls is not None else ()
    for optimizer in dict.fromkeys(window.optimizer for window in windows if window.optimizer >= 0):
        yield OptimizerWindows(optimizer, tuple(window for window in windows if window.optimizer == optimizer))


def steps_alone(state: RunState, each: OptimizerWindows) -> bool:
    """Return whether no other optimizer has stepped between the first and the last step of this one."""
    first, last = min(window.first_step for window in each.windows), max(window.last_step for window in each.windows)
    others = [other for other in windows_by_optimizer(state) if other.optimizer != each.optimizer]
    return all(window.last_step < first or window.first_step > last for other in others for window in other.windows)


def last_step(state: RunState, each: OptimizerWindows) -> int:
    """Return the step until which an optimizer is in use: its last one, if others have stepped since, else that of the run."""
    own = max(window.last_step for window in each.windows)
    others = (window.last_step for window in state.calls.windows if window.optimizer >= 0) if state.calls else ()
    return own if any(step > own for step in others) else state.step


def optimizer_name(state: RunState, optimizer: int) -> str:
    """Return the type of an optimizer. If there are several, also its number and the names of the models that it trains."""
    if optimizer >= len(state.optimizers):
        return "the optimizer"
    name = state.optimizers[optimizer].type_name
    if len(state.optimizers) == 1:
        return name
    owned, tree = state.optimizers[optimizer].parameters, state.tree
    ranges = [(model.name, subtree(tree.modules[model.root])) for model in tree.models]
    models = [model for model, where in ranges if any(index in where for index in owned)]
    return f"{name} of {listed(models, 2)} (optimizer {optimizer})" if models else f"{name} (optimizer {optimizer})"


def has_stepped(state: RunState, steps: int) -> bool:
    """Return whether optimizers have stepped at least this number of times. Samples of fast steps arrive before `Progress`."""
    return bool(state.optimizers) and max(sum(state.optimizer_steps), state.tree.measured) >= steps


def needs_sample(state: RunState) -> str | None:
    """Return why no rule about sampled backwards could match; None if one was sampled."""
    return None if state.tree.measured else "no step was sampled"


def needs_norm(state: RunState) -> str | None:
    """Return why no rule about gradient norms could match; None if one was read."""
    return None if state.gradient_norm.steps else "no gradient norm was read"


def needs_optimizer(state: RunState) -> str | None:
    """Return why no rule about an optimizer's steps could match; None if one stepped."""
    return None if any(state.optimizer_steps) else "no optimizer stepped"
