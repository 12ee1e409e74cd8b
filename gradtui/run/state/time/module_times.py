"""How much of a step each module takes, as measured in sampled steps. Pure."""

from __future__ import annotations

from gradtui.dataclass import dataclass
from gradtui.protocol.forecasts import MeasuredTimes
from gradtui.protocol.step_times import StepPart
from gradtui.protocol.summary_time import ModuleTiming
from gradtui.run.state.run_state import RunState
from gradtui.run.state.tree_state import TreeState


@dataclass(frozen=True)
class ModuleTime:
    """Seconds of a step. "Own" is without the modules that a module calls."""

    forward: float
    own_forward: float
    backward: float
    own_backward: float

    @property
    def total(self) -> float:
        """Forward and backward, with the modules that it calls."""
        return self.forward + self.backward

    @property
    def own(self) -> float:
        """The same without them."""
        return self.own_forward + self.own_backward


def module_time(tree: TreeState, index: int) -> ModuleTime | None:
    """Return the time of a module; None if it is unknown, or if the module did not run in the steps that were timed."""
    times = tree.times
    if times is None or not (times.forward[index] or times.backward[index]):
        return None
    values = (times.forward, times.own_forward, times.backward, times.own_backward)
    return ModuleTime(*(each[index] / 1e9 for each in values))


def module_timing(tree: TreeState) -> ModuleTiming | None:
    """Return how the times of modules were measured; None if there are none."""
    times = tree.times
    return ModuleTiming(times.samples, times.cost, times.is_on_device) if times is not None else None


def all_modules_seconds(tree: TreeState) -> float:
    """Return the time of all modules together."""
    return (sum(tree.times.own_forward) + sum(tree.times.own_backward)) / 1e9 if tree.times is not None else 0.0


def longest_modules(tree: TreeState) -> list[int]:
    """Return the modules that take time themselves, the longest first."""
    times = tree.times
    if times is None:
        return []
    own = [forward + backward for forward, backward in zip(times.own_forward, times.own_backward)]
    return sorted((index for index, each in enumerate(own) if each), key=own.__getitem__, reverse=True)


def are_times_old(state: RunState) -> bool:
    """Return whether the times are from before the newest change of the run."""
    return state.tree.times is not None and state.tree.times.step <= state.changed_after


def measured_times(state: RunState) -> MeasuredTimes | None:
    """Return what a step takes now, as it was measured since the newest change; None while that is not known."""
    times, steps = state.tree.times, state.step_times
    medians = {each.part: each.median for each in steps.parts} if steps is not None else {}
    if times is None or times.is_on_device or are_times_old(state) or not medians or None in medians.values():
        return None
    step = sum(median or 0.0 for part, median in medians.items() if part is not StepPart.GRADTUI)
    forward, backward = (tuple(each / 1e9 for each in own) for own in (times.own_forward, times.own_backward))
    return MeasuredTimes(step, medians[StepPart.OPTIMIZER] or 0.0, forward, backward)
