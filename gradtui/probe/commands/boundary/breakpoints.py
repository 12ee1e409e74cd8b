"""Keep the breakpoints of the run, and compare what the probe measures with them. Runs on the training thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gradtui.probe.gradients import GradNormSample
from gradtui.probe.runtime import CommandRefused, CommandResult, NothingToDo
from gradtui.protocol.commands import ClearBreakpoint, SetBreakpoint
from gradtui.run.state.over_steps.breakpoints import is_met
from gradtui.run.text import breakpoint_text, reached_text, refusals

Receiver = Callable[[GradNormSample], None]


class Breakpoints:
    """The breakpoints that are set. Each one pauses the run once.

    Args:
        follow: makes the probe measure every step and passes each sample to its argument; with None it no longer does.
        rates: returns the learning rates that the step after this one uses.
    """

    def __init__(
        self, follow: Callable[[Receiver | None], None], rates: Callable[[int], Sequence[float | None]]
    ) -> None:
        self._follow, self._rates = follow, rates
        self.is_set = False
        """Whether any breakpoint is set."""
        self.awaits_spike = False
        """Whether one is set at a spike."""
        self._set: dict[int, SetBreakpoint] = {}
        self._reached: dict[int, str] = {}
        """By id: why a breakpoint that a measurement has reached pauses the run at the next boundary."""

    def set(self, command: SetBreakpoint, step: int) -> CommandResult:
        """Set a breakpoint after `step` steps. Raises `CommandRefused`."""
        if command.metric == "step" and command.value <= step:
            raise CommandRefused(refusals.step_is_over(int(command.value), step))
        if any(replace(each, id=command.id) == command for each in self._set.values()):
            raise NothingToDo(refusals.ALREADY_SO)
        self._set[command.id] = command
        self._changed()
        return CommandResult(f"pauses at {breakpoint_text(command)}", ())

    def clear(self, command: ClearBreakpoint) -> CommandResult:
        """Remove a breakpoint. Raises `CommandRefused`."""
        known = self._set.get(command.breakpoint)
        self.remove(command.breakpoint)
        return CommandResult(f"no longer pauses at {breakpoint_text(known)}" if known is not None else "", ())

    def remove(self, *numbers: int) -> None:
        """Remove the breakpoints with these ids. Raises `CommandRefused` if one is not set."""
        for number in numbers:
            if self._set.pop(number, None) is None:
                raise CommandRefused(refusals.breakpoint_is_gone(number))
            self._reached.pop(number, None)
            self._changed()

    def remove_all(self) -> None:
        """Remove all breakpoints, because without a viewer a paused run could not be resumed."""
        if self.is_set:
            self.remove(*tuple(self._set))

    def _changed(self) -> None:
        self.is_set = bool(self._set)
        metrics = {each.metric for each in self._set.values()}
        self.awaits_spike = "spike" in metrics
        self._follow(self._measured if metrics & {"loss", "norm", "spike"} else None)

    def spiked(self, words: str) -> bool:
        """Note that the loss or the norm has a spike, in words. Return whether a breakpoint is reached by that."""
        numbers = [number for number, command in self._set.items() if command.metric == "spike"]
        self._reached |= dict.fromkeys(numbers, words)
        return bool(numbers)

    def explain(self, words: str) -> None:
        """Append words to why the run is to be paused."""
        self._reached = {number: f"{reason}; {words}" for number, reason in self._reached.items()}

    def _measured(self, sample: GradNormSample) -> None:
        values = {"loss": sample.loss, "norm": sample.total}
        for number, command in self._set.items():
            value = values.get(command.metric)
            if value is not None and number not in self._reached and is_met(command, value):
                self._reached[number] = reached_text(command, value, sample.step)

    def holds_within(self, executed: int, steps: int) -> bool:
        """Return whether the run will be held at a given step after at most `steps` more than the `executed` steps."""
        return any(each.metric == "step" and 0 < each.value - executed <= steps for each in self._set.values())

    def take_reached(self, step: int) -> dict[int, str]:
        """Remove the breakpoints that are reached at the boundary after `step` steps. Return why, by their ids."""
        self._compare_at_boundary(step)
        reached, self._reached = self._reached, {}
        self.remove(*reached)
        return reached

    def _compare_at_boundary(self, step: int) -> None:
        rates = self._rates(step) if any(each.metric == "lr" for each in self._set.values()) else ()
        for number, command in self._set.items():
            if command.metric == "step" and step >= command.value:
                self._reached[number] = reached_text(command, step, step)
            crossed = [rate for rate in rates if rate is not None and is_met(command, rate)]
            if command.metric == "lr" and crossed:
                self._reached[number] = reached_text(command, crossed[0], step + 1)
